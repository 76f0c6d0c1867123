// SPDX-License-Identifier: MIT
// Element-wise functions, comparisons, reductions and softmax.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/onnx/translate.h"
#include "core/ops/ops.h"
#include "core/ops/zero_slope.h"

namespace halfscope::onnx_files {
namespace {

/// Adds the operator of the same name on integers known only at run time. Returns false if the
/// operands are reals.
bool of_integers(Translation& t, size_t operands) {
  if (!t.computes_integers(0, operands)) return false;
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < operands; ++i) inputs.push_back(t.integers(i));
  const std::string op = t.node().op_type();
  t.set(0, t.add(op.c_str(), inputs));
  return true;
}

/// Translates addition-like and multiplication-like operators. A trainable operand is named after
/// its role: bias or scale.
template <bool Adds>
void arithmetic(Translation& t) {
  if (of_integers(t, 2)) return;
  const char* role = Adds ? "bias" : "scale";
  const ValueId a = t.real(0, role), b = t.real(1, role);
  const std::string op = t.node().op_type();
  t.set(0, t.add(op.c_str(), {a, b}));
}

void modulo(Translation& t) {
  if (t.attributes().integer("fmod", 0) != 0 || !of_integers(t, 2))
    throw t.error("Mod of reals and fmod are not supported at run time");
}

/// Integers of any type: results stay in its range.
void bitwise(Translation& t) {
  const std::string op = t.node().op_type();
  if (!t.is_index(0) || !t.is_index(1)) throw t.error("its operands must be integers");
  t.set_integers(0, t.add(op.c_str(), {t.index(0), t.index(1)}), t.type(0));
}

/// Turns all bits of the integer's type.
void bitwise_not(Translation& t) {
  if (!t.is_index(0)) throw t.error("its operand must be integers");
  const ValueId bits = t.graph().add_index_constant(
      {}, {static_cast<int32_t>(static_cast<uint32_t>(all_bits(t.type(0), t.what())))});
  t.set_integers(0, t.add("BitwiseXor", {t.index(0), bits}), t.type(0));
}

/// Applies Sum, Mean, Min or Max to any number of operands, from left to right.
ValueId from_left(Translation& t, const char* op) {
  if (t.input_count() == 0) throw t.error("its inputs are missing");
  const bool integers = t.computes_integers(0, t.input_count());
  const auto operand = [&](size_t i) { return integers ? t.integers(i) : t.real(i); };
  ValueId result = operand(0);
  for (size_t i = 1; i < t.input_count(); ++i) {
    const bool last = i + 1 == t.input_count();
    result = t.add(op, {result, operand(i)}, {}, last ? "" : "part" + std::to_string(i));
  }
  return t.input_count() == 1 ? t.add("Identity", {result}) : result;
}

void sum(Translation& t) { t.set(0, from_left(t, "Add")); }
void least(Translation& t) { t.set(0, from_left(t, "Min")); }
void largest(Translation& t) { t.set(0, from_left(t, "Max")); }

void mean(Translation& t) {
  ValueId total = t.real(0);
  for (size_t i = 1; i < t.input_count(); ++i)
    total = t.add("Add", {total, t.real(i)}, {}, "sum" + std::to_string(i));
  const auto count = static_cast<float>(t.input_count());
  t.set(0, t.add("Div", {total, t.graph().add_constant(count)}));
}

void parametric_relu(Translation& t) {
  const ValueId x = t.real(0);
  t.set(0, t.add("PRelu", {x, t.weight(1, "weight")}));
}

/// Clips integers with Max for `min`, then Min for `max`.
void clip_integers(Translation& t) {
  ValueId result = t.integers(0);
  const bool high = t.has(2);
  if (t.has(1)) result = t.add("Max", {result, t.integers(1)}, {}, high ? "min" : "");
  if (high) result = t.add("Min", {result, t.integers(2)});
  t.set(0, t.has(1) || high ? result : t.add("Identity", {result}));
}

void clip(Translation& t) {
  if (t.computes_integers(0, 1)) return clip_integers(t);
  Attributes limits;
  for (size_t i = 1; i < 3; ++i) {
    const char* name = i == 1 ? "min" : "max";
    if (t.attributes().has(name)) {
      limits[name] = t.attributes().real(name, 0.0);
    } else if (t.has(i)) {
      limits[name] = t.known_scalar(i, name);
    }
  }
  t.set(0, t.add("Clip", {t.real(0)}, limits));
}

void gelu(Translation& t) {
  const std::string how = t.attributes().text("approximate", "none");
  if (how != "none" && how != "tanh") throw t.error("approximate must be none or tanh");
  t.set(0, t.add("Gelu", {t.real(0)}, {{"tanh", int64_t{how == "tanh"}}}));
}

/// com.microsoft FastGelu: the tanh form, with an optional bias that is added first.
void fast_gelu(Translation& t) {
  ValueId x = t.real(0);
  if (t.has(1)) x = t.add("Add", {x, t.weight(1, "bias")}, {}, "bias");
  t.set(0, t.add("Gelu", {x}, {{"tanh", int64_t{1}}}));
}

void compare(Translation& t) {
  const std::string op = t.node().op_type();
  const bool index = t.is_index(0) && t.is_index(1);
  const ValueId a = index ? t.index(0) : t.real(0), b = index ? t.index(1) : t.real(1);
  t.set_boolean(0, t.add(op.c_str(), {a, b}));
}

void logical(Translation& t) {
  const std::string op = t.node().op_type();
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < t.input_count(); ++i) inputs.push_back(t.index(i));
  t.set_boolean(0, t.add(op.c_str(), inputs));
}

