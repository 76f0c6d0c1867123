// SPDX-License-Identifier: MIT
#include "core/lab/walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/lab/number_text.h"
#include "core/numeric/formats/arithmetic.h"
#include "core/numeric/formats/round.h"
#include "core/numeric/statistics/ulp.h"
#include "core/numeric/sums/accumulate.h"
#include "core/numeric/sums/tensor_core.h"

namespace halfscope::lab {
namespace {

std::string short_value(double value) { return brief_text(value, 9); }

BitRow row_of(std::string name, const ExactBits& bits, int cut = BitRow::kNoCut) {
  return {
      .name = std::move(name), .value = short_value(bits.approximate()), .bits = bits, .cut = cut};
}

BitRow result_row(std::string name, float value) {
  BitRow row = row_of(std::move(name), ExactBits(static_cast<double>(value)));
  row.value = short_value(static_cast<double>(value));
  row.result = true;
  return row;
}

/// Returns the exponent of the last place that a result near `exact` has in the format.
int last_place(const ExactBits& exact, const FloatFormat& format) {
  return std::max(exact.high(), format.min_exponent()) - format.mantissa_bits;
}

/// Returns how a rounding to the last place 2^cut went.
std::string rounding_text(const ExactBits& exact, float rounded, int cut) {
  if (!std::isfinite(rounded)) return "The result is beyond the largest number: it overflows.";
  const double kept = std::fabs(exact.truncated(cut).approximate());
  if (std::fabs(static_cast<double>(rounded)) < kept) {
    return rounded == 0.0f ? "The format flushes results this small to 0."
                           : "The result is beyond the largest number: it saturates.";
  }
  const ExactBits lost = exact - exact.truncated(cut);
  if (lost.zero()) return "Nothing is lost.";
  const ExactBits half(std::ldexp(1.0, cut - 1));
  const ExactBits size = lost.negative() ? -lost : lost;
  const bool tie = size == half;
  const bool up = std::fabs(static_cast<double>(rounded)) > kept;
  const char* const where = up ? "rounds up" : "rounds down";
  if (tie) return fmt::format("The lost bits are exactly half: it {}, to an even last bit.", where);
  return fmt::format("The lost bits are {} than half of the last place: it {}.",
                     (size - half).negative() ? "less" : "more", where);
}

bool all_finite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
}

const char* const kNotFinite = "Enter finite numbers.";

}  // namespace

Walk fma_walk(const FloatFormat& format, float a, float b, float c) {
  Walk walk;
  if (!all_finite(std::array{a, b, c})) {
    walk.problem = kNotFinite;
    return walk;
  }
  const std::string name = format_name(format);
  const ExactBits x(static_cast<double>(a)), y(static_cast<double>(b)), z(static_cast<double>(c));
  const ExactBits product = x * y, exact = product + z;
  const float rounded_product = mul(a, b, format).value;
  walk.separate = add(rounded_product, c, format).value;
  walk.result = fma(a, b, c, format).value;
  walk.exact = exact.approximate();
  walk.steps.push_back({"Operands",
                        fmt::format("Three numbers of {}: {} significant bits each.", name,
                                    format.mantissa_bits + 1),
                        {row_of("a", x), row_of("b", y), row_of("c", z)}});
  walk.steps.push_back({"Exact product",
                        fmt::format("The product of two numbers with {} bits has up to {} bits.",
                                    format.mantissa_bits + 1, 2 * format.mantissa_bits + 2),
                        {row_of("a", x), row_of("b", y), row_of("a \u00d7 b", product)}});
  const int product_cut = last_place(product, format);
  walk.steps.push_back(
      {"Separate: round the product",
       fmt::format("A multiplication in {} has to drop the crossed out bits. {}", name,
                   rounding_text(product, rounded_product, product_cut)),
       {row_of("a \u00d7 b", product, product_cut), result_row("rounded", rounded_product)}});
  if (std::isfinite(rounded_product)) {
    const ExactBits sum = ExactBits(static_cast<double>(rounded_product)) + z;
    const int cut = last_place(sum, format);
    walk.steps.push_back(
        {"Separate: add c, round again",
         "The second rounding. " + rounding_text(sum, walk.separate, cut),
         {row_of("rounded a \u00d7 b", ExactBits(static_cast<double>(rounded_product))),
          row_of("c", z), row_of("exact sum", sum, cut), result_row("mul + add", walk.separate)}});
  }
  const int cut = last_place(exact, format);
  walk.steps.push_back({"Fused: add c to the exact product, round once",
                        "No bit of the product is lost before the addition. " +
                            rounding_text(exact, walk.result, cut),
                        {row_of("a \u00d7 b", product), row_of("c", z),
                         row_of("exact sum", exact, cut), result_row("fma", walk.result)}});
  const bool same =
      walk.separate == walk.result || (std::isnan(walk.separate) && std::isnan(walk.result));
  std::string verdict =
      same
          ? "Here both ways give the same number. Try operands that cancel, such as c = -(a \u00d7 "
            "b) rounded."
          : fmt::format("fma gives {}, mul + add gives {}. The exact result is {}.",
                        short_value(static_cast<double>(walk.result)),
                        short_value(static_cast<double>(walk.separate)), short_value(walk.exact));
  walk.steps.push_back({"Compare",
                        std::move(verdict),
                        {row_of("exact", exact), result_row("fma", walk.result),
                         result_row("mul + add", walk.separate)}});
  return walk;
}

