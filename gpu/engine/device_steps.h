// SPDX-License-Identifier: MIT
// The StepQueue of a device. The device decides on its own whether a step is updated or skipped. A
// step's results arrive in one copy, which overlaps the next step.
//
//   open | grad, norm ... | decide | update, if so | close: news, scalars, counters -> host
//
// Two steps may be in flight, so there are two buffers of everything that is copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "core/backend/step_queue.h"
#include "gpu/bodies/step.h"
#include "gpu/engine/executor.h"
#include "gpu/engine/tap_counters.h"

namespace halfscope::gpu {

/// Parts of a program that a queue of its steps needs.
struct StepParts {
  std::function<void(Entry, bool measured)> launch;  ///< runs an entry
  std::function<In<float>(ValueId)> read;            ///< returns where a scalar is stored
  std::function<Destination(ValueId)> write;         ///< same; without memory if nobody reads it
  const double* sum_sq = nullptr;                    ///< squared norm of the gradients
};

template <class X>
class DeviceSteps final : public StepQueue {
 public:
  /// All arguments passed by reference must outlive this object.
  DeviceSteps(X& executor, const Executable& executable, TapCounters<X>& taps, StepParts parts,
              const StepRules& rules, int64_t micro_batches, bool measures)
      : executor_(executor),
        executable_(executable),
        taps_(taps),
        parts_(std::move(parts)),
        micro_batches_(micro_batches),
        measures_(measures) {
    state_ = allocate<StepState>();
    updates_ = allocate<int32_t>();
    begin_ = {state_, parts_.write(executable.loss_scale), static_cast<double>(micro_batches)};
    std::vector<StepDestination> scalars;
    for (const StepInput& each : executable.step_scalars) {
      scalars.push_back({each.scalar, parts_.write(each.value)});
    }
    scalars_ = uploaded(scalars);
    decide_ = {.sum_sq = parts_.sum_sq,
               .rules = rules,
               .state = state_,
               .inverse_scale = parts_.write(executable.inverse_scale),
               .clip = parts_.write(executable.clip),
               .scalars = scalars_,
               .scalar_count = static_cast<int64_t>(scalars.size()),
               .updates = updates_,
               .news = nullptr};
    for (Copy& copy : copies_) {
      const size_t bytes = counters_at() + (measures ? counter_bytes() : 0);
      copy.device = static_cast<std::byte*>(executor_.allocate(bytes));
      copy.host = static_cast<std::byte*>(executor_.host_memory(bytes));
    }
  }

  void open(const StepState* state) override {
    Copy& copy = current();
    copy.measured.clear();
    copy.kept = 0;
    copy.end = counters_at();
    executor_.begin(copy.mark);
    if (state != nullptr) executor_.upload(state_, state, sizeof *state);
    executor_.items(1, begin_);
  }

  void run(Entry entry, bool measured) override {
    parts_.launch(entry, measured);
    if (measured) add_counters(entry);
    if (entry == Entry::norm) executor_.pause(current().mark);  // lanes may be compared here
  }

  void keep(ValueId scalar) override {
    Copy& copy = current();
    executor_.items(1, KeepScalar{parts_.read(scalar), kept(copy.device) + copy.kept++});
  }

  void set_parameter(size_t scalar, double parameter) override {
    executor_.items(1, SetParameter{scalars_ + scalar, parameter});
  }

  void update(bool measured) override {
    executor_.go_on(current().mark);
    DecideStep decide = decide_;
    decide.news = reinterpret_cast<StepNews*>(current().device);
    executor_.items(1, decide);
    const OnlyIf<X> as_decided(executor_, updates_);
    run(Entry::update, measured);
  }

  void close() override {
    Copy& copy = current();
    executor_.fetch(copy.mark, copy.host, copy.device, copy.end);
    ++closed_;
  }

