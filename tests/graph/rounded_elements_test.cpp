// SPDX-License-Identifier: MIT
// +, -, *, / and square roots in rounding modes other than nearest even: one rounding of the exact
// result, for every instruction set. The oracle compares exact results, as fractions of integers of
// any length, with the numbers of the format, which it enumerates from their definition.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "core/lower/execution.h"
#include "emulation/backends.h"
#include "emulation/isa.h"
#include "tests/numeric/enumerated_format.h"
#include "tests/special_values.h"
#include "tests/support/op_harness.h"

namespace halfscope {
namespace {

using test::OpProgram;
using ::testing::ElementsAre;
using testing::EnumeratedFormat;

/// An integer that is not negative.
class Integer {
 public:
  explicit Integer(uint64_t x = 0) {
    for (; x != 0; x >>= 32) digits_.push_back(static_cast<uint32_t>(x));
  }
  Integer shifted(int bits) const {
    Integer result;
    result.digits_.assign(static_cast<size_t>(bits / 32), 0);
    uint64_t carry = 0;
    for (const uint32_t digit : digits_) {
      carry |= static_cast<uint64_t>(digit) << (bits % 32);
      result.digits_.push_back(static_cast<uint32_t>(carry));
      carry >>= 32;
    }
    result.digits_.push_back(static_cast<uint32_t>(carry));
    return result.trimmed();
  }
  Integer operator+(const Integer& other) const {
    Integer result;
    uint64_t carry = 0;
    for (size_t i = 0; i < std::max(digits_.size(), other.digits_.size()) + 1; ++i) {
      carry += uint64_t{at(i)} + other.at(i);
      result.digits_.push_back(static_cast<uint32_t>(carry));
      carry >>= 32;
    }
    return result.trimmed();
  }
  /// Subtracts a smaller integer.
  Integer operator-(const Integer& other) const {
    Integer result;
    int64_t borrow = 0;
    for (size_t i = 0; i < digits_.size(); ++i) {
      borrow += int64_t{at(i)} - int64_t{other.at(i)};
      result.digits_.push_back(static_cast<uint32_t>(borrow));
      borrow >>= 32;
    }
    return result.trimmed();
  }
  Integer operator*(const Integer& other) const {
    Integer result;
    result.digits_.assign(digits_.size() + other.digits_.size(), 0);
    for (size_t i = 0; i < digits_.size(); ++i) {
      uint64_t carry = 0;
      for (size_t j = 0; j < other.digits_.size() || carry != 0; ++j) {
        carry += uint64_t{digits_[i]} * other.at(j) + result.digits_[i + j];
        result.digits_[i + j] = static_cast<uint32_t>(carry);
        carry >>= 32;
      }
    }
    return result.trimmed();
  }
  /// Negative, 0 or positive.
  int compared(const Integer& other) const {
    if (digits_.size() != other.digits_.size()) {
      return digits_.size() < other.digits_.size() ? -1 : 1;
    }
    for (size_t i = digits_.size(); i-- > 0;) {
      if (digits_[i] != other.digits_[i]) return digits_[i] < other.digits_[i] ? -1 : 1;
    }
    return 0;
  }
  bool zero() const { return digits_.empty(); }

 private:
  uint32_t at(size_t i) const { return i < digits_.size() ? digits_[i] : 0; }
  Integer trimmed() const {
    Integer result = *this;
    while (!result.digits_.empty() && result.digits_.back() == 0) result.digits_.pop_back();
    return result;
  }
  std::vector<uint32_t> digits_;  // the lowest first
};

/// Numbers are held in units of 2^-kUnit.
constexpr int kUnit = 220;

Integer units(double x) {
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(x), &exponent);
  const auto significand = static_cast<uint64_t>(std::ldexp(fraction, 53));
  const int shift = exponent - 53 + kUnit;
  if (shift >= 0) return Integer(significand).shifted(shift);
  EXPECT_EQ(significand >> -shift << -shift, significand) << x;
  return Integer(significand >> -shift);
}

/// The magnitude of an exact result, in units: numerator / denominator, or the root of that.
struct Exact {
  Integer numerator, denominator{1};
  bool root = false;
  bool negative = false;

