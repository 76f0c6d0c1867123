// SPDX-License-Identifier: MIT
#include "core/data/boxes.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "core/numeric/elementary/elementary.h"

namespace halfscope {
namespace {

constexpr double kLargestRatio = 62.5;  // 1000 / 16
constexpr float kLeastScore = 0.05f;
constexpr size_t kMostFound = 100;

struct Center {
  double x, y, width, height;
  explicit Center(const Box& box)
      : x((static_cast<double>(box.left) + static_cast<double>(box.right)) / 2.0),
        y((static_cast<double>(box.top) + static_cast<double>(box.bottom)) / 2.0),
        width(static_cast<double>(box.width())),
        height(static_cast<double>(box.height())) {}
};

/// Better ones first; equal scores in the order of samples and boxes, so that results are the same
/// everywhere.
void sort_by_score(std::vector<FoundBox>& found) {
  std::stable_sort(found.begin(), found.end(),
                   [](const FoundBox& a, const FoundBox& b) { return a.score > b.score; });
}

double average_precision(const std::vector<bool>& right, int64_t objects) {
  std::vector<double> precision(right.size());
  int64_t hits = 0;
  for (size_t i = 0; i < right.size(); ++i) {
    hits += right[i] ? 1 : 0;
    precision[i] = static_cast<double>(hits) / static_cast<double>(i + 1);
  }
  for (size_t i = right.size(); i-- > 1;) {
    precision[i - 1] = std::max(precision[i - 1], precision[i]);
  }
  double sum = 0.0;  // recall grows by 1 / objects at every right one
  for (size_t i = 0; i < right.size(); ++i) sum += right[i] ? precision[i] : 0.0;
  return sum / static_cast<double>(objects);
}

}  // namespace

double intersection_over_union(const Box& a, const Box& b) noexcept {
  const double width = static_cast<double>(std::min(a.right, b.right)) -
                       static_cast<double>(std::max(a.left, b.left));
  const double height = static_cast<double>(std::min(a.bottom, b.bottom)) -
                        static_cast<double>(std::max(a.top, b.top));
  if (!(width > 0.0 && height > 0.0)) return 0.0;
  const auto area = [](const Box& box) {
    return static_cast<double>(box.width()) * static_cast<double>(box.height());
  };
  const double both = width * height;
  return both / (area(a) + area(b) - both);
}

std::array<float, 4> box_code(const Box& box, const Box& anchor) noexcept {
  const Center b(box), a(anchor);
  return {static_cast<float>((b.x - a.x) / a.width), static_cast<float>((b.y - a.y) / a.height),
          static_cast<float>(elementary::log(b.width / a.width)),
          static_cast<float>(elementary::log(b.height / a.height))};
}

Box box_of(std::span<const float, 4> code, const Box& anchor) noexcept {
  const Center a(anchor);
  const auto size = [](float logarithm, double of) {
    return of * std::min(elementary::exp(static_cast<double>(logarithm)), kLargestRatio);
  };
  const double x = a.x + static_cast<double>(code[0]) * a.width, width = size(code[2], a.width);
  const double y = a.y + static_cast<double>(code[1]) * a.height, height = size(code[3], a.height);
  return {static_cast<float>(x - width / 2.0), static_cast<float>(y - height / 2.0),
          static_cast<float>(x + width / 2.0), static_cast<float>(y + height / 2.0)};
}

std::vector<Box> make_anchors(int64_t size) {
  constexpr double kSizes[kAnchorSizes] = {2.0, 2.8284271247461903};  // 2 and 2 sqrt(2)
  std::vector<Box> anchors;
  for (const int64_t stride : {8, 16, 32}) {
    for (int64_t row = 0; row < size / stride; ++row) {
      for (int64_t column = 0; column < size / stride; ++column) {
        for (const double each : kSizes) {
          const double half = each * static_cast<double>(stride) / 2.0;
          const double x = (static_cast<double>(column) + 0.5) * static_cast<double>(stride);
          const double y = (static_cast<double>(row) + 0.5) * static_cast<double>(stride);
          anchors.push_back({static_cast<float>(x - half), static_cast<float>(y - half),
                             static_cast<float>(x + half), static_cast<float>(y + half)});
        }
      }
    }
  }
  return anchors;
}

AnchorTargets anchor_targets(std::span<const Box> anchors, std::span<const LabelledBox> objects) {
  constexpr double kObject = 0.5, kBackground = 0.4;
  AnchorTargets targets{std::vector<int32_t>(anchors.size(), 0),
                        std::vector<std::array<float, 4>>(anchors.size())};
  std::vector<double> best(anchors.size(), 0.0);
  const auto assign = [&](size_t anchor, const LabelledBox& object) {
    targets.labels[anchor] = object.label;
    targets.codes[anchor] = box_code(object.box, anchors[anchor]);
  };
  std::vector<size_t> nearest;
  for (const LabelledBox& object : objects) {
    size_t most = 0;
    double overlap = -1.0;
    for (size_t i = 0; i < anchors.size(); ++i) {
      const double here = intersection_over_union(object.box, anchors[i]);
      if (here > overlap) {
        overlap = here;
        most = i;
      }
      if (here <= best[i]) continue;
      best[i] = here;
      if (here >= kObject) assign(i, object);
    }
    nearest.push_back(most);
  }
  for (size_t i = 0; i < anchors.size(); ++i) {
    if (best[i] >= kBackground && best[i] < kObject) targets.labels[i] = -1;
  }
  for (size_t i = 0; i < objects.size() && !anchors.empty(); ++i) assign(nearest[i], objects[i]);
  return targets;
}

std::vector<FoundBox> found_boxes(int64_t sample, std::span<const float> logits,
                                  std::span<const float> codes, std::span<const Box> anchors,
                                  double most) {
  const size_t labels = anchors.empty() ? 0 : logits.size() / anchors.size();
  std::vector<FoundBox> candidates;
  for (size_t i = 0; i < anchors.size(); ++i) {
    const Box box = box_of(codes.subspan(i * 4).first<4>(), anchors[i]);
    for (size_t label = 0; label < labels; ++label) {
      const auto logit = static_cast<double>(logits[i * labels + label]);
      const auto score = static_cast<float>(1.0 / (1.0 + elementary::exp(-logit)));
      const bool is_box = box.width() > 0.0f && box.height() > 0.0f;
      if (!(score >= kLeastScore) || !is_box) continue;
      candidates.push_back({sample, static_cast<int32_t>(label) + 1, score, box});
    }
  }
  sort_by_score(candidates);
  std::vector<FoundBox> found;
  for (const FoundBox& each : candidates) {
    if (found.size() == kMostFound) break;
    const bool repeats = std::any_of(found.begin(), found.end(), [&](const FoundBox& better) {
      return better.label == each.label && intersection_over_union(better.box, each.box) > most;
    });
    if (!repeats) found.push_back(each);
  }
  return found;
}

double mean_average_precision(std::vector<FoundBox> found,
                              std::span<const std::vector<LabelledBox>> objects, double least) {
  sort_by_score(found);
  std::set<int32_t> labels;
  for (const auto& sample : objects) {
    for (const LabelledBox& object : sample) labels.insert(object.label);
  }
  double sum = 0.0;
  for (const int32_t label : labels) {
    std::vector<std::vector<bool>> taken(objects.size());
    int64_t count = 0;
    for (size_t i = 0; i < objects.size(); ++i) {
      taken[i].resize(objects[i].size());
      count += std::count_if(objects[i].begin(), objects[i].end(),
                             [&](const LabelledBox& object) { return object.label == label; });
    }
    std::vector<bool> right;
    for (const FoundBox& each : found) {
      if (each.label != label) continue;
      const auto sample = static_cast<size_t>(each.sample);
      double best = least;
      int64_t which = -1;
      for (size_t i = 0; i < objects[sample].size(); ++i) {
        const LabelledBox& object = objects[sample][i];
        if (object.label != label || taken[sample][i]) continue;
        const double overlap = intersection_over_union(each.box, object.box);
        if (overlap < best) continue;
        best = overlap;
        which = static_cast<int64_t>(i);
      }
      right.push_back(which >= 0);
      if (which >= 0) taken[sample][static_cast<size_t>(which)] = true;
    }
    sum += average_precision(right, count);
  }
  return labels.empty() ? std::numeric_limits<double>::quiet_NaN()
                        : sum / static_cast<double>(labels.size());
}

}  // namespace halfscope
