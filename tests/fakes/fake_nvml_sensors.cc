// SPDX-License-Identifier: Apache-2.0
// The measuring half of the fake management library; FakeNvmlSet says what it measures.
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace {

using Unsigned64 = unsigned long long;  // NOLINT(google-runtime-int): the library's own type
using Signed64 = long long;             // NOLINT(google-runtime-int)

constexpr int kNotSupported = 3;
constexpr int kTimeout = 10;
constexpr int kLost = 999;
constexpr Unsigned64 kXidEvent = 8;

struct State {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, double> values;
  std::deque<std::pair<std::intptr_t, uint64_t>> xids;  // with the card

  double Get(const char* what) { return values.count(what) != 0 ? values[what] : 0; }
};

State& TheState() {
  static State state;
  return state;
}

int Number(const char* what, unsigned int* value) {
  State& state = TheState();
  std::lock_guard lock(state.mutex);
  if (state.Get("unsupported") != 0) return kNotSupported;
  *value = static_cast<unsigned int>(state.Get(what));
  return 0;
}

int Wide(const char* what, Unsigned64* value) {
  State& state = TheState();
  std::lock_guard lock(state.mutex);
  if (state.Get("unsupported") != 0) return kNotSupported;
  *value = static_cast<Unsigned64>(state.Get(what));
  return 0;
}

struct Utilization {
  unsigned int gpu, memory;
};
struct FieldValue {
  unsigned int field, scope;
  Signed64 timestamp, latency;
  unsigned int type;
  int result;
  union {
    double real;
    unsigned int narrow;
    Unsigned64 wide;
  };
};
struct EventData {
  void* device;
  Unsigned64 type, data;
  unsigned int gpu_instance, compute_instance;
};
struct ProcessUse {
  unsigned int pid;
  Unsigned64 bytes;
  unsigned int gpu_instance, compute_instance;
};

}  // namespace

// Of the first half: the driver does not answer.
int FakeNvmlResult() {
  State& state = TheState();
  std::lock_guard lock(state.mutex);
  return state.Get("lost") != 0 ? kLost : 0;
}

// And at its start: the driver takes its time.
void FakeNvmlStart() {
  State& state = TheState();
  std::unique_lock lock(state.mutex);
  state.changed.wait(lock, [&state] { return state.Get("hang_start") == 0; });
}

extern "C" {
void FakeNvmlSet(const char* what, double value) {
  State& state = TheState();
  std::lock_guard lock(state.mutex);
  if (std::string(what) == "reset") {
    state.values.clear();
    state.xids.clear();
  } else if (std::string(what) == "xid") {
    state.xids.emplace_back(static_cast<std::intptr_t>(state.Get("xid_card")),
                            static_cast<uint64_t>(value));
  } else {
    state.values[what] = value;
  }
  state.changed.notify_all();
}

int nvmlDeviceGetUtilizationRates(void*, Utilization* rates) {
  State& state = TheState();
  {
    std::unique_lock lock(state.mutex);
    state.changed.wait(lock, [&state] { return state.Get("hang") == 0; });
  }
  return Number("utilization", &rates->gpu);
}
int nvmlDeviceGetPowerUsage(void*, unsigned int* value) { return Number("power", value); }
int nvmlDeviceGetTemperature(void*, unsigned int, unsigned int* value) {
  return Number("temperature", value);
}
int nvmlDeviceGetClockInfo(void*, unsigned int, unsigned int* value) {
  return Number("clock", value);
}
int nvmlDeviceGetTotalEnergyConsumption(void*, Unsigned64* value) { return Wide("energy", value); }
int nvmlDeviceGetCurrentClocksEventReasons(void*, Unsigned64* value) {
  return Wide("throttle", value);
}
int nvmlDeviceGetFieldValues(void*, int count, FieldValue* values) {
  State& state = TheState();
  std::lock_guard lock(state.mutex);
  for (int i = 0; i < count; ++i) {
    const bool known = values[i].field == 197 || values[i].field == 198;
    values[i].result = known && state.Get("unsupported") == 0 ? 0 : kNotSupported;
    const double bytes = state.Get(values[i].field == 197 ? "tx" : "rx");
    values[i].type = state.Get("narrow_bus") != 0 ? 1 : 3;
    if (values[i].type == 1) {
      values[i].narrow = static_cast<unsigned int>(bytes);
    } else {
      values[i].wide = static_cast<Unsigned64>(bytes);
    }
  }
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned int* count, ProcessUse* uses) {
  State& state = TheState();
  std::lock_guard lock(state.mutex);
  if (state.Get("unsupported") != 0) return kNotSupported;
  *count = state.Get("pid") != 0 ? 1 : 0;
  if (*count == 1) {
    uses[0].pid = static_cast<unsigned int>(state.Get("pid"));
    uses[0].bytes = static_cast<Unsigned64>(state.Get("process_bytes"));
  }
  return 0;
}
int nvmlEventSetCreate(void** set) {
  *set = &TheState();
  return 0;
}
int nvmlEventSetFree(void*) { return 0; }
int nvmlDeviceRegisterEvents(void*, Unsigned64, void*) { return 0; }
int nvmlEventSetWait_v2(void*, EventData* event, unsigned int) {
  State& state = TheState();
  std::lock_guard lock(state.mutex);
  if (state.xids.empty()) return kTimeout;
  const auto [card, xid] = state.xids.front();
  *event = EventData{reinterpret_cast<void*>(card), kXidEvent, xid, 0, 0};
  state.xids.pop_front();
  return 0;
}
}
