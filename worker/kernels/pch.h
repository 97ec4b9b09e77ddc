// SPDX-License-Identifier: Apache-2.0
// What nearly every translation unit with torch includes; compiled once (ATen.h alone costs eight
// seconds).
#ifndef BLOCKSWAP_WORKER_KERNELS_PCH_H_
#define BLOCKSWAP_WORKER_KERNELS_PCH_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#endif  // BLOCKSWAP_WORKER_KERNELS_PCH_H_
