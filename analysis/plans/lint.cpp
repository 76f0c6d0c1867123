// SPDX-License-Identifier: MIT
#include "analysis/plans/lint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "analysis/audit/audit.h"
#include "analysis/plans/decisions.h"
#include "analysis/plans/lint_losses.h"
#include "analysis/plans/lint_rules.h"
#include "analysis/rules/text.h"
#include "core/graph/op_def.h"
#include "core/policy/keras.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

using lint::finding;

bool is_half(const FloatFormat& format) { return !format.contains(kFp32); }
bool overflows(const FloatFormat& format) { return format.exponent_bits < 8; }

/// The planned network: its graph, and which of its nodes belong to the loss.
class Planned {
 public:
  Planned(const Model& model, const ExplainedPlan& explained)
      : model_(model), explained_(explained) {
    const std::vector<Node>& nodes = model.graph.nodes();
    for (size_t id = 0; id < nodes.size(); ++id) {
      if (model.first_loss_node != kNone && static_cast<NodeId>(id) >= model.first_loss_node)
        loss_paths_.insert(nodes[id].path);
    }
  }

  const Graph& graph() const { return explained_.executable.graph; }
  const Executable& executable() const { return explained_.executable; }
  const std::vector<NodeDecision>& nodes() const { return explained_.nodes; }
  bool trains() const { return executable().forward == Entry::grad; }
  const Model& model() const { return model_; }
  const Plan& plan() const { return explained_.plan; }

  /// Returns whether the node computes the loss that HalfScope added.
  bool in_loss(const std::string& path) const {
    return std::any_of(loss_paths_.begin(), loss_paths_.end(), [&](const std::string& loss) {
      return path == loss || path.starts_with(loss + "/");
    });
  }
  const Node* producer(ValueId value) const {
    const NodeId id = value == kNone ? kNone : graph().value(value).producer;
    return id == kNone ? nullptr : &graph().node(id);
  }
  /// Skips the conversions between formats.
  const Node* computed_by(ValueId value) const {
    const Node* node = producer(value);
    while (node != nullptr && node->op == "Cast") node = producer(node->inputs[0]);
    return node;
  }

 private:
  const Model& model_;
  const ExplainedPlan& explained_;
  std::set<std::string> loss_paths_;
};

/// "conv1, relu1, conv2 and 12 more"
std::string layers_text(const std::vector<std::string>& layers) {
  return name_list(layers, lint::kNamedLayers);
}

void check_loss_scale(const Planned& planned, const LossScalerConfig& scaler,
                      std::vector<Finding>& findings) {
  // A scale of 1 scales nothing, for example where DeepSpeed only looks for overflow in bf16.
  const bool scales = static_cast<double>(initial_state(scaler).scale) != 1.0;
  const bool needs = needs_loss_scaling(planned.plan());
  std::vector<std::string> layers;
  std::string format;
  for (const NodeDecision& node : planned.nodes()) {
    if (!overflows(node.write) || planned.in_loss(node.path)) continue;
    if (layers.empty()) format = format_name(node.write);
    layers.push_back(node.path);
  }
  if (needs && !scales && !layers.empty()) {
    findings.push_back(finding(
        "fp16_without_loss_scale", Severity::warning, layers.front(),
        fmt::format("{} {} in {}, but the loss is not scaled. Gradients smaller than half of the "
                    "smallest number of {} become 0.",
                    layers_text(layers), layers.size() == 1 ? "computes" : "compute", format,
                    format),
        "Scale the loss: --loss-scale dynamic, or a GradScaler in PyTorch and a "
        "LossScaleOptimizer in Keras."));
  }
  if (!needs && scales && !is_full_precision(planned.plan())) {
    findings.push_back(finding(
        "loss_scale_without_fp16", Severity::info, "",
        "The loss is scaled, but no format of the plan needs it. bf16 has the exponents of fp32, "
        "so "
        "gradients do not underflow. DeepSpeed still looks for overflow in bf16, without a scale.",
        "Use --loss-scale none."));
  }
}

