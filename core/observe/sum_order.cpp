// SPDX-License-Identifier: MIT
#include "core/observe/sum_order.h"

#include <algorithm>
#include <cmath>

#include "core/lower/execution.h"
#include "core/lower/narrow.h"
#include "core/lower/single_node.h"
#include "core/numeric/formats/rng.h"
#include "core/numeric/formats/round.h"
#include "core/numeric/sums/accumulate.h"

namespace halfscope {
namespace {

/// M and u as factors of the marked operand; the other operand is 1 everywhere. With at most `most`
/// summands, M + n * u is M in sums that keep 26 bits. Nothing if the range is too small.
struct Marks {
  float big, small;
  int64_t most;
};
std::optional<Marks> marks_of(const FloatFormat& format) {
  if (format.max_exponent() >= 60) return Marks{0x1p60f, 1.0f, int64_t{1} << 23};
  if (format.contains(kFp16)) return Marks{0x1p15f, 0x1p-24f, int64_t{1} << 13};
  return std::nullopt;
}

/// Longest sums that FPRev probes, and the number of elements it may write and read for that: some
/// seconds on a device.
constexpr double kMostProbed = 4096, kMostWritten = 0x1p30;

/// Runs `program` with freely chosen values of one operand.
class Probe {
 public:
  Probe(const Executable& single, NodeId node, const ProductTerms& terms,
        const ProductTerms::Apart& apart, Program& program)
      : terms_(terms), apart_(apart), program_(program) {
    const Graph& graph = single.graph;
    marked_ = graph.node(node).inputs[apart.operand];
    result_ = graph.node(node).outputs[0];
    const ValueId other = graph.node(node).inputs[1 - apart.operand];
    operand_.resize(static_cast<size_t>(element_count(graph.value(marked_).shape)));
    const std::vector<float> ones(static_cast<size_t>(element_count(graph.value(other).shape)),
                                  1.0f);
    program.write(other, std::span<const float>(ones));
  }

  /// Computes out[r] = sum over k of a[r * n + k].
  void sums(std::span<const float> a, std::span<float> out) {
    const size_t n = static_cast<size_t>(terms_.terms()), at_once = apart_.results.size();
    for (size_t first = 0; first < out.size(); first += at_once) {
      const size_t rows = std::min(at_once, out.size() - first);
      std::fill(operand_.begin(), operand_.end(), 0.0f);
      for (size_t r = 0; r < rows; ++r) {
        for (size_t k = 0; k < n; ++k) {
          const ProductTerms::Place at = terms_.place(apart_.results[r], static_cast<int64_t>(k));
          const int64_t element = apart_.operand == 0 ? at.first : at.second;
          operand_[static_cast<size_t>(element)] = a[(first + r) * n + k];
        }
      }
      program_.write(marked_, std::span<const float>(operand_));
      program_.run(Entry::eval, {});
      const Tensor result = program_.read(result_);
      for (size_t r = 0; r < rows; ++r) {
        out[first + r] = result.data[static_cast<size_t>(apart_.results[r])];
      }
    }
  }

