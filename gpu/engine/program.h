// SPDX-License-Identifier: MIT
// The Program of a GPU backend over any executor. One arena contains all values, in the smallest
// storage for their formats. Every node is a step that launches bodies; then its outputs pass the
// tap and are rounded to their format. If nothing is measured, most bodies round on their own
// (gpu/bodies/stored.h). The taps' counts stay on the device until the entry (in training, the
// step: device_steps.h) has run, and are then copied in one piece.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "core/backend/backend.h"
#include "gpu/bodies/elementwise.h"
#include "gpu/engine/device_steps.h"
#include "gpu/engine/function_tables.h"
#include "gpu/engine/layout.h"
#include "gpu/engine/library_steps.h"
#include "gpu/engine/node_call.h"
#include "gpu/engine/tap_counters.h"

namespace halfscope::gpu {

/// Makes the step of a node. Throws Error for an operator without bodies.
template <class X, class T>
Step make_step(const NodeCall<X, T>& call) {
  for (Step (*family)(const NodeCall<X, T>&) :
       {integer_step<X, T>, movement_step<X, T>, function_step<X, T>, index_step<X, T>,
        product_step<X, T>, reduction_step<X, T>, normalization_step<X, T>, update_step<X, T>}) {
    if (Step step = family(call)) return step;
  }
  throw Error(call.node->path + " (" + call.node->op + "): not supported on a GPU backend");
}

template <class X>
class DeviceProgram final : public Program {
 public:
  /// Without a library, our own kernels compute every product.
  DeviceProgram(const Executable& executable, std::unique_ptr<X> executor,
                std::unique_ptr<ProductLibrary> library = nullptr)
      : executable_(executable),
        executor_(std::move(executor)),
        library_(std::move(library)),
        taps_(*executor_, executable_),
        layout_(executable_),
        index_uses_(index_uses(executable_.graph)) {
    for (const auto& [value, uses] : index_uses_) {
      if (description(value).producer == kNone) continue;
      for (const IndexUse& use : uses) made_indices_[use.node] = {value, use};
    }
    arena_ = allocate<std::byte>(layout_.bytes());
    exact_ = reinterpret_cast<float*>(allocate<std::byte>(layout_.exact_bytes()));
    at_once_ = allocate<int32_t>(1);
    for (const Constant& constant : executable_.graph.constants()) {
      if (layout_.place(constant.value) < 0) continue;
      if (!constant.indices.empty()) {
        for (const IndexUse& use : index_uses_[constant.value]) {
          check_indices(executable_.graph, use, constant.indices);
        }
        executor_->upload(index(constant.value), constant.indices.data(),
                          constant.indices.size() * sizeof(int32_t));
      }
      if (description(constant.value).type == ElementType::real) {
        put(constant.value, constant.tensor.data);
      }
    }
    for (size_t entry = 0; entry < kEntryCount; ++entry) {
      for (NodeId id : executable_.entries[entry]) {
        calls_[entry].push_back(make_call(static_cast<Entry>(entry), id));
      }
      one_by_one_[entry] = changes(executable_.entries[entry]);
    }
    scratch_.memory = allocate<std::byte>(scratch_.bytes());
  }

  std::string kernel_of(NodeId node) const override {
    const auto found = kernels_.find(node);
    return found == kernels_.end() ? "" : found->second.text;
  }
  bool by_library(NodeId node) const override {
    const auto found = kernels_.find(node);
    return found != kernels_.end() && found->second.by_library;
  }

  std::vector<std::string> launches_of(Entry entry) const override {
    const size_t which = static_cast<size_t>(entry);
    std::vector<std::string> ways;
    if (!started_[which] || calls_[which].empty()) return ways;
    if (!one_by_one_[which].empty()) return {"launched one by one: " + one_by_one_[which]};
    for (const size_t measured : {0, 1}) {
      for (const Recordings* recordings : {&queued_, &recordings_}) {
        std::string way = X::describe((*recordings)[which][measured]);
        if (way.empty()) continue;
        if (measured != 0) way += " (with statistics)";
        if (std::find(ways.begin(), ways.end(), way) == ways.end()) ways.push_back(way);
      }
    }
    return ways;
  }

  int64_t device_bytes() const override {
    return executor_->allocated() + (library_ != nullptr ? library_->device_bytes() : 0);
  }

  void write(ValueId value, std::span<const float> data) override {
    check_size(value, data.size());
    scalars_.erase(value);
    put(value, data);
  }

  void write(ValueId value, std::span<const int32_t> data) override {
    check_size(value, data.size());
    indices_[value].assign(data.begin(), data.end());
    executor_->upload(index(value), data.data(), data.size_bytes());
  }

