// SPDX-License-Identifier: MIT
#include "core/train/label_layout.h"

#include <cmath>
#include <initializer_list>
#include <limits>

namespace halfscope {

void ClassCounts::add(std::span<const int64_t> values) {
  for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += values[i];
}

double ClassCounts::mean_iou() const {
  double sum = 0.0;
  int64_t occurring = 0;
  for (size_t each = 0; each < counts_.size(); each += 3) {
    const int64_t both = counts_[each + 2], either = counts_[each] + counts_[each + 1] - both;
    if (either == 0) continue;
    sum += static_cast<double>(both) / static_cast<double>(either);
    ++occurring;
  }
  return occurring > 0 ? sum / static_cast<double>(occurring)
                       : std::numeric_limits<double>::quiet_NaN();
}

double ClassCounts::accuracy() const {
  int64_t labels = 0, right = 0;
  for (size_t each = 0; each < counts_.size(); each += 3) {
    labels += counts_[each];
    right += counts_[each + 2];
  }
  return labels > 0 ? static_cast<double>(right) / static_cast<double>(labels)
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

std::vector<size_t> outputs_with_scores(const Graph& graph, std::span<const NamedValue> outputs,
                                        int64_t batch, const SampleLabels& labels) {
  std::vector<size_t> found;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!labels.output.empty() && outputs[i].name != labels.output) continue;
    const Value& scores = graph.value(outputs[i].value);
    const bool fits = label_layout(scores.shape, batch, labels.shape).has_value();
    if (fits && scores.type == ElementType::real) found.push_back(i);
  }
  return found;
}

bool is_of_pixels(const Shape& labels) { return squeezed(labels).size() > 1; }

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

LabelCount count_labels(std::span<const float> scores, std::span<const int32_t> labels,
                        const LabelLayout& layout, float threshold, ClassCounts* classes) {
  LabelCount count;
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] < 0) continue;
    const auto place = static_cast<int64_t>(i);
    const int64_t first = layout.first(place / layout.per_sample, place % layout.per_sample);
    const std::optional<int64_t> best = predicted_class(scores, layout, first, threshold);
    ++count.scored;
    count.right += best == labels[i] ? 1 : 0;
    if (classes != nullptr) classes->add(labels[i], best);
  }
  return count;
}

}  // namespace halfscope
