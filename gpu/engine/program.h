// SPDX-License-Identifier: MIT
// The Program of a GPU backend over any executor. One arena holds all values; every node is a step
// that launches bodies, behind which its results pass the tap and are rounded to their format. What
// the taps counted stays on the device until the entry has run, and is then copied at once.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "core/train/backend.h"
#include "gpu/bodies/tap.h"
#include "gpu/engine/function_steps.h"
#include "gpu/engine/fused_steps.h"
#include "gpu/engine/index_steps.h"
#include "gpu/engine/integer_steps.h"
#include "gpu/engine/layout.h"
#include "gpu/engine/move_steps.h"
#include "gpu/engine/node_call.h"
#include "gpu/engine/norm_steps.h"
#include "gpu/engine/product_steps.h"
#include "gpu/engine/update_steps.h"

namespace halfscope::gpu {

/// Throws Error for an operator without bodies.
template <class X, class T>
Step make_step(const NodeCall<X, T>& call) {
  for (Step (*family)(const NodeCall<X, T>&) :
       {integer_step<X, T>, movement_step<X, T>, function_step<X, T>, index_step<X, T>,
        product_step<X, T>, reduction_step<X, T>, normalization_step<X, T>, update_step<X, T>}) {
    if (Step step = family(call)) return step;
  }
  throw Error(call.node->path + " (" + call.node->op + "): does not run on a GPU backend");
}

template <class X>
class DeviceProgram final : public Program {
 public:
  /// Without a library every product is computed by our own kernels.
  DeviceProgram(const Executable& executable, std::unique_ptr<X> executor,
                std::unique_ptr<ProductLibrary> library = nullptr)
      : executable_(executable),
        executor_(std::move(executor)),
        library_(std::move(library)),
        layout_(executable_),
        index_uses_(index_uses(executable_.graph)) {
    for (const auto& [value, uses] : index_uses_) {
      if (description(value).producer == kNone) continue;
      for (const IndexUse& use : uses) made_indices_[use.node] = {value, use};
    }
    arena_ = static_cast<std::byte*>(
        executor_->allocate(static_cast<size_t>(std::max<int64_t>(layout_.bytes(), 1))));
    for (const Constant& constant : executable_.graph.constants()) {
      if (layout_.place(constant.value) < 0) continue;
      if (!constant.indices.empty()) {
        for (const IndexUse& use : index_uses_[constant.value]) {
          check_indices(executable_.graph, use, constant.indices);
        }
        executor_->upload(index(constant.value), constant.indices.data(),
                          constant.indices.size() * sizeof(int32_t));
      }
      executor_->upload(real(constant.value), constant.tensor.data.data(),
                        constant.tensor.data.size() * sizeof(float));
    }
    place_taps();
    for (size_t entry = 0; entry < kEntryCount; ++entry) {
      for (NodeId id : executable_.entries[entry]) calls_[entry].push_back(make_call(id));
    }
    scratch_.memory = static_cast<std::byte*>(
        executor_->allocate(static_cast<size_t>(std::max<int64_t>(scratch_.bytes(), 1))));
    place_slots();
  }

  std::string kernel_of(NodeId node) const override {
    const auto found = kernels_.find(node);
    return found == kernels_.end() ? "" : found->second;
  }

  void write(ValueId value, std::span<const float> data) override {
    check_size(value, data.size());
    float* const target = real(value);
    executor_->upload(target, data.data(), data.size_bytes());
    const FloatFormat& format = description(value).format;
    if (format != kFp32) {
      executor_->items(static_cast<int64_t>(data.size()), Round{target, target, format, {}});
    }
  }

  void write(ValueId value, std::span<const int32_t> data) override {
    check_size(value, data.size());
    indices_[value].assign(data.begin(), data.end());
    executor_->upload(index(value), data.data(), data.size_bytes());
  }

  void write_scalar(ValueId value, double scalar) override {
    if (layout_.place(value) < 0) return;  // unused inputs have no memory
    const float number = static_cast<float>(scalar);
    executor_->upload(real(value), &number, sizeof number);
  }

  void set_random(uint64_t seed, uint64_t step) override { random_ = {seed, step}; }

