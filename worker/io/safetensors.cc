// SPDX-License-Identifier: Apache-2.0
#include "worker/io/safetensors.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "worker/io/regular_file.h"

namespace blockswap::worker {
namespace {

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kStartBytes = 16;  // the length, and enough to know a pickle

struct TypeFact {
  StoredType type;
  const char* name;
  int64_t bytes;
};

constexpr TypeFact kTypes[] = {
    {StoredType::kF64, "F64", 8},        {StoredType::kF32, "F32", 4},
    {StoredType::kF16, "F16", 2},        {StoredType::kBF16, "BF16", 2},
    {StoredType::kF8E4M3, "F8_E4M3", 1}, {StoredType::kF8E5M2, "F8_E5M2", 1},
    {StoredType::kI64, "I64", 8},        {StoredType::kI32, "I32", 4},
    {StoredType::kI16, "I16", 2},        {StoredType::kI8, "I8", 1},
    {StoredType::kU8, "U8", 1},          {StoredType::kBool, "BOOL", 1},
};

const TypeFact& FactOf(StoredType type) { return kTypes[static_cast<size_t>(type)]; }

uint64_t LittleEndian64(const std::byte* bytes) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | std::to_integer<uint64_t>(bytes[i]);
  return value;
}

// What torch.save writes: a zip archive, or (before 2020) a bare pickle. Neither is ever opened:
// unpickling runs code.
bool LooksLikePickle(absl::string_view start) {
  if (start.size() >= 4 && start.substr(0, 4) == absl::string_view("PK\x03\x04", 4)) return true;
  return start.size() >= 2 && start[0] == '\x80' && start[1] >= 2 && start[1] <= 5;
}

// `start`: the first bytes of a file of `size` bytes.
absl::Status CheckLength(absl::string_view start, int64_t size, const std::string& path) {
  if (size > kLengthBytes && start[kLengthBytes] == '{') {
    // Only now is the length worth reading: the first bytes of a pickle are a length too.
  } else if (LooksLikePickle(start)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path,
                     " is a pickle file as torch.save writes it; only safetensors files are read, "
                     "because unpickling runs code from the file: convert it to safetensors"));
  }
  if (size == 0) return absl::DataLossError(absl::StrCat(path, " is empty"));
  if (size < kLengthBytes) {
    return absl::DataLossError(
        absl::StrCat(path, " is cut short: ", size, " bytes, the header's length alone takes 8"));
  }
  const uint64_t length = LittleEndian64(reinterpret_cast<const std::byte*>(start.data()));
  if (length > static_cast<uint64_t>(kMaxSafetensorsHeaderBytes)) {
    return absl::DataLossError(absl::StrCat(path, " has a header of ", length, " bytes, at most ",
                                            kMaxSafetensorsHeaderBytes, " are read"));
  }
  if (length > static_cast<uint64_t>(size - kLengthBytes)) {
    return absl::DataLossError(absl::StrCat(path, " is cut short: its header takes ", length,
                                            " bytes, after the length only ", size - kLengthBytes,
                                            " are there"));
  }
  return absl::OkStatus();
}

absl::Span<std::byte> BytesOf(std::string& text) {
  return absl::MakeSpan(reinterpret_cast<std::byte*>(text.data()), text.size());
}

}  // namespace

int64_t StoredTypeBytes(StoredType type) { return FactOf(type).bytes; }
absl::string_view StoredTypeName(StoredType type) { return FactOf(type).name; }

const std::byte* MapWholeFile(int fd, int64_t bytes) {
  void* mapping = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ, MAP_PRIVATE, fd, 0);
  return mapping == MAP_FAILED ? nullptr : static_cast<const std::byte*>(mapping);
}

absl::StatusOr<std::shared_ptr<SafetensorsFile>> SafetensorsFile::Open(const std::string& path,
                                                                       MapFile map) {
  BLOCKSWAP_ASSIGN_OR_RETURN(RegularFile file, OpenRegularFile(path));
  std::shared_ptr<SafetensorsFile> result(new SafetensorsFile(path, std::move(file), map));
  BLOCKSWAP_RETURN_IF_ERROR(result->ReadHeader());
  return result;
}

absl::Status SafetensorsFile::ReadHeader() {
  const int64_t size = reader_.bytes();
  std::string start(static_cast<size_t>(std::min(size, kStartBytes)), '\0');
  BLOCKSWAP_RETURN_IF_ERROR(reader_.Read(0, BytesOf(start)));
  BLOCKSWAP_RETURN_IF_ERROR(CheckLength(start, size, path()));
  const auto header_bytes =
      static_cast<int64_t>(LittleEndian64(reinterpret_cast<const std::byte*>(start.data())));
  data_offset_ = kLengthBytes + header_bytes;
  header_.resize(static_cast<size_t>(header_bytes));
  BLOCKSWAP_RETURN_IF_ERROR(reader_.Read(kLengthBytes, BytesOf(header_)));
  const absl::Status parsed =
      ParseSafetensorsHeader(header_, size - data_offset_, &tensors_, &metadata_);
  if (parsed.ok()) return parsed;
  return absl::Status(parsed.code(), absl::StrCat(path(), ": ", parsed.message()));
}

SafetensorsFile::~SafetensorsFile() {
  if (mapping_ != nullptr) {
    munmap(const_cast<std::byte*>(mapping_), static_cast<size_t>(reader_.bytes()));
  }
}

absl::Status SafetensorsFile::Read(const TensorEntry& entry, absl::Span<std::byte> destination,
                                   int64_t offset) const {
  return reader_.Read(data_offset_ + entry.offset + offset, destination);
}

void SafetensorsFile::WillNeed(const TensorEntry& entry) const {
  reader_.WillNeed(data_offset_ + entry.offset, entry.bytes);
}

void SafetensorsFile::MapOnce() const {
  absl::call_once(mapped_, [this] {
    mapping_ = map_(reader_.fd(), reader_.bytes());
    if (mapping_ != nullptr) return;
    // Some mounts refuse to map files.
    copy_.resize(static_cast<size_t>(reader_.bytes()));
    if (!reader_.Read(0, absl::MakeSpan(copy_)).ok()) copy_.clear();
  });
}

absl::Span<const std::byte> SafetensorsFile::bytes(const TensorEntry& entry) const {
  MapOnce();
  const std::byte* const start = mapping_ != nullptr ? mapping_ : copy_.data();
  if (start == nullptr) return {};
  return absl::MakeConstSpan(start + data_offset_ + entry.offset, static_cast<size_t>(entry.bytes));
}

void SafetensorsFile::Forget(const TensorEntry& entry) const {
  if (entry.bytes == 0 || mapping_ == nullptr) return;
  // Rounded outwards: a neighbour on a shared page is merely read again.
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uint64_t>(bytes(entry).data());
  const uint64_t start = first / page * page;
  madvise(reinterpret_cast<void*>(start), first + static_cast<uint64_t>(entry.bytes) - start,
          MADV_DONTNEED);
}

}  // namespace blockswap::worker
