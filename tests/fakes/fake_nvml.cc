// SPDX-License-Identifier: Apache-2.0
// A management library with one GPU: FAKE_NVML="generation max_generation width max_width
// free_mib".
#include <cstdio>
#include <cstdlib>
#include <cstring>

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

int Text(const char* text, char* out, unsigned int length) {
  std::strncpy(out, text, length - 1);
  return 0;
}

}  // namespace

extern "C" {
int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlDeviceGetCount_v2(unsigned int* count) {
  *count = 1;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned int, void** device) {
  *device = nullptr;
  return 0;
}
int nvmlDeviceGetUUID(void*, char* uuid, unsigned int length) {
  return Text("GPU-fake", uuid, length);
}
int nvmlDeviceGetName(void*, char* name, unsigned int length) {
  return Text("Fake GPU", name, length);
}
int nvmlDeviceGetMemoryInfo(void*, Memory* memory) {
  memory->total = 8000ULL << 20;
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
