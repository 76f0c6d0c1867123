// SPDX-License-Identifier: MIT
// The Program of a GPU backend over any executor. One arena contains all values, in the smallest
// storage for their formats (program_memory.h). Every node is a call that launches bodies
// (calls.h). In a recorded step its outputs then pass the tap and are rounded to their format; in a
// plain step most bodies round on their own (writes.h). The taps' counts stay on the device until
// the entry (in training, the step: device_steps.h) has run, and are then copied in one piece.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "core/backend/backend.h"
#include "core/ops/dropout.h"
#include "gpu/engine/calls.h"
#include "gpu/engine/device_means.h"
#include "gpu/engine/device_steps.h"
#include "gpu/engine/function_tables.h"
#include "gpu/engine/program_memory.h"
#include "gpu/engine/rerun.h"
#include "gpu/engine/tap_counters.h"
#include "gpu/libraries/shared_products.h"

namespace halfscope::gpu {

template <class X>
class DeviceProgram final : public Program {
 public:
  /// Returns the link to the devices of the other processes, or null.
  using Connect = std::function<std::unique_ptr<DeviceLink>(const Exchange&)>;

  /// Without a library, our own kernels compute every product. Without `connect`, and where it
  /// returns null, gradients of ranks travel through the host.
  DeviceProgram(const Executable& executable, std::unique_ptr<X> executor,
                std::unique_ptr<ProductLibrary> library = nullptr, Connect connect = nullptr)
      : executable_(executable),
        executor_(std::move(executor)),
        connect_(std::move(connect)),
        library_(library == nullptr ? nullptr
                                    : std::make_unique<SharedProducts>(std::move(library))),
        taps_(*executor_, executable_),
        memory_(*executor_, executable_),
        maker_(*executor_, executable_, memory_, taps_, tables_,
               library_ == nullptr ? nullptr : &library_call_),
        index_uses_(index_uses(executable_.graph)) {
    for (const auto& [value, uses] : index_uses_) {
      if (description(value).producer == kNone) continue;
      for (const IndexUse& use : uses) made_indices_[use.node] = {value, use};
    }
    for (const Constant& constant : executable_.graph.constants()) {
      if (!memory_.has_place(constant.value)) continue;
      if (!constant.indices.empty()) {
        for (const IndexUse& use : index_uses_[constant.value]) {
          check_indices(executable_.graph, use, constant.indices);
        }
        memory_.put(constant.value, constant.indices);
      }
      if (memory_.is_real(constant.value)) {
        memory_.put(constant.value, constant.tensor.data);
      }
    }
    for (size_t entry = 0; entry < kEntryCount; ++entry) {
      calls(Way::recorded, static_cast<Entry>(entry)) = maker_.recorded(static_cast<Entry>(entry));
      one_by_one_[entry] = changes(executable_.entries[entry]);
    }
    maker_.settle_order();
    for (size_t entry = 0; entry < kEntryCount; ++entry) {
      calls(Way::plain, static_cast<Entry>(entry)) = maker_.plain(static_cast<Entry>(entry));
    }
    scratch_.memory = memory_.template allocate<std::byte>(scratch_.bytes());
  }

  std::string kernel_of(NodeId node) const override {
    const auto found = maker_.kernels().find(node);
    return found == maker_.kernels().end() ? "" : found->second.text;
  }
  bool by_library(NodeId node) const override {
    const auto found = maker_.kernels().find(node);
    return found != maker_.kernels().end() && found->second.by_library;
  }

  std::vector<std::string> launches_of(Entry entry) const override {
    const size_t which = static_cast<size_t>(entry);
    std::vector<std::string> ways;
    if (!started_[which] || executable_.entries[which].empty()) return ways;
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
    memory_.put(value, data);
  }

  void write(ValueId value, std::span<const int32_t> data) override {
    check_size(value, data.size());
    indices_[value].assign(data.begin(), data.end());
    memory_.put(value, data);
  }

