// SPDX-License-Identifier: MIT
// The result of lower() for a model and a plan, in full: the sites with their formats in execution
// order (docs/reference/files.md), the positions of Casts, the storage of variables, and the
// nodes that an entry point runs.
#include "core/lower/lower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/models/models.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::IsEmpty;
using Texts = std::vector<std::string>;

Plan preset(const std::string& name) { return preset_plan(name).value(); }

Plan with_fp32(Plan plan, const std::string& glob) {
  keep_fp32(plan, glob);
  return plan;
}

/// fc1, relu1, fc2, relu2, fc3, loss.
Executable small_mlp(const Plan& plan, const Optimizer& optimizer = {}) {
  return lower(build_mlp({6, 5, 4, 3}, 2, {6}), plan, {optimizer});
}

Executable lenet(const Plan& plan) {
  return lower(build_lenet(2, {1, 28, 28}, 10, false), plan, {});
}

/// "fc1.weight fp16"
Texts sites(const Executable& exe) {
  Texts result;
  for (const Tap& tap : exe.taps)
    result.push_back(tap.site.name() + " " + format_name(tap.site.format));
  return result;
}

/// The sites of these layers only.
Texts sites_of(const Executable& exe, const std::set<std::string>& paths) {
  Texts result;
  for (const Tap& tap : exe.taps) {
    if (paths.contains(tap.site.path))
      result.push_back(tap.site.name() + " " + format_name(tap.site.format));
  }
  return result;
}

/// Returns the name of a value: variable, input, or the node that computes it.
std::string name_of(const Graph& graph, ValueId value) {
  if (const Variable* variable = graph.variable_of(value)) return variable->path;
  for (const Input& input : graph.inputs()) {
    if (input.value == value) return input.name;
  }
  const NodeId producer = graph.value(value).producer;
  return producer == kNone ? "constant" : graph.node(producer).path + ":" + graph.node(producer).op;
}

/// "fc1.weight -> fp16" for every Cast of the entry, in execution order.
Texts casts(const Executable& exe, Entry entry = Entry::grad) {
  Texts result;
  for (NodeId id : exe.entry(entry)) {
    const Node& node = exe.graph.node(id);
    if (node.op != "Cast") continue;
    result.push_back(name_of(exe.graph, node.inputs[0]) + " -> " +
                     format_name(exe.graph.value(node.outputs[0]).format));
  }
  return result;
}

Texts variables(const Executable& exe) {
  Texts result;
  for (const Variable& each : exe.graph.variables()) {
    result.push_back(each.path + " " + format_name(exe.graph.value(each.value).format));
  }
  return result;
}

/// "conv1 Conv(input) fp16 832", a dot before the format if the layer follows its input.
Texts layers(const Executable& exe) {
  Texts result;
  for (const LayerInfo& each : exe.layers) {
    std::string inputs;
    for (const std::string& input : each.inputs) inputs += (inputs.empty() ? "" : ",") + input;
    std::string format = format_name(each.read);
    if (each.read != each.write) format += ">" + format_name(each.write);
    result.push_back(each.path + " " + each.op + "(" + inputs + ") " + (each.follows ? "." : "") +
                     format + " " + std::to_string(each.parameters));
  }
  return result;
}

const Node& node_at(const Executable& exe, const std::string& path, const std::string& op) {
  for (const Node& node : exe.graph.nodes()) {
    if (node.path == path && node.op == op) return node;
  }
  throw Error("no " + op + " at " + path);
}

const Texts kMlpSites{
    "input.input",           "fc1.weight",          "fc1.bias",          "fc1.activation",
    "relu1.activation",      "fc2.weight",          "fc2.bias",          "fc2.activation",
    "relu2.activation",      "fc3.weight",          "fc3.bias",          "fc3.activation",
    "loss.activation",       "fc3.activation_grad", "fc3.bias_grad",     "fc3.weight_grad",
    "relu2.activation_grad", "fc2.activation_grad", "fc2.bias_grad",     "fc2.weight_grad",
    "relu1.activation_grad", "fc1.activation_grad", "fc1.bias_grad",     "fc1.weight_grad",
    "fc1.weight_update",     "fc1.bias_update",     "fc2.weight_update", "fc2.bias_update",
    "fc3.weight_update",     "fc3.bias_update"};

