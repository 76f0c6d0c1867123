// SPDX-License-Identifier: MIT
#include "core/observe/kernel_check.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <utility>

#include "core/error.h"
#include "core/lower/narrow.h"
#include "core/lower/single_node.h"
#include "core/numeric/statistics/ulp.h"
#include "core/numeric/sums/accumulate.h"
#include "core/numeric/sums/sum_bound.h"
#include "core/observe/comparator.h"
#include "core/ops/ops.h"

namespace halfscope {
namespace {

/// Writes the operands of a single node with the lane's values, or with their magnitudes.
void copy_operands(const Program& from, const Executable& single, Program& to,
                   bool magnitudes = false) {
  for (const NamedValue& operand : single.inputs) {
    if (single.graph.value(operand.value).type == ElementType::index) {
      const std::vector<int32_t> indices = from.read_indices(operand.value);
      to.write(operand.value, std::span<const int32_t>(indices));
      continue;
    }
    Tensor values = from.read(operand.value);
    if (magnitudes) {
      for (float& value : values.data) value = std::fabs(value);
    }
    to.write(operand.value, std::span<const float>(values.data));
  }
}

KernelCheck compared(std::span<const float> made, std::span<const float> expected,
                     const FloatFormat& format) {
  KernelCheck check;
  check.n = static_cast<int64_t>(made.size());
  double furthest = -1.0;
  for (size_t i = 0; i < made.size(); ++i) {
    const bool both_nan = std::isnan(made[i]) && std::isnan(expected[i]);
    const bool same = std::bit_cast<uint32_t>(made[i]) == std::bit_cast<uint32_t>(expected[i]);
    if (same || both_nan) continue;
    ++check.differing;
    double distance = INFINITY;
    if (std::isfinite(made[i]) && std::isfinite(expected[i])) {
      distance = static_cast<double>(ulp_distance(made[i], expected[i], format));
    }
    check.max_ulps = std::max(check.max_ulps, distance);
    if (distance > furthest) {
      furthest = distance;
      check.worst = static_cast<int64_t>(i);
    }
  }
  return check;
}

/// Finds elements of a product that are further from the exact result than its bound.
class BoundCheck {
 public:
  /// `free`: libraries choose their method. They may add parts of a sum in 16 bits that they write,
  /// and transform convolutions (Winograd, FFT), where errors of one result come from its
  /// neighbours.
  BoundCheck(const Graph& graph, NodeId id, const Program& lane, const Backend& emulator, bool free)
      : node_(graph.node(id)), terms_(ProductTerms::of(graph, node_)) {
    if (!terms_) return;
    format_ = graph.value(node_.outputs[0]).format;
    read_ = read_format(graph, node_, 0);
    // A split sum has some dozens of parts at most.
    const bool parts_rounded = free && format_.bits() <= 16;
    if (parts_rounded) part_unit_ = 64.0 * std::ldexp(0.5, -format_.mantissa_bits);
    const auto input = [&](size_t i) { return i < node_.inputs.size() ? node_.inputs[i] : kNone; };
    for (const size_t i : {kFirstScaleInput, kFirstScaleInput + 1}) {
      if (input(i) != kNone) factor_ *= lane.read_scalar(input(i));
    }
    const GemmBias outside = gemm_bias(graph, node_);
    factor_ *= static_cast<double>(outside.alpha);
    beta_ = static_cast<double>(outside.beta);
    if (input(2) != kNone) bias_ = lane.read(input(2)).data;
    const Executable bare = bare_product(graph, id);
    const std::unique_ptr<Program> program = emulator.compile(bare);
    copy_operands(lane, bare, *program);
    exact_ = program->rerun(id, Accumulation::fp64).front();
    copy_operands(lane, bare, *program, true);
    magnitudes_ = program->rerun(id, Accumulation::fp64).front();
    if (free && terms_->of_convolution()) {
      const double largest = *std::max_element(magnitudes_.begin(), magnitudes_.end());
      std::fill(magnitudes_.begin(), magnitudes_.end(), largest);
    }
  }

  /// Returns -1 if the terms are not known.
  int64_t beyond(std::span<const float> made) const {
    if (!terms_) return -1;
    int64_t beyond = 0;
    for (size_t i = 0; i < made.size(); ++i) beyond += within(i, made[i]) ? 0 : 1;
    return beyond;
  }

