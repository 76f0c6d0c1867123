// SPDX-License-Identifier: MIT
// Readings of files without dynamo's metadata: decided by TorchScript's names and Identity nodes,
// then by values and modules.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/onnx/node_order.h"
#include "core/onnx/reading_work.h"
#include "core/onnx/tensorflow_file.h"
#include "core/onnx/values.h"

namespace halfscope::onnx_files {
namespace {

using ::onnx::NodeProto;

std::vector<std::string> parts_of(const std::string& module) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= module.size();) {
    const size_t end = std::min(module.find('.', begin), module.size());
    parts.push_back(module.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string joined_path(const std::vector<std::string>& parts, size_t count) {
  std::string path;
  for (size_t i = 0; i < count; ++i) path += (i > 0 ? "." : "") + parts[i];
  return path;
}

bool only_reshapes(std::string_view op) {
  return op == "Identity" || op == "Cast" || op == "Reshape" || op == "Flatten" ||
         op == "Squeeze" || op == "Unsqueeze" || op == "Expand";
}

class Unmarked {
 public:
  explicit Unmarked(ReadingWork& work) : work_(work) {}

  void run() {
    find_frozen_statistics();
    for (Use& use : work_.uses) decide(use);
    std::map<std::string, std::vector<Use*>> by_stored;
    for (Use& use : work_.uses) {
      if (use.trains()) by_stored[use.stored].push_back(&use);
    }
    for (const auto& [stored, uses] : by_stored) settle_shared(uses);
    join_transposed();
    find_folded_batch_norms();
    doubt_frozen_batch_norms();
    doubt_fixed_batch_norms();
    doubt_straight_through();
    report_lost();
    if (work_.from_tensorflow && !work_.declared) doubt_tensorflow(work_);
  }

 private:
  void decide(Use& use) {
    const bool weight = is_weight_input(use.node->op_type(), use.input);
    const bool numbered = is_numbered(use.copy);
    if (work_.is_of_groups(use)) {
      work_.hold(use, "scale or bias of a group normalization");
      return;
    }
    if (work_.declared && !numbered) {
      if (work_.declared->contains(use.copy)) {
        work_.train(use, use.copy);
      } else {
        work_.hold(use, "not in the file's list of parameters");
      }
      return;
    }
    if (const std::string why = why_constant(use, weight, numbered); !why.empty()) {
      work_.hold(use, why);
      return;
    }
    const std::string shown = numbered ? module_name(use, role_of(use)) : printable(use.copy);
    Reading& reading = use.reading;
    reading.trains = Trains::yes;
    reading.computed = numbered && !weight;
    // TorchScript transposes the weights of linear layers that it writes as a MatMul.
    reading.turned = work_.from_torch && numbered && is_right_factor(use);
    reading.identity = use.copy;
    if (!numbered) {
      if (work_.from_torch || has_owner(use)) reading.name = shown;
    } else if (use.origin->known) {
      // Further calls of a module read what the first one reads at the same place.
      const std::string place = use.origin->module + " " + use.node->op_type() +
                                std::to_string(use.input) + " of " + use.stored;
      std::vector<std::string>& copies = copies_[use.origin->module_call + " " + place];
      const auto known = std::find(copies.begin(), copies.end(), use.copy);
      const auto number = known - copies.begin();
      if (known == copies.end()) copies.push_back(use.copy);
      reading.identity = place + " " + std::to_string(number);
      reading.name = shown;
    }
    if (reading.computed && work_.from_torch && !follows_instance_norm(use)) {
      work_.doubt(shown,
                  "the exporter computed it, perhaps from parameters; if it should not "
                  "train, use --frozen " +
                      shown);
    } else if (use.tensor->count() == 1 && !weight && !is_variable(use)) {
      work_.doubt(shown,
                  "it is a single number, either a parameter or a constant; if it is a "
                  "constant, use --frozen " +
                      shown);
    } else if (numbered && is_computed_weight(use)) {
      work_.doubt(shown, "the exporter computed it, perhaps from several parameters");
    } else if (may_be_parameter_or_buffer(use, numbered)) {
      work_.doubt(shown,
                  "the file does not say whether it is a parameter or a buffer; if it is a "
                  "buffer, use --frozen " +
                      shown);
    } else if (is_unsaid(use, weight)) {
      work_.doubt(shown,
                  "the file does not say whether it is a parameter or a constant; if it is a "
                  "constant, use --frozen " +
                      shown);
    } else if (may_be_buffer(use, numbered)) {
      work_.doubt(shown,
                  "it repeats one number and is cast first, like many buffers; if it is a buffer, "
                  "use --frozen " +
                      shown);
    }
  }

  /// Returns whether the exporter computed a weight: TorchScript transposes weights of a MatMul,
  /// but has no reason to compute others. Folded batch normalizations are handled separately.
  bool is_computed_weight(const Use& use) const {
    const std::string& op = use.node->op_type();
    const bool has_bias = use.node->input_size() > 2 && is_numbered(use.node->input(2));
    return work_.from_torch && use.input == 1 &&
           (op == "Gemm" || ((op == "Conv" || op == "ConvTranspose") && !has_bias));
  }

  /// Returns whether a tensor may be a parameter or a buffer: it is not named like the weight of a
  /// layer, which matters less than where it is read: networks multiply by fixed matrices and
  /// convolve with fixed filters, too.
  bool may_be_parameter_or_buffer(const Use& use, bool numbered) const {
    const std::string name = use.copy.substr(use.copy.rfind('.') + 1);
    return work_.from_torch && !numbered && name.find("weight") == std::string::npos &&
           name.find("bias") == std::string::npos;
  }

  /// Returns whether a tensor may be a parameter or a constant of the network: jax2onnx numbers
  /// both alike, and nothing but a layer's operator tells them apart.
  bool is_unsaid(const Use& use, bool weight) const {
    const std::string& op = use.node->op_type();
    return work_.file.producer_name() == "jax2onnx" && !weight && use.tensor->count() > 1 &&
           (op == "Add" || op == "Sub" || op == "Mul" || op == "Div" || op == "Where");
  }

  /// Returns whether a tensor may be a buffer: networks rarely cast a parameter of ones or zeros,
  /// except for scales of normalizations.
  bool may_be_buffer(const Use& use, bool numbered) const {
    const std::string name = use.copy.substr(use.copy.rfind('.') + 1);
    return work_.from_torch && !numbered && use.node->op_type() == "Cast" &&
           is_one_number(*use.tensor) && name != "weight" && name != "bias";
  }

  /// Adds a doubt if all batch normalizations are in inference: a file without folded tensors may
  /// be an export for training with them in eval().
  void doubt_frozen_batch_norms() {
    const bool folded =
        work_.has_copies || std::any_of(work_.uses.begin(), work_.uses.end(),
                                        [](const Use& use) { return is_numbered(use.copy); });
    if (!work_.from_torch || folded) return;
    std::string first;
    for (const NodeProto& node : work_.file.graph().node()) {
      if (node.op_type() != "BatchNormalization") continue;
      const auto mode =
          std::find_if(node.attribute().begin(), node.attribute().end(),
                       [](const auto& each) { return each.name() == "training_mode"; });
      if (mode == node.attribute().end() || mode->i() != 0) return;
      const std::string& module = work_.origins.at(&node).module;
      if (first.empty()) first = module.empty() ? describe(node) : module;
    }
    if (first.empty()) return;
    work_.doubt(first,
                "all batch normalizations are exported for inference; HalfScope trains them with "
                "the statistics of each batch");
  }

  static bool trains_statistics(const NodeProto& node) {
    return node.op_type() == "BatchNormalization" &&
           std::any_of(node.attribute().begin(), node.attribute().end(), [](const auto& each) {
             return each.name() == "training_mode" && each.i() != 0;
           });
  }

  /// Adds doubts for scales and biases of batch normalizations in eval() beside others that train:
  /// networks that keep their statistics often freeze these and the layers before them, too.
  void doubt_fixed_batch_norms() {
    const auto& nodes = work_.file.graph().node();
    if (work_.declared || std::none_of(nodes.begin(), nodes.end(), trains_statistics)) return;
    for (const Use& use : work_.uses) {
      const NodeProto& node = *use.node;
      if (!use.trains() || node.op_type() != "BatchNormalization" || trains_statistics(node))
        continue;
      const std::string shown = use.reading.name.empty() ? printable(use.copy) : use.reading.name;
      work_.doubt(
          shown,
          "its batch normalization is in eval(), so it may be frozen, and layers before it, "
          "too; if it is, use --frozen " +
              shown);
    }
  }

  void report_lost() {
    if (!work_.declared) return;
    std::set<std::string> read;
    for (const Use& use : work_.uses) {
      if (use.trains()) read.insert(use.reading.name);
    }
    for (const std::string& name : *work_.declared) {
      if (read.contains(printable(name))) continue;
      work_.doubt(printable(name),
                  "no node reads this parameter; either the network does not use it, or the "
                  "exporter replaced it by a constant");
    }
  }

  bool is_class_weight(const Use& use) const {
    const std::string& op = use.node->op_type();
    return use.input == 2 && (op == "SoftmaxCrossEntropyLoss" || op == "NegativeLogLikelihoodLoss");
  }

  /// Adds doubts for sums that add and subtract the same value: only straight-through estimators
  /// such as x + (round(x) - x).detach() write them, and TorchScript leaves the detach() out.
  void doubt_straight_through() {
    if (!work_.from_torch) return;
    for (const NodeProto& node : work_.file.graph().node()) {
      if (node.op_type() != "Add" || node.input_size() != 2) continue;
      for (int i = 0; i < 2; ++i) {
        const NodeProto* difference = work_.maker(node.input(i));
        if (difference == nullptr || difference->op_type() != "Sub" ||
            difference->input_size() != 2 || difference->input(1) != node.input(1 - i)) {
          continue;
        }
        const std::string& module = work_.origins.at(&node).module;
        work_.doubt(module.empty() ? describe(node) : module,
                    "it adds and subtracts " + printable(node.input(1 - i)) +
                        ", as straight-through estimators do with detach(); ONNX files cannot "
                        "express detach(), so gradients flow through both");
      }
    }
  }

  bool is_variable(const Use& use) const {
    return work_.from_tensorflow && is_variable_name(use.copy);
  }

  /// Returns whether a tensor [1] is added to the result of a product with one column, like the
  /// bias of a layer with one output.
  bool is_bias_of_one(const Use& use) const {
    if (use.node->op_type() != "Add" || use.tensor->shape != Shape{1}) return false;
    const NodeProto* product = other_operand(use);
    if (product == nullptr || product->op_type() != "MatMul") return false;
    const auto weight = work_.initializers.find(product->input(1));
    return weight != work_.initializers.end() && weight->second->shape.size() == 2 &&
           weight->second->shape[1] == 1;
  }

  /// Returns whether the name is a path within the reader's module.
  bool has_owner(const Use& use) const {
    return use.origin->known && (work_.from_torch || !owner_of(use.copy).empty()) &&
           is_within(owner_of(use.copy), use.origin->module);
  }

  /// Returns why a tensor without metadata does not train; "" if it trains.
  std::string why_constant(const Use& use, bool weight, bool numbered) {
    const KnownTensor& tensor = *use.tensor;
    if (tensor.count() == 0) return "empty";
    const bool named = work_.from_torch && !numbered;
    if (tensor.count() == 1 && !named && (!weight || tensor.shape.empty()) && !is_variable(use) &&
        !is_bias_of_one(use)) {
      return "a number";
    }
    if (is_mask(tensor)) return "a mask";
    if (is_class_weight(use)) return "weights of classes";
    if (frozen_.contains(use.copy) && partners_[use.copy].empty()) {
      const std::string shown = printable(use.copy);
      work_.doubt(shown,
                  "a small number is added to it before a root, as to the variance of a frozen "
                  "normalization, so it does not train; if it is a parameter, use --trainable " +
                      shown);
      return "variance of a frozen normalization";
    }
    if (is_frozen_norm(use) || frozen_.contains(use.copy))
      return "part of a frozen batch normalization";
    if (!work_.from_torch || !follows_formula(tensor)) return "";
    const std::string shown = numbered ? module_name(use, role_of(use)) : printable(use.copy);
    work_.doubt(shown,
                "its values follow a formula, so it does not train; if it is a parameter, "
                "use --trainable " +
                    shown);
    return "follows a formula";
  }

  /// Finds frozen batch normalizations that are written as primitives: a variance is a tensor that
  /// is added to a small number before a root. Everything computed from it and from other tensors
  /// alone belongs to the normalization. If the variance is computed, weights are normalized that
  /// train.
  void find_frozen_statistics() {
    const std::vector<const NodeProto*> nodes = in_order(work_.file.graph().node());
    std::map<std::string, std::set<std::string>> leaves;  // of results of initializers alone
    std::set<std::string> stored;  // tensors of the file, perhaps in another shape
    for (const Use& use : work_.uses) {
      leaves[use.copy] = {use.copy};
      if (use.tensor->count() > 1) stored.insert(use.copy);
    }
    std::set<std::string> shifted, variances;  // tensors plus a number; results that have a root
    for (const NodeProto* node : nodes) {
      std::set<std::string> from;
      bool alone = node->input_size() > 0;
      for (const std::string& input : node->input()) {
        const auto found = leaves.find(input);
        const NodeProto* made = work_.maker(input);
        const bool number = found == leaves.end() &&
                            (made == nullptr ? is_known(input) : made->op_type() == "Constant");
        alone = alone && (found != leaves.end() || number);
        if (found != leaves.end()) from.insert(found->second.begin(), found->second.end());
      }
      if (!alone || from.empty()) continue;
      const std::string& op = node->op_type();
      bool has_root = false;
      for (const std::string& input : node->input()) {
        has_root =
            has_root || variances.contains(input) || (op == "Sqrt" && shifted.contains(input));
      }
      for (const std::string& output : node->output()) {
        leaves[output] = from;
        const auto wide = std::count_if(from.begin(), from.end(), [&](const std::string& name) {
          const auto found = work_.initializers.find(name);
          return found == work_.initializers.end() || found->second->count() > 1;
        });
        if (only_reshapes(op) && stored.contains(node->input(0))) stored.insert(output);
        const bool is_stored = std::any_of(node->input().begin(), node->input().end(),
                                           [&](const auto& each) { return stored.contains(each); });
        if (op == "Add" && wide == 1 && is_stored) shifted.insert(output);
        if (has_root) variances.insert(output);
      }
      if (!has_root) continue;
      frozen_.insert(from.begin(), from.end());
      for (const std::string& name : from) {
        for (const std::string& other : from) {
          const auto found = work_.initializers.find(other);
          const bool wide = found == work_.initializers.end() || found->second->count() > 1;
          if (other != name && wide) partners_[name].insert(other);
        }
      }
    }
  }
  bool is_known(const std::string& name) const { return work_.initializers.contains(name); }

  const NodeProto* other_operand(const Use& use) const {
    return use.node->input_size() == 2 ? work_.maker(use.node->input(1 - use.input)) : nullptr;
  }

  /// Returns whether a node computes with numbered constants per channel.
  static bool is_per_channel(const Use& use, std::string_view op) {
    const Shape& shape = use.tensor->shape;
    return is_numbered(use.copy) && use.node->op_type() == op && shape.size() == 4 &&
           shape[0] == 1 && shape[2] == 1 && shape[3] == 1;
  }

  /// Returns whether a node is the Mul or the Add of a frozen batch normalization: of a Mul and an
  /// Add of constants per channel behind a convolution. A Mul alone scales channels, and trains.
  bool is_frozen_norm(const Use& use) const {
    const NodeProto* scale = is_per_channel(use, "Mul")   ? use.node
                             : is_per_channel(use, "Add") ? other_operand(use)
                                                          : nullptr;
    if (scale == nullptr || scale->op_type() != "Mul") return false;
    const bool is_shifted = std::any_of(work_.uses.begin(), work_.uses.end(), [&](const Use& each) {
      return is_per_channel(each, "Add") && other_operand(each) == scale;
    });
    return is_shifted &&
           std::any_of(scale->input().begin(), scale->input().end(), [&](const auto& input) {
             const NodeProto* made = work_.maker(input);
             return made != nullptr && made->op_type() == "Conv";
           });
  }

  /// Returns whether a tensor is scale or bias of a group normalization, which was only reshaped.
  bool follows_instance_norm(const Use& use) const {
    const NodeProto* before = other_operand(use);
    for (int i = 0; before != nullptr && i < 3; ++i) {
      if (before->op_type() == "InstanceNormalization") return true;
      before = before->input_size() > 0 ? work_.maker(before->input(0)) : nullptr;
    }
    return false;
  }

  /// Decides about a tensor that several nodes read: equal by chance, in copies of a module, or
  /// tied.
  void settle_shared(const std::vector<Use*>& uses) {
    if (work_.stores_equal_apart) {
      for (Use* use : uses) use->reading.identity = use->copy;
    } else if (is_one_number(*uses.front()->tensor)) {
      part_equal(uses);
    } else {
      tie_random(uses);
    }
  }

  /// Separates ones or zeros that exporters store once: each node gets its own tensor, unless the
  /// name says otherwise or the nodes share a weight that is not equal by chance.
  void part_equal(const std::vector<Use*>& uses) {
    for (size_t i = 1; i < uses.size(); ++i) {
      Use& use = *uses[i];
      const bool sure =
          is_numbered(use.copy) ? use.origin->known : work_.has_copies || has_owner(use);
      if (sure || shares_weight(*uses.front(), use)) continue;
      const std::string own = module_name(use, role_of(use));
      use.reading.identity = use.copy + " of " + std::to_string(&use - work_.uses.data());
      use.reading.name = use.origin->known ? own : "";
      work_.doubt(use.origin->known ? own : describe(*use.node),
                  "its " + role_of(use) + " starts equal to the " + role_of(*uses.front()) +
                      " of " + describe(*uses.front()->node) +
                      ", and the file stores only one of them; HalfScope trains them separately");
    }
  }

  bool shares_weight(const Use& a, const Use& b) const {
    return std::any_of(work_.uses.begin(), work_.uses.end(), [&](const Use& one) {
      return one.node == a.node && !is_one_number(*one.tensor) &&
             std::any_of(work_.uses.begin(), work_.uses.end(), [&](const Use& other) {
               return other.node == b.node && other.stored == one.stored;
             });
    });
  }

  /// Ties equal random values, unless they come from copies of a module.
  void tie_random(const std::vector<Use*>& uses) {
    Use& first = *uses.front();
    for (size_t i = 1; i < uses.size(); ++i) {
      Use& use = *uses[i];
      if (use.reading.identity == first.reading.identity) {
        const bool elsewhere = use.origin->known && first.origin->known &&
                               !is_within(use.origin->module, owner_of(use.copy)) &&
                               !work_.has_copies &&
                               are_copies(first.origin->module, use.origin->module);
        if (!elsewhere) continue;
        use.reading.name = module_name(use, role_of(use));
        use.reading.identity = use.reading.name + " of " + use.copy;
        continue;
      }
      if (!is_numbered(use.copy) || are_copies(first.origin->module, use.origin->module)) continue;
      use.reading.identity = first.reading.identity;
      use.reading.name = first.reading.name;
    }
  }

  /// Returns whether one module was created as a copy of the other: their paths differ in one part,
  /// and everything below it reads the same tensors.
  bool are_copies(const std::string& a, const std::string& b) const {
    const std::vector<std::string> of_a = parts_of(a), of_b = parts_of(b);
    if (of_a.size() != of_b.size()) return false;
    size_t at = 0;
    while (at < of_a.size() && of_a[at] == of_b[at]) ++at;
    if (at == of_a.size() ||
        !std::equal(of_a.begin() + static_cast<std::ptrdiff_t>(at) + 1, of_a.end(),
                    of_b.begin() + static_cast<std::ptrdiff_t>(at) + 1)) {
      return false;
    }
    const std::multiset<std::string> contents = contents_of(joined_path(of_a, at + 1));
    return !contents.empty() && contents == contents_of(joined_path(of_b, at + 1));
  }

  /// Returns the tensors that the nodes of a module read, by place; empty if too few to compare.
  std::multiset<std::string> contents_of(const std::string& root) const {
    std::multiset<std::string> contents;
    std::set<std::string> random;
    for (const Use& use : work_.uses) {
      if (!use.origin->known || !is_within(use.origin->module, root)) continue;
      contents.insert(use.origin->module.substr(root.size()) + " " + use.node->op_type() + " " +
                      std::to_string(use.input) + " " + use.stored);
      if (!is_one_number(*use.tensor)) random.insert(use.stored);
    }
    if (random.size() < 2) contents.clear();
    return contents;
  }

  /// Joins a tied table with its transpose, which the exporter wrote for the product that reads it.
  void join_transposed() {
    std::map<std::string, std::vector<Use*>> matrices;
    for (Use& use : work_.uses) {
      if (use.trains() && use.tensor->shape.size() == 2 && use.tensor->count() >= 4 &&
          !is_one_number(*use.tensor)) {
        matrices[use.stored].push_back(&use);
      }
    }
    for (auto a = matrices.begin(); a != matrices.end(); ++a) {
      for (auto b = std::next(a); b != matrices.end(); ++b) {
        const KnownTensor &first = *a->second.front()->tensor, &second = *b->second.front()->tensor;
        if (!is_transpose(first, second) || same_values(first, second)) continue;
        const bool named_second = is_numbered(a->first) && !is_numbered(b->first);
        const Use& home = *(named_second ? b : a)->second.front();
        for (Use* use : (named_second ? a : b)->second) {
          use->reading.identity = home.reading.identity;
          use->reading.name = home.reading.name;
          use->reading.stored = home.stored;
          use->reading.transposed = true;
        }
      }
    }
  }

  /// Finds convolutions with folded batch normalizations: TorchScript numbers weight and bias
  /// because it computed them.
  void find_folded_batch_norms() {
    std::vector<std::string> folded;
    for (const NodeProto& node : work_.file.graph().node()) {
      if (node.op_type() == "Conv" && node.input_size() > 2 &&
          node.input(1).starts_with("onnx::") && node.input(2).starts_with("onnx::")) {
        const std::string& module = work_.origins.at(&node).module;
        folded.push_back(module.empty() ? node.name() : module);
      }
    }
    if (!folded.empty()) work_.batch_norms_folded(folded);
  }

  ReadingWork& work_;
  std::set<std::string> frozen_;  ///< tensors of frozen batch normalizations
  std::map<std::string, std::set<std::string>> partners_;   ///< the others of the normalization
  std::map<std::string, std::vector<std::string>> copies_;  ///< by call of a module and place
};

}  // namespace

void decide_unmarked(ReadingWork& work) { Unmarked(work).run(); }

}  // namespace halfscope::onnx_files
