// SPDX-License-Identifier: Apache-2.0
#include "client/cli/confirm.h"

#include <istream>

#include "proto/text/utf8.h"

namespace blockswap::cli {

bool Confirm(const Session& session, const Arguments& arguments, const std::string& question) {
  if (arguments.yes) return true;
  if (session.surroundings().in == nullptr) {
    session.err() << "error: " << proto::ToPrintable(question)
                  << " there is no terminal to ask at; --yes does it without asking\n";
    return false;
  }
  session.err() << proto::ToPrintable(question) << " [y/N] ";
  session.err().flush();
  std::string answer;
  std::getline(*session.surroundings().in, answer);
  const bool agreed = answer == "y" || answer == "Y" || answer == "yes";
  if (!agreed) session.err() << "nothing was done\n";
  return agreed;
}

}  // namespace blockswap::cli
