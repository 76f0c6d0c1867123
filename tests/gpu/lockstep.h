// SPDX-License-Identifier: MIT
// Runs the same executable graph on two backends. After every entry, all values, all statistics and
// a rerun of every node are compared bit by bit. The first difference ends the test, or is stored.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/error.h"
#include "core/lower/lower.h"
#include "core/numeric/formats/rng.h"
#include "core/ops/ops.h"
#include "emulation/backends.h"
#include "gpu/backends.h"
#include "gpu/engine/fusion.h"

namespace halfscope::test {

/// A backend that must match the emulator. Skips the test if there is no device.
enum class Candidate { host, shuffled, cuda };

inline std::string name_of(Candidate candidate) {
  switch (candidate) {
    case Candidate::host:
      return "Host";
    case Candidate::shuffled:
      return "Shuffled";
    case Candidate::cuda:
      break;
  }
  return "Cuda";
}
inline std::string candidate_name(const testing::TestParamInfo<Candidate>& info) {
  return name_of(info.param);
}

inline const Backend& backend_of(Candidate candidate) {
  return candidate == Candidate::host       ? host_executor_backend()
         : candidate == Candidate::shuffled ? shuffled_executor_backend()
                                            : cuda_backend(GpuProducts::own);
}

class OnCandidate : public testing::TestWithParam<Candidate> {
 protected:
  void SetUp() override {
    if (GetParam() == Candidate::cuda && !cuda_is_ready()) {
      GTEST_SKIP() << "no GPU here: not compared on a device";
    }
  }
  static const Backend& candidate() { return backend_of(GetParam()); }
};

inline bool same_bits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

/// In decimal, and every bit of it.
inline std::string exact_text(double x) {
  char text[64];
  std::snprintf(text, sizeof text, "%.9g (%a)", x, x);
  return text;
}

/// Noise in (-1, 1), multiples of 2^-20.
inline std::vector<float> noise(int64_t count, uint64_t seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t word = splitmix64(seed * 7919 + static_cast<uint64_t>(i));
    values.push_back(static_cast<float>(static_cast<int64_t>(word >> 43) - (1 << 20)) * 0x1p-20f);
  }
  return values;
}

/// Operators that any test compared.
inline std::set<std::string>& compared_operators() {
  static std::set<std::string> names;
  return names;
}

class Lockstep {
 public:
  Lockstep(const Executable& executable, const Backend& candidate)
      : executable_(executable),
        reference_(emulation_backend().compile(executable)),
        candidate_(candidate.compile(executable)),
        unmeasured_(candidate.compile(executable)) {
    unmeasured_->keep_values(false);
    for (size_t entry = 0; entry < kEntryCount; ++entry) {
      for (const gpu::Chain& chain : gpu::find_chains(executable, static_cast<Entry>(entry))) {
        for (NodeId id : chain.nodes) {
          const ValueId value = executable.graph.node(id).outputs[0];
          if (id != chain.last() && !chain.keeps(value)) inner_.insert(value);
        }
      }
    }
  }

  /// From now on differences do not fail the test; first_difference() says what they are.
  void keep_differences() { keeps_ = true; }
  /// "" without any.
  const std::string& first_difference() const { return first_difference_; }

  template <class Data>
  void write(ValueId value, const Data& data) {
    reference_->write(value, data);
    candidate_->write(value, data);
    unmeasured_->write(value, data);
  }
  void write_scalar(ValueId value, double scalar) {
    reference_->write_scalar(value, scalar);
    candidate_->write_scalar(value, scalar);
    unmeasured_->write_scalar(value, scalar);
  }
  void set_random(uint64_t seed, uint64_t step) {
    reference_->set_random(seed, step);
    candidate_->set_random(seed, step);
    unmeasured_->set_random(seed, step);
  }

  /// Runs an entry and compares; measuring must not change a bit.
  void run(Entry entry, bool measured) {
    const size_t taps = measured ? executable_.taps.size() : 0;
    std::vector<TensorStats> expected(taps), actual(taps);
    reference_->run(entry, expected);
    candidate_->run(entry, actual);
    unmeasured_->run(entry, {});
    const Graph& graph = executable_.graph;
    for (NodeId id : executable_.entry(entry)) {
      const Node& node = graph.node(id);
      compared_operators().insert(node.op);
      for (ValueId value : node.outputs) {
        if (graph.value(value).type == ElementType::real) {
          compare(value);
          compare_unmeasured(value);
        } else {
          compare_indices(value);
          compare_unmeasured_indices(value);
        }
      }
    }
    for (const Tap& tap : executable_.taps) {
      if (!measured) continue;
      const size_t at = static_cast<size_t>(tap.site.order);
      if (!(expected[at] == actual[at])) differs("statistics of " + name_of(tap.value));
      if (expected[at].n > 0) ++measured_;
    }
  }

  /// Runs an entry and compares values with a tolerance relative to the largest magnitude, for sums
  /// in another order. If the candidate `repeats`, a second run must give the same bits.
  void run_near(Entry entry, double tolerance, bool repeats) {
    reference_->run(entry, {});
    candidate_->run(entry, {});
    const Graph& graph = executable_.graph;
    std::vector<Tensor> first;
    const auto outputs = [&](const auto& f) {
      for (NodeId id : executable_.entry(entry)) {
        for (ValueId value : graph.node(id).outputs) {
          if (graph.value(value).type == ElementType::real) f(value);
        }
      }
    };
    outputs([&](ValueId value) {
      const Tensor a = reference_->read(value);
      first.push_back(candidate_->read(value));
      compare(name_of(value), doubles(a), doubles(first.back()), tolerance);
    });
    if (!repeats) return;
    candidate_->run(entry, {});
    size_t at = 0;
    outputs([&](ValueId value) {
      const Tensor again = candidate_->read(value);
      compare("run again, " + name_of(value), doubles(first[at++]), doubles(again), 0.0);
    });
  }

