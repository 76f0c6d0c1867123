// SPDX-License-Identifier: MIT
// Tests for overflow that look at single gradients, on gradients written by hand. The fp32 sums are
// those of torch 2.15 (`float(x.float().sum())`).
#include "core/backend/overflow_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "emulation/backends.h"
#include "tests/special_values.h"

namespace halfscope {
namespace {

using Values = std::vector<std::vector<float>>;  // of each gradient

/// Gradients of the given format and their norm.
class Gradients {
 public:
  explicit Gradients(const Values& values, const FloatFormat& format = kFp32) {
    std::vector<ValueId> inputs;
    for (const std::vector<float>& each : values) {
      inputs.push_back(executable_.graph.add_input("g", {static_cast<int64_t>(each.size())}));
      executable_.graph.value(inputs.back()).format = format;
    }
    executable_.gradient_norm = executable_.graph.add1("GradientNorm", "norm", inputs);
    executable_.entries[static_cast<size_t>(Entry::norm)] = {
        executable_.graph.value(executable_.gradient_norm).producer};
    program_ = emulation_backend().compile(executable_);
    for (size_t i = 0; i < values.size(); ++i) {
      program_->write(inputs[i], std::span<const float>(values[i]));
    }
    program_->run(Entry::norm, {});
  }

  bool finite(const char* scaler, double scale = 65536.0) const {
    const LossScalerConfig config = parse_loss_scale(scaler);
    LossScalerState state = initial_state(config);
    state.scale = scale;
    return finds_finite(config, state, executable_, *program_,
                        program_->read_scalar(executable_.gradient_norm));
  }
  bool differs(const char* scaler) const {
    return can_differ(parse_loss_scale(scaler), executable_);
  }

 private:
  Executable executable_;
  std::unique_ptr<Program> program_;
};

TEST(OverflowCheck, SumsOfFiniteElementsOverflow) {
  const Gradients two(Values{{1.0f}, {3e38f, 3e38f}});
  for (const char* sums : {"apex-fp16-utils", "apex:sum", "deepspeed:sum", "deepspeed:fused,sum"}) {
    EXPECT_FALSE(two.finite(sums)) << sums;
  }
  for (const char* elements : {"torch", "dynamic", "keras3", "tf-keras", "apex", "deepspeed"}) {
    EXPECT_TRUE(two.finite(elements)) << elements;
  }
  // Each tensor has its own sum.
  EXPECT_TRUE(Gradients(Values{{3e38f}, {3e38f}}).finite("apex-fp16-utils"));
  // The bound from the norm lets these through to the sum, which is small.
  EXPECT_TRUE(Gradients(Values{{3e38f, -3e38f, 3e38f}}).finite("apex-fp16-utils"));
  EXPECT_FALSE(Gradients(Values{{2e38f, 2e38f, -2e38f, -2e38f}}).finite("apex-fp16-utils"))
      << "inf on the way stays";
  EXPECT_FALSE(Gradients(Values{{-2e38f, -2e38f}}).finite("deepspeed:sum"));
  // Thousands of moderate gradients.
  const std::vector<float> many(40000, 1e34f);
  EXPECT_FALSE(Gradients(Values{many}).finite("apex-fp16-utils"));
  EXPECT_TRUE(Gradients(Values{many}).finite("torch"));
  EXPECT_TRUE(Gradients(Values{std::vector<float>(30000, 1e34f)}).finite("apex-fp16-utils"));
}

TEST(OverflowCheck, InfinityAndNanAreFoundByAll) {
  for (const float bad : {kInf, -kInf, std::nanf("")}) {
    const Gradients gradients(Values{{1.0f, bad, 2.0f}});
    for (const char* scaler : {"torch", "tf-keras", "keras3", "apex", "apex-fp16-utils",
                               "deepspeed", "deepspeed-bf16", "dynamic", "static:8"}) {
      EXPECT_FALSE(gradients.finite(scaler)) << scaler;
    }
  }
}

TEST(OverflowCheck, TfKerasTestsAfterUnscaling) {
  const Gradients large(Values{{1e38f, 1.0f}});
  EXPECT_FALSE(large.finite("tf-keras:init=0.25", 0.25)) << "4e38";
  EXPECT_TRUE(large.finite("tf-keras:init=0.5", 0.5)) << "2e38";
  EXPECT_TRUE(large.finite("keras3:init=0.25", 0.25)) << "tests before it divides";
  EXPECT_TRUE(large.finite("torch:init=0.25", 0.25));
  // The norm exceeds the range, the elements do not.
  EXPECT_TRUE(Gradients(Values{std::vector<float>(16, 8e37f)}).finite("tf-keras:init=0.25", 0.25));
}

TEST(OverflowCheck, OnlyWideFormatsNeedIt) {
  const std::vector<float> values(1000, 1.0f);
  const Gradients half(Values{values}, kFp16), brain(Values{values}, kBf16), single(Values{values});
  for (const char* sums : {"apex-fp16-utils", "deepspeed:sum"}) {
    EXPECT_FALSE(half.differs(sums)) << "65504 a thousand times is within fp32";
    EXPECT_TRUE(brain.differs(sums));
    EXPECT_TRUE(single.differs(sums));
  }
  for (const char* elements : {"torch", "deepspeed", "keras3:init=0.1", "tf-keras", "dynamic"}) {
    EXPECT_FALSE(single.differs(elements)) << elements;
  }
  EXPECT_TRUE(single.differs("tf-keras:init=0.25"));
}

}  // namespace
}  // namespace halfscope
