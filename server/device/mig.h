// SPDX-License-Identifier: Apache-2.0
// The parts that a GPU is divided into (MIG), each a device with memory of its own.
#ifndef BLOCKSWAP_SERVER_DEVICE_MIG_H_
#define BLOCKSWAP_SERVER_DEVICE_MIG_H_

#include <string>
#include <vector>

namespace blockswap::server {

struct MigInstance {
  int gpu_instance = -1, compute_instance = -1;  // below 0: the whole GPU
  bool is_part() const { return gpu_instance >= 0; }
};

// "cuda-0"; of a part "cuda-0-mig-7", or "cuda-0-mig-7-1" where its GPU instance is divided again.
// The numbers are those of nvidia-smi (GI and CI ID).
std::string GpuDeviceName(int index, const MigInstance& part);

// Functions of the management library that not each has. Thread safety: that of the library's user.
class MigFunctions final {
 public:
  struct Part {
    void* handle = nullptr;  // the library's, as of a device
    MigInstance instance;
  };

  // `library` is an open one. What is missing means: no GPU is divided.
  void Find(void* library);
  // CUDA cannot use such a GPU as a whole, also when it has no parts yet.
  bool IsDivided(void* gpu) const;
  std::vector<Part> PartsOf(void* gpu) const;

 private:
  int (*mode_)(void*, unsigned int*, unsigned int*) = nullptr;
  int (*most_)(void*, unsigned int*) = nullptr;
  int (*by_index_)(void*, unsigned int, void**) = nullptr;
  int (*gpu_instance_)(void*, unsigned int*) = nullptr;
  int (*compute_instance_)(void*, unsigned int*) = nullptr;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_DEVICE_MIG_H_
