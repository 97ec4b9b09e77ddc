// SPDX-License-Identifier: Apache-2.0
// Drives a fuzz target without libFuzzer: the corpus as it is, then seeded mutations of it for
// BLOCKSWAP_FUZZ_SECONDS (4 by default). The input at hand lies in BLOCKSWAP_FUZZ_LAST, or the
// working directory, while it runs: what a crash leaves there is the reproducer.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxInput = 64 << 10;

class Mutator {
 public:
  Mutator(uint64_t seed, const std::vector<std::string>& corpus) : random_(seed), corpus_(corpus) {}

  std::string Next() {
    std::string text = Any();
    for (int64_t i = Below(6); i >= 0; --i) Mutate(&text);
    if (text.size() > kMaxInput) text.resize(kMaxInput);
    return text;
  }

 private:
  int64_t Below(int64_t limit) {
    return std::uniform_int_distribution<int64_t>(0, limit - 1)(random_);
  }
  size_t Place(const std::string& text) {
    return static_cast<size_t>(Below(static_cast<int64_t>(text.size()) + 1));
  }
  const std::string& Any() {
    return corpus_[static_cast<size_t>(Below(static_cast<int64_t>(corpus_.size())))];
  }

  void Mutate(std::string* text) {
    static const std::vector<std::string> kWords = {"-1",
                                                    "0",
                                                    "9223372036854775807",
                                                    "-9223372036854775808",
                                                    "18446744073709551616",
                                                    "1e999",
                                                    "nan",
                                                    "..",
                                                    "/",
                                                    "%00",
                                                    "\"",
                                                    "{",
                                                    "[",
                                                    "}",
                                                    "]",
                                                    ":",
                                                    ",",
                                                    "\n",
                                                    "\r\n\r\n",
                                                    "*a",
                                                    "&a",
                                                    "!!",
                                                    std::string(1, '\0'),
                                                    "\xff\xfe",
                                                    "\xe2\x80\xae",
                                                    std::string(64, '['),
                                                    std::string(64, '{')};
    const size_t at = Place(*text);
    switch (Below(7)) {
      case 0:
        if (at < text->size()) (*text)[at] = static_cast<char>((*text)[at] ^ (1 << Below(8)));
        break;
      case 1:
        if (at < text->size()) (*text)[at] = static_cast<char>(Below(256));
        break;
      case 2:
        text->erase(at, static_cast<size_t>(Below(32)));
        break;
      case 3:
        text->insert(at, kWords[static_cast<size_t>(Below(static_cast<int64_t>(kWords.size())))]);
        break;
      case 4:
        text->insert(at, text->substr(Place(*text), static_cast<size_t>(Below(64))));
        break;
      case 5: {
        const std::string& other = Any();
        text->replace(at, std::string::npos, other.substr(Place(other)));
        break;
      }
      default:
        text->resize(at);
    }
  }

  std::mt19937_64 random_;
  const std::vector<std::string>& corpus_;
};

std::string LastPath() {
  const char* path = std::getenv("BLOCKSWAP_FUZZ_LAST");
  return path == nullptr ? "last_fuzz_input" : path;
}

void Run(const std::string& text) {
  static const std::string last = LastPath();
  std::ofstream(last, std::ios::binary) << text;
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(text.data()), text.size());
}

std::vector<std::string> ReadCorpus(const char* directory) {
  std::vector<std::string> corpus;
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const fs::path& path : files) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  }
  return corpus;
}

int64_t Number(const char* variable, int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoll(text);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s CORPUS\n", argv[0]);
    return 2;
  }
  const std::vector<std::string> corpus = ReadCorpus(argv[1]);
  if (corpus.empty()) {
    std::fprintf(stderr, "no corpus in %s\n", argv[1]);
    return 1;
  }
  const auto seed = static_cast<uint64_t>(
      Number("BLOCKSWAP_FUZZ_SEED", static_cast<int64_t>(std::random_device()())));
  std::printf("seed %llu (BLOCKSWAP_FUZZ_SEED)\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::seconds(Number("BLOCKSWAP_FUZZ_SECONDS", 4));
  for (const std::string& text : corpus) Run(text);
  Mutator mutator(seed, corpus);
  int64_t inputs = 0;
  for (; std::chrono::steady_clock::now() < end; ++inputs) Run(mutator.Next());
  std::printf("%zu inputs of the corpus, %lld mutations\n", corpus.size(),
              static_cast<long long>(inputs));
  fs::remove(LastPath());
  return 0;
}