Walk tensor_core_walk(std::string_view arch, const FloatFormat& input, std::span<const float> a,
                      std::span<const float> b, float c) {
  Walk walk;
  const std::optional<TensorCoreProfile> profile = tensor_core_profile(arch, input);
  if (!profile) {
    walk.problem =
        fmt::format("{} has no tensor core instruction for {}.", arch, format_name(input));
    return walk;
  }
  if (profile->path != TensorCorePath::native) {
    walk.problem = fmt::format("{} converts {} to fp16 first. Choose fp16, or another GPU.", arch,
                               format_name(input));
    return walk;
  }
  if (!all_finite(a) || !all_finite(b) || !std::isfinite(c)) {
    walk.problem = kNotFinite;
    return walk;
  }
  const FusedDot& unit = profile->dot;
  const size_t count = std::min({a.size(), b.size(), static_cast<size_t>(unit.products)});
  std::vector<float> x, y;
  std::vector<ExactBits> products;
  WalkStep multiply{"Multiply", "All products are exact.", {}};
  const ExactBits start(static_cast<double>(c));
  ExactBits exact = start;
  // Exponents as the hardware sees them: products of significands from 1 to 4 are not normalized.
  int largest = detail::kNoExponent;
  bool any_zero = c == 0.0f;
  if (c != 0.0f) largest = std::max(start.high(), -126);
  for (size_t k = 0; k < count; ++k) {
    x.push_back(round_to_format(a[k], profile->a_format).value);
    y.push_back(round_to_format(b[k], profile->b_format).value);
    const ExactBits left(static_cast<double>(x[k])), right(static_cast<double>(y[k]));
    products.push_back(left * right);
    exact = exact + products[k];
    multiply.rows.push_back(
        row_of(fmt::format("{} \u00d7 {}", brief_text(double{x[k]}), brief_text(double{y[k]})),
               products[k]));
    if (products[k].zero()) {
      any_zero = true;
    } else {
      const int exponent = std::max(left.high(), profile->a_format.min_exponent()) +
                           std::max(right.high(), profile->b_format.min_exponent());
      largest = std::max(largest, exponent);
    }
  }
  if (!all_finite(x) || !all_finite(y)) {
    walk.problem = kNotFinite;
    return walk;
  }
  walk.exact = exact.approximate();
  multiply.rows.push_back(row_of("c", start));
  walk.steps.push_back(multiply);
  walk.result = tensor_core_dot(*profile, x, y, c, {.fill = false});
  const int top = detail::alignment_exponent(unit, largest, any_zero);
  if (top == detail::kNoExponent) {
    walk.steps.push_back({"Result", "Every term is 0.", {result_row("result", walk.result)}});
    return walk;
  }
  const int cut = top - unit.fraction_bits;
  WalkStep align{"Align and cut",
                 fmt::format("The largest exponent is {}. The unit keeps {} bits below it and "
                             "drops the rest of every term, without rounding.",
                             top, unit.fraction_bits),
                 {}};
  ExactBits sum = start.truncated(cut);
  int lost = 0;
  for (size_t k = 0; k < count; ++k) {
    align.rows.push_back(row_of(multiply.rows[k].name, products[k], cut));
    lost += !products[k].zero() && products[k].truncated(cut).zero() ? 1 : 0;
    sum = sum + products[k].truncated(cut);
  }
  align.rows.push_back(row_of("c", start, cut));
  if (lost > 0) align.text += fmt::format(" {} of {} products vanish completely.", lost, count);
  walk.steps.push_back(align);
  WalkStep add{"Add", "What is left is added exactly, as integers.", {}};
  for (size_t k = 0; k < count; ++k) {
    add.rows.push_back(row_of(multiply.rows[k].name, products[k].truncated(cut)));
  }
  add.rows.push_back(row_of("c", start.truncated(cut)));
  BitRow total = row_of("sum", sum);
  total.result = true;
  add.rows.push_back(total);
  walk.steps.push_back(add);
  const bool halves = unit.output == BlockOutput::rne_fp16;
  const int bits = halves ? 10 : unit.output == BlockOutput::rz_e8m13 ? 13 : 23;
  const int out_cut = std::max(sum.high(), halves ? -14 : -126) - bits;
  walk.steps.push_back(
      {"Write the result",
       fmt::format("The sum is cut to {} significant bits{}.", bits + 1,
                   halves ? ", rounded to nearest even" : ", towards zero"),
       {row_of("sum", sum, out_cut), result_row("result", walk.result), row_of("exact", exact)}});
  const double error = static_cast<double>(walk.result) - walk.exact;
  walk.steps.push_back(
      {"Compare",
       error == 0.0
           ? "The result is exact: no bit that was cut mattered."
           : fmt::format("The result is {} and the exact sum {}: an error of {:.3g}, or "
                         "{:.3g} ulp of fp32.",
                         short_value(static_cast<double>(walk.result)), short_value(walk.exact),
                         error, error / ulp_size(walk.exact, kFp32)),
       {row_of("exact", exact), result_row("result", walk.result),
        row_of("lost", exact - ExactBits(static_cast<double>(walk.result)))}});
  return walk;
}

