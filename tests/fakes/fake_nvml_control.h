// SPDX-License-Identifier: Apache-2.0
// What a test tells the fake management library that is loaded into its process.
#ifndef BLOCKSWAP_TESTS_FAKES_FAKE_NVML_CONTROL_H_
#define BLOCKSWAP_TESTS_FAKES_FAKE_NVML_CONTROL_H_

#include <dlfcn.h>

#include <string>

namespace blockswap::testing {

// The library stays loaded as long as this lives, and so does what it was told. Thread safety:
// safe.
class FakeNvmlControl final {
 public:
  explicit FakeNvmlControl(const std::string& library)
      : handle_(::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ != nullptr) {
      set_ = reinterpret_cast<void (*)(const char*, double)>(::dlsym(handle_, "FakeNvmlSet"));
    }
  }
  ~FakeNvmlControl() {
    if (set_ != nullptr) set_("reset", 0);
    if (handle_ != nullptr) ::dlclose(handle_);
  }
  FakeNvmlControl(const FakeNvmlControl&) = delete;
  FakeNvmlControl& operator=(const FakeNvmlControl&) = delete;

  bool is_loaded() const { return set_ != nullptr; }
  // utilization (percent), power (milliwatts), temperature, clock (megahertz), energy
  // (millijoules), throttle (bits), rx, tx (bytes; narrow_bus: 32 bits), pid and process_bytes,
  // unsupported (all of these), xid (one error that waits, of the card xid_card), hang (the next
  // reading does not come back until it is 0), hang_start (nor does the library's start), lost (the
  // driver does not answer).
  void Set(const char* what, double value) { set_(what, value); }

 private:
  void* const handle_;
  void (*set_)(const char*, double) = nullptr;
};

}  // namespace blockswap::testing

#endif  // BLOCKSWAP_TESTS_FAKES_FAKE_NVML_CONTROL_H_
