// SPDX-License-Identifier: Apache-2.0
// A management library with one GPU: FAKE_NVML="generation max_generation width max_width
// free_mib". FAKE_NVML_CARDS=3: with three of growing size, -3: the same in reverse order.
// FAKE_NVML_INIT: the code that nvmlInit answers. FAKE_NVML_MIG=2: card 0 is divided into two parts
// of 2000 and 4000 MiB, half of it free; the places of others are empty.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

// Of the other half, fake_nvml_sensors.cc.
int FakeNvmlResult();
void FakeNvmlStart();

namespace {

struct Memory {
  unsigned long long total, free, used;  // NOLINT(google-runtime-int): the library's own type
};

unsigned int Value(int index) {
  unsigned int values[5] = {4, 4, 16, 16, 1000};
  const char* text = std::getenv("FAKE_NVML");
  if (text != nullptr) {
    std::sscanf(text, "%u %u %u %u %u", &values[0], &values[1], &values[2], &values[3], &values[4]);
  }
  return values[index];
}

int Answer(int index, unsigned int* value) {
  *value = Value(index);
  return 0;
}

int Number(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

// A handle is the card's number, which stays when the order changes; of a part with its own from 1
// above it.
constexpr long kPartStep = 1000;
constexpr unsigned int kPlaces = 7;
constexpr int kNoPermission = 4;
constexpr int kNotFound = 6;
long HandleOf(void* device) { return static_cast<long>(reinterpret_cast<std::intptr_t>(device)); }
long CardOf(void* device) { return HandleOf(device) % kPartStep; }
long PartOf(void* device) { return HandleOf(device) / kPartStep; }

int Text(const char* text, char* out, unsigned int length) {
  std::strncpy(out, text, length - 1);
  return 0;
}

}  // namespace

extern "C" {
int nvmlInit_v2() {
  FakeNvmlStart();
  return Number("FAKE_NVML_INIT", 0);
}
int nvmlShutdown() { return 0; }
int nvmlDeviceGetCount_v2(unsigned int* count) {
  *count = static_cast<unsigned int>(std::abs(Number("FAKE_NVML_CARDS", 1)));
  return FakeNvmlResult();
}
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void** device) {
  const int cards = Number("FAKE_NVML_CARDS", 1);
  const std::intptr_t card =
      cards < 0 ? -cards - 1 - static_cast<int>(index) : static_cast<int>(index);
  *device = reinterpret_cast<void*>(card);
  return 0;
}
int nvmlDeviceGetMigMode(void* device, unsigned int* current, unsigned int* pending) {
  *pending = *current = CardOf(device) == 0 && Number("FAKE_NVML_MIG", 0) > 0 ? 1 : 0;
  return 0;
}
int nvmlDeviceGetMaxMigDeviceCount(void*, unsigned int* count) {
  *count = kPlaces;
  return 0;
}
// Every second place is empty, as after a part in the middle was taken away.
int nvmlDeviceGetMigDeviceHandleByIndex(void* device, unsigned int index, void** part) {
  if (index % 2 != 0 || static_cast<int>(index / 2) >= Number("FAKE_NVML_MIG", 0)) return kNotFound;
  *part = reinterpret_cast<void*>(static_cast<std::intptr_t>(kPartStep * (index / 2 + 1)) +
                                  CardOf(device));
  return 0;
}
int nvmlDeviceGetGpuInstanceId(void* part, unsigned int* id) {
  *id = static_cast<unsigned int>(PartOf(part)) + 6;
  return 0;
}
int nvmlDeviceGetComputeInstanceId(void*, unsigned int* id) {
  *id = 0;
  return 0;
}
int nvmlDeviceGetUUID(void* device, char* uuid, unsigned int length) {
  if (PartOf(device) > 0) {
    std::snprintf(uuid, length, "MIG-%08lx-%04lx", CardOf(device), PartOf(device));
    return 0;
  }
  if (std::getenv("FAKE_NVML_CARDS") == nullptr) return Text("GPU-fake", uuid, length);
  std::snprintf(uuid, length, "GPU-card-%ld", CardOf(device));
  return 0;
}
int nvmlDeviceGetName(void* device, char* name, unsigned int length) {
  if (PartOf(device) > 0) return Text("Fake GPU MIG 1g.2gb", name, length);
  if (std::getenv("FAKE_NVML_CARDS") == nullptr) return Text("Fake GPU", name, length);
  std::snprintf(name, length, "Fake GPU %ld", CardOf(device));
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  if (PartOf(device) > 0) {
    memory->total = (2000ULL << 20) *
                    static_cast<unsigned long long>(PartOf(device));  // NOLINT(google-runtime-int)
    memory->free = memory->used = memory->total / 2;
    return 0;
  }
  // As a whole it is for the privileged alone.
  if (CardOf(device) == 0 && Number("FAKE_NVML_MIG", 0) > 0) return kNoPermission;
  memory->total = (8000ULL << 20) * static_cast<unsigned long long>(
                                        CardOf(device) + 1);       // NOLINT(google-runtime-int)
  memory->free = static_cast<unsigned long long>(Value(4)) << 20;  // NOLINT(google-runtime-int)
  memory->used = memory->total - memory->free;
  return 0;
}
int nvmlSystemGetDriverVersion(char* version, unsigned int length) {
  return Text("580.1", version, length);
}
int nvmlDeviceGetCurrPcieLinkGeneration(void*, unsigned int* value) { return Answer(0, value); }
int nvmlDeviceGetMaxPcieLinkGeneration(void*, unsigned int* value) { return Answer(1, value); }
int nvmlDeviceGetCurrPcieLinkWidth(void*, unsigned int* value) { return Answer(2, value); }
int nvmlDeviceGetMaxPcieLinkWidth(void*, unsigned int* value) { return Answer(3, value); }
}
