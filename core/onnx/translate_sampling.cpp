// SPDX-License-Identifier: MIT
// GridSample and AffineGrid. Positions, weights and the mask of pixels outside the image are
// computed with primitives, and pixels are read with GatherElements. Gradients reach the image and
// the grid as in PyTorch: not through rounding, not beyond a border and not through pixels outside
// the image.
#include <algorithm>
#include <array>
#include <string>

#include "core/onnx/translate.h"

namespace halfscope::onnx_files {
namespace {

enum class Outside : uint8_t { zeros, border, reflection };

class GridSample {
 public:
  explicit GridSample(Translation& t) : t_(t) {}

  void run() {
    read();
    for (size_t d = 0; d < sizes_.size(); ++d) along_.push_back(dimension(d));
    gather();
  }

 private:
  /// One of the pixels that a position reads along one dimension.
  struct Tap {
    ValueId index = kNone;   ///< clamped to the input
    ValueId inside = kNone;  ///< whether the pixel exists; kNone if it always does
    ValueId weight = kNone;  ///< kNone means 1
  };

  void read() {
    const Shape x = t_.shape(0), grid = t_.shape(1);
    const size_t d = x.size() < 2 ? 0 : x.size() - 2;
    if (d != 2 && d != 3)
      throw t_.error("only images and volumes are supported, not " + to_string(x));
    if (grid.size() != x.size() || grid[0] != x[0] || grid.back() != static_cast<int64_t>(d))
      throw t_.error("the grid " + to_string(grid) + " does not fit the input " + to_string(x));
    if (element_count(x) == 0) throw t_.error("its input has no pixels");
    sizes_.assign(x.begin() + 2, x.end());
    samples_ = x[0];
    channels_ = x[1];
    // Up to opset 19 the linear and cubic modes were called bilinear and bicubic.
    mode_ = t_.attributes().text("mode", "linear");
    if (mode_ == "bilinear") mode_ = "linear";
    if (mode_ == "bicubic") mode_ = "cubic";
    if (mode_ != "linear" && mode_ != "nearest" && mode_ != "cubic")
      throw t_.error("the mode '" + mode_ + "' is not supported");
    if (mode_ == "cubic" && d != 2) throw t_.error("cubic sampling of volumes is not supported");
    const std::string padding = t_.attributes().text("padding_mode", "zeros");
    if (padding == "border") {
      outside_ = Outside::border;
    } else if (padding == "reflection") {
      outside_ = Outside::reflection;
    } else if (padding != "zeros") {
      throw t_.error("the padding '" + padding + "' is not supported");
    }
    corners_ = t_.attributes().integer("align_corners", 0) != 0;
    points_ = checked_count({grid.begin() + 1, grid.end() - 1}, t_.what());
    result_ = {samples_, channels_};
    result_.insert(result_.end(), grid.begin() + 1, grid.end() - 1);
    grid_ = t_.reshape(t_.real(1, "grid"), {samples_, points_, static_cast<int64_t>(d)}, "points",
                       {0, kAdded, kAdded});
  }

  ValueId add(const char* op, std::vector<ValueId> inputs, const std::string& name) {
    return t_.add(op, std::move(inputs), {}, prefix_ + name);
  }
  ValueId number(double value) { return t_.graph().add_constant(static_cast<float>(value)); }
  ValueId integer(int64_t value) {
    return t_.graph().add_index_constant({}, {static_cast<int32_t>(value)});
  }

  /// Reads the grid coordinates of dimension d (-1 to 1, in reverse order of columns) as pixel
  /// positions.
  ValueId place(size_t d) {
    const auto column = static_cast<int64_t>(sizes_.size() - 1 - d);
    const ValueId part = gather_rows(t_, grid_, 2, {column}, prefix_ + "grid");
    const ValueId g = t_.reshape(part, {samples_, points_}, prefix_ + "coordinate", {0, 1});
    const ValueId from_zero = add("Add", {g, number(1.0)}, "from_zero");
    const auto size = static_cast<double>(sizes_[d]);
    if (corners_) return add("Mul", {from_zero, number((size - 1.0) / 2.0)}, "place");
    const ValueId wide = add("Mul", {from_zero, number(size / 2.0)}, "wide");
    return add("Sub", {wide, number(0.5)}, "place");
  }

