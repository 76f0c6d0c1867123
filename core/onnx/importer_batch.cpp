// SPDX-License-Identifier: MIT
// The parts of Importer that turn one sample into a batch.
#include "core/error.h"
#include "core/onnx/importer.h"

namespace halfscope::onnx_files {

/// What a folded node gives for the batch; null if that is the same as for one sample.
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
    auto result = std::make_shared<KnownTensor>(fold(several).value().at(output));
    if (result->shape == one.shape && result->reals == one.reals && result->ints == one.ints)
      return nullptr;
    return result;
  } catch (const Error& error) {
    samples()->refuse(call.what, std::string("with several samples: ") + error.what());
    return nullptr;
  }
}

/// Makes the network of one sample that of the batch.
void Importer::take_batch(OnnxImport& result) {
  if (samples_ == nullptr) return;
  if (samples() != nullptr) samples_->finish(model_.outputs);
  std::optional<Model> several;
  if (samples() != nullptr) several = with_batch(model_, *samples_);
  if (several) {
    model_ = std::move(*several);
    return;
  }
  result.one_sample = samples_->refusal();
  note("the file takes one sample at a time: " + result.one_sample);
}

}  // namespace halfscope::onnx_files
