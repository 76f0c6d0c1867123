// SPDX-License-Identifier: MIT
// Activations that exporters write as primitives: GELU, Swish with or without a factor, HardSwish,
// LogSigmoid.
#include <algorithm>
#include <cmath>

#include "core/onnx/matches.h"
#include "core/policy/torch_lists.h"

namespace halfscope::onnx_files {
namespace {

/// Returns whether a product is 0.044715 x^n; if so, its nodes join the match.
bool is_power(const Surroundings& in, ValueId value, ValueId x, size_t n, Match& match) {
  Product product = in.product_of(value);
  if (!is_close(product.constant, 0.044715)) return false;
  std::vector<ValueId> factors;
  for (ValueId factor : product.factors) {
    const Node* pow = in.made_by(factor, "Pow");
    const auto exponent = pow != nullptr ? in.scalar(pow->inputs[1]) : std::nullopt;
    if (exponent == 2.0 || exponent == 3.0) {
      product.nodes.insert(in.producer(factor));
      factors.insert(factors.end(), static_cast<size_t>(*exponent), pow->inputs[0]);
    } else {
      factors.push_back(factor);
    }
  }
  if (factors != std::vector<ValueId>(n, x)) return false;
  match.nodes.merge(product.nodes);
  return true;
}

/// Matches x + 0.044715 x^3, or x (1 + 0.044715 x^2) as two factors.
bool is_cubic(const Surroundings& in, const std::vector<ValueId>& factors, ValueId x,
              Match& match) {
  const bool factored = factors.size() == 2;
  if (factors.empty() || factors.size() > 2) return false;
  if (factored && factors[0] != x && factors[1] != x) return false;
  const ValueId value = factored && factors[0] == x ? factors[1] : factors[0];
  const Node* sum = in.made_by(value, "Add");
  if (sum == nullptr) return false;
  for (size_t i = 0; i < 2; ++i) {
    const bool first = factored ? in.scalar(sum->inputs[i]) == 1.0 : sum->inputs[i] == x;
    if (!first || !is_power(in, sum->inputs[1 - i], x, factored ? 2 : 3, match)) continue;
    match.nodes.insert(in.producer(value));
    return true;
  }
  return false;
}

// 0.5 x (1 + erf(x / sqrt 2)), 0.5 x (1 - erf(-x / sqrt 2)), or with
// tanh(sqrt(2 / pi) (x + 0.044715 x^3)) in place of erf
std::optional<Match> written_gelu(const Surroundings& in, NodeId id) {
  const Product whole = in.product_of(in.graph().node(id).outputs[0]);
  if (whole.factors.size() != 2 || !is_close(whole.constant, 0.5)) return std::nullopt;
  for (size_t i = 0; i < 2; ++i) {
    const ValueId x = whole.factors[i], gate = whole.factors[1 - i];
    const Node* sum = in.made_by(gate, "Add");
    const Node* difference = in.made_by(gate, "Sub");
    ValueId curve = sum != nullptr ? in.beside(*sum, 1.0).value_or(kNone) : kNone;
    if (difference != nullptr && in.scalar(difference->inputs[0]) == 1.0)
      curve = difference->inputs[1];
    if (curve == kNone) continue;
    const Node* erf = in.made_by(curve, "Erf");
    const Node* tanh = in.made_by(curve, "Tanh");
    if (erf == nullptr && (tanh == nullptr || difference != nullptr)) continue;
    const Node& function = erf != nullptr ? *erf : *tanh;
    Match match{"Gelu", {x}, {{"tanh", int64_t{erf == nullptr}}}, whole.nodes, id};
    match.nodes.insert({in.producer(gate), in.producer(curve)});
    Product inner = in.product_of(function.inputs[0]);
    match.nodes.merge(inner.nodes);
    if (erf != nullptr) {
      const double factor = difference != nullptr ? -inner.constant : inner.constant;
      if (inner.factors == std::vector<ValueId>{x} && is_close(factor, std::sqrt(0.5)))
        return match;
      continue;
    }
    if (!is_close(inner.constant, std::sqrt(2.0 / M_PI))) continue;
    if (is_cubic(in, inner.factors, x, match)) return match;
  }
  return std::nullopt;
}

// x sigmoid(alpha x), and x hard_sigmoid(x) with a slope of 1/6
std::optional<Match> gated(const Surroundings& in, NodeId id) {
  const Node& mul = in.graph().node(id);
  for (size_t i = 0; i < 2; ++i) {
    const ValueId x = mul.inputs[1 - i];
    const NodeId gate = in.producer(mul.inputs[i]);
    if (const Node* hard = in.made_by(mul.inputs[i], "HardSigmoid")) {
      if (hard->inputs[0] == x && is_close(real_attribute(*hard, "alpha", 0.2), 1.0 / 6.0) &&
          real_attribute(*hard, "beta", 0.5) == 0.5) {
        return Match{"HardSwish", {x}, {}, {id, gate}, id};
      }
    }
    const Node* sigmoid = in.made_by(mul.inputs[i], "Sigmoid");
    if (sigmoid == nullptr) continue;
    Match match{"Swish", {x}, {}, {id, gate}, id};
    if (sigmoid->inputs[0] == x) return match;
    const Node* scaled = in.made_by(sigmoid->inputs[0], "Mul");
    if (scaled == nullptr) continue;
    for (size_t k = 0; k < 2; ++k) {
      const auto alpha = in.scalar(scaled->inputs[k]);
      if (!alpha || scaled->inputs[1 - k] != x) continue;
      match.attributes["alpha"] = *alpha;
      match.nodes.insert(in.producer(sigmoid->inputs[0]));
      return match;
    }
  }
  return std::nullopt;
}

// log(sigmoid(x)) that PyTorch computes as one function, as far as the file says: dynamo's metadata
// names `log` where the network calls torch.log itself. A sigmoid that underflows is -infinity
// there, but not in the function.
std::optional<Match> log_sigmoid(const Surroundings& in, NodeId id) {
  const Node& log = in.graph().node(id);
  const Node* sigmoid = in.made_by(log.inputs[0], "Sigmoid");
  if (sigmoid == nullptr) return std::nullopt;
  if (int_attribute(log, kTorchFunction, kUnknownFunction) == torch_function_number("log")) {
    return std::nullopt;
  }
  return Match{"LogSigmoid", {sigmoid->inputs[0]}, {}, {id, in.producer(log.inputs[0])}, id};
}

}  // namespace

std::optional<Match> match_function(const Surroundings& in, NodeId id) {
  if (in.graph().node(id).op == "Log") return log_sigmoid(in, id);
  if (in.graph().node(id).op != "Mul") return std::nullopt;
  if (auto match = written_gelu(in, id)) return match;
  return gated(in, id);
}

}  // namespace halfscope::onnx_files
