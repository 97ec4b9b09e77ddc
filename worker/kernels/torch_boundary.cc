// SPDX-License-Identifier: Apache-2.0
#include "worker/kernels/torch_boundary.h"

#include <c10/util/Exception.h>

#include <exception>
#include <new>
#include <string>

#include "absl/strings/str_cat.h"

namespace blockswap::worker {
namespace {

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

absl::Status RunContained(absl::FunctionRef<absl::Status()> body) {
  try {
    return body();
  } catch (const c10::OutOfMemoryError& error) {
    return absl::ResourceExhaustedError(FirstLine(error.what_without_backtrace()));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        "the system refused memory (std::bad_alloc); lower memory.host_budget or free memory on "
        "the host");
  } catch (const c10::Error& error) {
    return absl::InternalError(
        absl::StrCat("libtorch: ", FirstLine(error.what_without_backtrace())));
  } catch (const std::exception& error) {
    return absl::UnknownError(absl::StrCat("unexpected exception: ", FirstLine(error.what())));
  }
}

}  // namespace blockswap::worker
