// SPDX-License-Identifier: Apache-2.0
#include "worker/family/matmul_scratch.h"

#include <gtest/gtest.h>

namespace blockswap::worker {
namespace {

// As LibTorch 2.11 allocated them beside the result of at::mm, one thread, AVX-512.
TEST(MatmulScratchTest, IsWhatWasMeasured) {
  struct Measured {
    MatmulShape shape;
    int64_t bytes;
  };
  for (const Measured& measured : {
           Measured{{280, 64, 16}, 40960},        // two tiles of 140 rows
           Measured{{240, 64, 16}, 66560},        // one of 240
           Measured{{538, 640, 160}, 41216},      // seven of 77, one row of the last empty
           Measured{{11, 160, 640}, 69376},       // a panel of 512 rows
           Measured{{4096, 3072, 3072}, 197632},  // of 1024
           Measured{{72, 48, 192}, 39424},
           Measured{{32, 192, 72, true}, 27776},
           Measured{{192, 32, 64, true}, 58496},
           Measured{{320, 80, 541, true}, 322688},
           Measured{{3072, 3072, 4096, true}, 1393792},
       }) {
    EXPECT_EQ(MatmulScratchBytes(measured.shape, 2), measured.bytes)
        << measured.shape.rows << " x " << measured.shape.columns << ", inner "
        << measured.shape.inner;
  }
}

TEST(MatmulScratchTest, IsNoneForFullPrecisionAndForTheSmallest) {
  EXPECT_EQ(MatmulScratchBytes({4096, 3072, 3072}, 4), 0);
  EXPECT_EQ(MatmulScratchBytes({16, 16, 16}, 2), 0);
  EXPECT_GT(MatmulScratchBytes({16, 16, 17}, 2), 0);
}

}  // namespace
}  // namespace blockswap::worker
