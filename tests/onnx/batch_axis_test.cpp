// SPDX-License-Identifier: MIT
// Files of one sample that take several. What they give for several must be what they give for each
// alone, and what PyTorch gives (tests/oracle/onnx_one_sample.py); where a node mixes samples, or
// may, they are refused.
#include "core/onnx/batch_axis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <ostream>

#include "core/error.h"
#include "core/policy/policy.h"
#include "tests/onnx/case_files.h"
#include "tests/onnx/network_support.h"

namespace halfscope::batch_axis {
namespace {

using test::FileBuilder;
using testing::HasSubstr;

constexpr int64_t kBatch = 3;

std::vector<float> numbers(int64_t count, float start = 0.3f) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(std::sin(start + 1.7f * static_cast<float>(i)));
  return values;
}

/// Builds the nodes between the inputs and the output "y".
using Build = std::function<void(FileBuilder&)>;
struct Network {
  std::string name;
  std::vector<int64_t> input;  ///< shape of "x", of one sample
  Build build;
  std::string reason{};  ///< why it is refused
  int64_t opset = 17;
};

void PrintTo(const Network& network, std::ostream* out) { *out << network.name; }

FileBuilder file_of(const Network& network) {
  FileBuilder file(network.opset);
  file.input("x", network.input).output("y");
  network.build(file);
  return file;
}

Tensor run_one(const Model& model, const Tensor& x) {
  return test::run(test::start(model, preset_plan("float32").value()), std::vector{x}).at(0);
}

class TakesSeveral : public testing::TestWithParam<Network> {};

TEST_P(TakesSeveral, AsItTakesEachAlone) {
  const FileBuilder file = file_of(GetParam());
  const OnnxImport several = file.import({.batch = kBatch});
  ASSERT_EQ(several.one_sample, "");
  Shape shape = several.model.graph.value(several.model.graph.inputs()[0].value).shape;
  ASSERT_EQ(shape[0], kBatch);
  const Tensor x{shape, numbers(element_count(shape))};
  const Tensor together = run_one(several.model, x);
  const Model one = file.import().model;
  Tensor apart{together.shape, {}};
  const int64_t size = element_count(shape) / kBatch;
  shape[0] = 1;
  for (int64_t i = 0; i < kBatch; ++i) {
    const Tensor y =
        run_one(one, {shape, {x.data.begin() + i * size, x.data.begin() + (i + 1) * size}});
    ASSERT_EQ(y.shape[0], 1);
    apart.data.insert(apart.data.end(), y.data.begin(), y.data.end());
  }
  test::expect_close(together, apart, 1e-6);
}

void reshape(FileBuilder& file, const std::string& from, const std::vector<int64_t>& target,
             const std::string& to) {
  file.integers("shape_of_" + to, {static_cast<int64_t>(target.size())}, target);
  file.node("Reshape", {from, "shape_of_" + to}, {to}, "reshape_" + to);
}
void transpose(FileBuilder& file, const std::string& from, const std::vector<int64_t>& order,
               const std::string& to) {
  test::set_ints(file.node("Transpose", {from}, {to}, "transpose_" + to), "perm", order);
}
void with_axis(::onnx::NodeProto& node, int64_t axis) { test::set_int(node, "axis", axis); }

/// Heads merged into the batch, [5, 2 N, 2], as in torch.nn.MultiheadAttention.
void heads_in_the_batch(FileBuilder& f) {
  transpose(f, "x", {1, 0, 2}, "t");
  f.floats("w", {4, 4}, numbers(16)).node("MatMul", {"t", "w"}, {"q"}, "q");
  reshape(f, "q", {5, 2, 2}, "heads");
  transpose(f, "heads", {1, 0, 2}, "a");
  transpose(f, "heads", {1, 2, 0}, "b");
  f.node("MatMul", {"a", "b"}, {"scores"}, "scores");
  with_axis(f.node("Softmax", {"scores"}, {"p"}, "softmax"), -1);
  f.node("MatMul", {"p", "a"}, {"mixed"}, "mix");
  transpose(f, "mixed", {1, 0, 2}, "back");
  reshape(f, "back", {5, 4}, "rows");
  f.floats("v", {3, 4}, numbers(12)).floats("c", {3}, numbers(3));
  test::set_int(f.node("Gemm", {"rows", "v", "c"}, {"out"}, "out"), "transB", 1);
  reshape(f, "out", {5, 1, 3}, "sequence");
  transpose(f, "sequence", {1, 0, 2}, "y");
}

/// Keys as PyTorch's exporter transposes them.
void keys_in_a_detour(FileBuilder& f) {
  reshape(f, "x", {1, 5, 2, 2}, "split");
  transpose(f, "split", {0, 2, 1, 3}, "q");
  reshape(f, "q", {-1, 5, 2}, "rows");
  transpose(f, "rows", {0, 2, 1}, "columns");
  reshape(f, "columns", {1, 2, 2, 5}, "k");
  f.node("MatMul", {"q", "k"}, {"scores"}, "scores");
  with_axis(f.node("Softmax", {"scores"}, {"p"}, "softmax"), -1);
  f.node("MatMul", {"p", "q"}, {"y"}, "mix");
}

/// Windows merged into the batch, with a bias for each of them.
void windows(FileBuilder& f) {
  reshape(f, "x", {1, 2, 2, 3, 2, 2}, "parts");
  transpose(f, "parts", {0, 1, 3, 2, 4, 5}, "moved");
  reshape(f, "moved", {6, 4, 2}, "windows");
  f.floats("s", {2}, numbers(2)).floats("bias", {6, 1, 2}, numbers(12));
  f.node("LayerNormalization", {"windows", "s"}, {"n"}, "norm");
  reshape(f, "n", {1, 6, 4, 2}, "apart");
  f.node("Add", {"apart", "bias"}, {"biased"}, "bias");
  reshape(f, "biased", {6, 4, 2}, "again");
  transpose(f, "again", {0, 2, 1}, "columns");
  f.node("MatMul", {"again", "columns"}, {"scores"}, "scores");
  f.node("MatMul", {"scores", "again"}, {"mixed"}, "mix");
  reshape(f, "mixed", {1, 2, 3, 2, 2, 2}, "grid");
  transpose(f, "grid", {0, 1, 3, 2, 4, 5}, "image");
  reshape(f, "image", {1, 4, 6, 2}, "y");
}

void class_token(FileBuilder& f) {
  f.floats("token", {1, 1, 4}, numbers(4)).integers("zero", {}, {0});
  with_axis(f.node("Concat", {"token", "x"}, {"all"}, "concat"), 1);
  with_axis(f.node("Softmax", {"all"}, {"p"}, "softmax"), 1);
  with_axis(f.node("Gather", {"p", "zero"}, {"y"}, "first"), 1);
}

/// Learned queries with two heads, which are as many as those of one sample's keys.
void learned_queries(FileBuilder& f) {
  f.floats("query", {2, 3, 2}, numbers(12)).floats("w", {4, 4}, numbers(16));
  f.node("MatMul", {"x", "w"}, {"kv"}, "kv");
  transpose(f, "kv", {1, 0, 2}, "t");
  reshape(f, "t", {5, 2, 2}, "heads");
  transpose(f, "heads", {1, 2, 0}, "k");
  transpose(f, "heads", {1, 0, 2}, "v");
  f.node("Exp", {"query"}, {"q"}, "q");
  f.node("MatMul", {"q", "k"}, {"scores"}, "scores");
  with_axis(f.node("Softmax", {"scores"}, {"p"}, "softmax"), -1);
  f.node("MatMul", {"p", "v"}, {"mixed"}, "mix");
  f.node("Add", {"mixed", "query"}, {"added"}, "add");
  transpose(f, "added", {1, 0, 2}, "back");
  reshape(f, "back", {3, 1, 4}, "rows");
  transpose(f, "rows", {1, 0, 2}, "y");
}

void channel_shuffle(FileBuilder& f) {
  f.floats("w", {4, 2, 1, 1}, numbers(8));
  test::set_int(f.node("Conv", {"x", "w"}, {"c"}, "conv"), "group", 2);
  reshape(f, "c", {1, 2, 2, 3, 3}, "groups");
  transpose(f, "groups", {0, 2, 1, 3, 4}, "shuffled");
  reshape(f, "shuffled", {1, -1, 3, 3}, "y");
}

/// GroupNorm with one group and one channel as exporters write it: samples are followed by two 1s.
void group_norm(FileBuilder& f) {
  reshape(f, "x", {0, 1, -1}, "rows");
  f.floats("one", {1}, {2.0f}).floats("zero", {1}, {0.5f});
  f.node("InstanceNormalization", {"rows", "one", "zero"}, {"n"}, "norm");
  reshape(f, "n", {1, 1, 3, 4}, "y");
}

void computed_shape(FileBuilder& f) {
  f.node("Shape", {"x"}, {"s"});
  f.integers("first", {1}, {0}).integers("rest", {1}, {-1});
  f.node("Gather", {"s", "first"}, {"n"});
  with_axis(f.node("Concat", {"n", "rest"}, {"target"}), 0);
  f.node("Reshape", {"x", "target"}, {"flat"}, "flat");
  // Zeros for each sample, and the root of a dimension that is not theirs.
  f.integers("two", {1}, {2}).integers("last", {1}, {2});
  with_axis(f.node("Concat", {"n", "two"}, {"size"}), 0);
  f.node("ConstantOfShape", {"size"}, {"zeros"});
  with_axis(f.node("Concat", {"flat", "zeros"}, {"wide"}, "wide"), 1);
  f.node("Gather", {"s", "last"}, {"d"});
  test::set_int(f.node("Cast", {"d"}, {"real"}), "to", 1);
  f.node("Sqrt", {"real"}, {"root"});
  f.node("Div", {"wide", "root"}, {"y"}, "scale");
}

const std::vector<Network>& accepted() {
  static const std::vector<Network> all{
      {"heads_in_the_batch", {1, 5, 4}, heads_in_the_batch},
      {"keys_in_a_detour", {1, 5, 4}, keys_in_a_detour},
      {"windows", {1, 4, 6, 2}, windows},
      {"class_token", {1, 5, 4}, class_token},
      {"learned_queries", {1, 5, 4}, learned_queries},
      {"channel_shuffle", {1, 4, 3, 3}, channel_shuffle},
      {"group_norm", {1, 1, 3, 4}, group_norm},
      {"computed_shape", {1, 3, 4}, computed_shape},
      {"softmax_of_rows",
       {1, 3, 4},
       [](FileBuilder& f) { with_axis(f.node("Softmax", {"x"}, {"y"}, "softmax"), 1); },
       "",
       11},
      {"lines",
       {1, 1, 6},
       [](FileBuilder& f) {
         f.floats("w", {2, 1, 3}, numbers(6)).node("Conv", {"x", "w"}, {"y"}, "conv");
       }},
      {"tiles",
       {1, 4},
       [](FileBuilder& f) {
         f.integers("repeats", {2}, {1, 3}).node("Tile", {"x", "repeats"}, {"y"}, "tile");
       }},
      {"depth_to_space",
       {1, 4, 3, 2},
       [](FileBuilder& f) {
         test::set_int(f.node("DepthToSpace", {"x"}, {"y"}, "shuffle"), "blocksize", 2);
       }},
      {"reductions",
       {1, 3, 4},
       [](FileBuilder& f) {
         auto& mean = f.node("ReduceMean", {"x"}, {"m"}, "mean");
         test::set_ints(mean, "axes", {1});
         test::set_int(mean, "keepdims", 0);
         with_axis(f.node("CumSum", {"m", "one"}, {"y"}, "sums"), 1);
         f.integers("one", {}, {1});
         f.graph().mutable_node(1)->clear_attribute();
       }},
      {"weight_times_samples",
       {1, 4, 3},
       [](FileBuilder& f) {
         f.floats("w", {5, 4}, numbers(20)).node("MatMul", {"w", "x"}, {"y"}, "mix");
       }},
      {"moved_axis_and_back",
       {1, 3, 4},
       [](FileBuilder& f) {
         transpose(f, "x", {1, 2, 0}, "t");  // samples last
         f.floats("b", {4, 1}, numbers(4)).node("Add", {"t", "b"}, {"a"}, "shift");
         auto& total = f.node("ReduceSum", {"a", "axes"}, {"s"}, "sum");
         f.integers("axes", {1}, {0});
         test::set_int(total, "keepdims", 0);
         transpose(f, "s", {1, 0}, "y");
       }},
      {"own_picks", {1, 3, 4}, [](FileBuilder& f) {
         auto& most = f.node("ArgMax", {"x"}, {"at"}, "most");
         with_axis(most, 1);
         with_axis(f.node("GatherElements", {"x", "at"}, {"y"}, "pick"), 1);
       }}};
  return all;
}

std::string name_of(const testing::TestParamInfo<Network>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(All, TakesSeveral, testing::ValuesIn(accepted()), name_of);

class TakesOne : public testing::TestWithParam<Network> {};

TEST_P(TakesOne, AndNamesTheNode) {
  const OnnxImport import = file_of(GetParam()).import({.batch = kBatch});
  EXPECT_THAT(import.one_sample, HasSubstr(GetParam().reason));
  EXPECT_EQ(import.model.graph.value(import.model.graph.inputs()[0].value).shape,
            Shape(GetParam().input));
  EXPECT_THAT(import.notes, testing::Contains(HasSubstr(GetParam().reason)));
}

Build along(const char* op, int64_t axis) {
  return [=](FileBuilder& f) { with_axis(f.node(op, {"x"}, {"y"}, "node"), axis); };
}

/// x minus something of it, as large or of one row.
Build minus(const Build& other) {
  return [=](FileBuilder& f) {
    other(f);
    f.node("Sub", {"x", "other"}, {"y"}, "minus");
  };
}

Build reduced(const char* op, int64_t keepdims) {
  return minus([=](FileBuilder& f) {
    auto& node = f.node(op, {"x"}, {"other"}, "node");
    test::set_ints(node, "axes", {0});
    test::set_int(node, "keepdims", keepdims);
  });
}

Build sliced(int64_t start, int64_t end, int64_t step) {
  return minus([=](FileBuilder& f) {
    f.integers("starts", {1}, {start}).integers("ends", {1}, {end}).integers("axes", {1}, {0});
    f.integers("steps", {1}, {step});
    f.node("Slice", {"x", "starts", "ends", "axes", "steps"}, {"other"}, "node");
  });
}

/// Every sample minus every other one: the same elements twice, with a dimension inserted.
Build pairs(bool unsqueezed) {
  return [=](FileBuilder& f) {
    for (const int64_t axis : {0, 1}) {
      const std::string side = axis == 0 ? "a" : "b";
      f.integers("axis_" + side, {1}, {axis});
      if (unsqueezed) {
        f.node("Unsqueeze", {"x", "axis_" + side}, {side});
      } else {
        reshape(f, "x", {1, 1, 4}, side);
      }
    }
    f.node("Sub", {"a", "b"}, {"d"}, "node");
    reshape(f, "d", {1, 4}, "y");
  };
}

void number_of_samples(FileBuilder& f, const char* made) {
  f.integers("first", {}, {0}).node("Shape", {"x"}, {"s"});
  f.node("Gather", {"s", "first"}, {"n"});
  test::set_int(f.node("Cast", {"n"}, {made}), "to", 1);
}

/// Rows of all numbers of the samples, by constant places.
Build picked_places(const std::vector<int64_t>& shape, const std::vector<int64_t>& places) {
  return [=](FileBuilder& f) {
    reshape(f, "x", {-1}, "flat");
    f.integers("places", shape, places).node("Gather", {"flat", "places"}, {"y"}, "node");
  };
}

/// Sizes of the dimensions of x, the last one multiplied by that of the first.
void resized_by_it(FileBuilder& f) {
  f.node("Shape", {"x"}, {"s"});
  f.integers("first", {1}, {0}).integers("rest", {3}, {1, 2, 3});
  f.node("Gather", {"s", "first"}, {"n"});
  f.node("Gather", {"s", "rest"}, {"r"});
  f.node("Mul", {"r", "n"}, {"more"});
  with_axis(f.node("Concat", {"n", "more"}, {"sizes"}), 0);
  f.node("Resize", {"x", "", "", "sizes"}, {"y"}, "node");
}

/// Initial zeros for all samples, with as many features as there are samples.
void state_of_other_size(FileBuilder& f) {
  f.node("Shape", {"x"}, {"s"});
  f.integers("first", {1}, {0}).integers("one", {1}, {1}).node("Gather", {"s", "first"}, {"n"});
  with_axis(f.node("Concat", {"one", "one", "n"}, {"size"}), 0);
  f.node("ConstantOfShape", {"size"}, {"zeros"});
  transpose(f, "x", {1, 0, 2}, "t");
  f.floats("w", {1, 1, 4}, numbers(4)).floats("r", {1, 1, 1}, {0.5f});
  f.node("RNN", {"t", "w", "r", "", "", "zeros"}, {"", "last"}, "node");
  transpose(f, "last", {1, 0, 2}, "y");
}

const std::vector<Network>& refused() {
  static const std::vector<Network> all{
      {"softmax", {1, 4}, along("Softmax", 0), "node (Softmax): it works along"},
      {"log_softmax", {1, 4}, along("LogSoftmax", 0), "node (LogSoftmax): it works along"},
      {"mean", {1, 4}, reduced("ReduceMean", 0), "node (ReduceMean): it works along"},
      {"kept_mean", {1, 4}, reduced("ReduceMean", 1), "node (ReduceMean): it works along"},
      {"max", {1, 4}, reduced("ReduceMax", 1), "node (ReduceMax): it works along"},
      {"flip", {1, 4}, sliced(-1, INT64_MIN, -1), "node (Slice): it picks or reverses samples"},
      {"first", {1, 4}, sliced(0, 1, 1), "picks samples"},
      {"last", {1, 4}, sliced(-1, INT64_MAX, 1), "picks samples"},
      {"sum_up",
       {1, 4},
       [](FileBuilder& f) {
         f.integers("zero", {}, {0}).node("CumSum", {"x", "zero"}, {"y"}, "node");
       },
       "node (CumSum): it works along"},
      {"row",
       {1, 4},
       minus([](FileBuilder& f) {
         f.integers("zero", {}, {0}).node("Gather", {"x", "zero"}, {"other"}, "node");
       }),
       "node (Gather): it picks samples"},
      {"products",
       {1, 4},
       [](FileBuilder& f) {
         transpose(f, "x", {1, 0}, "t");
         f.node("MatMul", {"x", "t"}, {"y"}, "node");
       },
       "node (MatMul): it multiplies samples with each other"},
      {"covariance",
       {1, 4},
       [](FileBuilder& f) {
         test::set_int(f.node("Gemm", {"x", "x"}, {"c"}, "node"), "transA", 1);
         f.node("MatMul", {"x", "c"}, {"y"});
       },
       "node (Gemm): it multiplies samples with each other"},
      {"pairs", {1, 4}, pairs(true), "node (Sub): it combines each sample with the others"},
      {"pairs_of_views", {1, 4}, pairs(false), "node (Sub): it mixes samples if"},
      {"side_by_side",
       {1, 4},
       [](FileBuilder& f) {
         with_axis(f.node("Concat", {"x", "x"}, {"y"}, "node"), 0);
       },
       "node (Concat): it concatenates samples"},
      {"mixing_rows",
       {1, 4},
       [](FileBuilder& f) {
         reshape(f, "x", {2, 2}, "rows");
         with_axis(f.node("Softmax", {"rows"}, {"p"}, "node"), 0);
         reshape(f, "p", {1, 4}, "y");
       },
       "node (Softmax): it works along"},
      {"all_as_one",
       {1, 3, 4},
       [](FileBuilder& f) { with_axis(f.node("Softmax", {"x"}, {"y"}, "node"), 0); },
       "(Softmax): it works along",
       11},
      {"divided",
       {1, 4},
       [](FileBuilder& f) {
         number_of_samples(f, "count");
         f.node("Div", {"x", "count"}, {"y"}, "node");
       },
       "computes with the number of samples"},
      {"sliced_by_it",
       {1, 4},
       [](FileBuilder& f) {
         f.node("Shape", {"x"}, {"s"});
         f.integers("zero", {1}, {0}).node("Gather", {"s", "zero"}, {"n"});
         f.integers("axis", {1}, {1}).node("Slice", {"x", "zero", "n", "axis"}, {"y"}, "node");
       },
       "takes its ends from the number of samples"},
      {"repeated",
       {1, 4},
       [](FileBuilder& f) {
         f.integers("repeats", {2}, {2, 1}).node("Tile", {"x", "repeats"}, {"t"}, "node");
         reshape(f, "t", {1, 8}, "y");
         f.graph().mutable_node()->RemoveLast();
         f.node("Softmax", {"t"}, {"y"}, "after");
       },
       "output y"},
      {"normalized",
       {1, 4},
       [](FileBuilder& f) {
         f.floats("s", {1, 4}, numbers(4));
         with_axis(f.node("LayerNormalization", {"x", "s"}, {"y"}, "node"), 0);
       },
       "node (LayerNormalization): it normalizes over the samples"},
      {"samples_elsewhere",
       {1, 4},
       [](FileBuilder& f) {
         transpose(f, "x", {1, 0}, "y");
       },
       "output y: its first dimension is not the number of samples"},
      {"squeezed",
       {1, 4},
       [](FileBuilder& f) {
         f.integers("zero", {1}, {0}).node("Squeeze", {"x", "zero"}, {"y"}, "node");
       },
       "node (Reshape): it removes the dimension of the samples"},
      {"some_places", {1, 4}, picked_places({1, 2}, {0, 2}), "node (Gather): it picks samples"},
      {"row_of_places",
       {1, 4},
       picked_places({4}, {0, 1, 2, 3}),
       "node (Gather): it picks samples"},
      {"resized_by_it",
       {1, 2, 3, 3},
       resized_by_it,
       "node (Resize): it takes its sizes from the number of samples"},
      {"state_of_other_size",
       {1, 5, 4},
       state_of_other_size,
       "node/step_0/product (MatMul): it sums"},
      {"elements_of_samples",
       {1, 4},
       [](FileBuilder& f) {
         f.integers("at", {1, 4}, {0, 0, 0, 0});
         with_axis(f.node("GatherElements", {"x", "at"}, {"y"}, "node"), 0);
       },
       "node (GatherElements): it picks samples"},
      {"moved_by_a_view",
       {1, 1, 4},
       [](FileBuilder& f) {
         reshape(f, "x", {1, 1, 4}, "other");
         f.node("Sub", {"x", "other"}, {"y"}, "node");
       },
       "node (Sub): it mixes samples if they are in dimension 1 of"},
      {"sum_of_all",
       {1, 4},
       [](FileBuilder& f) { f.node("ReduceSum", {"x"}, {"y"}, "node"); },
       "node (ReduceSum): it works along"}};
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, TakesOne, testing::ValuesIn(refused()), name_of);

const std::map<std::string, test::NodeCase>& exports() {
  static const auto all = test::read_cases("one_sample.zip");
  return all;
}

std::vector<std::string> export_names() {
  std::vector<std::string> names;
  for (const auto& [name, each] : exports()) names.push_back(name);
  return names;
}

class ExportsOfOneSample : public testing::TestWithParam<std::string> {};

TEST_P(ExportsOfOneSample, GiveWhatPyTorchGivesForSeveral) {
  const test::NodeCase& given = exports().at(GetParam());
  const Tensor &x = given.arrays.at("in0"), &y = given.arrays.at("out0");
  const OnnxImport import =
      parse_onnx(given.model, GetParam() + ".onnx", ".", {.batch = x.shape[0]});
  ASSERT_EQ(import.one_sample, "");
  test::expect_close(run_one(import.model, x), y, 3e-6);
}

INSTANTIATE_TEST_SUITE_P(All, ExportsOfOneSample, testing::ValuesIn(export_names()),
                         [](const auto& info) { return info.param; });

TEST(BatchAxis, WhichInputsHoldSamples) {
  FileBuilder file;
  file.input("ids", {1, 4}, 7).input("lengths", {1}, 7).input("mask", {4, 4}).input("t", {1});
  file.output("y").floats("table", {5, 4}, numbers(20));
  file.node("Gather", {"table", "ids"}, {"e"}, "embed");
  file.node("Mul", {"e", "t"}, {"scaled"});
  file.node("MatMul", {"scaled", "mask"}, {"m"});
  test::set_int(file.node("Cast", {"lengths"}, {"l"}), "to", 1);
  file.integers("ends", {2}, {1, 2}).node("Unsqueeze", {"l", "ends"}, {"column"});
  file.node("Div", {"m", "column"}, {"y"});
  const OnnxImport import = file.import({.batch = kBatch});
  ASSERT_EQ(import.one_sample, "");
  std::map<std::string, Shape> shapes;
  for (const Input& input : import.model.graph.inputs())
    shapes[input.name] = import.model.graph.value(input.value).shape;
  EXPECT_EQ(shapes,
            (std::map<std::string, Shape>{
                {"ids", {kBatch, 4}}, {"lengths", {kBatch}}, {"mask", {4, 4}}, {"t", {1}}}));
  EXPECT_EQ(import.model.graph.value(import.model.outputs[0].value).shape, (Shape{kBatch, 4, 4}));
}

// One value per channel has no variance; several samples have one.
TEST(BatchAxis, BatchNormalizationOfOneRowTrains) {
  FileBuilder file;
  file.input("x", {1, 2}).output("y");
  for (const char* name : {"scale", "bias", "mean", "variance"})
    file.floats(name, {2}, {1.5f, 2.0f});
  file.node("BatchNormalization", {"x", "scale", "bias", "mean", "variance"}, {"y"}, "bn");
  const auto buffers = [](const Model& model) {
    std::vector<std::string> paths;
    for (const Variable& variable : model.graph.variables()) {
      if (variable.buffer && variable.next != kNone) paths.push_back(variable.path);
    }
    return paths;
  };
  EXPECT_TRUE(buffers(file.import().model).empty());
  const Model model = file.import({.batch = kBatch}).model;
  EXPECT_EQ(buffers(model), (std::vector<std::string>{"bn.running_mean", "bn.running_var"}));
  EXPECT_EQ(model.initial.at("bn.running_var").data, (std::vector<float>{1.5f, 2.0f}));
  EXPECT_EQ(model.graph.value(model.outputs[0].value).shape, (Shape{kBatch, 2}));
}

TEST(BatchAxis, TooManySamplesAreRefused) {
  FileBuilder file;
  file.input("x", {1, 1000, 1000}).output("y").node("Relu", {"x"}, {"y"}, "relu");
  try {
    file.import({.batch = int64_t{1} << 60});
    ADD_FAILURE() << "imports";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("relu (Relu): up to this node, the network has more than"));
  }
}

TEST(BatchAxis, OperandsOfConcatThatAllSamplesShareExpand) {
  const OnnxImport import = file_of({"", {1, 5, 4}, class_token}).import({.batch = kBatch});
  const Node& node = import.model.graph.node(0);
  EXPECT_EQ(node.op + " " + node.path, "Expand concat/samples");
}

TEST(Simplified, ADetourOfReshapesIsATranspose) {
  const Model model = file_of({"", {1, 5, 4}, keys_in_a_detour}).import().model;
  std::vector<std::string> found;
  for (const Node& node : model.graph.nodes()) found.push_back(node.op + " " + node.path);
  EXPECT_THAT(found, testing::ElementsAre("Reshape reshape_split", "Transpose transpose_q",
                                          "Transpose transpose_columns", "Attention mix"));
  EXPECT_EQ(ints_attribute(model.graph.node(2), "perm"), (std::vector<int64_t>{0, 1, 3, 2}));
}

TEST(Simplified, ADetourThatSplitsOtherwiseStays) {
  const auto build = [](std::vector<int64_t> back, bool read_elsewhere) {
    FileBuilder file;
    file.input("x", {2, 3, 4, 4}).output("y");
    reshape(file, "x", {-1, 4, 4}, "rows");
    transpose(file, "rows", {0, 2, 1}, "columns");
    reshape(file, "columns", back, "y");
    if (read_elsewhere) file.output("columns");
    return file.import().model.graph.nodes().size();
  };
  EXPECT_EQ(build({2, 3, 4, 4}, false), 1u);
  EXPECT_EQ(build({3, 2, 4, 4}, false), 3u);
  EXPECT_EQ(build({2, 3, 2, 8}, false), 3u);
  EXPECT_EQ(build({2, 3, 4, 4}, true), 3u);
}

}  // namespace
}  // namespace halfscope::batch_axis
