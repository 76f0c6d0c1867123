// SPDX-License-Identifier: MIT
#include "analysis/plans/recorded_decisions.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "analysis/plans/deciding_rule.h"
#include "core/error.h"
#include "core/graph/op_def.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

class RecordedLane {
 public:
  explicit RecordedLane(const LaneInfo& lane) : lane_(lane) {
    try {
      plan_ = plan_from_json(lane.plan_json);
    } catch (const Error&) {
      return;  // of another version
    }
    stagewise_ = plan_->defaults.stagewise ||
                 std::any_of(plan_->rules.begin(), plan_->rules.end(),
                             [](const PlanRule& rule) { return rule.stagewise.value_or(false); });
    for (const LayerInfo& layer : lane.layers) layers_.try_emplace(layer.path, &layer);
    for (const SiteInfo& site : lane.sites) {
      if (site.tensor == "activation") outputs_.try_emplace(site.path, site.format);
      if (site.role == Role::weight) weights_[site.path].push_back(&site);
    }
    for (const LayerInfo& layer : lane.layers) note_composites(layer);
  }

  std::vector<NodeDecision> decisions() const {
    std::vector<NodeDecision> list;
    for (const LayerInfo& layer : lane_.layers) {
      if (has_decision(layer.path, layer.op)) list.push_back(decide(layer));
    }
    return list;
  }

 private:
  using Composite = std::pair<std::string, const OpDef*>;

  static bool in_loss(const std::string& path) {
    return path == "loss" || path.starts_with("loss/");
  }

  /// Returns the paths that a composite would have of which this is a part.
  std::vector<std::string> folders(const std::string& path) const {
    std::vector<std::string> list;
    for (size_t slash = path.find('/'); slash != std::string::npos;
         slash = path.find('/', slash + 1)) {
      std::string folder = path.substr(0, slash);
      if (!folder.empty() && !layers_.contains(folder)) list.push_back(std::move(folder));
    }
    return list;
  }

  /// Keeps the composites of which the layer can be a part. All parts of a composite must agree
  /// with it, so the last one to disagree removes it.
  void note_composites(const LayerInfo& layer) {
    if (plan_->double_precision) return;
    for (const std::string& folder : folders(layer.path)) {
      for (const OpDef& def : op_table()) {
        if (def.expand == nullptr || !(def.always_expands || stagewise_)) continue;
        bool& possible = composites_.try_emplace(Composite{folder, &def}, true).first->second;
        possible = possible && agrees(layer, composite(folder, def));
      }
    }
  }

  WrittenNode composite(const std::string& path, const OpDef& def) const {
    return {.path = path,
            .op = def.name,
            .other_names = other_names(path, ""),
            .expands = def.always_expands,
            .in_loss = in_loss(path)};
  }

  /// Returns whether the layer has the formats that the plan gives it if it came from `source`.
  bool agrees(const LayerInfo& layer, const WrittenNode& source) const {
    Plan own;
    if (!source.in_loss) own.defaults = plan_->defaults;
    for (const int rule : applying_rules(*plan_, layer.path, layer.op, source)) {
      own.rules.push_back(plan_->rules[static_cast<size_t>(rule)]);
      own.rules.back().path.clear();
      own.rules.back().op.clear();
    }
    const NodePlan planned = resolve(own, layer.path, layer.op);
    // Products whose results stay in a kernel write fp32 whatever the plan says.
    const OpDef* op = lookup_op(layer.op);
    const bool writes = planned.write == layer.write ||
                        (op != nullptr && op->sums_products() && layer.write == kFp32);
    return planned.follows == layer.follows &&
           (planned.follows || (planned.read == layer.read && writes));
  }

  /// Returns the written nodes that the layer can have come from, likely ones first.
  std::vector<WrittenNode> sources(const LayerInfo& layer) const {
    const WrittenNode itself{
        .path = layer.path, .op = layer.op, .other_names = other_names(layer.path, layer.alias)};
    std::vector<WrittenNode> list;
    const auto add = [&](const WrittenNode& source) {
      if (agrees(layer, source)) list.push_back(source);
    };
    if (in_loss(layer.path)) {
      WrittenNode loss = itself;
      loss.in_loss = true;
      add(loss);
    }
    add(itself);
    for (const std::string& folder : folders(layer.path)) {
      for (const OpDef& def : op_table()) {
        const auto found = composites_.find({folder, &def});
        if (found != composites_.end() && found->second) add(composite(folder, def));
      }
    }
    if (list.empty()) list.push_back(itself);
    return list;
  }