  void run(Entry entry, std::span<TensorStats> stats) override {
    const size_t which = static_cast<size_t>(entry);
    check_labels(entry);
    const RunState state{.random = random_, .measured = !stats.empty()};
    if (state.measured) {
      executor_->items(static_cast<int64_t>(slots_[which].size()), ClearSlot{slot_memory_});
      if (lost_memory_ != nullptr) executor_->clear(lost_memory_, lost_bytes());
      if (entry == executable_.forward) measure_sources();
    }
    for (const Call& call : calls_[which]) {
      try {
        check_made_indices(call.node);
        if (call.step) call.step(state);
        for (const Result& result : call.results) finish(which, result, state);
      } catch (const Error& error) {
        throw error_at(call.node, error);
      }
      if (call.wide != kNone) wide_.insert(call.wide);
    }
    if (!state.measured) return;
    collect(which, stats);
    if (entry != executable_.forward) return;
    for (const auto& [from, to] : shared_taps_) {
      stats[static_cast<size_t>(to)] = stats[static_cast<size_t>(from)];
    }
  }

  Tensor read(ValueId value) const override {
    const Shape& shape = description(value).shape;
    Tensor tensor{shape, std::vector<float>(static_cast<size_t>(element_count(shape)))};
    if (description(value).type == ElementType::index && layout_.place(value) >= 0) {
      std::vector<int32_t> indices(tensor.data.size());
      executor_->download(indices.data(), index(value), indices.size() * sizeof(int32_t));
      tensor.data.assign(indices.begin(), indices.end());
      return tensor;
    }
    executor_->download(tensor.data.data(), computed(value), tensor.data.size() * sizeof(float));
    return tensor;
  }

  std::vector<int32_t> read_indices(ValueId value) const override {
    if (layout_.place(value) < 0 || description(value).type != ElementType::index) {
      throw Error("value " + std::to_string(value) + " is not computed");
    }
    std::vector<int32_t> indices(static_cast<size_t>(element_count(description(value).shape)));
    executor_->download(indices.data(), index(value), indices.size() * sizeof(int32_t));
    return indices;
  }

  double read_scalar(ValueId value) const override {
    if (wide_.contains(value)) {
      double wide;
      executor_->download(&wide, wide_place_.at(value), sizeof wide);
      return wide;
    }
    float number;
    executor_->download(&number, computed(value), sizeof number);
    return static_cast<double>(number);
  }

  std::vector<double> read_exact(ValueId variable) const override {
    const Tensor tensor = read(variable);
    return {tensor.data.begin(), tensor.data.end()};
  }

  void write_exact(ValueId variable, std::span<const double> data) override {
    check_size(variable, data.size());
    const std::vector<float> values(data.begin(), data.end());
    executor_->upload(real(variable), values.data(), values.size() * sizeof(float));
  }

  /// Sums are not watched on a device.
  std::optional<SumDiagnostics> diagnose(NodeId) const override { return std::nullopt; }

  std::vector<std::vector<double>> rerun(NodeId node, Accumulation accumulation) const override {
    return accumulation == Accumulation::fp64 ? rerun_as<double>(node, accumulation)
                                              : rerun_as<float>(node, accumulation);
  }

 private:
  struct Result {
    const float* exact;  ///< what the step wrote: `data`, or a Cast's operand
    float* data;
    int64_t count;
    ValueId value;
    FloatFormat format;
    RoundingChoice rounding;
    bool rounds;
    int tap;
  };
  struct Call {
    NodeId node = kNone;
    Step step;  ///< nothing where the result is there already
    std::vector<Result> results;
    ValueId wide = kNone;  ///< a scalar that it computes in double
  };
  /// One per tap that an entry passes, in the order of ClearSlot and ChunkSums.
  struct Slot {
    int tap;
    int64_t n;
    int lost = -1;  ///< which counter of lost updates goes with it
  };

  const Value& description(ValueId value) const { return executable_.graph.value(value); }
  float* real(ValueId value) const {
    return reinterpret_cast<float*>(arena_ + layout_.place(value));
  }
  int32_t* index(ValueId value) const {
    return reinterpret_cast<int32_t*>(arena_ + layout_.place(value));
  }
  const float* computed(ValueId value) const {
    if (layout_.place(value) < 0 || description(value).type != ElementType::real) {
      throw Error("value " + std::to_string(value) + " is not computed");
    }
    return real(value);
  }

  void check_size(ValueId value, size_t count) const {
    const int64_t wanted = element_count(description(value).shape);
    if (static_cast<int64_t>(count) != wanted) {
      throw Error("value " + std::to_string(value) + " takes " + std::to_string(wanted) +
                  " elements, not " + std::to_string(count));
    }
    if (layout_.place(value) < 0) {
      throw Error("value " + std::to_string(value) + " is not in use");
    }
  }

