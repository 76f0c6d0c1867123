// SPDX-License-Identifier: MIT
// Element-wise functions and normalizations that become several of our operators.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/onnx/translate.h"

namespace halfscope::onnx_files {
namespace {

ValueId constant(Translation& t, double value) {
  return t.graph().add_constant(static_cast<float>(value));
}

double attribute(Translation& t, const char* name, float fallback) {
  return t.attributes().real(name, static_cast<double>(fallback));
}

void swish(Translation& t) {
  t.set(0, t.add("Swish", {t.real(0)}, {{"alpha", attribute(t, "alpha", 1.0f)}}));
}

/// Swish(a) * b.
void swiglu(Translation& t) {
  const ValueId gate =
      t.add("Swish", {t.real(0)}, {{"alpha", attribute(t, "alpha", 1.0f)}}, "gate");
  t.set(0, t.add("Mul", {gate, t.real(1)}));
}

void selu(Translation& t) {
  const double alpha = attribute(t, "alpha", 1.67326319217681884765625f);
  const ValueId y = t.add_step("Elu", {t.real(0)}, {{"alpha", alpha}}, "elu");
  t.set(0, t.add("Mul", {y, constant(t, attribute(t, "gamma", 1.05070102214813232421875f))}));
}

/// alpha * Elu(x / alpha) below 0.
void celu(Translation& t) {
  const double alpha = attribute(t, "alpha", 1.0f);
  const ValueId x = t.real(0);
  if (alpha == 1.0) return t.set(0, t.add("Elu", {x}, {{"alpha", 1.0}}));
  const ValueId scaled = t.add_step("Div", {x, constant(t, alpha)}, {}, "scaled");
  const ValueId elu = t.add_step("Elu", {scaled}, {{"alpha", 1.0}}, "elu");
  const ValueId below = t.add_step("Mul", {elu, constant(t, alpha)}, {}, "below");
  const ValueId positive = t.add("Greater", {x, constant(t, 0.0)}, {}, "positive");
  t.set(0, t.add("Where", {positive, x, below}));
}

void softsign(Translation& t) {
  const ValueId x = t.real(0);
  const ValueId size = t.add("Abs", {x}, {}, "size");
  t.set(0, t.add("Div", {x, t.add("Add", {size, constant(t, 1.0)}, {}, "divisor")}));
}

void thresholded_relu(Translation& t) {
  const ValueId x = t.real(0), limit = constant(t, attribute(t, "alpha", 1.0f));
  const ValueId above = t.add("Greater", {x, limit}, {}, "above");
  t.set(0, t.add("Where", {above, x, constant(t, 0.0)}));
}

/// x + bias below -lambd, x - bias above lambd, else 0.
void shrink(Translation& t) {
  const ValueId x = t.real(0);
  const double limit = attribute(t, "lambd", 0.5f), bias = attribute(t, "bias", 0.0f);
  const ValueId low = t.add("Less", {x, constant(t, -limit)}, {}, "is_low");
  const ValueId high = t.add("Greater", {x, constant(t, limit)}, {}, "is_high");
  ValueId raised = x, lowered = x;
  if (bias != 0.0) {
    raised = t.add("Add", {x, constant(t, bias)}, {}, "raised");
    lowered = t.add("Sub", {x, constant(t, bias)}, {}, "lowered");
  }
  const ValueId upper = t.add("Where", {high, lowered, constant(t, 0.0)}, {}, "high");
  t.set(0, t.add("Where", {low, raised, upper}));
}

void tangent(Translation& t) {
  const ValueId x = t.real(0);
  const ValueId sine = t.add_step("Sin", {x}, {}, "sin");
  t.set(0, t.add("Div", {sine, t.add_step("Cos", {x}, {}, "cos")}));
}

/// Returns exp(x) + exp(-x).
ValueId sum_of_exponentials(Translation& t, ValueId x) {
  const ValueId up = t.add_step("Exp", {x}, {}, "exp");
  const ValueId down = t.add_step("Exp", {t.add("Neg", {x}, {}, "minus")}, {}, "exp_minus");
  return t.add_step("Add", {up, down}, {}, "sum");
}

void hyperbolic_cosine(Translation& t) {
  t.set(0, t.add("Mul", {sum_of_exponentials(t, t.real(0)), constant(t, 0.5)}));
}

/// Tanh times Cosh: in a difference of exponentials, a small x would cancel out.
void hyperbolic_sine(Translation& t) {
  const ValueId x = t.real(0);
  const ValueId cosine =
      t.add_step("Mul", {sum_of_exponentials(t, x), constant(t, 0.5)}, {}, "cosh");
  t.set(0, t.add("Mul", {t.add_step("Tanh", {x}, {}, "tanh"), cosine}));
}

/// 1 - erf(x). ONNX has no such operator, but tf2onnx writes TensorFlow's for an exact GELU.
void complementary_error(Translation& t) {
  const ValueId erf = t.add_step("Erf", {t.real(0)}, {}, "erf");
  t.set(0, t.add("Sub", {constant(t, 1.0), erf}));
}

void is_infinite(Translation& t) {
  const bool negative = t.attributes().integer("detect_negative", 1) != 0;
  const bool positive = t.attributes().integer("detect_positive", 1) != 0;
  const double infinity = std::numeric_limits<double>::infinity();
  ValueId x = t.real(0);
  if (negative && positive) x = t.add("Abs", {x}, {}, "size");
  // If neither sign counts, the result is false: no magnitude is greater than infinity.
  const char* op = negative || positive ? "Equal" : "Greater";
  t.set_boolean(0, t.add(op, {x, constant(t, positive || !negative ? infinity : -infinity)}));
}

void reduce_log_sum(Translation& t) {
  const ValueId x = t.real(0);
  if (reduces_nothing(t) || t.shape(0).empty()) return t.set(0, t.add("Log", {x}));
  const Attributes lines = reduction_attributes(t, t.shape(0).size());
  t.set(0, t.add("Log", {t.add_step("ReduceSum", {x}, lines, "sum")}));
}

/// Returns the shape of input 0 without the reduced axes.
Shape reduced(Translation& t) {
  const Shape shape = t.shape(0);
  const Attributes lines = reduction_attributes(t, shape.size());
  const std::vector<int64_t> axes = std::get<std::vector<int64_t>>(lines.at("axes"));
  Shape result;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) == axes.end())
      result.push_back(shape[i]);
  }
  return result;
}