  /// Reflects positions at the centres or edges of the outer pixels, then clamps them to the input.
  ValueId reflected(ValueId x, int64_t size, const std::string& name) {
    const double low = corners_ ? 0.0 : -0.5;
    const double span = static_cast<double>(corners_ ? size - 1 : size);
    if (span == 0.0) return add("Mul", {x, number(0.0)}, name + "only");
    const ValueId shifted = low == 0.0 ? x : add("Sub", {x, number(low)}, name + "shifted");
    const ValueId negative = add("Less", {shifted, number(0.0)}, name + "is_negative");
    const ValueId minus = add("Neg", {shifted}, name + "minus");
    const ValueId distance = add("Where", {negative, minus, shifted}, name + "distance");
    const ValueId spans = add("Div", {distance, number(span)}, name + "spans");
    const ValueId flips = add("Floor", {spans}, name + "flips");
    const ValueId whole = add("Mul", {flips, number(span)}, name + "whole");
    const ValueId rest = add("Sub", {distance, whole}, name + "rest");
    const ValueId halves = add("Mul", {flips, number(0.5)}, name + "halves");
    const ValueId even_halves = add("Floor", {halves}, name + "floor_halves");
    const ValueId even = add("Equal", {halves, even_halves}, name + "is_even");
    const ValueId back = add("Sub", {number(span), rest}, name + "back");
    const ValueId folded = add("Where", {even, rest, back}, name + "folded");
    const ValueId y = low == 0.0 ? folded : add("Add", {folded, number(low)}, name + "unshifted");
    return held(y, size, name);
  }

  /// Clamps a position to the input. Positions exactly on a border get no gradient either.
  ValueId held(ValueId x, int64_t size, const std::string& name) {
    const double last = static_cast<double>(size - 1);
    const ValueId after = add("Greater", {x, number(0.0)}, name + "is_after");
    const ValueId raised = add("Where", {after, x, number(0.0)}, name + "raised");
    const ValueId before = add("Less", {raised, number(last)}, name + "is_before");
    return add("Where", {before, raised, number(last)}, name + "held");
  }

  ValueId within(ValueId x, int64_t size, const std::string& name) {
    if (outside_ == Outside::border) return held(x, size, name);
    return outside_ == Outside::reflection ? reflected(x, size, name) : x;
  }

  /// Returns whether taps may be outside the input, which padding does not always prevent.
  bool leaves() const { return outside_ == Outside::zeros || mode_ == "linear"; }

  /// Returns the pixel at an integer position.
  Tap tap(ValueId at, int64_t size, const std::string& name) {
    if (!leaves()) return {.index = add("RealToIndex", {at}, name + "index")};
    const ValueId raised = add("Max", {at, number(0.0)}, name + "min");
    const ValueId held = add("Min", {raised, number(static_cast<double>(size - 1))}, name + "max");
    return {.index = add("RealToIndex", {held}, name + "index"),
            .inside = add("Equal", {at, held}, name + "is_inside")};
  }

  std::vector<Tap> dimension(size_t d) {
    prefix_ = std::string(1, "zyx"[d + 3 - sizes_.size()]) + "_";
    const int64_t size = sizes_[d];
    const ValueId raw = place(d);
    if (mode_ == "cubic") return cubic_taps(raw, size);
    const ValueId x = within(raw, size, "");
    if (mode_ == "nearest") return {tap(add("Round", {x}, "nearest"), size, "")};
    const ValueId floor = add("Floor", {x}, "floor");
    std::vector<Tap> taps{tap(floor, size, "low_"),
                          tap(add("Add", {floor, number(1.0)}, "next"), size, "high_")};
    taps[1].weight = add("Sub", {x, floor}, "high_weight");
    taps[0].weight = add("Sub", {number(1.0), taps[1].weight}, "low_weight");
    return taps;
  }

