// SPDX-License-Identifier: MIT
// The parts of Importer that convert a network of one sample to a batch.
#include <algorithm>

#include "core/error.h"
#include "core/onnx/importer.h"

namespace halfscope::onnx_files {

/// Returns the output of a folded node for the whole batch; null if it is the same as for one
/// sample.
std::shared_ptr<const KnownTensor> Importer::fold_with_batch(const FoldCall& call,
                                                             const std::vector<BindingPtr>& inputs,
                                                             const KnownTensor& one,
                                                             size_t output) {
  if (samples() == nullptr) return nullptr;
  FoldCall several = call;
  std::vector<KnownTensor> shapes(inputs.size());
  bool differs = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] == nullptr) continue;
    if (inputs[i]->several != nullptr) {
      several.in[i] = inputs[i]->several.get();
      differs = true;
    } else if (inputs[i]->known == nullptr) {
      shapes[i].shape = samples()->shape(inputs[i]->value);
      several.in[i] = &shapes[i];
      differs = true;
    }
  }
  if (!differs) return nullptr;
  try {
    auto result = std::make_shared<KnownTensor>(fold_twice(several).value().outputs.at(output));
    if (result->shape == one.shape && result->true_reals() == one.true_reals() &&
        result->ints == one.ints) {
      return nullptr;
    }
    return result;
  } catch (const Error& error) {
    samples()->refuse(call.what, std::string("with several samples: ") + error.what());
    return nullptr;
  }
}

bool Importer::is_one(ValueId value) const {
  const std::vector<Constant>& all = model_.graph.constants();
  return std::any_of(all.begin(), all.end(), [&](const Constant& each) {
    return each.value == value && each.tensor.data == std::vector<float>{1.0f};
  });
}

/// Replaces the network for one sample by one for the batch.
void Importer::take_batch(OnnxImport& result) {
  if (samples_ == nullptr) return;
  if (samples() != nullptr) samples_->finish(model_.outputs);
  std::optional<Model> several;
  if (samples() != nullptr) several = with_batch(model_, *samples_);
  if (several) {
    for (const Node& node : model_.graph.nodes()) {
      if (node.op == "Div" && samples_->place(node.inputs[0]) && is_one(node.inputs[1]))
        note(node.path +
             " divides by 1; if that is the batch size, export the network with an open batch");
    }
    model_ = std::move(*several);
    return;
  }
  result.one_sample = samples_->refusal();
  note("the network can only take one sample at a time: " + result.one_sample);
}

}  // namespace halfscope::onnx_files
