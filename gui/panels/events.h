// SPDX-License-Identifier: MIT
// Events of a lane, step by step. The Events panel lists them, and keys jump between them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gui/panels/panel.h"

namespace halfscope::gui {

struct Event {
  enum class Kind : uint8_t { bad, skipped, scale_down, scale_up, finding };
  Kind kind = Kind::bad;
  int64_t step = 0;
  int site = -1;  ///< SiteInfo::order; -1 if it is about the whole lane
  std::string text{};
  double scale_before = 0.0, scale = 0.0;  ///< of a change of the loss scale
};
const char* event_name(Event::Kind kind) noexcept;
ImU32 event_color(const Theme& theme, Event::Kind kind) noexcept;

/// Returns the events of one lane, by step.
std::vector<Event> events_of(const RunModel& run, int lane);
/// Returns the events of the selected lane, worked out again only for another snapshot, report or
/// lane.
const std::vector<Event>& lane_events(const Frame& frame);

/// Events of one kind and tensor in consecutive steps: what repeats is one line.
struct EventGroup {
  std::vector<size_t> events{};  ///< indices, ascending
};
/// Groups a list that ascends by step; groups are ordered by their first event.
std::vector<EventGroup> group_events(const std::vector<Event>& events);
/// Returns what a group is in one line: "17 skipped steps, 12 to 28: ...".
std::string group_text(const std::vector<Event>& events, const EventGroup& group);

}  // namespace halfscope::gui
