// SPDX-License-Identifier: MIT
// forward_overflow: the places where the forward pass leaves the finite numbers first. Downstream
// infinities and NaNs are symptoms and are not named. No loss scale reaches the forward pass.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "analysis/format_limits.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/text.h"
#include "analysis/run_rates.h"

namespace halfscope {
namespace {

/// How many of a lane's last steps tell whether it has settled.
constexpr size_t kLastSteps = 20;

struct Root {
  int64_t steps = 0;  ///< recorded windows in which it started here
  int64_t first_step = -1;
  int64_t overflow = 0, non_finite = 0;
  double max_abs = 0.0;
  double worst_share = 0.0;  ///< of all values, in the window that has most overflows
  int64_t worst_step = -1, worst_last = -1;
  double low_scale = std::numeric_limits<double>::infinity(), high_scale = 0.0;
  bool skipped = false, loss_non_finite = false;
};

/// What decides whether a value can be held: the formats a node reads and writes in.
struct Formats {
  FloatFormat read = kFp32, write = kFp32;
};

/// A node without a layer (the data) is written as its site says.
Formats formats_of(const LaneFacts& lane, const ForwardNode& node) {
  if (node.layer >= 0) {
    const LayerInfo& layer = lane.info().layers[static_cast<size_t>(node.layer)];
    return {layer.read, layer.write};
  }
  if (node.output_site < 0) return {};
  return {lane.site(node.output_site).format, lane.site(node.output_site).format};
}

std::map<int, Root> gather_roots(const LaneFacts& lane) {
  std::map<int, Root> roots;
  for (const RecordedStep& step : lane.recorded()) {
    for (int site : lane.forward_roots(step)) {
      const TensorStats stats = *lane.stats(site, step.step);
      const Formats formats =
          formats_of(lane, lane.nodes()[static_cast<size_t>(lane.node_of(site))]);
      // Not finite without an overflow of its own result: it happened while reading or summing
      // in a narrow format. In full precision it is a matter of the mathematics, not of this rule.
      if (stats.overflow == 0 && full_precision(formats.read) && full_precision(formats.write)) {
        continue;
      }
      Root& root = roots[site];
      ++root.steps;
      if (root.first_step < 0) root.first_step = step.step;
      root.overflow += stats.overflow;
      root.non_finite += stats.non_finite();
      root.max_abs = std::max(root.max_abs, static_cast<double>(stats.max_abs));
      const double share = rates_of(stats, lane.site(site).format).overflow;
      if (share > root.worst_share) {
        root.worst_share = share;
        root.worst_step = step.step;
        root.worst_last = step.step + step.step_count - 1;
      }
      if (std::isfinite(step.loss_scale)) {
        root.low_scale = std::min(root.low_scale, step.loss_scale);
        root.high_scale = std::max(root.high_scale, step.loss_scale);
      }
      root.skipped = root.skipped || step.skipped;
      root.loss_non_finite = root.loss_non_finite || !step.loss_finite;
    }
  }
  return roots;
}

/// The scaler gave up, or is about to: below 1 it can only be fighting something else.
bool scale_collapsed(const LaneFacts& lane) {
  const std::span<const StepRow> rows = lane.steps();
  const bool below_one = std::any_of(rows.begin(), rows.end(),
                                     [](const StepRow& row) { return row.loss_scale < 1.0; });
  const size_t last = std::min(rows.size(), kLastSteps);
  const auto tail = rows.last(last);
  const auto skipped =
      std::count_if(tail.begin(), tail.end(), [](const StepRow& row) { return row.skipped; });
  return below_one || (last >= kLastSteps / 2 && static_cast<size_t>(skipped) * 2 > last);
}

/// Largest magnitude a node's output has in the reference lane; 0 if it was not recorded there.
double reference_max(const RunView& run, int reference, const std::string& name) {
  if (reference < 0) return 0.0;
  const std::optional<int> site = run.find_site(reference, name);
  return site ? static_cast<double>(run.total(reference, *site).max_abs) : 0.0;
}

/// The layers that would overflow next if `keep` ran in fp32: what spoils the narrow lane hides
/// them there, but the full-precision lane shows the values they would meet. Formats are followed
/// through the graph as the plan would lay them out.
std::vector<int> hidden_behind(const LaneFacts& lane, const std::vector<int>& keep) {
  const int reference = reference_lane(lane.run());
  const std::vector<ForwardNode>& nodes = lane.nodes();
  std::vector<bool> fp32(nodes.size(), false);
  for (int node : keep) fp32[static_cast<size_t>(node)] = true;
  if (reference < 0 || reference == lane.lane()) return {};

  std::vector<double> largest(nodes.size(), 0.0);
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].output_site < 0) continue;
    largest[i] = reference_max(lane.run(), reference, lane.site(nodes[i].output_site).name());
  }
  std::vector<int> more;
  std::vector<Formats> formats(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) formats[i] = formats_of(lane, nodes[i]);
  // Layers stand in execution order, so one pass sees every input before its readers.
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].layer < 0) continue;
    const LayerInfo& layer = lane.info().layers[static_cast<size_t>(nodes[i].layer)];
    if (layer.follows && !nodes[i].inputs.empty()) {
      FloatFormat widest = formats[static_cast<size_t>(nodes[i].inputs.front())].write;
      for (int input : nodes[i].inputs) {
        const FloatFormat& format = formats[static_cast<size_t>(input)].write;
        if (format.max_finite() > widest.max_finite()) widest = format;
      }
      formats[i] = {widest, widest};
    }
    if (fp32[i]) formats[i] = {kFp32, kFp32};
    bool overflows = largest[i] >= overflow_threshold(formats[i].write);
    for (int input : nodes[i].inputs) {
      overflows =
          overflows || largest[static_cast<size_t>(input)] >= overflow_threshold(formats[i].read);
    }
    if (!overflows || fp32[i]) continue;
    more.push_back(static_cast<int>(i));
    formats[i] = {kFp32, kFp32};
  }
  return more;
}