TEST(Lower, MixedFloat16OfAnMlp) {
  const Executable exe = small_mlp(preset("mixed_float16"));
  Texts expected = kMlpSites;
  for (std::string& site : expected) {
    const bool wide = site == "loss.activation" || site.ends_with("_update");
    site += wide ? " fp32" : " fp16";
  }
  EXPECT_THAT(sites(exe), ElementsAreArray(expected));
  EXPECT_THAT(casts(exe), ElementsAre("input -> fp16", "fc1.weight -> fp16", "fc1.bias -> fp16",
                                      "fc2.weight -> fp16", "fc2.bias -> fp16",
                                      "fc3.weight -> fp16", "fc3.bias -> fp16"));
  EXPECT_THAT(casts(exe, Entry::update), IsEmpty());
  EXPECT_THAT(variables(exe), ElementsAre("fc1.weight fp32", "fc1.bias fp32", "fc2.weight fp32",
                                          "fc2.bias fp32", "fc3.weight fp32", "fc3.bias fp32"));
  EXPECT_THAT(layers(exe),
              ElementsAre("fc1 Gemm(input) fp16 35", "relu1 Relu(fc1) .fp16 0",
                          "fc2 Gemm(relu1) fp16 24", "relu2 Relu(fc2) .fp16 0",
                          "fc3 Gemm(relu2) fp16 15", "loss SoftmaxCrossEntropyLoss(fc3) fp32 0"));
}

TEST(Lower, RolesPhasesAndShapesOfSites) {
  const Executable exe = small_mlp(preset("mixed_float16"));
  const auto text = [&](const std::string& name) {
    for (const Tap& tap : exe.taps) {
      const SiteInfo& s = tap.site;
      if (s.name() == name)
        return std::string(role_name(s.role)) + " " + phase_name(s.phase) + " " + s.op + " " +
               to_string(s.shape);
    }
    return std::string("no such site");
  };
  EXPECT_EQ(text("input.input"), "input forward Input [2, 6]");
  EXPECT_EQ(text("fc2.weight"), "weight forward Gemm [4, 5]");
  EXPECT_EQ(text("fc2.bias"), "weight forward Gemm [4]");
  EXPECT_EQ(text("fc2.activation"), "activation forward Gemm [2, 4]");
  EXPECT_EQ(text("loss.activation"), "activation forward SoftmaxCrossEntropyLoss []");
  EXPECT_EQ(text("relu1.activation_grad"), "activation_grad backward Relu [2, 5]");
  EXPECT_EQ(text("fc2.bias_grad"), "weight_grad backward Gemm [4]");
  EXPECT_EQ(text("fc3.weight_update"), "update update Gemm [3, 4]");
  for (size_t i = 0; i < exe.taps.size(); ++i)
    EXPECT_EQ(exe.taps[i].site.order, static_cast<int>(i));
}

TEST(Lower, Float32NeedsNoCastAndHasTheSameSites) {
  for (const char* name : {"float32", "float64"}) {
    const Executable exe = small_mlp(preset(name));
    Texts expected = kMlpSites;
    for (std::string& site : expected) site += " fp32";
    EXPECT_THAT(sites(exe), ElementsAreArray(expected));
    for (Entry entry : {Entry::grad, Entry::update, Entry::eval})
      EXPECT_THAT(casts(exe, entry), IsEmpty());
  }
}

TEST(Lower, TheLossGradientIsWrittenInFp16AtOnce) {
  const Executable exe = small_mlp(preset("mixed_float16"));
  const Node& gradient = node_at(exe, "loss", "SoftmaxCrossEntropyLossGrad");
  EXPECT_EQ(format_name(gradient.plan.read), "fp32");
  EXPECT_EQ(format_name(gradient.plan.write), "fp16");
  EXPECT_EQ(format_name(exe.graph.value(gradient.outputs[0]).format), "fp16");
  EXPECT_EQ(name_of(exe.graph, gradient.inputs[0]), "fc3:Gemm")
      << "fp16 logits are read as they are";
  EXPECT_EQ(name_of(exe.graph, gradient.inputs[2]), "loss_scale");
}

