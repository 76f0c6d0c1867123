// SPDX-License-Identifier: MIT
// forward_overflow: the places where the forward pass first becomes NaN or infinite. Downstream
// infinities and NaNs are symptoms and are not named. No loss scale affects the forward pass.
// Infinities that later operators absorb without harm, such as those of a mask, are a remark.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "analysis/format_limits.h"
#include "analysis/rules/absorbed.h"
#include "analysis/rules/rounded_sources.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/shown_rate.h"
#include "analysis/rules/site_words.h"
#include "analysis/rules/text.h"
#include "analysis/rules/zero_operands.h"

namespace halfscope {
namespace {

/// Number of a lane's last steps that show whether it has settled.
constexpr size_t kLastSteps = 20;
/// A loss that is this many times as large as at the start has not grown by chance.
constexpr double kGrown = 100.0;

struct Root {
  int64_t steps = 0;  ///< recorded windows in which it started here
  int64_t first_step = -1;
  int64_t overflow = 0, non_finite = 0, nan = 0, elements = 0;
  double max_abs = 0.0;
  double low_scale = std::numeric_limits<double>::infinity(), high_scale = 0.0;
  bool skipped = false, loss_non_finite = false;
  bool silent = true;  ///< in every step its infinities ended before the loss or an output

  bool not_infinite() const noexcept { return nan == non_finite; }
};

/// The formats that a node reads and writes, which decide whether they can represent a value.
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
    std::set<int> nodes;  // a module of a capture may have several outputs
    for (int site : lane.forward_causes(step)) {
      const bool is_output = lane.captured() && lane.site(site).role == Role::activation;
      if (is_output && !nodes.insert(lane.node_of(site)).second) continue;
      const TensorStats stats = *lane.stats(site, step.step);
      const Formats formats =
          formats_of(lane, lane.nodes()[static_cast<size_t>(lane.node_of(site))]);
      // Not finite without an overflow of its own result: it happened while reading or summing in a
      // narrow format. In full precision, unless the reference is finite there, it is a matter of
      // the mathematics, not of this rule. Functions may have computed in another format than that
      // of their result.
      if (stats.overflow == 0 && !lane.runs_own_code(lane.node_of(site)) &&
          full_precision(formats.read) && full_precision(formats.write) &&
          !lane.reference_counts(site, step.step)) {
        continue;
      }
      const bool silent = step.is_silent(site);
      Root& root = roots[site];
      ++root.steps;
      if (root.first_step < 0) root.first_step = step.step;
      root.overflow += stats.overflow;
      root.non_finite += stats.non_finite();
      root.nan += stats.nan;
      root.elements += stats.n;
      root.max_abs = std::max(root.max_abs, static_cast<double>(stats.max_abs));
      if (std::isfinite(step.loss_scale)) {
        root.low_scale = std::min(root.low_scale, step.loss_scale);
        root.high_scale = std::max(root.high_scale, step.loss_scale);
      }
      root.silent = root.silent && silent;
      if (silent) continue;  // a step may be skipped for another reason
      root.skipped = root.skipped || step.skipped;
      root.loss_non_finite = root.loss_non_finite || !step.loss_finite;
    }
  }
  return roots;
}

/// The scaler gave up, or is about to: below 1, it is fighting something else.
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

/// Returns the largest magnitude of a node's output in the reference; 0 if it was not recorded
/// there.
double reference_max(const RunView& run, int reference, const std::string& name) {
  if (reference < 0) return 0.0;
  const std::optional<int> site = run.find_site(reference, name);
  return site ? static_cast<double>(run.total(reference, *site).max_abs) : 0.0;
}