/// Computes exclusive or. Booleans stored as integers may use any non-zero number for true.
void exclusive_or(Translation& t) {
  const ValueId a = t.add("Not", {t.index(0)}, {}, "not_a");
  const ValueId b = t.add("Not", {t.index(1)}, {}, "not_b");
  t.set_boolean(0, t.add("Not", {t.add("Equal", {a, b}, {}, "same")}));
}

/// NaN is the only number that is not equal to itself.
void is_nan(Translation& t) {
  const ValueId x = t.real(0);
  t.set_boolean(0, t.add("Not", {t.add("Equal", {x, x}, {}, "same")}));
}

void where(Translation& t) {
  const ValueId condition = t.index(0);
  if (t.computes_integers(1, 3) || (t.is_index(1) && t.is_index(2))) {
    if (!t.is_index(1) || !t.is_index(2)) throw t.error("its inputs mix reals and integers");
    t.set_integers(0, t.add("Where", {condition, t.index(1), t.index(2)}), t.type(1));
    return;
  }
  if (t.has(1)) t.set_type(t.type(1));
  t.set(0, t.add("Where", {condition, t.real(1), t.real(2)}));
}

/// Translates a softmax. Up to opset 12 it treats all dimensions from `axis` on as one.
void softmax(Translation& t) {
  const Shape shape = t.shape(0);
  const std::string op = t.node().op_type();
  const bool flattens = t.opset() < 13;
  const int64_t axis =
      checked_axis(t.attributes().integer("axis", flattens ? 1 : -1), shape.size(), t.what());
  const bool last = axis + 1 == static_cast<int64_t>(shape.size());
  if (!flattens || last) {
    t.set(0, t.add(op.c_str(), {t.real(0)}, {{"axis", axis}}));
    return;
  }
  const ValueId rows = t.add("Flatten", {t.real(0)}, {{"axis", axis}}, "rows");
  const ValueId y = t.add(op.c_str(), {rows}, {{"axis", int64_t{1}}});
  t.set(0, t.reshape(y, shape, "back"));
}

template <bool OfIntegers>
void reduce(Translation& t) {
  const std::string op = t.node().op_type();
  const ValueId x = OfIntegers && t.computes_integers(0, 1) ? t.integers(0) : t.real(0);
  if (reduces_nothing(t) || t.shape(0).empty()) {
    t.set(0, t.add("Identity", {x}));
    return;
  }
  t.set(0, t.add(op.c_str(), {x}, reduction_attributes(t, t.shape(0).size())));
}

/// ReduceL2 and ReduceSumSquare: sums of squares, with or without a square root.
template <bool Root>
void reduce_squares(Translation& t) {
  const ValueId x = t.real(0);
  if (reduces_nothing(t)) {
    t.set(0, Root ? t.add("Abs", {x}) : t.add("Mul", {x, x}));
    return;
  }
  const ValueId squares = t.add_step("Mul", {x, x}, {}, "square");
  const Attributes lines = reduction_attributes(t, t.shape(0).size());
  if (!Root) return t.set(0, t.add("ReduceSum", {squares}, lines));
  const ValueId sum = t.add_step("ReduceSum", {squares}, lines, "sum");
  t.set(0, t.add("Sqrt", {sum}, {{kZeroSlopeAtZero, int64_t{1}}}));
}

