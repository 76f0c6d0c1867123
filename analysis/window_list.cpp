// SPDX-License-Identifier: MIT
// A cursor sweeps over the windows from the oldest to the newest and merges neighbours into
// windows of up to twice the full size, one pair for every new window over the limit. When a sweep
// finds no more pairs, all windows have that size: it becomes the full size, and the next sweep
// begins.
#include "analysis/window_list.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace halfscope {

WindowList::Change WindowList::add(int64_t step, bool event) {
  if (!event && !windows_.empty()) {
    Window& last = windows_.back();
    if (!last.event && last.recorded < full_size_) {
      last.last = step;
      ++last.recorded;
      return {.grows = true, .window = last, .merge = std::nullopt};
    }
  }
  windows_.push_back({.step = step, .last = step, .recorded = 1, .event = event});
  if (event) {
    keep_event(std::prev(windows_.end()));
  } else {
    ++ordinary_;
  }
  Change change{.grows = false, .window = windows_.back(), .merge = std::nullopt};
  if (ordinary_ > limits_.windows) change.merge = merge_one();
  return change;
}

/// Keeps an event's window. The first events stay; of the others a new one replaces the oldest.
void WindowList::keep_event(Place window) {
  if (first_events_ < limits_.first_events) {
    ++first_events_;
    return;
  }
  last_events_.push_back(window);
  if (static_cast<int64_t>(last_events_.size()) <= limits_.last_events) return;
  last_events_.front()->event = false;
  last_events_.pop_front();
  ++ordinary_;
}

/// Returns the first window in [from, to) that has at most twice the full size together with the
/// next one, or `to`. `smallest` receives the smallest size of a pair that is too large.
WindowList::Place WindowList::find_pair(Place from, Place to, int64_t& smallest) const {
  for (Place place = from; place != to; ++place) {
    const Place next = std::next(place);
    if (next == to) break;
    if (place->event || next->event) continue;
    const int64_t together = place->recorded + next->recorded;
    if (together <= 2 * full_size_) return place;
    smallest = std::min(smallest, together);
  }
  return to;
}

std::optional<WindowList::Merge> WindowList::merge_one() {
  const Place newest = std::prev(windows_.end());  // still grows, so it is not merged
  const Place place = next_pair(newest);
  if (place == newest) return std::nullopt;  // every ordinary window stands between events
  const Place next = std::next(place);
  place->last = next->last;
  place->recorded += next->recorded;
  const Merge merge{place->step, place->step_count(), next->step};
  cursor_ = windows_.erase(next);
  --ordinary_;
  // If that was the last pair of the sweep, the newest window may grow from now on. If only the
  // next merge noticed this, that window would stay half as long as the others.
  next_pair(windows_.end());
  return merge;
}

/// Moves the cursor to the next pair before `end`, in this sweep or a new one, and returns it, or
/// `end` if there is no pair.
WindowList::Place WindowList::next_pair(Place end) {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  int64_t smallest = kNone;
  if (cursor_ != windows_.end()) cursor_ = find_pair(cursor_, end, smallest);
  if (cursor_ == windows_.end() || cursor_ == end) {
    cursor_ = find_pair(windows_.begin(), end, smallest);
  }
  if (cursor_ == end && smallest != kNone) {
    while (2 * full_size_ < smallest) full_size_ *= 2;
    cursor_ = find_pair(windows_.begin(), end, smallest);
  }
  return cursor_;
}

}  // namespace halfscope
