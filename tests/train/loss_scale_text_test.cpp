// SPDX-License-Identifier: MIT
// The values of --loss-scale for the frameworks' scalers, and that run files and checkpoints get a
// text that means the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/backend/loss_scaler.h"
#include "core/error.h"

namespace halfscope {
namespace {

using Kind = LossScalerConfig::Kind;
using testing::HasSubstr;

TEST(LossScaleText, DefaultsAreTheFrameworks) {
  const auto config = [](const char* text) { return parse_loss_scale(text); };
  EXPECT_EQ(config("torch").initial, 65536.0);
  EXPECT_EQ(config("torch").growth_interval, 2000);
  EXPECT_EQ(config("tf-keras").initial, 32768.0);
  EXPECT_EQ(config("keras3").initial, 32768.0);
  EXPECT_TRUE(config("keras3").flushes);
  EXPECT_EQ(config("apex").maximum, 0x1p24);
  EXPECT_EQ(config("apex").growth_interval, 2000);
  EXPECT_EQ(config("apex-fp16-utils").initial, 0x1p32);
  EXPECT_EQ(config("apex-fp16-utils").growth_interval, 1000);
  EXPECT_EQ(config("deepspeed").hysteresis, 2);
  EXPECT_EQ(config("deepspeed").minimum, 1.0);
  EXPECT_TRUE(config("deepspeed").raises);
  EXPECT_EQ(config("deepspeed-bf16").kind, Kind::deepspeed_bf16);
}

TEST(LossScaleText, ComesBackTheSame) {
  const std::pair<const char*, const char*> texts[] = {
      {"none", "none"},
      {"dynamic", "dynamic:65536"},
      {"dynamic:0.1", "dynamic:0.1"},
      {"static:1e3", "static:1000"},
      {"torch", "torch:init=65536"},
      {"torch:init=65536,growth=2,backoff=0.5,interval=2000", "torch:init=65536"},
      {"torch:init=0.1,growth=1.1,backoff=0.9,interval=7",
       "torch:init=0.1,growth=1.1,backoff=0.9,interval=7"},
      {"torch:window=7", "torch:init=65536,interval=7"},
      {"tf-keras:interval=5", "tf-keras:init=32768,interval=5"},
      {"tf-keras:static=1024", "tf-keras:static=1024"},
      {"keras3:backend=jax", "keras3:init=32768"},
      {"keras3:backend=torch", "keras3:init=32768,backend=torch"},
      {"apex:min=1,max=1024,sum", "apex:init=65536,min=1,max=1024,sum"},
      {"apex-fp16-utils:factor=3", "apex-fp16-utils:init=4294967296,factor=3"},
      {"deepspeed:init=65536,window=1000,hysteresis=2,min=1,raise", "deepspeed:init=65536"},
      {"deepspeed:consecutive,interval=9", "deepspeed:init=65536,window=9,consecutive"},
      {"deepspeed:fused", "deepspeed:init=65536,hysteresis=1,no-raise"},
      {"deepspeed:fused,no-raise", "deepspeed:init=65536,hysteresis=1,no-raise"},
      // apex lowers a first scale above its maximum; equal limits are a constant scale.
      {"apex:init=4,max=2", "apex:init=4,max=2"},
      {"apex:init=8,min=2,max=2", "apex:init=8,min=2,max=2"},
      {"deepspeed:init=4,min=4", "deepspeed:init=4,min=4"},
      {"tf-keras:init=0.25", "tf-keras:init=0.25"},
      {"deepspeed:static=128", "deepspeed:static=128"},
      {"deepspeed-bf16", "deepspeed-bf16"}};
  for (const auto& [text, canonical] : texts) {
    const LossScalerConfig config = parse_loss_scale(text);
    EXPECT_EQ(loss_scale_text(config), canonical);
    EXPECT_EQ(parse_loss_scale(canonical), config) << text;
    EXPECT_EQ(read_loss_scale(text), config);
  }
}

TEST(LossScaleText, MistakesAreExplained) {
  const std::pair<const char*, const char*> mistakes[] = {
      {"torch:", "no option after the colon"},
      {"torch:init=2,", "unknown option ''"},
      {"torch:growth=nan", "growth=nan is not a positive number"},
      {"torch:backoff=0", "backoff=0 is not a positive number"},
      {"apex-fp16-utils:factor=0.5", "factor must be larger than 1"},
      {"deepspeed:window=0", "window=0 is not a number of steps"},
      {"deepspeed:hysteresis=0", "hysteresis=0 is not a number of steps"},
      {"apex:min=5,max=2", "min=5 is larger than max=2"},
      {"apex:init=1,min=2", "the first scale, 1, is below min=2, so an overflow would raise it"},
      {"deepspeed:min=131072", "the first scale, 65536, is below min=131072"},
      {"deepspeed:raise,no-raise", "raise and no-raise contradict each other"},
      {"deepspeed:fused,hysteresis=3", "DeepSpeed's fused optimizer has no hysteresis"},
      {"deepspeed:consecutive,fused", "DeepSpeed's fused optimizer has no hysteresis"},
      {"deepspeed:raise,fused", "DeepSpeed's fused optimizer raises no error"},
      {"torch:growth=1", "growth must be larger than 1"},
      {"torch:backoff=1", "backoff must be smaller than 1"},
      {"torch:interval=0", "interval=0 is not a number of steps"},
      {"torch:interval=2.5", "interval=2.5 is not a number of steps"},
      {"torch:init=0", "init=0 is not a positive number"},
      {"torch:init=1e39", "init=1e39 is not a positive number"},
      {"torch:init=inf", "init=inf is not a positive number"},
      {"torch:init=1,init=2", "occurs twice"},
      {"torch:window=1,interval=2", "occurs twice"},
      {"torch:hysteresis=2", "unknown option 'hysteresis=2'"},
      {"torch:static=8", "torch has no static scale"},
      {"tf-keras:static=8,interval=3", "a static scale has no other options"},
      {"keras3:backend=mxnet", "unknown backend 'mxnet'"},
      {"deepspeed:consecutive=1", "consecutive takes no value"},
      {"deepspeed:min=0", "min=0 is not a positive number"},
      {"deepspeed-bf16:init=4", "unknown option"},
      {"tensorflow", "unknown loss scale 'tensorflow'"}};
  for (const auto& [text, what] : mistakes) {
    try {
      parse_loss_scale(text);
      ADD_FAILURE() << "accepted: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage) << text;
      EXPECT_THAT(error.what(), HasSubstr(what)) << text;
      EXPECT_THAT(error.what(), HasSubstr(text));
      EXPECT_FALSE(error.hint().empty()) << text;
    }
    EXPECT_FALSE(read_loss_scale(text)) << text;
  }
}

TEST(LossScaleText, HintsAtTheNearestWord) {
  const auto hint = [](const char* text) -> std::string {
    try {
      parse_loss_scale(text);
    } catch (const Error& error) {
      return error.hint();
    }
    return "";
  };
  EXPECT_THAT(hint("tfkeras"), HasSubstr("did you mean tf-keras?"));
  EXPECT_THAT(hint("deepspede"), HasSubstr("did you mean deepspeed?"));
  EXPECT_THAT(hint("torch:intervall=3"), HasSubstr("did you mean interval?"));
  EXPECT_THAT(hint("apex:growth=3"), HasSubstr("apex has the options init, window, min, max"));
}

}  // namespace
}  // namespace halfscope
