// SPDX-License-Identifier: MIT
// Trainings small enough for a unit test, and how to compare two of them bit by bit.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/numeric/formats/rng.h"
#include "core/policy/policy.h"
#include "core/train/trainer.h"
#include "emulation/backends.h"

namespace halfscope::test {

/// Returns noise with a bright spot whose position encodes the label.
inline Split make_split(int64_t samples, int64_t side, uint64_t seed) {
  Split split;
  for (int64_t s = 0; s < samples; ++s) {
    const int32_t label = static_cast<int32_t>(splitmix64(seed + static_cast<uint64_t>(s)) % 10);
    split.labels.push_back(label);
    for (int64_t p = 0; p < side * side; ++p) {
      const uint64_t noise =
          splitmix64(seed * 977 + static_cast<uint64_t>(s * side * side + p)) % 100;
      split.pixels.push_back(p / 16 % 10 == label ? 200 : static_cast<uint8_t>(noise));
    }
  }
  return split;
}

inline const Dataset& data() {
  static const Dataset set{"synthetic",           {1, 16, 16},          10, {}, {},
                           make_split(80, 16, 1), make_split(50, 16, 2)};
  return set;
}

/// For networks with batch normalization: three channels of 8 x 8.
inline const Dataset& small_images() {
  static const Dataset set = [] {
    Dataset images{"images", {3, 8, 8}, 10, {}, {}, {}, {}};
    for (Split* split : {&images.train, &images.test}) {
      const uint64_t seed = split == &images.train ? 5 : 6;
      for (uint64_t s = 0; s < 48; ++s) {
        const uint64_t label = splitmix64(seed * 1000 + s) % 10;
        split->labels.push_back(static_cast<int32_t>(label));
        for (uint64_t p = 0; p < 3 * 64; ++p) {
          const uint64_t noise = splitmix64((seed << 32) + s * 192 + p) % 120;
          split->pixels.push_back(p % 10 == label ? 220 : static_cast<uint8_t>(noise));
        }
      }
    }
    return images;
  }();
  return set;
}

inline constexpr const char* kMlp = "mlp:256-40-24-10";

inline LaneConfig lane(const Plan& plan, const std::string& scale) {
  return {plan, parse_loss_scale(scale),
          plan.double_precision ? &float64_backend() : &emulation_backend()};
}

inline TrainConfig config(const std::string& model, const std::string& plan,
                          const std::string& scale) {
  TrainConfig result;
  result.model = model;
  result.batch = 16;
  result.steps = 3;
  result.evaluate = false;
  result.lanes = {lane(preset_plan(plan).value(), scale)};
  return result;
}

class Collector final : public TapSink {
 public:
  void begin(const RunInfo&) override { ADD_FAILURE() << "begin is the caller's"; }
  void step(int, const StepRow& row, std::span<const TensorStats> s) override {
    rows.push_back(row);
    stats.emplace_back(s.begin(), s.end());
  }
  void eval(int, const EvalRow& row) override { evals.push_back(row); }
  void error(int lane, const SiteError& error) override { errors.emplace_back(lane, error); }
  void sums(int lane, const SiteSums& seen) override { diagnostics.emplace_back(lane, seen); }
  void kernel(int lane, const KernelCheck& check) override { checks.emplace_back(lane, check); }
  void deviation(int lane, const Deviation& seen) override { deviations.emplace_back(lane, seen); }
  void end(RunEnd how) override { ends.push_back(how); }

  std::vector<StepRow> rows;
  std::vector<std::vector<TensorStats>> stats;
  std::vector<EvalRow> evals;
  std::vector<RunEnd> ends;
  std::vector<std::pair<int, SiteError>> errors;
  std::vector<std::pair<int, SiteSums>> diagnostics;
  std::vector<std::pair<int, KernelCheck>> checks;
  std::vector<std::pair<int, Deviation>> deviations;
};

struct Result {
  Collector seen;
  NamedTensors weights;
};

inline Result train(const TrainConfig& config, const Dataset& dataset = data()) {
  Result result;
  Trainer trainer(config, dataset);
  const std::atomic<bool> stop{false};
  trainer.run(&result.seen, {}, stop);
  result.weights = trainer.weights(0);
  return result;
}

inline void expect_same_weights(const NamedTensors& a, const NamedTensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [path, tensor] : a) {
    const std::vector<float>& other = b.at(path).data;
    ASSERT_EQ(tensor.data.size(), other.size());
    size_t different = 0;
    for (size_t i = 0; i < other.size(); ++i) {
      different +=
          std::bit_cast<uint32_t>(tensor.data[i]) != std::bit_cast<uint32_t>(other[i]) ? 1 : 0;
    }
    EXPECT_EQ(different, 0u) << path;
  }
}

inline void expect_same_steps(const Collector& a, const Collector& b) {
  ASSERT_EQ(a.rows.size(), b.rows.size());
  // A NaN's sign depends on the order of operands that a compiler or a device chooses.
  const auto bits = [](double x) {
    return std::isnan(x) ? ~uint64_t{0} : std::bit_cast<uint64_t>(x);
  };
  for (size_t i = 0; i < a.rows.size(); ++i) {
    EXPECT_EQ(bits(a.rows[i].loss), bits(b.rows[i].loss)) << "step " << i;
    EXPECT_EQ(bits(a.rows[i].grad_norm), bits(b.rows[i].grad_norm)) << "step " << i;
    EXPECT_EQ(a.rows[i].loss_scale, b.rows[i].loss_scale) << "step " << i;
    EXPECT_EQ(a.rows[i].accuracy, b.rows[i].accuracy) << "step " << i;
    EXPECT_EQ(a.rows[i].skipped, b.rows[i].skipped) << "step " << i;
    const bool both = !a.stats[i].empty() && !b.stats[i].empty();
    EXPECT_TRUE(!both || a.stats[i] == b.stats[i]) << "step " << i;
  }
}

}  // namespace halfscope::test
