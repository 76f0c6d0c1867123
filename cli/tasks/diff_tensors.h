// SPDX-License-Identifier: MIT
// Files of tensors compared, element by element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/numeric/formats/float_format.h"
#include "core/tensor.h"

namespace halfscope {

/// Returns whether a name ends like a file of tensors that read_tensors() reads.
bool names_tensors(std::string_view file) noexcept;
/// Returns the tensors of a file. A file of one tensor without a name gives it the name "".
NamedDoubleTensors read_tensors(const std::string& file);

/// An element in which two tensors differ.
struct ElementDiff {
  size_t index = 0;  ///< flat
  double a = 0.0, b = 0.0;
  double ulps = 0.0;  ///< above 0; infinite if one of the two is NaN or infinite
};

struct TensorDiff {
  std::string name{};
  Shape shape_a{}, shape_b{};  ///< no elements are compared if they differ
  int64_t n = 0, differing = 0;
  ElementDiff first{}, worst{};  ///< of the differing elements; by index, by ulps
  double error = 0.0;            ///< norm(a - b) / norm(b) over elements finite in both
  bool same() const noexcept { return shape_a == shape_b && differing == 0; }
};

struct TensorsDiff {
  FloatFormat ulps_of{};              ///< format that distances are counted in
  double tolerance = 0.0;             ///< ulps by which equal elements may differ
  bool rounded = false;               ///< both sides were rounded to it before they were compared
  std::vector<TensorDiff> tensors{};  ///< in both files, by name
  std::vector<std::string> only_a{}, only_b{};  ///< names
  bool same() const noexcept;
};

/// Compares tensors of the same name; files of one tensor each are compared whatever the names.
/// With a format, both sides are rounded to it (to nearest even) and compared there. Without one,
/// values must be equal; distances are counted in fp32, in fractions if need be. Two NaNs are
/// equal, and so are +0 and -0. Elements that are at most `tolerance` ulps apart count as equal.
TensorsDiff diff_tensors(const NamedDoubleTensors& a, const NamedDoubleTensors& b,
                         const std::optional<FloatFormat>& format, double tolerance = 0.0);

/// Returns the comparison as text, with at most `limit` tensors.
std::string tensors_diff_text(const TensorsDiff& diff, size_t limit);
nlohmann::ordered_json tensors_diff_json(const TensorsDiff& diff);

}  // namespace halfscope
