// SPDX-License-Identifier: MIT
// The loss scaler against torch's GradScaler: a golden trace, the extremes of fp32, which steps
// are skipped, and what --loss-scale accepts.
#include "core/backend/loss_scaler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace halfscope {
namespace {

using Kind = LossScalerConfig::Kind;

TEST(LossScaler, GoldenTraceOfTorch) {
  LossScalerConfig config{.kind = Kind::dynamic, .initial = 65536.0f};
  config.growth_interval = 3;
  LossScalerState state = initial_state(config);
  EXPECT_EQ(state.scale, 65536.0f);
  const std::string_view pattern = "FFFOFFFFOOFFFF";  // O: overflow
  const std::vector<int> kilo{64, 64, 128, 64, 64, 64, 128, 128, 64, 32, 32, 32, 64, 64};
  const std::vector<int> tracker{1, 2, 0, 0, 1, 2, 0, 1, 0, 0, 1, 2, 0, 1};
  for (size_t i = 0; i < pattern.size(); ++i) {
    const bool finite = pattern[i] == 'F';
    EXPECT_EQ(skips(config, finite), !finite) << i;
    state = next_state(state, config, finite);
    EXPECT_EQ(state.scale, 1024.0f * static_cast<float>(kilo[i])) << i;
    EXPECT_EQ(state.tracker, tracker[i]) << i;
  }
}

TEST(LossScaler, DefaultsAreTorchs) {
  const LossScalerConfig config = parse_loss_scale("dynamic");
  EXPECT_EQ(config.initial, 65536.0f);
  EXPECT_EQ(config.growth, 2.0f);
  EXPECT_EQ(config.backoff, 0.5f);
  EXPECT_EQ(config.growth_interval, 2000);
  LossScalerState state = initial_state(config);
  for (int step = 0; step < 1999; ++step) state = next_state(state, config, true);
  EXPECT_EQ(state.scale, 65536.0f);
  EXPECT_EQ(next_state(state, config, true).scale, 131072.0f);
}

TEST(LossScaler, DoublingStopsBeforeInfinity) {
  LossScalerConfig config{.kind = Kind::dynamic, .initial = 65536.0f};
  config.growth_interval = 1;
  LossScalerState state = initial_state(config);
  for (int doublings = 1; doublings <= 111; ++doublings) {
    state = next_state(state, config, true);
    EXPECT_EQ(state.scale, std::ldexp(65536.0f, doublings));
  }
  for (int more = 0; more < 5; ++more) {
    state = next_state(state, config, true);
    EXPECT_EQ(state.scale, 0x1p127f);
    EXPECT_EQ(state.tracker, 0);
  }
}

TEST(LossScaler, HalvingReachesZeroAfter166Steps) {
  const LossScalerConfig config = parse_loss_scale("dynamic");
  LossScalerState state = initial_state(config);
  for (int halvings = 1; halvings <= 165; ++halvings) {
    state = next_state(state, config, false);
    EXPECT_EQ(state.scale, std::ldexp(65536.0f, -halvings)) << halvings;
    EXPECT_GT(state.scale, 0.0f);
  }
  state = next_state(state, config, false);
  EXPECT_EQ(state.scale, 0.0f);
}

TEST(LossScaler, ConstantSkipsButDoesNotMoveAndNoneDoesNeither) {
  const LossScalerConfig constant = parse_loss_scale("static:1024");
  LossScalerState state = initial_state(constant);
  EXPECT_EQ(state.scale, 1024.0f);
  EXPECT_TRUE(skips(constant, false));
  EXPECT_FALSE(skips(constant, true));
  for (bool finite : {true, false}) EXPECT_EQ(next_state(state, constant, finite).scale, 1024.0f);

  const LossScalerConfig none = parse_loss_scale("none");
  EXPECT_EQ(initial_state(none).scale, 1.0f);
  EXPECT_FALSE(skips(none, false)) << "the non-finite update is applied, as without a scaler";
  EXPECT_EQ(next_state(initial_state(none), none, false).scale, 1.0f);
}

TEST(LossScaler, IsUsableInConstantExpressions) {
  constexpr LossScalerConfig config{.kind = Kind::dynamic, .initial = 8.0f};
  static_assert(next_state(initial_state(config), config, false).scale == 4.0f);
  static_assert(skips(config, false));
}

TEST(LossScaler, WhatTheFlagAccepts) {
  EXPECT_EQ(parse_loss_scale("none").kind, Kind::none);
  EXPECT_EQ(parse_loss_scale("dynamic:8").initial, 8.0f);
  EXPECT_EQ(parse_loss_scale("dynamic:8").kind, Kind::dynamic);
  EXPECT_EQ(parse_loss_scale("static:0.5").initial, 0.5f);
  EXPECT_EQ(parse_loss_scale("static:1e3").kind, Kind::constant);
  for (const char* text :
       {"", "static", "static:", "dynamic:", "static:0", "static:-1", "static:nan", "static:inf",
        "static:1e39", "static:1x", "dynamic:two", "none:1", "fixed:2", "Dynamic", "static:1:2"}) {
    try {
      parse_loss_scale(text);
      ADD_FAILURE() << "accepted: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage) << text;
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace halfscope
