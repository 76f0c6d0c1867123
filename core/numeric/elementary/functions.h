// SPDX-License-Identifier: MIT
// Functions of one element and their gradients, in double: one source for all backends. A backend
// rounds the result once, to the format that the node writes. Names and attributes are ONNX's.
// Gradients at corners are PyTorch's; if an operand is NaN, so is everything that depends on it.
// exp and similar functions come from elementary.h and inverse.h, so all backends and platforms
// give the same bits.
#pragma once

#include <cmath>
#include <limits>

#include "core/function_list.h"
#include "core/host_device.h"
#include "core/numeric/elementary/elementary.h"
#include "core/numeric/elementary/inverse.h"
#include "core/numeric/elementary/quick_exp.h"

namespace halfscope::fn {

inline constexpr double kSqrtHalf = 0.70710678118654752440;
inline constexpr double kTwoOverSqrtPi = 1.12837916709551257390;
inline constexpr double kSqrtTwoOverPi = 0.79788456080286535588;
inline constexpr double kGeluCubic = 0.044715;  ///< Hendrycks and Gimpel 2016

HS_HD inline double logistic(double x) noexcept { return 1.0 / (1.0 + elementary::exp(-x)); }

/// Returns 2u, where GELU's approximation is x (1 + tanh(u)) / 2.
HS_HD inline double gelu_exponent(double x) noexcept {
  return 2.0 * kSqrtTwoOverPi * (x + kGeluCubic * x * x * x);
}

/// Replaces 0 and infinity by the smallest and the largest double, for results that are neither but
/// are outside the range of double.
HS_HD inline double clamped_to_double(double y) noexcept {
  constexpr double kLargest = std::numeric_limits<double>::max();
  constexpr double kSmallest = std::numeric_limits<double>::denorm_min();
  const double size = std::fabs(y);
  return std::copysign(size > kLargest ? kLargest : size < kSmallest ? kSmallest : size, y);
}
HS_HD constexpr bool is_finite(double x) noexcept { return x - x == 0.0; }

// Functions of one operand. Roundings other than to nearest even start from exact() if a function
// has it.

/// Bounds on the relative error of quick(), which some functions have beside operator(): it differs
/// from operator()'s result by no more, including the latter's own rounding errors.
inline constexpr double kQuickFactor = 0x1p-47;

/// Returns dy * slope, given a bound on the slope's error. The slope's sign must be known, because
/// a product that is 0 takes its sign from it.
HS_HD inline elementary::Bounded quick_product(double dy, double slope, double error,
                                               double unknown) noexcept {
  const double sign_unknown = std::fabs(slope) > error ? 0.0 : elementary::kNaN;
  return {dy * slope, std::fabs(dy) * error + (sign_unknown + unknown)};
}

/// Exp and Log are not in the lists below: backends have separate rows for them.
struct Exp {
  HS_HD double operator()(double x) const { return elementary::exp(x); }
  HS_HD static double exact(double x, bool) {
    const double y = elementary::exp(x);
    return is_finite(x) ? clamped_to_double(y) : y;
  }
};
struct Log {
  HS_HD double operator()(double x) const { return elementary::log(x); }
};
struct Abs {
  static constexpr const char* kName = "Abs";
  HS_HD double operator()(double x) const { return std::fabs(x); }
};
struct Reciprocal {
  static constexpr const char* kName = "Reciprocal";
  HS_HD double operator()(double x) const { return 1.0 / x; }
};
struct Erf {
  static constexpr const char* kName = "Erf";
  HS_HD double operator()(double x) const { return elementary::erf(x); }
};
struct Tanh {
  static constexpr const char* kName = "Tanh";
  HS_HD double operator()(double x) const { return elementary::tanh(x); }
};
struct Sigmoid {
  static constexpr const char* kName = "Sigmoid";
  HS_HD double operator()(double x) const { return logistic(x); }
  HS_HD static elementary::Bounded quick(double x) {
    const elementary::QuickLogistic s = elementary::quick_logistic(x);
    return {s.of_x, s.of_x * kQuickFactor + s.unknown};
  }
};
struct Sin {
  static constexpr const char* kName = "Sin";
  HS_HD double operator()(double x) const { return elementary::sin(x); }
};
struct Cos {
  static constexpr const char* kName = "Cos";
  HS_HD double operator()(double x) const { return elementary::cos(x); }
};
struct Acos {
  static constexpr const char* kName = "Acos";
  HS_HD double operator()(double x) const { return elementary::acos(x); }
};
struct Acosh {
  static constexpr const char* kName = "Acosh";
  HS_HD double operator()(double x) const { return elementary::acosh(x); }
};
struct Asin {
  static constexpr const char* kName = "Asin";
  HS_HD double operator()(double x) const { return elementary::asin(x); }
};
struct Asinh {
  static constexpr const char* kName = "Asinh";
  HS_HD double operator()(double x) const { return elementary::asinh(x); }
};
struct Atan {
  static constexpr const char* kName = "Atan";
  HS_HD double operator()(double x) const { return elementary::atan(x); }
};
struct Atanh {
  static constexpr const char* kName = "Atanh";
  HS_HD double operator()(double x) const { return elementary::atanh(x); }
};
/// 0 for NaN.
struct Sign {
  static constexpr const char* kName = "Sign";
  HS_HD double operator()(double x) const { return x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : 0.0; }
};
struct Floor {
  static constexpr const char* kName = "Floor";
  HS_HD double operator()(double x) const { return std::floor(x); }
};
struct Ceil {
  static constexpr const char* kName = "Ceil";
  HS_HD double operator()(double x) const { return std::ceil(x); }
};
/// Rounds halves to even.
struct Round {
  static constexpr const char* kName = "Round";
  HS_HD double operator()(double x) const { return std::rint(x); }
};
struct LeakyRelu {
  static constexpr const char* kName = "LeakyRelu";
  double alpha = 0.01;
  HS_HD double operator()(double x) const { return x > 0.0 ? x : alpha * x; }
};
struct Elu {
  static constexpr const char* kName = "Elu";
  double alpha = 1.0;
  HS_HD double operator()(double x) const { return x > 0.0 ? x : alpha * elementary::expm1(x); }
};
/// log(1 + exp(x)), without overflow.
struct Softplus {
  static constexpr const char* kName = "Softplus";
  HS_HD double operator()(double x) const {
    return (x > 0.0 ? x : 0.0) + elementary::log1p(elementary::exp(-std::fabs(x)));
  }
};
/// log(1 / (1 + exp(-x))), without overflow.
struct LogSigmoid {
  static constexpr const char* kName = "LogSigmoid";
  HS_HD double operator()(double x) const { return -Softplus{}(-x); }
};
/// alpha x + beta, limited to [0, 1].
struct HardSigmoid {
  static constexpr const char* kName = "HardSigmoid";
  double alpha = 0.2, beta = 0.5;
  HS_HD double operator()(double x) const {
    const double line = alpha * x + beta;
    return line < 0.0 ? 0.0 : line > 1.0 ? 1.0 : line;
  }
};
/// x tanh(Softplus(x)).
struct Mish {
  static constexpr const char* kName = "Mish";
  HS_HD double operator()(double x) const { return x * elementary::tanh(Softplus{}(x)); }
};
/// x HardSigmoid(x) with alpha 1/6 and beta 1/2.
struct HardSwish {
  static constexpr const char* kName = "HardSwish";
  HS_HD double operator()(double x) const {
    const double gate = x <= -3.0 ? 0.0 : x >= 3.0 ? 1.0 : (x + 3.0) / 6.0;
    return x * gate;
  }
};
/// min(max(x, low), high).
struct Clip {
  static constexpr const char* kName = "Clip";
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  HS_HD double operator()(double x) const {
    const double raised = x < low ? low : x;
    return raised > high ? high : raised;
  }
};
/// x Phi(x) with the normal distribution Phi, or its approximation by tanh. (1 + tanh(u)) / 2 is
/// computed as sigmoid(2u), where nothing cancels.
struct Gelu {
  static constexpr const char* kName = "Gelu";
  bool tanh = false;
  HS_HD double operator()(double x) const {
    if (!tanh) return 0.5 * x * elementary::erfc(-x * kSqrtHalf);
    return x * logistic(gelu_exponent(x));
  }
  /// With `tanh` only.
  HS_HD static elementary::Bounded quick(double x) {
    const elementary::QuickLogistic s = elementary::quick_logistic(gelu_exponent(x));
    const double y = x * s.of_x;
    return {y, std::fabs(y) * kQuickFactor + s.unknown};
  }
};
/// x sigmoid(alpha x); SiLU with alpha 1.
struct Swish {
  static constexpr const char* kName = "Swish";
  double alpha = 1.0;
  HS_HD double operator()(double x) const { return x * logistic(alpha * x); }
  HS_HD elementary::Bounded quick(double x) const {
    const elementary::QuickLogistic s = elementary::quick_logistic(alpha * x);
    const double y = x * s.of_x;
    return {y, std::fabs(y) * kQuickFactor + s.unknown};
  }
};

// Functions of two operands.

struct Pow {
  static constexpr const char* kName = "Pow";
  HS_HD double operator()(double a, double b) const { return elementary::pow(a, b); }
  HS_HD static double exact(double a, double b, bool) {
    const double y = elementary::pow(a, b);
    return a != 0.0 && is_finite(a) && is_finite(b) && !(y != y) ? clamped_to_double(y) : y;
  }
};
struct Min {
  static constexpr const char* kName = "Min";
  HS_HD double operator()(double a, double b) const { return a < b || a != a ? a : b; }
};
struct Max {
  static constexpr const char* kName = "Max";
  HS_HD double operator()(double a, double b) const { return a > b || a != a ? a : b; }
};
struct PRelu {
  static constexpr const char* kName = "PRelu";
  HS_HD double operator()(double x, double slope) const { return x > 0.0 ? x : slope * x; }
};

// Gradients with respect to x, as functions of (dy, x) or, where noted, of (dy, y). Some consist of
// slow(x), which takes long and depends on x alone, and of finish(dy, x, slow(x)).

/// (dy, y)
struct ReciprocalGrad {
  static constexpr const char* kName = "ReciprocalGrad";
  HS_HD double operator()(double dy, double y) const { return -dy * y * y; }
};
struct ErfGrad {
  static constexpr const char* kName = "ErfGrad";
  HS_HD double slow(double x) const { return elementary::exp(-x * x); }
  HS_HD double finish(double dy, double, double exp) const { return dy * kTwoOverSqrtPi * exp; }
  HS_HD double operator()(double dy, double x) const { return finish(dy, x, slow(x)); }
};
/// (dy, y)
struct TanhGrad {
  static constexpr const char* kName = "TanhGrad";
  HS_HD double operator()(double dy, double y) const { return dy * (1.0 - y * y); }
};
/// (1 - x) (1 + x) where 1 - x^2 would cancel.
struct AcosGrad {
  static constexpr const char* kName = "AcosGrad";
  HS_HD double operator()(double dy, double x) const {
    return -dy / std::sqrt((1.0 - x) * (1.0 + x));
  }
};
struct AcoshGrad {
  static constexpr const char* kName = "AcoshGrad";
  HS_HD double operator()(double dy, double x) const {
    return dy / std::sqrt((x - 1.0) * (x + 1.0) + 0.0);  // + 0: never the root of -0
  }
};
struct AsinGrad {
  static constexpr const char* kName = "AsinGrad";
  HS_HD double operator()(double dy, double x) const {
    return dy / std::sqrt((1.0 - x) * (1.0 + x));
  }
};
struct AsinhGrad {
  static constexpr const char* kName = "AsinhGrad";
  HS_HD double operator()(double dy, double x) const { return dy / std::sqrt(1.0 + x * x); }
};
struct AtanGrad {
  static constexpr const char* kName = "AtanGrad";
  HS_HD double operator()(double dy, double x) const { return dy / (1.0 + x * x); }
};
struct AtanhGrad {
  static constexpr const char* kName = "AtanhGrad";
  HS_HD double operator()(double dy, double x) const { return dy / ((1.0 - x) * (1.0 + x)); }
};
/// (dy, y)
struct SigmoidGrad {
  static constexpr const char* kName = "SigmoidGrad";
  HS_HD double operator()(double dy, double y) const { return dy * (1.0 - y) * y; }
};
struct LeakyReluGrad {
  static constexpr const char* kName = "LeakyReluGrad";
  double alpha = 0.01;
  HS_HD double operator()(double dy, double x) const { return x > 0.0 ? dy : alpha * dy; }
};
struct EluGrad {
  static constexpr const char* kName = "EluGrad";
  double alpha = 1.0;
  HS_HD double slow(double x) const { return elementary::exp(x); }
  HS_HD double finish(double dy, double x, double exp) const {
    return x > 0.0 ? dy : dy * alpha * exp;
  }
  HS_HD double operator()(double dy, double x) const { return finish(dy, x, slow(x)); }
};
struct SoftplusGrad {
  static constexpr const char* kName = "SoftplusGrad";
  HS_HD double slow(double x) const { return logistic(x); }
  HS_HD double finish(double dy, double, double slope) const { return dy * slope; }
  HS_HD double operator()(double dy, double x) const { return finish(dy, x, slow(x)); }
};
struct LogSigmoidGrad {
  static constexpr const char* kName = "LogSigmoidGrad";
  HS_HD double slow(double x) const { return logistic(-x); }
  HS_HD double finish(double dy, double, double slope) const { return dy * slope; }
  HS_HD double operator()(double dy, double x) const { return finish(dy, x, slow(x)); }
};
struct MishGrad {
  static constexpr const char* kName = "MishGrad";
  HS_HD double slow(double x) const {
    const double t = elementary::tanh(Softplus{}(x));
    return t + x * (1.0 - t * t) * logistic(x);
  }
  HS_HD double finish(double dy, double, double slope) const { return dy * slope; }
  HS_HD double operator()(double dy, double x) const { return finish(dy, x, slow(x)); }
};
/// 0 on the corners, too.
struct HardSigmoidGrad {
  static constexpr const char* kName = "HardSigmoidGrad";
  double alpha = 0.2, beta = 0.5;
  HS_HD double operator()(double dy, double x) const {
    const double line = alpha * x + beta;
    return line > 0.0 && line < 1.0 ? alpha * dy : 0.0;
  }
};
/// Corners belong to the outside (PyTorch from 2.8 on).
struct HardSwishGrad {
  static constexpr const char* kName = "HardSwishGrad";
  HS_HD double operator()(double dy, double x) const {
    return x <= -3.0 ? 0.0 : x >= 3.0 ? dy : dy * (x / 3.0 + 0.5);
  }
};
/// No gradient passes at the bounds, as in PyTorch since 2.15 (hardtanh and relu6 always did that),
/// nor for a NaN.
struct ClipGrad {
  static constexpr const char* kName = "ClipGrad";
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();  ///< a missing bound
  double low = -kInfinity, high = kInfinity;
  HS_HD double operator()(double dy, double x) const {
    const bool above = x > low || (low == -kInfinity && x == low);
    const bool below = x < high || (high == kInfinity && x == high);
    return above && below ? dy : 0.0;
  }
};
struct GeluGrad {
  static constexpr const char* kName = "GeluGrad";
  bool tanh = false;
  HS_HD double slow(double x) const {
    if (!tanh) {
      const double density = 0.5 * kTwoOverSqrtPi * kSqrtHalf * elementary::exp(-0.5 * x * x);
      return 0.5 * elementary::erfc(-x * kSqrtHalf) + x * density;
    }
    const double u = gelu_exponent(x), s = logistic(u);
    const double slope = 2.0 * kSqrtTwoOverPi * (1.0 + 3.0 * kGeluCubic * x * x);
    return s + x * s * logistic(-u) * slope;
  }
  /// With `tanh` only.
  HS_HD static elementary::Bounded quick(double dy, double x) {
    const elementary::QuickLogistic s = elementary::quick_logistic(gelu_exponent(x));
    const double slope = 2.0 * kSqrtTwoOverPi * (1.0 + 3.0 * kGeluCubic * x * x);
    const double rest = x * s.of_x * s.of_minus_x * slope;
    return quick_product(dy, s.of_x + rest, (s.of_x + std::fabs(rest)) * kQuickFactor, s.unknown);
  }
  HS_HD double finish(double dy, double, double slope) const { return dy * slope; }
  HS_HD double operator()(double dy, double x) const { return finish(dy, x, slow(x)); }
};
struct SwishGrad {
  static constexpr const char* kName = "SwishGrad";
  double alpha = 1.0;
  HS_HD double slow(double x) const { return logistic(alpha * x); }
  HS_HD double finish(double dy, double x, double s) const {
    return dy * s * (1.0 + alpha * x * (1.0 - s));
  }
  HS_HD elementary::Bounded quick(double dy, double x) const {
    const elementary::QuickLogistic s = elementary::quick_logistic(alpha * x);
    const double rest = alpha * x * (1.0 - s.of_x);
    const double error = s.of_x * (1.0 + std::fabs(alpha * x)) * kQuickFactor;
    return quick_product(dy, s.of_x * (1.0 + rest), error, s.unknown);
  }
  HS_HD double operator()(double dy, double x) const { return finish(dy, x, slow(x)); }
};
/// Gradient of the slope: (dy, x).
struct PReluSlopeGrad {
  static constexpr const char* kName = "PReluSlopeGrad";
  HS_HD double operator()(double dy, double x) const { return x > 0.0 ? 0.0 : dy * x; }
};

// Gradients as functions of (dy, both operands).

struct PReluGrad {
  static constexpr const char* kName = "PReluGrad";
  HS_HD double operator()(double dy, double x, double slope) const {
    return x > 0.0 ? dy : slope * dy;
  }
};
/// Gradient of Max(a, b) with respect to a; half of it if both are equal. For Min(a, b): (dy, b,
/// a).
struct MaxGrad {
  static constexpr const char* kName = "MaxGrad";
  HS_HD double operator()(double dy, double a, double b) const {
    return a < b ? 0.0 : a == b ? 0.5 * dy : dy;
  }
};
/// Gradient with respect to the base; 0 for an exponent of 0.
struct PowGrad {
  static constexpr const char* kName = "PowGrad";
  HS_HD double operator()(double dy, double a, double b) const {
    return b == 0.0 ? 0.0 : dy * (b * elementary::pow(a, b - 1.0));
  }
};
/// Gradient with respect to the exponent; 0 for 0^b with b >= 0.
struct PowExponentGrad {
  static constexpr const char* kName = "PowExponentGrad";
  HS_HD double operator()(double dy, double a, double b) const {
    return a == 0.0 && b >= 0.0 ? 0.0 : dy * (elementary::pow(a, b) * elementary::log(a));
  }
};

}  // namespace halfscope::fn

