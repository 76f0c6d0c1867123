// SPDX-License-Identifier: MIT
// IDX files of unsigned bytes, the container MNIST comes in: two zero bytes, a type code (0x08 =
// unsigned byte), the number of dimensions, each dimension as big-endian 32-bit integer, then
// the values, last dimension fastest. Gzip is recognized by the content.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "core/tensor.h"

namespace halfscope {

struct IdxArray {
  Shape shape;
  std::vector<uint8_t> bytes;  ///< element_count(shape) values
};

/// Reads a whole file with the given number of dimensions. Throws Error that names the file,
/// what was found and what was expected: another magic number, a truncated file, data after the
/// end, a damaged gzip stream, a dimension of zero.
IdxArray read_idx(const std::filesystem::path& file, int dimensions);

}  // namespace halfscope