/// Squares of gradients in few exponent bits: most become 0, and the update divides by their root.
void check_optimizer_state(const Plan& plan, const LintedTraining& training,
                           std::vector<Finding>& findings) {
  const Optimizer& optimizer = training.config.optimizer;
  if (optimizer.kind == Optimizer::Kind::sgd) return;
  const FloatFormat state =
      plan.state.value_or(training.config.state_format.value_or(plan.storage));
  if (state.exponent_bits >= kFp32.exponent_bits) return;
  // The average of squares starts at this share of the first square.
  const double share =
      1.0 - (optimizer.kind == Optimizer::Kind::rmsprop ? optimizer.alpha : optimizer.beta2);
  findings.push_back(finding(
      "optimizer_state_in_half", Severity::warning, "",
      fmt::format("The optimizer keeps averages of squared gradients in {}. Gradients below {:.2g} "
                  "add 0 to them, and the update divides by their root: it becomes huge or NaN.",
                  format_name(state), std::sqrt(state.min_subnormal() / 2 / share)),
      "Keep weights and optimizer state in fp32 (master weights): \"variables\": {\"storage\": "
      "\"fp32\"}, or at least \"state\": \"fp32\"."));
}

/// Mistakes in the order of scaling, unscaling and clipping.
void check_order(const LintedTraining& training, std::vector<Finding>& findings) {
  const auto scale = static_cast<double>(initial_state(training.scaler).scale);
  if (scale == 1.0) return;
  if (training.config.unscale_only) {
    findings.push_back(finding(
        "unscale_without_scale", Severity::error, "",
        fmt::format("Gradients are unscaled, but the loss is not scaled. They are {:.6g} times too "
                    "small.",
                    scale),
        "Call backward() on scaler.scale(loss), or remove the scaler. In Keras, scale the loss "
        "with optimizer.get_scaled_loss(loss) or optimizer.scale_loss(loss)."));
  }
  if (training.config.clip_before_unscale && training.config.clip_norm > 0.0) {
    // Adam and RMSprop divide gradients by their own size.
    const bool follows_size = training.config.optimizer.kind == Optimizer::Kind::sgd;
    findings.push_back(finding(
        "clip_before_unscale", follows_size ? Severity::error : Severity::warning, "",
        fmt::format("Gradients are clipped while they are multiplied by the loss scale. Unscaled, "
                    "their norm is at most {:.6g} / {:.6g} = {:.2g}, {}.",
                    training.config.clip_norm, scale, training.config.clip_norm / scale,
                    follows_size ? "so every step is too small"
                                 : "so all of them are clipped, not only the large ones"),
        "Call scaler.unscale_(optimizer) before clip_grad_norm_()."));
  }
}

void check_batch_norm(const Planned& planned, std::vector<Finding>& findings) {
  std::vector<std::string> rounded, stored;
  for (const Node& node : planned.model().graph.nodes()) {
    if (node.op != "BatchNormalization") continue;
    const NodePlan plan = resolve(planned.plan(), node.path, node.op);
    if (plan.stagewise && is_half(plan.write)) rounded.push_back(node.path);
  }
  for (const Variable& variable : planned.graph().variables()) {
    const FloatFormat& format = planned.graph().value(variable.value).format;
    if (!variable.buffer || !is_half(format) || variable.path.ends_with(".working")) continue;
    // One layer has several statistics, side by side.
    const std::string layer = variable.path.substr(0, variable.path.rfind('.'));
    if (stored.empty() || stored.back() != layer) stored.push_back(layer);
  }
  if (!rounded.empty()) {
    findings.push_back(finding(
        "batch_norm_in_half", Severity::warning, rounded.front(),
        fmt::format("{} {} mean and variance in half precision. Squares above 65504 overflow in "
                    "fp16, and small variances become 0.",
                    layers_text(rounded), rounded.size() == 1 ? "computes" : "compute"),
        "Compute batch normalization in one piece: {\"op\": \"BatchNormalization\", \"mode\": "
        "\"fused\"}, or keep it in fp32."));
  }
  if (!stored.empty()) {
    findings.push_back(finding(
        "batch_norm_statistics_in_half", Severity::warning, stored.front(),
        fmt::format("{} {} running statistics in half precision. With a momentum of 0.9 or more, "
                    "small changes are rounded away.",
                    layers_text(stored), stored.size() == 1 ? "stores its" : "store their"),
        "Keep batch normalization in fp32, as keep_batchnorm_fp32 in apex does: "
        "{\"op\": \"BatchNormalization\", \"format\": \"fp32\"}."));
  }
}