  StepReport collect() override {
    Copy& copy = copies_[collected_++ % kCopies];
    StepReport report;
    report.ms = executor_.wait(copy.mark);
    StepNews news;
    std::memcpy(&news, copy.host, sizeof news);
    report.sum_sq = news.sum_sq;
    report.next = news.next;
    report.skipped = news.skipped != 0;
    report.kept.assign(kept(copy.host), kept(copy.host) + copy.kept);
    if (!copy.measured.empty()) put_stats(copy, report);
    return report;
  }

 private:
  static constexpr size_t kCopies = 2, kAlignment = 256;
  static constexpr int64_t kScalars = 2;  ///< kept per micro-batch: loss and accuracy

  struct Measured {
    Entry entry;
    size_t at;         ///< position of its counters
    int64_t runs = 1;  ///< in this step; the counters are sums over them
  };
  /// News, scalars and counters of one step.
  struct Copy {
    std::byte *device = nullptr, *host = nullptr;
    size_t end = 0;
    int64_t kept = 0;
    std::vector<Measured> measured{};
    typename X::Mark mark{};
  };

  template <class U>
  U* allocate() {
    return static_cast<U*>(executor_.allocate(sizeof(U)));
  }
  StepDestination* uploaded(const std::vector<StepDestination>& scalars) {
    if (scalars.empty()) return nullptr;
    const size_t bytes = scalars.size() * sizeof(StepDestination);
    void* const memory = executor_.allocate(bytes);
    executor_.upload(memory, scalars.data(), bytes);
    return static_cast<StepDestination*>(memory);
  }
  Copy& current() { return copies_[closed_ % kCopies]; }
  static double* kept(std::byte* memory) {
    return reinterpret_cast<double*>(memory + sizeof(StepNews));
  }
  size_t counters_at() const {
    const size_t scalars = static_cast<size_t>(kScalars * micro_batches_) * sizeof(double);
    return (sizeof(StepNews) + scalars + kAlignment - 1) / kAlignment * kAlignment;
  }
  size_t counter_bytes(Entry entry) const {
    return static_cast<size_t>(taps_.slots(entry)) * sizeof(TapSlot);
  }
  /// Returns the bytes for all entries of a step.
  size_t counter_bytes() const {
    return counter_bytes(Entry::grad) + counter_bytes(Entry::accumulate) +
           counter_bytes(Entry::update);
  }

  /// Adds the entry's latest counts to its earlier ones in this step.
  void add_counters(Entry entry) {
    if (!measures_) throw Error("this step queue was created without statistics");
    if (taps_.slots(entry) == 0) return;
    Copy& copy = current();
    for (Measured& each : copy.measured) {
      if (each.entry != entry) continue;
      ++each.runs;
      auto* const totals = reinterpret_cast<TapSlot*>(copy.device + each.at);
      executor_.items(MergeSlot::items(taps_.slots(entry)), MergeSlot{taps_.counters(), totals});
      return;
    }
    executor_.copy(copy.device + copy.end, taps_.counters(), counter_bytes(entry));
    copy.measured.push_back({entry, copy.end});
    copy.end += counter_bytes(entry);
  }

  void put_stats(const Copy& copy, StepReport& report) const {
    report.stats.assign(executable_.taps.size(), TensorStats{});
    for (const Measured& each : copy.measured) {
      if (each.entry == Entry::update && report.skipped) continue;
      taps_.put(each.entry, each.entry == executable_.forward,
                reinterpret_cast<const TapSlot*>(copy.host + each.at), each.runs, report.stats);
    }
  }

  X& executor_;
  const Executable& executable_;
  TapCounters<X>& taps_;
  const StepParts parts_;
  const int64_t micro_batches_;
  const bool measures_;
  StepState* state_ = nullptr;
  int32_t* updates_ = nullptr;
  StepDestination* scalars_ = nullptr;  ///< as Executable::step_scalars
  BeginStep begin_{};
  DecideStep decide_{};
  Copy copies_[kCopies]{};
  size_t closed_ = 0, collected_ = 0;  ///< steps
};

}  // namespace halfscope::gpu
