// SPDX-License-Identifier: Apache-2.0
#include "proto/job_file/yaml_tree.h"

#include <exception>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/text/utf8.h"
#include "yaml-cpp/eventhandler.h"
#include "yaml-cpp/yaml.h"

namespace blockswap::proto {
namespace {

// Leaves the parser, which offers no other way out of an event.
struct Refusal {
  absl::Status status;
};

[[noreturn]] void Refuse(const YAML::Mark& mark, const std::string& what) {
  throw Refusal{absl::InvalidArgumentError(
      absl::StrCat("line ", mark.line + 1, ", column ", mark.column + 1, ": ", what))};
}

class TreeBuilder final : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    RefuseAnchor(mark, anchor);
    Add(YamlNode(), mark, "");
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    Refuse(mark, "aliases (*name) are not supported, write the value out");
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    RefuseAnchor(mark, anchor);
    RefuseTag(mark, tag);
    for (size_t i = 0; i < value.size();) {
      const unsigned char c = static_cast<unsigned char>(value[i]);
      if (c < 0x20 && c != '\n' && c != '\t') {
        Refuse(mark, absl::StrCat("text with the control character ", static_cast<int>(c)));
      }
      // The file is UTF-8, but escapes can name what is not.
      const size_t length = Utf8Length(value, i);
      if (length == 0) Refuse(mark, "text with an escape that is not UTF-8");
      i += length;
    }
    YamlNode node;
    node.kind = YamlNode::Kind::kScalar;
    node.text = value;
    node.quoted = tag == "!";
    Add(std::move(node), mark, value);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    RefuseAnchor(mark, anchor);
    RefuseTag(mark, tag);
    Open(YamlNode::Kind::kList, mark);
  }
  void OnSequenceEnd() override { Close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    RefuseAnchor(mark, anchor);
    RefuseTag(mark, tag);
    Open(YamlNode::Kind::kMap, mark);
  }
  void OnMapEnd() override { Close(); }

  YamlNode TakeRoot() { return std::move(root_); }

 private:
  struct Level {
    YamlNode node;
    bool has_key = false;
    std::string key;
    int key_line = 0;
  };

  static void RefuseAnchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != 0) Refuse(mark, "anchors (&name) are not supported, write the value out");
  }
  static void RefuseTag(const YAML::Mark& mark, const std::string& tag) {
    if (!tag.empty() && tag != "?" && tag != "!") {
      Refuse(mark, absl::StrCat("tags are not supported: ", tag));
    }
  }

  void Open(YamlNode::Kind kind, const YAML::Mark& mark) {
    if (static_cast<int>(levels_.size()) >= kMaxYamlDepth) {
      Refuse(mark, absl::StrCat("nested deeper than ", kMaxYamlDepth, " levels"));
    }
    // The parser takes a bracket that is never closed for the start of a key.
    if (AwaitsKey()) Refuse(mark, "a key must be text, or a bracket is not closed");
    Level level;
    level.node.kind = kind;
    level.node.line = mark.line + 1;
    levels_.push_back(std::move(level));
  }

  void Close() {
    YamlNode node = std::move(levels_.back().node);
    levels_.pop_back();
    const int line = node.line;
    Place(std::move(node), line);
  }

  bool AwaitsKey() const {
    return !levels_.empty() && levels_.back().node.kind == YamlNode::Kind::kMap &&
           !levels_.back().has_key;
  }

  void Add(YamlNode node, const YAML::Mark& mark, const std::string& key) {
    node.line = mark.line + 1;
    if (AwaitsKey()) {
      if (node.kind == YamlNode::Kind::kNull) Refuse(mark, "a key must be text");
      levels_.back().has_key = true;
      levels_.back().key = key;
      levels_.back().key_line = node.line;
      return;
    }
    Place(std::move(node), mark.line + 1);
  }

  void Place(YamlNode node, int line) {
    node.line = line;
    if (levels_.empty()) {
      root_ = std::move(node);
      return;
    }
    Level& level = levels_.back();
    if (level.node.kind == YamlNode::Kind::kList) {
      level.node.items.push_back(std::move(node));
    } else {
      level.node.entries.push_back(YamlEntry{level.key, level.key_line, std::move(node)});
      level.has_key = false;
    }
  }

  YamlNode root_;
  std::vector<Level> levels_;
};

absl::Status CheckText(const std::string& text) {
  if (text.size() > kMaxYamlBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("file too large: ", text.size(), " bytes, the limit is ", kMaxYamlBytes));
  }
  int line = 1;
  for (size_t i = 0; i < text.size();) {
    const unsigned char c = static_cast<unsigned char>(text[i]);
    if (c == '\n') ++line;
    // The parser takes 0x04 for the end of the file; the others have no place in text either.
    if ((c < 0x20 && c != '\n' && c != '\r' && c != '\t') || c == 0x7F) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", line, ": not text: byte ", static_cast<int>(c), " at offset ", i));
    }
    const size_t length = Utf8Length(text, i);
    if (length == 0) {
      return absl::InvalidArgumentError(absl::StrCat("line ", line, ": not UTF-8 at offset ", i));
    }
    i += length;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<YamlNode> ParseYamlTree(const std::string& text) {
  const absl::Status status = CheckText(text);
  if (!status.ok()) return status;
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    TreeBuilder builder;
    if (!parser.HandleNextDocument(builder)) {
      return absl::InvalidArgumentError("the file is empty");
    }
    TreeBuilder second;
    if (parser.HandleNextDocument(second)) {
      return absl::InvalidArgumentError("more than one document (---) in the file");
    }
    return builder.TakeRoot();
  } catch (const Refusal& refusal) {
    return refusal.status;
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("not YAML: line ", error.mark.line + 1,
                                                   ", column ", error.mark.column + 1, ": ",
                                                   error.msg));
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("not YAML: ", error.what()));
  }
}

}  // namespace blockswap::proto