TEST(Lower, OneCastPerValueAndFormat) {
  for (const char* name : {"mixed_float16", "mixed_bfloat16", "float16"}) {
    for (const Executable& exe :
         {small_mlp(preset(name)), lenet(with_fp32(preset(name), "conv2"))}) {
      std::set<std::pair<ValueId, std::string>> seen;
      for (const Node& node : exe.graph.nodes()) {
        if (node.op != "Cast") continue;
        const FloatFormat& to = exe.graph.value(node.outputs[0]).format;
        const FloatFormat& from = exe.graph.value(node.inputs[0]).format;
        EXPECT_TRUE(seen.emplace(node.inputs[0], format_name(to)).second) << node.path;
        EXPECT_FALSE(to.contains(from)) << node.path << ": a Cast that changes nothing";
      }
      EXPECT_FALSE(seen.empty());
    }
  }
}

TEST(Lower, MixedFloat16OfLenet) {
  const Executable exe = lenet(preset("mixed_float16"));
  EXPECT_THAT(layers(exe),
              ElementsAre("conv1 Conv(input) fp16 832", "relu1 Relu(conv1) .fp16 0",
                          "pool1 MaxPool(relu1) .fp16 0", "conv2 Conv(pool1) fp16 51264",
                          "relu2 Relu(conv2) .fp16 0", "pool2 MaxPool(relu2) .fp16 0",
                          "flatten Flatten(pool2) .fp16 0", "fc1 Gemm(flatten) fp16 262400",
                          "relu3 Relu(fc1) .fp16 0", "fc2 Gemm(relu3) fp16 2570",
                          "loss SoftmaxCrossEntropyLoss(fc2) fp32 0"));
  EXPECT_THAT(
      sites_of(exe, {"input", "conv1", "relu1", "pool1", "flatten"}),
      ElementsAre("input.input fp16", "conv1.weight fp16", "conv1.bias fp16",
                  "conv1.activation fp16", "relu1.activation fp16", "pool1.activation fp16",
                  "flatten.activation fp16", "flatten.activation_grad fp16",
                  "pool1.activation_grad fp16", "relu1.activation_grad fp16",
                  "conv1.activation_grad fp16", "conv1.bias_grad fp16", "conv1.weight_grad fp16",
                  "conv1.weight_update fp32", "conv1.bias_update fp32"));
}

// conv2 reads fp16 as it is, computes in fp32, and what follows it carries fp32 on to fc1, whose
// operand is narrowed again. Going back, each gradient has the format of its activation where the
// layer that makes it can write that.
TEST(Lower, AnFp32LayerBetweenFp16Ones) {
  const Executable exe = lenet(with_fp32(preset("mixed_float16"), "conv?"));
  EXPECT_THAT(sites_of(exe, {"conv1", "conv2"}).front(), "conv1.weight fp32") << "? matches both";
  const Executable one = lenet(with_fp32(preset("mixed_float16"), "conv2"));
  EXPECT_THAT(
      sites_of(one, {"pool1", "conv2", "relu2", "pool2", "flatten", "fc1"}),
      ElementsAre("pool1.activation fp16", "conv2.weight fp32", "conv2.bias fp32",
                  "conv2.activation fp32", "relu2.activation fp32", "pool2.activation fp32",
                  "flatten.activation fp32", "fc1.input fp16", "fc1.weight fp16", "fc1.bias fp16",
                  "fc1.activation fp16", "fc1.activation_grad fp16", "fc1.bias_grad fp16",
                  "fc1.weight_grad fp16", "flatten.activation_grad fp16",
                  "pool2.activation_grad fp32", "relu2.activation_grad fp32",
                  "conv2.activation_grad fp32", "conv2.bias_grad fp32", "conv2.weight_grad fp32",
                  "pool1.activation_grad fp16", "conv2.weight_update fp32",
                  "conv2.bias_update fp32", "fc1.weight_update fp32", "fc1.bias_update fp32"));
  const Texts list = casts(one);
  EXPECT_EQ(std::count(list.begin(), list.end(), "conv2.weight -> fp16"), 0);
  EXPECT_EQ(std::count(list.begin(), list.end(), "flatten:Flatten -> fp16"), 1);
  EXPECT_EQ(std::count(list.begin(), list.end(), "pool1:MaxPool -> fp16"), 0);
  EXPECT_EQ(one.layers[3].read, kFp32);
  EXPECT_EQ(one.layers[4].write, kFp32) << "relu2 follows";
  EXPECT_TRUE(one.layers[4].follows);
}