  /// Keys' cubic convolution with a = -0.75; each of the four pixels is padded on its own.
  std::vector<Tap> cubic_taps(ValueId x, int64_t size) {
    constexpr double a = -0.75;
    const ValueId floor = add("Floor", {x}, "floor");
    const ValueId r = add("Sub", {x, floor}, "rest");
    const ValueId s = add("Sub", {number(1.0), r}, "other_rest");
    const std::array<ValueId, 4> weights{far_weight(r, a, "tap1_"), near_weight(r, a, "tap2_"),
                                         near_weight(s, a, "tap3_"), far_weight(s, a, "tap4_")};
    std::vector<Tap> taps;
    for (size_t k = 0; k < 4; ++k) {
      const std::string name = "tap" + std::to_string(k + 1) + "_";
      const ValueId at = add("Add", {floor, number(static_cast<double>(k) - 1.0)}, name + "place");
      // Reflected positions of pixels are integers except for rounding errors.
      ValueId pixel = within(at, size, name);
      if (outside_ == Outside::reflection) pixel = add("Round", {pixel}, name + "pixel");
      taps.push_back(tap(pixel, size, name));
      taps.back().weight = weights[k];
    }
    return taps;
  }

  /// Returns the weight of a pixel at distance r + 1: ((a u - 5 a) u + 8 a) u - 4 a with u = r + 1.
  ValueId far_weight(ValueId r, double a, const std::string& name) {
    const ValueId u = add("Add", {r, number(1.0)}, name + "u");
    ValueId y = add("Mul", {u, number(a)}, name + "w1");
    y = add("Sub", {y, number(5.0 * a)}, name + "w2");
    y = add("Add", {add("Mul", {y, u}, name + "w3"), number(8.0 * a)}, name + "w4");
    return add("Sub", {add("Mul", {y, u}, name + "w5"), number(4.0 * a)}, name + "weight");
  }
  /// Returns the weight of a pixel at distance r: ((a + 2) r - (a + 3)) r r + 1.
  ValueId near_weight(ValueId r, double a, const std::string& name) {
    ValueId y = add("Mul", {r, number(a + 2.0)}, name + "w1");
    y = add("Sub", {y, number(a + 3.0)}, name + "w2");
    const ValueId square = add("Mul", {r, r}, name + "square");
    return add("Add", {add("Mul", {y, square}, name + "w3"), number(1.0)}, name + "weight");
  }

  /// Combines the taps of all dimensions into one list of indices [samples, points] and weights.
  void gather() {
    prefix_ = "";
    const int64_t pixels = element_count(sizes_);
    std::vector<Tap> all{Tap{}};
    for (size_t d = 0; d < along_.size(); ++d) {
      std::vector<Tap> next;
      for (const Tap& before : all) {
        for (const Tap& here : along_[d])
          next.push_back(d == 0 ? here : combined(before, here, sizes_[d]));
      }
      all = std::move(next);
    }
    const auto count = static_cast<int64_t>(all.size());
    std::vector<ValueId> indices, weights;
    for (const Tap& each : all) {
      ValueId index = each.index;
      // Positions outside the image read the extra zero after the last pixel.
      if (leaves()) index = add("Where", {each.inside, index, integer(pixels)}, "or_zero");
      indices.push_back(index);
      if (each.weight != kNone)
        weights.push_back(
            t_.reshape(each.weight, {samples_, 1, points_}, "weight", {0, kAdded, 1}));
    }
    const Shape wide{samples_, channels_, count * points_};
    checked_count(wide, t_.what());
    ValueId index = indices[0];
    if (count > 1) index = t_.add("Concat", indices, {{"axis", int64_t{1}}}, "pixels");
    index = t_.reshape(index, {samples_, 1, count * points_}, "one_channel", {0, kAdded, 1});
    index = t_.add("Expand", {index}, {{"shape", wide}}, "all_channels");
    ValueId x = t_.reshape(t_.real(0), {samples_, channels_, pixels}, "line", {0, 1, kAdded});
    if (leaves())
      x = t_.add("Pad", {x}, {{"pads", std::vector<int64_t>{0, 0, 0, 0, 0, 1}}}, "with_zero");
    const ValueId read = t_.add("GatherElements", {x, index}, {{"axis", int64_t{2}}}, "read");
    if (weights.empty()) {
      set(read);
      return;
    }
    const ValueId split =
        t_.reshape(read, {samples_, channels_, count, points_}, "split", {0, 1, kAdded, kAdded});
    const ValueId joined = t_.add("Concat", weights, {{"axis", int64_t{1}}}, "weights");
    const ValueId factors =
        t_.reshape(joined, {samples_, 1, count, points_}, "factors", {0, kAdded, 1, 2});
    const ValueId parts = add("Mul", {split, factors}, "parts");
    const ValueId sum = t_.add(
        "ReduceSum", {parts}, {{"axes", std::vector<int64_t>{2}}, {"keepdims", int64_t{0}}}, "sum");
    set(sum);
  }

