// SPDX-License-Identifier: MIT
// Presets of PyTorch and apex: what each level does, the lists, and regions without autocast.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "core/error.h"
#include "core/lower/lower.h"
#include "core/models/models.h"
#include "core/ops/ops.h"
#include "core/policy/policy.h"
#include "core/policy/torch.h"
#include "core/policy/torch_lists.h"
#include "tests/policy/normalization.h"

namespace halfscope {
namespace {

using testing::HasSubstr;

NodePlan node_of(const char* preset, const char* op) {
  return resolve(preset_plan(preset).value(), "layer", op);
}

TEST(TorchPlans, EveryOperatorOfNetworksHasAFunction) {
  for (const OpDef& def : op_table()) {
    if (def.autocast == Autocast::internal) continue;
    const TorchFunction* function = torch_function(def.name);
    ASSERT_NE(function, nullptr) << def.name << " needs a row in core/policy/torch.cpp";
    EXPECT_STREQ(function->op, def.name);
  }
}

TEST(TorchPlans, EveryRuleSaysWhy) {
  for (const PresetInfo& info : presets()) {
    if (info.group != "PyTorch" && info.group != "apex") continue;
    const Plan plan = preset_plan(info.name).value();
    for (const PlanRule& rule : plan.rules) {
      EXPECT_FALSE(rule.why.empty()) << info.name << " " << rule.op;
      EXPECT_FALSE(rule.change.empty()) << info.name << " " << rule.op;
    }
    EXPECT_EQ(plan_to_json(plan_from_json(plan_to_json(plan))), plan_to_json(plan)) << info.name;
  }
  const Plan plan = preset_plan("torch-autocast-fp16").value();
  for (const PlanRule& rule : plan.rules) {
    if (rule.op == "Softmax") {
      EXPECT_THAT(rule.why, HasSubstr("softmax is on autocast's fp32 list (CUDA)"));
    }
  }
}

// The plain names are the autocast on CUDA.
TEST(TorchPlans, MixedPresetsAreTheAutocast) {
  for (const auto& [plain, full] : {std::pair("mixed_float16", "torch-autocast-fp16"),
                                    std::pair("mixed_bfloat16", "torch-autocast-bf16")}) {
    for (const OpDef& def : op_table()) {
      if (def.autocast == Autocast::internal) continue;
      const NodePlan a = node_of(plain, def.name), b = node_of(full, def.name);
      EXPECT_EQ(a.follows, b.follows) << def.name;
      if (a.follows) continue;
      EXPECT_EQ(a.read, b.read) << def.name;
      EXPECT_EQ(a.write, b.write) << def.name;
    }
  }
}

TEST(TorchPlans, TheDeviceDecidesTheLists) {
  EXPECT_EQ(node_of("torch-autocast-bf16", "Softmax").write, kFp32);
  EXPECT_TRUE(node_of("torch-autocast-cpu-bf16", "Softmax").follows);
  EXPECT_TRUE(node_of("torch-autocast-fp16", "ReduceMean").follows);
  EXPECT_EQ(node_of("torch-autocast-fp16", "PRelu").read, kFp16);
  EXPECT_EQ(node_of("torch-autocast-cpu-fp16", "MeanSquaredError").write, kFp32);
}

/// TorchScript's exporter writes a linear layer with 3-D inputs as MatMul and Add; PyTorch adds its
/// bias in the format of the product, where other sums follow the fp32 bias.
TEST(TorchPlans, MixedPlansAddTheBiasOfALinearLayerInItsFormat) {
  Model model;
  Graph& graph = model.graph;
  model.input = graph.add_input("x", {2, 3, 4});
  const ValueId weight = graph.add_variable("fc.weight", {4, 5}, {});
  const ValueId bias = graph.add_variable("fc.bias", {5}, {});
  const ValueId product = graph.add1("MatMul", "fc", {model.input, weight});
  const ValueId sum = graph.add1("Add", "fc:bias", {bias, product},
                                 {{kTorchFunction, torch_function_number("linear")}});
  const ValueId own = graph.add1("Add", "own", {bias, sum});
  model.outputs = {{"y", own}};
  const auto of = [&](const char* preset, const char* path) {
    return resolve(preset_plan(preset, model).value(), path, "Add");
  };
  for (const char* preset : {"mixed_float16", "torch-autocast-fp16"}) {
    EXPECT_EQ(of(preset, "fc:bias").write, kFp16) << preset;
    EXPECT_FALSE(of(preset, "fc:bias").follows) << preset;
    EXPECT_TRUE(of(preset, "own").follows) << preset;
  }
  for (const char* preset : {"mixed_bfloat16", "fp8_current", "mxfp8", "nvfp4"}) {
    EXPECT_EQ(of(preset, "fc:bias").write, kBf16) << preset;
    EXPECT_TRUE(of(preset, "own").follows) << preset;
  }
}

/// softmax(x.float()).to(low) in the network's code, once as it is and once in a region without
/// autocast on CUDA.
TEST(TorchPlans, CastsAndRegionsOfTheCodeHaveRules) {
  Model model;
  Graph& graph = model.graph;
  using Devices = std::vector<int64_t>;  // CUDA, CPU
  const auto to = [](TorchCast cuda, TorchCast cpu) {
    return Attributes{{kTorchCast, Devices{static_cast<int64_t>(cuda), static_cast<int64_t>(cpu)}}};
  };
  model.input = graph.add_input("x", {2, 4});
  const ValueId weight = graph.add_variable("fc.weight", {4, 4}, {});
  ValueId x = graph.add1("MatMul", "fc", {model.input, weight});
  x = graph.add1("Identity", "wide", {x}, to(TorchCast::float32, TorchCast::none));
  x = graph.add1("Softmax", "inside", {x}, {{"axis", int64_t{-1}}, {kAutocastOff, Devices{1, 0}}});
  x = graph.add1("Identity", "narrow", {x}, to(TorchCast::low, TorchCast::low));
  x = graph.add1("Softmax", "outside", {x}, {{"axis", int64_t{-1}}});
  x = graph.add1("MatMul", "own", {x, weight}, {{kAutocastOff, Devices{1, 1}}});
  const ValueId bias = graph.add_variable("fc.bias", {4}, {});
  // Listed by its function, but not by its operator.
  x = graph.add1(
      "Add", "own:bias", {x, bias},
      {{kAutocastOff, Devices{1, 1}}, {kTorchFunction, torch_function_number("linear")}});
  model.outputs = {{"y", x}};
  const auto of = [&](const char* preset, const char* path) {
    const auto node = std::find_if(graph.nodes().begin(), graph.nodes().end(),
                                   [&](const Node& each) { return each.path == path; });
    return resolve(preset_plan(preset, model).value(), path, node->op);
  };
  for (const char* preset : {"torch-autocast-fp16", "mixed_float16"}) {
    EXPECT_FALSE(of(preset, "wide").follows) << preset;
    EXPECT_EQ(of(preset, "wide").write, kFp32) << preset;
    EXPECT_TRUE(of(preset, "inside").follows) << preset;
    EXPECT_EQ(of(preset, "narrow").read, kFp16) << preset;
    EXPECT_EQ(of(preset, "outside").read, kFp32) << preset;
    EXPECT_TRUE(of(preset, "own").follows) << preset;
    EXPECT_TRUE(of(preset, "own:bias").follows) << preset;
    EXPECT_EQ(of(preset, "fc").read, kFp16) << preset;
  }
  // No cast there on the CPU, whose lists also leave a softmax alone.
  EXPECT_TRUE(of("torch-autocast-cpu-bf16", "wide").follows);
  EXPECT_EQ(of("torch-autocast-cpu-bf16", "narrow").write, kBf16);
  EXPECT_TRUE(of("torch-autocast-cpu-bf16", "own").follows);
  EXPECT_EQ(of("float16", "wide").write, kFp16) << "model.half() has no autocast";
}

TEST(TorchPlans, ApexLevels) {
  EXPECT_TRUE(is_full_precision(*preset_plan("apex-O0")));
  EXPECT_EQ(node_of("apex-O1", "Gelu").write, kFp32);
  EXPECT_TRUE(node_of("apex-O1", "BatchNormalization").follows);
  EXPECT_EQ(preset_plan("apex-O2")->storage, kFp32);
  EXPECT_EQ(preset_plan("apex-O2")->initial, kFp16);
  EXPECT_EQ(node_of("apex-O2", "Softmax").write, kFp16);
  for (const char* preset : {"apex-O2", "apex-O3-bn-fp32", "network-to-half"}) {
    EXPECT_EQ(node_of(preset, "BatchNormalization").read, kFp32) << preset;
    EXPECT_EQ(node_of(preset, "BatchNormalization").write, kFp16) << preset;
    EXPECT_FALSE(node_of(preset, "BatchNormalization").rounds_weights) << preset;
  }
  EXPECT_EQ(node_of("apex-O3", "BatchNormalization").read, kFp16);
  EXPECT_EQ(preset_plan("network-to-half")->initial, kFp16);
  EXPECT_EQ(preset_plan("apex-O3-bn-fp32")->storage, kFp16);
  EXPECT_FALSE(preset_plan("apex-O3-bn-fp32")->initial.has_value()) << "they are never cast";
}

/// apex's convert_network and BN_convert_float leave a batch normalization in fp32 if its `affine`
/// is true. Without, PyTorch's exporter writes scale and shift as constant ones and zeros.
TEST(TorchPlans, ApexKeepsOnlyAffineBatchNormalizations) {
  Model model;
  Graph& graph = model.graph;
  ValueId x = model.input = graph.add_input("x", {2, 3, 4, 4});
  const auto statistic = [&](const std::string& path) { return graph.add_buffer(path, {3}, {}); };
  const auto norm = [&](const std::string& path, ValueId scale, ValueId shift) {
    x = graph
            .add("BatchNormalization", path,
                 {x, scale, shift, statistic(path + ".mean"), statistic(path + ".var")},
                 {{"epsilon", 1e-5}})
            .front();
  };
  const auto constant = [&](float value) {
    return graph.add_constant(Tensor{{3}, std::vector<float>(3, value)});
  };
  norm("affine", graph.add_variable("affine.weight", {3}, {}),
       graph.add_variable("affine.bias", {3}, {}));
  norm("plain", constant(1.0f), constant(0.0f));
  norm("frozen", constant(0.5f), constant(0.0f));
  for (const char* preset : {"apex-O2", "apex-O3-bn-fp32", "network-to-half"}) {
    const Plan plan = preset_plan(preset, model).value();
    const auto reads = [&](const char* path) {
      return resolve(plan, path, "BatchNormalization").read;
    };
    EXPECT_EQ(reads("affine"), kFp32) << preset;
    EXPECT_EQ(reads("plain"), kFp16) << preset;
    EXPECT_EQ(reads("frozen"), kFp32) << preset << ": these are values of affine parameters";
    EXPECT_EQ(resolve(plan, "plain", "Conv").read, resolve(plan, "other", "Conv").read);
  }
  // convert_module casts the buffers of the modules that convert_network does not leave out.
  model.outputs = {{"y", x}};
  for (const char* preset : {"apex-O2", "apex-O3-bn-fp32", "network-to-half"}) {
    const Graph planned = lower_inference(model, preset_plan(preset, model).value()).graph;
    for (const Variable& variable : planned.variables()) {
      if (!variable.buffer) continue;
      const bool plain = variable.path.starts_with("plain.");
      EXPECT_EQ(planned.value(variable.value).format, plain ? kFp16 : kFp32)
          << preset << " " << variable.path;
    }
  }
}

/// Weights are copies of fp32 master weights, so no reason may say that they are stored in fp16.
TEST(TorchPlans, ApexO2GivesOneReasonForAllItsLayers) {
  const Plan plan = preset_plan("apex-O2").value();
  EXPECT_THAT(plan.why, HasSubstr("with fp16 copies of fp32 master weights"));
  for (const PlanRule& rule : plan.rules) {
    EXPECT_EQ(rule.why == plan.why, rule.op != "BatchNormalization") << rule.op;
  }
}

TEST(TorchPlans, ApexsRefusals) {
  const auto message = [](const char* name) -> std::string {
    try {
      load_plan(name);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_NE(error.hint(), "");
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message("apex-O1-bn-fp32"), HasSubstr("apex refuses keep_batchnorm_fp32 with O1"));
  EXPECT_THAT(message("apex-O1-master-weights"), HasSubstr("apex refuses master_weights with O1"));
  EXPECT_THAT(message("apex-O4"), HasSubstr("no plan named 'apex-O4'"));
}

TEST(TorchPlans, Tf32IsForProducts) {
  EXPECT_EQ(node_of("tf32", "Gemm").read, kTf32);
  EXPECT_EQ(node_of("tf32", "Gemm").write, kFp32);
  EXPECT_EQ(node_of("tf32", "Gemm").rounding.mode, RoundingMode::nearest_away);
  EXPECT_EQ(node_of("tf32", "Softmax").read, kFp32);
  EXPECT_FALSE(needs_loss_scaling(*preset_plan("tf32")));
}

TEST(TorchLists, AreSortedByName) {
  std::string last;
  for (const TorchListed& row : torch_lists()) {
    EXPECT_LT(last, row.name);
    last = row.name;
    EXPECT_EQ(find_torch_listed(row.name), &row);
    EXPECT_EQ(&torch_lists()[static_cast<size_t>(torch_function_number(row.name)) - 1], &row);
  }
  EXPECT_EQ(find_torch_listed("mean"), nullptr);
  EXPECT_EQ(torch_function_number("mean"), 0);
}

Plan with_region(const char* path) {
  Plan plan = preset_plan("torch-autocast-fp16").value();
  plan.rules.push_back({.path = path, .op = "", .follow = true, .same_formats = true});
  return plan;
}

TEST(AutocastOff, ProductsOfDifferentFormatsAreRefused) {
  const Model model = build_model("lenet", 4, {1, 28, 28}, 10);
  try {
    lower(model, with_region("fc1"), {});
    FAIL() << "fp16 activations and fp32 weights";
  } catch (const Error& error) {
    EXPECT_THAT(std::string(error.what()),
                HasSubstr("fc1: autocast is off here, so Gemm would multiply fp16 by fp32"));
    EXPECT_THAT(std::string(error.hint()), HasSubstr("{\"path\": \"fc1\", \"format\": \"fp32\"}"));
    EXPECT_EQ(error.kind(), ErrorKind::usage);
  }
  // The first layer reads fp32 data.
  const Executable first = lower(model, with_region("conv1"), {});
  for (const LayerInfo& layer : first.layers) {
    if (layer.path == "conv1") {
      EXPECT_EQ(layer.write, kFp32);
    }
    if (layer.path == "conv2") {
      EXPECT_EQ(layer.write, kFp16);
    }
  }
}

TEST(AutocastOff, NothingIsCast) {
  Model model = test::normalization();
  Graph& graph = model.graph;
  const ValueId y = graph.add1("MatMul", "mm", {model.input, graph.add_variable("w", {4, 4}, {})});
  const ValueId soft = graph.add1("Softmax", "soft", {y}, {{"axis", int64_t{-1}}});
  model.outputs = {{"soft", soft}};
  const auto format = [&](const Plan& plan) {
    return lower_inference(model, plan).layers.back().write;
  };
  EXPECT_EQ(format(*preset_plan("torch-autocast-fp16")), kFp32);
  EXPECT_EQ(format(with_region("soft")), kFp16);
}

TEST(AutocastOff, IsAKeyOfPlans) {
  const auto plan_with = [](const std::string& rule) {
    return plan_from_json(R"({"schema": "halfscope.plan/1", "name": "p", "rules": [)" + rule +
                          "]}");
  };
  const Plan plan = plan_with(R"({"path": "fc*", "autocast": "off"})");
  EXPECT_TRUE(plan.rules[0].follow);
  EXPECT_TRUE(plan.rules[0].same_formats);
  EXPECT_THAT(plan_to_json(plan), HasSubstr("\"autocast\": \"off\""));
  EXPECT_EQ(plan_from_json(plan_to_json(plan)).rules, plan.rules);
  const auto message = [&](const std::string& rule) {
    try {
      plan_with(rule);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(message(R"({"path": "a", "autocast": "on"})"),
            "plan: rules[0].autocast: unknown value \"on\"");
  EXPECT_EQ(message(R"({"path": "a", "autocast": "off", "format": "fp16"})"),
            "plan: rules[0] sets autocast together with a format");
  EXPECT_EQ(message(R"({"path": "a", "weights": "fp16"})"),
            "plan: rules[0].weights: unknown value \"fp16\"");
}

}  // namespace
}  // namespace halfscope