TEST(Lower, PureFloat16KeepsEverythingInFp16) {
  const Executable exe = small_mlp(preset("float16"), parse_optimizer("sgd:momentum=0.9"));
  for (const Tap& tap : exe.taps) {
    const bool loss = tap.site.name() == "loss.activation";
    EXPECT_EQ(format_name(tap.site.format), loss ? "fp32" : "fp16") << tap.site.name();
  }
  EXPECT_THAT(casts(exe), ElementsAre("input -> fp16"));
  for (const std::string& variable : variables(exe))
    EXPECT_TRUE(variable.ends_with(" fp16")) << variable;
  EXPECT_EQ(exe.graph.variables().size(), 12u) << "six weights and their momenta";
}

// model.half() rounds running means and variances, too; only the loss that is added stays in fp32.
TEST(Lower, PureFloat16KeepsRunningStatisticsInFp16) {
  for (const char* name : {"float16", "float16_stagewise"}) {
    const Executable exe =
        lower(build_model("resnet20", 2, {3, 8, 8}, 10), preset(name), {parse_optimizer("adam")});
    size_t buffers = 0;
    for (const Variable& variable : exe.graph.variables()) {
      EXPECT_EQ(exe.graph.value(variable.value).format, kFp16) << variable.path;
      buffers += variable.buffer ? 1 : 0;
    }
    EXPECT_GT(buffers, 0u);
    for (const Tap& tap : exe.taps) {
      const bool loss = tap.site.path == "loss" || tap.site.path.starts_with("loss/");
      if (loss && tap.site.role != Role::activation) continue;
      if (tap.site.name() == "linear.activation_grad") continue;  // comes from the loss
      EXPECT_EQ(format_name(tap.site.format), loss ? "fp32" : "fp16") << tap.site.name();
    }
  }
}

// Built-in networks and files are treated alike: rules by operator do not apply to the loss, a rule
// by path does.
TEST(Lower, TheAddedLossIsInFp32UnlessItsPathIsNamed) {
  Plan plan = preset("float16");
  plan.rules.push_back(
      {.path = "", .op = "SoftmaxCrossEntropyLoss", .read = kBf16, .write = kBf16});
  EXPECT_THAT(sites_of(small_mlp(plan), {"loss"}), testing::Contains("loss.activation fp32"));
  plan.rules.push_back({.path = "loss", .op = "", .read = kFp16, .write = kFp16});
  EXPECT_THAT(sites_of(small_mlp(plan), {"loss"}), testing::Contains("loss.activation fp16"));
}

TEST(Lower, PureBfloat16WithALayerInFp32KeepsItsVariablesInFp32) {
  const Executable exe = small_mlp(with_fp32(preset("bfloat16"), "fc2"), parse_optimizer("adam"));
  EXPECT_THAT(
      sites_of(exe, {"fc1", "fc2", "relu2", "fc3"}),
      ElementsAre("fc1.weight bf16", "fc1.bias bf16", "fc1.activation bf16", "fc2.weight fp32",
                  "fc2.bias fp32", "fc2.activation fp32", "relu2.input bf16",
                  "relu2.activation bf16", "fc3.weight bf16", "fc3.bias bf16",
                  "fc3.activation bf16", "fc3.activation_grad bf16", "fc3.bias_grad bf16",
                  "fc3.weight_grad bf16", "relu2.activation_grad bf16", "fc2.activation_grad bf16",
                  "fc2.bias_grad fp32", "fc2.weight_grad fp32", "fc1.activation_grad bf16",
                  "fc1.bias_grad bf16", "fc1.weight_grad bf16", "fc1.weight_adam_m bf16",
                  "fc1.weight_adam_v bf16", "fc1.weight_update bf16", "fc1.bias_adam_m bf16",
                  "fc1.bias_adam_v bf16", "fc1.bias_update bf16", "fc2.weight_adam_m fp32",
                  "fc2.weight_adam_v fp32", "fc2.weight_update fp32", "fc2.bias_adam_m fp32",
                  "fc2.bias_adam_v fp32", "fc2.bias_update fp32", "fc3.weight_adam_m bf16",
                  "fc3.weight_adam_v bf16", "fc3.weight_update bf16", "fc3.bias_adam_m bf16",
                  "fc3.bias_adam_v bf16", "fc3.bias_update bf16"));
  EXPECT_THAT(casts(exe), ElementsAre("input -> bf16", "fc2:Gemm -> bf16")) << "relu2 is in bf16";
  const Texts stored = variables(exe);
  EXPECT_THAT(stored, testing::IsSupersetOf({"fc2.weight.adam_m fp32", "fc2.bias.adam_v fp32",
                                             "fc1.weight.adam_m bf16", "fc3.bias.adam_v bf16"}));
}

