// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/io/json_text.h"
#include "worker/io/safetensors.h"

namespace blockswap::worker {
namespace {

constexpr char kMetadataKey[] = "__metadata__";
constexpr size_t kMaxRank = 32;  // no framework makes more; bounds what one entry can allocate
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

std::optional<StoredType> TypeNamed(absl::string_view name) {
  for (int i = 0; i <= static_cast<int>(StoredType::kBool); ++i) {
    if (StoredTypeName(static_cast<StoredType>(i)) == name) return static_cast<StoredType>(i);
  }
  return std::nullopt;
}

// Product of the shape times the element size, or nothing when it does not fit 63 bits.
std::optional<int64_t> BytesOf(const std::vector<int64_t>& shape, StoredType type) {
  int64_t bytes = StoredTypeBytes(type);
  for (const int64_t side : shape) {
    if (side == 0) return 0;
  }
  for (const int64_t side : shape) {
    if (bytes > kMax / side) return std::nullopt;
    bytes *= side;
  }
  return bytes;
}

// Builds the tables while the text is read: nothing the file says is held before it is checked. The
// library's parser keeps its own stack of one bit per level; the first level beyond the format's
// three stops it.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(std::map<std::string, TensorEntry>* tensors,
               std::map<std::string, std::string>* metadata)
      : tensors_(tensors), metadata_(metadata) {}