  void check_labels(Entry entry) const {
    const std::vector<NodeId>& nodes = executable_.entry(entry);
    for (const auto& [value, indices] : indices_) {
      const auto uses = index_uses_.find(value);
      if (uses == index_uses_.end()) continue;
      for (const IndexUse& use : uses->second) {
        if (std::find(nodes.begin(), nodes.end(), use.node) == nodes.end()) continue;
        check_indices(executable_.graph, use, indices);
      }
    }
  }

  /// Of indices that another node makes, which are known only now.
  void check_made_indices(NodeId id) {
    const auto made = made_indices_.find(id);
    if (made == made_indices_.end()) return;
    check_indices(executable_.graph, made->second.second, read_indices(made->second.first));
  }

  void place_taps() {
    tap_of_.assign(executable_.graph.values().size(), -1);
    for (const Tap& tap : executable_.taps) {
      int& first = tap_of_[static_cast<size_t>(tap.value)];
      if (first >= 0) {
        shared_taps_.emplace_back(first, tap.site.order);
        continue;
      }
      first = tap.site.order;
      if (description(tap.value).producer == kNone) source_taps_.push_back(&tap);
    }
  }

  template <class U>
  U* allocate(int64_t count) {
    return static_cast<U*>(
        executor_->allocate(static_cast<size_t>(std::max<int64_t>(count, 1)) * sizeof(U)));
  }

  /// With the node whose work failed, as far as that is known: launches fail later than they are.
  Error error_at(NodeId id, const Error& error) const {
    const Node& node = executable_.graph.node(id);
    std::string shape = to_string(description(node.outputs[0]).shape);
    return Error(node.path + " (" + node.op + " " + shape + "): " + error.what(), error.hint(),
                 error.kind());
  }

  Call make_call(NodeId id) {
    const Graph& graph = executable_.graph;
    const Node& node = graph.node(id);
    // A Cast is nothing but rounding, so its operand passes the tap directly; an output that lies
    // in its operand's memory is there already.
    const bool is_cast = node.op == "Cast";
    const bool in_place =
        is_view(node) && layout_.place(node.inputs[0]) == layout_.place(node.outputs[0]);
    NodeCall<X, float> c{.executor = executor_.get(),
                         .graph = &graph,
                         .node = &node,
                         .in = {},
                         .index_in = {},
                         .out = {},
                         .index_out = {},
                         .memory = &memory_};
    std::string kernel;
    c.kernel = &kernel;
    if (library_ != nullptr) c.libraries = &library_call_;
    Call call{.node = id, .step = {}, .results = {}};
    for (ValueId value : node.inputs) {
      const bool is_real = value != kNone && description(value).type == ElementType::real;
      c.in.push_back(is_real ? real(value) : nullptr);
      c.index_in.push_back(value == kNone || is_real ? nullptr : index(value));
    }
    for (ValueId value : node.outputs) {
      const Value& output = description(value);
      const bool is_real = output.type == ElementType::real;
      c.out.push_back(is_real ? real(value) : nullptr);
      c.index_out.push_back(is_real ? nullptr : index(value));
      if (!is_real) continue;
      const bool rounds = !find_op(node.op).rounds_itself && needs_rounding(graph, node, output);
      const int tap = tap_of_[static_cast<size_t>(value)];
      if (!rounds && tap < 0) continue;
      call.results.push_back({is_cast ? real(node.inputs[0]) : real(value), real(value),
                              element_count(output.shape), value, output.format, output.rounding,
                              rounds, tap});
    }
    if (find_op(node.op).rounds_itself) {
      lost_of_[id] = static_cast<int>(lost_of_.size());
      if (lost_memory_ == nullptr) lost_memory_ = allocate<uint64_t>(node_count());
      c.lost = lost_memory_ + lost_of_[id];
    }
    if (node.op == "GradientNorm") {
      c.wide = wide_place_[node.outputs[0]] = allocate<double>(1);
      call.wide = node.outputs[0];
    }
    if (!is_cast && !in_place) call.step = make_step(c);
    if (!kernel.empty()) kernels_[id] = kernel;
    return call;
  }

  int64_t node_count() const { return static_cast<int64_t>(executable_.graph.nodes().size()); }
  size_t lost_bytes() const { return lost_of_.size() * sizeof(uint64_t); }

