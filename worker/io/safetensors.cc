// SPDX-License-Identifier: Apache-2.0
#include "worker/io/safetensors.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "worker/io/regular_file.h"

namespace blockswap::worker {
namespace {

constexpr int64_t kLengthBytes = 8;

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

absl::Status CheckLength(absl::string_view file, const std::string& path) {
  const auto size = static_cast<int64_t>(file.size());
  if (size > kLengthBytes && file[kLengthBytes] == '{') {
    // Only now is the length worth reading: the first bytes of a pickle are a length too.
  } else if (LooksLikePickle(file.substr(0, 16))) {
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
  const uint64_t length = LittleEndian64(reinterpret_cast<const std::byte*>(file.data()));
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

}  // namespace

int64_t StoredTypeBytes(StoredType type) { return FactOf(type).bytes; }
absl::string_view StoredTypeName(StoredType type) { return FactOf(type).name; }

absl::StatusOr<std::shared_ptr<SafetensorsFile>> SafetensorsFile::Open(const std::string& path) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const RegularFile file, OpenRegularFile(path));
  std::shared_ptr<SafetensorsFile> result(new SafetensorsFile);
  result->path_ = path;
  if (file.bytes > 0) {
    void* mapping = mmap(nullptr, static_cast<size_t>(file.bytes), PROT_READ, MAP_PRIVATE,
                         file.fd.get(), /*offset=*/0);
    if (mapping == MAP_FAILED) return ErrnoStatus(errno, absl::StrCat("cannot map ", path));
    result->mapping_ = static_cast<const std::byte*>(mapping);
    result->mapping_bytes_ = file.bytes;
  }
  const absl::string_view all(reinterpret_cast<const char*>(result->mapping_),
                              static_cast<size_t>(file.bytes));
  BLOCKSWAP_RETURN_IF_ERROR(CheckLength(all, path));
  const auto header_bytes = static_cast<int64_t>(LittleEndian64(result->mapping_));
  result->data_offset_ = kLengthBytes + header_bytes;
  const absl::Status parsed = ParseSafetensorsHeader(
      all.substr(kLengthBytes, static_cast<size_t>(header_bytes)),
      file.bytes - result->data_offset_, &result->tensors_, &result->metadata_);
  if (!parsed.ok()) {
    return absl::Status(parsed.code(), absl::StrCat(path, ": ", parsed.message()));
  }
  return result;
}

SafetensorsFile::~SafetensorsFile() {
  if (mapping_ != nullptr) {
    munmap(const_cast<std::byte*>(mapping_), static_cast<size_t>(mapping_bytes_));
  }
}

absl::Span<const std::byte> SafetensorsFile::bytes(const TensorEntry& entry) const {
  return absl::MakeConstSpan(mapping_ + data_offset_ + entry.offset,
                             static_cast<size_t>(entry.bytes));
}

void SafetensorsFile::Forget(const TensorEntry& entry) const {
  if (entry.bytes == 0) return;
  // Rounded outwards: a neighbour on a shared page is merely read again.
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uint64_t>(bytes(entry).data());
  const uint64_t start = first / page * page;
  madvise(reinterpret_cast<void*>(start), first + static_cast<uint64_t>(entry.bytes) - start,
          MADV_DONTNEED);
}

}  // namespace blockswap::worker
