// SPDX-License-Identifier: MIT
// Doubts about files of tf2onnx, which exports networks for inference: TensorFlow multiplies
// kernels by batch normalizations and leaves out sums with zeros and products with ones.
#include <algorithm>

#include "core/onnx/node_order.h"
#include "core/onnx/reading_work.h"
#include "core/onnx/tensorflow_file.h"
#include "core/onnx/values.h"

namespace halfscope::onnx_files {
namespace {

using ::onnx::NodeProto;

class Doubts {
 public:
  explicit Doubts(ReadingWork& work) : work_(work) {
    for (const NodeProto& node : work.file.graph().node()) {
      for (const std::string& input : node.input()) readers_[input].push_back(&node);
    }
  }

  void run() {
    std::vector<std::string> folded;
    for (const Use& use : work_.uses) {
      if (use.trains() && is_batch_norm_name(use.copy)) add(folded, layer_of(*use.node));
    }
    for (const Use& use : work_.uses) {
      const bool known =
          !use.trains() || is_batch_norm_name(use.copy) ||
          std::find(folded.begin(), folded.end(), layer_of(*use.node)) != folded.end();
      if (known || !is_computed_name(use.copy) || !is_operand(use.node->op_type())) continue;
      const std::string name = module_name(use, role_of(use));
      work_.doubt(name,
                  "the exporter computed it, perhaps from parameters; if it should not train, use "
                  "--frozen " +
                      name);
    }
    if (!folded.empty()) work_.batch_norms_folded(folded);
    find_missing_biases();
  }

 private:
  static void add(std::vector<std::string>& names, const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }

  std::string layer_of(const NodeProto& node) const {
    const NodeOrigin& origin = work_.origins.at(&node);
    return origin.module.empty() ? node.name() : origin.module;
  }

  static bool is_product(const NodeProto& node) {
    const std::string& op = node.op_type();
    return op == "Conv" || op == "ConvTranspose" || op == "MatMul" || op == "Gemm";
  }

  /// Returns whether an operator may read a parameter as one of its operands.
  static bool is_operand(const std::string& op) {
    return op == "Add" || op == "Sub" || op == "Mul" || op == "Div" || op == "Gather" ||
           op == "PRelu" || op == "Where";
  }

  void find_missing_biases() {
    std::vector<std::string> without;
    for (const Use& use : work_.uses) {
      if (use.trains() && use.input == 1 && is_product(*use.node) && !has_bias(*use.node, 0))
        add(without, layer_of(*use.node));
    }
    if (without.empty()) return;
    work_.doubt("biases", "this file has none for " + joined(without) +
                              "; the exporter leaves out biases of zeros and scales of ones, and "
                              "then they do not train");
  }

  bool has_bias(const NodeProto& product, int depth) const {
    return (product.input_size() > 2 && !product.input(2).empty()) ||
           adds_tensor(product, product.output(0), depth);
  }

  /// Returns whether a tensor is added to a product: directly, after its result was reshaped, or
  /// after the sum with another product, or after another product in the same layer.
  bool adds_tensor(const NodeProto& product, const std::string& value, int depth) const {
    constexpr int kDeepest = 5;
    const auto found = readers_.find(value);
    if (found == readers_.end() || depth == kDeepest) return false;
    return std::any_of(found->second.begin(), found->second.end(), [&](const NodeProto* reader) {
      const std::string& op = reader->op_type();
      if (op == "Add" && reader->input_size() == 2) {
        const std::string& other = reader->input(reader->input(0) == value ? 1 : 0);
        const auto tensor = work_.initializers.find(other);
        if (tensor != work_.initializers.end()) return tensor->second->real();
      }
      const bool passes = op == "Add" || op == "Reshape" || op == "Transpose" || op == "Squeeze" ||
                          op == "Unsqueeze" || op == "Identity";
      if (is_product(*reader) && layer_of(*reader) == layer_of(product))
        return has_bias(*reader, depth + 1);
      return passes && adds_tensor(product, reader->output(0), depth + 1);
    });
  }

  ReadingWork& work_;
  std::map<std::string, std::vector<const NodeProto*>> readers_;
};

}  // namespace

void doubt_tensorflow(ReadingWork& work) { Doubts(work).run(); }

}  // namespace halfscope::onnx_files
