// SPDX-License-Identifier: Apache-2.0
#include "worker/family/matmul_scratch.h"

#include <algorithm>

namespace blockswap::worker {
namespace {

// Note [Matmul scratch]
//
// oneDNN 3.10 (LibTorch 2.11) multiplies 16-bit matrices on AVX-512 tile by tile: a tile of the
// result is summed up in fp32, for which a panel of the right side is packed, and the left side too
// where it lies transposed. Measured with LibTorch alone over 400 shapes on one thread; with AMX
// tiles differ somewhat. Products too small for oneDNN need nothing.
constexpr int64_t kLeastOperations = 16 * 16 * 16;
constexpr int64_t kMostTileRows = 256, kLeastTileRows = 32, kTileColumns = 64;
constexpr int64_t kMostTilesAtOnce = 16;
constexpr int64_t kPanelRows = 512, kLongPanelRows = 1024;  // of the inner side at a time
constexpr int64_t kPanelMultiple = 32;
constexpr int64_t kBookkeepingBytes = 1024, kLeftBookkeepingBytes = 128;
constexpr int64_t kFloatBytes = 4;

int64_t Ceil(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// The most rows a tile can have with the fewest rows of the last one empty.
int64_t TileRows(int64_t rows) {
  if (rows <= kMostTileRows) return rows;
  int64_t best = kMostTileRows;
  for (int64_t tile = kMostTileRows; tile >= kLeastTileRows; --tile) {
    if (Ceil(rows, tile) < Ceil(rows, best)) best = tile;
  }
  return best;
}

}  // namespace

int64_t MatmulScratchBytes(const MatmulShape& shape, int64_t value_bytes) {
  if (value_bytes == kFloatBytes) return 0;
  if (shape.rows * shape.columns * shape.inner <= kLeastOperations) return 0;
  const int64_t tile_rows = TileRows(shape.rows);
  const bool is_long = shape.inner > kLongPanelRows && !shape.left_transposed;
  const int64_t panel_rows =
      Ceil(std::min(shape.inner, is_long ? kLongPanelRows : kPanelRows), kPanelMultiple);
  // A left side that is packed piece by piece is used for many columns at once: their sums are all
  // under way.
  const bool in_pieces = shape.left_transposed && shape.inner > kPanelRows;
  const int64_t columns =
      in_pieces && shape.columns > kTileColumns
          ? std::min(Ceil(shape.columns, kTileColumns), kMostTilesAtOnce * kTileColumns)
          : std::min(shape.columns, kTileColumns);
  int64_t bytes = tile_rows * columns * kFloatBytes + panel_rows * kTileColumns * value_bytes +
                  kBookkeepingBytes;
  if (shape.left_transposed) {
    // Rows a multiple of a kilobyte apart would fall on the same lines of the cache.
    const int64_t stride = panel_rows % kPanelRows == 0 ? panel_rows + kPanelMultiple : panel_rows;
    bytes += tile_rows * stride * value_bytes + kLeftBookkeepingBytes;
  }
  return bytes;
}

}  // namespace blockswap::worker