  /// The sign of its difference from a number.
  int compared(double number) const {
    const Integer other = units(number);
    return numerator.compared(root ? other * other : other * denominator);
  }
};

Exact exact_result(const std::string& op, float a, float b) {
  const Integer x = units(static_cast<double>(a)), y = units(static_cast<double>(b));
  if (op == "Mul")
    return {x * y, Integer(1).shifted(kUnit), false, std::signbit(a) != std::signbit(b)};
  if (op == "Div") return {x.shifted(kUnit), y, false, std::signbit(a) != std::signbit(b)};
  if (op == "Sqrt") return {x.shifted(kUnit), Integer(1), true, false};
  const bool minus = std::signbit(b) != (op == "Sub");
  if (std::signbit(a) == minus) return {x + y, Integer(1), false, minus};
  return x.compared(y) < 0 ? Exact{y - x, Integer(1), false, minus}
                           : Exact{x - y, Integer(1), false, std::signbit(a)};
}

/// Position of an exact result among the numbers of a format.
struct Place {
  int64_t low;  ///< the last code that is not larger; finite_codes() beyond all
  bool exact;
  int half_way;  ///< the sign of the difference from the middle to the next
};

Place place_of(const Exact& exact, double about, const EnumeratedFormat& format) {
  int64_t low = format.code_below(std::fabs(about));
  while (low > 0 && exact.compared(format.decode(low)) < 0) --low;
  while (low < format.finite_codes() && exact.compared(format.decode(low + 1)) >= 0) ++low;
  if (low == format.finite_codes()) return {low, false, 1};
  return {low, exact.compared(format.decode(low)) == 0, exact.compared(format.midpoint(low))};
}

float rounded(const Exact& exact, const Place& place, const Rounding& how,
              const EnumeratedFormat& format) {
  int64_t code = place.low;
  if (!place.exact && code < format.finite_codes()) {
    const double below = format.decode(code), step = format.decode(code + 1) - below;
    switch (how.mode) {
      case RoundingMode::nearest_even:
        code += place.half_way > 0 || (place.half_way == 0 && code % 2 != 0) ? 1 : 0;
        break;
      case RoundingMode::nearest_away:
        code += place.half_way >= 0 ? 1 : 0;
        break;
      case RoundingMode::toward_zero:
        break;
      case RoundingMode::up:
        code += exact.negative ? 0 : 1;
        break;
      case RoundingMode::down:
        code += exact.negative ? 1 : 0;
        break;
      case RoundingMode::odd:
        code += code % 2 == 0 ? 1 : 0;
        break;
      case RoundingMode::stochastic: {
        // The fraction, cut to N bits, reaches 2^N - R if the fraction does.
        const double whole = std::ldexp(1.0, how.random_bits);
        const double wanted = whole - static_cast<double>(how.random);
        if (wanted < whole && exact.compared(below + step * (wanted / whole)) >= 0) ++code;
        break;
      }
    }
  }
  const bool plain_zero = format.format().encoding == Encoding::fnuz;
  double size = 0;
  if (code < format.finite_codes()) {
    size = format.decode(code);
  } else {
    const bool stays = how.mode == RoundingMode::toward_zero || how.mode == RoundingMode::odd ||
                       how.mode == (exact.negative ? RoundingMode::up : RoundingMode::down);
    size = stays ? format.largest() : format.format().has_infinity() ? INFINITY : NAN;
  }
  const bool negative = exact.negative && !(plain_zero && size == 0);
  return static_cast<float>(negative ? -size : size);
}

/// y = op(a, b), or op(a), with y in a format and rounded; and how its elements were rounded.
struct Outcome {
  std::vector<float> y;
  TensorRounding how;
};
Outcome run(const std::string& op, const std::vector<float>& a, const std::vector<float>& b,
            const FloatFormat& format, const RoundingChoice& rounding) {
  const Shape shape{static_cast<int64_t>(a.size())};
  std::vector<test::Operand> operands{{Tensor{shape, a}}};
  if (op != "Sqrt" && op != "Exp") operands.push_back({Tensor{shape, b}});
  Outcome result;
  const auto make = [&](Graph& graph, const std::vector<ValueId>& inputs) {
    return graph.add(op, "node", inputs, {}).front();
  };
  const auto adjust = [&](Graph& graph) {
    for (const Node& node : graph.nodes()) {
      if (node.path != "node") continue;
      graph.value(node.outputs[0]).format = format;
      graph.value(node.outputs[0]).rounding = rounding;
      result.how = rounding_now(rounding, node.outputs[0], {});
      return;  // the nodes of its gradients come later
    }
  };
  OpProgram program(emulation_backend(), operands, make, std::nullopt, false, adjust);
  program.run();
  result.y = program.output().data;
  return result;
}

/// Pairs that are hard to round: numbers of the format and any others, near each other and far.
void add_pairs(const EnumeratedFormat& format, int64_t count, std::vector<float>& a,
               std::vector<float>& b) {
  std::mt19937_64 random(7);
  const auto number = [&] {  // a number of the format
    const int64_t code =
        static_cast<int64_t>(random() % static_cast<uint64_t>(format.finite_codes()));
    const float size = static_cast<float>(format.decode(code));
    return random() % 2 == 0 ? size : -size;
  };
  const auto any = [&] {
    float x = NAN;
    while (!std::isfinite(x)) x = std::bit_cast<float>(static_cast<uint32_t>(random()));
    return x;
  };
  for (int64_t i = 0; i < count; ++i) {
    float x = number(), y = number();
    switch (i % 8) {
      case 0:  // exact differences of zero
        y = random() % 2 == 0 ? x : -x;
        break;
      case 1:  // far apart: the exact sum is hardly more than x
        y = static_cast<float>(
            std::ldexp(static_cast<double>(x), -30 - static_cast<int>(random() % 40)));
        break;
      case 2:
        x = any();
        break;
      case 3:
        x = any(), y = any();
        break;
      case 4:  // quotients and products next to numbers of the format
        x = std::nextafter(x, random() % 2 == 0 ? kInf : -kInf);
        break;
      case 5:  // at the ends
        x = static_cast<float>(random() % 2 == 0 ? format.largest() : format.decode(1));
        break;
      case 6:
        x = static_cast<float>(format.largest()),
        y = std::ldexp(x, -static_cast<int>(random() % 40));
        break;
      default:
        break;
    }
    if (random() % 50 == 0) x = random() % 2 == 0 ? 0.0f : -0.0f;
    if (random() % 50 == 0) y = random() % 2 == 0 ? 0.0f : -0.0f;
    a.push_back(std::isfinite(x) ? x : 1.0f);
    b.push_back(std::isfinite(y) ? y : 1.0f);
  }
}

std::string describe(const std::string& op, const FloatFormat& format, const RoundingChoice& how,
                     float a, float b) {
  std::ostringstream text;
  text << std::hexfloat << op << ' ' << format_name(format) << ' ' << rounding_name(how) << ' ' << a
       << ' ' << b;
  return text.str();
}

class RoundedElements : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Formats, RoundedElements,
                         ::testing::Values("fp16", "bf16", "tf32", "e4m3fn", "e5m2", "e4m3b11fnuz",
                                           "e6m9", "e8m22", "e5m23", "e8m3b147"));

