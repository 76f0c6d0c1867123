// SPDX-License-Identifier: MIT
// Boxes of objects in images: how they overlap, how a detector's network codes them relative to
// anchors, and how good a set of found boxes is.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace halfscope {

/// In pixels; right and bottom are behind the last one.
struct Box {
  float left = 0, top = 0, right = 0, bottom = 0;

  friend bool operator==(const Box&, const Box&) = default;

  float width() const noexcept { return right - left; }
  float height() const noexcept { return bottom - top; }
};

/// Returns how much two boxes overlap (IoU): the area that both cover, divided by the area that at
/// least one of them covers. 0 if a box has no area.
double intersection_over_union(const Box& a, const Box& b) noexcept;

/// Codes a box relative to an anchor: the shift of the center in the anchor's sizes, and the
/// logarithm of the ratio of sizes (Girshick et al. 2014, appendix C).
std::array<float, 4> box_code(const Box& box, const Box& anchor) noexcept;
/// Undoes box_code(). A box is at most 62.5 times as wide and as high as its anchor, as in
/// torchvision.
Box box_of(std::span<const float, 4> code, const Box& anchor) noexcept;

/// Returns the anchors of an image of size x size pixels: squares of 2 and 2.83 times the stride
/// around every point of grids with strides 8, 16 and 32, by stride, row, column and size.
std::vector<Box> make_anchors(int64_t size);
inline constexpr int64_t kAnchorSizes = 2;  ///< at each point

struct LabelledBox {
  int32_t label = 0;  ///< from 1
  Box box{};
};

/// The answers that a network learns, for each anchor.
struct AnchorTargets {
  std::vector<int32_t> labels;              ///< 0: background; -1: does not count
  std::vector<std::array<float, 4>> codes;  ///< of the object, where there is one
};
/// An anchor has the object with which it overlaps most, if IoU is at least 0.5; it is background
/// below 0.4 (Lin et al. 2017, RetinaNet). Every object has at least the anchor that overlaps most.
AnchorTargets anchor_targets(std::span<const Box> anchors, std::span<const LabelledBox> objects);

struct FoundBox {
  int64_t sample = 0;
  int32_t label = 0;
  float score = 0;
  Box box{};
};

/// Returns what a network finds in one sample: its anchors whose score, the sigmoid of a logit, is
/// at least 0.05, without those that overlap with a better one of the same label by more than
/// `most` (non-maximum suppression), and no more than 100. `logits` are [anchors, labels], `codes`
/// [anchors, 4]. NaN is never found.
std::vector<FoundBox> found_boxes(int64_t sample, std::span<const float> logits,
                                  std::span<const float> codes, std::span<const Box> anchors,
                                  double most = 0.5);

/// Returns the mean over all labels that occur of the average precision: the area under precision
/// over recall, with precision made monotone (PASCAL VOC 2010). A found box is right if it overlaps
/// with an object of its label by `least` that no better one has found. NaN without objects.
double mean_average_precision(std::vector<FoundBox> found,
                              std::span<const std::vector<LabelledBox>> objects, double least);

}  // namespace halfscope
