// SPDX-License-Identifier: MIT
// Attention that a file has in primitives: which forms are recognised, and that each computes what
// the same file does when it is not, and what the formula says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <map>

#include "core/models/loss.h"
#include "core/numeric/formats/rng.h"
#include "core/onnx/export.h"
#include "core/policy/policy.h"
#include "tests/onnx/network_support.h"

namespace halfscope {
namespace {

using test::FileBuilder;
using testing::ElementsAre;
using testing::SizeIs;
using Texts = std::vector<std::string>;

constexpr int64_t kBatch = 2, kQueries = 3, kKeys = 4, kDepth = 5, kWidth = 2;

/// The operators between both products, and the axis of the softmax.
struct Form {
  std::string scale{};  ///< "Mul", "Mul by", "Div" or ""
  std::string mask{};   ///< "Add", "Add to", "keep", "fill" or ""
  int64_t axis = -1;
  std::string second{};  ///< same for another mask after it
};

std::vector<float> noise(int64_t count, uint64_t seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t word = splitmix64(seed * 1000003 + static_cast<uint64_t>(i));
    values.push_back(static_cast<float>(static_cast<int64_t>(word % 4001) - 2000) / 1000.0f);
  }
  return values;
}

const std::vector<float>& added_mask() {
  static const std::vector<float> mask{0, 0, -1e9f, 0, 0, 0, 0, 0, -1e9f, 0, 0, -1e9f};
  return mask;
}
bool condition(size_t i) { return (i + i / 4) % 2 == 0; }  // half of the keys of every row
float scale_of(const Form& form) { return form.scale == "Div" ? 1.7f : 0.3f; }

/// A file with inputs q, k and v. With `probabilities`, the softmax is an output too, which keeps
/// the primitives separate.
FileBuilder file_of(const Form& form, bool probabilities = false) {
  FileBuilder file;
  file.input("q", {kBatch, kQueries, kDepth}).input("k", {kBatch, kDepth, kKeys});
  file.input("v", {kBatch, kKeys, kWidth}).output("y");
  if (probabilities) file.output("p");
  file.floats("c", {1}, {scale_of(form)}).floats("low", {}, {-1e4f});
  file.floats("bias", {kQueries, kKeys}, added_mask());
  ::onnx::TensorProto& where = *file.graph().add_initializer();
  where.set_name("where");
  where.set_data_type(9);  // booleans
  where.add_dims(kQueries);
  where.add_dims(kKeys);
  for (size_t i = 0; i < added_mask().size(); ++i) where.add_int32_data(condition(i) ? 1 : 0);
  std::string last = "s";
  file.node("MatMul", {"q", "k"}, {"s"}, "first");
  const auto next = [&](const std::string& op, std::initializer_list<std::string> inputs,
                        const std::string& output) -> ::onnx::NodeProto& {
    last = output;
    return file.node(op, inputs, {output}, output + "_node");
  };
  if (form.scale == "Mul") next("Mul", {last, "c"}, "scaled");
  if (form.scale == "Mul by") next("Mul", {"c", last}, "scaled");
  if (form.scale == "Div") next("Div", {last, "c"}, "scaled");
  for (const auto& [mask, made] :
       {std::pair(form.mask, "masked"), std::pair(form.second, "masked_again")}) {
    if (mask == "Add") next("Add", {last, "bias"}, made);
    if (mask == "Add to") next("Add", {"bias", last}, made);
    if (mask == "keep") next("Where", {"where", last, "low"}, made);
    if (mask == "fill") next("Where", {"where", "low", last}, made);
  }
  test::set_int(next("Softmax", {last}, "p"), "axis", form.axis);
  file.node("MatMul", {"p", "v"}, {"y"}, "attend");
  return file;
}

std::vector<Form> forms() {
  std::vector<Form> list;
  for (const char* scale : {"", "Mul", "Mul by", "Div"}) {
    for (const char* mask : {"", "Add", "Add to", "keep", "fill"}) list.push_back({scale, mask});
  }
  list.push_back({"Mul", "Add", 2});
  // Their one condition and its opposite would together hide everything.
  for (const auto& [mask, second] :
       {std::pair("Add", "Add to"), std::pair("Add", "keep"), std::pair("Add", "fill"),
        std::pair("keep", "Add to"), std::pair("fill", "Add to"), std::pair("keep", "keep"),
        std::pair("fill", "fill")}) {
    list.push_back({"Div", mask, -1, second});
  }
  return list;
}

std::vector<Tensor> operands() {
  return {{{kBatch, kQueries, kDepth}, noise(kBatch * kQueries * kDepth, 1)},
          {{kBatch, kDepth, kKeys}, noise(kBatch * kDepth * kKeys, 2)},
          {{kBatch, kKeys, kWidth}, noise(kBatch * kKeys * kWidth, 3)}};
}

/// The formula in double, element by element.
Tensor formula(const Form& form, const std::vector<Tensor>& in) {
  Tensor y{{kBatch, kQueries, kWidth}, {}};
  const auto at = [](const Tensor& t, int64_t b, int64_t i, int64_t j) {
    return static_cast<double>(t.data[static_cast<size_t>((b * t.shape[1] + i) * t.shape[2] + j)]);
  };
  for (int64_t b = 0; b < kBatch; ++b) {
    for (int64_t n = 0; n < kQueries; ++n) {
      std::vector<double> weights;
      double sum = 0.0;
      for (int64_t m = 0; m < kKeys; ++m) {
        double score = 0.0;
        for (int64_t d = 0; d < kDepth; ++d) score += at(in[0], b, n, d) * at(in[1], b, d, m);
        const auto scale = static_cast<double>(scale_of(form));
        if (form.scale == "Div") score /= scale;
        if (form.scale.starts_with("Mul")) score *= scale;
        const auto i = static_cast<size_t>(n * kKeys + m);
        for (const std::string& mask : {form.mask, form.second}) {
          if (mask.starts_with("Add")) score += static_cast<double>(added_mask()[i]);
          if (mask == "keep" && !condition(i)) score = -1e4;
          if (mask == "fill" && condition(i)) score = -1e4;
        }
        weights.push_back(std::exp(score));
        sum += weights.back();
      }
      for (int64_t e = 0; e < kWidth; ++e) {
        double mixed = 0.0;
        for (int64_t m = 0; m < kKeys; ++m)
          mixed += weights[static_cast<size_t>(m)] / sum * at(in[2], b, m, e);
        y.data.push_back(static_cast<float>(mixed));
      }
    }
  }
  return y;
}

/// "attend Attention" of every node.
Texts nodes(const Model& model) {
  Texts result;
  for (const Node& node : model.graph.nodes()) result.push_back(node.path + " " + node.op);
  return result;
}

void expect_same_bits(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.shape, b.shape);
  for (size_t i = 0; i < a.data.size(); ++i)
    EXPECT_EQ(std::bit_cast<uint32_t>(a.data[i]), std::bit_cast<uint32_t>(b.data[i])) << i;
}