  /// Sets the output from rows of [samples, channels, points].
  void set(ValueId rows) {
    std::vector<int64_t> sources(result_.size(), kAdded);
    sources[0] = 0;
    sources[1] = 1;
    t_.set_reshaped(0, rows, result_, std::move(sources));
  }

  Tap combined(const Tap& a, const Tap& b, int64_t size) {
    Tap result;
    const ValueId row = add("Mul", {a.index, integer(size)}, "row");
    result.index = add("Add", {row, b.index}, "pixel");
    if (leaves()) result.inside = add("And", {a.inside, b.inside}, "is_inside");
    if (a.weight != kNone) result.weight = add("Mul", {a.weight, b.weight}, "product");
    return result;
  }

  Translation& t_;
  std::string mode_{}, prefix_{};
  Outside outside_ = Outside::zeros;
  bool corners_ = false;
  Shape sizes_{}, result_{};
  int64_t samples_ = 0, channels_ = 0, points_ = 0;
  ValueId grid_ = kNone;
  std::vector<std::vector<Tap>> along_{};
};

void grid_sample(Translation& t) {
  check_domain(t);
  GridSample(t).run();
}

/// Multiplies theta [n, d, d + 1] by the pixel positions from -1 to 1.
void affine_grid(Translation& t) {
  const Shape theta = t.shape(0);
  std::vector<int64_t> several;
  const std::vector<int64_t> size =
      bounded(t, t.known_shape(1, &several), 1, int64_t{1} << 30, "a size");
  if (size.size() != 4 && size.size() != 5) throw t.error("only images and volumes are supported");
  const size_t d = size.size() - 2;
  const auto dimensions = static_cast<int64_t>(d);
  if (theta != Shape{size[0], dimensions, dimensions + 1})
    throw t.error("theta " + to_string(theta) + " does not fit its size");
  const bool corners = t.attributes().integer("align_corners", 0) != 0;
  Shape result{size[0]};
  result.insert(result.end(), size.begin() + 2, size.end());
  const int64_t points = checked_count({size.begin() + 2, size.end()}, t.what(), kMostFolded);
  Tensor places{{points, dimensions + 1}, {}};
  for (int64_t i = 0; i < points; ++i) {
    int64_t rest = i;
    std::vector<float> row;  // starts with the last dimension, x
    for (size_t k = d; k-- > 0;) {
      const int64_t n = size[k + 2];
      const auto at = static_cast<double>(rest % n), length = static_cast<double>(n);
      rest /= n;
      const double place = !corners ? (2.0 * at + 1.0) / length - 1.0
                           : n == 1 ? 0.0
                                    : 2.0 * at / (length - 1.0) - 1.0;
      row.push_back(static_cast<float>(place));
    }
    row.push_back(1.0f);
    places.data.insert(places.data.end(), row.begin(), row.end());
  }
  result.push_back(dimensions);
  const ValueId turned =
      t.add("Transpose", {t.real(0, "theta")}, {{"perm", std::vector<int64_t>{0, 2, 1}}}, "turned");
  const ValueId y =
      t.add("MatMul", {t.graph().add_constant(std::move(places)), turned}, {}, "product");
  std::vector<int64_t> sources(result.size(), kAdded);
  sources.front() = 0;
  sources.back() = 2;
  t.set_reshaped(0, y, result, std::move(sources));
  SampleAxes* samples = t.importer().samples();
  if (samples == nullptr || several.empty()) return;
  // The size includes the image's channels, but the grid does not.
  if (several.size() != size.size()) throw t.error("only images and volumes are supported");
  Shape wanted{several[0]};
  wanted.insert(wanted.end(), several.begin() + 2, several.end());
  wanted.push_back(dimensions);
  samples->expect(t.outputs()[0]->value, wanted, t.what());
}

constexpr Translator kSamplingTranslators[] = {
    {"GridSample", grid_sample},
    {"AffineGrid", affine_grid},
};

}  // namespace

std::span<const Translator> sampling_translators() { return kSamplingTranslators; }

}  // namespace halfscope::onnx_files
