// SPDX-License-Identifier: MIT
#include "core/models/class_losses.h"

#include <string>
#include <utility>

namespace halfscope {
namespace {

class ClassLosses {
 public:
  ClassLosses(Model& model, const std::vector<float>& weights)
      : graph_(model.graph),
        model_(model),
        rows_(graph_.value(model.logits).shape[0]),
        weights_(weights) {}

  void add(double smoothing) {
    if (!weighted()) sharp_ = plain(smoothing > 0.0 ? "loss/labels" : "loss");
    if (weighted() || smoothing > 0.0) find_logarithms();
    ValueId even = kNone;
    if (smoothing > 0.0) {
      const ValueId each = mean("classes", logarithms_, {1}, true);
      find_labelled();
      even = over_rows("uniform", "counted", each, "rows");
    }
    if (weighted()) {
      find_labelled();
      const ValueId picked =
          node("GatherElements", "picked", {logarithms_, labels_}, {{"axis", int64_t{1}}});
      const ValueId mean = over_rows("labels", "counted_labels", picked, "label_rows");
      sharp_ = node("Neg", smoothing > 0.0 ? "negative" : "", {mean});
    }
    if (even == kNone) {
      model_.loss = sharp_;
      return;
    }
    model_.loss = node("Add", "smoothed",
                       {node("Mul", "sharp", {sharp_, number(1.0 - smoothing)}),
                        node("Mul", "even", {even, number(-smoothing)})});
  }

 private:
  bool weighted() const { return !weights_.empty(); }
  ValueId number(double value) { return graph_.add_constant(static_cast<float>(value)); }

  ValueId node(const char* op, const std::string& name, std::vector<ValueId> inputs,
               Attributes attributes = {}) {
    return graph_.add1(op, name.empty() ? "loss" : "loss/" + name, std::move(inputs),
                       std::move(attributes));
  }
  ValueId mean(const char* name, ValueId x, std::vector<int64_t> axes, bool keeps) {
    return node("ReduceMean", name, {x},
                {{"axes", std::move(axes)}, {"keepdims", int64_t{keeps ? 1 : 0}}});
  }
  ValueId plain(const char* path) {
    return graph_.add1("SoftmaxCrossEntropyLoss", path, {model_.logits, model_.labels});
  }

  /// Finds log p, times the weights of the classes.
  void find_logarithms() {
    logarithms_ = node("LogSoftmax", "log_softmax", {model_.logits});
    if (!weighted()) return;
    table_ = graph_.add_constant(Tensor{{static_cast<int64_t>(weights_.size())}, weights_});
    logarithms_ = node("Mul", "weighted", {logarithms_, table_});
  }

  /// Finds which rows count, and how often.
  void find_labelled() {
    if (labelled_ != kNone) return;
    const ValueId zero = graph_.add_index_constant({}, {0});
    const Attributes column{{"shape", Shape{rows_, 1}}};
    const ValueId labelled = node("GreaterOrEqual", "labelled", {model_.labels, zero});
    labelled_ = node("Reshape", "column", {labelled}, column);
    if (!weighted()) return;
    const ValueId labels = node("Reshape", "label_column", {model_.labels}, column);
    labels_ = node("Where", "label_classes", {labelled_, labels, zero});
    const ValueId counts =
        node("Gather", "label_weights", {table_, labels_}, {{"axis", int64_t{0}}});
    counts_ = node("Reshape", "label_counts", {counts}, column);
  }

  /// Returns the sum of the rows that count, divided by how often they count.
  ValueId over_rows(const char* name, const char* counted_name, ValueId rows,
                    const char* sum_name) {
    const ValueId counted = node("Where", counted_name, {labelled_, rows, kNone});
    ValueId ones = kNone;
    if (share_ == kNone) ones = node("Where", "ones", {labelled_, counts(), kNone});
    const ValueId sum = mean(sum_name, counted, {0, 1}, false);
    // Means instead of sums, which could overflow; the quotient is the same.
    if (share_ == kNone) share_ = mean("share", ones, {0, 1}, false);
    return node("Div", name, {sum, share_});
  }
  ValueId counts() { return weighted() ? counts_ : number(1.0); }

  Graph& graph_;
  Model& model_;
  int64_t rows_;
  const std::vector<float>& weights_;
  ValueId sharp_ = kNone, logarithms_ = kNone, table_ = kNone, labelled_ = kNone;
  ValueId labels_ = kNone, counts_ = kNone, share_ = kNone;
};

}  // namespace

void add_class_losses(Model& model, double smoothing, const std::vector<float>& weights) {
  ClassLosses(model, weights).add(smoothing);
}

}  // namespace halfscope
