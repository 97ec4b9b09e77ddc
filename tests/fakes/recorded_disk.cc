// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/recorded_disk.h"

#include <limits.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <utility>

namespace blockswap {
namespace {

constexpr int64_t kSectorBytes = 512;

// Atomic, so that calls of a process that records nothing take no lock.
std::atomic<bool> records{false};
std::mutex mutex;
std::string recorded_path;
std::vector<RecordedDisk::Operation>* recorded = nullptr;

// Empty for a descriptor of another file.
std::string FileOf(int fd) {
  char path[PATH_MAX];
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = ::readlink(link.c_str(), path, sizeof(path));
  const std::string file(path, length > 0 ? static_cast<size_t>(length) : 0);
  return file == recorded_path || file == recorded_path + "-wal" ? file : std::string();
}

void Note(RecordedDisk::Kind kind, int fd, int64_t offset, std::string bytes) {
  if (!records.load()) return;
  const std::lock_guard<std::mutex> lock(mutex);
  if (recorded == nullptr) return;
  std::string file = FileOf(fd);
  if (file.empty()) return;
  recorded->push_back({kind, std::move(file), offset, std::move(bytes)});
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void Put(std::string& content, int64_t offset, const char* bytes, int64_t size) {
  const auto begin = static_cast<size_t>(offset), count = static_cast<size_t>(size);
  if (content.size() < begin + count) content.resize(begin + count, '\0');
  content.replace(begin, count, bytes, count);
}

struct File {
  std::string synced;
  std::vector<const RecordedDisk::Operation*> pending;
};

void ApplyAll(const RecordedDisk::Operation& operation, std::string& content) {
  if (operation.kind == RecordedDisk::Kind::kTruncate) {
    content.resize(static_cast<size_t>(operation.offset), '\0');
  } else {
    Put(content, operation.offset, operation.bytes.data(),
        static_cast<int64_t>(operation.bytes.size()));
  }
}

// Each sector by itself, as a disk that was interrupted has it.
void ApplySome(const RecordedDisk::Operation& operation, std::mt19937_64& random,
               std::string& content) {
  if (operation.kind == RecordedDisk::Kind::kTruncate) {
    if (random() % 2 == 0) ApplyAll(operation, content);
    return;
  }
  const auto size = static_cast<int64_t>(operation.bytes.size());
  for (int64_t done = 0; done < size;) {
    const int64_t place = operation.offset + done;
    const int64_t part = std::min(size - done, kSectorBytes - place % kSectorBytes);
    if (random() % 2 == 0) Put(content, place, operation.bytes.data() + done, part);
    done += part;
  }
}

}  // namespace

RecordedDisk::RecordedDisk(const std::string& path)
    : path_(path), before_{{path, ReadFile(path)}, {path + "-wal", ReadFile(path + "-wal")}} {
  const std::lock_guard<std::mutex> lock(mutex);
  recorded_path = path;
  recorded = &operations_;
  records.store(true);
}

RecordedDisk::~RecordedDisk() {
  const std::lock_guard<std::mutex> lock(mutex);
  records.store(false);
  recorded = nullptr;
}

size_t RecordedDisk::moment() const {
  const std::lock_guard<std::mutex> lock(mutex);
  return operations_.size();
}

size_t RecordedDisk::Count(Kind kind, const std::string& file) const {
  const std::lock_guard<std::mutex> lock(mutex);
  return static_cast<size_t>(
      std::count_if(operations_.begin(), operations_.end(), [&](const Operation& operation) {
        return operation.kind == kind && (file.empty() || operation.file == file);
      }));
}

size_t RecordedDisk::num_syncs() const { return Count(Kind::kSync, ""); }

size_t RecordedDisk::num_direct_writes() const { return Count(Kind::kWrite, path_); }

void RecordedDisk::CutAt(size_t moment, std::mt19937_64& random,
                         const std::string& directory) const {
  std::map<std::string, File> files;
  for (const auto& [name, content] : before_) files[name].synced = content;
  for (size_t i = 0; i < moment; ++i) {
    File& file = files[operations_[i].file];
    if (operations_[i].kind != Kind::kSync) {
      file.pending.push_back(&operations_[i]);
      continue;
    }
    for (const Operation* operation : file.pending) ApplyAll(*operation, file.synced);
    file.pending.clear();
  }
  for (auto& [name, file] : files) {
    const uint64_t keeps = random() % 3;  // nothing, everything, some
    for (const Operation* operation : file.pending) {
      if (keeps == 1) ApplyAll(*operation, file.synced);
      if (keeps == 2) ApplySome(*operation, random, file.synced);
    }
    const std::string copy = directory + "/" + std::filesystem::path(name).filename().string();
    std::ofstream(copy, std::ios::binary | std::ios::trunc) << file.synced;
  }
}

}  // namespace blockswap

extern "C" {

ssize_t pwrite64(int fd, const void* bytes, size_t size, off64_t offset) {
  const auto written = static_cast<ssize_t>(::syscall(SYS_pwrite64, fd, bytes, size, offset));
  if (written > 0) {
    blockswap::Note(blockswap::RecordedDisk::Kind::kWrite, fd, offset,
                    {static_cast<const char*>(bytes), static_cast<size_t>(written)});
  }
  return written;
}

int ftruncate64(int fd, off64_t size) noexcept {
  const auto result = static_cast<int>(::syscall(SYS_ftruncate, fd, size));
  if (result == 0) blockswap::Note(blockswap::RecordedDisk::Kind::kTruncate, fd, size, {});
  return result;
}

int fdatasync(int fd) {
  const auto result = static_cast<int>(::syscall(SYS_fdatasync, fd));
  if (result == 0) blockswap::Note(blockswap::RecordedDisk::Kind::kSync, fd, 0, {});
  return result;
}

int fsync(int fd) {
  const auto result = static_cast<int>(::syscall(SYS_fsync, fd));
  if (result == 0) blockswap::Note(blockswap::RecordedDisk::Kind::kSync, fd, 0, {});
  return result;
}

}  // extern "C"