 private:
  bool within(size_t i, float made) const {
    const float own_bias =
        bias_.empty() ? 0.0f : bias_[static_cast<size_t>(terms_->bias(static_cast<int64_t>(i)))];
    const double bias = beta_ * static_cast<double>(own_bias);
    const double exact = exact_[i] * factor_ + bias;
    const double sums = magnitudes_[i] * std::fabs(factor_), all = sums + std::fabs(bias);
    if (!std::isfinite(exact) || !std::isfinite(all)) return true;
    double bound = sum_error_bound(terms_->terms(), read_, sums) + 0x1p-22 * all;
    bound += part_unit_ * all + ulp_size(std::fabs(exact) + bound, format_);
    if (format_.flush_out) bound += format_.min_normal();
    const double most = format_.max_finite();
    const bool may_overflow = std::fabs(exact) + bound >= most ||
                              magnitudes_[i] >= kFp32.max_finite() || sums >= kFp32.max_finite();
    if (!std::isfinite(made)) return may_overflow;
    const double value = static_cast<double>(made);
    if (std::fabs(value) >= most && std::fabs(exact) >= most) {  // saturated at the largest number
      return (value > 0.0) == (exact > 0.0);
    }
    return std::fabs(value - exact) <= bound;
  }

  const Node& node_;
  std::optional<ProductTerms> terms_;
  FloatFormat format_, read_;
  double factor_ = 1.0, beta_ = 1.0, part_unit_ = 0.0;
  std::vector<float> bias_;
  std::vector<double> exact_, magnitudes_;
};

/// Returns a key of everything that decides how a library computes a product.
std::string product_key(const Graph& graph, const Node& node, const std::string& kernel) {
  std::string key = kernel + "|" + node.op;
  for (const ValueId value : {node.inputs[0], node.inputs[1], node.outputs[0]}) {
    key += "|" + to_string(graph.value(value).shape) + format_name(graph.value(value).format);
  }
  for (const auto& [name, attribute] : node.attributes) {
    key += "|" + name;
    if (const auto* number = std::get_if<int64_t>(&attribute)) key += std::to_string(*number);
    if (const auto* numbers = std::get_if<std::vector<int64_t>>(&attribute)) {
      for (const int64_t each : *numbers) key += "," + std::to_string(each);
    }
  }
  return key;
}

/// An order in which the hardware may sum such operands: in their own format, or in tf32 if it can
/// represent their values and a library has no kernel for their format.
struct KnownOrder {
  SumOrder order;
  TensorCoreProfile core;
};
std::vector<KnownOrder> known_orders(const Backend& backend, const SumSpec& spec) {
  std::vector<KnownOrder> known;
  const std::vector<Accumulation> accumulations = backend.known_orders();
  for (const Accumulation& each : accumulations) {
    SumSpec own = spec;
    own.accumulation = each;
    if (const auto core = tensor_core_of(own)) known.push_back({{each, {}, {}}, *core});
  }
  const bool widens =
      spec.read != kTf32 && kTf32.contains(spec.read) && kTf32.contains(spec.b_format());
  for (const Accumulation& each : accumulations) {
    const SumSpec wide{.accumulation = each, .read = kTf32};
    const auto core = tensor_core_of(wide);
    if (widens && core) known.push_back({{each, {}, kTf32}, *core});
  }
  return known;
}

/// Returns the order with the known tensor core whose blocks match the tree's.
std::optional<SumOrder> order_of(const SummationTree& tree, std::span<const KnownOrder> known) {
  if (std::optional<TreeSum> sum = TreeSum::of(tree, std::nullopt)) {
    return SumOrder{{}, std::make_shared<const TreeSum>(std::move(*sum)), {}};
  }
  size_t largest = 0;
  for (const std::vector<int>& children : tree.children) {
    const auto leaves = std::count_if(children.begin(), children.end(),
                                      [&](int child) { return tree.is_leaf(child); });
    largest = std::max(largest, static_cast<size_t>(leaves));
  }
  // The smallest core that fits: parts of a sum may be shorter than its blocks.
  std::vector<KnownOrder> cores(known.begin(), known.end());
  std::stable_sort(cores.begin(), cores.end(), [](const KnownOrder& a, const KnownOrder& b) {
    return a.core.dot.products < b.core.dot.products;
  });
  for (const KnownOrder& each : cores) {
    if (static_cast<size_t>(each.core.dot.products) < largest) continue;
    if (std::optional<TreeSum> sum = TreeSum::of(tree, each.core)) {
      return SumOrder{{}, std::make_shared<const TreeSum>(std::move(*sum)), each.order.read};
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<KernelCheck> KernelChecker::check(int64_t step, const Program& program,
                                              const RandomSource& random) {
  const Graph& graph = executable_.graph;
  std::vector<KernelCheck> checks;
  std::unique_ptr<Program> emulated;  // for node `last`: outputs of a node are adjacent
  NodeId last = kNone;
  for (const Tap& tap : executable_.taps) {
    const NodeId id = rerunnable_node(executable_, tap);
    if (tap.site.phase == Phase::update || id == kNone) continue;
    const Node& node = graph.node(id);
    // Delayed scaling has already advanced its state.
    const bool moved = node.op == "Quantize" && node.inputs.size() > 1;
    if (node.phase == Phase::update || moved) continue;
    if (id != last) {
      const Executable single = single_node(graph, id);
      emulated = emulator_.compile(single);
      copy_operands(program, single, *emulated);
      emulated->set_random(random.seed, random.step);
      emulated->run(Entry::eval, {});
      last = id;
    }
    const Tensor made = program.read(tap.value), expected = emulated->read(tap.value);
    KernelCheck check = compared(made.data, expected.data, tap.site.format);
    check.step = step;
    check.site = tap.site.order;
    if (program.by_library(id)) check.kernel = program.kernel_of(id);
    const Accumulation& sums = node.plan.accumulation;
    if (find_op(node.op).sums_products() && !sums.sums_in_format() && !sums.half_accumulator) {
      check.beyond = 0;
      if (check.differing > 0) {
        const bool free = measures_after_rounding(backend_.name());
        check.beyond = BoundCheck(graph, id, program, emulator_, free).beyond(made.data);
        if (!check.kernel.empty()) explain(id, program, check);
      }
    }
    checks.push_back(std::move(check));
  }
  return checks;
}

void KernelChecker::explain(NodeId id, const Program& program, KernelCheck& check) {
  const Graph& graph = executable_.graph;
  const Node& node = graph.node(id);
  const std::optional<ProductSample> sample = ProductSample::of(graph, id, program);
  if (!sample) return;
  check.sampled = sample->size();
  check.explained = -1;
  SumOrder best;
  const auto explains = [&](const SumOrder& order) {
    const int64_t explained = sample->explained_by(order);
    if (explained > check.explained) {
      check.explained = explained;
      best = order;
    }
    return check.explained == check.sampled;
  };
  const auto look = [&] {
    const auto known = best_.find(id);
    if (known != best_.end() && explains(known->second)) return;
    for (const KnownOrder& each : known_orders(backend_, sum_spec_of(graph, node))) {
      if (explains(each.order)) return;
    }
    if (explains({node.plan.accumulation, {}, {}})) return;
    const Found& found = probed(id, check.kernel);
    check.unexplained = found.why;
    for (const SumOrder& each : found.orders) {
      if (explains(each)) return;
    }
  };
  look();
  best_[id] = best;
  check.order = best.text();
}

/// Returns the result of an earlier run on the same kernel and machine, or probes.
ProbedOrder KernelChecker::kept_or_probed(NodeId id, const std::string& kernel,
                                          const std::string& product) {
  // Increase this when FPRev or its operands change the results.
  constexpr const char* kVersion = "order 1";
  const Graph& graph = executable_.graph;
  const auto probe = [&] { return probe_order(graph, id, backend_, kernel); };
  const std::string identity = orders_ == nullptr ? "" : backend_.kernel_identity();
  if (identity.empty()) return probe();
  const std::string key = std::string(kVersion) + "|" + backend_.name() + "|" + identity + "|" +
                          accumulation_name(graph.node(id).plan.accumulation) + "|" + product;
  if (std::optional<ProbedOrder> kept = orders_->find(key)) {
    const std::optional<ProductTerms> terms = ProductTerms::of(graph, graph.node(id));
    if (!kept->tree || (terms && terms->terms() == kept->tree->leaves)) return std::move(*kept);
  }
  ProbedOrder found = probe();
  // "Follows no tree" is only stored if the kernel gives the same answer twice: its results may not
  // be repeatable.
  const auto repeats = [&] { return found.tree || probe().why == found.why; };
  if (found.of_kernel && repeats()) orders_->store(key, found);
  return found;
}

const KernelChecker::Found& KernelChecker::probed(NodeId id, const std::string& kernel) {
  const Graph& graph = executable_.graph;
  const Node& node = graph.node(id);
  const auto [place, is_new] = probed_.try_emplace(product_key(graph, node, kernel));
  Found& found = place->second;
  if (!is_new) return found;
  std::optional<SummationTree> tree;
  try {
    ProbedOrder order = kept_or_probed(id, kernel, place->first);
    tree = std::move(order.tree);
    found.why = std::move(order.why);
  } catch (const Error& error) {  // the lane works without it; the device may be full
    found.why = error.what();
  }
  if (!tree) return found;
  const std::optional<SumOrder> order =
      order_of(*tree, known_orders(backend_, sum_spec_of(graph, node)));
  if (!order) {
    found.why = "no known tensor core sums in this order: " + describe(*tree);
    return found;
  }
  found.orders.push_back(*order);
  if (order->tree->has_pairs()) {
    SumOrder other = *order;
    other.tree = std::make_shared<const TreeSum>(order->tree->later_first());
    found.orders.push_back(std::move(other));
  }
  return found;
}

}  // namespace halfscope