TEST(Lower, FollowTakesTheWidestFormatAmongTheInputs) {
  Model model;
  Graph& graph = model.graph;
  model.input = graph.add_input("input", {2, 3});
  model.labels = graph.add_input("labels", {2}, ElementType::index);
  const auto linear = [&](const std::string& path) {
    const ValueId w = graph.add_variable(path + ".weight", {3, 3}, {});
    return graph.add1("Gemm", path, {model.input, w});
  };
  const ValueId narrow = linear("narrow"), brain = linear("brain"), wide = linear("wide");
  const ValueId same = graph.add1("Add", "same", {narrow, narrow});
  const ValueId mixed = graph.add1("Add", "mixed", {same, brain});
  const ValueId scaled = graph.add1("Mul", "scaled", {narrow, graph.add_constant(3.0f)});
  const ValueId sum = graph.add1("Add", "sum", {wide, scaled});
  model.logits = graph.add1("Sub", "logits", {sum, mixed});
  model.loss = graph.add1("SoftmaxCrossEntropyLoss", "loss", {model.logits, model.labels});
  Plan plan = preset("mixed_float16");
  plan.rules.push_back({.path = "brain", .op = "", .read = kBf16, .write = kBf16});
  plan.rules.push_back({.path = "wide", .op = "", .read = kFp16, .write = kFp32});
  const Executable exe = lower(model, plan, {});
  EXPECT_THAT(layers(exe),
              ElementsAre("narrow Gemm(input) fp16 9", "brain Gemm(input) bf16 9",
                          "wide Gemm(input) fp16>fp32 9", "same Add(narrow,narrow) .fp16 0",
                          "mixed Add(same,brain) .fp32 0", "scaled Mul(narrow) .fp16 0",
                          "sum Add(wide,scaled) .fp32 0", "logits Sub(sum,mixed) .fp32 0",
                          "loss SoftmaxCrossEntropyLoss(logits) fp32 0"));
  // narrow has three readers; the sum of their gradients is fp16 like narrow itself.
  EXPECT_THAT(sites_of(exe, {"narrow"}), testing::Contains("narrow.activation_grad fp16"));
  // Add and Sub hand their gradient on as it is: one value, and a site of each tensor it belongs
  // to.
  for (const char* name : {"wide", "sum", "logits"}) {
    EXPECT_THAT(sites_of(exe, {name}),
                testing::Contains(std::string(name) + ".activation_grad fp32"));
  }
}

// As under PyTorch's autocast: normalizations within a sample and softmax in fp32, activations as
// they come. Gains are read as they are stored, slopes in fp16; statistics are no sites.
TEST(Lower, NormalizationsAreWideAndActivationsFollow) {
  Model model;
  Graph& graph = model.graph;
  model.input = graph.add_input("input", {2, 6});
  model.labels = graph.add_input("labels", {2}, ElementType::index);
  const auto variable = [&](const char* path, const Shape& shape) {
    return graph.add_variable(path, shape, {});
  };
  ValueId x = graph.add1("Gemm", "fc1", {model.input, variable("fc1.weight", {6, 5})});
  x = graph.add1("LayerNormalization", "norm",
                 {x, variable("norm.weight", {5}), variable("norm.bias", {5})});
  x = graph.add1("Gemm", "fc2", {x, variable("fc2.weight", {5, 4})});
  x = graph.add1("PRelu", "prelu", {x, variable("prelu.weight", {4})});
  x = graph.add1("Gelu", "gelu", {x});
  x = graph.add1("RMSNormalization", "rms", {x, variable("rms.weight", {4})});
  model.logits = graph.add1("LogSoftmax", "softmax", {x});
  model.loss = graph.add1("SoftmaxCrossEntropyLoss", "loss", {model.logits, model.labels});
  const Executable exe = lower(model, preset("mixed_float16"), {});
  EXPECT_THAT(
      layers(exe),
      ElementsAre("fc1 Gemm(input) fp16 30", "norm LayerNormalization(fc1) fp32 10",
                  "fc2 Gemm(norm) fp16 20", "prelu PRelu(fc2) fp16 4", "gelu Gelu(prelu) .fp16 0",
                  "rms RMSNormalization(gelu) fp32 4", "softmax LogSoftmax(rms) fp32 0",
                  "loss SoftmaxCrossEntropyLoss(softmax) fp32 0"));
  EXPECT_THAT(casts(exe),
              ElementsAre("input -> fp16", "fc1.weight -> fp16", "norm:LayerNormalization -> fp16",
                          "fc2.weight -> fp16", "prelu.weight -> fp16"));
  EXPECT_THAT(sites_of(exe, {"norm", "prelu", "rms"}),
              testing::UnorderedElementsAre(
                  "norm.weight fp32", "norm.bias fp32", "norm.activation fp32", "prelu.weight fp16",
                  "prelu.activation fp16", "rms.weight fp32", "rms.activation fp32",
                  "norm.activation_grad fp16", "norm.weight_grad fp32", "norm.bias_grad fp32",
                  "prelu.activation_grad fp16", "prelu.weight_grad fp16",
                  "rms.activation_grad fp32", "rms.weight_grad fp32", "norm.weight_update fp32",
                  "norm.bias_update fp32", "prelu.weight_update fp32", "rms.weight_update fp32"));
  Plan stagewise = preset("mixed_float16");
  stagewise.defaults.stagewise = true;
  const Executable staged = lower(model, stagewise, {});
  EXPECT_EQ(format_name(node_at(staged, "norm/var", "ReduceMean").plan.write), "fp32");
  EXPECT_EQ(format_name(node_at(staged, "gelu/erf", "Erf").plan.write), "fp16");
}

