// SPDX-License-Identifier: MIT
// The Program of both backends: one buffer per value, one kernel call per node. After each call the
// outputs pass the tap and are rounded to their format.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <memory>
#include <new>

#include "core/error.h"
#include "core/lower/execution.h"
#include "core/lower/narrow.h"
#include "core/numeric/sums/accumulate.h"
#include "core/ops/index_functions.h"
#include "core/ops/ops.h"
#include "emulation/backends.h"
#include "emulation/engine/kernel.h"
#include "emulation/measure/measure.h"

namespace halfscope {
namespace {

/// Zeroed memory on 64-byte boundaries. The system allocates pages of large buffers on first write.
template <class T>
class Buffer {
 public:
  explicit Buffer(int64_t count)
      : memory_(std::calloc(static_cast<size_t>(count) * sizeof(T) + kAlign, 1)) {
    if (memory_ == nullptr) throw std::bad_alloc();
    const auto address = reinterpret_cast<uintptr_t>(memory_.get());
    data_ = reinterpret_cast<T*>((address + kAlign - 1) / kAlign * kAlign);
  }
  T* data() const noexcept { return data_; }

 private:
  static constexpr size_t kAlign = 64;
  struct Free {
    void operator()(void* memory) const noexcept { std::free(memory); }
  };
  std::unique_ptr<void, Free> memory_;
  T* data_;
};

void round_values(const float* in, float* out, int64_t n, const FloatFormat& format,
                  const TensorRounding& rounding = {}) {
  if (format != kFp32) round_tensor(in, out, n, format, rounding);
}
void round_values(const double* in, double* out, int64_t n, const FloatFormat&,
                  const TensorRounding& = {}) {
  if (in != out) std::copy_n(in, n, out);
}

template <class T>
class EngineProgram final : public Program {
 public:
  explicit EngineProgram(const Executable& executable) : executable_(executable) {
    const Graph& graph = executable_.graph;
    alias_ = memory_aliases(graph);
    real_.resize(graph.values().size(), nullptr);
    index_.resize(graph.values().size(), nullptr);
    allocate_used_values();
    for (const Constant& constant : graph.constants()) {
      if (T* target = real_[at(constant.value)]) {
        std::copy(constant.tensor.data.begin(), constant.tensor.data.end(), target);
      } else if (int32_t* indices = index_[at(constant.value)]) {
        std::copy(constant.indices.begin(), constant.indices.end(), indices);
      }
    }
    tap_of_.assign(graph.values().size(), -1);
    for (const Tap& tap : executable_.taps) {
      int& first = tap_of_[at(tap.value)];
      if (first >= 0) {
        shared_taps_.emplace_back(first, tap.site.order);
        continue;
      }
      first = tap.site.order;
      if (graph.value(tap.value).producer == kNone) source_taps_.push_back(&tap);
    }
    for (size_t entry = 0; entry < kEntryCount; ++entry) {
      for (NodeId id : executable_.entries[entry]) calls_[entry].push_back(make_call(id));
    }
  }

  void write(ValueId value, std::span<const float> data) override {
    T* target = checked(real_, value, data.size());
    std::copy(data.begin(), data.end(), target);
    const Value& description = executable_.graph.value(value);
    round_values(target, target, element_count(description.shape), description.format);
  }

  void write(ValueId value, std::span<const int32_t> data) override {
    std::copy(data.begin(), data.end(), checked(index_, value, data.size()));
  }

  void write_scalar(ValueId value, double scalar) override {
    if (T* target = real_[at(value)])
      *target = static_cast<T>(scalar);  // unused inputs have no memory
  }

  void set_random(uint64_t seed, uint64_t step) override { random_ = {seed, step}; }

  void keep_values(bool keep) override { keeps_ = keep; }

  void run(Entry entry, std::span<TensorStats> stats) override {
    if (entry == executable_.forward && !stats.empty()) measure_sources(stats);
    for (Call& call : calls_[static_cast<size_t>(entry)]) {
      call.args.random = random_;
      call.args.measured = !stats.empty();
      call.args.keeps = keeps_;
      call.args.lost = 0;
      call.args.wide.reset();
      if (call.kernel) call.kernel(call.args);
      for (const Result& result : call.results) finish(result, call.args.lost, stats);
      if (call.args.wide) wide_[call.args.node->outputs[0]] = *call.args.wide;
    }
    if (entry != executable_.forward || stats.empty()) return;
    for (const auto& [from, to] : shared_taps_)
      stats[static_cast<size_t>(to)] = stats[static_cast<size_t>(from)];
  }

