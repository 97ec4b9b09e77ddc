// SPDX-License-Identifier: Apache-2.0
// Reads and writes safetensors files: the header under strict limits, the data by system calls or
// by memory map, writing atomically.
//
// The format: 8 bytes little-endian header length, a JSON object {name: {dtype, shape,
// data_offsets}}, then the data. A reader must refuse a header over 100 MB, overlaps, holes, and
// trailing bytes; so does this one, before it allocates.
#ifndef BLOCKSWAP_WORKER_IO_SAFETENSORS_H_
#define BLOCKSWAP_WORKER_IO_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/call_once.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/io/file_reader.h"

namespace blockswap::worker {

enum class StoredType {
  kF64,
  kF32,
  kF16,
  kBF16,
  kF8E4M3,
  kF8E5M2,
  kI64,
  kI32,
  kI16,
  kI8,
  kU8,
  kBool
};
int64_t StoredTypeBytes(StoredType type);
absl::string_view StoredTypeName(StoredType type);  // as in the file: "BF16"

struct TensorEntry {
  StoredType type = StoredType::kF32;
  std::vector<int64_t> shape;  // empty: a scalar
  int64_t offset = 0;          // into the data section
  int64_t bytes = 0;
};

inline constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;  // the official reader's limit

// How a file is mapped; tests give one that fails, as some mounts do. nullptr: it cannot be mapped.
using MapFile = const std::byte* (*)(int fd, int64_t bytes);
const std::byte* MapWholeFile(int fd, int64_t bytes);

// An open file. Opening reads the header alone. Thread safety: safe, immutable.
// Errors: NotFound; DataLoss for any breach of the format, naming the file and the tensor.
class SafetensorsFile {
 public:
  static absl::StatusOr<std::shared_ptr<SafetensorsFile>> Open(const std::string& path,
                                                               MapFile map = &MapWholeFile);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return reader_.path(); }
  const std::map<std::string, TensorEntry>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  // Bytes [offset, offset + destination's) of the tensor, by system calls. DataLoss when the file
  // was cut or is gone. REQUIRES: `entry` is one of tensors(), the range lies in it.
  absl::Status Read(const TensorEntry& entry, absl::Span<std::byte> destination,
                    int64_t offset = 0) const;
  // Says that the tensor will be read soon.
  void WillNeed(const TensorEntry& entry) const;
  // For read mode, trial and counters. REQUIRES: nobody reads while the mode changes.
  FileReader& reader() { return reader_; }
  const FileReader& reader() const { return reader_; }
  // The header's bytes as they lie in the file, checked and parsed: what names the content.
  const std::string& header() const { return header_; }

  // REQUIRES: `entry` is one of tensors(). Valid while this object lives. Maps the file at the
  // first call; where it cannot be mapped, reads it whole; empty where that fails too. Touching the
  // bytes of a file that was cut meanwhile ends the process: for weights there is Read.
  absl::Span<const std::byte> bytes(const TensorEntry& entry) const;
  // Tells the system that these pages are not needed again soon, so that a mapped file does not
  // stay in RSS.
  void Forget(const TensorEntry& entry) const;

 private:
  SafetensorsFile(const std::string& path, RegularFile file, MapFile map)
      : reader_(path, std::move(file)), map_(map) {}
  absl::Status ReadHeader();
  void MapOnce() const;

  FileReader reader_;
  const MapFile map_;
  std::string header_;
  std::map<std::string, TensorEntry> tensors_;
  std::map<std::string, std::string> metadata_;
  int64_t data_offset_ = 0;
  mutable absl::once_flag mapped_;
  mutable const std::byte* mapping_ = nullptr;  // nullptr: see copy_
  mutable std::vector<std::byte> copy_;         // of a file that cannot be mapped
};

// Parses header bytes (without the 8 length bytes) for a file whose data section is `data_bytes`
// long. Exposed for tests and fuzzing.
absl::Status ParseSafetensorsHeader(absl::string_view header, int64_t data_bytes,
                                    std::map<std::string, TensorEntry>* tensors,
                                    std::map<std::string, std::string>* metadata);

struct TensorToWrite {
  std::string name;
  StoredType type = StoredType::kF32;
  std::vector<int64_t> shape;
  absl::Span<const std::byte> bytes;  // contiguous, row major
  // The type of `bytes` where it is not `type`: floats are converted piece by piece as they are
  // written, so that a narrowed copy of a whole model is never held.
  std::optional<StoredType> held_type = std::nullopt;
};

// Writes to a temporary name in the same directory, fsyncs, renames, fsyncs the directory; on
// failure removes the temporary and leaves what was there untouched. ResourceExhausted for a full
// disk, with bytes needed and free. Then reads the file back and compares names, counts and bytes.
absl::Status WriteSafetensors(const std::string& path, const std::vector<TensorToWrite>& tensors,
                              const std::map<std::string, std::string>& metadata);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_IO_SAFETENSORS_H_