TEST(Lower, AVariableWithTwoReadersIsOneSite) {
  Model model;
  Graph& graph = model.graph;
  model.input = graph.add_input("input", {2, 3});
  model.labels = graph.add_input("labels", {2}, ElementType::index);
  const ValueId w = graph.add_variable("tied.weight", {3, 3}, {});
  model.logits = graph.add1("Gemm", "second", {graph.add1("Gemm", "first", {model.input, w}), w});
  model.loss = graph.add1("SoftmaxCrossEntropyLoss", "loss", {model.logits, model.labels});
  for (const char* name : {"float32", "mixed_float16"}) {
    const Executable exe = lower(model, preset(name), {});
    Texts names;
    for (const Tap& tap : exe.taps) {
      if (tap.site.path == "tied") names.push_back(tap.site.tensor);
    }
    EXPECT_THAT(names, ElementsAre("weight", "weight_grad", "weight_update")) << name;
    EXPECT_EQ(sites(exe).front(),
              std::string("input.input ") + (exe.layers[0].read == kFp32 ? "fp32" : "fp16"));
    EXPECT_EQ(casts(exe).size(), exe.layers[0].read == kFp32 ? 0u : 2u);
  }
}

TEST(Lower, ReadingNarrowerThanWrittenCastsBothWays) {
  Plan plan = preset("mixed_float16");
  plan.rules.push_back({.path = "fc2", .op = "", .read = kE4m3fn, .write = kFp16});
  const Executable exe = small_mlp(plan);
  EXPECT_THAT(
      sites_of(exe, {"fc2"}),
      ElementsAre("fc2.input e4m3fn", "fc2.weight e4m3fn", "fc2.bias e4m3fn", "fc2.activation fp16",
                  "fc2.activation_grad fp16", "fc2.grad_operand e4m3fn", "fc2.bias_grad e4m3fn",
                  "fc2.weight_grad e4m3fn", "fc2.weight_update fp32", "fc2.bias_update fp32"));
}

TEST(Lower, AnUnmatchedGlobIsAUsageError) {
  try {
    small_mlp(with_fp32(preset("mixed_float16"), "conv*"));
    FAIL() << "no Error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_EQ(std::string(error.what()), "no layer matches 'conv*'");
    EXPECT_EQ(error.hint(), "layers: fc1, relu1, fc2, relu2, fc3, loss");
  }
  EXPECT_NO_THROW(small_mlp(with_fp32(preset("mixed_float16"), "fc*")));
  // A part of a composite can be named only if the plan expands it.
  EXPECT_THROW(small_mlp(with_fp32(preset("mixed_float16"), "loss/Exp")), Error);
  EXPECT_THROW(small_mlp(with_fp32(preset("mixed_float16"), "fc1/wieght")), Error);
}

