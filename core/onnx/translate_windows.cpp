// SPDX-License-Identifier: MIT
// Convolutions and pooling over one, two or three dimensions. Our kernels support two. One
// dimension becomes an image of height 1; with three, the first (depth) is split into slices:
// Conv           the slices under a window become channels: one sum over the whole window
// ConvTranspose  one product per slice, and overlapping parts are added
// pooling        within slices first, then over slices
#include <algorithm>
#include <numeric>

#include "core/onnx/translate.h"

namespace halfscope::onnx_files {
namespace {

constexpr int64_t kMostSize = int64_t{1} << 20;    // for strides, dilations, pads and kernels
constexpr int64_t kMostSlices = int64_t{1} << 22;  // of a volume, counted once per window

/// Position of the windows along one dimension of the input.
struct Along {
  int64_t kernel = 1, stride = 1, dilation = 1, begin = 0, end = 0;

  int64_t reach() const { return dilation * (kernel - 1) + 1; }
  bool trivial() const { return kernel == 1 && stride == 1 && begin == 0 && end == 0; }
};
using Windows = std::vector<Along>;  // one per dimension of the input's pixels

/// Chooses pads that make the output the input size divided by the stride, rounded up.
void pad_same(Along& along, int64_t size, bool upper) {
  const int64_t out = (size + along.stride - 1) / along.stride;
  const int64_t total = std::max<int64_t>(0, (out - 1) * along.stride + along.reach() - size);
  along.begin = upper ? total / 2 : total - total / 2;
  along.end = total - along.begin;
}

enum class Padding : uint8_t { given, none, same_upper, same_lower };

Padding padding_of(Translation& t) {
  const std::string how = t.attributes().text("auto_pad", "NOTSET");
  if (how == "SAME_UPPER") return Padding::same_upper;
  if (how == "SAME_LOWER") return Padding::same_lower;
  if (how == "VALID") return Padding::none;
  if (how != "NOTSET" && !how.empty()) throw t.error("the padding '" + how + "' is not supported");
  return Padding::given;
}

Windows windows_of(Translation& t, const std::vector<int64_t>& kernel, const Shape& input) {
  const size_t d = kernel.size();
  if (d > 3) throw t.error("only one to three dimensions are supported, not " + to_string(input));
  if (input.size() != d + 2) throw t.error("its kernel does not fit the input");
  const auto given = [&](const char* attribute, size_t count, int64_t least, const char* name) {
    const std::vector<int64_t> fallback(count, least);
    return bounded(t, t.attributes().ints(attribute, fallback), least, kMostSize, name);
  };
  const std::vector<int64_t> sizes = bounded(t, kernel, 1, kMostSize, "a kernel size");
  const std::vector<int64_t> strides = given("strides", d, 1, "a stride");
  const std::vector<int64_t> dilations = given("dilations", d, 1, "a dilation");
  const std::vector<int64_t> pads = given("pads", 2 * d, 0, "a pad");
  if (strides.size() != d || dilations.size() != d || pads.size() != 2 * d)
    throw t.error("its strides, dilations or pads do not fit its kernel");
  const Padding padding = padding_of(t);
  Windows w(d);
  for (size_t i = 0; i < d; ++i) {
    w[i] = {sizes[i], strides[i], dilations[i], pads[i], pads[i + d]};
    if (padding == Padding::given) continue;
    w[i].begin = w[i].end = 0;
    if (padding != Padding::none) pad_same(w[i], input[i + 2], padding == Padding::same_upper);
  }
  return w;
}

/// Returns the attributes for windows over the last two dimensions; a single one has height 1.
Attributes attributes_of(const Windows& w) {
  const Along width = w.back(), height = w.size() == 1 ? Along{} : w[w.size() - 2];
  return {{"strides", std::vector<int64_t>{height.stride, width.stride}},
          {"dilations", std::vector<int64_t>{height.dilation, width.dilation}},
          {"pads", std::vector<int64_t>{height.begin, width.begin, height.end, width.end}}};
}

/// Reshapes [n, c, l] to [n, c, 1, l].
ValueId as_image(Translation& t, ValueId x, const std::string& suffix) {
  Shape shape = t.shape_of(x);
  const bool line = shape.size() == 3;
  if (line) shape.insert(shape.begin() + 2, 1);
  return t.reshape(x, shape, suffix,
                   line ? std::vector<int64_t>{0, 1, kAdded, 2} : std::vector<int64_t>{});
}

/// Undoes as_image() if the windows have one dimension.
ValueId from_image(Translation& t, ValueId y, const Windows& w) {
  Shape shape = t.shape_of(y);
  if (w.size() == 2) return y;
  shape.erase(shape.begin() + 2);
  return t.reshape(y, shape, "line", {0, 1, 3});
}

ValueId transposed(Translation& t, ValueId x, std::vector<int64_t> order,
                   const std::string& suffix) {
  return t.add("Transpose", {x}, {{"perm", std::move(order)}}, suffix);
}

/// Turns [n, c, d, h, w] into images [n * d, c, h, w].
ValueId as_slices(Translation& t, ValueId x) {
  const Shape s = t.shape_of(x);
  const ValueId moved = transposed(t, x, {0, 2, 1, 3, 4}, "slices");
  return t.reshape(moved, {s[0] * s[2], s[1], s[3], s[4]}, "images");
}

/// Turns [n * d, c, h, w] back into [n, c, d, h, w].
ValueId from_slices(Translation& t, ValueId y, int64_t samples) {
  const Shape s = t.shape_of(y);
  const ValueId split = t.reshape(y, {samples, s[0] / samples, s[1], s[2], s[3]}, "volume");
  return transposed(t, split, {0, 2, 1, 3, 4}, "channels_first");
}

/// Adds slices of zeros before and after those of [n, c, d, h, w].
ValueId with_slices_around(Translation& t, ValueId x, int64_t before, int64_t after) {
  if (before == 0 && after == 0) return x;
  Shape shape = t.shape_of(x);
  shape[2] += before + after;
  checked_count(shape, t.what());
  std::vector<int64_t> pads(10, 0);
  pads[2] = before;
  pads[7] = after;
  return t.add("Pad", {x}, {{"pads", pads}}, "depth_pad");
}

/// Returns the kernel_shape of a convolution's weight.
std::vector<int64_t> kernel_of(Translation& t) {
  const Shape weight = t.shape(1);
  if (weight.size() < 3) throw t.error("its weight has no kernel");
  std::vector<int64_t> kernel(weight.begin() + 2, weight.end());
  if (t.attributes().ints("kernel_shape", kernel) != kernel)
    throw t.error("kernel_shape differs from the shape of the weight");
  return kernel;
}

int64_t group_of(Translation& t) {
  return bounded(t, {t.attributes().integer("group", 1)}, 1, kMostSize, "a group")[0];
}

/// Returns the images [n * output depth, channels * kernel depth, h, w].
ValueId window_slices(Translation& t, ValueId x, const Along& depth) {
  if (depth.trivial()) return as_slices(t, x);
  x = with_slices_around(t, x, depth.begin, depth.end);
  const Shape s = t.shape_of(x);
  if (s[2] < depth.reach()) throw t.error("its kernel is larger than the padded input");
  const int64_t out = (s[2] - depth.reach()) / depth.stride + 1;
  checked_count({s[0], s[1], out, depth.kernel, s[3], s[4]}, t.what());
  checked_count({out, depth.kernel}, t.what(), kMostSlices);
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < out; ++i) {
    for (int64_t k = 0; k < depth.kernel; ++k)
      rows.push_back(i * depth.stride + k * depth.dilation);
  }
  const ValueId met = gather_rows(t, x, 2, rows, "met_slices");
  const ValueId split = t.reshape(met, {s[0], s[1], out, depth.kernel, s[3], s[4]}, "windows");
  const ValueId moved = transposed(t, split, {0, 2, 1, 3, 4, 5}, "slices");
  return t.reshape(moved, {s[0] * out, s[1] * depth.kernel, s[3], s[4]}, "images");
}

void conv(Translation& t) {
  const Windows w = windows_of(t, kernel_of(t), t.shape(0));
  const bool volume = w.size() == 3;
  const ValueId x = volume ? window_slices(t, t.real(0), w[0]) : as_image(t, t.real(0), "image");
  ValueId weight = t.weight(1, "weight");
  if (volume) {
    const Shape s = t.shape_of(weight);
    weight = t.reshape(weight, {s[0], s[1] * s[2], s[3], s[4]}, "kernel");
  } else {
    weight = as_image(t, weight, "kernel");
  }
  Attributes attributes = attributes_of(w);
  attributes["group"] = group_of(t);
  std::vector<ValueId> inputs{x, weight};
  if (t.has(2)) inputs.push_back(t.weight(2, "bias"));
  const ValueId y = t.add("Conv", inputs, attributes);
  t.set(0, volume ? from_slices(t, y, t.shape(0)[0]) : from_image(t, y, w));
}

/// A ConvTranspose along one dimension: cuts `begin` and `end` elements off the sum of the windows,
/// then appends `more` zeros.
struct Spread {
  int64_t begin = 0, end = 0, more = 0, size = 0;
};

Spread spread_of(Translation& t, const Along& along, int64_t in, int64_t size) {
  const int64_t full = (in - 1) * along.stride + along.reach();
  Spread s{
      .begin = along.begin, .end = std::max<int64_t>(0, full - size - along.begin), .size = size};
  // A convolution of a larger output would have more windows than the input has elements.
  if (size + s.begin - full >= along.stride) s.more = size + s.begin - full;
  if (size - s.more < 1) throw t.error("its pads leave no output");
  return s;
}

/// Returns the output sizes and pads, which a file may give in several ways.
std::vector<Spread> spreads_of(Translation& t, Windows& w, const Shape& in) {
  const size_t d = w.size();
  const std::vector<int64_t> extra = bounded(
      t, t.attributes().ints("output_padding", std::vector<int64_t>(d, 0)), 0, kMostSize, "a pad");
  if (extra.size() != d) throw t.error("output_padding does not fit its kernel");
  std::optional<std::vector<int64_t>> shape = t.attributes().ints("output_shape");
  if (shape && shape->empty()) shape.reset();
  if (shape && shape->size() == d + 2) shape->erase(shape->begin(), shape->begin() + 2);
  if (shape && shape->size() != d) throw t.error("output_shape does not fit its kernel");
  const Padding padding = padding_of(t);
  std::vector<Spread> result;
  for (size_t i = 0; i < d; ++i) {
    Along& along = w[i];
    const int64_t natural = (in[i + 2] - 1) * along.stride + along.reach() + extra[i];
    const bool same = padding == Padding::same_upper || padding == Padding::same_lower;
    int64_t size = natural - along.begin - along.end;
    if (shape || same) {
      size = shape ? bounded(t, *shape, 1, kMostSize, "a size")[i] : in[i + 2] * along.stride;
      const int64_t total = std::max<int64_t>(0, natural - size);
      along.begin = padding == Padding::same_upper ? total / 2 : total - total / 2;
    }
    if (size < 1) throw t.error("its pads leave no output");
    result.push_back(spread_of(t, along, in[i + 2], size));
  }
  return result;
}

/// Adds overlapping parts: turns the parts [n * d, c * k, h, w] of all slices and window positions
/// into [n, c, out, h, w].
ValueId merge_slices(Translation& t, ValueId parts, int64_t samples, int64_t channels,
                     const Along& depth, const Spread& spread) {
  const Shape s = t.shape_of(parts);
  const int64_t in = s[0] / samples;
  checked_count({in, depth.kernel}, t.what(), kMostSlices);
  checked_count({spread.size}, t.what(), kMostSlices);
  const ValueId split =
      t.reshape(parts, {samples, in, channels, depth.kernel, s[2], s[3]}, "parts");
  const ValueId moved = transposed(t, split, {0, 2, 1, 3, 4, 5}, "channels_first");
  ValueId slices = t.reshape(moved, {samples, channels, in * depth.kernel, s[2], s[3]}, "slices");
  std::vector<std::vector<int64_t>> meeting(static_cast<size_t>(spread.size));
  for (int64_t i = 0; i < in; ++i) {
    for (int64_t k = 0; k < depth.kernel; ++k) {
      const int64_t at = i * depth.stride + k * depth.dilation - spread.begin;
      if (at < 0 || at >= spread.size) continue;
      meeting[static_cast<size_t>(at)].push_back(i * depth.kernel + k);
    }
  }
  size_t most = 1, fewest = SIZE_MAX;
  for (const auto& rows : meeting) {
    most = std::max(most, rows.size());
    fewest = std::min(fewest, rows.size());
  }
  if (fewest < most) slices = with_slices_around(t, slices, 0, 1);  // zeros, where none meets
  const int64_t zeros = in * depth.kernel;
  ValueId sum = kNone;
  for (size_t m = 0; m < most; ++m) {
    std::vector<int64_t> rows;
    for (const auto& each : meeting) rows.push_back(m < each.size() ? each[m] : zeros);
    const ValueId part = gather_rows(t, slices, 2, rows, "part" + std::to_string(m + 1));
    sum = m == 0 ? part : t.add("Add", {sum, part}, {}, "sum" + std::to_string(m));
  }
  return sum;
}

/// Translates a transposed convolution: the gradient of a convolution with respect to its input,
/// plus a bias.
void conv_transpose(Translation& t) {
  const Shape kernel_shape = t.shape(1), in = t.shape(0);
  Windows w = windows_of(t, kernel_of(t), in);
  const std::vector<Spread> spreads = spreads_of(t, w, in);
  const int64_t group = group_of(t);
  const bool volume = w.size() == 3;
  const int64_t channels = checked_count({kernel_shape[1], group}, t.what());
  Shape result{in[0], channels};
  for (const Spread& each : spreads) result.push_back(each.size);
  checked_count(result, t.what());
  ValueId x = t.real(0), weight = t.weight(1, "weight");
  int64_t products = channels;
  if (volume) {  // window positions along depth become channels of the products
    const Shape& s = kernel_shape;
    x = as_slices(t, x);
    weight = t.reshape(weight, {s[0], s[1] * s[2], s[3], s[4]}, "kernel");
    products = checked_count({channels, s[2]}, t.what());
  } else {
    x = as_image(t, x, "image");
    weight = as_image(t, weight, "kernel");
  }
  const Spread line{.size = 1};
  const Spread& width = spreads.back();
  const Spread& height = w.size() == 1 ? line : spreads[w.size() - 2];
  w.back().end = width.end;
  if (w.size() > 1) w[w.size() - 2].end = height.end;
  Attributes attributes = attributes_of(w);
  attributes["shape"] =
      Shape{t.shape_of(x)[0], products, height.size - height.more, width.size - width.more};
  checked_count(std::get<Shape>(attributes["shape"]), t.what());
  attributes["group"] = group;
  ValueId y = t.add("ConvGradInput", {x, weight}, attributes, t.has(2) ? "product" : "");
  if (height.more > 0 || width.more > 0) {
    const std::vector<int64_t> pads{0, 0, 0, 0, 0, 0, height.more, width.more};
    y = t.add("Pad", {y}, {{"pads", pads}}, "zeros");
  }
  y = volume ? merge_slices(t, y, in[0], channels, w[0], spreads[0]) : y;
  if (t.has(2)) {
    Shape column(t.shape_of(y).size(), 1);
    column[1] = channels;
    y = t.add("Add", {y, t.reshape(t.weight(2, "bias"), column, "bias")});
  }
  t.set(0, volume ? y : from_image(t, y, w));
}

struct Pool {
  const char* op;
  Windows windows;
  int64_t ceil_mode = 0, count_include_pad = 0;
};

/// Pools the last two dimensions of [n, c, h, w].
ValueId pool_image(Translation& t, ValueId x, const Pool& pool, const Windows& w,
                   const std::string& suffix) {
  Attributes attributes = attributes_of(w);
  const int64_t height = w.size() == 1 ? 1 : w[w.size() - 2].kernel;
  attributes["kernel_shape"] = std::vector<int64_t>{height, w.back().kernel};
  attributes["ceil_mode"] = pool.ceil_mode;
  if (pool.op == std::string_view("AveragePool"))
    attributes["count_include_pad"] = pool.count_include_pad;
  return t.add(pool.op, {x}, attributes, suffix);
}

Pool pool_of(Translation& t, const char* op) {
  const std::vector<int64_t> kernel = t.attributes().ints("kernel_shape", {});
  if (kernel.empty()) throw t.error("kernel_shape is missing");
  return {.op = op,
          .windows = windows_of(t, kernel, t.shape(0)),
          .ceil_mode = t.attributes().integer("ceil_mode", 0),
          .count_include_pad = t.attributes().integer("count_include_pad", 0)};
}

ValueId pooled(Translation& t, ValueId x, const Pool& pool, const std::string& suffix = "") {
  const Windows& w = pool.windows;
  if (w.size() < 3)
    return from_image(t, pool_image(t, as_image(t, x, "image"), pool, w, suffix), w);
  const Shape s = t.shape_of(x);
  const ValueId images = t.reshape(x, {s[0], s[1] * s[2], s[3], s[4]}, "images");
  const ValueId planes = pool_image(t, images, pool, {w[1], w[2]}, "planes");
  const Shape plane = t.shape_of(planes);
  const ValueId columns = t.reshape(planes, {s[0], s[1], s[2], plane[2] * plane[3]}, "columns");
  const ValueId y = pool_image(t, columns, pool, {w[0], Along{}}, suffix);
  return t.reshape(y, {s[0], s[1], t.shape_of(y)[2], plane[2], plane[3]}, "volume");
}

void max_pool(Translation& t) { t.set(0, pooled(t, t.real(0), pool_of(t, "MaxPool"))); }
void average_pool(Translation& t) { t.set(0, pooled(t, t.real(0), pool_of(t, "AveragePool"))); }

/// |x|^p.
ValueId powers(Translation& t, ValueId x, int64_t p) {
  if (p == 2) return t.add("Mul", {x, x}, {}, "powers");
  const ValueId sizes = t.add("Abs", {x}, {}, p == 1 ? "powers" : "sizes");
  if (p == 1) return sizes;
  const ValueId exponent = t.graph().add_constant(static_cast<float>(p));
  return t.add("Pow", {sizes, exponent}, {}, "powers");
}

/// Returns the p-th root of non-negative numbers.
ValueId root(Translation& t, ValueId x, int64_t p) {
  if (p == 1) return t.add("Identity", {x});
  if (p == 2) return t.add("Sqrt", {x});
  return t.add("Pow", {x, t.graph().add_constant(1.0f / static_cast<float>(p))});
}

int64_t norm_of(Translation& t) {
  return bounded(t, {t.attributes().integer("p", 2)}, 1, kMostSize, "p")[0];
}

/// Computes the p-th root of the sum of powers, as the average over the whole window times its
/// size.
void lp_pool(Translation& t) {
  Pool pool = pool_of(t, "AveragePool");
  // Windows cut off by the end of the input would be averaged over fewer elements.
  if (pool.ceil_mode != 0) throw t.error("ceil_mode is not supported");
  pool.count_include_pad = 1;
  double size = 1.0;
  for (const Along& each : pool.windows) size *= static_cast<double>(each.kernel);
  const int64_t p = norm_of(t);
  const ValueId means = pooled(t, powers(t, t.real(0), p), pool, "means");
  const ValueId factor = t.graph().add_constant(static_cast<float>(size));
  t.set(0, root(t, t.add("Mul", {means, factor}, {}, "sums"), p));
}

Attributes pixels(Translation& t) {
  std::vector<int64_t> axes(std::max<size_t>(t.shape(0).size(), 2) - 2);
  std::iota(axes.begin(), axes.end(), int64_t{2});
  if (axes.empty()) throw t.error("its input has no dimensions to pool");
  return {{"axes", axes}, {"keepdims", int64_t{1}}};
}

void global_average_pool(Translation& t) { t.set(0, t.add("GlobalAveragePool", {t.real(0)})); }
void global_max_pool(Translation& t) { t.set(0, t.add("ReduceMax", {t.real(0)}, pixels(t))); }

void global_lp_pool(Translation& t) {
  const int64_t p = norm_of(t);
  const ValueId x = powers(t, t.real(0), p);
  t.set(0, root(t, t.add("ReduceSum", {x}, pixels(t), "sums"), p));
}

/// Computes x / (bias + alpha * mean of the squares of neighbouring channels)^beta.
void local_response(Translation& t) {
  const Shape shape = t.shape(0);
  if (shape.size() < 3) throw t.error("its input must have a batch, channels and pixels");
  const int64_t size = bounded(t, {t.attributes().integer("size", 0)}, 1, kMostSize, "a size")[0];
  const auto constant = [&](const char* name, float fallback) {
    const double value = t.attributes().real(name, static_cast<double>(fallback));
    return t.graph().add_constant(static_cast<float>(value));
  };
  const ValueId x = t.real(0);
  const ValueId squares = t.add("Mul", {x, x}, {}, "squares");
  const int64_t pixel_count = element_count({shape.begin() + 2, shape.end()});
  const ValueId columns = t.reshape(squares, {shape[0], 1, shape[1], pixel_count}, "columns");
  const Along along{.kernel = size, .begin = (size - 1) / 2, .end = size / 2};
  const Pool pool{.op = "AveragePool", .windows = {along, Along{}}, .count_include_pad = 1};
  const ValueId means = pool_image(t, columns, pool, pool.windows, "means");
  const ValueId scaled = t.add("Mul", {means, constant("alpha", 1e-4f)}, {}, "scaled");
  const ValueId base = t.add("Add", {scaled, constant("bias", 1.0f)}, {}, "base");
  const ValueId power = t.add("Pow", {base, constant("beta", 0.75f)}, {}, "power");
  t.set(0, t.add("Div", {x, t.reshape(power, shape, "divisor")}));
}

/// Sums overlapping blocks as a transposed convolution whose kernels contain a single 1.
void col_to_im(Translation& t) {
  std::vector<int64_t> image = bounded(t, t.known_ints(1, "image_shape"), 1, kMostSize, "a size");
  const std::vector<int64_t> block = t.known_ints(2, "block_shape");
  const Shape columns = t.shape(0);
  if (image.size() != block.size() || block.empty() || block.size() > 2)
    throw t.error("only images of one or two dimensions are supported");
  Shape pixels{columns[0], 1};
  pixels.insert(pixels.end(), image.begin(), image.end());
  Windows w = windows_of(t, block, pixels);
  if (w.size() == 1) image.insert(image.begin(), 1);
  const Along width = w.back(), height = w.size() == 1 ? Along{} : w[0];
  const int64_t window = checked_count({height.kernel, width.kernel}, t.what());
  if (columns.size() != 3 || columns[1] % window != 0)
    throw t.error("its blocks do not fit its input");
  const auto count = [](int64_t size, const Along& a) {
    return (size + a.begin + a.end - a.reach()) / a.stride + 1;
  };
  const Shape blocks{columns[0], columns[1], count(image[0], height), count(image[1], width)};
  if (blocks[2] < 1 || blocks[3] < 1 || blocks[2] * blocks[3] != columns[2])
    throw t.error("its blocks do not fit its image");
  const int64_t channels = columns[1] / window;
  Tensor kernel{{columns[1], 1, height.kernel, width.kernel}, {}};
  checked_count({columns[1], window}, t.what(), kMostFolded);
  kernel.data.assign(static_cast<size_t>(columns[1] * window), 0.0f);
  for (int64_t i = 0; i < columns[1]; ++i)
    kernel.data[static_cast<size_t>(i * window + i % window)] = 1.0f;
  Attributes attributes = attributes_of(w);
  attributes["shape"] = Shape{columns[0], channels, image[0], image[1]};
  attributes["group"] = channels;
  const ValueId x = t.reshape(t.real(0), blocks, "blocks");
  const ValueId y =
      t.add("ConvGradInput", {x, t.graph().add_constant(std::move(kernel))}, attributes);
  t.set(0, from_image(t, y, w));
}

constexpr Translator kWindowTranslators[] = {
    {"Conv", conv},
    {"ConvTranspose", conv_transpose},
    {"MaxPool", max_pool},
    {"AveragePool", average_pool},
    {"LpPool", lp_pool},
    {"GlobalAveragePool", global_average_pool},
    {"GlobalMaxPool", global_max_pool},
    {"GlobalLpPool", global_lp_pool},
    {"LRN", local_response},
    {"Col2Im", col_to_im},
};

}  // namespace

std::span<const Translator> window_translators() { return kWindowTranslators; }

}  // namespace halfscope::onnx_files