TEST_P(RoundedElements, AreExactResultsRoundedOnce) {
  const EnumeratedFormat format(parse_format(GetParam()).value());
  std::vector<float> all_a, all_b;
  add_pairs(format, 1200, all_a, all_b);
  std::vector<RoundingChoice> choices{{RoundingMode::stochastic, 1}, {RoundingMode::stochastic, 8}};
  for (const RoundingMode mode : kAllRoundingModes) {
    if (mode != RoundingMode::nearest_even) choices.push_back({mode});
  }
  const Isa before = active_isa();
  for (const std::string op : {"Add", "Sub", "Mul", "Div", "Sqrt"}) {
    std::vector<float> a = all_a, b = all_b;
    if (op == "Div")
      std::replace_if(
          b.begin(), b.end(), [](float x) { return x == 0; }, 3.0f);
    if (op == "Sqrt")
      std::transform(a.begin(), a.end(), a.begin(), [](float x) { return std::fabs(x); });
    std::vector<Exact> exact;
    std::vector<Place> places;
    for (size_t i = 0; i < a.size(); ++i) {
      const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
      exact.push_back(exact_result(op, a[i], b[i]));
      const double about = op == "Add"   ? x + y
                           : op == "Sub" ? x - y
                           : op == "Mul" ? x * y
                           : op == "Div" ? x / y
                                         : std::sqrt(x);
      places.push_back(place_of(exact[i], about, format));
    }
    for (const RoundingChoice& how : choices) {
      // Beyond 52 bits only whether there is anything counts.
      const bool many = how.mode == RoundingMode::stochastic &&
                        format.format().mantissa_bits + how.random_bits > 51;
      if (many) continue;
      for (const Isa isa : supported_isas()) {
        set_active_isa(isa);
        const Outcome got = run(op, a, b, format.format(), how);
        for (size_t i = 0; i < a.size(); ++i) {
          float want =
              rounded(exact[i], places[i], got.how.element(static_cast<int64_t>(i)), format);
          const bool sum = op == "Add" || op == "Sub";
          if (sum && exact[i].numerator.zero()) {  // IEEE 754-2019, 6.3
            const float other = op == "Sub" ? -b[i] : b[i];
            const bool same = std::signbit(a[i]) == std::signbit(other);
            const bool minus = same ? std::signbit(other) : how.mode == RoundingMode::down;
            want = minus && format.format().has_negative_zero() ? -0.0f : 0.0f;
          }
          const bool equal =
              std::isnan(want) ? std::isnan(got.y[i])
                               : std::bit_cast<uint32_t>(want) == std::bit_cast<uint32_t>(got.y[i]);
          ASSERT_TRUE(equal) << describe(op, format.format(), how, a[i], b[i]) << ": " << got.y[i]
                             << " instead of " << want << " on " << isa_name(isa);
        }
      }
    }
  }
  set_active_isa(before);
}