  void write_scalar(ValueId value, double scalar) override {
    if (!memory_.has_place(value)) return;  // unused inputs have no memory
    const float number = static_cast<float>(scalar);
    // Most scalars are the same in every step.
    if (decided_.contains(value)) return memory_.put(value, number);
    const auto [known, is_new] = scalars_.try_emplace(value, number);
    if (!is_new && std::bit_cast<uint32_t>(known->second) == std::bit_cast<uint32_t>(number))
      return;
    known->second = number;
    memory_.put(value, number);
  }

  void keep_values(bool keep) override { keeps_values_ = keep; }

  void set_random(uint64_t seed, uint64_t step) override { random_ = {seed, step}; }

  void run(Entry entry, std::span<TensorStats> stats) override {
    start(entry, recordings_, !stats.empty());
    if (!stats.empty()) taps_.collect(entry, entry == executable_.forward, stats);
  }

  std::unique_ptr<StepQueue> step_queue(const StepRules& rules, int64_t micro_batches,
                                        bool measures) override {
    StepParts parts{
        .launch = [this](Entry entry, bool measured) { start(entry, queued_, measured); },
        .read = [this](ValueId scalar) { return memory_.real(scalar); },
        .write =
            [this](ValueId scalar) {
              scalars_.erase(scalar);
              decided_.insert(scalar);
              return memory_.has_place(scalar) ? memory_.destination(scalar) : Destination{};
            },
        .sum_sq = maker_.wide_place(executable_.gradient_norm)};
    return std::make_unique<DeviceSteps<X>>(*executor_, executable_, taps_, std::move(parts), rules,
                                            micro_batches, measures);
  }

  bool exchange_means(Exchange& exchange, bool measured) override {
    if (means_ == nullptr || &means_->exchange() != &exchange) {
      means_ = std::make_unique<DeviceMeans<X>>(*executor_, executable_, memory_, exchange,
                                                connect_ ? connect_(exchange) : nullptr);
    }
    means_->run(measured);
    return true;
  }

  Tensor read(ValueId value) const override {
    const Shape& shape = description(value).shape;
    Tensor tensor{shape, std::vector<float>(static_cast<size_t>(element_count(shape)))};
    if (!memory_.is_real(value) && memory_.is_there(value)) {
      std::vector<int32_t> indices(tensor.data.size());
      executor_->download(indices.data(), memory_.index(value), indices.size() * sizeof(int32_t));
      tensor.data.assign(indices.begin(), indices.end());
      return tensor;
    }
    executor_->download(tensor.data.data(), memory_.plain(value),
                        tensor.data.size() * sizeof(float));
    return tensor;
  }

  std::vector<int32_t> read_indices(ValueId value) const override {
    if (!memory_.is_there(value) || memory_.is_real(value)) throw memory_.not_computed(value);
    std::vector<int32_t> indices(static_cast<size_t>(element_count(description(value).shape)));
    executor_->download(indices.data(), memory_.index(value), indices.size() * sizeof(int32_t));
    return indices;
  }

  double read_scalar(ValueId value) const override {
    if (wide_.contains(value)) {
      double wide;
      executor_->download(&wide, maker_.wide_place(value), sizeof wide);
      return wide;
    }
    float number;
    executor_->download(&number, memory_.plain(value), sizeof number);
    return static_cast<double>(number);
  }

  std::vector<double> read_exact(ValueId variable) const override {
    const Tensor tensor = read(variable);
    return {tensor.data.begin(), tensor.data.end()};
  }

  void write_exact(ValueId variable, std::span<const double> data) override {
    check_size(variable, data.size());
    scalars_.erase(variable);
    memory_.put(variable, std::vector<float>(data.begin(), data.end()));
  }

  /// Sums cannot be observed on a device.
  std::optional<SumDiagnostics> diagnose(NodeId) const override { return std::nullopt; }

  std::vector<std::vector<double>> rerun(NodeId node, Accumulation accumulation) const override {
    Rerun<X> again(*executor_, executable_.graph, memory_);
    return accumulation == Accumulation::fp64
               ? again.template run<double>(node, accumulation, random_)
               : again.template run<float>(node, accumulation, random_);
  }