/// A layer keeps its weights in its own format if that contains the format of the storage.
void check_storage(const Planned& planned, const Plan& plan, std::vector<Finding>& findings) {
  const std::vector<Variable>& variables = planned.graph().variables();
  if (!is_half(plan.storage) || variables.empty()) return;
  const bool has_effect =
      std::any_of(variables.begin(), variables.end(), [&](const Variable& variable) {
        return planned.graph().value(variable.value).format == plan.storage;
      });
  if (has_effect) return;
  const std::string format = format_name(plan.storage);
  findings.push_back(finding(
      "storage_without_effect", Severity::warning, "",
      fmt::format(
          "No weight is stored in {}, although \"storage\" asks for it. Layers that compute "
          "in fp32 keep their weights in fp32.",
          format),
      fmt::format("Let the layers compute in {0}: \"default\": {{\"format\": \"{0}\"}}. Or remove "
                  "\"storage\".",
                  format)));
}

void check_loss(const Planned& planned, std::vector<Finding>& findings) {
  if (!planned.trains()) return;
  const ValueId loss = planned.executable().loss;
  const Node* node = planned.computed_by(loss);
  if (node == nullptr || !is_half(node->plan.write)) return;
  findings.push_back(finding(
      "loss_not_fp32", Severity::warning, node->path,
      fmt::format("{}: the loss is computed in {}. Small losses round to the same number, and in "
                  "fp16 a loss times its scale may overflow.",
                  node->path, format_name(node->plan.write)),
      fmt::format(
          "Compute it in fp32: {{\"path\": \"{}\", \"format\": \"fp32\"}}. In tf.keras, make "
          "the model's output float32.",
          node->path)));
}

/// Keras asks for it. Other frameworks leave the outputs as they are, or widen them on their own.
void check_outputs(const Planned& planned, const Plan& plan, std::vector<Finding>& findings) {
  if (!keras_policy(plan)) return;
  std::vector<NamedValue> outputs = planned.executable().outputs;
  if (outputs.empty()) outputs.push_back({"logits", planned.executable().logits});
  for (const NamedValue& output : outputs) {
    const Node* node = planned.computed_by(output.value);
    if (node == nullptr || planned.graph().value(output.value).type != ElementType::real) continue;
    const FloatFormat& format = planned.graph().value(node->outputs[0]).format;
    if (!is_half(format)) continue;
    findings.push_back(finding(
        "output_not_fp32", Severity::info, node->path,
        fmt::format("{}: the network's output is {}. Keras asks for float32 outputs, because its "
                    "losses and metrics may compute in their dtype.",
                    node->path, format_name(format)),
        "Split the last layer: Dense(N) and then Activation(\"softmax\", dtype=\"float32\"); "
        "without "
        "a softmax, Activation(\"linear\", dtype=\"float32\")."));
  }
}

void check_constants(const Model& model, const Plan& plan, const TrainConfig* training,
                     std::vector<Finding>& findings) {
  for (const AuditedConstant& each : audit_constants(model, plan, training)) {
    if (!each.is_harmful()) continue;
    findings.push_back(finding("constant_rounds", each.severity, each.path, each.text + ".",
                               each.advice.empty() ? "" : each.advice + "."));
  }
}

}  // namespace

std::vector<Finding> lint_plan(const Model& model, const Plan& as_written,
                               const std::optional<LintedTraining>& training,
                               const RuleFlags& flags) {
  std::vector<Finding> findings;
  const Plan plan = lint::without_unmatched(model, as_written, flags, findings);
  const ExplainedPlan explained = explain_plan(model, plan, flags);
  lint::check_overridden(model, explained, findings);
  const Planned planned(model, explained);
  if (planned.trains() && training) {
    check_loss_scale(planned, training->scaler, findings);
    check_optimizer_state(plan, *training, findings);
  }
  if (planned.trains() && training) check_order(*training, findings);
  check_batch_norm(planned, findings);
  check_storage(planned, plan, findings);
  check_loss(planned, findings);
  check_outputs(planned, plan, findings);
  lint::check_binary_cross_entropy(model, explained, findings);
  const bool trains = planned.trains() && training.has_value();
  if (!is_full_precision(plan) && (trains || !model.outputs.empty()))
    check_constants(model, plan, trains ? &training->config : nullptr, findings);
  std::stable_sort(findings.begin(), findings.end(), [](const Finding& a, const Finding& b) {
    return static_cast<int>(a.severity) > static_cast<int>(b.severity);
  });
  return findings;
}

}  // namespace halfscope
