// SPDX-License-Identifier: MIT
#include "gui/widgets/png.h"

#include "core/error.h"

// Our own copy: the system's library may compress at another level.
#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STB_IMAGE_WRITE_STATIC
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include <stb_image_write.h>
#pragma GCC diagnostic pop

namespace halfscope::gui {

std::string png_bytes(int width, int height, int channels, std::span<const unsigned char> pixels) {
  std::string png;
  const auto append = [](void* to, void* data, int size) {
    static_cast<std::string*>(to)->append(static_cast<const char*>(data),
                                          static_cast<size_t>(size));
  };
  if (!stbi_write_png_to_func(append, &png, width, height, channels, pixels.data(),
                              width * channels)) {
    throw Error("cannot encode the picture as PNG");
  }
  return png;
}

}  // namespace halfscope::gui