TEST(OnnxAttention, EveryFormBecomesOneNodeThatComputesTheSame) {
  for (const Form& form : forms()) {
    SCOPED_TRACE("scale " + form.scale + ", mask " + form.mask + ", " + form.second);
    const Model one = file_of(form).import().model, many = file_of(form, true).import().model;
    EXPECT_THAT(nodes(one), ElementsAre("attend Attention"));
    EXPECT_THAT(many.graph.nodes(),
                SizeIs(3u + (form.scale.empty() ? 0u : 1u) + (form.mask.empty() ? 0u : 1u) +
                       (form.second.empty() ? 0u : 1u)));
    for (const char* name : {"float32", "float64", "mixed_float16", "bfloat16"}) {
      const Plan plan = preset_plan(name).value();
      const Tensor y = test::run(test::start(one, plan), operands()).at(0);
      expect_same_bits(y, test::run(test::start(many, plan), operands()).at(0));
      if (std::string(name).starts_with("float"))
        test::expect_close(y, formula(form, operands()), 2e-6);
    }
  }
}

// As PyTorch exports scaled_dot_product_attention with dropout in training mode.
TEST(OnnxAttention, ADropoutOfTheWeightsIsPartOfIt) {
  FileBuilder file = file_of({"Mul", "Add"});
  file.floats("ratio", {}, {0.25f});
  ::onnx::TensorProto& trains = *file.graph().add_initializer();
  trains.set_name("trains");
  trains.set_data_type(9);  // boolean
  trains.add_int32_data(1);
  ::onnx::NodeProto* const mix = file.graph().mutable_node(file.graph().node_size() - 1);
  mix->set_op_type("Dropout");
  mix->set_name("drop");
  mix->clear_input();
  for (const char* input : {"p", "ratio", "trains"}) mix->add_input(input);
  mix->set_output(0, "dropped");
  file.node("MatMul", {"dropped", "v"}, {"y"}, "attend");
  const Model model = file.import().model;
  ASSERT_THAT(nodes(model), ElementsAre("attend Attention"));
  const Attributes& attributes = model.graph.node(0).attributes;
  EXPECT_DOUBLE_EQ(std::get<double>(attributes.at("dropout")), 0.25);
  EXPECT_EQ(std::get<int64_t>(attributes.at("training_mode")), 1);
  // Inference drops nothing.
  test::expect_close(
      test::run(test::start(model, preset_plan("float32").value()), operands()).at(0),
      formula({"Mul", "Add"}, operands()), 2e-6);
}