  Tensor read(ValueId value) const override {
    const Shape& shape = executable_.graph.value(value).shape;
    const auto copied = [&](const auto* source) {
      if (source == nullptr) throw Error("value " + std::to_string(value) + " is not computed");
      return Tensor{shape, std::vector<float>(source, source + element_count(shape))};
    };
    const bool indices = executable_.graph.value(value).type == ElementType::index;
    return indices ? copied(index_[at(value)]) : copied(real_[at(value)]);
  }

  std::vector<int32_t> read_indices(ValueId value) const override {
    const int32_t* source = index_[at(value)];
    if (source == nullptr) throw Error("value " + std::to_string(value) + " is not computed");
    return {source, source + element_count(executable_.graph.value(value).shape)};
  }

  std::vector<double> read_exact(ValueId variable) const override {
    const T* source = real_[at(variable)];
    return {source, source + element_count(executable_.graph.value(variable).shape)};
  }

  void write_exact(ValueId variable, std::span<const double> data) override {
    T* target = checked(real_, variable, data.size());
    for (size_t i = 0; i < data.size(); ++i) target[i] = static_cast<T>(data[i]);
  }

  std::vector<std::vector<double>> rerun(NodeId id, Accumulation accumulation) const override {
    return accumulation == Accumulation::fp64 ? rerun_as<double>(id, accumulation)
                                              : rerun_as<float>(id, accumulation);
  }

  std::optional<SumDiagnostics> diagnose(NodeId id) const override {
    const Graph& graph = executable_.graph;
    const Node& node = graph.node(id);
    if (std::is_same_v<T, double> || !find_op(node.op).sums_products()) return std::nullopt;
    KernelCall<T> call;
    call.graph = &graph;
    call.node = &node;
    call.random = random_;
    for (ValueId value : node.inputs) {
      call.in.push_back(value == kNone ? nullptr : real_[at(value)]);
    }
    std::vector<T> result(static_cast<size_t>(element_count(graph.value(node.outputs[0]).shape)));
    call.out.push_back(result.data());
    // fp8 products split into fp16 ones can only be observed in the reference, which is far too
    // slow.
    const auto profile = tensor_core_of(call.sum_spec());
    if (profile && profile->path == TensorCorePath::fp16_split) return std::nullopt;
    Diagnostics diagnostics;
    call.diagnostics = &diagnostics;
    find_kernel<T>(graph, node)(call);
    return diagnostics;
  }

  void round(std::span<float> numbers, const FloatFormat& format) const override {
    round_values(numbers.data(), numbers.data(), static_cast<int64_t>(numbers.size()), format);
  }

  double read_scalar(ValueId value) const override {
    if (const auto wide = wide_.find(value); wide != wide_.end()) return wide->second;
    if (real_[at(value)] == nullptr)
      throw Error("value " + std::to_string(value) + " is not computed");
    return static_cast<double>(*real_[at(value)]);
  }

 private:
  struct Result {
    const T* exact;  ///< what the kernel wrote: `data`, or a Cast's operand
    T* data;
    int64_t count;
    ValueId value;
    FloatFormat format;
    RoundingChoice rounding;
    bool rounds;
    int tap;
    bool is_update;
  };
  struct Call {
    NodeKernel<T> kernel;
    KernelCall<T> args;
    std::vector<Result> results;
  };

  static size_t at(ValueId value) { return static_cast<size_t>(value); }

  template <class Pointer>
  Pointer checked(const std::vector<Pointer>& pointers, ValueId value, size_t count) const {
    const int64_t wanted = element_count(executable_.graph.value(value).shape);
    if (static_cast<int64_t>(count) != wanted) {
      throw Error("value " + std::to_string(value) + " takes " + std::to_string(wanted) +
                  " elements, not " + std::to_string(count));
    }
    if (pointers[at(value)] == nullptr)
      throw Error("value " + std::to_string(value) + " is not in use");
    return pointers[at(value)];
  }

  void allocate(ValueId value) {
    if (const auto alias = alias_.find(value); alias != alias_.end()) {
      allocate(alias->second);
      real_[at(value)] = real_[at(alias->second)];
      index_[at(value)] = index_[at(alias->second)];
      return;
    }
    const Value& description = executable_.graph.value(value);
    const int64_t count = element_count(description.shape);
    if (description.type == ElementType::index) {
      if (index_[at(value)] != nullptr) return;
      index_buffers_.emplace_back(count);
      index_[at(value)] = index_buffers_.back().data();
    } else if (real_[at(value)] == nullptr) {
      real_buffers_.emplace_back(count);
      real_[at(value)] = real_buffers_.back().data();
    }
  }