  /// Slots, chunk sums and their table, for each entry.
  void place_slots() {
    size_t most = 0;
    for (size_t entry = 0; entry < kEntryCount; ++entry) {
      std::vector<Slot>& slots = slots_[entry];
      if (entry == static_cast<size_t>(executable_.forward)) {
        for (const Tap* tap : source_taps_) {
          slots.push_back({.tap = tap->site.order, .n = element_count(tap->site.shape)});
        }
      }
      for (const Call& call : calls_[entry]) {
        const auto lost = lost_of_.find(call.node);
        for (const Result& result : call.results) {
          if (result.tap < 0) continue;
          slots.push_back({.tap = result.tap,
                           .n = result.count,
                           .lost = lost == lost_of_.end() ? -1 : lost->second});
        }
      }
      most = std::max(most, slots.size());
    }
    slot_memory_ = allocate<TapSlot>(static_cast<int64_t>(most));
    for (size_t entry = 0; entry < kEntryCount; ++entry) {
      int64_t chunks = 0;
      for (const Slot& slot : slots_[entry]) chunks += ceil_div(slot.n, kSumChunk);
      double* sums = allocate<double>(2 * chunks);
      for (size_t i = 0; i < slots_[entry].size(); ++i) {
        const int64_t count = ceil_div(slots_[entry][i].n, kSumChunk);
        chunk_sums_[entry].push_back({slot_memory_ + i, sums, sums + count, count});
        place_of_tap_[entry][slots_[entry][i].tap] = i;
        sums += 2 * count;
      }
      const size_t bytes = chunk_sums_[entry].size() * sizeof(ChunkSums);
      chunk_table_[entry] = allocate<ChunkSums>(static_cast<int64_t>(slots_[entry].size()));
      if (bytes > 0) executor_->upload(chunk_table_[entry], chunk_sums_[entry].data(), bytes);
    }
  }

  void measure(size_t entry, int tap, const float* in, float* out, int64_t n,
               const FloatFormat& format, const TensorRounding& rounding) {
    const ChunkSums& place = chunk_sums_[entry][place_of_tap_[entry].at(tap)];
    executor_->blocks(Measure{in, out, n, format, rounding, place.slot,
                              const_cast<double*>(place.sums), const_cast<double*>(place.squares)});
  }

  void measure_sources() {
    for (const Tap* tap : source_taps_) {
      measure(static_cast<size_t>(executable_.forward), tap->site.order, real(tap->value), nullptr,
              element_count(tap->site.shape), tap->site.format, {});
    }
  }

  void finish(size_t entry, const Result& result, const RunState& state) {
    const TensorRounding rounding = rounding_now(result.rounding, result.value, state.random);
    if (result.tap >= 0 && state.measured) {
      measure(entry, result.tap, result.exact, result.rounds ? result.data : nullptr, result.count,
              result.format, rounding);
    } else if (result.rounds) {
      executor_->items(result.count, Round{result.exact, result.data, result.format, rounding});
    }
  }

  /// The one copy of what the taps of an entry counted.
  void collect(size_t entry, std::span<TensorStats> stats) {
    const std::vector<Slot>& slots = slots_[entry];
    if (slots.empty()) return;
    executor_->items(static_cast<int64_t>(slots.size()), TapTotals{chunk_table_[entry]});
    std::vector<TapSlot> counted(slots.size());
    executor_->download(counted.data(), slot_memory_, counted.size() * sizeof(TapSlot));
    std::vector<uint64_t> lost(lost_of_.size());
    if (!lost.empty()) executor_->download(lost.data(), lost_memory_, lost_bytes());
    for (size_t i = 0; i < slots.size(); ++i) {
      TensorStats& target = stats[static_cast<size_t>(slots[i].tap)];
      target = stats_of(counted[i], slots[i].n);
      if (slots[i].lost >= 0) {
        target.lost = static_cast<int64_t>(lost[static_cast<size_t>(slots[i].lost)]);
      }
    }
  }

  static TensorStats stats_of(const TapSlot& slot, int64_t n) {
    const auto counter = [&](TapSlot::Counter which) {
      return static_cast<int64_t>(slot.counters[which]);
    };
    TensorStats stats;
    stats.n = n;
    stats.zero = counter(TapSlot::kZero);
    stats.pos_inf = counter(TapSlot::kPosInf);
    stats.neg_inf = counter(TapSlot::kNegInf);
    stats.nan = counter(TapSlot::kNan);
    stats.overflow = counter(TapSlot::kOverflowed);
    stats.underflow = counter(TapSlot::kUnderflowed);
    stats.subnormal = counter(TapSlot::kSubnormals);
    stats.max_abs = std::bit_cast<float>(slot.max_bits);
    stats.min_abs = std::bit_cast<float>(slot.min_bits);
    stats.sum = slot.sum;
    stats.sum_sq = slot.sum_sq;
    std::copy(std::begin(slot.exponents), std::end(slot.exponents), stats.exponents.begin());
    return stats;
  }