std::vector<float> results(const char* op, const std::vector<float>& a, const std::vector<float>& b,
                           const FloatFormat& format, RoundingMode mode) {
  return run(op, a, b, format, {mode}).y;
}

TEST(RoundedElementsByHand, RoundTheExactResult) {
  constexpr float kMost = 0x1.fep127f;  // bf16's largest
  // 4006 + 2^-24 is above 4006 but takes 36 bits; fp16 has 4004, 4006 and 4008 there.
  EXPECT_THAT(results("Add", {4006, -4006}, {0x1p-24f, -0x1p-24f}, kFp16, RoundingMode::up),
              ElementsAre(4008, -4006));
  EXPECT_THAT(results("Add", {4006, 4006}, {0x1p-24f, -0x1p-24f}, kFp16, RoundingMode::down),
              ElementsAre(4006, 4004));
  EXPECT_THAT(results("Sub", {4006, 4006}, {0x1p-24f, -0x1p-24f}, kFp16, RoundingMode::toward_zero),
              ElementsAre(4004, 4006));
  // Half way between 2048 and 2050, and a little less.
  EXPECT_THAT(results("Add", {2049, 2049}, {0, -0x1p-24f}, kFp16, RoundingMode::nearest_away),
              ElementsAre(2050, 2048));
  EXPECT_THAT(results("Mul", {kMost, -kMost}, {2, 2}, kBf16, RoundingMode::toward_zero),
              ElementsAre(kMost, -kMost));
  EXPECT_THAT(results("Add", {kMost, -kMost}, {kMost, -kMost}, kBf16, RoundingMode::up),
              ElementsAre(kInf, -kMost));
  EXPECT_THAT(results("Div", {kMost}, {0x1p-100f}, kBf16, RoundingMode::down), ElementsAre(kMost));
  EXPECT_THAT(results("Mul", {kMost}, {kMost}, kBf16, RoundingMode::nearest_away),
              ElementsAre(kInf));
  // Below the smallest subnormal number of fp32, too.
  EXPECT_THAT(
      results("Mul", {0x1p-126f, -0x1p-126f}, {0x1p-126f, 0x1p-126f}, kBf16, RoundingMode::up),
      ElementsAre(0x1p-133f, 0));
}

