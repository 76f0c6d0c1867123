// SPDX-License-Identifier: MIT
#include "core/lab/stochastic_drops.h"

#include <algorithm>
#include <cmath>

#include "core/numeric/formats/rng.h"
#include "core/numeric/formats/round.h"

namespace halfscope::lab {

StochasticDrops::StochasticDrops(double value, const FloatFormat& format, uint64_t seed)
    : value_(value), format_(format.without_options()), key_(random_key(seed, 0, 0)) {
  const std::optional<RoundingPlace> place = rounding_place(value, format);
  if (!place) return;
  place_ = *place;
  valid_ =
      place->fraction > 0.0 && std::fabs(static_cast<double>(place->above)) <= format.max_finite();
}

bool StochasticDrops::goes_away(int64_t i) const noexcept {
  const Rounding rounding{.mode = RoundingMode::stochastic,
                          .random = random_draw(key_, static_cast<uint64_t>(i))};
  return static_cast<float>(round_to_format(value_, format_, rounding).value) == place_.above;
}

void StochasticDrops::drop_to(int64_t count) {
  if (!valid_) return;
  while (count_ < count) {
    away_ += goes_away(count_) ? 1 : 0;
    ++count_;
    if (count_ < next_point_) continue;
    history_.push_back({count_, mean()});
    next_point_ = std::max(count_ + 1, count_ + count_ / 16);
  }
}

void StochasticDrops::clear() {
  count_ = away_ = 0;
  next_point_ = 1;
  history_.clear();
}

double StochasticDrops::mean() const noexcept {
  if (count_ == 0) return value_;
  const double below = static_cast<double>(place_.below), above = static_cast<double>(place_.above);
  return below + (above - below) * (static_cast<double>(away_) / static_cast<double>(count_));
}

double StochasticDrops::deviation() const noexcept {
  const double ulp =
      std::fabs(static_cast<double>(place_.above) - static_cast<double>(place_.below));
  return ulp * std::sqrt(place_.fraction * (1.0 - place_.fraction));
}

double StochasticDrops::deviation_of_mean(int64_t n) const noexcept {
  return deviation() / std::sqrt(static_cast<double>(std::max<int64_t>(n, 1)));
}

}  // namespace halfscope::lab
