// SPDX-License-Identifier: MIT
// What each node of a cure does to the numbers when only that node is as it was.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/proof/search.h"
#include "analysis/rules/error_source.h"
#include "analysis/rules/text.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

/// Whether the path is the member's, one of its primitives', or data that only it reads.
bool belongs(const LaneFacts& lane, int node, const std::string& member) {
  const ForwardNode& own = lane.nodes()[static_cast<size_t>(node)];
  if (own.layer >= 0) return own.path == member || own.path.starts_with(member + "/");
  return std::any_of(own.readers.begin(), own.readers.end(), [&](int reader) {
    const std::string& path = lane.nodes()[static_cast<size_t>(reader)].path;
    return path == member || path.starts_with(member + "/");
  });
}

/// An error that only later operators make large.
Cause passed_on(const LaneFacts& lane, const Change& member) {
  Cause cause{.layer = member.path, .mechanism = Mechanism::early_rounding, .weight = 0.4};
  const Harm harm = harm_of(lane);
  const LayerInfo* part = nullptr;  // the layer, or the last step of a composite
  for (const LayerInfo& layer : lane.info().layers) {
    if (layer.path == member.path || layer.path.starts_with(member.path + "/")) part = &layer;
  }
  const std::string format = part == nullptr ? "few bits" : format_name(part->write);
  const bool has_steps = part != nullptr && part->path != member.path;
  cause.text = fmt::format("{} rounds {} to {}", member.path,
                           has_steps ? "the results of its steps" : "its result", format);
  if (member.kind == FixKind::accumulate_fp32) {
    cause.mechanism = Mechanism::stalled_sum;
    cause.weight = 0.9;
    cause.text = fmt::format("{} sums in {}, where small terms stop counting", member.path, format);
    return cause;
  }
  for (size_t node = 0; node < lane.nodes().size(); ++node) {
    if (lane.nodes()[node].path != member.path) continue;
    const int zeros = cancelled_site(lane, static_cast<int>(node));
    if (zeros < 0) break;
    cause.weight = 0.8;
    cause.text +=
        fmt::format(", and {} then becomes 0 where it is not 0 in fp32", lane.site(zeros).path);
    return cause;
  }
  if (harm.items.empty()) return cause;
  const std::optional<ErrorSource> growth = grows_error(lane, harm);
  if (!growth || lane.site(growth->site).path == member.path) {
    cause.text += ", and the next steps need the bits that this drops";
    return cause;
  }
  const std::string& worse = lane.site(growth->site).path;
  cause.text += std::isfinite(growth->after)
                    ? fmt::format(", and {} is then {} off", worse, percent(growth->after))
                    : fmt::format(", and {} is then not finite", worse);
  return cause;
}

/// What the member's node does in a run without that member.
Cause cause_in(const RunView& run, const Change& member) {
  const LaneFacts lane(run, run.lane_count() - 1);
  std::optional<Suspect> worst;
  for (size_t node = 0; node < lane.nodes().size(); ++node) {
    if (!belongs(lane, static_cast<int>(node), member.path)) continue;
    std::optional<Suspect> found = examine(lane, static_cast<int>(node));
    if (found && (!worst || found->weight > worst->weight)) worst = std::move(found);
  }
  if (!worst) {
    for (Suspect& each : backward_suspects(lane)) {
      if (!belongs(lane, each.node, member.path)) continue;
      worst = std::move(each);
      break;
    }
  }
  if (!worst) return passed_on(lane, member);
  return {.layer = member.path,
          .site = lane.site(worst->site).name(),
          .mechanism = worst->mechanism,
          .weight = worst->weight,
          .text = worst->text};
}

}  // namespace

std::vector<Cause> find_causes(TrialBook& book, const PlanEdit& edit) {
  std::vector<Change> members;
  std::vector<PlanEdit> rests;
  for (const Change& member : edit.changes) {
    if (member.path.empty()) continue;
    members.push_back(member);
    rests.push_back(edit);
    std::erase(rests.back().changes, member);
  }
  std::vector<Cause> causes;
  // A recorded run takes memory, so no more than run side by side are kept.
  const size_t at_once = static_cast<size_t>(std::max(book.at_once(), 1));
  for (size_t from = 0; from < rests.size(); from += at_once) {
    const size_t end = std::min(from + at_once, rests.size());
    const auto runs = book.record(std::vector<PlanEdit>(rests.begin() + static_cast<int64_t>(from),
                                                        rests.begin() + static_cast<int64_t>(end)));
    if (!runs) break;
    for (size_t i = from; i < end; ++i) causes.push_back(cause_in((*runs)[i - from], members[i]));
  }
  return causes;
}

}  // namespace halfscope