std::string what_happens(const LaneFacts& lane, int site, const Root& root) {
  const SiteInfo& info = lane.site(site);
  const std::string format = format_name(info.format);
  if (root.overflow > 0) {
    return fmt::format("{} of all values of {} exceed {}, the largest {} value",
                       percent(run_rates(lane.run(), lane.lane(), site).overflow), info.name(),
                       short_number(info.format.max_finite()), format);
  }
  const ForwardNode& node = lane.nodes()[static_cast<size_t>(lane.node_of(site))];
  const FloatFormat read = formats_of(lane, node).read;
  for (int input : node.inputs) {
    const int from = lane.nodes()[static_cast<size_t>(input)].output_site;
    if (from < 0) continue;
    const double largest = lane.run().total(lane.lane(), from).max_abs;
    if (largest >= overflow_threshold(read)) {
      return fmt::format("{} reads {} in {}, which ends at {}, but it reaches {}", info.path,
                         lane.site(from).name(), format_name(read), short_number(read.max_finite()),
                         short_number(largest));
    }
  }
  return fmt::format(
      "{} is not finite although everything it reads is: it overflows inside the "
      "operator, in {}",
      info.name(), format_name(read));
}

Finding describe(const LaneFacts& lane, int site, const Root& root, bool collapsed) {
  const SiteInfo& info = lane.site(site);
  Finding finding{.rule = "forward_overflow", .lane = lane.lane()};
  finding.severity = root.skipped || root.loss_non_finite ? Severity::error : Severity::warning;
  finding.site = info.name();
  finding.layer = info.path;
  finding.step = root.first_step;
  finding.mechanism = what_happens(lane, site, root);
  const double recorded = static_cast<double>(lane.recorded().size());
  finding.evidence = {{"steps", static_cast<double>(root.steps)},
                      {"recorded_steps", recorded},
                      {"overflow", static_cast<double>(root.overflow)},
                      {"non_finite", static_cast<double>(root.non_finite)},
                      {"max_abs", root.max_abs},
                      {"max_finite", info.format.max_finite()},
                      {"format", format_name(info.format)}};
  if (root.high_scale > 0.0 && !lane.inference()) {
    finding.evidence["lowest_loss_scale"] = root.low_scale;
    finding.evidence["highest_loss_scale"] = root.high_scale;
  }
  finding.text = fmt::format("{} overflows in {} of {} (first at step {}): {}.", info.name(),
                             root.steps, counted(static_cast<int64_t>(recorded), "recorded step"),
                             root.first_step, finding.mechanism);
  if (root.overflow > 0) {
    finding.text += fmt::format(" The exact results reach {}.", short_number(root.max_abs));
    const std::string worst = percent(root.worst_share);
    if (worst != percent(run_rates(lane.run(), lane.lane(), site).overflow)) {
      finding.text +=
          fmt::format(" Most overflow at {}: {} of all values.",
                      root.worst_step == root.worst_last
                          ? fmt::format("step {}", root.worst_step)
                          : fmt::format("steps {} to {}", root.worst_step, root.worst_last),
                      worst);
    }
  }
  finding.text += " Everything it reads is finite, so this is where it starts.";
  if (lane.inference()) {
    if (root.loss_non_finite) finding.text += " It reaches the outputs.";
  } else if (collapsed) {
    finding.text += " This is not a scale problem: it overflows at every loss scale";
    if (root.low_scale < root.high_scale) {
      finding.text += fmt::format(" (seen from {} down to {})", scale_text(root.high_scale),
                                  scale_text(root.low_scale));
    }
    finding.text += ", because the forward pass does not see the scale.";
  } else {
    finding.text += " A loss scale cannot help: the forward pass does not see it.";
  }
  return finding;
}

void find_forward_overflow(const LaneFacts& lane, std::vector<Finding>& findings) {
  const std::map<int, Root> roots = gather_roots(lane);
  if (roots.empty()) return;
  std::vector<int> all;
  for (const auto& [site, root] : roots) {
    for (int node : lane.layers_behind(site)) all.push_back(node);
  }
  std::vector<int> hidden = hidden_behind(lane, all);
  const bool collapsed = scale_collapsed(lane);
  for (const auto& [site, root] : roots) {
    Finding finding = describe(lane, site, root, collapsed);
    std::vector<std::string> layers, also;
    for (int node : lane.layers_behind(site)) {
      layers.push_back(lane.nodes()[static_cast<size_t>(node)].path);
    }
    const std::vector<bool> below = lane.downstream(lane.node_of(site));
    std::erase_if(hidden, [&](int node) {
      if (!below[static_cast<size_t>(node)]) return false;
      also.push_back(lane.nodes()[static_cast<size_t>(node)].path);
      return true;
    });
    if (!also.empty()) {
      finding.text += fmt::format(
          " Behind it, {} would meet values of the same size (the full-precision lane shows them) "
          "and overflow next.",
          name_list(also));
      layers.insert(layers.end(), also.begin(), also.end());
    }
    layers = lane.in_order(std::move(layers));
    if (!layers.empty()) finding.action = keep_in_fp32(std::move(layers));
    findings.push_back(std::move(finding));
  }
}

}  // namespace

const Rule rule::forward_overflow{.id = "forward_overflow", .run = find_forward_overflow};

}  // namespace halfscope