 private:
  const Value& description(ValueId value) const { return memory_.description(value); }
  void check_size(ValueId value, size_t count) const {
    const int64_t wanted = element_count(description(value).shape);
    if (static_cast<int64_t>(count) != wanted) {
      throw Error("value " + std::to_string(value) + " takes " + std::to_string(wanted) +
                  " elements, not " + std::to_string(count));
    }
    if (!memory_.has_place(value)) {
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

  /// Adds the node whose work failed, as far as known: launches can fail later than they are made.
  Error error_at(NodeId id, const Error& error) const {
    const Node& node = executable_.graph.node(id);
    std::string shape = to_string(description(node.outputs[0]).shape);
    return Error(node.path + " (" + node.op + " " + shape + "): " + error.what(), error.hint(),
                 error.kind());
  }

  void measure_sources() {
    for (const Tap* tap : taps_.sources()) {
      taps_.measure(executable_.forward, tap->site.order, memory_.real(tap->value),
                    {.format = tap->site.format}, element_count(tap->site.shape), {});
    }
  }

  /// Returns why an entry does not launch the same work every time, or "" if it does.
  std::string changes(const std::vector<NodeId>& nodes) const {
    for (NodeId id : nodes) {
      const Node& node = executable_.graph.node(id);
      bool draws =
          node.plan.accumulation.rounding.mode == RoundingMode::stochastic || drops_elements(node);
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
    // Only recorded steps store everything, and that in the order of ONNX.
    const bool recorded = measured || keeps_values_;
    memory_.note(entry, !recorded, maker_.order().made_by(entry), maker_.left_out(entry));
    const RunState state{random_, recorded};
    if (one_by_one_[which].empty()) {
      executor_->replay(recordings[which][recorded ? 1 : 0], [&] { launch(entry, state); });
    } else {
      launch(entry, state);
    }
  }

  /// Launches a whole entry, and then the totals of its taps.
  void launch(Entry entry, const RunState& state) {
    if (state.measured) {
      taps_.clear(entry);
      if (entry == executable_.forward) measure_sources();
    }
    for (const Call& call : calls(state.measured ? Way::recorded : Way::plain, entry)) {
      try {
        check_made_indices(call.node);
        if (call.step) call.step(state);
        for (const Unfinished& output : call.outputs) finish(entry, output, state);
      } catch (const Error& error) {
        throw error_at(call.node, error);
      }
      if (call.wide != kNone) wide_.insert(call.wide);
    }
    if (state.measured) taps_.total(entry);
  }

  std::vector<Call>& calls(Way way, Entry entry) {
    return calls_[static_cast<size_t>(way)][static_cast<size_t>(entry)];
  }

  void finish(Entry entry, const Unfinished& output, const RunState& state) {
    const TensorRounding rounding = rounding_now(output.rounding, output.value, state.random);
    if (state.measured && output.tap >= 0) {
      taps_.measure(entry, output.tap, output.exact, output.to, output.count, rounding);
      return;
    }
    const Round round{output.exact, output.to, output.count, rounding};
    executor_->items(round.items(), round);
  }

  const Executable executable_;
  std::unique_ptr<X> executor_;
  Connect connect_;
  std::unique_ptr<ProductLibrary> library_;
  Scratch scratch_;
  const LibraryCall library_call_{library_.get(), &scratch_};
  FunctionTables tables_;
  TapCounters<X> taps_;
  ProgramMemory<X> memory_;
  CallMaker<X> maker_;
  std::unique_ptr<DeviceMeans<X>> means_;
  std::map<ValueId, std::vector<IndexUse>> index_uses_;
  std::map<NodeId, std::pair<ValueId, IndexUse>> made_indices_;  ///< by the node that uses them
  std::array<std::array<std::vector<Call>, kEntryCount>, kWays> calls_;  ///< by way
  std::array<std::string, kEntryCount> one_by_one_;  ///< why an entry is not replayed, or ""
  std::array<bool, kEntryCount> started_{};
  bool keeps_values_ = true;
  Recordings recordings_, queued_;    ///< of run() and of step queues, whose update may be skipped
  std::set<ValueId> wide_;            ///< scalars that were computed in double
  std::map<ValueId, float> scalars_;  ///< last written by write_scalar()
  std::set<ValueId> decided_;         ///< scalars that a queue of steps also writes
  std::map<ValueId, std::vector<int32_t>> indices_;
  RandomSource random_;
};

}  // namespace halfscope::gpu
