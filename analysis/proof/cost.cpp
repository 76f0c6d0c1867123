// SPDX-License-Identifier: MIT
#include "analysis/proof/cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "analysis/rules/text.h"
#include "core/numeric/statistics/rates.h"
#include "core/ops/ops.h"

namespace halfscope {
namespace {

int64_t bytes_per_element(const FloatFormat& format) {
  if (format.bits() <= 8) return 1;
  return format.bits() <= 16 ? 2 : 4;  // tf32 has 19 bits and takes 4 bytes
}

int64_t elements(const Shape& shape) {
  int64_t n = 1;
  for (int64_t extent : shape) n *= extent;
  return n;
}

/// Returns the multiply-adds of a layer's forward product: outputs times weights per output
/// channel. Returns nothing if the operator is not a product.
std::optional<double> multiply_adds(const std::string& op, const SiteInfo& output, int64_t weight) {
  const OpDef* def = lookup_op(op);
  const ProductKind product = def == nullptr ? ProductKind::none : def->product;
  const bool conv = product == ProductKind::conv;
  if ((!conv && product != ProductKind::matrix) || output.shape.size() < 2 || weight == 0)
    return std::nullopt;
  const int64_t channels = conv ? output.shape[1] : output.shape.back();
  if (channels <= 0) return std::nullopt;
  return static_cast<double>(elements(output.shape)) * static_cast<double>(weight) /
         static_cast<double>(channels);
}

/// A layer's tensors. The largest one of role weight is the matrix; smaller ones are biases or
/// gains.
struct LayerTensors {
  const SiteInfo* output = nullptr;
  int64_t weights = 0, largest_weight = 0;
  std::vector<const SiteInfo*> weight_sites;
};

std::map<std::string, LayerTensors> tensors_of(const LaneInfo& lane) {
  std::map<std::string, LayerTensors> tensors;
  for (const SiteInfo& site : lane.sites) {
    LayerTensors& layer = tensors[site.path];
    if (site.role == Role::activation && site.phase == Phase::forward) layer.output = &site;
    const int64_t n = weights_in(site);
    if (n == 0) continue;
    layer.weights += n;
    layer.largest_weight = std::max(layer.largest_weight, n);
    layer.weight_sites.push_back(&site);
  }
  return tensors;
}

/// Returns the layers whose outputs depend on weights only, such as a weight that is divided by its
/// norm. Layers are in execution order.
std::set<std::string> layers_of_weights(const LaneInfo& lane,
                                        const std::map<std::string, LayerTensors>& tensors) {
  std::set<std::string> layers, known;
  for (const LayerInfo& layer : lane.layers) known.insert(layer.path);
  const auto is_weight = [&](const std::string& input) {
    if (known.contains(input)) return layers.contains(input);
    const auto place = tensors.find(input);
    return place != tensors.end() && place->second.weights > 0;
  };
  for (const LayerInfo& layer : lane.layers) {
    if (!layer.inputs.empty() && std::ranges::all_of(layer.inputs, is_weight))
      layers.insert(layer.path);
  }
  return layers;
}

/// Returns the number of weights of a product: its own, or those that other layers compute for it.
int64_t weights_of_product(const LayerInfo& layer, const LayerTensors& own,
                           const std::map<std::string, LayerTensors>& tensors,
                           const std::set<std::string>& of_weights) {
  int64_t most = own.largest_weight;
  for (const std::string& input : layer.inputs) {
    const auto place = tensors.find(input);
    if (!of_weights.contains(input) || place == tensors.end()) continue;
    if (place->second.output != nullptr)
      most = std::max(most, elements(place->second.output->shape));
  }
  return most;
}

/// Nodes that an edit moves to fp32: whole operators, or only their outputs.
class Widened {
 public:
  explicit Widened(const PlanEdit& edit) : edit_(edit) {}

  bool operator_at(const std::string& path) const { return has(FixKind::operator_fp32, path); }
  bool result_at(const std::string& path) const {
    return operator_at(path) || has(FixKind::store_fp32, path);
  }

 private:
  /// Returns whether a change applies to a node. A change of a composite applies to all its steps.
  bool has(FixKind kind, const std::string& path) const {
    return std::any_of(edit_.changes.begin(), edit_.changes.end(), [&](const Change& change) {
      const bool is_kind = change.kind == kind ||
                           (kind == FixKind::operator_fp32 && change.kind == FixKind::keep_integer);
      const auto holds_for = [&](const std::string& of) {
        return path == of || path.starts_with(of + "/");
      };
      return is_kind && (holds_for(change.path) ||
                         std::any_of(change.nodes.begin(), change.nodes.end(), holds_for));
    });
  }