TEST(RoundedElementsByHand, SignsOfZero) {
  const auto signs = [](const char* op, float a, float b, RoundingMode mode) {
    const float y = results(op, {a}, {b}, kFp16, mode).at(0);
    EXPECT_EQ(y, 0.0f);
    return std::signbit(y);
  };
  for (const RoundingMode mode : kAllRoundingModes) {
    const bool down = mode == RoundingMode::down;
    EXPECT_EQ(signs("Sub", 1.5f, 1.5f, mode), down);
    EXPECT_EQ(signs("Add", -1.5f, 1.5f, mode), down);
    EXPECT_EQ(signs("Add", 0.0f, -0.0f, mode), down);
    EXPECT_EQ(signs("Sub", -0.0f, -0.0f, mode), down);
    EXPECT_FALSE(signs("Add", 0.0f, 0.0f, mode));
    EXPECT_TRUE(signs("Add", -0.0f, -0.0f, mode));
    EXPECT_TRUE(signs("Mul", -0.0f, 2.0f, mode));
    EXPECT_TRUE(signs("Div", 0.0f, -2.0f, mode));
    EXPECT_TRUE(signs("Sqrt", -0.0f, 0.0f, mode));
  }
}

TEST(RoundedElementsByHand, InfinitiesAndNotANumber) {
  for (const RoundingMode mode : kAllRoundingModes) {
    const std::vector<float> y =
        results("Add", {kInf, -kInf, kInf, NAN}, {1, 1, -kInf, 1}, kBf16, mode);
    EXPECT_EQ(y[0], kInf);
    EXPECT_EQ(y[1], -kInf);
    EXPECT_TRUE(std::isnan(y[2]) && std::isnan(y[3]));
    const std::vector<float> quotients =
        results("Div", {1, -1, 0, kInf}, {0, 0, 0, kInf}, kFp16, mode);
    EXPECT_EQ(quotients[0], kInf);
    EXPECT_EQ(quotients[1], -kInf);
    EXPECT_TRUE(std::isnan(quotients[2]) && std::isnan(quotients[3]));
    EXPECT_TRUE(std::isnan(results("Sqrt", {-1}, {}, kFp16, mode).at(0)));
  }
}

// Results below or above double's range are neither zero nor infinite.
TEST(RoundedElementsByHand, ExponentialsBeyondDouble) {
  EXPECT_THAT(results("Exp", {1000, -1000, kInf, -kInf}, {}, kBf16, RoundingMode::toward_zero),
              ElementsAre(0x1.fep127f, 0, kInf, 0));
  EXPECT_THAT(results("Exp", {1000, -1000, -kInf}, {}, kBf16, RoundingMode::up),
              ElementsAre(kInf, 0x1p-133f, 0));
  EXPECT_THAT(
      results("Pow", {10, -10, 10, 0, 0}, {999, 999, -999, 2, -1}, kFp16, RoundingMode::odd),
      ElementsAre(65504, -65504, 0x1p-24f, 0, kInf));
}

// Without effect in fp32, where arithmetic rounds to nearest itself.
TEST(RoundedElementsByHand, SinglePrecisionStaysAsItIs) {
  EXPECT_THAT(results("Add", {1, 1}, {0x1p-30f, -1}, kFp32, RoundingMode::up), ElementsAre(1, 0));
  EXPECT_FALSE(std::signbit(results("Sub", {1}, {1}, kFp32, RoundingMode::down).at(0)));
}

}  // namespace
}  // namespace halfscope
