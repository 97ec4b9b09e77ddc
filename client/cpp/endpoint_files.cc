// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/endpoint_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"

namespace blockswap::client {
namespace {

constexpr size_t kMaxToken = 4096, kMaxPem = size_t{1} << 20;

std::string ReadAtMost(std::istream& in, size_t limit) {
  std::string text(limit + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  return text;
}

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t limit) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    return absl::NotFoundError(absl::StrCat("cannot open ", path, ": ", std::strerror(errno)));
  }
  std::string text = ReadAtMost(in, limit);
  if (text.size() > limit) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is too long: at most ", limit, " bytes are read"));
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> ReadTokenFile(const std::string& path) {
  std::string text;
  if (path == "-") {
    text = ReadAtMost(std::cin, kMaxToken);
  } else {
    BLOCKSWAP_ASSIGN_OR_RETURN(text, ReadFile(path, kMaxToken));
    struct stat facts {};
    if (::stat(path.c_str(), &facts) == 0 && (facts.st_mode & S_IROTH) != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "everybody on this machine may read the token file ", path, "; chmod 0600 ", path));
    }
  }
  const std::string token(absl::StripAsciiWhitespace(text));
  const bool is_word =
      std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c < 127; });
  if (token.empty() || !is_word) {
    return absl::InvalidArgumentError(absl::StrCat("there is no token, one word in one line, in ",
                                                   path == "-" ? "standard input" : path));
  }
  return token;
}

absl::StatusOr<std::string> ReadPemFile(const std::string& path) {
  BLOCKSWAP_ASSIGN_OR_RETURN(std::string text, ReadFile(path, kMaxPem));
  if (text.find("-----BEGIN ") == std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is no PEM file"));
  }
  return text;
}

}  // namespace blockswap::client