  /// Reruns every node of an entry, in fp32 and in double.
  void rerun(Entry entry) {
    for (NodeId id : executable_.entry(entry)) {
      const Node& node = executable_.graph.node(id);
      for (Accumulation accumulation : {Accumulation::fp32, Accumulation::fp64}) {
        const auto expected = reference_->rerun(id, accumulation);
        const auto actual = candidate_->rerun(id, accumulation);
        const bool fp32 = accumulation == Accumulation::fp32;
        const std::string what =
            node.path + " (" + node.op + ") once more in " + (fp32 ? "fp32" : "fp64") + ", output ";
        if (expected.size() != actual.size()) return differs(what + "count");
        for (size_t i = 0; i < expected.size(); ++i) {
          if (executable_.graph.value(node.outputs[i]).type != ElementType::real) continue;
          // The emulator gives no scales when it quantizes again.
          if (node.op == "Quantize" && !node.plan.scale.by_block() && i > 0) continue;
          // Sums in double have no fixed order.
          compare(what + std::to_string(i), expected[i], actual[i], fp32 ? 0.0 : 1e-12);
        }
      }
    }
  }

  void compare(ValueId value) const {
    const Tensor a = reference_->read(value), b = candidate_->read(value);
    compare(name_of(value), doubles(a), doubles(b), 0.0);
    if (element_count(a.shape) != 1) return;
    const double expected = reference_->read_scalar(value), got = candidate_->read_scalar(value);
    if (!same_bits(expected, got)) {
      differs(name_of(value) + " in double: expected " + exact_text(expected) + ", got " +
              exact_text(got));
    }
  }

  /// Compares with a plain step, which may leave out the inner values of chains.
  void compare_unmeasured(ValueId value) const {
    Tensor b;
    try {
      b = unmeasured_->read(value);
    } catch (const Error& error) {
      ++left_out_;
      if (!inner_.contains(value)) differs(name_of(value) + " in a plain step: " + error.what());
      return;
    }
    compare("without statistics, " + name_of(value), doubles(candidate_->read(value)), doubles(b),
            0.0);
  }

  const Program& candidate() const { return *candidate_; }
  int64_t compared_elements() const { return elements_; }
  int64_t compared_statistics() const { return measured_; }
  /// Values that plain steps left out.
  int64_t left_out() const { return left_out_; }

 private:
  std::string name_of(ValueId value) const {
    const NodeId producer = executable_.graph.value(value).producer;
    const std::string from = producer == kNone
                                 ? ""
                                 : " of " + executable_.graph.node(producer).path + " (" +
                                       executable_.graph.node(producer).op + ")";
    return "value " + std::to_string(value) + from;
  }

  static std::vector<double> doubles(const Tensor& tensor) {
    return {tensor.data.begin(), tensor.data.end()};
  }

  /// Compares with a plain step, in which places in planes (MaxPool) may have channels last.
  void compare_unmeasured_indices(ValueId value) const {
    std::vector<int32_t> got;
    try {
      got = unmeasured_->read_indices(value);
    } catch (const Error& error) {
      const NodeId producer = executable_.graph.value(value).producer;
      if (producer == kNone || executable_.graph.node(producer).op != "MaxPool") {
        differs(name_of(value) + " in a plain step: " + error.what());
      }
      return;
    }
    const std::vector<int32_t> expected = candidate_->read_indices(value);
    compare("without statistics, " + name_of(value), {expected.begin(), expected.end()},
            {got.begin(), got.end()}, 0.0);
  }

  void compare_indices(ValueId value) const {
    const std::vector<int32_t> expected = reference_->read_indices(value);
    const std::vector<int32_t> got = candidate_->read_indices(value);
    compare(name_of(value), {expected.begin(), expected.end()}, {got.begin(), got.end()}, 0.0);
  }

  /// `tolerance` is relative to the largest magnitude; 0 requires the same bits.
  void compare(const std::string& what, const std::vector<double>& expected,
               const std::vector<double>& actual, double tolerance) const {
    if (expected.size() != actual.size()) return differs(what + ": sizes differ");
    double largest = 0.0;
    for (double x : expected)
      largest = std::isfinite(x) ? std::max(largest, std::fabs(x)) : largest;
    elements_ += static_cast<int64_t>(expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      if (same_bits(expected[i], actual[i])) continue;
      const bool near =
          tolerance > 0.0 && std::fabs(expected[i] - actual[i]) <= tolerance * largest;
      if (near) continue;
      return differs(what + ": element " + std::to_string(i) + ": expected " +
                     exact_text(expected[i]) + ", got " + exact_text(actual[i]));
    }
  }

  void differs(const std::string& what) const {
    if (first_difference_.empty()) first_difference_ = what;
    if (!keeps_) FAIL() << what;
  }

  Executable executable_;
  std::unique_ptr<Program> reference_, candidate_, unmeasured_;
  std::set<ValueId> inner_;  ///< of chains that plain steps run in one launch
  mutable std::string first_difference_;
  bool keeps_ = false;
  mutable int64_t elements_ = 0, left_out_ = 0;
  int64_t measured_ = 0;
};

}  // namespace halfscope::test
