// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <string>

namespace halfscope::gui {

/// Returns the bytes of a PNG file. `pixels` are rows of `channels` bytes (3: RGB, 4: RGBA) from
/// the top. Throws Error if it cannot be encoded.
std::string png_bytes(int width, int height, int channels, std::span<const unsigned char> pixels);

}  // namespace halfscope::gui