TEST(Lower, StagewiseLossIsExpandedAndItsPrimitivesCanBeNamed) {
  Plan plan = preset("mixed_float16");
  plan.rules.push_back(
      {.path = "loss", .op = "", .read = kFp16, .write = kFp16, .stagewise = true});
  keep_fp32(plan, "loss/Exp");
  const Executable exe = small_mlp(plan);
  Texts list = layers(exe);
  list.erase(list.begin(), list.begin() + 5);
  EXPECT_THAT(
      list,
      ElementsAre(
          "loss/Labelled GreaterOrEqual() fp16 0", "loss/ReduceMax ReduceMax(fc3) fp16 0",
          "loss/StopGradient StopGradient(loss/ReduceMax) fp16 0",
          "loss/Shift Sub(fc3,loss/StopGradient) fp16 0", "loss/Exp Exp(loss/Shift) fp32 0",
          "loss/ReduceSum ReduceSum(loss/Exp) fp16 0", "loss/Log Log(loss/ReduceSum) fp16 0",
          "loss/GatherElements GatherElements(loss/Shift) fp16 0",
          "loss/Sub Sub(loss/Log,loss/GatherElements) fp16 0", "loss/Reshape Reshape() fp16 0",
          "loss/Where Where(loss/Sub) fp16 0", "loss/ReduceMean ReduceMean(loss/Where) fp16 0",
          "loss/Ones Where() fp16 0", "loss/Share ReduceMean(loss/Ones) fp16 0",
          "loss/Div Div(loss/ReduceMean,loss/Share) fp16 0"));
  EXPECT_THAT(sites_of(exe, {"loss/Exp", "loss/ReduceSum"}),
              ElementsAre("loss/Exp.activation fp32", "loss/ReduceSum.input fp16",
                          "loss/ReduceSum.activation fp16", "loss/ReduceSum.activation_grad fp16",
                          "loss/Exp.activation_grad fp16"));
  for (NodeId id : exe.entry(Entry::grad))
    EXPECT_NE(exe.graph.node(id).op, "SoftmaxCrossEntropyLoss");
  for (const Node& node : exe.graph.nodes()) EXPECT_NE(node.op, "SoftmaxCrossEntropyLossGrad");
}

TEST(Lower, EntriesRunWhatTheyNeedInOrder) {
  for (const char* name : {"float32", "mixed_float16", "float16"}) {
    const Executable exe = lenet(preset(name));
    const Graph& graph = exe.graph;
    std::set<ValueId> ready;
    for (size_t v = 0; v < graph.values().size(); ++v) {
      if (graph.values()[v].producer == kNone) ready.insert(static_cast<ValueId>(v));
    }
    const std::set<ValueId> given = ready;
    const auto run = [&](Entry entry) {
      for (NodeId id : exe.entry(entry)) {
        for (ValueId input : graph.node(id).inputs)
          EXPECT_TRUE(ready.contains(input)) << graph.node(id).path;
        for (ValueId output : graph.node(id).outputs)
          EXPECT_TRUE(ready.insert(output).second) << "run twice";
      }
    };
    EXPECT_TRUE(exe.entry(Entry::begin).empty()) << "there are no buffers";
    run(Entry::grad);
    for (ValueId value : {exe.loss, exe.accuracy}) EXPECT_TRUE(ready.contains(value));
    EXPECT_TRUE(exe.entry(Entry::accumulate).empty()) << "there are no micro-batches";
    run(Entry::norm);
    EXPECT_TRUE(ready.contains(exe.gradient_norm));
    run(Entry::update);
    for (const Variable& variable : graph.variables())
      EXPECT_TRUE(ready.contains(variable.next)) << variable.path;
    EXPECT_EQ(exe.entry(Entry::update).size(), 8u) << "one node per variable";

    ready = given;
    run(Entry::eval);
    for (ValueId value : {exe.eval_loss, exe.eval_accuracy, exe.logits})
      EXPECT_TRUE(ready.contains(value));
    EXPECT_FALSE(ready.contains(exe.gradient_norm));
    for (NodeId id : exe.entry(Entry::eval)) {
      EXPECT_EQ(graph.node(id).phase, Phase::forward) << graph.node(id).path;
      EXPECT_EQ(graph.node(id).forward, kNone) << graph.node(id).path;
    }
  }
}

}  // namespace
}  // namespace halfscope
