// SPDX-License-Identifier: MIT
#include "analysis/finding.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/rules/lane_facts.h"
#include "analysis/rules/site_words.h"
#include "analysis/rules/text.h"

namespace halfscope {
namespace {

/// Words for changes of single nodes, which are joined: "keep the outputs of a and b in fp32".
struct NodeWords {
  FixKind kind;
  const char *one, *many;
};
constexpr NodeWords kNodeWords[] = {
    {FixKind::operator_fp32, "keep {} in fp32", "keep {} in fp32"},
    {FixKind::store_fp32, "keep the output of {} in fp32", "keep the outputs of {} in fp32"},
    {FixKind::accumulate_fp32, "let {} accumulate in fp32", "let {} accumulate in fp32"},
    {FixKind::constant, "replace the constant that {} reads with one that the format can represent",
     "replace the constants that {} read with ones that the format can represent"},
    {FixKind::clamp, "clamp the output of {} to the format's range",
     "clamp the outputs of {} to the format's range"},
    {FixKind::keep_integer, "keep the integers of {} exact", "keep the integers of {} exact"},
};

std::string with_setting(const Change& change) {
  return fix_text(change.kind) + (change.text.empty() ? "" : " (" + change.text + ")");
}

/// "scale a and b down by 128 (2^7) and their outputs back up where they are read", once for each
/// factor.
void add_prescale_texts(const PlanEdit& edit, std::vector<std::string>& parts) {
  std::vector<double> values;
  for (const Change& change : edit.changes) {
    if (change.kind != FixKind::prescale) continue;
    if (std::find(values.begin(), values.end(), change.value) == values.end()) {
      values.push_back(change.value);
    }
  }
  for (const double value : values) {
    std::vector<std::string> paths;
    for (const Change& change : edit.changes) {
      if (change.kind == FixKind::prescale && change.value == value) paths.push_back(change.path);
    }
    const bool down = value < 1.0;
    parts.push_back(fmt::format("scale {} {} by {} and {} back {} where {} read", name_list(paths),
                                down ? "down" : "up", scale_text(down ? 1.0 / value : value),
                                paths.size() == 1 ? "its output" : "their outputs",
                                down ? "up" : "down", paths.size() == 1 ? "it is" : "they are"));
  }
}

std::string lane_change_text(const Change& change) {
  switch (change.kind) {
    case FixKind::loss_scale:
      return "use a loss scale of " + scale_text(change.value);
    case FixKind::config:
      // The only setting that a change can correct: how ranks agree on a step.
      if (change.text.empty() || change.text.find("vote=") != std::string::npos) {
        return with_setting(change);
      }
      return "let all ranks skip a step together";
    case FixKind::reduce_order:
    case FixKind::reduce_fp32:
      return with_setting(change);
    case FixKind::amax_floor:
      return fmt::format("compute scales from an amax of at least {}",
                         short_number(change.value > 0.0 ? change.value : kUsualAmaxFloor));
    case FixKind::format:
      return "use " + change.text + " instead of every format below fp32";
    case FixKind::stochastic_rounding:
      return "round " + change.text + " stochastically";
    default:
      return fix_text(change.kind);
  }
}

/// Names a node's change as something to take away; "" for changes of the whole lane.
std::string node_part(FixKind kind, const std::string& path) {
  switch (kind) {
    case FixKind::store_fp32:
      return "the fp32 output of " + path;
    case FixKind::accumulate_fp32:
      return "the fp32 accumulation of " + path;
    case FixKind::constant:
      return "the new constant of " + path;
    case FixKind::clamp:
      return "the clamping of " + path;
    case FixKind::prescale:
      return "the scaling of " + path.substr(0, path.rfind(' '));
    case FixKind::keep_integer:
      return "the exact integers of " + path;
    default:
      return "";
  }
}

std::string lane_part(FixKind kind, const std::string& text) {
  switch (kind) {
    case FixKind::loss_scale:
      return "the loss scale";
    case FixKind::weights_fp32:
      return "the fp32 master weights";
    case FixKind::state_fp32:
      return "the fp32 optimizer state";
    case FixKind::update_fp32:
      return "the fp32 update";
    case FixKind::average_fp32:
      return "the fp32 averages";
    case FixKind::gradient_sum_fp32:
      return "the fp32 accumulation of micro-batches";
    case FixKind::reduce_order:
      return "the other order of the reduction";
    case FixKind::reduce_fp32:
      return "the fp32 reduction";
    case FixKind::config:
      return "the common decision of the ranks";
    case FixKind::buffers_on_step:
      return "the update of running statistics with the weights";
    case FixKind::clip_fp32:
      return "the fp32 clipping";
    case FixKind::schedule_fp32:
      return "the fp32 learning rate";
    case FixKind::amax_floor:
      return "the lower bound of the amax";
    case FixKind::stochastic_rounding:
      return "the stochastic rounding of " + text;
    case FixKind::scale_round_up:
      return "the rounding up of scales";
    case FixKind::format:
      return text;
    default:
      return "";
  }
}

}  // namespace

std::string edit_text(const PlanEdit& edit) {
  std::vector<std::string> parts;
  for (const NodeWords& words : kNodeWords) {
    std::vector<std::string> paths;
    for (const Change& change : edit.changes) {
      if (change.kind != words.kind) continue;
      paths.insert(paths.end(), change.nodes.begin(), change.nodes.end());
      paths.push_back(change.path);
    }
    if (paths.empty()) continue;
    parts.push_back(
        fmt::format(fmt::runtime(paths.size() == 1 ? words.one : words.many), name_list(paths)));
  }
  for (const Change& change : edit.changes) {
    const bool of_a_node =
        std::any_of(std::begin(kNodeWords), std::end(kNodeWords),
                    [&](const NodeWords& words) { return words.kind == change.kind; });
    if (!of_a_node && change.kind != FixKind::prescale) parts.push_back(lane_change_text(change));
  }
  add_prescale_texts(edit, parts);
  const bool has_lists = std::any_of(parts.begin(), parts.end(), [](const std::string& part) {
    return part.find(" and ") != std::string::npos;
  });
  if (parts.size() < 2 || !has_lists) return name_list(parts);
  std::string text;
  for (const std::string& part : parts) {
    const bool last = &part == &parts.back();
    text += (text.empty() ? "" : last ? ", and " : ", ") + part;
  }
  return text;
}

std::string edit_sentence(const PlanEdit& edit) {
  std::string text = edit_text(edit) + ".";
  // Every part begins with a verb, never with a name.
  if (text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

std::string cast_note(const LaneInfo& lane, const PlanEdit& edit) {
  const std::vector<std::string> kept = edit.fp32_layers();
  std::vector<std::string> own;
  for (const LayerInfo& layer : lane.layers) {
    const bool is_kept = std::find(kept.begin(), kept.end(), layer.path) != kept.end();
    if (is_kept && runs_own_code(lane, layer)) own.push_back(layer.path);
  }
  if (own.empty()) return "";
  return fmt::format(" Also remove casts such as {} inside {}.", cast_call(lane), name_list(own));
}

std::string part_text(const std::string& name) {
  if (name == "variables.storage") return lane_part(FixKind::weights_fp32, "");
  const size_t blank = name.find(' ');
  const std::optional<FixKind> kind = parse_fix(name.substr(0, blank));
  if (!kind) return name;
  const std::string rest = blank == std::string::npos ? "" : name.substr(blank + 1);
  const std::string part = rest.empty() ? "" : node_part(*kind, rest);
  const std::string found = part.empty() ? lane_part(*kind, rest) : part;
  return found.empty() ? name : found;
}

const char* severity_name(Severity severity) noexcept {
  switch (severity) {
    case Severity::info:
      return "info";
    case Severity::warning:
      return "warning";
    case Severity::error:
      return "error";
  }
  return "unknown";
}

const char* action_name(const PlanEdit& edit) noexcept {
  if (!edit.fp32_layers().empty()) return "keep_fp32";
  if (edit.has(FixKind::weights_fp32)) return "format";
  if (edit.reduction()) return "reduce";
  return edit.loss_scale() ? "loss_scale" : "none";
}

Action keep_in_fp32(std::vector<std::string> layers) {
  std::string text = "Keep " + name_list(layers) + " in fp32.";
  return {.edit = PlanEdit::in_fp32(layers), .layers = std::move(layers), .text = std::move(text)};
}

std::string Finding::id(const RunView& run) const {
  std::string text = rule + ":" + run.lane(lane).name;
  if (!site.empty()) text += ":" + site;
  return text;
}

}  // namespace halfscope
