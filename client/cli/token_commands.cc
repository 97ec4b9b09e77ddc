// SPDX-License-Identifier: Apache-2.0
// token create, list and revoke.
#include <fcntl.h>
#include <google/protobuf/util/time_util.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "client/cli/call.h"
#include "client/cli/commands.h"
#include "client/cli/confirm.h"
#include "client/cli/listing.h"
#include "client/cli/people_text.h"
#include "proto/text/utf8.h"

namespace blockswap::cli {
namespace {

using google::protobuf::util::TimeUtil;

std::string Number(const v1::Token& token) {
  return std::string(absl::StripPrefix(token.name(), "tokens/"));
}

std::string StateOf(const v1::Token& token) {
  if (token.has_revoke_time()) return "REVOKED";
  if (token.has_expire_time() && ToTime(token.expire_time()) < absl::Now()) return "EXPIRED";
  return "VALID";
}

// A new file that its owner alone may read: never one that is there, whoever may have opened it. It
// is made before the token, which could not be had again.
class SecretFile final {
 public:
  explicit SecretFile(const std::string& path)
      : path_(path),
        descriptor_(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)),
        error_(descriptor_ < 0 ? errno : 0) {}
  ~SecretFile() {
    if (descriptor_ < 0) return;
    ::close(descriptor_);
    if (!written_) ::unlink(path_.c_str());
  }
  SecretFile(const SecretFile&) = delete;
  SecretFile& operator=(const SecretFile&) = delete;

  absl::Status status() const {
    if (error_ == 0) return absl::OkStatus();
    const std::string what =
        absl::StrCat("cannot write the token to ", path_, ": ", std::strerror(error_));
    return error_ == EEXIST ? absl::AlreadyExistsError(what) : absl::FailedPreconditionError(what);
  }
  absl::Status Write(const std::string& secret) {
    const std::string line = absl::StrCat(secret, "\n");
    const ssize_t size = ::write(descriptor_, line.data(), line.size());
    error_ = size < 0 ? errno : size < static_cast<ssize_t>(line.size()) ? ENOSPC : 0;
    if (error_ == 0 && ::fsync(descriptor_) != 0 && errno != EINVAL) error_ = errno;
    written_ = error_ == 0;
    return status();
  }

 private:
  const std::string path_;
  const int descriptor_;
  int error_;
  bool written_ = false;
};

v1::CreateTokenRequest ToRequest(const Arguments& arguments) {
  v1::CreateTokenRequest request;
  const absl::Time now = absl::Now();
  request.set_display_name(
      arguments.token_name.empty()
          ? absl::StrCat(arguments.role, "-",
                         absl::FormatTime("%Y%m%d-%H%M%E3S", now, absl::UTCTimeZone()))
          : arguments.token_name);
  request.set_role(arguments.role);
  request.set_tenant(arguments.tenant);
  if (arguments.expires != absl::InfiniteDuration()) {
    *request.mutable_expire_time() =
        TimeUtil::SecondsToTimestamp(absl::ToUnixSeconds(now + arguments.expires));
  }
  return request;
}

ExitCode CreateInto(const Session& session, client::ServerClient& client,
                    const Arguments& arguments) {
  SecretFile file(arguments.token_output);
  if (!file.status().ok()) return session.Fail(file.status());
  const absl::StatusOr<v1::CreateTokenResponse> made = client.CreateToken(ToRequest(arguments));
  if (!made.ok()) return session.Fail(made.status());
  const absl::Status written = file.Write(made->secret());
  if (!written.ok()) {
    const std::string number = proto::ToPrintable(Number(made->token()));
    session.err() << "the token " << number << " was made and its secret is lost; revoke it: "
                  << "blockswap token revoke " << number << "\n";
    return session.Fail(written);
  }
  if (session.structured()) session.Print(made->token());
  session.err() << "token " << proto::ToPrintable(Number(made->token())) << " written to "
                << proto::ToPrintable(arguments.token_output) << "\n";
  return kOk;
}

}  // namespace

ExitCode RunTokenCreate(Session& session, const Arguments& arguments) {
  const absl::StatusOr<client::ServerClient*> client = session.Client();
  if (!client.ok()) return session.Fail(client.status());
  if (!arguments.token_output.empty()) return CreateInto(session, **client, arguments);
  const absl::StatusOr<v1::CreateTokenResponse> made = (*client)->CreateToken(ToRequest(arguments));
  if (!made.ok()) return session.Fail(made.status());
  if (session.structured()) {
    session.Print(*made);
    return kOk;
  }
  session.out() << proto::ToPrintable(made->secret()) << "\n";
  session.err() << "token " << proto::ToPrintable(Number(made->token()))
                << ", shown this once: keep it in a file of mode 0600 and name that with "
                   "--token-file or BLOCKSWAP_TOKEN_FILE\n";
  return kOk;
}

ExitCode RunTokenList(Session& session, const Arguments& arguments) {
  using Token = v1::Token;
  const absl::Time now = absl::Now();
  const std::vector<Column<Token>> columns = {
      {"TOKEN", Number},
      {"NAME", [](const Token& token) { return token.display_name(); }},
      {"ROLE", [](const Token& token) { return token.role(); }},
      {"TENANT", [](const Token& token) { return token.tenant(); }},
      {"STATE", StateOf},
      {"EXPIRES", [](const Token& token) { return LocalTime(token.expire_time()); }},
      {"LAST_USED", [now](const Token& token) { return Ago(token.last_used_time(), now); }},
      {"CREATED", [now](const Token& token) { return Ago(token.create_time(), now); }, true}};
  return CallServer(
      session, &client::ServerClient::ListTokens, [&](const v1::ListTokensResponse& list) {
        return PrintListing<Token>(session, arguments, list, list.tokens(), Number, columns);
      });
}

ExitCode RunTokenRevoke(Session& session, const Arguments& arguments) {
  // A number is that of `token list`; anything else a name.
  const bool is_number = arguments.token.find_first_not_of("0123456789") == std::string::npos;
  const absl::StatusOr<client::ServerClient*> client = session.Client();
  if (!client.ok()) return session.Fail(client.status());
  if (!Confirm(session, arguments, absl::StrCat("revoke the token ", arguments.token, "?")))
    return kError;
  const absl::StatusOr<v1::Token> revoked = (*client)->RevokeToken(
      is_number ? absl::StrCat("tokens/", arguments.token) : arguments.token);
  if (!revoked.ok()) return session.Fail(revoked.status());
  if (session.structured()) {
    session.Print(*revoked);
  } else {
    session.err() << "revoked " << proto::ToPrintable(Number(*revoked)) << " "
                  << proto::ToPrintable(revoked->display_name()) << "\n";
  }
  return kOk;
}

}  // namespace blockswap::cli
