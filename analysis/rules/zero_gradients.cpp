// SPDX-License-Identifier: MIT
// zero_gradients: layers whose gradients are exactly 0 in every recorded step of a capture that was
// not skipped, so that they learn nothing. No format shows it: h / norm(h) is 0 where the norm
// overflows to infinity, and all gradients behind it are 0, too, without a NaN. Layers that nothing
// reads are like that in any format, so without a reason it is a remark. A cast to 8 bits, and a
// sum in the loss function that overflows, are such reasons. A lane with a reference is compared
// with that.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "analysis/format_limits.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/site_words.h"
#include "analysis/rules/text.h"
#include "analysis/rules/zero_tensors.h"
#include "core/ops/ops.h"

namespace halfscope {
namespace {

/// Returns whether all weights of a node are 0 in all steps, so that 0 is its exact result.
bool has_zero_weights(const LaneFacts& lane, int node) {
  const std::vector<int>& weights = lane.nodes()[static_cast<size_t>(node)].weight_sites;
  return !weights.empty() && std::all_of(weights.begin(), weights.end(), [&](int site) {
    return zero_course(lane, site).always_zero();
  });
}

/// Returns whether gradients of an fp16 training without a loss scale are 0 everywhere.
bool all_underflow(const LaneFacts& lane) {
  if (lane.scales_loss() || !lane.has_loss()) return false;
  const bool has_loss = std::any_of(lane.steps().begin(), lane.steps().end(),
                                    [](const StepRow& row) { return row.loss != 0.0; });
  bool narrow = false;
  for (const SiteInfo& site : lane.info().sites) {
    if (site.phase != Phase::backward) continue;
    if (!zero_course(lane, site.order).always_zero()) return false;
    narrow = narrow || narrow_exponent(site.format);
  }
  return has_loss && narrow;
}

/// Steps in which all gradients must be 0. A layer that starts with zeros explains only some of
/// them.
constexpr int64_t kLeastWithout = 5;

/// Returns the number of recorded steps in which the loss is not 0 and no gradient reaches any
/// weight; 0 if one does in any step.
int64_t steps_without_gradients(const LaneFacts& lane) {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const SiteInfo& site : lane.info().sites) {
    if (site.phase != Phase::backward) continue;
    const ZeroCourse course = zero_course(lane, site.order);
    if (!course.all_zero || !course.finite) return 0;
    if (course.windows > 0) least = std::min(least, course.windows);
  }
  const auto has_loss = [](const StepRow& row) { return row.skipped || row.loss != 0.0; };
  const std::span<const StepRow> rows = lane.steps();
  const bool losses = lane.has_loss() && std::all_of(rows.begin(), rows.end(), has_loss);
  return losses && least != std::numeric_limits<int64_t>::max() ? least : 0;
}

/// Returns whether sums over an output of the model can leave the range of its format: of its
/// squares, or of numbers around 1, as many as it has.
bool outputs_may_overflow(const LaneFacts& lane) {
  const std::vector<SiteInfo>& sites = lane.info().sites;
  return std::any_of(sites.begin(), sites.end(), [&](const SiteInfo& site) {
    const ForwardNode& node = lane.nodes()[static_cast<size_t>(lane.node_of(site.order))];
    if (site.role != Role::activation || !node.readers.empty()) return false;
    const TensorStats& total = lane.run().total(lane.lane(), site.order);
    const double most = std::max(total.sum_sq, static_cast<double>(total.n));
    return most >= overflow_threshold(site.format) * static_cast<double>(lane.recorded().size());
  });
}

/// Reports a loss function that gives no gradient at all.
void blame_loss_function(const LaneFacts& lane, int64_t steps, std::vector<Finding>& findings) {
  Finding finding{.rule = "zero_gradients", .lane = lane.lane()};
  finding.severity = Severity::error;
  finding.layer = "loss";
  finding.cause = Mechanism::forward_overflow;
  finding.mechanism = "the loss function gives gradients that are exactly 0, so no layer learns";
  finding.evidence = {{"recorded_steps", static_cast<double>(steps)}};
  finding.text = fmt::format(
      "No layer learns: the loss is not 0, but all gradients are, in all {} recorded steps that "
      "were not skipped. A sum in the loss function may overflow to infinity: dividing by infinity "
      "gives 0.",
      steps);
  finding.action.text = loss_advice(lane);
  findings.push_back(std::move(finding));
}

/// Returns the output gradient (its site) that is always 0 in a format of 8 bits, although a reader
/// of the output has a gradient; -1 if there is none. Gradients need more range than 8 bits have.
int flushed_by_cast(const LaneFacts& lane) {
  std::vector<int> gradients(lane.nodes().size(), -1);  // sites, by node
  for (const SiteInfo& site : lane.info().sites) {
    if (site.role != Role::activation_grad) continue;
    int& first = gradients[static_cast<size_t>(lane.node_of(site.order))];
    if (first < 0) first = site.order;
  }
  const auto moves = [&](int node) {
    const int site = gradients[static_cast<size_t>(node)];
    if (site < 0 || has_zero_weights(lane, node)) return false;
    const ZeroCourse course = zero_course(lane, site);
    return course.windows > 0 && course.finite && !course.all_zero;
  };
  for (size_t i = gradients.size(); i-- > 0;) {
    if (gradients[i] < 0) continue;
    const FloatFormat& format = lane.site(gradients[i]).format;
    const std::vector<int>& readers = lane.nodes()[i].readers;
    if (1 + format.exponent_bits + format.mantissa_bits > 8) continue;
    if (!zero_course(lane, gradients[i]).always_zero()) continue;
    if (std::any_of(readers.begin(), readers.end(), moves)) return gradients[i];
  }
  return -1;
}

/// Returns the first node whose output is always 0 although none of those it reads is; -1 if there
/// is none. Operators that choose numbers, as a ReLU does, give 0 in any format.
int first_zero_output(const LaneFacts& lane) {
  const auto is_zero = [&](int node) {
    const int site = lane.nodes()[static_cast<size_t>(node)].output_site;
    return site >= 0 && zero_course(lane, site).always_zero();
  };
  for (size_t i = 0; i < lane.info().layers.size(); ++i) {
    const std::vector<int>& inputs = lane.nodes()[i].inputs;
    const OpDef* def = lookup_op(lane.info().layers[i].op);
    if (inputs.empty() || (def != nullptr && def->selects)) continue;
    if (!is_zero(static_cast<int>(i)) || has_zero_weights(lane, static_cast<int>(i))) continue;
    if (std::none_of(inputs.begin(), inputs.end(), is_zero)) return static_cast<int>(i);
  }
  return -1;
}

/// Returns whether squares of what a node reads can add up to more than the lane's format can
/// represent, so that a sum of them is infinite. Code may compute in another format than its result
/// has.
bool squares_overflow(const LaneFacts& lane, int node) {
  const ForwardNode& own = lane.nodes()[static_cast<size_t>(node)];
  std::vector<int> read = own.weight_sites;
  for (const int input : own.inputs) {
    read.push_back(lane.nodes()[static_cast<size_t>(input)].output_site);
  }
  const FloatFormat& format = lane.site(own.output_site).format;
  const double limit = std::min(overflow_threshold(format),
                                overflow_threshold(default_format(lane.info()).value_or(format))) *
                       static_cast<double>(lane.recorded().size());
  return std::any_of(read.begin(), read.end(), [&](int site) {
    return site >= 0 && lane.run().total(lane.lane(), site).sum_sq >= limit;
  });
}

void find_zero_gradients(const LaneFacts& lane, std::vector<Finding>& findings) {
  if (!lane.captured() || lane.inference() || lane.full_precision() || lane.reference() >= 0) {
    return;
  }
  const int64_t without = lane.scales_loss() ? steps_without_gradients(lane) : 0;
  if (without >= kLeastWithout && first_zero_output(lane) < 0 && outputs_may_overflow(lane)) {
    return blame_loss_function(lane, without, findings);
  }
  std::vector<std::string> layers;
  std::set<std::string> moving;  // layers with a gradient that is not 0
  int64_t steps = 0, first = -1;
  for (const SiteInfo& site : lane.info().sites) {
    if (site.role != Role::weight_grad) continue;
    const ZeroCourse course = zero_course(lane, site.order);
    if (!course.finite) return;  // another rule knows why
    if (!course.always_zero()) {
      moving.insert(site.path);
      continue;
    }
    layers.push_back(site.path);
    steps = steps == 0 ? course.windows : std::min(steps, course.windows);
    if (first < 0 || course.first < first) first = course.first;
  }
  std::erase_if(layers, [&](const std::string& path) { return moving.contains(path); });
  if (layers.empty()) return;
  layers = lane.in_order(std::move(layers));
  const std::string names = name_list(layers);
  const char* verb = layers.size() == 1 ? "learns" : "learn";

  Finding finding{.rule = "zero_gradients", .lane = lane.lane()};
  finding.severity = Severity::warning;
  finding.step = first;
  finding.layer = layers.front();
  finding.evidence = {{"layers", static_cast<double>(layers.size())},
                      {"recorded_steps", static_cast<double>(steps)}};
  finding.mechanism = fmt::format("{} {} nothing: all {} gradients are exactly 0", names, verb,
                                  layers.size() == 1 ? "its" : "their");
  const bool all_steps = steps == static_cast<int64_t>(lane.recorded().size());
  const std::string when =
      fmt::format("in all {} recorded steps{}.", steps, all_steps ? "" : " with finite gradients");
  finding.text = fmt::format("{} {}", finding.mechanism, when);
  const int zero = first_zero_output(lane);
  if (const int cast = zero < 0 ? flushed_by_cast(lane) : -1; cast >= 0) {
    const SiteInfo& site = lane.site(cast);
    finding.severity = Severity::error;
    finding.layer = site.path;
    finding.site = site.name();
    finding.cause = Mechanism::gradient_flush;
    finding.mechanism = fmt::format("the gradient of {} underflows {}, so {} {} nothing", site.path,
                                    format_name(site.format), names, verb);
    finding.text += fmt::format(" The gradient of {} becomes 0 when it is cast to {}.", site.path,
                                format_name(site.format));
    finding.action.text = fmt::format(
        "Do not cast the gradient to {}: pass it through the cast unchanged (a "
        "torch.autograd.Function that rounds in the forward pass only), or scale it before.",
        format_name(site.format));
    findings.push_back(std::move(finding));
    return;
  }
  if (zero < 0) {
    // Gradients on the way there that are almost 0 explain those that are 0.
    const auto flushed = std::find_if(findings.begin(), findings.end(), [](const Finding& each) {
      return each.rule == rule::gradient_underflow.id && each.severity >= Severity::warning;
    });
    const bool all = all_underflow(lane);
    if (flushed != findings.end() || all) {
      finding.severity = Severity::error;
      finding.cause = Mechanism::gradient_flush;
      finding.mechanism = fmt::format("{} {} nothing: all {} gradients underflow to 0", names, verb,
                                      layers.size() == 1 ? "its" : "their");
      finding.text =
          fmt::format("{}, {}{}", finding.mechanism, when,
                      all ? " No loss scaler is in use." : fmt::format(" {}.", flushed->mechanism));
      finding.action = all ? Action{.text = scaling_advice(lane)} : flushed->action;
      findings.push_back(std::move(finding));
      return;
    }
    finding.severity = Severity::info;  // as of a layer that nothing reads
    finding.action.text = fmt::format(
        "Record some steps in float32. If the gradients of {} are 0 there, too, the network is the "
        "cause, such as units that are always off.",
        names);
    findings.push_back(std::move(finding));
    return;
  }
  const ForwardNode& node = lane.nodes()[static_cast<size_t>(zero)];
  const bool code = lane.is_function(zero) || lane.is_whole_model(zero);
  const std::string where = code_words(lane, zero);
  const bool overflow = squares_overflow(lane, zero);
  finding.cause = overflow ? Mechanism::forward_overflow : Mechanism::forward_flush;
  finding.layer = node.path;
  finding.site = lane.site(node.output_site).name();
  finding.mechanism = fmt::format("{} gives nothing but 0, so {} {} nothing", where, names, verb);
  finding.text +=
      fmt::format(" {} gives nothing but 0, although what it reads is not 0.{}",
                  code ? "T" + where.substr(1) : where,
                  overflow ? " Dividing by a sum that has overflowed to infinity does that." : "");
  if (code) {
    finding.action.text = code_advice(lane, zero) +
                          " If it still gives 0, the network is the cause, such as a ReLU whose "
                          "operands are all negative.";
  } else {
    finding.action = keep_in_fp32({node.path});
  }
  findings.push_back(std::move(finding));
}

}  // namespace

const Rule rule::zero_gradients{
    .id = "zero_gradients", .run = find_zero_gradients, .mechanism = Mechanism::gradient_flush};

}  // namespace halfscope
