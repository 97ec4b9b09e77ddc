// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include <algorithm>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "worker/io/atomic_file.h"
#include "worker/io/float_conversion.h"
#include "worker/io/json_text.h"
#include "worker/io/safetensors.h"

namespace blockswap::worker {
namespace {

constexpr int64_t kPieceElements = int64_t{1} << 18;  // of a conversion: 1 MiB of fp32

StoredType HeldType(const TensorToWrite& tensor) { return tensor.held_type.value_or(tensor.type); }

int64_t StoredBytes(const TensorToWrite& tensor) {
  return static_cast<int64_t>(tensor.bytes.size()) / StoredTypeBytes(HeldType(tensor)) *
         StoredTypeBytes(tensor.type);
}

// Calls visit(offset in the stored tensor, piece of it) for the whole tensor in order.
absl::Status ForEachPiece(
    const TensorToWrite& tensor,
    absl::FunctionRef<absl::Status(int64_t offset, absl::Span<const std::byte> piece)> visit) {
  if (HeldType(tensor) == tensor.type) return visit(0, tensor.bytes);
  const auto held = static_cast<size_t>(StoredTypeBytes(HeldType(tensor)));
  const auto stored = static_cast<size_t>(StoredTypeBytes(tensor.type));
  const size_t elements = tensor.bytes.size() / held;
  std::vector<std::byte> converted;
  for (size_t first = 0; first < elements; first += kPieceElements) {
    const size_t count = std::min<size_t>(kPieceElements, elements - first);
    converted.resize(count * stored);
    BLOCKSWAP_RETURN_IF_ERROR(ConvertFloats(HeldType(tensor),
                                            tensor.bytes.subspan(first * held, count * held),
                                            tensor.type, absl::MakeSpan(converted)));
    BLOCKSWAP_RETURN_IF_ERROR(visit(static_cast<int64_t>(first * stored), converted));
  }
  return absl::OkStatus();
}

absl::Status CheckTensor(const TensorToWrite& tensor) {
  int64_t bytes = StoredTypeBytes(HeldType(tensor));
  for (const int64_t side : tensor.shape) {
    if (side < 0)
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", Quoted(tensor.name), ": negative side"));
    bytes *= side;
  }
  if (bytes != static_cast<int64_t>(tensor.bytes.size())) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", Quoted(tensor.name),
                                                   ": its shape takes ", bytes,
                                                   " bytes, given are ", tensor.bytes.size()));
  }
  return absl::OkStatus();
}

// Padded with spaces so that the data starts at a multiple of 8, as readers that map the file like
// it.
absl::StatusOr<std::string> HeaderOf(const std::vector<TensorToWrite>& tensors,
                                     const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t offset = 0;
  for (const TensorToWrite& tensor : tensors) {
    BLOCKSWAP_RETURN_IF_ERROR(CheckTensor(tensor));
    const int64_t bytes = StoredBytes(tensor);
    const absl::string_view type = StoredTypeName(tensor.type);
    if (header.contains(tensor.name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", Quoted(tensor.name), ": the name appears twice"));
    }
    header[tensor.name] = {{"dtype", std::string(type.data(), type.size())},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump(-1, ' ', /*ensure_ascii=*/false,
                                 nlohmann::ordered_json::error_handler_t::replace);
  text.append((8 - text.size() % 8) % 8, ' ');
  if (static_cast<int64_t>(text.size()) > kMaxSafetensorsHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the header would take ", text.size(),
                                                   " bytes, readers accept at most ",
                                                   kMaxSafetensorsHeaderBytes));
  }
  return text;
}

absl::Status CompareWithFile(const std::string& path, const std::vector<TensorToWrite>& tensors,
                             const std::map<std::string, std::string>& metadata) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::shared_ptr<SafetensorsFile> file,
                             SafetensorsFile::Open(path));
  if (file->tensors().size() != tensors.size() || file->metadata() != metadata) {
    return absl::DataLossError(
        absl::StrCat(path, " reads back with other tensors or metadata than written"));
  }
  for (const TensorToWrite& tensor : tensors) {
    const auto found = file->tensors().find(tensor.name);
    if (found == file->tensors().end() || found->second.shape != tensor.shape ||
        found->second.type != tensor.type || found->second.bytes != StoredBytes(tensor)) {
      return absl::DataLossError(absl::StrCat(path, ": tensor ", Quoted(tensor.name),
                                              " reads back with another shape than written"));
    }
    const absl::Span<const std::byte> read = file->bytes(found->second);
    BLOCKSWAP_RETURN_IF_ERROR(
        ForEachPiece(tensor, [&](int64_t offset, absl::Span<const std::byte> piece) {
          if (piece.empty() || memcmp(read.data() + offset, piece.data(), piece.size()) == 0)
            return absl::OkStatus();
          return absl::DataLossError(absl::StrCat(path, ": tensor ", Quoted(tensor.name),
                                                  " reads back with other content than written"));
        }));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteSafetensors(const std::string& path, const std::vector<TensorToWrite>& tensors,
                              const std::map<std::string, std::string>& metadata) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::string header, HeaderOf(tensors, metadata));
  int64_t total = 8 + static_cast<int64_t>(header.size());
  for (const TensorToWrite& tensor : tensors) total += StoredBytes(tensor);
  BLOCKSWAP_ASSIGN_OR_RETURN(std::unique_ptr<AtomicFile> file, AtomicFile::Create(path, total));
  unsigned char length[8];
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<unsigned char>(header.size() >> (8 * i));
  BLOCKSWAP_RETURN_IF_ERROR(file->Append(length, sizeof(length)));
  BLOCKSWAP_RETURN_IF_ERROR(file->Append(header.data(), header.size()));
  for (const TensorToWrite& tensor : tensors) {
    BLOCKSWAP_RETURN_IF_ERROR(ForEachPiece(tensor, [&](int64_t, absl::Span<const std::byte> piece) {
      return file->Append(piece.data(), piece.size());
    }));
  }
  BLOCKSWAP_RETURN_IF_ERROR(file->Sync());
  // Before the rename: what is under the final name has been read back.
  BLOCKSWAP_RETURN_IF_ERROR(CompareWithFile(file->temporary_path(), tensors, metadata));
  return file->Commit();
}

}  // namespace blockswap::worker