  void write_scalar(ValueId value, double scalar) override {
    if (layout_.place(value) < 0) return;  // unused inputs have no memory
    const float number = static_cast<float>(scalar);
    // Most scalars are the same in every step, and a copy takes as long as a small kernel.
    if (decided_.contains(value)) return put(value, {&number, 1});
    const auto [known, is_new] = scalars_.try_emplace(value, number);
    if (!is_new && std::bit_cast<uint32_t>(known->second) == std::bit_cast<uint32_t>(number))
      return;
    known->second = number;
    put(value, {&number, 1});
  }

  void set_random(uint64_t seed, uint64_t step) override { random_ = {seed, step}; }

  void run(Entry entry, std::span<TensorStats> stats) override {
    start(entry, recordings_, !stats.empty());
    if (!stats.empty()) taps_.collect(entry, entry == executable_.forward, stats);
  }

  std::unique_ptr<StepQueue> step_queue(const StepRules& rules, int64_t micro_batches,
                                        bool measures) override {
    StepParts parts{
        .launch = [this](Entry entry, bool measured) { start(entry, queued_, measured); },
        .read = [this](ValueId scalar) { return real(scalar); },
        .write =
            [this](ValueId scalar) {
              scalars_.erase(scalar);
              decided_.insert(scalar);
              return layout_.place(scalar) < 0 ? Destination{} : destination(scalar);
            },
        .sum_sq = wide_place_.at(executable_.gradient_norm)};
    return std::make_unique<DeviceSteps<X>>(*executor_, executable_, taps_, std::move(parts), rules,
                                            micro_batches, measures);
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
    executor_->download(tensor.data.data(), plain(value), tensor.data.size() * sizeof(float));
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
    executor_->download(&number, plain(value), sizeof number);
    return static_cast<double>(number);
  }

  std::vector<double> read_exact(ValueId variable) const override {
    const Tensor tensor = read(variable);
    return {tensor.data.begin(), tensor.data.end()};
  }

  void write_exact(ValueId variable, std::span<const double> data) override {
    check_size(variable, data.size());
    scalars_.erase(variable);
    put(variable, std::vector<float>(data.begin(), data.end()));
  }

  /// Sums cannot be observed on a device.
  std::optional<SumDiagnostics> diagnose(NodeId) const override { return std::nullopt; }

  std::vector<std::vector<double>> rerun(NodeId node, Accumulation accumulation) const override {
    return accumulation == Accumulation::fp64 ? rerun_as<double>(node, accumulation)
                                              : rerun_as<float>(node, accumulation);
  }

 private:
  struct Result {
    In<float> exact;  ///< written by the step, or a Cast's operand
    Destination to;
    int64_t count;
    ValueId value;
    RoundingChoice rounding;
    bool stores;   ///< it is not stored there yet
    bool at_once;  ///< bodies store it themselves if nothing is measured
    int tap;
  };
  struct Call {
    NodeId node = kNone;
    Step step;  ///< empty if the output is already there
    std::vector<Result> results;
    ValueId wide = kNone;  ///< a scalar that the step computes in double
  };

