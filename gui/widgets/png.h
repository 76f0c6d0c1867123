// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <string>

namespace halfscope::gui {

/// The bytes of a PNG file; `pixels` are rows of `channels` (3: RGB, 4: RGBA) bytes each, from the
/// top. Throws Error if there is no memory for it.
std::string png_bytes(int width, int height, int channels, std::span<const unsigned char> pixels);

}  // namespace halfscope::gui
