// SPDX-License-Identifier: MIT
// Every scaler beside the states that the frameworks themselves have (tests/oracle/scaler_traces.py
// wrote them from torch, Keras, tf_keras and DeepSpeed; apex's rules are written out there).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "core/backend/step_decision.h"

namespace halfscope {
namespace {

struct Vectors {
  std::string framework, scaler, pattern;
  std::map<std::string, std::vector<std::string>> columns;
};

/// 1*3 2:4 7 -> 1 1 1 2 3 4 7
std::vector<std::string> unpacked(std::istringstream& words) {
  std::vector<std::string> values;
  std::string word;
  while (words >> word) {
    const size_t times = word.find('*'), to = word.find(':');
    if (times != std::string::npos) {
      values.insert(values.end(), std::stoul(word.substr(times + 1)), word.substr(0, times));
    } else if (to != std::string::npos) {
      for (int64_t i = std::stoll(word); i <= std::stoll(word.substr(to + 1)); ++i) {
        values.push_back(std::to_string(i));
      }
    } else {
      values.push_back(word);
    }
  }
  return values;
}

std::vector<Vectors> read_vectors() {
  std::ifstream file(HALFSCOPE_SOURCE_DIR "/tests/oracle/vectors/scaler_traces.txt");
  std::vector<Vectors> all;
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string key;
    if (!(words >> key) || key == "#") continue;
    if (key == "case") {
      words >> all.emplace_back().framework >> all.back().scaler;
    } else if (key == "pattern") {
      words >> all.back().pattern;
    } else {
      all.back().columns[key] = unpacked(words);
    }
  }
  return all;
}

/// Known values of one step, under the names of the vectors.
using Row = std::map<std::string, std::string>;

std::string number(double x) { return std::to_string(static_cast<int64_t>(x)); }

Row row_of(const LossScalerState& state, int64_t updates, const std::string& skipped) {
  return {{"tracker", std::to_string(state.tracker)},
          {"hysteresis", std::to_string(state.hysteresis)},
          {"iteration", std::to_string(state.iteration)},
          {"last_overflow", std::to_string(state.last_overflow)},
          {"updates", std::to_string(updates)},
          {"skipped", skipped},
          {"stop", number(static_cast<double>(state.stop))}};
}

void compare(const Vectors& vectors, size_t step, const LossScalerState& state, Row row) {
  for (const auto& [key, values] : vectors.columns) {
    ASSERT_LT(step, values.size());
    const std::string& wanted = values[step];
    if (wanted == "?") continue;
    const std::string where =
        vectors.framework + " " + vectors.scaler + ", step " + std::to_string(step);
    if (key == "scale") {
      ASSERT_EQ(state.scale, std::strtod(wanted.c_str(), nullptr)) << where;
    } else {
      ASSERT_EQ(row.at(key), wanted) << key << " of " << where;
    }
  }
}

void run_one(const Vectors& vectors, const LossScalerConfig& config) {
  StepState state{initial_state(config), 0};
  const StepRules rules{.scaler = config};
  float weight = 0.0f;
  const size_t steps = vectors.columns.begin()->second.size();  // fewer if the framework raises
  for (size_t step = 0; step < steps; ++step) {
    const char letter = vectors.pattern.at(step);
    const float gradient = letter == 'F' ? 1.0f : letter == 'Z' ? 0.0f : INFINITY;
    const StepDecision decision =
        decide(state, rules, static_cast<double>(gradient) * static_cast<double>(gradient));
    if (!decision.skipped) {
      weight -= divides_by_scale(config) ? gradient / decision.inverse_scale
                                         : gradient * decision.inverse_scale;
    }
    state = decision.next;
    Row row = row_of(state.scaler, state.updates, decision.skipped ? "1" : "0");
    row["finite"] = std::isfinite(weight) ? "1" : "0";
    compare(vectors, step, state.scaler, row);
    if (testing::Test::HasFatalFailure()) return;
  }
}

void run_two(const Vectors& vectors, const LossScalerConfig& config) {
  LossScalerState state = initial_state(config);
  int64_t updates = 0;
  for (size_t step = 0; step < vectors.pattern.size(); ++step) {
    const char letter = vectors.pattern[step];
    const SharedStep taken = shared_step(
        state, config, {letter != 'O' && letter != 'A', letter != 'O' && letter != 'B'});
    std::string skipped;
    for (const bool each : taken.skipped) {
      skipped += each ? '1' : '0';
      updates += each ? 0 : 1;
    }
    state = taken.next;
    compare(vectors, step, state, row_of(state, updates, skipped));
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(ScalerVectors, EqualTheFrameworks) {
  const std::vector<Vectors> all = read_vectors();
  ASSERT_EQ(all.size(), 112u);
  size_t steps = 0;
  for (const Vectors& each : all) {
    const LossScalerConfig config = parse_loss_scale(each.scaler);
    each.framework == "torch-shared" ? run_two(each, config) : run_one(each, config);
    if (HasFatalFailure()) return;
    steps += each.columns.begin()->second.size();
  }
  EXPECT_GT(steps, 15000u);
}

// A comparison that cannot fail would not be one.
TEST(ScalerVectors, TellRulesApart) {
  const auto differs = [](const char* ours, const char* theirs) {
    for (const Vectors& each : read_vectors()) {
      if (each.scaler != theirs) continue;
      LossScalerState state = initial_state(parse_loss_scale(ours));
      const std::vector<std::string>& scales = each.columns.at("scale");
      for (size_t i = 0; i < scales.size() && scales[i] != "?"; ++i) {
        state = next_state(state, parse_loss_scale(ours), each.pattern[i] != 'O');
        if (state.scale != std::strtod(scales[i].c_str(), nullptr)) return true;
      }
    }
    return false;
  };
  EXPECT_TRUE(differs("keras3", "keras3:backend=torch"));
  EXPECT_TRUE(differs("torch:init=32768", "tf-keras"));
  EXPECT_TRUE(differs("deepspeed:hysteresis=1", "deepspeed"));
  EXPECT_TRUE(differs("apex:max=1048576,window=3,min=128", "apex:window=3,min=128,max=262144"));
  EXPECT_FALSE(differs("torch", "torch"));
}

}  // namespace
}  // namespace halfscope
