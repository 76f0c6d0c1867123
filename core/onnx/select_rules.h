// SPDX-License-Identifier: MIT
// Elements that GatherND, ScatterND and ScatterElements read and write, for folding and
// translating.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/onnx/known_tensor.h"

namespace halfscope::onnx_files {

/// The shapes of GatherND and ScatterND: tuples of indices, the last dimension of the indices,
/// select rows of the data. Throws Error naming `what` if they do not fit.
struct TupleShapes {
  Shape places;                  ///< of the indices without their last dimension
  Shape row;                     ///< shape that a tuple selects
  int64_t rows = 1;              ///< of the whole data
  std::vector<int64_t> sizes;    ///< sizes of the dimensions that a tuple indexes
  std::vector<int64_t> strides;  ///< strides of these dimensions, in rows
  /// First row of the batch that each place belongs to; empty without batch dimensions.
  std::vector<int64_t> first_rows;

  TupleShapes(const Shape& data, const Shape& indices, int64_t batch_dims, const std::string& what);
  /// Returns the row of each place. Throws Error naming `what` for indices out of range.
  std::vector<int64_t> rows_of(const KnownTensor& indices, const std::string& what) const;
};

/// Returns the element of the data for each index of GatherElements or ScatterElements.
std::vector<int64_t> elements_of(const Shape& data, const KnownTensor& indices, int64_t axis,
                                 const std::string& what);

enum class ScatterHow : uint8_t { replace, add, multiply, largest, smallest };
/// Parses the attribute "reduction". Throws Error naming `what` for other values.
ScatterHow scatter_how(const std::string& reduction, const std::string& what);

}  // namespace halfscope::onnx_files