  FloatFormat written(const LayerInfo& layer) const {
    const auto found = outputs_.find(layer.path);
    return found == outputs_.end() ? layer.write : found->second;
  }

  /// Returns the format in which the variables that a layer reads are stored. A run records the
  /// format of the copy that the layer reads.
  FloatFormat stored_in(const LayerInfo& layer) const {
    const FloatFormat storage = plan_ ? plan_->storage : kFp32;
    return layer.read.contains(storage) ? layer.read : storage;
  }

  /// Returns the inputs that a layer follows, with their formats: "relu1 (fp16), bn.weight (fp32)".
  std::string followed_inputs(const LayerInfo& layer) const {
    std::string text;
    std::set<std::string> named;
    const auto add = [&](const std::string& name, const FloatFormat& format) {
      if (!named.insert(name).second) return;
      text += (text.empty() ? "" : ", ") + name + " (" + format_name(format) + ")";
    };
    const size_t readable = std::min(layer.inputs.size(), find_op(layer.op).stored_inputs_from);
    for (size_t i = 0; i < readable; ++i) {
      const std::string& input = layer.inputs[i];
      if (const auto found = layers_.find(input); found != layers_.end()) {
        add(input, written(*found->second));
      } else if (const auto weight = weights_.find(input); weight != weights_.end()) {
        for (const SiteInfo* each : weight->second) add(each->name(), stored_in(layer));
      } else {
        add(input, kFp32);  // data
      }
    }
    return text;
  }

  NodeDecision decide(const LayerInfo& layer) const {
    NodeDecision decision{.path = layer.path,
                          .op = layer.op,
                          .read = layer.read,
                          .write = written(layer),
                          .follows = layer.follows};
    if (plan_ && weights_.contains(layer.path)) decision.weights = stored_in(layer);
    if (decision.follows) decision.inputs = followed_inputs(layer);
    if (!plan_) {
      decision.why = "This version of HalfScope cannot read the plan in the run file.";
      decision.change = "Open the run with the version that recorded it.";
      return decision;
    }
    if (plan_->double_precision) {
      explain_decision(*plan_, {.path = layer.path, .op = layer.op}, decision);
      return decision;
    }
    const std::vector<WrittenNode> possible = sources(layer);
    std::vector<int> rules;  // each once
    for (const WrittenNode& source : possible) {
      const int rule = deciding_rule(*plan_, applying_rules(*plan_, layer.path, layer.op, source));
      if (std::find(rules.begin(), rules.end(), rule) == rules.end()) rules.push_back(rule);
    }
    decision.rule = rules.front();
    explain_decision(*plan_, possible.front(), decision);
    if (in_loss(layer.path)) return decision;  // both readings give the same formats
    if (rules.size() > 1 && !decision.why.ends_with('.')) decision.why += '.';
    for (size_t i = 1; i < rules.size(); ++i) {
      std::string other = rules[i] < 0 ? "The plan's default" : rule_name(*plan_, rules[i]);
      other.front() = 't';
      decision.why += fmt::format(
          " Or {} decided: the run does not record whether this layer is part of a composite.",
          other);
    }
    return decision;
  }

  const LaneInfo& lane_;
  std::optional<Plan> plan_{};
  bool stagewise_ = false;  ///< composites may run in their primitives
  std::map<std::string, const LayerInfo*> layers_;
  std::map<std::string, FloatFormat> outputs_;
  std::map<std::string, std::vector<const SiteInfo*>> weights_;
  std::map<Composite, bool> composites_;  ///< whether they can be in the network
};

}  // namespace

std::vector<NodeDecision> recorded_decisions(const LaneInfo& lane) {
  return RecordedLane(lane).decisions();
}

}  // namespace halfscope
