// SPDX-License-Identifier: MIT
#include "core/plan/plan_edit.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "core/error.h"
#include "core/number_text.h"

namespace halfscope {
namespace {

bool is_narrow(const FloatFormat& format) { return !format.contains(kFp32); }

void widen(FloatFormat& format, const FloatFormat& to) {
  if (is_narrow(format)) format = to;
}
void widen(std::optional<FloatFormat>& format, const FloatFormat& to) {
  if (format) widen(*format, to);
}

/// Replaces every format with fewer bits than fp32; scales for operands with fewer bits are
/// removed.
void replace_formats(Plan& plan, const FloatFormat& by) {
  NodePlan& node = plan.defaults;
  for (FloatFormat* each : {&node.read, &node.write, &plan.storage, &plan.average_compute,
                            &plan.update_compute, &plan.clip, &plan.schedule}) {
    widen(*each, by);
  }
  for (std::optional<FloatFormat>* each :
       {&node.grad_read, &plan.average, &plan.state, &plan.gradient_sum}) {
    widen(*each, by);
  }
  node.scale = {};
  node.second_scale.reset();
  node.prescale = 0;  // the new format may not allow it, and does not need it
  for (PlanRule& rule : plan.rules) {
    for (std::optional<FloatFormat>* each : {&rule.read, &rule.write, &rule.grad_read}) {
      widen(*each, by);
    }
    if (rule.scale || rule.second_scale) rule.scale = TensorScale{};
    rule.second_scale.reset();
    rule.prescale.reset();
  }
}

void round_scale_up(TensorScale& scale) {
  if (scale.kind == TensorScale::Kind::block) scale.rule = ScaleRule::up;
}

void set_amax_floor(TensorScale& scale, double floor) {
  if (!scale.unguarded) return;
  scale.amax_floor = static_cast<float>(floor > 0.0 ? floor : kUsualAmaxFloor);
}

/// Returns the exponent of a power of two that a plan can contain, or nothing for other numbers.
std::optional<int> exponent_of(double power) noexcept {
  int exponent = 0;
  if (!(power > 0.0) || std::frexp(power, &exponent) != 0.5) return std::nullopt;
  --exponent;
  if (std::abs(exponent) > kLargestPrescale) return std::nullopt;
  return exponent;
}

void round_stochastically(Plan& plan, const std::string& what) {
  const RoundingChoice stochastic{.mode = RoundingMode::stochastic};
  if (what != "gradients") {
    plan.storage_rounding = stochastic;
    return;
  }
  plan.defaults.grad_rounding = stochastic;
  for (PlanRule& rule : plan.rules) {
    if (rule.rounding || rule.grad_rounding) rule.grad_rounding = stochastic;
  }
}

/// Returns the reduction that a change sets, if any.
std::optional<Reduction> reduction_in(const Change& change) noexcept {
  if (change.text.empty() ||
      (change.kind != FixKind::reduce_order && change.kind != FixKind::reduce_fp32 &&
       change.kind != FixKind::config)) {
    return std::nullopt;
  }
  try {
    return parse_reduction(change.text);
  } catch (const Error&) {
    return std::nullopt;  // written by a newer version
  }
}

void add_rule(Plan& plan, const Change& change) {
  PlanRule rule{.path = exact_glob(change.path), .op = ""};
  switch (change.kind) {
    case FixKind::store_fp32:
      rule.write = kFp32;
      break;
    case FixKind::constant:
      rule.constants_in_range = true;
      break;
    case FixKind::accumulate_fp32:
      rule.accumulation = Accumulation::fp32;
      break;
    case FixKind::clamp:
      rule.clamps = true;
      break;
    case FixKind::prescale:
      rule.prescale = exponent_of(change.value);
      break;
    default:
      rule.read = rule.write = kFp32;
      break;
  }
  plan.rules.push_back(std::move(rule));
}

void apply_change(Plan& plan, const Change& change) {
  switch (change.kind) {
    case FixKind::operator_fp32:
    case FixKind::store_fp32:
    case FixKind::accumulate_fp32:
    case FixKind::constant:
    case FixKind::clamp:
      return add_rule(plan, change);
    case FixKind::prescale:
      if (change.can_be_tried()) add_rule(plan, change);
      return;
    case FixKind::keep_integer:
      if (change.path.empty()) return;
      for (const std::string& node : change.nodes) {
        add_rule(plan, {.kind = FixKind::operator_fp32, .path = node});
      }
      return add_rule(plan, change);
    case FixKind::amax_floor:
      set_amax_floor(plan.defaults.scale, change.value);
      for (PlanRule& rule : plan.rules) {
        if (rule.scale) set_amax_floor(*rule.scale, change.value);
      }
      return;
    case FixKind::schedule_fp32:
      plan.schedule = kFp32;
      return;
    case FixKind::stochastic_rounding:
      return round_stochastically(plan, change.text);
    case FixKind::scale_round_up:
      round_scale_up(plan.defaults.scale);
      for (PlanRule& rule : plan.rules) {
        if (rule.scale) round_scale_up(*rule.scale);
      }
      return;
    case FixKind::weights_fp32:
      plan.storage = kFp32;
      return;
    case FixKind::state_fp32:
      plan.state = kFp32;
      return;
    case FixKind::update_fp32:
      plan.update_compute = kFp32;
      return;
    case FixKind::average_fp32:
      plan.average = plan.average_compute = kFp32;
      return;
    case FixKind::gradient_sum_fp32:
      plan.gradient_sum = kFp32;
      return;
    case FixKind::clip_fp32:
      plan.clip = kFp32;
      plan.clip_stagewise = false;
      return;
    case FixKind::reduce_order:
    case FixKind::reduce_fp32:
    case FixKind::config:
      if (const std::optional<Reduction> how = reduction_in(change)) plan.reduction = how;
      return;
    case FixKind::buffers_on_step:
      plan.buffers = BufferCommit::on_step;
      return;
    case FixKind::format:
      if (const std::optional<FloatFormat> format = parse_format(change.text)) {
        replace_formats(plan, *format);
      }
      return;
    default:
      return;
  }
}

}  // namespace

bool Change::can_be_tried() const noexcept {
  switch (kind) {
    case FixKind::operator_fp32:
    case FixKind::store_fp32:
    case FixKind::accumulate_fp32:
    case FixKind::constant:
    case FixKind::clamp:
    case FixKind::keep_integer:
      return !path.empty();
    case FixKind::prescale:
      return !path.empty() && exponent_of(value).has_value();
    case FixKind::amax_floor:
    case FixKind::schedule_fp32:
    case FixKind::stochastic_rounding:
    case FixKind::scale_round_up:
    case FixKind::weights_fp32:
    case FixKind::state_fp32:
    case FixKind::update_fp32:
    case FixKind::average_fp32:
    case FixKind::gradient_sum_fp32:
    case FixKind::clip_fp32:
    case FixKind::buffers_on_step:
    case FixKind::format:
    case FixKind::loss_scale:
      return true;
    default:
      return reduction_in(*this).has_value();
  }
}

std::string Change::name() const {
  if (kind == FixKind::operator_fp32) return path;
  if (kind == FixKind::weights_fp32) return "variables.storage";
  std::string text_of_it = fix_name(kind);
  for (const std::string& part : {path, text}) {
    if (!part.empty()) text_of_it += " " + part;
  }
  if (kind == FixKind::prescale) text_of_it += " " + number_text(value);
  return text_of_it;
}

PlanEdit PlanEdit::of(FixKind kind, std::string path) {
  return {.changes = {{.kind = kind, .path = std::move(path)}}};
}

PlanEdit PlanEdit::in_fp32(std::vector<std::string> layers) {
  PlanEdit edit;
  for (std::string& layer : layers) edit.keep(layer, true);
  return edit;
}

PlanEdit PlanEdit::with_loss_scale(double scale) {
  return {.changes = {{.kind = FixKind::loss_scale, .value = scale}}};
}

PlanEdit PlanEdit::with_reduction(FixKind kind, const Reduction& how) {
  return {.changes = {{.kind = kind, .text = reduction_text(how)}}};
}

bool PlanEdit::changes_plan() const noexcept {
  return std::any_of(changes.begin(), changes.end(), [](const Change& change) {
    return change.can_be_tried() && change.kind != FixKind::loss_scale;
  });
}

bool PlanEdit::has(FixKind kind) const noexcept {
  return std::any_of(changes.begin(), changes.end(),
                     [&](const Change& change) { return change.kind == kind; });
}

bool PlanEdit::keeps(const std::string& layer) const noexcept {
  return std::any_of(changes.begin(), changes.end(), [&](const Change& change) {
    return change.kind == FixKind::operator_fp32 && change.path == layer;
  });
}

std::vector<std::string> PlanEdit::fp32_layers() const {
  std::vector<std::string> layers;
  for (const Change& change : changes) {
    if (change.kind == FixKind::operator_fp32) layers.push_back(change.path);
  }
  return layers;
}

std::optional<double> PlanEdit::loss_scale() const noexcept {
  for (const Change& change : changes) {
    if (change.kind == FixKind::loss_scale) return change.value;
  }
  return std::nullopt;
}

std::optional<Change> PlanEdit::reduction_change() const {
  for (const Change& change : changes) {
    if (reduction_in(change)) return change;
  }
  return std::nullopt;
}

std::optional<Reduction> PlanEdit::reduction() const {
  const std::optional<Change> change = reduction_change();
  return change ? reduction_in(*change) : std::nullopt;
}

void PlanEdit::keep(const std::string& layer, bool in_fp32) {
  std::erase(changes, Change{.kind = FixKind::operator_fp32, .path = layer});
  if (in_fp32) changes.push_back({.kind = FixKind::operator_fp32, .path = layer});
}

void PlanEdit::set(FixKind kind, bool on) {
  std::erase_if(changes, [&](const Change& change) { return change.kind == kind; });
  if (on) changes.push_back({.kind = kind});
}

void PlanEdit::set_loss_scale(std::optional<double> scale) {
  set(FixKind::loss_scale, false);
  if (scale) changes.push_back({.kind = FixKind::loss_scale, .value = *scale});
}

void PlanEdit::add(const Change& change) {
  const bool is_there = change.kind == FixKind::loss_scale ? has(FixKind::loss_scale)
                        : reduction_in(change)
                            ? reduction().has_value()
                            : std::find(changes.begin(), changes.end(), change) != changes.end();
  if (!is_there) changes.push_back(change);
}

void PlanEdit::add(const PlanEdit& other) {
  for (const Change& change : other.changes) add(change);
}

Plan PlanEdit::apply(Plan plan) const {
  // Changes of the whole lane come first, because rules for single nodes take precedence.
  for (const bool of_a_node : {false, true}) {
    for (const Change& change : changes) {
      if (change.path.empty() != of_a_node) apply_change(plan, change);
    }
  }
  return plan;
}

std::vector<PlanEdit> PlanEdit::members() const {
  std::vector<PlanEdit> members;
  for (const Change& change : changes) {
    if (change.kind != FixKind::buffers_on_step) members.push_back({.changes = {change}});
  }
  // In the order of reports: nodes, the lane's formats, the loss scale.
  std::stable_sort(members.begin(), members.end(), [](const PlanEdit& a, const PlanEdit& b) {
    const auto rank = [](const PlanEdit& edit) {
      const Change& change = edit.changes.front();
      return change.kind == FixKind::loss_scale ? 2 : change.path.empty() ? 1 : 0;
    };
    return rank(a) < rank(b);
  });
  return members;
}

PlanEdit PlanEdit::without(const PlanEdit& member) const {
  PlanEdit rest = *this;
  for (const Change& change : member.changes) std::erase(rest.changes, change);
  return rest;
}

std::string PlanEdit::member_name() const { return changes.empty() ? "" : changes.front().name(); }

}  // namespace halfscope
