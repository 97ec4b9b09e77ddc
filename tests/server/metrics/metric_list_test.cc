// SPDX-License-Identifier: Apache-2.0
// deploy/prometheus/METRICS.md is both the documentation of the metrics and their golden list.
// After a change that is meant: BLOCKSWAP_WRITE_METRICS_LIST=1 on this test writes the table anew.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/server/testing/full_metrics.h"
#include "tests/server/testing/temporary_directory.h"

namespace blockswap::server {
namespace {

using ::testing::IsEmpty;

constexpr char kTableHead[] = "| name | type | unit | labels | help |\n|---|---|---|---|---|\n";

// Labels whose values come from the machine or the build, not from a list of ours.
bool IsOpen(const std::string& label) {
  static const std::set<std::string> kOpen = {
      "slot",    "gpu",      "uuid",         "job",         "attempt",   "model",
      "version", "commit",   "torch",        "cuda",        "grpc",      "xid",
      "le",      "quantile", "grpc_service", "grpc_method", "grpc_type", "grpc_code"};
  return kOpen.count(label) != 0;
}

std::string UnitOf(const std::string& name) {
  const std::pair<const char*, const char*> units[] = {{"_timestamp_seconds", "unix time"},
                                                       {"_start_time_seconds", "unix time"},
                                                       {"_seconds", "s"},
                                                       {"_bytes_per_second", "B/s"},
                                                       {"_bytes", "B"},
                                                       {"_ratio", ""},
                                                       {"_watts", "W"},
                                                       {"_joules", "J"},
                                                       {"_celsius", "C"},
                                                       {"_hertz", "Hz"}};
  const std::string base(absl::EndsWith(name, "_total") ? name.substr(0, name.size() - 6) : name);
  for (const auto& [suffix, unit] : units) {
    if (absl::EndsWith(base, suffix)) return unit;
  }
  return "";
}

struct Family {
  std::string type, help;
  std::map<std::string, std::set<std::string>> labels;

  std::string Row(const std::string& name) const {
    std::vector<std::string> cells;
    for (const auto& [label, values] : labels) {
      cells.push_back(IsOpen(label) ? label : absl::StrCat(label, "=", absl::StrJoin(values, ",")));
    }
    return absl::StrCat("| ", name, " | ", type, " | ", UnitOf(name), " | ",
                        absl::StrJoin(cells, "; "), " | ", help, " |");
  }
};
using Families = std::map<std::string, Family>;

// Reads Prometheus text as a scraper does: histogram samples belong to their family, and label
// values may hold escaped characters.
class TextReader final {
 public:
  Families Read(const std::string& text) {
    for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) ReadLine(line);
    return std::move(families_);
  }

 private:
  void ReadLine(absl::string_view line) {
    const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 3));
    if (words[0] == "#" && words[1] == "HELP") {
      families_[words[2]].help = words.size() > 3 ? words[3] : "";
    } else if (words[0] == "#" && words[1] == "TYPE") {
      families_[words[2]].type = words[3];
    } else {
      ReadSample(line);
    }
  }

  void ReadSample(absl::string_view line) {
    const size_t brace = line.find('{');
    const size_t end = std::min(brace, line.find(' '));
    Family& family = families_.at(FamilyOf(std::string(line.substr(0, end))));
    if (brace == absl::string_view::npos || brace > end) return;
    size_t at = brace + 1;
    while (line[at] != '}') {
      const size_t equals = line.find('=', at);
      const std::string label(line.substr(at, equals - at));
      std::string value;
      for (at = equals + 2; line[at] != '"'; ++at) {
        if (line[at] == '\\') ++at;
        value += line[at];
      }
      if (label != "le") family.labels[label].insert(value);
      ++at;
      if (line[at] == ',') ++at;
    }
  }

  std::string FamilyOf(const std::string& sample) const {
    if (families_.count(sample) != 0) return sample;
    for (const char* suffix : {"_bucket", "_sum", "_count"}) {
      if (absl::EndsWith(sample, suffix)) {
        return sample.substr(0, sample.size() - std::string(suffix).size());
      }
    }
    return sample;
  }

  Families families_;
};

std::string ListPath() {
  return std::string(std::getenv("BLOCKSWAP_SOURCE_DIR")) + "/deploy/prometheus/METRICS.md";
}

std::string ReadText(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class MetricListTest : public ::testing::Test {
 protected:
  TemporaryDirectory directory_;
  FullMetrics full_{directory_.path(), /*slots=*/1};
  const std::string text_ = full_.metrics().Render();
  const Families exported_ = TextReader().Read(text_);
};

// F123: the documents name every metric there is with its type, unit, labels and their values, and
// no other.
TEST_F(MetricListTest, DocumentsAndServerAgree) {
  std::string table = kTableHead;
  for (const auto& [name, family] : exported_) absl::StrAppend(&table, family.Row(name), "\n");
  std::string document = ReadText(ListPath());
  const size_t begin = document.find(kTableHead);
  ASSERT_NE(begin, std::string::npos) << ListPath() << " has no table";
  size_t end = document.find("\n\n", begin);
  end = end == std::string::npos ? document.size() : end + 1;
  if (std::getenv("BLOCKSWAP_WRITE_METRICS_LIST") != nullptr) {
    document.replace(begin, end - begin, table);
    std::ofstream(ListPath()) << document;
    return;
  }
  const std::string documented = document.substr(begin, end - begin);
  const std::set<std::string> rows = absl::StrSplit(documented, '\n');
  const std::set<std::string> wanted = absl::StrSplit(table, '\n');
  for (const std::string& row : wanted) {
    EXPECT_EQ(rows.count(row), 1u) << "exported, but not in " << ListPath() << ":\n" << row;
  }
  for (const std::string& row : rows) {
    EXPECT_EQ(wanted.count(row), 1u) << "in " << ListPath() << ", but not exported:\n" << row;
  }
}

TEST_F(MetricListTest, NamesAndTypesFollowPrometheusPractice) {
  for (const auto& [name, family] : exported_) {
    const bool prefixed = absl::StartsWith(name, "blockswap_") ||
                          absl::StartsWith(name, "process_") ||
                          absl::StartsWith(name, "grpc_server_");
    EXPECT_TRUE(prefixed) << name;
    EXPECT_EQ(family.type == "counter", absl::EndsWith(name, "_total")) << name;
    EXPECT_FALSE(family.help.empty()) << name;
    EXPECT_EQ(family.help.find('|'), std::string::npos) << name;
    for (const char* wrong : {"_ms", "_kb", "_mb", "_milliseconds", "_percent", "_us"}) {
      EXPECT_FALSE(absl::EndsWith(name, wrong)) << name;
    }
  }
}

TEST_F(MetricListTest, SixteenSlotsStayBelowTwoThousandSeries) {
  TemporaryDirectory directory;
  FullMetrics full(directory.path(), /*slots=*/16);
  EXPECT_LE(full.metrics().CountSeries(), 2000);
  EXPECT_GT(full.metrics().CountSeries(), 1000) << "the sixteen slots are not filled";
}

TEST_F(MetricListTest, SameFamilyFromTwoSourcesIsWrittenOnce) {
  std::map<std::string, int> heads;
  for (absl::string_view line : absl::StrSplit(text_, '\n')) {
    if (absl::StartsWith(line, "# TYPE ")) ++heads[std::string(line)];
  }
  for (const auto& [head, count] : heads) EXPECT_EQ(count, 1) << head;
}

}  // namespace
}  // namespace blockswap::server