  const PlanEdit& edit_;
};

Cost cost_of_nodes(const LaneInfo& lane, const PlanEdit& edit) {
  const Widened widened(edit);
  const std::map<std::string, LayerTensors> tensors = tensors_of(lane);
  const std::set<std::string> of_weights = layers_of_weights(lane, tensors);
  Cost cost;
  std::map<std::string, FloatFormat> written;  // by path, under the new plan
  int64_t weights = 0, kept_weights = 0;
  for (const auto& [path, own] : tensors) weights += own.weights;
  double products = 0.0, kept_products = 0.0;
  // Layers are in execution order, so one pass sees every input before its readers.
  for (const LayerInfo& layer : lane.layers) {
    FloatFormat format = layer.write;
    if (layer.follows) {
      for (const std::string& input : layer.inputs) {
        const auto place = written.find(input);
        if (place != written.end() && place->second.contains(format)) format = place->second;
      }
    }
    const bool kept = widened.operator_at(layer.path);
    const bool wide = widened.result_at(layer.path);
    if (wide) format = kFp32;
    written[layer.path] = format;
    if (!wide && !(format == layer.write)) cost.followers.push_back(layer.path);
    const auto place = tensors.find(layer.path);
    if (place == tensors.end()) continue;
    const LayerTensors& own = place->second;
    if (own.output != nullptr) {
      const int64_t more = bytes_per_element(format) - bytes_per_element(own.output->format);
      cost.activation_bytes += elements(own.output->shape) * std::max<int64_t>(more, 0);
      const int64_t weight = weights_of_product(layer, own, tensors, of_weights);
      if (const auto count = multiply_adds(layer.op, *own.output, weight)) {
        products += *count;
        if (kept) kept_products += *count;
      }
    }
    if (!kept) continue;
    // Weights stored with another layer are also read in this layer's format.
    const int64_t others = parameters_of(own.weights, layer.parameters) - own.weights;
    kept_weights += own.weights + others;
    cost.weight_bytes += others * (bytes_per_element(kFp32) - bytes_per_element(layer.read));
    for (const SiteInfo* site : own.weight_sites) {
      // A weight computed by another node arrives wider than this layer reads it.
      const int64_t now = std::min(bytes_per_element(site->format), bytes_per_element(layer.read));
      cost.weight_bytes += elements(site->shape) * (bytes_per_element(kFp32) - now);
    }
  }
  // A bias that two of these layers share still counts once.
  cost.weight_share = share_of(std::min(kept_weights, weights), weights);
  if (products > 0.0) cost.multiply_share = kept_products / products;
  return cost;
}

/// Returns the cost of storing variables, the optimizer's state, or both, in fp32.
Cost cost_of_storage(const LaneInfo& lane, bool variables, bool state) {
  Cost cost;
  int64_t weights = 0, kept = 0;
  for (const SiteInfo& site : lane.sites) {
    // An update's format is the one its variable is stored in.
    const bool is_variable = site.role == Role::update, is_state = site.role == Role::state;
    if (!(is_variable && variables) && !(is_state && state)) continue;
    const int64_t n = elements(site.shape);
    const int64_t more = bytes_per_element(kFp32) - bytes_per_element(site.format);
    cost.weight_bytes += n * std::max<int64_t>(more, 0);
    if (!is_variable) continue;
    weights += n;
    kept += more > 0 ? n : 0;
  }
  cost.weight_share = share_of(kept, weights);
  return cost;
}

}  // namespace

int64_t weights_in(const SiteInfo& site) {
  const int64_t n = elements(site.shape);
  const bool constant = site.role == Role::input && site.tensor.starts_with("constant") && n > 1;
  return site.role == Role::weight || constant ? n : 0;
}

int64_t parameters_of(int64_t recorded, int64_t read) { return std::max(recorded, read); }

Cost cost_of_fp32(const LaneInfo& lane, const std::vector<std::string>& layers) {
  return cost_of_nodes(lane, PlanEdit::in_fp32(layers));
}

Cost cost_of_fp32_storage(const LaneInfo& lane) { return cost_of_storage(lane, true, true); }

Cost cost_of(const LaneInfo& lane, const PlanEdit& edit) {
  Cost cost = cost_of_nodes(lane, edit);
  const bool variables = edit.has(FixKind::weights_fp32);
  const Cost stored = cost_of_storage(lane, variables, variables || edit.has(FixKind::state_fp32));
  cost.weight_bytes += stored.weight_bytes;
  cost.weight_share = std::max(cost.weight_share, stored.weight_share);
  return cost;
}

bool is_cheaper(const Cost& a, const Cost& b) {
  const double products_a = a.multiply_share.value_or(0.0);
  const double products_b = b.multiply_share.value_or(0.0);
  if (products_a != products_b) return products_a < products_b;
  return a.weight_bytes + a.activation_bytes < b.weight_bytes + b.activation_bytes;
}

std::string cost_words(const Cost& cost) {
  std::string text;
  if (cost.multiply_share.value_or(0.0) > 0.0) {
    text = percent(*cost.multiply_share) + " of the multiply-adds in fp32";
  }
  const int64_t bytes = cost.weight_bytes + cost.activation_bytes;
  if (bytes > 0) text += (text.empty() ? "" : ", ") + bytes_text(bytes) + " more memory";
  return text;
}

}  // namespace halfscope
