// SPDX-License-Identifier: MIT
#include "core/ops/samples.h"

#include <algorithm>

#include "core/ops/ops.h"

namespace halfscope {

std::optional<SamplePlace> SampleNode::place(size_t input) const {
  if (!has(input)) return std::nullopt;
  const auto found = places_.find(node_.inputs[input]);
  if (found == places_.end()) return std::nullopt;
  return found->second;
}

size_t SampleNode::axis(size_t rank, int64_t fallback) const {
  return static_cast<size_t>(axis_attribute(node_, rank, fallback));
}

bool SampleNode::others_hold_samples() const {
  for (size_t i = 1; i < input_count(); ++i) {
    if (place(i)) return true;
  }
  return false;
}

namespace samples {
namespace {

const char* const kSeveralOperands = "an operand that all samples share differs between samples";
const char* const kElsewhere = "its operands have the samples in different places";

/// The effect of a Reshape on the samples: `left` numbers come before them.
class Reshaping {
 public:
  Reshaping(const SampleNode& n, SamplePlace from)
      : shape_(n.shape(0)), target_(n.result()), sources_(n.sources()), from_(from) {
    left_ = from.before;
    for (size_t i = 0; i < from.axis; ++i) left_ *= shape_[i];
  }

  SampleResult run() {
    if (element_count(shape_) == 0) return unfit("it has no elements");
    if (const auto kept = kept_dimension()) return at(SamplePlace{*kept, from_.before});
    if (std::find(sources_.begin(), sources_.end(), kAnything) == sources_.end() &&
        !sources_.empty() &&
        std::find(sources_.begin(), sources_.end(), kLeftOpen) == sources_.end()) {
      return unfit("it removes the dimension of the samples");
    }
    if (auto own = own_dimension(); own.place) return own;
    return merged();
  }

 private:
  int64_t source(size_t i) const { return i < sources_.size() ? sources_[i] : kAnything; }

  /// Returns the dimension that is certainly the operand's.
  std::optional<size_t> kept_dimension() const {
    int64_t before = from_.before;
    for (size_t i = 0; i < target_.size(); ++i) {
      if (source(i) == static_cast<int64_t>(from_.axis) && before == left_) return i;
      before *= target_[i];
    }
    return std::nullopt;
  }

  /// Returns whether a Reshape keeps all dimensions up to `i` and that of the samples while it
  /// changes others, for example when features are split into heads. A Reshape that changes nothing
  /// for one sample may have moved dimensions of 1.
  bool keeps_up_to(size_t i) const {
    const size_t count = std::max(i, from_.axis) + 1;
    return shape_ != target_ && shape_[from_.axis] == 1 &&
           count <= std::min(shape_.size(), target_.size()) &&
           std::equal(shape_.begin(), shape_.begin() + static_cast<int64_t>(count),
                      target_.begin()) &&
           (source(from_.axis) == kAnything || source(from_.axis) == kLeftOpen) &&
           source(i) == kAnything;
  }

  /// Finds a dimension of 1 in the right place: preferably one whose size the file leaves open,
  /// then one with as many dimensions before it as the operand's.
  SampleResult own_dimension() const {
    std::vector<SamplePlace> found;
    int64_t before = 1;
    for (size_t i = 0; i < target_.size(); ++i) {
      const bool another = i != from_.axis && keeps_up_to(i);
      if (target_[i] == 1 && before == left_ && source(i) < 0 && source(i) != kAdded && !another)
        found.push_back({i, 1});
      before *= target_[i];
    }
    const auto rank = [&](const SamplePlace& place) {
      return source(place.axis) == kLeftOpen ? 0 : place.axis == from_.axis ? 1 : 2;
    };
    std::stable_sort(found.begin(), found.end(),
                     [&](const SamplePlace& a, const SamplePlace& b) { return rank(a) < rank(b); });
    if (found.empty()) return {};
    return {.place = found[0], .others = {found.begin() + 1, found.end()}};
  }

  /// Samples become part of the dimension that contains them. Between two dimensions it is the
  /// second, as when heads are merged into the batch, unless that is the last one, which contains
  /// the features.
  SampleResult merged() const {
    std::vector<SamplePlace> found;
    int64_t before = 1;
    for (size_t i = 0; i < target_.size(); ++i) {
      const bool inside = before <= left_ && left_ <= before * target_[i] && left_ % before == 0 &&
                          target_[i] % (left_ / before) == 0;
      if (inside && source(i) != kAdded) found.push_back({i, left_ / before});
      before *= target_[i];
    }
    if (found.empty()) return unfit("it splits samples");
    const auto rank = [&](const SamplePlace& place) {
      const bool same = place.axis == from_.axis && place.before == from_.before &&
                        shape_[from_.axis] == target_[place.axis] && shape_[from_.axis] > 1;
      const bool last = place.axis + 1 == target_.size() && target_.size() > 1;
      return same ? 0 : source(place.axis) == kLeftOpen ? 1 : last ? 4 : place.before == 1 ? 2 : 3;
    };
    return at(*std::min_element(
        found.begin(), found.end(),
        [&](const SamplePlace& a, const SamplePlace& b) { return rank(a) < rank(b); }));
  }