  void allocate_used_values() {
    const Graph& graph = executable_.graph;
    for (const Variable& variable : graph.variables()) allocate(variable.value);
    if (executable_.input != kNone) allocate(executable_.input);
    if (executable_.labels != kNone) allocate(executable_.labels);
    for (const NamedValue& input : executable_.inputs) allocate(input.value);
    for (const NamedValue& output : executable_.outputs) allocate(output.value);
    for (const std::vector<NodeId>& entry : executable_.entries) {
      for (NodeId id : entry) {
        for (ValueId value : graph.node(id).inputs) {
          if (value != kNone) allocate(value);
        }
        for (ValueId value : graph.node(id).outputs) allocate(value);
      }
    }
  }

  Call make_call(NodeId id) {
    const Graph& graph = executable_.graph;
    const Node& node = graph.node(id);
    // A Cast only rounds, so its operand passes the tap directly. An output that shares its
    // operand's memory is already there.
    const bool is_cast = node.op == "Cast";
    const bool in_place = is_view(node) && real_[at(node.inputs[0])] == real_[at(node.outputs[0])];
    Call call{is_cast || in_place ? NodeKernel<T>{} : find_kernel<T>(graph, node), {}, {}};
    call.args.graph = &graph;
    call.args.node = &node;
    for (ValueId value : node.inputs) {
      call.args.in.push_back(value == kNone ? nullptr : real_[at(value)]);
      call.args.index_in.push_back(value == kNone ? nullptr : index_[at(value)]);
    }
    for (ValueId value : node.outputs) {
      call.args.out.push_back(real_[at(value)]);
      call.args.index_out.push_back(index_[at(value)]);
      const Value& output = graph.value(value);
      if (output.type != ElementType::real) continue;
      const bool rounds = !find_op(node.op).rounds_itself && needs_rounding(graph, node, output);
      const int tap = tap_of_[at(value)];
      if (rounds || tap >= 0) {
        const ValueId exact = is_cast ? node.inputs[0] : value;
        call.results.push_back({real_[at(exact)], real_[at(value)], element_count(output.shape),
                                value, output.format, output.rounding, rounds, tap,
                                find_op(node.op).rounds_itself && value != node.outputs[0]});
      }
    }
    return call;
  }

  /// Same as rerun(), with kernels of type U; operands of another type are copied.
  template <class U>
  std::vector<std::vector<double>> rerun_as(NodeId id, Accumulation accumulation) const {
    const Graph& graph = executable_.graph;
    Node node = graph.node(id);
    node.plan.accumulation = accumulation;
    KernelCall<U> call;
    call.graph = &graph;
    call.node = &node;
    call.unrounded = true;
    call.random = random_;
    std::vector<std::vector<U>> operands, results;
    for (ValueId value : node.inputs) {
      const bool real = value != kNone && graph.value(value).type == ElementType::real;
      call.index_in.push_back(value == kNone || real ? nullptr : index_[at(value)]);
      const T* const source = real ? real_[at(before_narrowing(graph, value))] : nullptr;
      if constexpr (std::is_same_v<T, U>) {
        call.in.push_back(source);
      } else {
        std::vector<U>& operand = operands.emplace_back();  // its memory stays when the list grows
        if (real) operand.assign(source, source + element_count(graph.value(value).shape));
        call.in.push_back(real ? operand.data() : nullptr);
      }
    }
    std::vector<std::vector<int32_t>> index_results;
    for (ValueId value : node.outputs) {
      const size_t count = static_cast<size_t>(element_count(graph.value(value).shape));
      const bool real = graph.value(value).type == ElementType::real;
      results.emplace_back(real ? count : 0);
      index_results.emplace_back(real ? 0 : count);
      call.out.push_back(real ? results.back().data() : nullptr);
      call.index_out.push_back(real ? nullptr : index_results.back().data());
    }
    if (node.op == "Cast") {
      std::copy_n(call.in[0], results[0].size(), results[0].begin());
    } else if (node.op == "Quantize" && !node.plan.scale.by_block()) {
      // Uses that run's scale; delayed scaling has replaced the current one since then.
      const double factor = 1.0 / static_cast<double>(*real_[at(node.outputs[1])]);
      for (size_t i = 0; i < results[0].size(); ++i) {
        results[0][i] = static_cast<U>(static_cast<double>(call.in[0][i]) * factor);
      }
    } else {
      find_kernel<U>(graph, node)(call);
    }
    if constexpr (std::is_same_v<U, double>) return results;
    std::vector<std::vector<double>> exact;
    for (const std::vector<U>& result : results) exact.emplace_back(result.begin(), result.end());
    return exact;
  }