TEST(OnnxAttention, GoesOutInPrimitivesAndComesBack) {
  for (const Form& form : forms()) {
    SCOPED_TRACE("scale " + form.scale + ", mask " + form.mask + ", " + form.second);
    const Model model = file_of(form).import().model;
    const std::string bytes = onnx_bytes(model, model.initial);
    const Model again =
        parse_onnx({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "again", ".")
            .model;
    EXPECT_EQ(nodes(again), nodes(model));
    const Plan plan = preset_plan("mixed_float16").value();
    expect_same_bits(test::run(test::start(again, plan), operands()).at(0),
                     test::run(test::start(model, plan), operands()).at(0));
  }
}

// With a plan, attention is exported as primitives, with the Casts that show where they round.
TEST(OnnxAttention, GoesOutWithAPlanAsItsPrimitives) {
  const Model model = file_of({"Div", "keep"}).import().model;
  for (const char* name : {"float32", "mixed_float16"}) {
    SCOPED_TRACE(name);
    const auto planned = test::start(model, preset_plan(name).value());
    const std::string bytes = onnx_bytes(planned.executable, "net", model.initial);
    const OnnxImport again =
        parse_onnx({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "again", ".");
    if (std::string(name) == "float32")
      EXPECT_THAT(nodes(again.model), ElementsAre("attend/mix Attention"));
    else
      EXPECT_THAT(nodes(again.model), testing::Contains("attend/softmax Softmax"));
    expect_same_bits(test::run(test::start(again.model, again.types), operands()).at(0),
                     test::run(planned, operands()).at(0));
  }
}

/// As PyTorch exports scaled_dot_product_attention: both operands times the root of the scale.
FileBuilder kernel_file(float q_factor, float k_factor) {
  FileBuilder file = file_of({"", "Add"});
  file.floats("q_root", {}, {q_factor}).floats("k_root", {}, {k_factor});
  ::onnx::NodeProto* const scores = file.graph().mutable_node(0);
  scores->set_input(0, "q_scaled");
  scores->set_input(1, "k_scaled");
  file.node("Mul", {"q", "q_root"}, {"q_scaled"}, "q_mul");
  file.node("Mul", {"k", "k_root"}, {"k_scaled"}, "k_mul");
  return file;
}

TEST(OnnxAttention, WithBothOperandsScaledIsOneKernel) {
  const float root = std::sqrt(1.0f / std::sqrt(static_cast<float>(kDepth)));
  const Model model = kernel_file(root, root).import().model;
  ASSERT_THAT(nodes(model), ElementsAre("attend Attention"));
  EXPECT_EQ(real_attribute(model.graph.node(0), "scale", 0.0),
            static_cast<double>(static_cast<float>(1.0 / std::sqrt(kDepth))));
  const Model other = kernel_file(0.5f, 0.5f).import().model;
  EXPECT_EQ(real_attribute(other.graph.node(0), "scale", 0.0), 0.25);
  for (const Model* each : {&model, &other}) {
    const std::string bytes = onnx_bytes(*each, each->initial);
    const Model again =
        parse_onnx({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "again", ".")
            .model;
    EXPECT_EQ(again.graph.node(0).attributes, each->graph.node(0).attributes);
  }
  // Factors that differ are no scale of PyTorch's.
  EXPECT_THAT(nodes(kernel_file(0.5f, 0.25f).import().model),
              ElementsAre("q_mul Mul", "k_mul Mul", "attend Attention"));
}

// q k is 300 * 300, which float16 lacks, and a quarter of that is not.
TEST(OnnxAttention, TheScoresOfAKernelDoNotOverflow) {
  std::vector<Tensor> in = operands();
  for (const size_t i : {0u, 1u}) std::fill(in[i].data.begin(), in[i].data.end(), 0.0f);
  in[0].data[0] = in[1].data[0] = 300.0f;
  const auto first = [&](const Model& model, const char* plan) {
    return test::run(test::start(model, preset_plan(plan).value()), in).at(0).data[0];
  };
  const Model kernel = kernel_file(0.5f, 0.5f).import().model;
  const Model eager = file_of({"Mul", "Add"}).import().model;
  const float v = in[2].data[0];  // the first key has all the weight
  for (const char* plan : {"float16", "mixed_float16", "torch-autocast-fp16"}) {
    EXPECT_NEAR(first(kernel, plan), v, 0x1p-10 * std::fabs(v)) << plan;
    EXPECT_TRUE(std::isnan(first(eager, plan))) << plan;
  }
}

TEST(OnnxAttention, StaysInPrimitivesWhereItIsSomethingElse) {
  using Change = std::function<void(FileBuilder&)>;
  const auto kept = [](const Form& form, const Change& change) {
    FileBuilder file = file_of(form);
    change(file);
    const Texts list = nodes(file.import().model);
    return std::find(list.begin(), list.end(), "attend Attention") == list.end();
  };
  const Form full{"Mul", "Add"};
  EXPECT_FALSE(kept(full, [](FileBuilder&) {}));
  for (const char* inner : {"s", "scaled", "masked", "p"})
    EXPECT_TRUE(kept(full, [&](FileBuilder& file) { file.output(inner); })) << inner;
  EXPECT_TRUE(kept(full, [](FileBuilder& file) {
    file.node("Relu", {"scaled"}, {"r"}, "relu");
    file.output("r");
  })) << "read elsewhere";
  EXPECT_TRUE(kept({"Mul", "Add", 1}, [](FileBuilder&) {})) << "softmax over the rows";
  EXPECT_TRUE(kept({}, [](FileBuilder& file) {
    file.floats("keys", {kDepth, kKeys}, noise(kDepth * kKeys, 7));
    file.graph().mutable_node(0)->set_input(1, "keys");
  })) << "keys that are weights";
  EXPECT_TRUE(kept({}, [](FileBuilder& file) {
    file.floats("values", {kKeys, kWidth}, noise(kKeys * kWidth, 7));
    file.graph().mutable_node(file.graph().node_size() - 1)->set_input(1, "values");
  })) << "values that are weights";
  EXPECT_TRUE(kept(full, [](FileBuilder& file) {
    file.graph().mutable_node(2)->set_input(1, "scaled");
  })) << "scores added to themselves";
}

TEST(OnnxAttention, TakesTheProductThatNobodyElseReadsForTheScores) {
  FileBuilder file = file_of({"", "Add"});
  file.input("r", {kBatch, kDepth, kKeys}).output("t");
  file.node("MatMul", {"q", "r"}, {"t"}, "positions");
  for (int i = 0; i < 2; ++i) {
    FileBuilder each = file;
    ::onnx::NodeProto& add = *each.graph().mutable_node(1);
    add.set_input(i, "t");
    add.set_input(1 - i, "s");
    EXPECT_THAT(nodes(each.import().model),
                testing::UnorderedElementsAre("positions MatMul", "attend Attention"));
  }
}

TEST(OnnxAttention, ParametersAreCalledByThePrimitiveThatReadsThem) {
  FileBuilder file = file_of({"Mul", "Add"});
  file.floats("queries", {kQueries, kDepth}, noise(kQueries * kDepth, 8));
  file.floats("positions", {kQueries, kKeys}, noise(kQueries * kKeys, 9));
  file.graph().mutable_node(0)->set_input(0, "queries");
  file.graph().mutable_node(2)->set_input(1, "positions");
  const Model model = file.import().model;
  EXPECT_THAT(nodes(model), ElementsAre("attend Attention"));
  std::map<std::string, std::string> names;
  for (const Variable& variable : model.graph.variables()) names[variable.alias] = variable.path;
  EXPECT_EQ(names["queries"], "attend/scores.weight");
  EXPECT_EQ(names["positions"], "attend/mask.bias");
  EXPECT_TRUE(model.initial.contains("attend/mask.bias"));

  FileBuilder twice = file_of({"Mul", "keep", -1, "Add"});
  twice.floats("positions", {kQueries, kKeys}, noise(kQueries * kKeys, 9));
  twice.graph().mutable_node(3)->set_input(1, "positions");
  const Model masked = twice.import().model;
  EXPECT_THAT(nodes(masked), ElementsAre("attend Attention"));
  ASSERT_THAT(masked.graph.variables(), SizeIs(1));
  EXPECT_EQ(masked.graph.variables()[0].path, "attend/mask_2.bias");
}

/// Weight gradients of a network that projects its input to q and v, by the names in the file.
std::map<std::string, Tensor> gradients(const Form& form, bool composite, const Plan& plan) {
  FileBuilder file = file_of(form, !composite);
  file.input("x", {kBatch, kQueries, kWidth});
  file.floats("wq", {kWidth, kDepth}, noise(kWidth * kDepth, 5));
  file.floats("wv", {kWidth, kWidth}, noise(kWidth * kWidth, 6));
  ::onnx::GraphProto& graph = file.graph();
  file.node("MatMul", {"x", "wq"}, {"projected_q"}, "to_q");
  file.node("MatMul", {"v", "wv"}, {"projected_v"}, "to_v");
  for (::onnx::NodeProto& node : *graph.mutable_node()) {
    if (node.name() == "first") node.set_input(0, "projected_q");
    if (node.name() == "attend") node.set_input(1, "projected_v");
  }
  Model model = file.import().model;
  add_loss(model, parse_loss("mse:y"));
  const Executable exe = lower(model, plan, {});
  const auto program = emulation_backend().compile(exe);
  write_weights(*program, exe.graph, starting_weights(model, 1, {}), {});
  uint64_t seed = 20;
  for (const NamedValue& input : exe.inputs) {
    const Shape& shape = exe.graph.value(input.value).shape;
    program->write(input.value, noise(element_count(shape), seed + shape.back() * shape[1]));
  }
  program->write_scalar(exe.loss_scale, 256.0);
  program->run(Entry::grad, {});
  std::map<std::string, Tensor> result;
  for (const Tap& tap : exe.taps) {
    if (tap.site.role == Role::weight_grad) result[tap.site.name()] = program->read(tap.value);
  }
  return result;
}

TEST(OnnxAttention, TrainsAsTheWrittenPrimitivesDo) {
  for (const Form& form : forms()) {
    SCOPED_TRACE("scale " + form.scale + ", mask " + form.mask + ", " + form.second);
    for (const char* name : {"float32", "mixed_float16"}) {
      const Plan plan = preset_plan(name).value();
      const auto one = gradients(form, true, plan), many = gradients(form, false, plan);
      ASSERT_THAT(one, SizeIs(2));
      ASSERT_EQ(one.size(), many.size());
      for (const auto& [site, gradient] : many) {
        SCOPED_TRACE(site);
        ASSERT_TRUE(one.contains(site));
        expect_same_bits(one.at(site), gradient);
        EXPECT_TRUE(std::any_of(gradient.data.begin(), gradient.data.end(),
                                [](float x) { return x != 0.0f; }));
      }
    }
  }
}

}  // namespace
}  // namespace halfscope