namespace halfscope {

// Every backend makes kernels from these lists, by the number of operands.
using UnaryFunctions =
    FunctionList<fn::Abs, fn::Acos, fn::Acosh, fn::Asin, fn::Asinh, fn::Atan, fn::Atanh, fn::Ceil,
                 fn::Clip, fn::Cos, fn::Elu, fn::Erf, fn::Floor, fn::Gelu, fn::HardSigmoid,
                 fn::HardSwish, fn::LeakyRelu, fn::LogSigmoid, fn::Mish, fn::Reciprocal, fn::Round,
                 fn::Sigmoid, fn::Sign, fn::Sin, fn::Softplus, fn::Swish, fn::Tanh>;
using BinaryFunctions =
    FunctionList<fn::Max, fn::Min, fn::PRelu, fn::Pow, fn::AcosGrad, fn::AcoshGrad, fn::AsinGrad,
                 fn::AsinhGrad, fn::AtanGrad, fn::AtanhGrad, fn::ClipGrad, fn::EluGrad, fn::ErfGrad,
                 fn::GeluGrad, fn::HardSigmoidGrad, fn::HardSwishGrad, fn::LeakyReluGrad,
                 fn::LogSigmoidGrad, fn::MishGrad, fn::PReluSlopeGrad, fn::ReciprocalGrad,
                 fn::SigmoidGrad, fn::SoftplusGrad, fn::SwishGrad, fn::TanhGrad>;
using TernaryFunctions = FunctionList<fn::MaxGrad, fn::PReluGrad, fn::PowGrad, fn::PowExponentGrad>;

}  // namespace halfscope