 private:
  const ProductTerms& terms_;
  const ProductTerms::Apart& apart_;
  Program& program_;
  ValueId marked_ = kNone, result_ = kNone;
  std::vector<float> operand_;
};

}  // namespace

std::string SumOrder::text() const {
  const std::string order =
      tree == nullptr ? accumulation_name(accumulation) : describe(tree->tree());
  return read ? order + " on " + format_name(*read) : order;
}

std::optional<ProductSample> ProductSample::of(const Graph& graph, NodeId id,
                                               const Program& program) {
  const Node& node = graph.node(id);
  const std::optional<ProductTerms> terms = ProductTerms::of(graph, node);
  const Value& result = graph.value(node.outputs[0]);
  if (!terms || terms->terms() == 0 || terms->results() == 0 ||
      result.rounding.mode != RoundingMode::nearest_even ||
      node.plan.accumulation.sums_in_format()) {
    return std::nullopt;
  }
  ProductSample sample;
  sample.terms_ = static_cast<size_t>(terms->terms());
  sample.spec_ = sum_spec_of(graph, node);
  sample.format_ = result.format;
  const auto input = [&](size_t i) { return i < node.inputs.size() ? node.inputs[i] : kNone; };
  sample.scaled_ = node.inputs.size() > kFirstScaleInput;
  for (const size_t i : {kFirstScaleInput, kFirstScaleInput + 1}) {
    if (input(i) != kNone) sample.factor_ *= static_cast<float>(program.read_scalar(input(i)));
  }
  const GemmBias outside = gemm_bias(graph, node);
  sample.factor_ *= outside.alpha;
  sample.beta_ = outside.beta;
  sample.scaled_ = sample.scaled_ || !outside.part_of_sums;
  sample.has_bias_ = input(2) != kNone;

  const Tensor a = program.read(node.inputs[0]), b = program.read(node.inputs[1]);
  const Tensor values = program.read(node.outputs[0]);
  const Tensor bias = sample.has_bias_ ? program.read(input(2)) : Tensor{};
  const int64_t count = std::clamp<int64_t>(kMostTerms / terms->terms(), 1,
                                            std::min(kMostElements, terms->results()));
  sample.a_.reserve(static_cast<size_t>(count) * sample.terms_);
  sample.b_.reserve(static_cast<size_t>(count) * sample.terms_);
  for (int64_t e = 0; e < count; ++e) {
    // One element from every stretch of the result, at a random position in it.
    const int64_t first = e * terms->results() / count, end = (e + 1) * terms->results() / count;
    const int64_t at = first + static_cast<int64_t>(splitmix64(static_cast<uint64_t>(e)) %
                                                    static_cast<uint64_t>(end - first));
    for (int64_t k = 0; k < terms->terms(); ++k) {
      const ProductTerms::Place place = terms->place(at, k);
      const bool there = place.first != ProductTerms::kNowhere;
      sample.a_.push_back(there ? a.data[static_cast<size_t>(place.first)] : 0.0f);
      sample.b_.push_back(there ? b.data[static_cast<size_t>(place.second)] : 0.0f);
    }
    const size_t begin = static_cast<size_t>(e) * sample.terms_;
    const float own_bias =
        sample.has_bias_ ? bias.data[static_cast<size_t>(terms->bias(at))] : 0.0f;
    sample.elements_.push_back({values.data[static_cast<size_t>(at)], begin, own_bias});
  }
  return sample;
}

/// Finishes a sum as library kernels do: it is an fp32 number, and the bias is added to it.
float ProductSample::finished(float sum, float bias) const {
  float value = scaled_ ? sum * factor_ : sum;
  if (has_bias_) value = scaled_ ? value + beta_ * bias : value + bias;
  return round_to_format(value, format_).value;
}

int64_t ProductSample::explained_by(const SumOrder& order) const {
  SumSpec spec = spec_;
  spec.accumulation = order.accumulation;
  spec.write = kFp32;
  if (order.read) {
    spec.read = *order.read;
    spec.read_b.reset();
  }
  int64_t explained = 0;
  for (const Element& element : elements_) {
    const std::span<const float> a(a_.data() + element.first, terms_);
    const std::span<const float> b(b_.data() + element.first, terms_);
    const float sum =
        order.tree != nullptr ? (*order.tree)(a, b) : sum_of_products(spec, a, b, nullptr);
    const float expected = finished(sum, element.bias);
    const bool both_nan = std::isnan(expected) && std::isnan(element.value);
    explained += both_nan || expected == element.value ? 1 : 0;
  }
  return explained;
}

ProbedOrder probe_order(const Graph& graph, NodeId node, const Backend& backend,
                        const std::string& kernel) {
  ProbedOrder order;
  std::string& why = order.why;
  const Executable single = bare_product(graph, node);
  const Node& product = single.graph.node(node);
  const std::optional<ProductTerms> terms = ProductTerms::of(single.graph, product);
  if (!terms) {
    why = "the terms of " + product.op + " are not known";
    return order;
  }
  const ProductTerms::Apart apart = terms->apart();
  const std::optional<Marks> marks =
      marks_of(single.graph.value(product.inputs[apart.operand]).format);
  const double n = static_cast<double>(terms->terms());
  const double rows = static_cast<double>(apart.results.size());
  const double operand = static_cast<double>(
      element_count(single.graph.value(product.inputs[apart.operand]).shape) + terms->results());
  if (product.inputs[0] == product.inputs[1]) {
    why = "both operands are one tensor";
    return order;
  }
  // FPRev needs about 9 n probes for blocks of 16, and as many again to check the tree.
  if (!marks) {
    why = "the format of its operands has too small a range to mark summands";
  } else if (rows == 0.0) {
    why = "every result has taps on padding";
  } else if (n > kMostProbed || terms->terms() > marks->most ||
             std::ceil(18.0 * n / rows) * operand > kMostWritten) {
    why = "there are too many summands";
  }
  if (!why.empty()) return order;
  const std::unique_ptr<Program> program = backend.compile(single);
  if (const std::string found = program->kernel_of(node); found != kernel) {
    why = "run alone, it is computed by " + found;
    return order;
  }
  Probe probe(single, node, *terms, apart, *program);
  const FprevValues values{
      .big_a = marks->big, .big_b = 1.0f, .small_a = marks->small, .small_b = 1.0f};
  RecoveredTree found = recover_summation_tree(
      static_cast<int>(terms->terms()),
      [&](std::span<const float> a, std::span<const float>, int64_t, int64_t,
          std::span<float> out) { probe.sums(a, out); },
      values);
  order.of_kernel = true;
  why = found.problem;
  if (why.empty()) order.tree = std::move(found.tree);
  return order;
}

}  // namespace halfscope