  const absl::Status& status() const { return status_; }

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool number_integer(number_integer_t) override { return Unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return Unexpected("a number that is no 63-bit integer");
  }
  bool binary(binary_t&) override { return Unexpected("binary data"); }
  bool number_unsigned(number_unsigned_t value) override {
    if (depth_ != 3) return Unexpected("a number");
    if (value > static_cast<uint64_t>(kMax)) {
      return Unexpected("a number that is no 63-bit integer");
    }
    std::vector<int64_t>& list = field_ == Field::kShape ? shape_ : offsets_;
    const size_t most = field_ == Field::kShape ? kMaxRank : 2;
    if (list.size() == most) {
      return Fail(absl::StrCat(field_name_, " has more than ", most, " numbers"));
    }
    list.push_back(static_cast<int64_t>(value));
    return true;
  }
  bool string(string_t& value) override {
    if (depth_ != 2) return Unexpected("text");
    if (in_metadata_) {
      metadata_->emplace(field_name_, std::move(value));
      return true;
    }
    if (field_ != Field::kDtype) return Unexpected("text");
    type_ = TypeNamed(value);
    if (!type_.has_value()) return Fail(absl::StrCat("unknown dtype ", Quoted(value)));
    return true;
  }
  bool start_object(size_t) override {
    ++depth_;
    if (depth_ == 1) return true;
    if (depth_ == 2) {
      in_metadata_ = name_ == kMetadataKey;
      type_.reset();
      shape_.clear();
      offsets_.clear();
      seen_fields_ = 0;
      return true;
    }
    return Unexpected("an object");
  }
  bool end_object() override {
    --depth_;
    if (depth_ != 1) return true;
    if (!in_metadata_) return FinishTensor();
    in_metadata_ = false;
    return true;
  }
  bool start_array(size_t) override {
    ++depth_;
    if (depth_ != 3 || in_metadata_ || field_ == Field::kDtype) return Unexpected("a list");
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool key(string_t& name) override {
    if (depth_ == 1) {
      name_ = std::move(name);
      const bool repeated =
          name_ == kMetadataKey ? std::exchange(seen_metadata_, true) : tensors_->count(name_) > 0;
      return !repeated || Fail("the name appears twice");
    }
    field_name_ = std::move(name);
    if (in_metadata_) {
      return metadata_->count(field_name_) == 0 ||
             Fail(absl::StrCat("the key ", Quoted(field_name_), " appears twice"));
    }
    return SelectField();
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::json::exception& error) override {
    if (status_.ok()) {
      // The library's text repeats bytes of the file; only its position and kind are passed on.
      status_ = absl::DataLossError(absl::StrCat("the header is not valid JSON in UTF-8 (byte ",
                                                 position, ", error ", error.id, ")"));
    }
    return false;
  }

 private:
  enum class Field { kDtype, kShape, kOffsets };

  bool SelectField() {
    if (field_name_ == "dtype") {
      field_ = Field::kDtype;
    } else if (field_name_ == "shape") {
      field_ = Field::kShape;
    } else if (field_name_ == "data_offsets") {
      field_ = Field::kOffsets;
    } else {
      return Fail(absl::StrCat("unknown field ", Quoted(field_name_)));
    }
    const int bit = 1 << static_cast<int>(field_);
    if ((seen_fields_ & bit) != 0) return Fail(absl::StrCat(field_name_, " appears twice"));
    seen_fields_ |= bit;
    return true;
  }

  bool FinishTensor() {
    if (seen_fields_ != 7 || !type_.has_value()) {
      return Fail("dtype, shape and data_offsets must all be given");
    }
    if (offsets_.size() != 2) return Fail("data_offsets must have two numbers");
    if (offsets_[0] > offsets_[1]) {
      return Fail(
          absl::StrCat("data_offsets [", offsets_[0], ", ", offsets_[1], "] run backwards"));
    }
    const std::optional<int64_t> bytes = BytesOf(shape_, *type_);
    if (!bytes.has_value()) return Fail("its shape is too large: the byte count overflows");
    if (*bytes != offsets_[1] - offsets_[0]) {
      return Fail(absl::StrCat("shape and dtype take ", *bytes, " bytes, data_offsets give ",
                               offsets_[1] - offsets_[0]));
    }
    tensors_->emplace(std::move(name_), TensorEntry{*type_, shape_, offsets_[0], *bytes});
    return true;
  }

  bool Unexpected(const char* what) {
    if (depth_ == 0 || (depth_ == 1 && name_.empty())) {
      return Fail(absl::StrCat("the header must be an object, found ", what));
    }
    if (in_metadata_) {
      return Fail(
          absl::StrCat("the value of ", Quoted(field_name_), " must be text, found ", what));
    }
    return Fail(absl::StrCat("unexpected ", what, depth_ >= 2 ? " in " : "",
                             depth_ >= 2 ? field_name_ : ""));
  }

  bool Fail(const std::string& what) {
    if (name_.empty() && depth_ == 0) {
      status_ = absl::DataLossError(what);
    } else if (name_ == kMetadataKey) {
      status_ = absl::DataLossError(absl::StrCat(kMetadataKey, ": ", what));
    } else {
      status_ = absl::DataLossError(absl::StrCat("tensor ", Quoted(name_), ": ", what));
    }
    return false;
  }

  std::map<std::string, TensorEntry>* const tensors_;
  std::map<std::string, std::string>* const metadata_;
  absl::Status status_;
  int depth_ = 0;
  std::string name_, field_name_;
  bool in_metadata_ = false, seen_metadata_ = false;
  Field field_ = Field::kDtype;
  int seen_fields_ = 0;
  std::optional<StoredType> type_;
  std::vector<int64_t> shape_, offsets_;
};

// The data section must be covered exactly once: no overlap, no hole, nothing after the last
// tensor.
absl::Status CheckCoverage(const std::map<std::string, TensorEntry>& tensors, int64_t data_bytes) {
  using Named = std::pair<const std::string, TensorEntry>;
  std::vector<const Named*> order;
  order.reserve(tensors.size());
  for (const Named& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const Named* a, const Named* b) {
    return std::pair(a->second.offset, a->second.bytes) <
           std::pair(b->second.offset, b->second.bytes);
  });
  int64_t end = 0;
  const Named* previous = nullptr;
  for (const Named* tensor : order) {
    const TensorEntry& entry = tensor->second;
    if (entry.offset < end) {
      return absl::DataLossError(absl::StrCat("tensor ", Quoted(tensor->first),
                                              ": overlaps tensor ", Quoted(previous->first), " by ",
                                              end - entry.offset, " bytes"));
    }
    if (entry.offset > end) {
      return absl::DataLossError(absl::StrCat("tensor ", Quoted(tensor->first), ": ",
                                              entry.offset - end,
                                              " bytes before it belong to no tensor"));
    }
    end = entry.offset + entry.bytes;
    if (end > data_bytes) {
      return absl::DataLossError(absl::StrCat("tensor ", Quoted(tensor->first), ": ends at byte ",
                                              end, " but the data ends at ", data_bytes,
                                              ": the file is cut short"));
    }
    previous = tensor;
  }
  if (end < data_bytes) {
    const std::string last =
        previous == nullptr ? "" : absl::StrCat(" after the last tensor ", Quoted(previous->first));
    return absl::DataLossError(
        absl::StrCat(data_bytes - end, " bytes", last, " belong to no tensor"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ParseSafetensorsHeader(absl::string_view header, int64_t data_bytes,
                                    std::map<std::string, TensorEntry>* tensors,
                                    std::map<std::string, std::string>* metadata) {
  tensors->clear();
  metadata->clear();
  if (static_cast<int64_t>(header.size()) > kMaxSafetensorsHeaderBytes) {
    return absl::DataLossError(absl::StrCat("the header has ", header.size(), " bytes, at most ",
                                            kMaxSafetensorsHeaderBytes, " are read"));
  }
  if (header.empty() || header[0] != '{') {
    return absl::DataLossError("the header does not start with \"{\": no safetensors file");
  }
  // The JSON library takes a NUL byte for the end of its input and would not see what follows.
  const size_t nul = header.find('\0');
  if (nul != absl::string_view::npos) {
    return absl::DataLossError(absl::StrCat("the header has a NUL byte at ", nul));
  }
  HeaderReader reader(tensors, metadata);
  const bool parsed = nlohmann::json::sax_parse(header.begin(), header.end(), &reader);
  if (!reader.status().ok()) return reader.status();
  if (!parsed) return absl::DataLossError("the header is not valid JSON");
  return CheckCoverage(*tensors, data_bytes);
}

}  // namespace blockswap::worker
