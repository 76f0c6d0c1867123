// SPDX-License-Identifier: MIT
#include "core/train/label_layout.h"

#include <cmath>
#include <initializer_list>
#include <limits>

namespace halfscope {

double Confusion::mean_iou() const {
  double sum = 0.0;
  int64_t occurring = 0;
  for (int64_t each = 0; each < classes_; ++each) {
    const int64_t both = counts_[static_cast<size_t>(each * classes_ + each)];
    int64_t either = -both;
    for (int64_t other = 0; other < classes_; ++other) {
      either += counts_[static_cast<size_t>(each * classes_ + other)] +
                counts_[static_cast<size_t>(other * classes_ + each)];
    }
    either += unpredicted_[static_cast<size_t>(each)];
    if (either == 0) continue;
    sum += static_cast<double>(both) / static_cast<double>(either);
    ++occurring;
  }
  return occurring > 0 ? sum / static_cast<double>(occurring)
                       : std::numeric_limits<double>::quiet_NaN();
}

namespace {

/// Returns the dimensions that are not 1.
Shape squeezed(Shape shape) {
  std::erase(shape, 1);
  return shape;
}

}  // namespace

std::optional<LabelLayout> label_layout(const Shape& output, int64_t batch, const Shape& labels) {
  const int64_t elements = element_count(output);
  LabelLayout layout{.per_sample = element_count(labels)};
  if (batch < 1 || layout.per_sample < 1 || elements % (batch * layout.per_sample) != 0) {
    return std::nullopt;
  }
  layout.classes = elements / (batch * layout.per_sample);
  if (layout.classes < 1) return std::nullopt;
  const Shape seen = squeezed(output), places = squeezed(labels);
  const auto is = [&](std::initializer_list<Shape> parts) {
    Shape shape;
    for (const Shape& part : parts) shape.insert(shape.end(), part.begin(), part.end());
    return seen == squeezed(shape);
  };
  const Shape samples{batch}, classes{layout.classes};
  const bool last = is({samples, places, classes}) || is({{batch * layout.per_sample}, classes});
  layout.classes_first = is({samples, classes, places}) && (places.size() > 1 || !last);
  if (layout.per_sample == 1) layout.classes_first = false;
  if (!last && !layout.classes_first) return std::nullopt;
  return layout;
}

std::optional<int64_t> predicted_class(std::span<const float> scores, const LabelLayout& layout,
                                       int64_t first, float threshold) {
  const auto score = [&](int64_t each) {
    return scores[static_cast<size_t>(first + each * layout.stride())];
  };
  int64_t best = 0;
  for (int64_t each = 0; each < layout.classes; ++each) {
    if (std::isnan(score(each))) return std::nullopt;
    if (score(each) > score(best)) best = each;
  }
  if (layout.classes == 1) return score(0) > threshold ? 1 : 0;
  return best;
}

}  // namespace halfscope