  void measure_sources(std::span<TensorStats> stats) {
    for (const Tap* tap : source_taps_) {
      stats[static_cast<size_t>(tap->site.order)] = measured(
          real_[at(tap->value)], nullptr, element_count(tap->site.shape), tap->site.format);
    }
  }

  /// Rounds and measures; `out` may be null to measure only.
  static TensorStats measured(const float* in, float* out, int64_t n, const FloatFormat& format,
                              const TensorRounding& rounding = {}) {
    return measure_tensor(in, out, n, format, rounding);
  }
  static TensorStats measured(const double* in, double* out, int64_t n, const FloatFormat& format,
                              const TensorRounding& = {}) {
    if (out != nullptr) round_values(in, out, n, format);
    return {};  // no formats, no statistics
  }

  void finish(const Result& result, int64_t lost, std::span<TensorStats> stats) {
    const TensorRounding rounding = rounding_now(result.rounding, result.value, random_);
    if (result.tap >= 0 && !stats.empty()) {
      TensorStats& target = stats[static_cast<size_t>(result.tap)];
      target = measured(result.exact, result.rounds ? result.data : nullptr, result.count,
                        result.format, rounding);
      if (result.is_update) target.lost = lost;
    } else if (result.rounds) {
      round_values(result.exact, result.data, result.count, result.format, rounding);
    }
  }

  const Executable executable_;
  std::vector<Buffer<T>> real_buffers_;
  std::vector<Buffer<int32_t>> index_buffers_;
  std::vector<T*> real_;              // by value; null if no entry uses it
  std::vector<int32_t*> index_;       // by value
  std::map<ValueId, ValueId> alias_;  ///< memory_aliases()
  std::vector<int> tap_of_;
  std::vector<const Tap*> source_taps_;
  std::vector<std::pair<int, int>> shared_taps_;  ///< sites that are one value: measured, others
  std::array<std::vector<Call>, kEntryCount> calls_;
  std::map<ValueId, double> wide_;
  RandomSource random_;
  bool keeps_ = true;
};

template <class T>
class EngineBackend final : public Backend {
 public:
  explicit EngineBackend(const char* name) : name_(name) {}
  const char* name() const noexcept override { return name_; }
  bool runs_side_by_side() const noexcept override { return true; }
  std::unique_ptr<Program> compile(const Executable& executable) const override {
    return std::make_unique<EngineProgram<T>>(executable);
  }

 private:
  const char* name_;
};

}  // namespace

namespace {

template <class T>
Kernel<T> kernel_among(const std::string& op,
                       std::initializer_list<std::span<const KernelEntry<T>>> lists) {
  for (const std::span<const KernelEntry<T>> list : lists) {
    for (const KernelEntry<T>& entry : list) {
      if (op == entry.op) return entry.run;
    }
  }
  throw Error("operator " + op + " is not supported by the emulation backend");
}

}  // namespace

template <class T>
NodeKernel<T> find_kernel(const Graph& graph, const Node& node) {
  const OpDef& def = find_op(node.op);
  if (works_on_indices(graph, node)) {
    if (const auto move = move_kernel<int32_t>(def)) return {.indices = move};
    return {
        .indices = kernel_among<int32_t>(
            node.op, {gather_kernels<int32_t>(), choice_kernels<int32_t>(), integer_kernels()})};
  }
  if (const auto move = move_kernel<T>(def)) return {.reals = move};
  return {.reals = kernel_among<T>(
              node.op, {elementwise_kernels<T>(), function_kernels<T>(), gather_kernels<T>(),
                        choice_kernels<T>(), sum_kernels<T>(), normalization_kernels<T>(),
                        group_normalization_kernels<T>(), softmax_kernels<T>(),
                        pooling_kernels<T>(), loss_kernels<T>(), update_kernels<T>(),
                        quantize_kernels<T>(), rank_kernels<T>(), conversion_kernels<T>()})};
}

template <class T>
void NodeKernel<T>::operator()(KernelCall<T>& call) const {
  if (reals != nullptr) return reals(call);
  KernelCall<int32_t> own;
  own.graph = call.graph;
  own.node = call.node;
  own.in = own.index_in = call.index_in;
  own.out = own.index_out = call.index_out;
  indices(own);
}

template NodeKernel<float> find_kernel<float>(const Graph&, const Node&);
template NodeKernel<double> find_kernel<double>(const Graph&, const Node&);
template struct NodeKernel<float>;
template struct NodeKernel<double>;

const Backend& emulation_backend() {
  static const EngineBackend<float> backend("emulated");
  return backend;
}

const Backend& float64_backend() {
  static const EngineBackend<double> backend("float64");
  return backend;
}

}  // namespace halfscope