  /// Memory that goes when a rerun ends.
  struct Temporary {
    X& executor;
    std::vector<void*> memory{};
    ~Temporary() {
      for (void* each : memory) executor.release(each);
    }
    template <class U>
    U* get(int64_t count) {
      memory.push_back(
          executor.allocate(static_cast<size_t>(std::max<int64_t>(count, 1)) * sizeof(U)));
      return static_cast<U*>(memory.back());
    }
  };

  /// rerun() with bodies of type U, on copies.
  template <class U>
  std::vector<std::vector<double>> rerun_as(NodeId id, Accumulation accumulation) const {
    const Graph& graph = executable_.graph;
    Node node = graph.node(id);
    node.plan.accumulation = accumulation;
    X& executor = *executor_;
    Temporary temporary{executor};
    NodeCall<X, U> c{.executor = &executor,
                     .graph = &graph,
                     .node = &node,
                     .in = {},
                     .index_in = {},
                     .out = {},
                     .index_out = {},
                     .unrounded = true,
                     .memory = &temporary.memory};
    for (ValueId value : node.inputs) {
      const bool is_real = value != kNone && description(value).type == ElementType::real;
      c.index_in.push_back(value == kNone || is_real ? nullptr : index(value));
      U* copy = nullptr;
      if (is_real) {
        const int64_t count = element_count(description(value).shape);
        copy = temporary.template get<U>(count);
        executor.items(count, Convert<float, U>{real(before_narrowing(graph, value)), copy});
      }
      c.in.push_back(copy);
    }
    for (ValueId value : node.outputs) {
      const int64_t count = element_count(description(value).shape);
      const bool is_real = description(value).type == ElementType::real;
      c.out.push_back(is_real ? temporary.template get<U>(count) : nullptr);
      c.index_out.push_back(is_real ? nullptr : temporary.template get<int32_t>(count));
    }
    if (node.op == "Cast") {
      c.out[0] = const_cast<U*>(c.in[0]);
    } else {
      make_step(c)(RunState{random_, false});
    }
    std::vector<std::vector<double>> exact;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const int64_t count = element_count(description(node.outputs[i]).shape);
      std::vector<U> values(c.out[i] != nullptr ? static_cast<size_t>(count) : 0);
      if (!values.empty()) executor.download(values.data(), c.out[i], values.size() * sizeof(U));
      exact.emplace_back(values.begin(), values.end());
    }
    if (node.op == "Quantize" && !node.plan.scale.by_block()) {
      requantize<U>(node, c.in[0], exact[0]);
    }
    return exact;
  }

  /// Codes with the scale of that run, which delayed scaling has replaced by now.
  template <class U>
  void requantize(const Node& node, const U* operand, std::vector<double>& codes) const {
    float scale;
    executor_->download(&scale, real(node.outputs[1]), sizeof scale);
    std::vector<U> x(codes.size());
    executor_->download(x.data(), operand, x.size() * sizeof(U));
    const double factor = 1.0 / static_cast<double>(scale);
    for (size_t i = 0; i < x.size(); ++i) {
      codes[i] = static_cast<double>(static_cast<U>(static_cast<double>(x[i]) * factor));
    }
  }

  const Executable executable_;
  std::unique_ptr<X> executor_;
  std::unique_ptr<ProductLibrary> library_;
  Scratch scratch_;
  const LibraryCall library_call_{library_.get(), &scratch_};
  std::map<NodeId, std::string> kernels_;  ///< what computes the products
  Layout layout_;
  std::map<ValueId, std::vector<IndexUse>> index_uses_;
  std::map<NodeId, std::pair<ValueId, IndexUse>> made_indices_;  ///< by the node that uses them
  std::byte* arena_ = nullptr;
  std::vector<void*> memory_;  ///< of steps, for good
  std::vector<int> tap_of_;
  std::vector<const Tap*> source_taps_;
  std::vector<std::pair<int, int>> shared_taps_;  ///< sites that are one value: measured, others
  std::array<std::vector<Call>, kEntryCount> calls_;
  std::array<std::vector<Slot>, kEntryCount> slots_;
  std::array<std::vector<ChunkSums>, kEntryCount> chunk_sums_;
  std::array<ChunkSums*, kEntryCount> chunk_table_{};
  std::array<std::map<int, size_t>, kEntryCount> place_of_tap_;
  TapSlot* slot_memory_ = nullptr;
  std::map<NodeId, int> lost_of_;
  uint64_t* lost_memory_ = nullptr;
  std::map<ValueId, double*> wide_place_;
  std::set<ValueId> wide_;  ///< scalars that were computed in double
  std::map<ValueId, std::vector<int32_t>> indices_;
  RandomSource random_;
};

}  // namespace halfscope::gpu
