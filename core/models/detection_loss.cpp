// SPDX-License-Identifier: MIT
#include "core/models/detection_loss.h"

#include <numeric>
#include <string>
#include <vector>

namespace halfscope {
namespace {

class DetectionLoss {
 public:
  DetectionLoss(Model& model, ValueId classes, ValueId codes)
      : model_(model), graph_(model.graph), classes_(classes), codes_(codes) {}

  void add() {
    const Shape logits = graph_.value(classes_).shape, codes = graph_.value(codes_).shape;
    const Shape anchors{logits.at(0), logits.at(1)};
    labels_ = graph_.add_input("class_targets", anchors, ElementType::index);
    targets_ = graph_.add_input("box_targets", codes);
    model_.first_loss_node = static_cast<NodeId>(graph_.nodes().size());
    column_ = node("Reshape", "column", {labels_}, {{"shape", Shape{anchors[0], anchors[1], 1}}});
    const ValueId zero = graph_.add_index_constant({}, {0});
    object_ = node("Greater", "object", {column_, zero});
    counts_ = node("GreaterOrEqual", "counts", {column_, zero});
    const ValueId ones = node("Where", "ones", {object_, number(1.0), kNone});
    const ValueId objects = node("Clip", "objects", {sum("sum", ones)}, {{"min", 1.0}});
    const ValueId both = node("Add", "both", {focal(logits.at(2)), smooth()});
    model_.loss = graph_.add1("Div", "loss", {both, objects});
  }

 private:
  ValueId node(const char* op, const std::string& name, std::vector<ValueId> inputs,
               Attributes attributes = {}) {
    return graph_.add1(op, "loss/" + name, std::move(inputs), std::move(attributes));
  }
  ValueId number(double value) { return graph_.add_constant(static_cast<float>(value)); }
  ValueId sum(const std::string& name, ValueId x) {
    return node("ReduceSum", name, {x}, {{"keepdims", int64_t{0}}});
  }

  ValueId focal(int64_t count) {
    std::vector<int32_t> all(static_cast<size_t>(count));
    std::iota(all.begin(), all.end(), 1);
    const ValueId hit =
        node("Equal", "hit", {column_, graph_.add_index_constant({count}, std::move(all))});
    const ValueId label = node("Where", "label", {hit, number(1.0), kNone});
    const ValueId p = node("Sigmoid", "p", {classes_});
    const ValueId rest = node("Sub", "rest", {number(1.0), p});
    const ValueId miss = node("Where", "miss", {hit, rest, p});  // 1 - p_t
    const ValueId alpha = node("Where", "alpha", {hit, number(0.25), number(0.75)});
    // -log p_t = (1 - t) x + log(1 + exp(-x))
    const ValueId others = node("Sub", "others", {number(1.0), label});
    const ValueId logarithm = node("Softplus", "softplus", {node("Neg", "neg", {classes_})});
    const ValueId entropy =
        node("Add", "entropy", {node("Mul", "linear", {others, classes_}), logarithm});
    const ValueId weight = node("Mul", "weight", {alpha, node("Mul", "square", {miss, miss})});
    const ValueId each = node("Mul", "focal", {weight, entropy});
    return sum("focal_sum", node("Where", "counted", {counts_, each, kNone}));
  }

  ValueId smooth() {
    constexpr double kBeta = 1.0 / 9.0;
    const ValueId d = node("Sub", "difference", {codes_, targets_});
    const ValueId size = node("Abs", "size", {d});
    const ValueId is_small = node("Less", "small", {size, number(kBeta)});
    const ValueId square =
        node("Mul", "parabola", {node("Mul", "squared", {d, d}), number(0.5 / kBeta)});
    const ValueId line = node("Sub", "line", {size, number(0.5 * kBeta)});
    const ValueId each = node("Where", "smooth", {is_small, square, line});
    return sum("smooth_sum", node("Where", "of_objects", {object_, each, kNone}));
  }

  Model& model_;
  Graph& graph_;
  ValueId classes_, codes_;
  ValueId labels_ = kNone, targets_ = kNone, column_ = kNone, object_ = kNone, counts_ = kNone;
};

}  // namespace

void add_detection_loss(Model& model, ValueId classes, ValueId codes) {
  DetectionLoss(model, classes, codes).add();
}

}  // namespace halfscope