  const Value& description(ValueId value) const { return executable_.graph.value(value); }
  In<float> real(ValueId value) const {
    return {arena_ + layout_.place(value), layout_.storage(value)};
  }
  Destination destination(ValueId value) const {
    return {arena_ + layout_.place(value), layout_.storage(value), description(value).format};
  }
  int32_t* index(ValueId value) const {
    return reinterpret_cast<int32_t*>(arena_ + layout_.place(value));
  }
  /// Stores data from the host as the value.
  void put(ValueId value, std::span<const float> data) {
    const Destination to = destination(value);
    float* const at = bytes_of(to.storage) < 4 ? exact_ : static_cast<float*>(to.memory);
    executor_->upload(at, data.data(), data.size_bytes());
    if (to.format != kFp32) {
      const Round round{at, to, static_cast<int64_t>(data.size())};
      executor_->items(round.items(), round);
    }
  }
  /// Returns the value as floats on the device, valid until the next node runs.
  const float* plain(ValueId value) const {
    if (layout_.place(value) < 0 || description(value).type != ElementType::real) {
      throw Error("value " + std::to_string(value) + " is not computed");
    }
    const In<float> stored = real(value);
    if (bytes_of(stored.storage()) == 4) return static_cast<const float*>(stored.memory());
    executor_->items(element_count(description(value).shape),
                     Convert<float, float>{stored, exact_});
    return exact_;
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

  /// Checks indices that another node computes, which are known only now.
  void check_made_indices(NodeId id) {
    const auto made = made_indices_.find(id);
    if (made == made_indices_.end()) return;
    check_indices(executable_.graph, made->second.second, read_indices(made->second.first));
  }

  template <class U>
  U* allocate(int64_t count) {
    return static_cast<U*>(
        executor_->allocate(static_cast<size_t>(std::max<int64_t>(count, 1)) * sizeof(U)));
  }

  /// Adds the node whose work failed, as far as known: launches can fail later than they are made.
  Error error_at(NodeId id, const Error& error) const {
    const Node& node = executable_.graph.node(id);
    std::string shape = to_string(description(node.outputs[0]).shape);
    return Error(node.path + " (" + node.op + " " + shape + "): " + error.what(), error.hint(),
                 error.kind());
  }

  Call make_call(Entry entry, NodeId id) {
    const Graph& graph = executable_.graph;
    const Node& node = graph.node(id);
    const OpDef& op = find_op(node.op);
    // A Cast only rounds, so its operand passes the tap directly. An output that shares its
    // operand's memory is already there.
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
                         .memory = &memory_,
                         .tables = &tables_};
    KernelChoice kernel;
    c.kernel = &kernel;
    if (library_ != nullptr) c.libraries = &library_call_;
    Call call{.node = id, .step = {}, .results = {}};
    for (ValueId value : node.inputs) {
      const bool is_real = value != kNone && description(value).type == ElementType::real;
      c.in.push_back(is_real ? real(value) : In<float>(nullptr));
      c.index_in.push_back(value == kNone || is_real ? nullptr : index(value));
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId value = node.outputs[i];
      const Value& output = description(value);
      const bool is_real = output.type == ElementType::real;
      c.index_out.push_back(is_real ? nullptr : index(value));
      c.out.push_back(nullptr);
      if (!is_real) continue;
      const Destination to = destination(value);
      const bool narrow = bytes_of(to.storage) < 4;
      const bool rounds = !op.rounds_itself && needs_rounding(graph, node, output);
      const bool moves = is_cast && layout_.place(node.inputs[0]) != layout_.place(value);
      const bool stores = (rounds || narrow || moves) && !in_place;
      float* const exact = narrow ? exact_ + layout_.exact_place(graph, node, i) / 4
                                  : static_cast<float*>(to.memory);
      const bool nearest = output.rounding.mode == RoundingMode::nearest_even;
      const bool at_once = i == 0 && stores && nearest && !is_cast && !op.rounds_itself;
      c.out[i] = at_once ? Out<float>(exact, to, at_once_) : Out<float>(exact);
      const int tap = taps_.tap_of(value);
      if (!stores && tap < 0) continue;
      const In<float> made = is_cast    ? real(node.inputs[0])
                             : in_place ? real(value)
                                        : In<float>(exact);
      call.results.push_back({.exact = made,
                              .to = to,
                              .count = element_count(output.shape),
                              .value = value,
                              .rounding = output.rounding,
                              .stores = stores,
                              .at_once = at_once,
                              .tap = tap});
    }
    for (ValueId value : node.outputs) {
      const int tap = taps_.tap_of(value);
      // The first output of such a node is the variable; the counter belongs to the update.
      const bool update = op.rounds_itself && value != node.outputs[0];
      if (update && tap >= 0) c.lost = taps_.lost(entry, tap);
    }
    if (node.op == "GradientNorm") {
      c.wide = wide_place_[node.outputs[0]] = allocate<double>(1);
      call.wide = node.outputs[0];
    }
    if (!is_cast && !in_place) call.step = make_step(c);
    if (!kernel.text.empty()) kernels_[id] = kernel;
    return call;
  }

  void measure_sources() {
    for (const Tap* tap : taps_.sources()) {
      taps_.measure(executable_.forward, tap->site.order, real(tap->value),
                    {.format = tap->site.format}, element_count(tap->site.shape), {});
    }
  }

  /// Returns why an entry does not launch the same work every time, or "" if it does.
  std::string changes(const std::vector<NodeId>& nodes) const {
    for (NodeId id : nodes) {
      const Node& node = executable_.graph.node(id);
      bool draws = node.plan.accumulation.rounding.mode == RoundingMode::stochastic;
      for (ValueId value : node.outputs) {
        draws = draws || description(value).rounding.mode == RoundingMode::stochastic;
      }
      if (draws) return node.path + " (" + node.op + ") draws random words";
      if (made_indices_.contains(id)) {
        return node.path + " (" + node.op + "): its indices are checked on the way";
      }
    }
    return "";
  }

  /// Recordings of entries that repeat, without and with statistics.
  using Recordings = std::array<std::array<typename X::Recording, 2>, kEntryCount>;

  void start(Entry entry, Recordings& recordings, bool measured) {
    const size_t which = static_cast<size_t>(entry);
    check_labels(entry);
    started_[which] = true;
    const RunState state{random_, measured};
    if (one_by_one_[which].empty()) {
      executor_->replay(recordings[which][measured ? 1 : 0], [&] { launch(entry, state); });
    } else {
      launch(entry, state);
    }
  }

