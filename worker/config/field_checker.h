// SPDX-License-Identifier: Apache-2.0
// Checks single fields of a spec and collects every violation with its allowed range and nearest
// choice.
#ifndef BLOCKSWAP_WORKER_CONFIG_FIELD_CHECKER_H_
#define BLOCKSWAP_WORKER_CONFIG_FIELD_CHECKER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker/config/field_rule.h"
#include "worker/config/train_config.h"

namespace blockswap::worker {

enum class PathKind { kFile, kFileOrDirectory };

// Writes what is right into the caller's value and what is wrong into the result. A value that is
// wrong is left at its default.
class FieldChecker {
 public:
  // `rules`, where given, gets what each field is held to, also of fields that are absent.
  explicit FieldChecker(SpecResult* result, std::vector<FieldRule>* rules = nullptr)
      : result_(result), rules_(rules) {}

  void Violate(const std::string& field, const std::string& description);

  // REQUIRES: `least` <= `most`. `given` false: the field is absent and keeps its default.
  void Whole(const std::string& field, bool given, int64_t value, int64_t least, int64_t most,
             int64_t* result);
  void Whole(const std::string& field, bool given, int64_t value, int64_t least, int64_t most,
             int* result);
  enum class Bound { kClosed, kOpen };  // whether the bound itself is allowed
  void Real(const std::string& field, bool given, double value, Bound lower, double least,
            Bound upper, double most, double* result);

  // Empty text keeps the default. `unavailable` are words of the schema that cannot be used yet.
  template <typename T>
  void Choice(const std::string& field, const std::string& text,
              const std::vector<std::pair<std::string, T>>& choices,
              const std::vector<std::string>& unavailable, T* result) {
    std::vector<std::string> words;
    for (const auto& [word, value] : choices) {
      words.push_back(word);
      if (word == text) *result = value;
    }
    CheckWord(field, text, words, unavailable);
  }

  // "12GiB", "auto" or empty (both: absent).
  void Bytes(const std::string& field, const std::string& text, std::optional<int64_t>* result);
  // 1 to 63 letters, digits, '-', '_' and '.', starting with a letter or digit: safe as a file name
  // everywhere.
  void Name(const std::string& field, const std::string& text, std::string* result);
  void Path(const std::string& field, const std::string& text, const std::string& root,
            PathKind kind, std::string* result);

 private:
  void CheckWord(const std::string& field, const std::string& text,
                 const std::vector<std::string>& choices,
                 const std::vector<std::string>& unavailable);

  void Note(FieldRule rule);

  SpecResult* const result_;
  std::vector<FieldRule>* const rules_;
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_CONFIG_FIELD_CHECKER_H_
