// SPDX-License-Identifier: Apache-2.0
#include "worker/family/tensor_check.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/io/json_text.h"

namespace blockswap::worker {
namespace {

constexpr size_t kExamples = 2;

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// One kind of difference: a count and the first examples, whatever the number of tensors.
struct Difference {
  int64_t count = 0;
  std::vector<std::string> examples;

  void Add(const std::string& example) {
    ++count;
    if (examples.size() < kExamples) examples.push_back(example);
  }
  std::string Text(const char* kind) const {
    return absl::StrCat(kind, ", such as ", absl::StrJoin(examples, " and "));
  }
};

bool CanBeRead(StoredType type) {
  return type == StoredType::kF32 || type == StoredType::kF16 || type == StoredType::kBF16;
}

// Why stored codes cannot be read, or empty.
std::string Fp8Fault(const CheckpointSource& source, const std::string& name,
                     const TensorEntry& entry) {
  const CheckpointSource::Tensor* scale = source.FindFp8Scale(name);
  if (scale == nullptr) {
    return absl::StrCat("type F8_E4M3 without scales: no ",
                        Fp8ScaleName(name).empty() ? "name for them" : Quoted(Fp8ScaleName(name)));
  }
  const absl::Status format = ReadFp8Format(entry.shape, scale->entry).status();
  return std::string(format.message().data(), format.message().size());
}

// Whether the file is a cast to fp8: all linears of all blocks are codes, and none has scales.
// Where a few lack theirs, or a few are codes, something went wrong on the way.
bool IsPlainCast(const CheckpointSource& source, const ModelDescription& model) {
  bool any = false;
  for (const DescribedBlock& block : model.blocks) {
    for (const AdapterTarget& linear : block.linears) {
      const std::string name = linear.path + ".weight";
      const auto found = source.tensors().find(name);
      if (found == source.tensors().end() || found->second.entry.type != StoredType::kF8E4M3 ||
          source.FindFp8Scale(name) != nullptr) {
        return false;
      }
      any = true;
    }
  }
  return any;
}

struct Differences {
  bool is_plain_cast = false;
  Difference missing, unknown, misshapen;
  std::set<std::string> scales;  // of stored codes

  void Compare(const CheckpointSource& source, const TensorSpec& expected) {
    const auto found = source.tensors().find(expected.name);
    if (found == source.tensors().end()) {
      missing.Add(Quoted(expected.name));
      return;
    }
    const TensorEntry& entry = found->second.entry;
    if (entry.shape != expected.shape) {
      misshapen.Add(absl::StrCat(Quoted(expected.name), " (", ShapeText(entry.shape), ", expected ",
                                 ShapeText(expected.shape), ")"));
    } else if (entry.type == StoredType::kF8E4M3) {
      const bool plain = is_plain_cast && source.FindFp8Scale(expected.name) == nullptr;
      const std::string fault = plain ? "" : Fp8Fault(source, expected.name, entry);
      if (!fault.empty()) misshapen.Add(absl::StrCat(Quoted(expected.name), " (", fault, ")"));
      scales.insert(Fp8ScaleName(expected.name));
    } else if (!CanBeRead(entry.type)) {
      const absl::string_view type = StoredTypeName(entry.type);
      misshapen.Add(absl::StrCat(Quoted(expected.name), " (type ", type,
                                 ", only F32, F16, BF16 and F8_E4M3 with scales are read)"));
    }
  }
};

}  // namespace

absl::Status CheckTensors(const CheckpointSource& source, const ModelDescription& model,
                          const std::vector<std::string>& strays, const std::string& what) {
  Differences differences;
  differences.is_plain_cast = IsPlainCast(source, model);
  std::set<std::string> expected(strays.begin(), strays.end());
  const auto compare = [&](const TensorSpec& tensor) {
    expected.insert(tensor.name);
    differences.Compare(source, tensor);
  };
  for (const TensorSpec& tensor : model.edge_tensors) compare(tensor);
  for (const DescribedBlock& block : model.blocks) {
    for (const TensorSpec& tensor : block.tensors) compare(tensor);
  }
  for (const auto& [name, tensor] : source.tensors()) {
    if (expected.count(name) == 0 && differences.scales.count(name) == 0)
      differences.unknown.Add(Quoted(name));
  }
  const Difference &missing = differences.missing, &unknown = differences.unknown,
                   &misshapen = differences.misshapen;
  if (missing.count + unknown.count + misshapen.count == 0) return absl::OkStatus();
  std::vector<std::string> rest;
  if (unknown.count > 0) rest.push_back(unknown.Text("unknown"));
  if (misshapen.count > 0) rest.push_back(misshapen.Text("misshapen"));
  std::string message =
      absl::StrCat(source.path(), " is not ", what, ": ", missing.count, " tensors missing, ",
                   unknown.count, " unknown, ", misshapen.count, " of another shape or type");
  if (missing.count > 0) absl::StrAppend(&message, "\n  ", missing.Text("missing"));
  if (!rest.empty()) absl::StrAppend(&message, "\n  ", absl::StrJoin(rest, "; "));
  return absl::InvalidArgumentError(message);
}

}  // namespace blockswap::worker
