// SPDX-License-Identifier: Apache-2.0
// What text on the wire must be, UTF-8, and what text on a terminal may be, printable.
#ifndef BLOCKSWAP_PROTO_TEXT_UTF8_H_
#define BLOCKSWAP_PROTO_TEXT_UTF8_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace blockswap::proto {

// Bytes of the UTF-8 character at `offset`; 0 when it is malformed, overlong, a surrogate or cut
// off. REQUIRES: offset < text.size().
size_t Utf8Length(absl::string_view text, size_t offset);

// Every byte that is in no valid character becomes '?': protobuf refuses a whole message for one of
// them.
std::string ToValidUtf8(absl::string_view text);

// ToValidUtf8 without control characters (C0 but tab and newline, DEL, C1) and without those that
// turn the direction of writing or break the line: text of others must not steer the terminal.
std::string ToPrintable(absl::string_view text);

// ToValidUtf8 with all of these written out, as in \n, \x1b and \u202e, and the backslash doubled:
// text of others must not begin a line of a log.
std::string ToOneLine(absl::string_view text);

// The longest prefix of at most `max_bytes` that ends at a character; "..." is added when something
// was cut off.
std::string Shorten(absl::string_view text, size_t max_bytes);

}  // namespace blockswap::proto

#endif  // BLOCKSWAP_PROTO_TEXT_UTF8_H_
