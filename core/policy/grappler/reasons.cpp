// SPDX-License-Identifier: MIT
// Paint in words, and what would change it, which is found by painting again under other lists.
#include <fmt/format.h>

#include <algorithm>

#include "core/policy/grappler/paint.h"

namespace halfscope::grappler {
namespace {

constexpr size_t kShownSteps = 5;  // of a path

std::string name_of(const TfGraph& graph, const AmpPainting& painting, size_t paint) {
  const TfNode& node = graph.nodes.at(painting.paints.at(paint).node);
  return fmt::format("{} ({})", node.name, node.op);
}

/// Returns "a (Exp) -> b (Add)"; long paths are cut in the middle.
std::string path_text(const TfGraph& graph, const AmpPainting& painting,
                      const std::vector<size_t>& path) {
  std::string text;
  size_t last_node = SIZE_MAX;
  for (size_t i = 0; i < path.size(); ++i) {
    const size_t node = painting.paints.at(path[i]).node;
    if (node == last_node) continue;
    last_node = node;
    if (path.size() > kShownSteps && i + 2 > kShownSteps && i + 1 < path.size()) {
      if (i + 1 == kShownSteps) text += fmt::format(" -> {} more", path.size() - kShownSteps);
      continue;
    }
    text += (text.empty() ? "" : " -> ") + name_of(graph, painting, path[i]);
  }
  return text;
}

size_t changed_nodes(const AmpPainting& painting, const AmpTrial& trial, size_t without) {
  size_t count = 0, last = SIZE_MAX;
  for (size_t i = 0; i < painting.paints.size(); ++i) {
    const AmpPaint& paint = painting.paints[i];
    if (paint.changed == trial.changed[i] || paint.node == last || paint.node == without) continue;
    last = paint.node;
    ++count;
  }
  return count;
}

/// Returns the edit that changes the paint and the fewest other nodes, with their number; null if
/// none does.
std::pair<const AmpTrial*, size_t> best_trial(const AmpPainting& painting,
                                              const std::vector<AmpTrial>& trials, size_t index) {
  const AmpPaint& paint = painting.paints.at(index);
  const AmpTrial* best = nullptr;
  size_t fewest = SIZE_MAX;
  for (const AmpTrial& trial : trials) {
    if (trial.changed[index] == paint.changed) continue;
    const size_t others = changed_nodes(painting, trial, paint.node);
    if (others >= fewest) continue;
    fewest = others;
    best = &trial;
  }
  return {best, fewest};
}

}  // namespace

std::string summary_text(const AmpSummary& sum) {
  return fmt::format(
      "Automatic Mixed Precision Grappler Pass Summary (our definition):\n"
      "  Total processable nodes: {}\n"
      "  Recognized nodes available for conversion: {}\n"
      "  Total nodes converted: {}\n"
      "  Total FP16 Cast ops used (excluding Const and Variable casts): {}\n"
      "  Allowlisted nodes converted: {}\n"
      "  Denylisted nodes blocking conversion: {}\n"
      "  Nodes blocked from conversion by denylisted nodes: {}\n",
      sum.processable, sum.recognized, sum.converted, sum.casts, sum.allowed_converted,
      sum.blocking, sum.blocked);
}

std::string reason_of(const TfGraph& graph, const AmpPainting& painting, size_t index) {
  const AmpPaint& paint = painting.paints.at(index);
  const std::string& op = graph.nodes.at(paint.node).op;
  const std::string target = painting.options.target_name();
  const std::string device = painting.options.on_gpu() ? "GPU" : "CPU";
  const auto first = [&] {
    return paint.path.empty() ? std::string("another operator")
                              : name_of(graph, painting, paint.path.front());
  };
  const auto here = [&](std::vector<size_t> before) {
    before.push_back(index);
    before.insert(before.end(), paint.after.begin(), paint.after.end());
    return path_text(graph, painting, before);
  };
  switch (paint.why) {
    case AmpWhy::allowed:
      return fmt::format("{} is on the allow list.", op);
    case AmpWhy::forced:
      return "The level UNSAFE_FORCE_ALL forces it.";
    case AmpWhy::between:
      return fmt::format(
          "{} is between two allowed operators, and nothing before it is denied: {}.", op,
          here(paint.path));
    case AmpWhy::follows:
      return fmt::format(
          "{} is on the infer list and reads {} output of {}; it reads nothing that "
          "is denied.",
          op, target, first());
    case AmpWhy::connected:
      return fmt::format(
          "{} is on the clear list and connected to {} through clear operators "
          "only: {}.",
          op, first(), here(paint.path));
    case AmpWhy::list_painted:
      return fmt::format("Its TensorList has one type, and {} is {}.", first(), target);
    case AmpWhy::loop_painted:
      return fmt::format("It feeds the loop of {}, which is {}.", first(), target);
    case AmpWhy::cast_painted:
      return fmt::format("This existing Cast feeds only {} operators, so it casts to {}.", target,
                         target);
    case AmpWhy::other_type:
      return "Its type is not float32.";
    case AmpWhy::preserved:
      return "The pass must not change it: it is fed, fetched or preserved.";
    case AmpWhy::other_device:
      return fmt::format("It is not on a {}, and this mode changes only nodes there.", device);
    case AmpWhy::slow_device:
      return "The GPU is older than compute capability 7.0, so float16 would not be faster.";
    case AmpWhy::denied:
      return fmt::format("{} is on the deny list.", op);
    case AmpWhy::denied_by:
      return fmt::format("It is downstream of {}, which is on the deny list: {}.", first(),
                         here(paint.path));
    case AmpWhy::unsafe_list:
      return fmt::format("Its TensorList reaches {}, where its type cannot change.", first());
    case AmpWhy::list_denied:
      return fmt::format("Its TensorList has one type, and {} must stay float32.", first());
    case AmpWhy::no_type:
      return fmt::format("{} does not accept {} for {}.", op, target, paint.attr);
    case AmpWhy::loop_broken:
      return fmt::format("All of a loop has one type, and {} stays float32.", first());
    case AmpWhy::no_kernel:
      return fmt::format("TensorFlow has no {} kernel of {} for {}.", target, op, device);
    case AmpWhy::not_listed:
      return fmt::format("{} is on none of the lists.", op);
    case AmpWhy::reads_variable:
      return "It reads a variable, which stays float32.";
    case AmpWhy::no_allow:
      if (!painting.options.followers) {
        return fmt::format("{} is on the infer list, but it is not between two allowed operators.",
                           op);
      }
      return fmt::format("{} is on the infer list, but nothing that it reads is {}.", op, target);
    case AmpWhy::reads_denied:
      return fmt::format("{} is on the infer list, but it reads {}, which is denied.", op, first());
    case AmpWhy::not_connected:
      return fmt::format("{} is on the clear list, but no {} operator is connected to it.", op,
                         target);
    case AmpWhy::nothing_to_do:
      return "The graph has no operator of the allow list.";
  }
  return "";
}

std::vector<AmpTrial> trials(const TfGraph& graph, const AmpPainting& painting) {
  std::set<std::string> ops;
  for (const AmpPaint& paint : painting.paints) {
    if (paint.is_float) ops.insert(graph.nodes[paint.node].op);
  }
  std::vector<AmpTrial> found;
  const auto try_edit = [&](const std::string& op, std::optional<AmpList> to, std::string text) {
    AmpTrial trial{std::move(text), moved_to(painting.lists, op, to), {}};
    if (trial.edits.empty()) return;
    AmpOptions options = painting.options;
    options.edits.insert(options.edits.end(), trial.edits.begin(), trial.edits.end());
    bool differs = false;
    const AmpPainting other = paint(graph, options);
    for (size_t i = 0; i < other.paints.size(); ++i) {
      trial.changed.push_back(other.paints[i].changed);
      differs |= trial.changed.back() != painting.paints[i].changed;
    }
    if (differs) found.push_back(std::move(trial));
  };
  for (const std::string& op : ops) {
    const std::optional<AmpList> list = painting.lists.list_of(op);
    const std::string from =
        list ? fmt::format("move {} from the {} list to", op, amp_list_name(*list))
             : fmt::format("add {} to", op);
    if (list) {
      try_edit(op, std::nullopt,
               fmt::format("remove {} from the {} list", op, amp_list_name(*list)));
    }
    for (const AmpList to : {AmpList::clear, AmpList::infer, AmpList::deny, AmpList::allow})
      try_edit(op, to, fmt::format("{} the {} list", from, amp_list_name(to)));
  }
  return found;
}

std::string change_variables(const AmpPainting& painting, const std::vector<AmpTrial>& trials,
                             size_t index) {
  const AmpTrial* const best = best_trial(painting, trials, index).first;
  return best == nullptr ? "" : variables_after(painting.options.edits, best->edits);
}

std::string change_of(const AmpPainting& painting, const std::vector<AmpTrial>& trials,
                      size_t index) {
  const AmpPaint& paint = painting.paints.at(index);
  const auto [best, fewest] = best_trial(painting, trials, index);
  if (best != nullptr) {
    std::string text = best->text;
    text[0] = static_cast<char>(text[0] - 'a' + 'A');
    return text + (fewest == 0 ? "."
                               : fmt::format("; {} other node{} would change, too.", fewest,
                                             fewest == 1 ? "" : "s"));
  }
  switch (paint.why) {
    case AmpWhy::other_type:
      return "";
    case AmpWhy::preserved:
      return "Do not fetch it: put an Identity after it and fetch that.";
    case AmpWhy::other_device:
      return painting.options.on_gpu() ? "Place it on a GPU." : "Place it on the CPU.";
    case AmpWhy::slow_device:
      return "Set TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_IGNORE_PERFORMANCE=1.";
    case AmpWhy::nothing_to_do:
      return "Only graphs with an operator of the allow list are changed.";
    default:
      break;
  }
  return fmt::format("No edit of a single list entry changes it. {}",
                     paint.changed ? "Compute it outside of the graph in float32."
                                   : "Insert a Cast to compute it in another type.");
}

}  // namespace halfscope::grappler