/// Returns the layers that would overflow next if `keep` ran in fp32. The first overflow hides them
/// in the lane itself, but the full-precision lane shows the values they would meet. Formats are
/// followed through the graph as the plan would assign them.
std::vector<int> hidden_behind(const LaneFacts& lane, const std::vector<int>& keep) {
  const int reference = lane.reference();
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
  // Layers are in execution order, so one pass sees every input before its readers.
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].layer < 0) continue;
    const LayerInfo& layer = lane.info().layers[static_cast<size_t>(nodes[i].layer)];
    const auto first = std::find_if(nodes[i].inputs.begin(), nodes[i].inputs.end(), [&](int input) {
      return nodes[static_cast<size_t>(input)].output_site >= 0;
    });
    if (layer.follows && first != nodes[i].inputs.end()) {
      FloatFormat widest = formats[static_cast<size_t>(*first)].write;
      for (int input : nodes[i].inputs) {
        if (nodes[static_cast<size_t>(input)].output_site < 0) continue;  // a variable
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

/// Returns "fc1 reads relu.activation in fp16, whose largest number is 65504, but the values reach
/// 1e6"; "" if no operand is too large for the node.
std::string reads_too_large(const LaneFacts& lane, int site) {
  const ForwardNode& node = lane.nodes()[static_cast<size_t>(lane.node_of(site))];
  const FloatFormat read = formats_of(lane, node).read;
  for (const int input : node.inputs) {
    const int from = lane.nodes()[static_cast<size_t>(input)].output_site;
    if (from < 0) continue;
    const double largest = lane.run().total(lane.lane(), from).max_abs;
    if (largest >= overflow_threshold(read)) {
      return fmt::format("{} reads {} in {}, whose largest number is {}, but the values reach {}",
                         lane.site(site).path, lane.site(from).name(), format_name(read),
                         short_number(read.max_finite()), short_number(largest));
    }
  }
  return "";
}

/// Returns whether the node's operator gives NaN for a finite operand only if that is negative.
bool reads_negative(const LaneFacts& lane, int node) {
  const int layer = lane.nodes()[static_cast<size_t>(node)].layer;
  if (layer < 0) return false;
  const std::string& op = lane.info().layers[static_cast<size_t>(layer)].op;
  return op == "Sqrt" || op == "Log";
}

/// Returns whether a result comes from code that is no operator, so that its format may not be the
/// reason: code between modules, in the model's forward, or in a module whose results are in fp32.
bool is_code(const LaneFacts& lane, int site) {
  const int node = lane.node_of(site);
  return lane.is_function(node) || lane.is_whole_model(node) ||
         (lane.runs_own_code(node) && !lane.infinity_is_overflow(lane.site(site)));
}

/// Returns whether zeros make the result NaN or infinite, as far as nothing else does.
bool comes_from_zeros(const LaneFacts& lane, int site, const Root& root, const Zeros& zeros) {
  if (root.overflow > 0 || !zeros.found() || is_code(lane, site)) return false;
  if (lane.infinity_is_overflow(lane.site(site)) && !root.not_infinite()) return false;
  return reads_too_large(lane, site).empty();
}

/// Returns how these zeros came about.
Mechanism mechanism_of_zeros(const LaneFacts& lane, const Zeros& zeros) {
  if (zeros.underflows < 0) return Mechanism::early_rounding;
  return is_constant(lane.site(zeros.underflows)) ? Mechanism::constant : Mechanism::forward_flush;
}

std::string what_happens(const LaneFacts& lane, int site, const Root& root, const Zeros& zeros) {
  const SiteInfo& info = lane.site(site);
  if (root.overflow > 0) return overflow_text(lane, info);
  if (is_code(lane, site)) {
    return fmt::format("{} gives {} from finite numbers: {} of its results",
                       code_words(lane, lane.node_of(site)),
                       root.nan == 0         ? "infinity"
                       : root.not_infinite() ? "NaN"
                                             : "NaN and infinity",
                       percent(share_of(root.non_finite, root.elements)));
  }
  // Its operands are finite.
  if (lane.infinity_is_overflow(info) && !root.not_infinite()) {
    const Subject subject = subject_of(info);
    return fmt::format(
        "{} overflows {}: {} of its {} are infinite", subject.name, format_name(info.format),
        percent(share_of(root.non_finite - root.nan, root.elements)), subject.values);
  }
  const ForwardNode& node = lane.nodes()[static_cast<size_t>(lane.node_of(site))];
  const FloatFormat read = formats_of(lane, node).read;
  if (std::string text = reads_too_large(lane, site); !text.empty()) return text;
  if (comes_from_zeros(lane, site, root, zeros)) {
    const ForwardNode& source = lane.nodes()[static_cast<size_t>(zeros.way.front())];
    if (zeros.underflows >= 0) {
      const SiteInfo& flushed = lane.site(zeros.underflows);
      return fmt::format("{} becomes NaN or infinite: {} underflows {} to 0", info.path,
                         subject_of(flushed).name, format_name(flushed.format));
    }
    return fmt::format("{} becomes NaN or infinite: {} rounds to 0 in {}, but not in fp32",
                       info.path, source.path, format_name(lane.site(source.output_site).format));
  }
  const bool only_nan = root.not_infinite();
  if (only_nan && reads_negative(lane, lane.node_of(site))) {
    return fmt::format("{} reads negative numbers and gives NaN", info.path);
  }
  return fmt::format("{} produces {} in {} from finite operands", info.path,
                     only_nan ? "NaN" : "infinity", format_name(read));
}

/// Returns the operators that turn the infinities into finite values: "belis/Exp".
std::vector<std::string> absorbers(const LaneFacts& lane, const RecordedStep& step, int site) {
  std::vector<bool> made(lane.nodes().size(), false);
  const auto mark = [&](const std::vector<int>& sites) {
    for (const int order : sites) {
      const SiteInfo& info = lane.site(order);
      const size_t node = static_cast<size_t>(lane.node_of(order));
      if (info.role == Role::activation || lane.nodes()[node].layer < 0) made[node] = true;
    }
  };
  mark(step.bad);
  mark(step.absorbed);
  std::vector<std::string> paths;
  std::vector<bool> seen(made.size(), false);
  std::vector<int> open{lane.node_of(site)};
  while (!open.empty()) {
    const size_t at = static_cast<size_t>(open.back());
    open.pop_back();
    if (seen[at]) continue;
    seen[at] = true;
    if (!made[at]) {
      paths.push_back(lane.nodes()[at].path);
      continue;
    }
    for (const int reader : lane.nodes()[at].readers) open.push_back(reader);
  }
  if (paths.empty()) {  // a mask among other infinities
    for (const int node : zeroing_nodes(lane, site, step.step)) {
      paths.push_back(lane.nodes()[static_cast<size_t>(node)].path);
    }
  }
  return lane.in_order(std::move(paths));
}

/// Describes the consequences, or why there are none.
std::string outcome(const LaneFacts& lane, int site, const Root& root, bool collapsed) {
  if (root.silent) {
    const RecordedStep* step = nullptr;
    for (const RecordedStep& each : lane.recorded()) {
      if (each.step == root.first_step) step = &each;
    }
    const std::vector<std::string> ends = absorbers(lane, *step, site);
    return fmt::format(
        " {} {} the infinities into finite values. No NaN appears, but the outputs may be wrong.{}",
        name_list(ends), ends.size() == 1 ? "turns" : "turn",
        lane.reference() >= 0 ? ""
        : lane.captured()     ? " A recording of the same training in float32 would show it."
                              : " Add a float32 lane to check them.");
  }
  if (lane.inference()) return root.loss_non_finite ? " The outputs are NaN or infinite." : "";
  if (!collapsed)
    return " A loss scale alone cannot help, because the forward pass does not use it.";
  std::string text = " Lowering the loss scale alone does not help";
  if (root.low_scale < root.high_scale) {
    text += fmt::format(" (it went from {} down to {})", scale_text(root.high_scale),
                        scale_text(root.low_scale));
  }
  return text + ", because the forward pass does not use it.";
}

/// Returns whether an operation has no valid result, which is not an overflow as far as the run
/// shows: NaN alone, or anything that comes from functions.
bool is_invalid(const LaneFacts& lane, int site, const Root& root, const Zeros& zeros) {
  if (!lane.captured() || root.overflow > 0) return false;
  if (is_code(lane, site)) return true;
  return root.not_infinite() && !zeros.found() && reads_too_large(lane, site).empty();
}

std::string advice_on_formula(const LaneFacts& lane, int site, const Root& root) {
  const int node = lane.node_of(site);
  const std::string& path = lane.nodes()[static_cast<size_t>(node)].path;
  std::string text = lane.is_function(node) || lane.is_whole_model(node)
                         ? code_advice(lane, node)
                         : fmt::format("Run {} in fp32 to see whether the format is the cause.{}",
                                       path, cast_note(lane.info(), PlanEdit::in_fp32({path})));
  if (root.nan > 0) {
    text +=
        " If it still gives NaN, the formula has no result there: look for a softmax of a row that "
        "is masked completely, 0 / 0, infinity minus infinity, or the root or logarithm of a "
        "negative number, as of a variance E[x^2] - E[x]^2 that was rounded.";
  }
  return text;
}

/// The loss, or the norm of all weights, before something overflowed.
struct Growth {
  const char* of = "the loss";
  double first = 0.0, last = 0.0;
  double times() const noexcept { return first > 0.0 ? last / first : 0.0; }
};

/// Returns how the weights have grown from the recorded step before to a step.
Growth growth_of_weights(const LaneFacts& lane, int64_t step) {
  Growth growth{.of = "the norm of the weights"};
  int64_t last = step;
  for (const RecordedStep& each : lane.recorded()) {
    if (each.step < step) last = each.step;
  }
  for (const SiteInfo& site : lane.info().sites) {
    if (site.role != Role::weight) continue;
    const auto before = lane.stats(site.order, last);
    const auto after = lane.stats(site.order, step);
    if (!before || !after || before->n != after->n) continue;
    growth.first += before->sum_sq;
    growth.last += after->sum_sq;
  }
  growth.first = std::sqrt(growth.first);
  growth.last = std::sqrt(growth.last);
  return growth;
}

/// Returns how the loss has grown before a step, or else the weights: one update may be enough.
/// Where a full-precision lane trains beside this one, that lane shows it.
Growth growth_before(const LaneFacts& lane, int64_t step) {
  Growth growth;
  if (!lane.has_loss() || lane.reference() >= 0) return growth;
  for (const StepRow& row : lane.steps()) {
    if (row.step >= step || !std::isfinite(row.loss)) break;
    if (growth.first == 0.0) growth.first = std::fabs(row.loss);
    growth.last = std::max(growth.last, std::fabs(row.loss));
  }
  if (growth.times() < kGrown) growth = growth_of_weights(lane, step);
  return growth;
}

/// Returns why the problem starts at this site, or that nothing shows it.
std::string why_here(const LaneFacts& lane, int site, int64_t step) {
  if (lane.is_function(lane.node_of(site))) {
    return "The modules before it are finite, so the problem starts in this code, which belongs to "
           "no module (for example a function of torch).";
  }
  const int node = lane.node_of(site);
  if (lane.is_whole_model(node)) {
    return "All modules in it are finite, so the problem starts in this code.";
  }
  const std::vector<int>& inputs = lane.nodes()[static_cast<size_t>(node)].inputs;
  const std::vector<SiteInfo>& sites = lane.info().sites;
  const bool recorded = std::any_of(inputs.begin(), inputs.end(),
                                    [&](int input) {
                                      const int output =
                                          lane.nodes()[static_cast<size_t>(input)].output_site;
                                      return output >= 0 && lane.stats(output, step).has_value();
                                    }) ||
                        std::any_of(sites.begin(), sites.end(), [&](const SiteInfo& each) {
                          return each.role == Role::input && lane.node_of(each.order) == node &&
                                 lane.stats(each.order, step).has_value();
                        });
  if (!recorded && !inputs.empty()) {
    return "Its inputs were not recorded, so the problem may start before it.";
  }
  return "Its inputs are finite, so the problem starts here.";
}

Finding describe(const LaneFacts& lane, int site, const Root& root, bool collapsed,
                 const Zeros& zeros) {
  const SiteInfo& info = lane.site(site);
  Finding finding{.rule = "forward_overflow", .lane = lane.lane()};
  finding.severity = root.skipped || root.loss_non_finite ? Severity::error : Severity::warning;
  finding.site = info.name();
  finding.layer = info.path;
  finding.step = root.first_step;
  finding.mechanism = what_happens(lane, site, root, zeros);
  const double recorded = static_cast<double>(lane.recorded().size());
  finding.evidence = {{"steps", static_cast<double>(root.steps)},
                      {"recorded_steps", recorded},
                      {"overflow", static_cast<double>(root.overflow)},
                      {"non_finite", static_cast<double>(root.non_finite)},
                      {"max_abs", root.max_abs},
                      {"max_finite", info.format.max_finite()},
                      {"format", format_name(info.format)}};
  if (root.high_scale > 0.0 && lane.scales_loss()) {
    finding.evidence["lowest_loss_scale"] = root.low_scale;
    finding.evidence["highest_loss_scale"] = root.high_scale;
  }
  finding.text = fmt::format("{}.", finding.mechanism);
  if (root.overflow > 0) {
    finding.text += fmt::format(" The largest is {}.", short_number(root.max_abs));
    const ShownRate rate = shown_rate(lane, site, &Rates::overflow);
    if (rate.peaks()) {
      finding.text += fmt::format(" The worst is {}, with {} of its {}.", worst_steps(lane, rate),
                                  percent(rate.worst), subject_of(info).values);
    }
  }
  finding.text += fmt::format(
      " This happens in {} of {} recorded {}, first at {} {}. {}", root.steps,
      short_number(recorded), lane.inference() ? "batches" : "steps",
      lane.inference() ? "batch" : "step", root.first_step, why_here(lane, site, root.first_step));
  finding.text += outcome(lane, site, root, collapsed);
  if (comes_from_zeros(lane, site, root, zeros)) {
    finding.cause = mechanism_of_zeros(lane, zeros);
  } else if (root.overflow == 0 && root.not_infinite() &&
             reads_negative(lane, lane.node_of(site))) {
    finding.cause = Mechanism::early_rounding;
  }
  if (is_invalid(lane, site, root, zeros)) {
    finding.cause = Mechanism::invalid_result;
    finding.action.text = advice_on_formula(lane, site, root);
  }
  return finding;
}

/// Says so if the loss had grown before anything overflowed: then the training diverges on its own.
void blame_growth(const Growth& growth, Finding& finding) {
  if (growth.times() < kGrown) return;
  const std::string course = fmt::format("{} had grown from {} to {}", growth.of,
                                         short_number(growth.first), short_number(growth.last));
  finding.mechanism += fmt::format(", after {}", course);
  finding.text += fmt::format(
      " Before anything overflowed, {}, so the training diverges first. A run in float32 shows "
      "whether the format has a part in it.",
      course);
  finding.action = {
      .text = fmt::format("Lower the learning rate first: {} before anything overflowed.", course)};
}

/// Adds one remark about everything that is absorbed; it names the first site in the graph.
void remark_on_absorbed(const LaneFacts& lane, std::vector<Finding>& findings) {
  const RecordedStep* first = nullptr;
  int site = -1;
  int64_t steps = 0, overflow = 0;
  std::vector<bool> places(lane.info().sites.size(), false);
  for (const RecordedStep& step : lane.recorded()) {
    for (const int order : step.absorbed) {
      const TensorStats stats = *lane.stats(order, step.step);
      if (stats.overflow == 0) continue;
      places[static_cast<size_t>(order)] = true;
      if (first == nullptr) {
        first = &step;
        site = order;
      }
      if (order != site) continue;
      ++steps;
      overflow += stats.overflow;
    }
  }
  if (first == nullptr) return;
  const SiteInfo& info = lane.site(site);
  Finding finding{.rule = "forward_overflow", .lane = lane.lane()};
  finding.site = info.name();
  finding.layer = info.path;
  finding.step = first->step;
  const std::vector<std::string> absorbing = absorbers(lane, *first, site);
  const std::string ends = name_list(absorbing);
  finding.mechanism = fmt::format("{}, which is harmless", overflow_text(lane, info));
  finding.text =
      fmt::format("{}. This is harmless: {} {} the same output in a wider format.",
                  overflow_text(lane, info), ends, absorbing.size() == 1 ? "gives" : "give");
  finding.evidence = {
      {"steps", static_cast<double>(steps)},
      {"overflow", static_cast<double>(overflow)},
      {"absorbed_by", ends},
      {"tensors", static_cast<double>(std::count(places.begin(), places.end(), true))},
      {"format", format_name(info.format)}};
  findings.push_back(std::move(finding));
}

/// Returns the layers to keep in fp32 for a root, without those that would overflow next.
std::vector<int> layers_of_root(const LaneFacts& lane, int site, const Zeros& zeros) {
  if (!zeros.found()) {
    std::vector<int> layers = lane.layers_behind(site), narrow = layers;
    // Some readers of an input compute in fp32 already: a loss that reads it as its target.
    std::erase_if(narrow, [&](int node) {
      return full_precision(formats_of(lane, lane.nodes()[static_cast<size_t>(node)]).read);
    });
    if (!narrow.empty() && !reads_negative(lane, lane.node_of(site))) return narrow;
    // The numbers that it reads were rounded before.
    const std::vector<int> before = rounded_before(lane, lane.node_of(site));
    narrow.insert(narrow.end(), before.begin(), before.end());
    return narrow.empty() ? layers : narrow;
  }
  std::vector<int> layers = zeros.made_of;
  layers.insert(layers.end(), zeros.way.begin(), zeros.way.end());
  return layers;
}

void find_forward_overflow(const LaneFacts& lane, std::vector<Finding>& findings) {
  if (lane.full_precision()) return;  // fp32 leaves its range only where the mathematics does
  remark_on_absorbed(lane, findings);
  const std::map<int, Root> roots = gather_roots(lane);
  if (roots.empty()) return;
  std::map<int, Zeros> zeros;
  std::vector<int> all;
  for (const auto& [site, root] : roots) {
    Zeros before = zeros_before(lane, lane.node_of(site), root.first_step);
    if (comes_from_zeros(lane, site, root, before)) zeros[site] = std::move(before);
    for (int node : layers_of_root(lane, site, zeros[site])) all.push_back(node);
  }
  std::vector<int> hidden = hidden_behind(lane, all);
  const bool collapsed = scale_collapsed(lane);
  const auto earlier = [](const auto& a, const auto& b) {
    return a.second.first_step < b.second.first_step;
  };
  const Growth growth =
      growth_before(lane, std::min_element(roots.begin(), roots.end(), earlier)->second.first_step);
  for (const auto& [site, root] : roots) {
    Finding finding = describe(lane, site, root, collapsed, zeros[site]);
    std::vector<std::string> layers, also;
    for (int node : layers_of_root(lane, site, zeros[site])) {
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
          " After that, {} would overflow too: {} values in the fp32 lane are just as large.",
          name_list(also), also.size() == 1 ? "its" : "their");
      layers.insert(layers.end(), also.begin(), also.end());
    }
    layers = lane.in_order(std::move(layers));
    if (!layers.empty() && finding.action.text.empty()) {
      finding.action = keep_in_fp32(std::move(layers));
    }
    blame_growth(growth, finding);
    findings.push_back(std::move(finding));
  }
}

}  // namespace

const Rule rule::forward_overflow{.id = "forward_overflow",
                                  .run = find_forward_overflow,
                                  .mechanism = Mechanism::forward_overflow};

}  // namespace halfscope
