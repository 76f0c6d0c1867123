// SPDX-License-Identifier: MIT
#include "core/onnx/shape_rules.h"

#include <algorithm>

#include "core/error.h"
#include "core/onnx/fold.h"

namespace halfscope::onnx_files {

std::vector<int64_t> split_sizes(const std::optional<std::vector<int64_t>>& given, int parts,
                                 int64_t size, const std::string& what) {
  if (parts < 1) throw Error(what + ": it splits into no parts");
  std::vector<int64_t> sizes;
  if (given) {
    sizes = *given;
  } else {
    const int64_t each = (size + parts - 1) / parts;
    for (int i = 0; i < parts; ++i) sizes.push_back(std::clamp<int64_t>(size - each * i, 0, each));
  }
  int64_t sum = 0;
  for (int64_t part : sizes) {
    if (part < 0 || part > size) throw Error(what + ": a part has size " + std::to_string(part));
    sum += part;
  }
  if (sum != size || static_cast<int>(sizes.size()) < parts) {
    throw Error(what + ": its parts do not add up to the dimension of " + std::to_string(size));
  }
  return sizes;
}

Shape unsqueezed(const Shape& shape, const std::vector<int64_t>& axes, const std::string& what) {
  const size_t rank = shape.size() + axes.size();
  const std::vector<int64_t> ones = checked_axes(axes, rank, what);
  Shape result;
  size_t next = 0;
  for (size_t i = 0; i < rank; ++i) {
    const bool is_one = std::find(ones.begin(), ones.end(), static_cast<int64_t>(i)) != ones.end();
    result.push_back(is_one ? 1 : shape[next++]);
  }
  return result;
}

}  // namespace halfscope::onnx_files