/// Computes log(sum exp(x - m)) + m, where m is the largest x, or 0 if that is infinite. m cancels
/// out, so it gets no gradient.
void reduce_log_sum_exp(Translation& t) {
  const ValueId x = t.real(0);
  const Shape shape = t.shape(0);
  if (reduces_nothing(t) || shape.empty()) return t.set(0, t.add("Identity", {x}));
  Attributes kept = reduction_attributes(t, shape.size());
  const bool keeps = std::get<int64_t>(kept["keepdims"]) != 0;
  kept["keepdims"] = int64_t{1};
  const ValueId largest = t.add("ReduceMax", {x}, kept, "largest");
  const ValueId infinity = constant(t, std::numeric_limits<double>::infinity());
  const ValueId size = t.add("Abs", {largest}, {}, "size");
  const ValueId finite = t.add("Less", {size, infinity}, {}, "is_finite");
  const ValueId chosen = t.add("Where", {finite, largest, constant(t, 0.0)}, {}, "shift");
  const ValueId shift = t.add("StopGradient", {chosen}, {}, "fixed_shift");
  const ValueId shifted = t.add("Sub", {x, shift}, {}, "shifted");
  const ValueId powers = t.add("Exp", {shifted}, {}, "exp");
  const ValueId sum = t.add("ReduceSum", {powers}, kept, "sum");
  const ValueId log = t.add("Log", {sum}, {}, "log");
  if (keeps) return t.set(0, t.add("Add", {log, shift}));
  const ValueId y = t.add("Add", {log, shift}, {}, "back");
  t.set(0, t.add("Reshape", {y}, {{"shape", reduced(t)}, {"allowzero", int64_t{1}}}));
}

/// Computes the product of all elements along an axis by multiplying its halves until one is left.
ValueId product_along(Translation& t, ValueId x, int64_t axis) {
  const Shape from = t.shape_of(x);
  const size_t at = static_cast<size_t>(axis);
  const auto part = [&](int64_t start, int64_t end, const char* name) {
    return t.add("Slice", {x},
                 {{"starts", std::vector<int64_t>{start}},
                  {"ends", std::vector<int64_t>{end}},
                  {"axes", std::vector<int64_t>{axis}}},
                 name);
  };
  for (int64_t size = from[at]; size > 1; size = (size + 1) / 2) {
    if (size % 2 != 0) {
      std::vector<int64_t> pads(2 * from.size(), 0);
      pads[at + from.size()] = 1;
      x = t.add("Pad", {x}, {{"pads", pads}, {"value", 1.0}}, "even");
    }
    const int64_t half = (size + 1) / 2;
    x = t.add("Mul", {part(0, half, "first_half"), part(half, 2 * half, "other_half")}, {},
              "halves");
  }
  return x;
}