  /// Launches a whole entry, and then the totals of its taps.
  void launch(Entry entry, const RunState& state) {
    const size_t which = static_cast<size_t>(entry);
    executor_->items(1, Fill<int32_t>{at_once_, state.measured ? 0 : 1});
    if (state.measured) {
      taps_.clear(entry);
      if (entry == executable_.forward) measure_sources();
    }
    for (const Call& call : calls_[which]) {
      try {
        check_made_indices(call.node);
        if (call.step) call.step(state);
        for (const Result& result : call.results) finish(entry, result, state);
      } catch (const Error& error) {
        throw error_at(call.node, error);
      }
      if (call.wide != kNone) wide_.insert(call.wide);
    }
    if (state.measured) taps_.total(entry);
  }

  void finish(Entry entry, const Result& result, const RunState& state) {
    const bool measures = result.tap >= 0 && state.measured;
    const bool there = !result.stores || (result.at_once && !state.measured);
    if (there && !measures) return;
    const TensorRounding rounding = rounding_now(result.rounding, result.value, state.random);
    if (!measures) {
      const Round round{result.exact, result.to, result.count, rounding};
      executor_->items(round.items(), round);
      return;
    }
    Destination to = result.to;
    if (!result.stores) to.memory = nullptr;
    taps_.measure(entry, result.tap, result.exact, to, result.count, rounding);
  }

  /// Memory that is released when a rerun ends.
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

  /// Same as rerun(), with bodies of type U, on copies.
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
    std::vector<U*> operands, results;
    for (ValueId value : node.inputs) {
      const bool is_real = value != kNone && description(value).type == ElementType::real;
      c.index_in.push_back(value == kNone || is_real ? nullptr : index(value));
      U* copy = nullptr;
      if (is_real) {
        const int64_t count = element_count(description(value).shape);
        copy = temporary.template get<U>(count);
        executor.items(count, Convert<float, U>{real(before_narrowing(graph, value)), copy});
      }
      c.in.push_back(In<U>(copy));
      operands.push_back(copy);
    }
    for (ValueId value : node.outputs) {
      const int64_t count = element_count(description(value).shape);
      const bool is_real = description(value).type == ElementType::real;
      results.push_back(is_real ? temporary.template get<U>(count) : nullptr);
      c.out.push_back(Out<U>(results.back()));
      c.index_out.push_back(is_real ? nullptr : temporary.template get<int32_t>(count));
    }
    if (node.op == "Cast") {
      results[0] = operands[0];
    } else {
      make_step(c)(RunState{random_, false});
    }
    std::vector<std::vector<double>> exact;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const int64_t count = element_count(description(node.outputs[i]).shape);
      std::vector<U> values(results[i] != nullptr ? static_cast<size_t>(count) : 0);
      if (!values.empty()) executor.download(values.data(), results[i], values.size() * sizeof(U));
      exact.emplace_back(values.begin(), values.end());
    }
    if (node.op == "Quantize" && !node.plan.scale.by_block()) {
      requantize<U>(node, operands[0], exact[0]);
    }
    return exact;
  }

  /// Computes codes with that run's scale; delayed scaling has replaced the current one since then.
  template <class U>
  void requantize(const Node& node, const U* operand, std::vector<double>& codes) const {
    float scale;
    executor_->download(&scale, plain(node.outputs[1]), sizeof scale);
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
  std::map<NodeId, KernelChoice> kernels_;  ///< by node
  FunctionTables tables_;
  TapCounters<X> taps_;
  Layout layout_;
  std::map<ValueId, std::vector<IndexUse>> index_uses_;
  std::map<NodeId, std::pair<ValueId, IndexUse>> made_indices_;  ///< by the node that uses them
  std::byte* arena_ = nullptr;
  float* exact_ = nullptr;      ///< unrounded outputs of the current node; staging for copies
  int32_t* at_once_ = nullptr;  ///< on the device: 1 if nothing is measured
  std::vector<void*> memory_;   ///< of steps, never released
  std::array<std::vector<Call>, kEntryCount> calls_;
  std::array<std::string, kEntryCount> one_by_one_;  ///< why an entry is not replayed, or ""
  std::array<bool, kEntryCount> started_{};
  Recordings recordings_, queued_;  ///< of run() and of step queues, whose update may be skipped
  std::map<ValueId, double*> wide_place_;
  std::set<ValueId> wide_;            ///< scalars that were computed in double
  std::map<ValueId, float> scalars_;  ///< last written by write_scalar()
  std::set<ValueId> decided_;         ///< scalars that a queue of steps also writes
  std::map<ValueId, std::vector<int32_t>> indices_;
  RandomSource random_;
};

}  // namespace halfscope::gpu