  const Shape &shape_, &target_;
  std::span<const int64_t> sources_;
  SamplePlace from_;
  int64_t left_ = 1;
};

}  // namespace

SampleResult at(std::optional<SamplePlace> place) { return {.place = place}; }
SampleResult mixes(std::string refusal) { return {.refusal = std::move(refusal), .mixes = true}; }
SampleResult unfit(std::string refusal) { return {.refusal = std::move(refusal)}; }

SampleResult alone(const SampleNode& n) { return at(n.place(0)); }

SampleResult broadcast_to(size_t rank, std::span<const Operand> operands) {
  const auto size_at = [&](const Operand& operand, size_t axis) {
    const size_t missing = rank - operand.shape.size();
    return axis < missing ? 1 : operand.shape[axis - missing];
  };
  std::optional<SamplePlace> place;
  int64_t size = 1;
  for (const Operand& each : operands) {
    if (!each.place) continue;
    const SamplePlace own{each.place->axis + rank - each.shape.size(), each.place->before};
    const int64_t own_size = each.shape[each.place->axis];
    if (!place) {
      place = own;
      size = own_size;
    } else if (place->axis != own.axis) {
      const bool outer = std::all_of(operands.begin(), operands.end(), [&](const Operand& other) {
        return size_at(other, own.axis) == 1 && size_at(other, place->axis) == 1;
      });
      return outer ? mixes("it combines each sample with the others") : unfit(kElsewhere);
    } else if (*place != own || size != own_size) {
      return unfit(kElsewhere);
    }
  }
  SampleResult result = at(place);
  for (const Operand& each : operands) {
    if (!place || each.place) continue;
    const int64_t own = size_at(each, place->axis);
    if (own == 1) continue;
    if (own != size)
      return unfit("an operand has " + std::to_string(own) +
                   " numbers in the dimension where others have samples");
    result.copies.push_back({each.input, {place->axis + each.shape.size() - rank, place->before}});
  }
  return result;
}

bool is_elementwise(const OpDef& def) {
  return def.keeps_samples == alone || def.keeps_samples == broadcast;
}

SampleResult broadcast(const SampleNode& n) {
  std::vector<Operand> operands;
  for (size_t i = 0; i < n.input_count(); ++i) {
    if (n.has(i)) operands.push_back({n.shape(i), n.place(i), i});
  }
  return broadcast_to(n.result().size(), operands);
}

SampleResult only_first(const SampleNode& n) {
  if (n.others_hold_samples()) return unfit(kSeveralOperands);
  if (n.place(0) && n.place(0)->axis != 0) return unfit("its samples are not in dimension 0");
  return at(n.place(0));
}

SampleResult planes(const SampleNode& n) {
  if (n.place(0) && n.place(0)->axis > 1) return mixes("it sums over the samples");
  return at(n.place(0));
}

SampleResult along(const SampleNode& n, int64_t fallback) {
  if (n.others_hold_samples()) return unfit(kSeveralOperands);
  if (n.place(0) && n.axis(n.rank(0), fallback) == n.place(0)->axis)
    return mixes("it works along the dimension of the samples");
  return at(n.place(0));
}

SampleResult reduced(const SampleNode& n, const std::vector<int64_t>& axes) {
  std::optional<SamplePlace> place = n.place(0);
  if (!place || n.others_hold_samples()) return unfit(kSeveralOperands);
  const auto axis = static_cast<int64_t>(place->axis);
  if (std::find(axes.begin(), axes.end(), axis) != axes.end())
    return mixes("it works along the dimension of the samples");
  if (int_attribute(n.node(), "keepdims", 1) == 0) {
    place->axis -= static_cast<size_t>(
        std::count_if(axes.begin(), axes.end(), [&](int64_t each) { return each < axis; }));
  }
  return at(place);
}

SampleResult reduction(const SampleNode& n) {
  return reduced(n, reduction_axes(n.node(), n.rank(0)));
}

SampleResult reshape(const SampleNode& n) { return Reshaping(n, n.place(0).value()).run(); }

}  // namespace samples
}  // namespace halfscope
