// SPDX-License-Identifier: MIT
#include "core/onnx/fold.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>

#include "core/error.h"
#include "core/numeric/elementary/elementary.h"
#include "core/numeric/elementary/inverse.h"
#include "core/numeric/formats/round.h"
#include "core/onnx/fold_parts.h"
#include "core/onnx/tensor_proto.h"

namespace halfscope::onnx_files {
namespace {

// ---- makers of constants ----

Result constant(const FoldCall& c) {
  if (const ::onnx::TensorProto* tensor = c.attributes.tensor("value"))
    return one(read_tensor(*tensor, c.folder, c.what));
  if (c.attributes.has("value_float")) {
    KnownTensor result{.shape = {}};
    result.reals = {static_cast<float>(c.attributes.real("value_float", 0.0))};
    return one(std::move(result));
  }
  if (c.attributes.has("value_int"))
    return one(known_ints({c.attributes.integer("value_int", 0)}, {}));
  if (auto values = c.attributes.ints("value_ints")) return one(known_list(*values));
  if (auto values = c.attributes.reals("value_floats")) {
    KnownTensor result{.shape = {static_cast<int64_t>(values->size())}};
    result.reals = std::move(*values);
    return one(std::move(result));
  }
  throw Error(c.what + ": this kind of constant is not supported");
}

Result constant_of_shape(const FoldCall& c) {
  const KnownTensor& shape = c.input(0);
  if (shape.real()) throw Error(c.what + ": its shape must be integers");
  KnownTensor value{.shape = {1}};
  value.reals = {0.0f};
  if (const ::onnx::TensorProto* given = c.attributes.tensor("value"))
    value = read_tensor(*given, c.folder, c.what);
  if (value.count() != 1) throw Error(c.what + ": its value must be one element");
  KnownTensor result{.type = value.type, .shape = shape.ints};
  const auto count = static_cast<size_t>(checked_count(result.shape, c.what, kMostFolded));
  if (value.real()) {
    result.reals.assign(count, value.reals[0]);
  } else {
    result.ints.assign(count, value.ints[0]);
  }
  return one(std::move(result));
}

Result range(const FoldCall& c) {
  const KnownTensor &start = c.input(0), &limit = c.input(1), &step = c.input(2);
  if (start.count() != 1 || limit.count() != 1 || step.count() != 1)
    throw Error(c.what + ": start, limit and delta must be scalars");
  const double steps = std::ceil((limit.number(0) - start.number(0)) / step.number(0));
  if (!(steps <= static_cast<double>(kMostFolded)))
    throw Error(c.what + ": the range has too many steps");
  const auto count = static_cast<int64_t>(std::max(0.0, steps));
  KnownTensor result{.type = start.type, .shape = {count}};
  for (int64_t i = 0; i < count; ++i) {
    if (start.real()) {
      result.reals.push_back(
          rounded(start.number(0) + static_cast<double>(i) * step.number(0), start.type));
    } else {
      result.ints.push_back(wrapping_add(start.ints[0], wrapping_mul(i, step.ints[0])));
    }
  }
  return one(std::move(result));
}

Result shape_of(const FoldCall& c) {
  const Shape& shape = c.input(0).shape;
  const auto rank = static_cast<int64_t>(shape.size());
  const auto place = [&](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  const int64_t start = place(c.attributes.integer("start", 0));
  const int64_t end = std::max(start, place(c.attributes.integer("end", rank)));
  return one(known_list({shape.begin() + start, shape.begin() + end}));
}

// ---- elements ----

Result cast_as(const FoldCall& c, DataType to) {
  const bool keeps = c.unrounded && is_real(to);
  return one(converted(c.input(0), keeps ? DataType::float32 : to, c.what));
}

Result cast(const FoldCall& c) {
  return cast_as(c, static_cast<DataType>(c.attributes.integer("to", 0)));
}

Result cast_like(const FoldCall& c) { return cast_as(c, c.input(1).type); }

Result where(const FoldCall& c) {
  const KnownTensor &condition = c.input(0), &x = c.input(1), &y = c.input(2);
  if (condition.real()) throw Error(c.what + ": its condition must be booleans");
  if (x.real() != y.real()) throw Error(c.what + ": its inputs mix reals and integers");
  const Shape shape = broadcast_of(condition.shape, broadcast_of(x.shape, y.shape, c.what), c.what);
  checked_count(shape, c.what, kMostFolded);
  KnownTensor result{.type = x.type, .shape = shape};
  const Walk at_c(condition.shape, shape), at_x(x.shape, shape), at_y(y.shape, shape);
  for (int64_t i = 0, n = result.count(); i < n; ++i) {
    const bool first = condition.ints[static_cast<size_t>(at_c(i))] != 0;
    append(result, first ? x : y, first ? at_x(i) : at_y(i));
  }
  return one(std::move(result));
}

using RealBinary = double (*)(double, double);
using IntBinary = int64_t (*)(int64_t, int64_t);

struct BinaryRow {
  std::string_view op;
  RealBinary real;
  IntBinary integer;
  bool compares = false;
};

double floor_mod(double a, double b) {
  const double rest = std::fmod(a, b);
  return rest != 0.0 && (rest < 0.0) != (b < 0.0) ? rest + b : rest;
}

constexpr BinaryRow kBinary[] = {
    {"Add", [](double a, double b) { return a + b; }, wrapping_add},
    {"Sub", [](double a, double b) { return a - b; },
     [](int64_t a, int64_t b) { return wrapping_add(a, wrapping_mul(b, -1)); }},
    {"Mul", [](double a, double b) { return a * b; }, wrapping_mul},
    {"Div", [](double a, double b) { return a / b; },
     [](int64_t a, int64_t b) { return b == 0 || b == -1 ? wrapping_mul(a, b) : a / b; }},
    {"Mod", floor_mod,
     [](int64_t a, int64_t b) {
       if (b == 0 || b == -1) return int64_t{0};
       const int64_t rest = a % b;
       return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
     }},
    {"Pow", [](double a, double b) { return elementary::pow(a, b); },
     [](int64_t a, int64_t b) {
       int64_t result = b < 0 ? 0 : 1;
       for (int64_t i = 0; i < std::min<int64_t>(b, 64); ++i) result = wrapping_mul(result, a);
       return result;
     }},
    {"Min",
     [](double a, double b) {
       return std::isnan(a) ? a : std::isnan(b) ? b : a < b ? a : b;
     },
     [](int64_t a, int64_t b) { return std::min(a, b); }},
    {"Max",
     [](double a, double b) {
       return std::isnan(a) ? a : std::isnan(b) ? b : a < b ? b : a;
     },
     [](int64_t a, int64_t b) { return std::max(a, b); }},
    {"Equal", [](double a, double b) { return a == b ? 1.0 : 0.0; },
     [](int64_t a, int64_t b) -> int64_t { return a == b; }, true},
    {"Less", [](double a, double b) { return a < b ? 1.0 : 0.0; },
     [](int64_t a, int64_t b) -> int64_t { return a < b; }, true},
    {"LessOrEqual", [](double a, double b) { return a <= b ? 1.0 : 0.0; },
     [](int64_t a, int64_t b) -> int64_t { return a <= b; }, true},
    {"Greater", [](double a, double b) { return a > b ? 1.0 : 0.0; },
     [](int64_t a, int64_t b) -> int64_t { return a > b; }, true},
    {"GreaterOrEqual", [](double a, double b) { return a >= b ? 1.0 : 0.0; },
     [](int64_t a, int64_t b) -> int64_t { return a >= b; }, true},
    {"BitwiseAnd", nullptr, [](int64_t a, int64_t b) { return a & b; }},
    {"BitwiseOr", nullptr, [](int64_t a, int64_t b) { return a | b; }},
    {"BitwiseXor", nullptr, [](int64_t a, int64_t b) { return a ^ b; }},
    {"And", nullptr, [](int64_t a, int64_t b) -> int64_t { return a != 0 && b != 0; }, true},
    {"Or", nullptr, [](int64_t a, int64_t b) -> int64_t { return a != 0 || b != 0; }, true},
    {"Xor", nullptr, [](int64_t a, int64_t b) -> int64_t { return (a != 0) != (b != 0); }, true},
};

/// The result has the sign of the dividend, as Mod with fmod = 1 requires.
constexpr BinaryRow kTruncatedMod{
    "Mod", [](double a, double b) { return std::fmod(a, b); },
    [](int64_t a, int64_t b) { return b == 0 || b == -1 ? int64_t{0} : a % b; }};

KnownTensor binary(const FoldCall& c, const BinaryRow& row, const KnownTensor& a,
                   const KnownTensor& b) {
  // The exponent of Pow may be of another type; the result has the base's.
  const bool real = a.real();
  if (real != b.real() && row.op != "Pow")
    throw Error(c.what + ": its inputs mix reals and integers");
  if (real && row.real == nullptr) throw Error(c.what + ": its operands must be booleans");
  const Shape shape = broadcast_of(a.shape, b.shape, c.what);
  checked_count(shape, c.what, kMostFolded);
  KnownTensor result{.type = row.compares ? DataType::boolean : a.type, .shape = shape};
  const Walk at_a(a.shape, shape), at_b(b.shape, shape);
  for (int64_t i = 0, n = result.count(); i < n; ++i) {
    const int64_t pa = at_a(i), pb = at_b(i);
    if (real) {
      const double value = row.real(a.number(pa), b.number(pb));
      if (row.compares) {
        result.ints.push_back(value != 0.0);
      } else {
        result.reals.push_back(rounded(value, a.type));
      }
    } else if (b.real()) {
      result.ints.push_back(to_integer(row.real(a.number(pa), b.number(pb))));
    } else {
      result.ints.push_back(
          row.integer(a.ints[static_cast<size_t>(pa)], b.ints[static_cast<size_t>(pb)]));
    }
  }
  return result;
}

struct UnaryRow {
  std::string_view op;
  double (*real)(double);
  int64_t (*integer)(int64_t);
};
constexpr UnaryRow kUnary[] = {
    {"Neg", [](double x) { return -x; }, [](int64_t x) { return wrapping_mul(x, -1); }},
    {"Abs", [](double x) { return std::fabs(x); },
     [](int64_t x) { return x < 0 ? wrapping_mul(x, -1) : x; }},
    {"Sign", [](double x) { return x > 0.0   ? 1.0
                                   : x < 0.0 ? -1.0
                                             : x; },
     [](int64_t x) -> int64_t { return (x > 0) - (x < 0); }},
    {"Sqrt", [](double x) { return std::sqrt(x); }, nullptr},
    {"Exp", [](double x) { return elementary::exp(x); }, nullptr},
    {"Log", [](double x) { return elementary::log(x); }, nullptr},
    {"Sin", [](double x) { return elementary::sin(x); }, nullptr},
    {"Cos", [](double x) { return elementary::cos(x); }, nullptr},
    {"Acos", [](double x) { return elementary::acos(x); }, nullptr},
    {"Acosh", [](double x) { return elementary::acosh(x); }, nullptr},
    {"Asin", [](double x) { return elementary::asin(x); }, nullptr},
    {"Asinh", [](double x) { return elementary::asinh(x); }, nullptr},
    {"Atan", [](double x) { return elementary::atan(x); }, nullptr},
    {"Atanh", [](double x) { return elementary::atanh(x); }, nullptr},
    {"Tanh", [](double x) { return elementary::tanh(x); }, nullptr},
    {"Sigmoid", [](double x) { return 1.0 / (1.0 + elementary::exp(-x)); }, nullptr},
    {"Erf", [](double x) { return elementary::erf(x); }, nullptr},
    {"Reciprocal", [](double x) { return 1.0 / x; }, nullptr},
    {"Floor", [](double x) { return std::floor(x); }, [](int64_t x) { return x; }},
    {"Ceil", [](double x) { return std::ceil(x); }, [](int64_t x) { return x; }},
    {"Round", [](double x) { return std::nearbyint(x); }, [](int64_t x) { return x; }},
    {"Not", nullptr, [](int64_t x) -> int64_t { return x == 0; }},
    {"Relu", [](double x) { return x <= 0.0 ? 0.0 : x; },
     [](int64_t x) { return std::max<int64_t>(x, 0); }},
};

KnownTensor unary(const FoldCall& c, const UnaryRow& row) {
  const KnownTensor& x = c.input(0);
  if (x.real() ? row.real == nullptr : row.integer == nullptr)
    throw Error(c.what + ": an input of type " + type_name(x.type) + " is not supported");
  KnownTensor result{.type = x.type, .shape = x.shape};
  for (float value : x.reals)
    result.reals.push_back(rounded(row.real(static_cast<double>(value)), x.type));
  for (int64_t value : x.ints) result.ints.push_back(row.integer(value));
  return result;
}

Result bitwise_not(const FoldCall& c) {
  KnownTensor x = c.input(0);
  const int64_t bits = all_bits(x.type, c.what);
  for (int64_t& value : x.ints) value ^= bits;
  return one(std::move(x));
}

/// IsNaN and IsInf.
Result of_kind(const FoldCall& c, bool (*is)(double, const FoldCall&)) {
  const KnownTensor& x = c.input(0);
  if (!x.real())
    throw Error(c.what + ": an input of type " + type_name(x.type) + " is not supported");
  KnownTensor result{.type = DataType::boolean, .shape = x.shape};
  for (float value : x.reals) result.ints.push_back(is(static_cast<double>(value), c) ? 1 : 0);
  return one(std::move(result));
}

bool is_nan(double x, const FoldCall&) { return std::isnan(x); }

bool is_infinite(double x, const FoldCall& c) {
  const char* detects = x > 0.0 ? "detect_positive" : "detect_negative";
  return std::isinf(x) && c.attributes.integer(detects, 1) != 0;
}

/// Limits are inputs, or attributes up to opset 10. The upper limit wins if it is below the lower
/// one, and NaN stays.
Result clip(const FoldCall& c) {
  KnownTensor x = c.input(0);
  const auto limit = [&](const char* name, size_t i) -> std::optional<double> {
    if (c.attributes.has(name)) return c.attributes.real(name, 0.0);
    if (!c.has(i)) return std::nullopt;
    if (c.input(i).count() != 1) throw Error(c.what + ": its limits must be single numbers");
    return c.input(i).number(0);
  };
  const std::optional<double> low = limit("min", 1), high = limit("max", 2);
  const auto clipped = [&](auto value) {
    if (low && static_cast<double>(value) < *low) value = static_cast<decltype(value)>(*low);
    if (high && static_cast<double>(value) > *high) value = static_cast<decltype(value)>(*high);
    return value;
  };
  for (float& value : x.reals) value = clipped(value);
  for (int64_t& value : x.ints) value = clipped(value);
  return one(std::move(x));
}

// ---- reductions of known tensors ----

enum class Reduce : uint8_t { sum, mean, product, least, largest };

Result reduce(const FoldCall& c, Reduce how) {
  const KnownTensor& x = c.input(0);
  std::vector<int64_t> axes;
  if (c.has(1)) axes = c.input(1).ints;
  if (auto given = c.attributes.ints("axes")) axes = *given;
  const bool keep_all = axes.empty() && c.attributes.integer("noop_with_empty_axes", 0) != 0;
  if (keep_all) return one(x);
  if (axes.empty()) {
    axes.resize(x.shape.size());
    std::iota(axes.begin(), axes.end(), int64_t{0});
  }
  axes = checked_axes(axes, x.shape.size(), c.what);
  const bool keep = c.attributes.integer("keepdims", 1) != 0;
  Shape kept = x.shape, shape;
  double number = 1.0;
  for (size_t i = 0; i < x.shape.size(); ++i) {
    if (std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) != axes.end()) {
      number *= static_cast<double>(x.shape[i]);
      kept[i] = 1;
      if (keep) shape.push_back(1);
    } else {
      shape.push_back(x.shape[i]);
    }
  }
  const double start = how == Reduce::product   ? 1.0
                       : how == Reduce::least   ? HUGE_VAL
                       : how == Reduce::largest ? -HUGE_VAL
                                                : 0.0;
  std::vector<double> sums(static_cast<size_t>(element_count(kept)), start);
  const Walk at(kept, x.shape);
  for (int64_t i = 0, n = x.count(); i < n; ++i) {
    double& sum = sums[static_cast<size_t>(at(i))];
    const double value = x.number(i);
    switch (how) {
      case Reduce::sum:
      case Reduce::mean:
        sum += value;
        break;
      case Reduce::product:
        sum *= value;
        break;
      case Reduce::least:
        sum = std::min(sum, value);
        break;
      case Reduce::largest:
        sum = std::max(sum, value);
        break;
    }
  }
  KnownTensor result{.type = x.type, .shape = shape};
  for (double sum : sums) {
    if (how == Reduce::mean) sum /= number;
    if (x.real()) {
      result.reals.push_back(rounded(sum, x.type));
    } else {
      result.ints.push_back(to_integer(sum));
    }
  }
  return one(std::move(result));
}

struct FoldRow {
  std::string_view op;
  Result (*run)(const FoldCall&);
};
constexpr FoldRow kRows[] = {
    {"Constant", constant},
    {"ConstantOfShape", constant_of_shape},
    {"Range", range},
    {"Shape", shape_of},
    {"Size", [](const FoldCall& c) { return one(known_ints({c.input(0).count()}, {})); }},
    {"Identity", [](const FoldCall& c) { return one(c.input(0)); }},
    {"Cast", cast},
    {"CastLike", cast_like},
    {"Where", where},
    {"BitwiseNot", bitwise_not},
    {"Clip", clip},
    {"IsNaN", [](const FoldCall& c) { return of_kind(c, is_nan); }},
    {"IsInf", [](const FoldCall& c) { return of_kind(c, is_infinite); }},
    {"ReduceSum", [](const FoldCall& c) { return reduce(c, Reduce::sum); }},
    {"ReduceMean", [](const FoldCall& c) { return reduce(c, Reduce::mean); }},
    {"ReduceProd", [](const FoldCall& c) { return reduce(c, Reduce::product); }},
    {"ReduceMin", [](const FoldCall& c) { return reduce(c, Reduce::least); }},
    {"ReduceMax", [](const FoldCall& c) { return reduce(c, Reduce::largest); }},
};

}  // namespace

const KnownTensor& FoldCall::input(size_t i) const {
  if (!has(i)) throw Error(what + ": input " + std::to_string(i) + " is missing");
  return *in[i];
}

namespace {

bool is_narrow(const KnownTensor& tensor) {
  return tensor.real() && format_of(tensor.type).value_or(kFp32) != kFp32;
}

/// Returns whether `unrounded`, rounded to the tensor's type, equals the tensor. NaN equals NaN.
bool rounds_to(const std::vector<float>& unrounded, const KnownTensor& tensor) {
  if (unrounded.size() != tensor.reals.size()) return false;
  for (size_t i = 0; i < unrounded.size(); ++i) {
    const float once = rounded(static_cast<double>(unrounded[i]), tensor.type);
    if (once != tensor.reals[i] && !(std::isnan(once) && std::isnan(tensor.reals[i]))) return false;
  }
  return true;
}

}  // namespace

std::optional<Folded> fold_twice(const FoldCall& call) {
  std::optional<std::vector<KnownTensor>> results = fold(call);
  if (!results) return std::nullopt;
  Folded folded{std::move(*results), {}};
  folded.rounds_within.assign(folded.outputs.size(), false);
  for (KnownTensor& output : folded.outputs) output.unrounded.clear();  // copied from an operand
  const bool differs = std::any_of(call.in.begin(), call.in.end(), [](const KnownTensor* input) {
    return input != nullptr && !input->unrounded.empty();
  });
  if (!differs && std::none_of(folded.outputs.begin(), folded.outputs.end(), is_narrow))
    return folded;
  FoldCall exact = call;
  exact.unrounded = true;
  std::vector<KnownTensor> operands;
  operands.reserve(call.in.size());
  for (const KnownTensor*& input : exact.in) {
    if (input == nullptr || !input->real()) continue;
    operands.push_back(
        {.type = DataType::float32, .shape = input->shape, .reals = input->true_reals()});
    input = &operands.back();
  }
  std::optional<std::vector<KnownTensor>> truth = fold(exact);
  for (size_t i = 0; truth && i < folded.outputs.size(); ++i) {
    KnownTensor& output = folded.outputs[i];
    if (!output.real() || !(*truth)[i].real() || (*truth)[i].reals == output.reals) continue;
    if (rounds_to((*truth)[i].reals, output)) {
      output.unrounded = std::move((*truth)[i].reals);
    } else {
      folded.rounds_within[i] = true;
    }
  }
  return folded;
}

std::optional<std::vector<KnownTensor>> fold(const FoldCall& call) {
  const std::string_view op = call.node.op_type();
  for (const FoldRow& row : kRows) {
    if (row.op == op) return row.run(call);
  }
  for (const BinaryRow& row : kBinary) {
    if (row.op != op) continue;
    const bool truncates = op == "Mod" && call.attributes.integer("fmod", 0) != 0;
    const BinaryRow& rule = truncates ? kTruncatedMod : row;
    KnownTensor result = call.input(0);  // Min and Max take any number of operands
    for (size_t i = 1; i < call.in.size(); ++i) result = binary(call, rule, result, call.input(i));
    return one(std::move(result));
  }
  for (const UnaryRow& row : kUnary) {
    if (row.op == op) return one(unary(call, row));
  }
  if (auto moved = fold_movement(call)) return moved;
  return fold_select(call);
}

}  // namespace halfscope::onnx_files
