// SPDX-License-Identifier: MIT
// Resize and Upsample, one axis at a time: each row is copied from the input or computed as a sum
// of rows with constant weights.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>

#include "core/onnx/translate.h"

namespace halfscope::onnx_files {
namespace {

constexpr float kMostTaps = 256.0f;  // per filter; each tap becomes a few nodes

/// How one axis is resized.
struct Axis {
  int64_t index = 0, from = 0, to = 0;
  float scale = 1.0f;
  float roi_begin = 0.0f, roi_end = 1.0f;  ///< for tf_crop_and_resize
};

/// Returns the input position of a row of the resized axis, by the coordinate rules of Resize. It
/// is computed in float like in ONNX Runtime, so that ties round the same way.
float resized_place(Translation& t, int64_t row, const Axis& axis, const std::string& coordinates) {
  const auto x = static_cast<float>(row);
  const auto last = static_cast<float>(axis.from - 1), last_to = static_cast<float>(axis.to - 1);
  if (coordinates == "asymmetric") return x / axis.scale;
  if (coordinates == "half_pixel") return (x + 0.5f) / axis.scale - 0.5f;
  if (coordinates == "pytorch_half_pixel")
    return axis.to > 1 ? (x + 0.5f) / axis.scale - 0.5f : 0.0f;
  if (coordinates == "align_corners") return axis.to > 1 ? x * last / last_to : 0.0f;
  if (coordinates == "half_pixel_symmetric") {
    const auto size = static_cast<float>(axis.from);
    const float adjustment = static_cast<float>(axis.to) / (axis.scale * size);
    return size / 2.0f * (1.0f - adjustment) + (x + 0.5f) / axis.scale - 0.5f;
  }
  if (coordinates == "tf_crop_and_resize") {
    if (axis.to == 1) return 0.5f * (axis.roi_begin + axis.roi_end) * last;
    return axis.roi_begin * last + x * (axis.roi_end - axis.roi_begin) * last / last_to;
  }
  throw t.error("the coordinates '" + coordinates + "' are not supported");
}

/// Returns the row nearest to a position by the rounding rules; "simple" is the rule up to opset
/// 10.
int64_t nearest_row(Translation& t, float at, int64_t from, float scale,
                    const std::string& nearest) {
  const float below = std::floor(at);
  // ONNX Runtime also treats positions this close as halfway.
  const bool halfway = std::fabs(at - below - 0.5f) < 1e-6f;
  float row = 0.0f;
  if (nearest == "floor") {
    row = below;
  } else if (nearest == "ceil") {
    row = std::ceil(at);
  } else if (nearest == "round_prefer_ceil") {
    row = halfway ? below + 1.0f : std::round(at);
  } else if (nearest == "round_prefer_floor") {
    row = halfway ? below : std::round(at);
  } else if (nearest == "simple") {
    row = scale < 1.0f ? std::ceil(at) : below;
  } else {
    throw t.error("the rounding '" + nearest + "' is not supported");
  }
  return std::clamp<int64_t>(static_cast<int64_t>(row), 0, from - 1);
}

/// Returns the given rows of an axis, multiplied by constant weights.
ValueId weighted_rows(Translation& t, ValueId x, int64_t axis, const std::vector<int64_t>& rows,
                      std::vector<float> weights, const std::string& suffix) {
  const size_t rank = t.shape_of(x).size();
  Tensor tensor{Shape(rank - static_cast<size_t>(axis), 1), std::move(weights)};
  tensor.shape[0] = static_cast<int64_t>(rows.size());
  const ValueId taken = gather_rows(t, x, axis, rows, suffix);
  return t.add("Mul", {taken, t.graph().add_constant(std::move(tensor))}, {}, suffix + "_part");
}

/// Interpolates each row of an axis linearly between the two rows around its position.
ValueId interpolated(Translation& t, ValueId x, int64_t axis, const std::vector<float>& places,
                     const std::string& suffix) {
  const int64_t last = t.shape_of(x)[static_cast<size_t>(axis)] - 1;
  std::vector<int64_t> low, high;
  std::vector<float> below, above;
  for (float place : places) {
    const float at = std::clamp(place, 0.0f, static_cast<float>(last));
    low.push_back(static_cast<int64_t>(std::floor(at)));
    high.push_back(std::min(low.back() + 1, last));
    above.push_back(at - std::floor(at));
    below.push_back(1.0f - above.back());
  }
  if (std::all_of(above.begin(), above.end(), [](float w) { return w == 0.0f; }))
    return gather_rows(t, x, axis, low, suffix);
  const ValueId first = weighted_rows(t, x, axis, low, std::move(below), suffix + "_low");
  const ValueId second = weighted_rows(t, x, axis, high, std::move(above), suffix + "_high");
  return t.add("Add", {first, second}, {}, suffix);
}

/// Sums the four rows around each position with the weights of Keys' cubic convolution.
ValueId cubic(Translation& t, ValueId x, int64_t axis, const std::vector<float>& places, float a,
              bool only_inside, const std::string& suffix) {
  const int64_t last = t.shape_of(x)[static_cast<size_t>(axis)] - 1;
  std::array<std::vector<int64_t>, 4> rows;
  std::array<std::vector<float>, 4> weights;
  for (float place : places) {
    const float below = std::floor(place), r = place - below, s = 1.0f - r;
    std::array<float, 4> w{((a * (r + 1) - 5 * a) * (r + 1) + 8 * a) * (r + 1) - 4 * a,
                           ((a + 2) * r - (a + 3)) * r * r + 1, ((a + 2) * s - (a + 3)) * s * s + 1,
                           ((a * (s + 1) - 5 * a) * (s + 1) + 8 * a) * (s + 1) - 4 * a};
    float sum = 0.0f;
    for (size_t k = 0; k < 4; ++k) {
      const int64_t row = static_cast<int64_t>(below) + static_cast<int64_t>(k) - 1;
      if (only_inside && (row < 0 || row > last)) w[k] = 0.0f;
      sum += w[k];
      rows[k].push_back(std::clamp<int64_t>(row, 0, last));
    }
    for (size_t k = 0; k < 4; ++k) weights[k].push_back(only_inside ? w[k] / sum : w[k]);
  }
  ValueId total = kNone;
  for (size_t k = 0; k < 4; ++k) {
    const std::string name = suffix + "_tap" + std::to_string(k + 1);
    const ValueId part = weighted_rows(t, x, axis, rows[k], std::move(weights[k]), name);
    total = k == 0 ? part : t.add("Add", {total, part}, {}, k == 3 ? suffix : name + "_sum");
  }
  return total;
}

float linear_filter(float x) { return std::max(0.0f, 1.0f - std::fabs(x)); }

/// Returns the weight of Keys' cubic convolution at distance x.
float cubic_filter(float x, float a) {
  x = std::fabs(x);
  if (x < 1.0f) return ((a + 2.0f) * x - (a + 3.0f)) * x * x + 1.0f;
  return x < 2.0f ? (((x - 5.0f) * x + 8.0f) * x - 4.0f) * a : 0.0f;
}

/// Sums all rows under a filter that is as wide as the distance between two result rows, but at
/// least one row. Rows outside the input use the nearest row, or are left out with `only_inside` as
/// in PyTorch.
ValueId antialiased(Translation& t, ValueId x, const Axis& axis, std::optional<float> a,
                    bool only_inside, const std::string& suffix) {
  const float step = 1.0f / axis.scale, width = std::max(step, 1.0f);
  const float support = (a ? 2.0f : 1.0f) * width;
  if (!(2.0f * support < kMostTaps)) throw t.error("antialias would sum too many rows");
  std::vector<std::vector<int64_t>> rows;
  std::vector<std::vector<float>> weights;
  size_t most = 0;
  for (int64_t i = 0; i < axis.to; ++i) {
    const float centre = step * (static_cast<float>(i) + 0.5f);
    auto begin = static_cast<int64_t>(std::floor(centre - support + 0.5f));
    auto end = static_cast<int64_t>(std::floor(centre + support + 0.5f));
    if (only_inside) {
      begin = std::max<int64_t>(begin, 0);
      end = std::min(end, axis.from);
    }
    if (begin >= end) throw t.error("antialias is not supported at this scale");
    rows.emplace_back();
    weights.emplace_back();
    float sum = 0.0f;
    for (int64_t row = begin; row < end; ++row) {
      const float place = (static_cast<float>(row) - centre + 0.5f) / width;
      rows.back().push_back(std::clamp<int64_t>(row, 0, axis.from - 1));
      weights.back().push_back(a ? cubic_filter(place, *a) : linear_filter(place));
      sum += weights.back().back();
    }
    for (float& weight : weights.back()) weight /= sum;
    most = std::max(most, rows.back().size());
  }
  ValueId total = kNone;
  for (size_t k = 0; k < most; ++k) {
    std::vector<int64_t> taken;
    std::vector<float> weight;
    for (size_t i = 0; i < rows.size(); ++i) {  // pad shorter lists with the last row and weight 0
      const bool there = k < rows[i].size();
      taken.push_back(there ? rows[i][k] : rows[i].back());
      weight.push_back(there ? weights[i][k] : 0.0f);
    }
    const std::string name = suffix + "_tap" + std::to_string(k + 1);
    const ValueId part = weighted_rows(t, x, axis.index, taken, std::move(weight), name);
    total = k == 0 ? part : t.add("Add", {total, part}, {}, k + 1 == most ? suffix : name + "_sum");
  }
  return total;
}

/// What a Resize node asks for.
struct Request {
  std::vector<Axis> axes{};
  Shape result{};
  bool crops = false;
};

std::vector<float> known_reals(Translation& t, size_t i, const char* name) {
  const KnownTensor& known = t.known(i, name);
  std::vector<float> values;
  for (int64_t k = 0; k < known.count(); ++k) values.push_back(static_cast<float>(known.number(k)));
  return values;
}

/// Reads the sizes and scales of the axes from the node's scales or sizes.
Request request_of(Translation& t, const std::string& coordinates) {
  const Shape shape = t.shape(0);
  const size_t scales_at = t.opset() < 11 ? 1 : 2;  // Upsample, and Resize of opset 10: (x, scales)
  std::vector<int64_t> axes(shape.size());
  std::iota(axes.begin(), axes.end(), int64_t{0});
  if (const auto given = t.attributes().ints("axes"))
    axes = checked_axes(*given, shape.size(), t.what());
  std::vector<float> scales;
  Shape to;
  if (const auto given = t.attributes().reals("scales")) {
    scales.assign(given->begin(), given->end());
  } else if (t.has(scales_at) && element_count(t.shape(scales_at)) > 0) {
    scales = known_reals(t, scales_at, "scales");
  } else if (t.has(3)) {
    to = bounded(t, t.known_sizes(3, "sizes", t.real(0), axes), 1, int64_t{1} << 30, "a size");
  }
  const size_t count = axes.size();
  if ((scales.empty() ? to.size() : scales.size()) != count)
    throw t.error("its scales or sizes do not fit the input");
  Request request{.result = shape, .crops = coordinates == "tf_crop_and_resize"};
  std::vector<float> roi;
  if (request.crops && t.has(1)) roi = known_reals(t, 1, "roi");
  if (request.crops && roi.size() != 2 * count) throw t.error("its roi does not fit the input");
  const std::string policy = t.attributes().text("keep_aspect_ratio_policy", "stretch");
  const bool keeps_ratio = policy != "stretch" && scales.empty();
  if (keeps_ratio) {
    if (policy != "not_larger" && policy != "not_smaller")
      throw t.error("the policy '" + policy + "' is not supported");
    for (size_t k = 0; k < count; ++k)
      scales.push_back(static_cast<float>(to[k]) /
                       static_cast<float>(shape[static_cast<size_t>(axes[k])]));
    const auto [least, most] = std::minmax_element(scales.begin(), scales.end());
    scales = std::vector<float>(count, policy == "not_larger" ? *least : *most);
  }
  for (size_t k = 0; k < count; ++k) {
    const auto at = static_cast<size_t>(axes[k]);
    if (!scales.empty() && !(scales[k] > 0.0f && scales[k] < 65536.0f))
      throw t.error("a scale is out of range");
    const auto from = static_cast<float>(shape[at]);
    Axis axis{.index = axes[k], .from = shape[at]};
    if (scales.empty()) {
      axis.to = to[k];
      axis.scale = static_cast<float>(axis.to) / from;
    } else {
      axis.scale = scales[k];
      axis.to = static_cast<int64_t>(from * scales[k] + (keeps_ratio ? 0.5f : 0.0f));
    }
    if (request.crops) {
      axis.roi_begin = roi[k];
      axis.roi_end = roi[k + count];
    }
    request.result[at] = axis.to;
    request.axes.push_back(axis);
  }
  if (checked_count(request.result, t.what()) == 0) throw t.error("its output has no elements");
  return request;
}

/// Replaces rows whose positions are outside the axis with extrapolation_value.
ValueId extrapolated(Translation& t, ValueId y, const Axis& axis, const std::vector<float>& places,
                     const std::string& suffix) {
  const auto last = static_cast<float>(axis.from - 1);
  std::vector<int32_t> inside;
  for (float place : places) inside.push_back(place >= 0.0f && place <= last);
  if (std::find(inside.begin(), inside.end(), 0) == inside.end()) return y;
  Shape column(t.shape_of(y).size() - static_cast<size_t>(axis.index), 1);
  column[0] = axis.to;
  const ValueId mask = t.graph().add_index_constant(column, std::move(inside));
  const auto value = static_cast<float>(t.attributes().real("extrapolation_value", 0.0));
  return t.add("Where", {mask, y, t.graph().add_constant(value)}, {}, suffix + "_outside");
}

void resize(Translation& t) {
  const Shape shape = t.shape(0);
  const bool old = t.opset() < 11;
  const std::string mode = t.attributes().text("mode", "nearest");
  if (mode != "nearest" && mode != "linear" && mode != "cubic")
    throw t.error("the mode '" + mode + "' is not supported; nearest, linear and cubic are");
  const bool antialias = t.attributes().integer("antialias", 0) != 0 && mode != "nearest";
  const bool only_inside = t.attributes().integer("exclude_outside", 0) != 0;
  const std::string coordinates =
      t.attributes().text("coordinate_transformation_mode", old ? "asymmetric" : "half_pixel");
  const std::string nearest =
      t.attributes().text("nearest_mode", old ? "simple" : "round_prefer_floor");
  const auto a = static_cast<float>(t.attributes().real("cubic_coeff_a", -0.75));
  if (antialias && coordinates != "half_pixel" && coordinates != "pytorch_half_pixel") {
    throw Error(
        t.what() + ": antialias with the coordinates '" + coordinates + "' is not supported",
        "export it with antialias=False or align_corners=False");
  }
  const Request request = request_of(t, coordinates);
  ValueId y = t.real(0);
  // A tensor that keeps its shape is not changed, whatever its scales are.
  const bool works = request.crops || request.result != shape;
  for (const Axis& axis : works ? request.axes : std::vector<Axis>{}) {
    if (axis.to == axis.from && axis.scale == 1.0f && axis.roi_begin == 0.0f &&
        axis.roi_end == 1.0f)
      continue;
    std::vector<float> places;
    for (int64_t row = 0; row < axis.to; ++row)
      places.push_back(resized_place(t, row, axis, coordinates));
    const std::string suffix = "axis" + std::to_string(axis.index);
    if (antialias) {
      const std::optional<float> cubic_a = mode == "cubic" ? std::optional<float>(a) : std::nullopt;
      y = antialiased(t, y, axis, cubic_a, only_inside, suffix);
    } else if (mode == "linear") {
      y = interpolated(t, y, axis.index, places, suffix);
    } else if (mode == "cubic") {
      y = cubic(t, y, axis.index, places, a, only_inside, suffix);
    } else {
      std::vector<int64_t> rows;
      for (float place : places)
        rows.push_back(nearest_row(t, place, axis.from, axis.scale, nearest));
      y = gather_rows(t, y, axis.index, rows, suffix);
    }
    if (request.crops) y = extrapolated(t, y, axis, places, suffix);
  }
  t.set(0, t.add("Identity", {y}));
}

constexpr Translator kResizeTranslators[] = {{"Resize", resize}, {"Upsample", resize}};

}  // namespace

std::span<const Translator> resize_translators() { return kResizeTranslators; }

}  // namespace halfscope::onnx_files
