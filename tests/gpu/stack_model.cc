// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/stack_model.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "tests/worker/data/tiny_checkpoint.h"

namespace blockswap::gpu {
namespace {

constexpr size_t kPoolBytes = size_t{8} << 20;
constexpr double kLeaveFree = 1.1;

absl::Status Errno(const std::string& what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

// bf16 values between 2^-6 and 2^-5 of either sign: what a card multiplies costs it power, so zeros
// would not do.
std::vector<char> RandomPool() {
  std::vector<char> pool(kPoolBytes);
  std::mt19937 random(1);
  for (size_t i = 0; i < pool.size(); i += 2) {
    const auto value = static_cast<uint16_t>((random() & 0x807F) | 0x3C80);
    std::memcpy(&pool[i], &value, sizeof(value));
  }
  return pool;
}

absl::Status WriteAll(int file, const char* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t written = ::write(file, data, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return Errno("cannot write the model");
    data += written;
    bytes -= static_cast<size_t>(written);
  }
  return absl::OkStatus();
}

// The safetensors header, padded so that data starts aligned; `data_bytes` gets what follows it.
std::string Header(const std::vector<worker::TinyTensor>& specs, int64_t* data_bytes) {
  nlohmann::ordered_json header;
  int64_t offset = 0;
  for (const worker::TinyTensor& spec : specs) {
    int64_t count = 1;
    for (const int64_t size : spec.shape) count *= size;
    const int64_t end = offset + count * 2;
    header[spec.name] = {{"dtype", "BF16"}, {"shape", spec.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  *data_bytes = offset;
  std::string text = header.dump();
  while (text.size() % 8 != 0) text.push_back(' ');
  return text;
}

}  // namespace

absl::StatusOr<StackModel> WriteStackModel(const worker::QwenImageConfig& config,
                                           const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return absl::UnavailableError(absl::StrCat("cannot make ", directory));
  std::ofstream(directory + "/config.json") << worker::ConfigJson(config);
  StackModel model;
  const std::string header = Header(worker::TinyQwenImageTensors(config), &model.bytes);
  const std::string path = directory + "/diffusion_pytorch_model.safetensors";
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return Errno(absl::StrCat("cannot create ", path));
  absl::Cleanup close_file = [file] { ::close(file); };
  const uint64_t header_bytes = header.size();
  BLOCKSWAP_RETURN_IF_ERROR(
      WriteAll(file, reinterpret_cast<const char*>(&header_bytes), sizeof(header_bytes)));
  BLOCKSWAP_RETURN_IF_ERROR(WriteAll(file, header.data(), header.size()));
  struct statvfs space {};
  if (::fstatvfs(file, &space) != 0) return Errno(absl::StrCat("cannot ask for space at ", path));
  model.random = static_cast<double>(space.f_bavail) * static_cast<double>(space.f_frsize) >
                 kLeaveFree * static_cast<double>(model.bytes);
  if (!model.random) {
    const auto total = static_cast<off_t>(sizeof(header_bytes) + header.size()) + model.bytes;
    if (::ftruncate(file, total) != 0) return Errno(absl::StrCat("cannot size ", path));
    return model;
  }
  const std::vector<char> pool = RandomPool();
  for (int64_t left = model.bytes; left > 0;) {
    const auto piece = static_cast<size_t>(std::min<int64_t>(left, kPoolBytes));
    BLOCKSWAP_RETURN_IF_ERROR(WriteAll(file, pool.data(), piece));
    left -= static_cast<int64_t>(piece);
  }
  return model;
}

}  // namespace blockswap::gpu
