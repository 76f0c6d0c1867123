// SPDX-License-Identifier: MIT
// The fault of each member of a fix: how the numbers change if only that member is left out.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/proof/search.h"
#include "analysis/rules/error_source.h"
#include "analysis/rules/text.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

/// Returns whether the node is the member, one of its primitives, or data that only it reads.
bool belongs(const LaneFacts& lane, int node, const std::string& member) {
  const ForwardNode& own = lane.nodes()[static_cast<size_t>(node)];
  if (own.layer >= 0) return own.path == member || own.path.starts_with(member + "/");
  return std::any_of(own.readers.begin(), own.readers.end(), [&](int reader) {
    const std::string& path = lane.nodes()[static_cast<size_t>(reader)].path;
    return path == member || path.starts_with(member + "/");
  });
}

/// Returns the overflow of an operator that reads the node's result. With a wider operand it
/// computes in the wider format, too.
std::optional<Suspect> overflowing_reader(const LaneFacts& lane, const Change& member) {
  for (size_t node = 0; node < lane.nodes().size(); ++node) {
    if (!belongs(lane, static_cast<int>(node), member.path)) continue;
    for (const int reader : lane.nodes()[node].readers) {
      std::optional<Suspect> found = examine(lane, reader);
      if (found && found->mechanism == Mechanism::forward_overflow) return found;
    }
  }
  return std::nullopt;
}

/// Returns the cause of an error that only later operators amplify.
Cause passed_on(const LaneFacts& lane, const Change& member) {
  Cause cause{.layer = member.path, .mechanism = Mechanism::early_rounding, .weight = 0.4};
  const Harm harm = harm_of(lane);
  const LayerInfo* part = nullptr;  // the narrowest step of a composite, or the layer
  bool has_steps = false;
  for (const LayerInfo& layer : lane.info().layers) {
    if (layer.path != member.path && !layer.path.starts_with(member.path + "/")) continue;
    has_steps = has_steps || layer.path != member.path;
    if (part == nullptr || layer.write.mantissa_bits < part->write.mantissa_bits) part = &layer;
  }
  const std::string format = part == nullptr ? "few bits" : format_name(part->write);
  const auto rounds = [&](const char* one, const char* many) {
    return fmt::format("{} rounds {} to {}", member.path, has_steps ? many : one, format);
  };
  cause.text = rounds("its output", "the outputs of its steps");
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
    cause.text += fmt::format(", so {} becomes 0 where fp32's is not 0", lane.site(zeros).path);
    return cause;
  }
  if (harm.items.empty()) return cause;
  const std::optional<ErrorSource> growth = grows_error(lane, harm);
  const auto leads_there = [&](int site) {
    for (size_t node = 0; node < lane.nodes().size(); ++node) {
      if (!belongs(lane, static_cast<int>(node), member.path)) continue;
      if (lane.downstream(static_cast<int>(node))[static_cast<size_t>(lane.node_of(site))]) {
        return true;
      }
    }
    return false;
  };
  if (!growth || lane.site(growth->site).path == member.path || !leads_there(growth->site)) {
    if (!lane.inference()) {  // the change keeps gradients in fp32, too
      cause.text = rounds("its output and its gradient", "the outputs and gradients of its steps");
    }
    cause.text += ", and the next steps need the bits that are lost";
    return cause;
  }
  const std::string& worse = lane.site(growth->site).path;
  cause.text +=
      std::isfinite(growth->after)
          ? fmt::format(", so {} differs from fp32's by {}", worse, by_text(growth->after))
          : fmt::format(", so {} becomes NaN or infinite", worse);
  return cause;
}

/// Returns the fault of the member's node in a run without that member.
Cause cause_in(const RunView& run, const Change& member) {
  const LaneFacts lane(run, run.lane_count() - 1);
  const auto is_of_member = [&](int node) {
    return belongs(lane, node, member.path) ||
           std::any_of(member.nodes.begin(), member.nodes.end(),
                       [&](const std::string& path) { return belongs(lane, node, path); });
  };
  std::optional<Suspect> worst;
  for (size_t node = 0; node < lane.nodes().size(); ++node) {
    if (!is_of_member(static_cast<int>(node))) continue;
    std::optional<Suspect> found = examine(lane, static_cast<int>(node));
    if (found && (!worst || found->weight > worst->weight)) worst = std::move(found);
  }
  // Gradients cannot make the loss of a batch wrong.
  const Harm harm = harm_of(lane);
  const bool in_forward =
      std::any_of(harm.items.begin(), harm.items.end(), [](const HarmItem& item) {
        return item.of == HarmItem::Of::output || item.of == HarmItem::Of::loss;
      });
  if (!worst && !in_forward) {
    for (Suspect& each : backward_suspects(lane)) {
      if (!is_of_member(each.node)) continue;
      worst = std::move(each);
      break;
    }
  }
  if (!worst) worst = overflowing_reader(lane, member);
  if (!worst) return passed_on(lane, member);
  const std::string& found_at = lane.nodes()[static_cast<size_t>(worst->node)].path;
  const bool own = is_of_member(worst->node);
  return {.layer = own && member.nodes.empty() ? member.path : found_at,
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
  // Recorded runs take memory, so keep only as many as run at the same time.
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
