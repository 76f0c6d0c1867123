// SPDX-License-Identifier: MIT
// asin, acos, atan, asinh, acosh and atanh in double, built as the functions of elementary.h are:
// IEEE 754's operations (here with its square root) on sums of two doubles, no branches. Every
// result is one angle or one logarithm of a quotient that is known to some 2^-75.
#pragma once

#include <cmath>

#include "core/host_device.h"
#include "core/numeric/elementary/elementary.h"

namespace halfscope::elementary {

/// Below this, functions through the origin with slope 1 equal their argument to within a third of
/// a unit in the last place.
inline constexpr double kNearlyItself = 0x1p-27;

/// Returns the square root of x >= 0 with an error of some 2^-100.
HS_HD inline Pair root(Pair x) noexcept {
  const double r = std::sqrt(x.high);
  const Pair square = product(r, r);
  const double rest = ((x.high - square.high) - square.low) + x.low;
  return {r, r == 0.0 ? 0.0 : rest / (2.0 * r)};
}
/// Returns a + b for b >= 0 and a >= 0 or a = -1.
HS_HD inline Pair sum(double a, Pair b) noexcept {
  const Pair high = sum(a, b.high);
  return {high.high, high.low + b.low};
}

// Angles.

/// Returns atan(n / d) for n, d >= 0 that are not both 0; d = 0 gives pi / 2. It is atan(c) +
/// atan((n - c d) / (d + c n)) with that c of 0, 1/2, 1, 2 and infinity whose angle is nearest; the
/// second quotient is at most tan(atan(1/2) / 2).
HS_HD inline Pair angle_of(Pair n, Pair d) noexcept {
  double c = 0.0;
  Pair angle{0.0, 0.0};
  const auto from = [&](double tangent, double next, double high, double low) {
    const bool reached = n.high > tangent * d.high;
    c = reached ? next : c;
    angle = reached ? Pair{high, low} : angle;
  };
  from(0.236, 0.5, kAtanHalfHigh, kAtanHalfLow);
  from(0.72, 1.0, 0.5 * kHalfPiHigh, 0.5 * kHalfPiLow);
  from(1.387, 2.0, kAtanTwoHigh, kAtanTwoLow);
  from(4.236, 0.0, kHalfPiHigh, kHalfPiLow);
  const bool right = n.high > 4.236 * d.high;
  const Pair over = sum(n.high, -c * d.high), under = sum(d.high, c * n.high);
  const Pair left_over{over.high, over.low + (n.low - c * d.low)};
  const Pair left_under{under.high, under.low + (d.low + c * n.low)};
  const Pair q = quotient(right ? Pair{-d.high, -d.low} : left_over, right ? n : left_under);
  const double s = q.high + q.low, z = s * s;
  const double tail = s * z * (z * polynomial<AtanTail>(z) - kThirdHigh);
  const Pair first = sum_of_ordered(angle.high, q.high);
  return {first.high, first.low + (angle.low + (q.low + tail))};
}
HS_HD inline double atan(double x) noexcept {
  const double m = magnitude(x);
  const Pair angle = angle_of({m > 0x1p80 ? 0x1p80 : m, 0.0}, {1.0, 0.0});
  const double result = m < kNearlyItself ? m : angle.high + angle.low;
  return m == m ? with_sign(result, x) : kNaN;
}
/// Returns sqrt(1 - m^2) for 0 <= m <= 1.
HS_HD inline Pair other_leg(double m) noexcept { return root(product(sum(1.0, -m), sum(1.0, m))); }
HS_HD inline double asin(double x) noexcept {
  const double m = magnitude(x);
  const Pair angle = angle_of({m, 0.0}, other_leg(m));
  const double result = m < kNearlyItself ? m : angle.high + angle.low;
  return m <= 1.0 ? with_sign(result, x) : kNaN;
}
HS_HD inline double acos(double x) noexcept {
  const double m = magnitude(x);
  const Pair angle = angle_of(other_leg(m), {m, 0.0});
  const Pair left = sum_of_ordered(2.0 * kHalfPiHigh, -angle.high);
  const double beyond = left.high + (left.low + (2.0 * kHalfPiLow - angle.low));
  return m <= 1.0 ? (x < 0.0 ? beyond : angle.high + angle.low) : kNaN;
}

// Areas.

/// Returns log(1 + u), or log(2 x) if `far`, for u >= 0 and finite x.
HS_HD inline double log_of_area(Pair u, double x, bool far) noexcept {
  const Pair one = sum(1.0, u);
  const Split parts = split(far ? x : one.high);
  const double inverse = power_of_two(kShifter - (parts.k > 200.0 ? 200.0 : parts.k));
  const Pair f = sum_of_ordered(parts.m - 1.0, far ? 0.0 : one.low * inverse);
  return log_of_parts(f, parts.k + (far ? 1.0 : 0.0));
}
/// From here on, asinh(x) and acosh(x) are log(2 x).
inline constexpr double kFar = 0x1p28;

/// log(m + sqrt(m^2 + 1)), with 1 taken out: u = m + m^2 / (1 + sqrt(m^2 + 1)).
HS_HD inline double asinh(double x) noexcept {
  const double m = magnitude(x);
  const Pair square = product(m, m);
  const Pair u = sum(m, quotient(square, sum(1.0, root(sum(1.0, square)))));
  const double area = log_of_area(u, m, m > kFar);
  return m == m ? with_sign(m < kNearlyItself || m == kInfinity ? m : area, x) : kNaN;
}
/// log(x + sqrt(x^2 - 1)), with 1 taken out: u = x - 1 + sqrt((x - 1) (x + 1)).
HS_HD inline double acosh(double x) noexcept {
  const Pair t = sum(x, -1.0), leg = root(product(t, sum(x, 1.0)));
  const Pair high = sum(t.high, leg.high);
  const double area = log_of_area({high.high, high.low + (t.low + leg.low)}, x, x > kFar);
  return x >= 1.0 ? (x == kInfinity ? x : area) : kNaN;
}
/// log((1 + m) / (1 - m)) / 2, with 1 taken out: u = 2 m / (1 - m).
HS_HD inline double atanh(double x) noexcept {
  const double m = magnitude(x);
  const double area = log_of_area(quotient({2.0 * m, 0.0}, sum(1.0, -m)), 0.0, false);
  const double end = m == 1.0 ? kInfinity : kNaN;
  return m < 1.0 ? with_sign(m < kNearlyItself ? m : 0.5 * area, x) : with_sign(end, x);
}

}  // namespace halfscope::elementary