void reduce_l1(Translation& t) {
  if (reduces_nothing(t)) {
    t.set(0, t.add("Abs", {t.real(0)}));
    return;
  }
  const ValueId sizes = t.add("Abs", {t.real(0)}, {}, "abs");
  t.set(0, t.add("ReduceSum", {sizes}, reduction_attributes(t, t.shape(0).size())));
}

void cumulative_sum(Translation& t) {
  const auto axis = static_cast<int64_t>(t.known_scalar(1, "axis"));
  t.set(0, t.add("CumSum", {t.computes_integers(0, 1) ? t.integers(0) : t.real(0)},
                 {{"axis", checked_axis(axis, t.shape(0).size(), t.what())},
                  {"exclusive", t.attributes().integer("exclusive", 0)},
                  {"reverse", t.attributes().integer("reverse", 0)}}));
}

void arg_max(Translation& t) {
  const int64_t axis = checked_axis(t.attributes().integer("axis", 0), t.shape(0).size(), t.what());
  const ValueId position =
      t.add("ArgMax", {t.any(0)},
            {{"axis", axis},
             {"keepdims", t.attributes().integer("keepdims", 1)},
             {"select_last_index", t.attributes().integer("select_last_index", 0)}});
  t.set_integers(0, position, DataType::int64);
}

constexpr Translator kMathTranslators[] = {
    {"Add", arithmetic<true>},
    {"Sub", arithmetic<true>},
    {"Mul", arithmetic<false>},
    {"Div", arithmetic<false>},
    {"Mod", modulo},
    {"BitwiseAnd", bitwise},
    {"BitwiseOr", bitwise},
    {"BitwiseXor", bitwise},
    {"BitwiseNot", bitwise_not},
    {"PRelu", parametric_relu},
    {"Clip", clip},
    {"Min", least},
    {"Max", largest},
    {"Sum", sum},
    {"Mean", mean},
    {"Gelu", gelu},
    {"FastGelu", fast_gelu},
    {"Equal", compare},
    {"Less", compare},
    {"LessOrEqual", compare},
    {"Greater", compare},
    {"GreaterOrEqual", compare},
    {"And", logical},
    {"Or", logical},
    {"Not", logical},
    {"Xor", exclusive_or},
    {"IsNaN", is_nan},
    {"Where", where},
    {"Softmax", softmax},
    {"LogSoftmax", softmax},
    {"ReduceSum", reduce<true>},
    {"ReduceMean", reduce<false>},
    {"ReduceMax", reduce<true>},
    {"ReduceMin", reduce<true>},
    {"ReduceL1", reduce_l1},
    {"ReduceL2", reduce_squares<true>},
    {"ReduceSumSquare", reduce_squares<false>},
    {"CumSum", cumulative_sum},
    {"ArgMax", arg_max},
};

}  // namespace

Attributes reduction_attributes(Translation& t, size_t rank) {
  std::vector<int64_t> axes = t.ints("axes", 1).value_or(std::vector<int64_t>{});
  if (axes.empty()) {
    axes.resize(rank);
    std::iota(axes.begin(), axes.end(), int64_t{0});
  }
  return {{"axes", checked_axes(axes, rank, t.what())},
          {"keepdims", t.attributes().integer("keepdims", 1)}};
}

bool reduces_nothing(Translation& t) {
  return t.attributes().integer("noop_with_empty_axes", 0) != 0 &&
         t.ints("axes", 1).value_or(std::vector<int64_t>{}).empty();
}

std::span<const Translator> math_translators() { return kMathTranslators; }

void translate_same(Translation& t) {
  const std::string op = t.node().op_type();
  const OnnxForm& form = find_op(op).onnx;
  if (form.integers && of_integers(t, form.read)) return;
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < form.read; ++i) inputs.push_back(t.real(i));
  Attributes attributes;
  for (const OnnxAttribute& each : form.attributes)
    attributes[each.name] = t.attributes().real(each.name, each.fallback.value());
  t.set(0, t.add(op.c_str(), inputs, std::move(attributes)));
}

}  // namespace halfscope::onnx_files
