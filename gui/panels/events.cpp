// SPDX-License-Identifier: MIT
// Events by step: skipped steps, loss-scale changes, first overflows; and the path from the first
// bad tensor to the loss.
#include "gui/panels/events.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "analysis/rules/text.h"
#include "core/number_text.h"
#include "gui/widgets/track.h"

namespace halfscope::gui {

namespace {

constexpr const char* kSkipReason = "a gradient is NaN or infinite";

}  // namespace

const char* event_name(Event::Kind kind) noexcept {
  switch (kind) {
    case Event::Kind::bad:
      return "non-finite";
    case Event::Kind::skipped:
      return "skipped";
    case Event::Kind::scale_down:
      return "scale down";
    case Event::Kind::scale_up:
      return "scale up";
    case Event::Kind::finding:
      return "finding";
  }
  return "";
}

std::vector<Event> events_of(const RunModel& run, int lane) {
  std::vector<Event> events;
  const RunView& view = run.view();
  const std::vector<SiteInfo>& sites = view.lane(lane).sites;
  const StepRow* before = nullptr;
  const bool has_loss = !view.info().inference;
  for (const StepRow& row : view.steps(lane)) {
    if (row.skipped) {
      events.push_back({.kind = Event::Kind::skipped,
                        .step = row.step,
                        .site = row.first_bad,
                        .text = std::string("update skipped: ") + kSkipReason});
    } else if (has_loss && !std::isfinite(row.loss) &&
               (before == nullptr || std::isfinite(before->loss))) {
      events.push_back({.kind = Event::Kind::bad,
                        .step = row.step,
                        .site = row.first_bad,
                        .text = "the loss is NaN or infinite from this step on"});
    } else if (row.first_bad >= 0 && (before == nullptr || before->first_bad < 0)) {
      events.push_back({.kind = Event::Kind::bad,
                        .step = row.step,
                        .site = row.first_bad,
                        .text = "first tensor to overflow or contain NaN"});
    }
    if (before != nullptr && row.loss_scale != before->loss_scale) {
      const bool up = row.loss_scale > before->loss_scale;
      events.push_back(
          {.kind = up ? Event::Kind::scale_up : Event::Kind::scale_down,
           .step = row.step,
           .text = fmt::format("loss scale changed from {} to {}", scale_text(before->loss_scale),
                               scale_text(row.loss_scale)),
           .scale_before = before->loss_scale,
           .scale = row.loss_scale});
    }
    before = &row;
  }
  if (const Report* report = run.report()) {
    for (const Finding& finding : report->findings) {
      if (finding.lane != lane || finding.step < 0) continue;
      events.push_back({.kind = Event::Kind::finding,
                        .step = finding.step,
                        .site = view.find_site(lane, finding.site).value_or(-1),
                        .text = finding.mechanism});
    }
  }
  for (Event& event : events) {
    if (event.site >= static_cast<int>(sites.size())) event.site = -1;
  }
  std::stable_sort(events.begin(), events.end(),
                   [](const Event& a, const Event& b) { return a.step < b.step; });
  return events;
}

ImU32 event_color(const Theme& theme, Event::Kind kind) noexcept {
  switch (kind) {
    case Event::Kind::bad:
      return theme.bad;
    case Event::Kind::skipped:
    case Event::Kind::scale_down:
      return theme.warn;
    case Event::Kind::scale_up:
      return theme.good;
    case Event::Kind::finding:
      return theme.accent;
  }
  return theme.soft;
}

std::vector<EventGroup> group_events(const std::vector<Event>& events) {
  std::vector<EventGroup> groups;
  std::map<std::pair<Event::Kind, int>, size_t> newest;  // group of each kind and tensor
  for (size_t i = 0; i < events.size(); ++i) {
    const Event& event = events[i];
    const auto [place, is_new] = newest.try_emplace({event.kind, event.site}, groups.size());
    const bool follows = !is_new && event.kind != Event::Kind::finding &&
                         event.step <= events[groups[place->second].events.back()].step + 1;
    if (follows) {
      groups[place->second].events.push_back(i);
      continue;
    }
    place->second = groups.size();
    groups.push_back({{i}});
  }
  return groups;
}

std::string group_text(const std::vector<Event>& events, const EventGroup& group) {
  const Event &first = events[group.events.front()], &last = events[group.events.back()];
  const auto count = static_cast<int64_t>(group.events.size());
  const std::string steps = fmt::format(", {} to {}", grouped(first.step), grouped(last.step));
  switch (first.kind) {
    case Event::Kind::skipped:
      return counted(count, "skipped step") + steps + ": " + kSkipReason;
    case Event::Kind::scale_down:
    case Event::Kind::scale_up:
      return counted(count, "change") + " of the loss scale" + steps + ": from " +
             scale_text(first.scale_before) + " to " + scale_text(last.scale);
    case Event::Kind::bad:
    case Event::Kind::finding:
      return counted(count, "event") + steps + ": " + first.text;
  }
  return "";
}

namespace {

constexpr size_t kFewEvents = 3;  ///< a smaller group is not folded

/// A line of the list: an event, or the head of a folded or open group.
struct EventLine {
  size_t event = 0;
  const EventGroup* group = nullptr;  ///< of a head
  bool inside = false;                ///< of an open group
};

/// Kind, step and tensor of an event, which stay when a live run or its report is read again.
using EventKey = std::tuple<Event::Kind, int64_t, int>;
EventKey key_of(const Event& event) { return {event.kind, event.step, event.site}; }

struct EventCache {
  std::weak_ptr<const RunView> view{};
  const void* report = nullptr;
  int lane = -1;
  std::vector<Event> events{};
  std::vector<EventGroup> groups{};
  std::set<EventKey> open{};  ///< first events of open groups
};

EventCache& up_to_date(const Frame& frame) {
  EventCache& cache = frame.caches.get<EventCache>();
  if (cache.view.lock() == frame.run.shared_view() && cache.lane == frame.at.lane &&
      cache.report == frame.run.report()) {
    return cache;
  }
  if (cache.lane != frame.at.lane) cache.open.clear();
  cache.view = frame.run.shared_view();
  cache.report = frame.run.report();
  cache.lane = frame.at.lane;
  cache.events = events_of(frame.run, frame.at.lane);
  cache.groups = group_events(cache.events);
  return cache;
}

std::vector<EventLine> lines_of(const EventCache& cache) {
  std::vector<EventLine> lines;
  for (const EventGroup& group : cache.groups) {
    const bool folds = group.events.size() >= kFewEvents;
    if (folds) lines.push_back({.event = group.events[0], .group = &group});
    if (folds && !cache.open.contains(key_of(cache.events[group.events[0]]))) continue;
    for (const size_t event : group.events) lines.push_back({.event = event, .inside = folds});
  }
  return lines;
}

/// Returns the lane's first bad event; null without one.
const EventReport* first_event(const Frame& frame) {
  const Report* report = frame.run.report();
  if (report == nullptr) return nullptr;
  const auto event =
      std::find_if(report->events.begin(), report->events.end(),
                   [&](const EventReport& each) { return each.lane == frame.at.lane; });
  return event == report->events.end() ? nullptr : &*event;
}

std::string chain_title(const EventReport& event) {
  return fmt::format("First bad step: {}, from cause to symptom", event.step);
}

/// Draws "conv2.activation 22% overflow  ->  ...  ->  loss". Every link can be clicked.
void draw_chain(const Frame& frame, const EventReport* event) {
  const char* arrow = frame.fonts.unicode ? "\u2192" : "->";
  const float right = ImGui::GetWindowPos().x + ImGui::GetContentRegionMax().x;
  for (size_t i = 0; i < event->links.size(); ++i) {
    const EventLink& link = event->links[i];
    const std::string text = link.note.empty() ? link.name : link.name + ": " + link.note;
    const float needed = ImGui::CalcTextSize(text.c_str()).x + 40 * frame.scale;
    if (i > 0) {
      ImGui::SameLine();
      if (ImGui::GetItemRectMax().x + needed > right) ImGui::NewLine();
      ImGui::TextDisabled("%s", arrow);
      ImGui::SameLine();
    }
    if (ui::small_button(fmt::format("events/link/{}", i), text.c_str())) {
      frame.view.cursor = event->step;
      if (!link.layer.empty()) {
        frame.view.layer = link.layer;
        frame.view.site = link.name;
      }
    }
  }
  ImGui::Dummy({0, 2 * frame.scale});
}

void draw_line(const Frame& frame, EventCache& cache, const EventLine& line) {
  const Event& event = cache.events[line.event];
  const bool is_head = line.group != nullptr;
  const std::string path = fmt::format("events/{}{}", is_head ? "group/" : "", line.event);
  const int64_t last = is_head ? cache.events[line.group->events.back()].step : event.step;
  std::string steps = grouped(event.step);
  if (is_head) {
    const bool open = cache.open.contains(key_of(event));
    const char* sign = !frame.fonts.unicode ? (open ? "- " : "+ ") : open ? "\u25be " : "\u25b8 ";
    steps = fmt::format("{}{} to {}", sign, grouped(event.step), grouped(last));
  } else if (line.inside) {
    steps = "    " + steps;
  }
  ImGui::TableNextRow();
  ImGui::TableNextColumn();
  const bool here = event.step <= frame.at.step && frame.at.step <= last;
  if (ui::selectable(path + "/step", steps.c_str(), here, {0, 0},
                     ImGuiSelectableFlags_SpanAllColumns)) {
    frame.view.cursor = event.step;
    if (event.site >= 0) frame.select_site(event.site);
    if (is_head && cache.open.erase(key_of(event)) == 0) cache.open.insert(key_of(event));
  }
  if (ImGui::IsItemHovered()) frame.view.hovered_step = event.step;
  ImGui::TableNextColumn();
  ImGui::PushStyleColor(ImGuiCol_Text, event_color(frame.theme, event.kind));
  ui::text(path + "/kind", event_name(event.kind));
  ImGui::PopStyleColor();
  ImGui::TableNextColumn();
  ui::text(path + "/site", event.site >= 0
                               ? frame.lane_info().sites[static_cast<size_t>(event.site)].name()
                               : std::string("-"));
  ImGui::TableNextColumn();
  const std::string text = is_head ? group_text(cache.events, *line.group) : event.text;
  ui::text(path + "/what", text);
  ui::tip(text.c_str());
}

void draw_list(const Frame& frame, EventCache& cache) {
  if (cache.events.empty()) {
    const bool measured = !frame.run.columns().empty();
    ImGui::PushStyleColor(ImGuiCol_Text, measured ? frame.theme.good : frame.theme.soft);
    ui::text("events/empty",
             measured ? "No events: no step was skipped, nothing overflowed and the loss scale "
                        "did not change."
                      : "No step was skipped. Overflow was not measured.");
    ImGui::PopStyleColor();
    return;
  }
  const ImGuiTableFlags flags = ImGuiTableFlags_RowBg | ImGuiTableFlags_ScrollY |
                                ImGuiTableFlags_BordersInnerV | ImGuiTableFlags_SizingStretchProp;
  if (!ImGui::BeginTable("events", 4, flags)) return;
  ImGui::TableSetupScrollFreeze(0, 1);
  ImGui::TableSetupColumn("Step", ImGuiTableColumnFlags_WidthFixed, 120 * frame.scale);
  ImGui::TableSetupColumn("Event", ImGuiTableColumnFlags_WidthFixed, 90 * frame.scale);
  ImGui::TableSetupColumn("Tensor", ImGuiTableColumnFlags_WidthStretch, 1.0f);
  ImGui::TableSetupColumn("Description", ImGuiTableColumnFlags_WidthStretch, 2.5f);
  ImGui::TableHeadersRow();
  ImGuiListClipper clipper;
  const std::vector<EventLine> lines = lines_of(cache);
  clipper.Begin(static_cast<int>(lines.size()));
  while (clipper.Step()) {
    for (int i = clipper.DisplayStart; i < clipper.DisplayEnd; ++i) {
      draw_line(frame, cache, lines[static_cast<size_t>(i)]);
    }
  }
  ImGui::EndTable();
}

}  // namespace

const std::vector<Event>& lane_events(const Frame& frame) { return up_to_date(frame).events; }

void draw_events(const Frame& frame) {
  EventCache& cache = up_to_date(frame);
  // Put the chain next to the list, or under a heading that opens, so that the list keeps its
  // height.
  const EventReport* first = first_event(frame);
  const bool beside = first != nullptr && ImGui::GetContentRegionAvail().x > 900 * frame.scale;
  ImGui::PushStyleColor(ImGuiCol_ChildBg, 0);
  if (beside) {
    const float width = std::round(ImGui::GetContentRegionAvail().x * 0.62f);
    ImGui::BeginChild("list", {width, 0}, false);
  } else if (first != nullptr) {
    const bool tall = ImGui::GetContentRegionAvail().y > 280 * frame.scale;
    ImGui::SetNextItemOpen(tall, ImGuiCond_Appearing);
    const std::string title = chain_title(*first);
    const bool open = ImGui::TreeNode("##chain", "%s", title.c_str());
    track_item("events/chain", title);
    if (open) {
      draw_chain(frame, first);
      ImGui::TreePop();
    }
  }
  draw_list(frame, cache);
  if (beside) {
    ImGui::EndChild();
    ImGui::SameLine(0, 16 * frame.scale);
    ImGui::BeginChild("chain", {0, 0}, false);
    ImGui::PushStyleColor(ImGuiCol_Text, frame.theme.soft);
    ui::text("events/chain", chain_title(*first) + ":");
    ImGui::PopStyleColor();
    draw_chain(frame, first);
    ImGui::EndChild();
  }
  ImGui::PopStyleColor();
}

}  // namespace halfscope::gui
