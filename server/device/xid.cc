// SPDX-License-Identifier: Apache-2.0
#include "server/device/xid.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"

namespace blockswap::server {
namespace {

// NVIDIA's device plugin takes these for faults of the program; so do we.
constexpr std::array<int64_t, 6> kApplication = {13, 31, 43, 45, 68, 109};
// Corrected errors, page retirement and the like: nothing that stops a job.
constexpr std::array<int64_t, 3> kNotices = {63, 64, 92};

struct Meaning {
  int64_t xid;
  const char* text;
};
constexpr Meaning kMeanings[] = {
    {13, "a kernel raised an exception"},
    {31, "a kernel touched memory that is not mapped"},
    {43, "a kernel was stopped"},
    {45, "the program was ended with work on the GPU"},
    {48, "the memory has an error that cannot be corrected"},
    {62, "the GPU's own controller has halted"},
    {74, "the NVLink has an error"},
    {79, "the GPU has fallen off the bus"},
    {94, "a memory error was contained"},
    {95, "a memory error was not contained"},
    {119, "the GPU's system processor does not answer"},
    {120, "the GPU's system processor has an error"},
};

template <size_t N>
bool IsOne(const std::array<int64_t, N>& list, int64_t xid) {
  return std::find(list.begin(), list.end(), xid) != list.end();
}

}  // namespace

XidEffect EffectOfXid(int64_t xid) {
  if (IsOne(kApplication, xid)) return XidEffect::kApplication;
  if (IsOne(kNotices, xid)) return XidEffect::kNotice;
  // What is not known to be harmless is not: a job on a bad card costs more than an idle one.
  return XidEffect::kDevice;
}

std::string XidText(int64_t xid) {
  for (const Meaning& meaning : kMeanings) {
    if (meaning.xid == xid) return absl::StrCat("Xid ", xid, ": ", meaning.text);
  }
  return absl::StrCat("Xid ", xid, ": the driver reported an error of the GPU");
}

}  // namespace blockswap::server
