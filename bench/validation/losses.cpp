// SPDX-License-Identifier: MIT
// Losses and gradients that read numbers of too few bits.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "bench/validation/rows.h"
#include "core/numeric/elementary/elementary.h"
#include "core/numeric/formats/round.h"

namespace halfscope::validation {
namespace {

/// Largest relative error of exp(z - lse), where lse was computed from bf16 logits and z is not
/// rounded, over peak logits z from 15/16 of `peak` to `peak`. The peak dominates lse.
struct PeakError {
  double low = 0.0, high = 0.0;  ///< where rounding moves the logit up, and down
};

PeakError peak_error(double peak) {
  constexpr int kSteps = 1 << 14;
  PeakError worst;
  for (int i = 0; i <= kSteps; ++i) {
    const double z = peak * (15.0 + static_cast<double>(i) / kSteps) / 16.0;
    const double ratio = elementary::exp(z - round_to_format(z, kBf16).value);
    worst.low = std::max(worst.low, 1.0 - ratio);
    worst.high = std::max(worst.high, ratio - 1.0);
  }
  return worst;
}

void add_logits(std::vector<Row>& rows) {
  struct Published {
    double peak, error;
  };
  for (const Published& each : {Published{5, 0.012},
                                {10, 0.026},
                                {20, 0.055},
                                {40, 0.115},
                                {80, 0.219},
                                {160, 0.386},
                                {640, 0.858}}) {
    const PeakError ours = peak_error(each.peak);
    rows.push_back({.what = fmt::format("error of the largest probability, peak logit {}",
                                        long_number(each.peak)),
                    .source = pull("marin-community/marin", 8217),
                    .published = fmt::format("{:.1f}%", 100.0 * each.error),
                    .ours = fmt::format("{:.1f}%", 100.0 * ours.low),
                    .accepted = "0.7 to 1 of ours",
                    .pass = each.error <= ours.low && each.error >= 0.7 * ours.low,
                    .zoo = "F41"});
  }
}

/// Relative error of p - 1 when p is rounded to bf16 before the subtraction.
double rounded_gradient_error(double p) {
  return std::fabs(round_to_format(p, kBf16).value - p) / (1.0 - p);
}

void add_confident(std::vector<Row>& rows) {
  // The worst p that is still 0.90 or 0.99 to two digits is half a step of bf16 from its neighbors.
  const auto worst_near = [](double p) {
    double worst = 0.0;
    for (int i = -1000; i <= 1000; ++i) {
      const double near = p + 0.002 * i / 1000.0;
      worst = std::max(worst, std::fabs(round_to_format(near, kBf16).value - near));
    }
    return worst / (1.0 - p);
  };
  const std::string source = pull("linkedin/Liger-Kernel", 1329);
  const std::string what = "error of softmax - 1 where softmax = {} was rounded to bf16";
  rows.push_back(within(fmt::format(fmt::runtime(what), "0.90"), source, "1.95%", worst_near(0.9),
                        {0.019, 0.02}, "", Unit::percent));
  rows.push_back(within(
      fmt::format(fmt::runtime(what), "0.99"), source, "19.99%", worst_near(0.99), {0.19, 0.201},
      "Ours is half the spacing of bf16 over 0.01. The thread's probabilities are "
      "only close to 0.99, and so is its denominator.",
      Unit::percent));
  rows.push_back(exact(fmt::format(fmt::runtime(what), "0.999"), source, "100.00%",
                       fmt::format("{:.2f}%", 100.0 * rounded_gradient_error(0.999)),
                       "0.999 becomes 1, so the gradient is 0."));
}

}  // namespace

Table losses() {
  Table table{.letter = 'E',
              .title = "Losses and gradients",
              .introduction = fmt::format(
                  "In E1 to E7 the forward pass rounds logits to bf16, and the backward pass "
                  "computes them again in fp32. Probabilities are then exp(z - lse) of two "
                  "different z. Ours is the worst case, 1 - exp(-u / 2), where u is the step of "
                  "bf16 at the peak. The thread measured random logits on a GB200, so its figures "
                  "must be a little smaller. That is the error if rounding moves a logit up. If "
                  "it moves a logit down, the error is exp(u / 2) - 1, which is larger: {:.1f}% at "
                  "160. The thread does not say why it saw none of these.",
                  100.0 * peak_error(160.0).high)};
  add_logits(table.rows);
  add_confident(table.rows);
  return table;
}

}  // namespace halfscope::validation
