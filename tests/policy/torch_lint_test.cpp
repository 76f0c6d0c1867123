// SPDX-License-Identifier: MIT
// Lint of losses in files of PyTorch: what autocast refuses according to PyTorch itself, and what
// is only written like it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "analysis/plans/lint.h"
#include "core/backend/loss_scaler.h"
#include "core/policy/policy.h"
#include "core/policy/torch.h"
#include "tests/policy/torch_archive.h"

namespace halfscope {
namespace {

using test::archive;
using test::Json;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kError = "binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast";

std::vector<Finding> findings_about_losses(const std::string& network, const Plan& plan) {
  LintedTraining training;
  training.scaler = parse_loss_scale("dynamic");
  std::vector<Finding> found = lint_plan(test::network_of(network), plan, training);
  std::erase_if(found, [](const Finding& each) { return !each.rule.starts_with("bce_"); });
  return found;
}

std::vector<Finding> findings_about_losses(const std::string& network, const std::string& preset) {
  return findings_about_losses(network, preset_plan(preset, test::network_of(network)).value());
}

/// Returns PyTorch's error under a policy; "" if there is none.
std::string error_of(const Json& given, const char* policy) {
  return given["policies"][policy].value("error", "");
}

TEST(TorchLint, FindsTheLossesThatAutocastRefuses) {
  int refused = 0;
  for (const auto& [name, given] : archive().dtypes["cases"].items()) {
    const bool refuses = error_of(given, "cuda-fp16").find(kError) != std::string::npos;
    refused += refuses ? 1 : 0;
    for (const char* preset : {"torch-autocast-fp16", "torch-autocast-bf16"}) {
      const std::vector<Finding> found = findings_about_losses(name, preset);
      const auto count = std::count_if(found.begin(), found.end(), [](const Finding& each) {
        return each.rule == "bce_under_autocast";
      });
      EXPECT_EQ(count, refuses ? 1 : 0) << name;
      if (!refuses) continue;
      EXPECT_EQ(found.size(), 1u) << name;
      EXPECT_EQ(found.front().severity, Severity::error);
      EXPECT_THAT(found.front().text, HasSubstr(kError));
      EXPECT_THAT(found.front().action.text, HasSubstr("binary_cross_entropy_with_logits"));
    }
  }
  EXPECT_GE(refused, 1);
}

/// A copy of a preset in a file has another name, and a file may have a preset's name.
TEST(TorchLint, RefusedLossesDoNotDependOnThePlansName) {
  const Model model = test::network_of("loss_bce.dynamo");
  Plan plan = preset_plan("torch-autocast-fp16", model).value();
  plan.name = "mine";
  EXPECT_EQ(findings_about_losses("loss_bce.dynamo", plan).size(), 1u);
  Plan pure = preset_plan("float32").value();
  pure.name = "torch-autocast-fp16";
  EXPECT_THAT(findings_about_losses("loss_bce.dynamo", pure), IsEmpty());
  EXPECT_EQ(torch_autocast(plan), torch_autocast("torch-autocast-fp16"));
  EXPECT_FALSE(torch_autocast(preset_plan("mixed_float16").value()).has_value());
  EXPECT_FALSE(torch_autocast(pure).has_value());
  for (const PresetInfo& info : presets()) {
    if (info.needs_network) continue;
    EXPECT_EQ(torch_autocast(preset_plan(info.name).value()), torch_autocast(info.name))
        << info.name;
  }
}

TEST(TorchLint, ARuleOfTheUserTakesTheLossOutOfAutocast) {
  const Model model = test::network_of("loss_bce.dynamo");
  Plan plan = preset_plan("torch-autocast-fp16", model).value();
  const std::vector<Finding> found = findings_about_losses("loss_bce.dynamo", plan);
  ASSERT_EQ(found.size(), 1u);
  // The loss with all that it computes in fp32, from the sigmoid on.
  bool from_here = false;
  for (const Node& node : model.graph.nodes()) {
    from_here = from_here || node.op == "Sigmoid";
    if (from_here) keep_fp32(plan, node.path);
  }
  EXPECT_THAT(findings_about_losses("loss_bce.dynamo", plan), IsEmpty());
}

TEST(TorchLint, LossesOfLogitsAreFineHoweverTheyAreWritten) {
  int files = 0;
  for (const auto& [name, given] : archive().dtypes["cases"].items()) {
    if (!name.starts_with("loss_bce_logits") && !name.starts_with("gan_discriminator")) continue;
    ++files;
    for (const PresetInfo& preset : presets()) {
      EXPECT_THAT(findings_about_losses(name, preset.name), IsEmpty()) << name << preset.name;
    }
  }
  EXPECT_EQ(files, 6);  // both exporters
}

TEST(TorchLint, LossesOfLogitsAreFp32UnderAutocast) {
  for (const char* name : {"loss_bce_logits.dynamo", "loss_bce_logits.script",
                           "loss_bce_logits_weighted.dynamo", "loss_bce_logits_weighted.script"}) {
    const Model model = test::network_of(name);
    const Executable executable =
        lower(model, preset_plan("torch-autocast-fp16", model).value(), {});
    bool in_loss = false;
    int parts = 0;
    for (const LayerInfo& layer : executable.layers) {
      if (in_loss) {
        EXPECT_EQ(layer.read, kFp32) << name << " " << layer.path;
        EXPECT_EQ(layer.write, kFp32) << name << " " << layer.path;
        ++parts;
      }
      in_loss = in_loss || layer.path == "last";
    }
    EXPECT_GE(parts, 6) << name;
  }
}

TEST(TorchLint, RoundedProbabilitiesAreFoundInEveryForm) {
  for (const char* name : {"loss_bce_by_hand.dynamo", "loss_bce_by_hand.script"}) {
    const std::vector<Finding> found = findings_about_losses(name, "torch-autocast-fp16");
    ASSERT_EQ(found.size(), 1u) << name;
    EXPECT_EQ(found.front().rule, "bce_in_half") << name;
    EXPECT_THAT(found.front().text, HasSubstr("infinite"));
    EXPECT_THAT(findings_about_losses(name, "float32"), IsEmpty()) << name;
  }
  // PyTorch's own function limits the logarithms.
  const std::vector<Finding> half = findings_about_losses("loss_bce.dynamo", "torch-half");
  ASSERT_EQ(half.size(), 1u);
  EXPECT_EQ(half.front().rule, "bce_in_half");
  EXPECT_THAT(half.front().text, HasSubstr("0 or 100"));
  // On the CPU, it is on the fp32 list, but the sigmoid before it is not.
  EXPECT_EQ(findings_about_losses("loss_bce.dynamo", "torch-autocast-cpu-bf16").size(), 1u);
}

}  // namespace
}  // namespace halfscope
