// SPDX-License-Identifier: Apache-2.0
#include "worker/sampler/picture.h"

#include <png.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include <ATen/ATen.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "worker/io/atomic_file.h"

namespace blockswap::worker {
namespace {

constexpr int64_t kMargin = 4;  // pixels between the pictures of a sheet
constexpr uint8_t kGround = 235;

uint8_t Brightness(float value) {
  const float level =
      std::isfinite(value) ? (std::clamp(value, -1.0f, 1.0f) + 1.0f) * 127.5f : 0.0f;
  return static_cast<uint8_t>(std::lround(level));
}

void Paste(const Picture& picture, int64_t left, int64_t top, Picture* sheet) {
  for (int64_t row = 0; row < picture.height; ++row) {
    std::memcpy(sheet->rgb.data() + ((top + row) * sheet->width + left) * 3,
                picture.rgb.data() + row * picture.width * 3,
                static_cast<size_t>(picture.width) * 3);
  }
}

}  // namespace

bool HasPixelDecoder(int64_t channels) { return channels == 1 || channels == 3; }

Picture DrawLatent(const at::Tensor& latent_CHW, int64_t scale) {
  const at::Tensor values = latent_CHW.contiguous();
  const int64_t channels = values.size(0), height = values.size(1), width = values.size(2);
  const float* data = values.data_ptr<float>();
  Picture picture{width * scale, height * scale, {}};
  picture.rgb.resize(static_cast<size_t>(picture.width * picture.height * 3));
  for (int64_t y = 0; y < picture.height; ++y) {
    for (int64_t x = 0; x < picture.width; ++x) {
      for (int64_t c = 0; c < 3; ++c) {
        const int64_t channel = channels == 3 ? c : 0;
        const float value = data[(channel * height + y / scale) * width + x / scale];
        picture.rgb[static_cast<size_t>((y * picture.width + x) * 3 + c)] = Brightness(value);
      }
    }
  }
  return picture;
}

Picture ArrangeSheet(const std::vector<std::vector<Picture>>& rows) {
  int64_t cell_width = 0, cell_height = 0, columns = 0;
  for (const std::vector<Picture>& row : rows) {
    columns = std::max(columns, static_cast<int64_t>(row.size()));
    for (const Picture& picture : row) {
      cell_width = std::max(cell_width, picture.width);
      cell_height = std::max(cell_height, picture.height);
    }
  }
  Picture sheet;
  sheet.width = columns * (cell_width + kMargin) + kMargin;
  sheet.height = static_cast<int64_t>(rows.size()) * (cell_height + kMargin) + kMargin;
  sheet.rgb.assign(static_cast<size_t>(sheet.width * sheet.height * 3), kGround);
  int64_t top = kMargin;
  for (const std::vector<Picture>& row : rows) {
    int64_t left = kMargin;
    for (const Picture& picture : row) {
      Paste(picture, left, top, &sheet);
      left += cell_width + kMargin;
    }
    top += cell_height + kMargin;
  }
  return sheet;
}

absl::Status WritePng(const Picture& picture, const std::string& path) {
  png_image image;
  std::memset(&image, 0, sizeof(image));
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(picture.width);
  image.height = static_cast<png_uint_32>(picture.height);
  image.format = PNG_FORMAT_RGB;
  png_alloc_size_t bytes = 0;
  std::string encoded;
  if (png_image_write_to_memory(&image, nullptr, &bytes, 0, picture.rgb.data(), 0, nullptr) != 0) {
    encoded.resize(bytes);
    if (png_image_write_to_memory(&image, encoded.data(), &bytes, 0, picture.rgb.data(), 0,
                                  nullptr) != 0) {
      encoded.resize(bytes);
      return WriteFileAtomically(path, encoded);
    }
  }
  return absl::InternalError(absl::StrCat("cannot encode ", path, ": ", image.message));
}

}  // namespace blockswap::worker