void reduce_product(Translation& t) {
  const Shape shape = t.shape(0);
  if (element_count(shape) == 0) throw t.error("its input has no elements");
  ValueId x = t.real(0);
  if (reduces_nothing(t) || shape.empty()) return t.set(0, t.add("Identity", {x}));
  const Attributes lines = reduction_attributes(t, shape.size());
  Shape kept = shape;
  for (int64_t axis : std::get<std::vector<int64_t>>(lines.at("axes"))) {
    x = product_along(t, x, axis);
    kept[static_cast<size_t>(axis)] = 1;
  }
  t.set(0, t.add("Reshape", {x},
                 {{"shape", std::get<int64_t>(lines.at("keepdims")) != 0 ? kept : reduced(t)},
                  {"allowzero", int64_t{1}}}));
}

/// Computes x / norm(x), or 0 without a gradient if the norm is 0.
void lp_normalization(Translation& t) {
  const int64_t axis =
      checked_axis(t.attributes().integer("axis", -1), t.shape(0).size(), t.what());
  const int64_t p = t.attributes().integer("p", 2);
  if (p != 1 && p != 2) throw t.error("p must be 1 or 2");
  const Attributes lines{{"axes", std::vector<int64_t>{axis}}, {"keepdims", int64_t{1}}};
  const ValueId x = t.real(0), one = constant(t, 1.0);
  const ValueId powers =
      p == 1 ? t.add("Abs", {x}, {}, "size") : t.add_step("Mul", {x, x}, {}, "square");
  const ValueId sum = t.add_step("ReduceSum", {powers}, lines, "sum");
  const ValueId zero = t.add("Equal", {sum, constant(t, 0.0)}, {}, "is_zero");
  const ValueId safe = t.add_step("Where", {zero, one, sum}, {}, "safe");
  t.set(0, t.add("Div", {x, p == 1 ? safe : t.add_step("Sqrt", {safe}, {}, "norm")}));
}

/// (x - mean) / (deviation + 1e-9).
void mean_variance_normalization(Translation& t) {
  const std::vector<int64_t> axes = checked_axes(
      t.attributes().ints("axes", std::vector<int64_t>{0, 2, 3}), t.shape(0).size(), t.what());
  const Attributes lines{{"axes", axes}, {"keepdims", int64_t{1}}};
  const ValueId x = t.real(0);
  const ValueId mean = t.add("ReduceMean", {x}, lines, "mean");
  const ValueId centred = t.add("Sub", {x, mean}, {}, "centred");
  const ValueId squares = t.add("Mul", {centred, centred}, {}, "squares");
  const ValueId variance = t.add("ReduceMean", {squares}, lines, "variance");
  const ValueId deviation = t.add("Sqrt", {variance}, {}, "deviation");
  t.set(0, t.add("Div", {centred, t.add("Add", {deviation, constant(t, 1e-9)}, {}, "divisor")}));
}

/// Keeps the elements on one side of a diagonal. The others become zero, even infinities and NaN.
void triangle(Translation& t) {
  const Shape shape = t.shape(0);
  if (shape.size() < 2) throw t.error("its input must be a matrix");
  const auto shift = t.has(1) ? static_cast<int64_t>(t.known_scalar(1, "k")) : 0;
  const bool upper = t.attributes().integer("upper", 1) != 0;
  const int64_t rows = shape[shape.size() - 2], columns = shape.back();
  checked_count({rows, columns}, t.what(), kMostFolded);
  std::vector<int32_t> kept;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) kept.push_back(upper ? j - i >= shift : j - i <= shift);
  }
  const ValueId mask = t.graph().add_index_constant({rows, columns}, std::move(kept));
  if (!t.is_index(0)) {
    t.set(0, t.add("Where", {mask, t.real(0), constant(t, 0.0)}));
    return;
  }
  const ValueId zero = t.graph().add_index_constant({}, {0});
  t.set(0, t.add("Where", {mask, t.index(0), zero}));
}

constexpr Translator kFunctionTranslators[] = {
    {"Swish", swish},
    {"SwiGLU", swiglu},
    {"Selu", selu},
    {"Celu", celu},
    {"Softsign", softsign},
    {"ThresholdedRelu", thresholded_relu},
    {"Shrink", shrink},
    {"Tan", tangent},
    {"Cosh", hyperbolic_cosine},
    {"Sinh", hyperbolic_sine},
    {"Erfc", complementary_error},
    {"IsInf", is_infinite},
    {"ReduceLogSum", reduce_log_sum},
    {"ReduceLogSumExp", reduce_log_sum_exp},
    {"ReduceProd", reduce_product},
    {"LpNormalization", lp_normalization},
    {"MeanVarianceNormalization", mean_variance_normalization},
    {"Trilu", triangle},
};

}  // namespace

std::span<const Translator> function_translators() { return kFunctionTranslators; }

}  // namespace halfscope::onnx_files
