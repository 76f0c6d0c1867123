// SPDX-License-Identifier: MIT
// The list of scopes of a thread, and their counters.
#include "core/numeric/types/float_events.h"

#include <iterator>

namespace halfscope {
namespace detail {

constinit thread_local FloatEventScope* float_event_scope = nullptr;

void record_float_event(const FloatEvent& event) noexcept {
  for (FloatEventScope* scope = float_event_scope; scope != nullptr; scope = scope->outer()) {
    scope->record(event);
  }
}

}  // namespace detail

FloatEventScope::FloatEventScope() noexcept : outer_(detail::float_event_scope) {
  detail::float_event_scope = this;
}

FloatEventScope::FloatEventScope(const FloatFormat& only) noexcept : FloatEventScope() {
  only_ = only.without_options();
}

FloatEventScope::~FloatEventScope() { detail::float_event_scope = outer_; }

void FloatEventScope::record(const FloatEvent& event) noexcept {
  if (only_ && event.format.without_options() != *only_) return;
  const uint64_t index = counts_.operations + counts_.conversions;
  const auto count = [&event](RoundFlags flag) { return (event.flags & flag) != 0 ? 1u : 0u; };
  (event.operation == FloatOperation::convert ? counts_.conversions : counts_.operations) += 1;
  counts_.inexact += count(kInexact);
  counts_.overflows += count(kOverflow);
  counts_.underflows += count(kUnderflow);
  counts_.flushed += count(kFlushed);
  counts_.invalid += count(kInvalid);
  counts_.divide_by_zero += count(kDivideByZero);

  const uint8_t fresh = static_cast<uint8_t>(event.flags & ~seen_);
  if (fresh == 0) return;
  for (size_t i = 0; i < std::size(kKinds); ++i) {
    if ((fresh & kKinds[i]) == 0) continue;
    firsts_[i] = event;
    firsts_[i].index = index;
  }
  seen_ |= fresh;
}

std::optional<FloatEvent> FloatEventScope::first(RoundFlags flag) const noexcept {
  for (size_t i = 0; i < std::size(kKinds); ++i) {
    if (kKinds[i] == flag && (seen_ & flag) != 0) return firsts_[i];
  }
  return std::nullopt;
}

}  // namespace halfscope