Walk dot_walk(const SumSpec& spec, std::span<const double> a, std::span<const double> b) {
  Walk walk;
  if (a.size() != b.size()) {
    walk.problem =
        fmt::format("a has {} terms and b has {}. Enter as many of both.", a.size(), b.size());
    return walk;
  }
  if (a.size() > kMostDotTerms) {
    walk.problem = fmt::format("Enter at most {} terms.", kMostDotTerms);
    return walk;
  }
  const Accumulation& how = spec.accumulation;
  const bool chain =
      how.is_single_chain() && (how.kind == Accumulation::fp32 || how.kind == Accumulation::format);
  const FloatFormat running = how.sums_in_format() ? spec.write : kFp32;
  std::vector<float> x, y;
  ExactBits exact;
  float before = 0.0f;
  for (size_t k = 0; k < a.size(); ++k) {
    x.push_back(static_cast<float>(round_to_format(a[k], spec.read).value));
    y.push_back(static_cast<float>(round_to_format(b[k], spec.b_format()).value));
    if (!std::isfinite(x[k]) || !std::isfinite(y[k])) {
      walk.problem = kNotFinite;
      walk.steps.clear();
      return walk;
    }
    const ExactBits product =
        ExactBits(static_cast<double>(x[k])) * ExactBits(static_cast<double>(y[k]));
    exact = exact + product;
    const float sum = sum_of_products(spec, x, y);
    const std::string name =
        fmt::format("{} \u00d7 {}", brief_text(double{x[k]}), brief_text(double{y[k]}));
    WalkStep step{"Add " + name, {}, {}};
    if (std::isfinite(before)) {
      step.rows.push_back(row_of("sum so far", ExactBits(static_cast<double>(before))));
    }
    step.rows.push_back(row_of(name, product));
    if (chain && std::isfinite(before)) {
      const ExactBits next = ExactBits(static_cast<double>(before)) + product;
      const int cut = last_place(next, running);
      step.rows.push_back(row_of("exact", next, cut));
      step.text = rounding_text(next, sum, cut);
    }
    if (sum == before && !product.zero()) {
      step.text = "The product is too small: the sum stays where it is. " + step.text;
    }
    if (!chain) {
      step.text += k == 0 ? "The first product."
                          : fmt::format("The first {} products, as {} adds them.", k + 1,
                                        accumulation_name(how));
    }
    step.rows.push_back(result_row("new sum", sum));
    if (k + 1 == a.size()) {
      const double error = static_cast<double>(sum) - exact.approximate();
      step.text +=
          fmt::format("{}The exact sum is {}, so the error is {:.3g}.",
                      step.text.empty() ? "" : " ", short_value(exact.approximate()), error);
      double typed = 0.0;
      for (size_t i = 0; i < a.size(); ++i) typed += a[i] * b[i];
      if (typed != exact.approximate() && typed != 0.0) {
        step.text +=
            fmt::format(" For the operands as typed it is {}: rounding them costs {:.2g}%.",
                        short_value(typed), 100.0 * std::fabs(exact.approximate() / typed - 1.0));
      }
    }
    walk.steps.push_back(std::move(step));
    before = sum;
  }
  walk.result = before;
  walk.exact = exact.approximate();
  if (walk.steps.empty()) walk.problem = "Enter at least one term.";
  return walk;
}

}  // namespace halfscope::lab
