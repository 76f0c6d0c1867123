// SPDX-License-Identifier: MIT
// TensorFlow's automatic mixed precision: lists, environment, devices, reasons and files. What it
// paints is checked against TensorFlow in tf_amp_oracle_test.cpp.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include "core/error.h"
#include "core/policy/grappler/device_name.h"
#include "core/policy/grappler/paint.h"
#include "core/policy/grappler/tf_graph_def.h"

namespace halfscope::grappler {
namespace {

TfNode node(std::string name, std::string op, std::vector<std::string> inputs) {
  TfNode made{.name = std::move(name), .op = std::move(op), .inputs = std::move(inputs)};
  made.attrs[made.op == "Placeholder" ? "dtype" : "T"].type = kTfFloat;
  return made;
}

/// x -> MatMul -> Relu -> MatMul -> BiasAdd -> Exp -> Add -> Identity -> MatMul
TfGraph chain() {
  TfGraph graph;
  graph.nodes = {node("x", "Placeholder", {}),         node("m1", "MatMul", {"x", "x"}),
                 node("relu", "Relu", {"m1"}),         node("m2", "MatMul", {"relu", "relu"}),
                 node("bias", "BiasAdd", {"m2", "x"}), node("exp", "Exp", {"bias"}),
                 node("add", "Add", {"exp", "x"}),     node("id", "Identity", {"add"}),
                 node("m3", "MatMul", {"id", "id"}),   node("sin", "Sin", {"m3"})};
  return graph;
}

std::string why(const TfGraph& graph, const AmpOptions& options, const std::string& name) {
  const AmpPainting painting = paint(graph, options);
  for (size_t i = 0; i < painting.paints.size(); ++i) {
    if (graph.nodes[painting.paints[i].node].name == name) return reason_of(graph, painting, i);
  }
  return "";
}

std::string change(const TfGraph& graph, const AmpOptions& options, const std::string& name) {
  const AmpPainting painting = paint(graph, options);
  for (size_t i = 0; i < painting.paints.size(); ++i) {
    if (graph.nodes[painting.paints[i].node].name == name)
      return change_of(painting, trials(graph, painting), i);
  }
  return "";
}

TEST(TfAmp, ReasonsNameThePathThatDecided) {
  const TfGraph graph = chain();
  const AmpOptions options{.preserve = {"x"}};
  EXPECT_EQ(why(graph, options, "m1"), "MatMul is on the allow list.");
  EXPECT_EQ(why(graph, options, "relu"),
            "Relu is between two allowed operators, and nothing before it is denied: m1 (MatMul) "
            "-> relu (Relu) -> m2 (MatMul).");
  EXPECT_EQ(why(graph, options, "bias"),
            "BiasAdd is on the infer list and reads float16 output of m2 (MatMul); it reads "
            "nothing that is denied.");
  EXPECT_EQ(why(graph, options, "exp"), "Exp is on the deny list.");
  EXPECT_EQ(why(graph, options, "add"),
            "It is downstream of exp (Exp), which is on the deny list: exp (Exp) -> add (Add).");
  EXPECT_EQ(why(graph, options, "sin"), "Sin is on none of the lists.");
  EXPECT_EQ(why(graph, options, "x"),
            "The pass must not change it: it is fed, fetched or preserved.");
  EXPECT_EQ(paint(graph, options).log,
            "Converted 6/10 nodes to float16 precision using 2 cast(s) to float16 (excluding Const "
            "and Variable casts)");
}

TEST(TfAmp, OlderVersionsDoNotPaintFollowers) {
  EXPECT_EQ(why(chain(), {.followers = false, .preserve = {"x"}}, "bias"),
            "BiasAdd is on the infer list, but it is not between two allowed operators.");
}

TEST(TfAmp, ChangesNameTheEditWithTheFewestOtherNodes) {
  const TfGraph graph = chain();
  const AmpOptions options{.preserve = {"x"}};
  EXPECT_EQ(change(graph, options, "relu"), "Remove Relu from the clear list.");
  EXPECT_EQ(change(graph, options, "bias"), "Remove BiasAdd from the infer list.");
}

TEST(TfAmp, CountsAsInTheSummary) {
  const AmpPainting painting = paint(chain(), {.preserve = {"x"}});
  EXPECT_EQ(summary_text(painting.summary),
            "Automatic Mixed Precision Grappler Pass Summary (our definition):\n"
            "  Total processable nodes: 9\n"
            "  Recognized nodes available for conversion: 8\n"
            "  Total nodes converted: 6\n"
            "  Total FP16 Cast ops used (excluding Const and Variable casts): 2\n"
            "  Allowlisted nodes converted: 3\n"
            "  Denylisted nodes blocking conversion: 1\n"
            "  Nodes blocked from conversion by denylisted nodes: 1\n");
}

TEST(TfAmp, AnOperatorOnTwoListsIsRefused) {
  AmpOptions options;
  options.edits = {{AmpList::infer, true, "Exp"}};
  try {
    paint(chain(), options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "operator 'Exp' is on the infer list and on the deny list");
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_EQ(error.hint(),
              "remove it from one of them, for example with "
              "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_INFERLIST_REMOVE=Exp");
  }
}

TEST(TfAmp, ListsDependOnVersionsAndMode) {
  EXPECT_TRUE(amp_lists({}).allow.contains("BatchMatMulV2"));
  EXPECT_FALSE(amp_lists({.cuda_version = 9000}).allow.contains("BatchMatMulV2"));
  EXPECT_TRUE(amp_lists({.cudnn_version = 7602}).allow.contains("Conv3D"));
  EXPECT_FALSE(amp_lists({.cudnn_version = 7601}).allow.contains("Conv3D"));
  EXPECT_FALSE(amp_lists({.cudnn_version = 7999}).allow.contains("DepthwiseConv2dNative"));
  EXPECT_EQ(amp_lists({}).list_of("Mean"), AmpList::deny);
  EXPECT_EQ(amp_lists({.mode = AmpMode::cpu_bfloat16}).list_of("Mean"), AmpList::infer);
  EXPECT_EQ(amp_lists({.mode = AmpMode::cpu_float16}).list_of("Rsqrt"), AmpList::infer);
  EXPECT_EQ(amp_lists({}).list_of("Rsqrt"), std::nullopt);
  EXPECT_EQ(amp_lists({.mode = AmpMode::cpu_float16}).list_of("LSTMBlockCell"), std::nullopt);
  EXPECT_TRUE(amp_lists({.level = AmpLevel::tensor_cores_only}).deny.empty());
  EXPECT_EQ(amp_lists({.level = AmpLevel::treat_infer_as_deny}).list_of("Add"), AmpList::deny);
  EXPECT_THROW(amp_lists({.mode = AmpMode::cpu_bfloat16, .level = AmpLevel::unsafe_force_all}),
               Error);
}

TEST(TfAmp, OldGpusAreLeftOutUnlessToldOtherwise) {
  EXPECT_TRUE(paint(chain(), {.compute_capability = 61}).skipped);
  EXPECT_FALSE(paint(chain(), {.ignore_performance = true, .compute_capability = 61}).skipped);
  EXPECT_TRUE(paint(chain(), {.compute_capability = 0}).skipped);
}

TEST(TfAmp, ReadsTheEnvironmentUnderBothNames) {
  AmpOptions options;
  read_environment(options, [](const std::string& name) -> std::optional<std::string> {
    const std::string part =
        name.substr(std::string("TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_").size());
    if (part == "LEVEL") return "treat_infer_as_deny";
    if (part == "IGNORE_PERFORMANCE") return "true";
    if (part == "DENYLIST_ADD") return "A,B";
    if (part == "WHITELIST_REMOVE") return "MatMul";
    return std::nullopt;
  });
  EXPECT_EQ(options.level, AmpLevel::treat_infer_as_deny);
  EXPECT_TRUE(options.ignore_performance);
  const std::vector<AmpListEdit> edits{{AmpList::allow, false, "MatMul", true},
                                       {AmpList::deny, true, "A"},
                                       {AmpList::deny, true, "B"}};
  EXPECT_EQ(options.edits, edits);
  EXPECT_THROW(read_environment(options,
                                [](const std::string& name) -> std::optional<std::string> {
                                  if (name.ends_with("IGNORE_PERFORMANCE")) return "perhaps";
                                  return std::nullopt;
                                }),
               Error);
}

TEST(TfAmp, DeviceNames) {
  EXPECT_EQ(device_type("/job:worker/replica:0/task:3/device:GPU:1"), "gpu");
  EXPECT_EQ(device_type("/GPU:0"), "gpu");
  EXPECT_EQ(device_type("/device:CPU:*"), "cpu");
  EXPECT_EQ(device_type("/job:localhost"), "");
  EXPECT_EQ(device_type("GPU"), "");
  EXPECT_TRUE(is_on_device("", "gpu", "gpu"));
  EXPECT_FALSE(is_on_device("/job:localhost", "gpu", "gpu"));
}

/// Opposite ends of the table of operators, and the types of one line.
TEST(TfAmp, KnowsTensorFlowsOperators) {
  ASSERT_NE(find_tf_op("FusedBatchNormV3"), nullptr);
  const TfOp& norm = *find_tf_op("FusedBatchNormV3");
  EXPECT_EQ(norm.inputs.size(), 5u);
  EXPECT_EQ(norm.outputs.size(), 6u);
  EXPECT_EQ(norm.outputs[1].attr, "U");
  EXPECT_EQ(norm.attr("U")->allowed, tf_type_bit(kTfFloat) | tf_type_bit(kTfBfloat16));
  EXPECT_EQ(norm.gpu.size(), 1u);
  EXPECT_NE(find_tf_op("ZipDataset"), nullptr);
  EXPECT_NE(find_tf_op("Abort"), nullptr);
  EXPECT_EQ(find_tf_op("NoSuchOp"), nullptr);
  EXPECT_TRUE(find_tf_op("VariableV2")->has_refs);
}

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(TfAmp, BadGraphsAreRefused) {
  TfGraph graph = chain();
  graph.nodes[1].inputs = {"x"};
  EXPECT_EQ(message_of([&] { paint(graph, {}); }),
            "bad TensorFlow graph: node 'm1' (MatMul) has 1 inputs instead of 2");
  graph.nodes[1].inputs = {"x", "nobody:1"};
  EXPECT_EQ(message_of([&] { paint(graph, {}); }),
            "bad TensorFlow graph: node 'm1' reads 'nobody:1', which does not exist");
  graph.nodes[1].inputs = {"x", "x:7"};
  EXPECT_EQ(message_of([&] { paint(graph, {}); }),
            "bad TensorFlow graph: node 'm1' reads 'x:7', which does not exist");
  graph.nodes[1].op = "Oops";
  EXPECT_EQ(message_of([&] { paint(graph, {}); }),
            "bad TensorFlow graph: node 'm1' has the unknown operator Oops");
  graph = chain();
  graph.nodes[1].attrs.clear();
  EXPECT_EQ(message_of([&] { paint(graph, {}); }),
            "bad TensorFlow graph: node 'm1' (MatMul) has no attribute T");
  graph = chain();
  graph.nodes.push_back(graph.nodes.back());
  EXPECT_EQ(message_of([&] { paint(graph, {}); }),
            "bad TensorFlow graph: two nodes have the name 'sin'");
}

/// TensorFlow 2.21 refuses the same three graphs ("2 nodes in a cycle", "Unknown input node") and
/// takes the loop.
TEST(TfAmp, OnlyLoopsMayBeCycles) {
  TfGraph graph = chain();
  graph.nodes[1].inputs = {"x", "relu"};
  EXPECT_EQ(
      message_of([&] { paint(graph, {}); }),
      "bad TensorFlow graph: a cycle that is not a loop: 'm1' reads 'relu', which reads 'm1'");
  graph = chain();
  graph.nodes[2].inputs = {"m1", "^m3"};
  EXPECT_EQ(
      message_of([&] { paint(graph, {}); }),
      "bad TensorFlow graph: a cycle that is not a loop: 'relu' reads 'm3', which reads 'id', "
      "which reads 'add', which reads 'exp' and so on through 7 nodes");
  graph = chain();
  graph.nodes[2].inputs = {"m1", "^nobody"};
  EXPECT_EQ(message_of([&] { paint(graph, {}); }),
            "bad TensorFlow graph: node 'relu' waits for 'nobody', which does not exist");
  TfGraph loop;
  loop.nodes = {node("x", "Placeholder", {}), node("merge", "Merge", {"x", "next"}),
                node("mm", "MatMul", {"merge", "merge"}), node("next", "NextIteration", {"mm"})};
  loop.nodes[1].attrs["N"].i = 2;
  EXPECT_TRUE(paint(loop, {}).node_changed(2));
  loop.nodes[3].op = "Identity";
  EXPECT_NE(message_of([&] { paint(loop, {}); }), "");
}

TEST(TfAmp, FilesThatAreNoBinaryGraphAreNamed) {
  const auto message = [](const std::string& text) {
    return message_of([&] { parse_tf_graph(std::vector<uint8_t>(text.begin(), text.end()), "g"); });
  };
  EXPECT_EQ(message(""), "'g' is empty");
  EXPECT_EQ(message("node {\n  name: \"x\"\n}\n"), "'g' is text, not a binary GraphDef");
  EXPECT_EQ(message("abc"), "'g' is not a valid TensorFlow GraphDef, or it is truncated");
  EXPECT_EQ(message(std::string("\x0a\xff\x01", 3)),
            "'g' is not a valid TensorFlow GraphDef, or it is truncated");
}

TEST(TfAmp, VariablesOfAnEditKeepWhatIsSet) {
  const std::vector<AmpListEdit> set{{AmpList::clear, false, "Relu"},
                                     {AmpList::clear, false, "Foo"},
                                     {AmpList::infer, false, "Tanh"}};
  const std::string prefix = "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_";
  EXPECT_EQ(variables_after({}, {{AmpList::deny, true, "Softmax"}}),
            prefix + "DENYLIST_ADD=Softmax");
  EXPECT_EQ(variables_after(set, {{AmpList::infer, false, "Softmax"}}),
            prefix + "INFERLIST_REMOVE=Tanh,Softmax");
  EXPECT_EQ(variables_after(set, {{AmpList::clear, true, "Relu"}}),
            prefix + "CLEARLIST_REMOVE=Foo " + prefix + "CLEARLIST_ADD=Relu")
      << "a removal would undo the addition";
  EXPECT_EQ(
      variables_after({{AmpList::infer, true, "Sum", true}, {AmpList::infer, true, "A", true}},
                      {{AmpList::infer, false, "Sum"}}),
      prefix + "GRAYLIST_ADD=A " + prefix + "INFERLIST_REMOVE=Sum")
      << "TensorFlow reads the old variables last";
  EXPECT_EQ(variables_after(set, {{AmpList::infer, true, "Tanh"}}),
            prefix + "INFERLIST_REMOVE= " + prefix + "INFERLIST_ADD=Tanh");
}

/// Every shorter file of a real graph is read or refused, and never anything else; a cut within a
/// node is refused.
TEST(TfAmp, TruncatedFilesAreRefused) {
  const std::filesystem::path file =
      std::filesystem::path(HALFSCOPE_SOURCE_DIR) / "tests/policy/files/tf_amp/mlp_forward.pb";
  std::ifstream in(file, std::ios::binary);
  const std::vector<uint8_t> bytes{std::istreambuf_iterator<char>(in), {}};
  ASSERT_GT(bytes.size(), 100u);
  size_t refused = 0;
  for (size_t size = 1; size < bytes.size(); ++size) {
    const std::string what =
        message_of([&] { parse_tf_graph(std::span(bytes).first(size), "x.pb"); });
    if (what.empty()) continue;
    EXPECT_EQ(what, "'x.pb' is not a valid TensorFlow GraphDef, or it is truncated");
    ++refused;
  }
  EXPECT_GT(refused, bytes.size() * 9 / 10);
}

/// Damaged files are painted or refused; anything else would end this test.
TEST(TfAmp, DamagedFilesDoNoHarm) {
  const std::filesystem::path folder =
      std::filesystem::path(HALFSCOPE_SOURCE_DIR) / "tests/policy/files/tf_amp";
  size_t refused = 0, painted = 0;
  uint32_t random = 1;
  const auto next = [&random] { return random = random * 1664525U + 1013904223U, random >> 8U; };
  for (const char* name : {"lstm_tensor_lists", "old_batch_norm", "existing_casts"}) {
    std::ifstream in(folder / (std::string(name) + ".pb"), std::ios::binary);
    const std::vector<uint8_t> bytes{std::istreambuf_iterator<char>(in), {}};
    for (int round = 0; round < 400; ++round) {
      std::vector<uint8_t> damaged = bytes;
      for (uint32_t i = 0; i <= next() % 3; ++i)
        damaged[next() % damaged.size()] = static_cast<uint8_t>(next());
      const std::string what = message_of([&] { paint(parse_tf_graph(damaged, "x.pb"), {}); });
      ++(what.empty() ? painted : refused);
    }
  }
  EXPECT_GT(refused, 100u);
  EXPECT_GT(painted, 10u);
}

TEST(TfAmp, OtherFilesAreRefused) {
  const std::string text = "node { name: \"x\" }";
  const std::vector<uint8_t> bytes(text.begin(), text.end());
  EXPECT_EQ(message_of([&] { parse_tf_graph(bytes, "x.pbtxt"); }),
            "'x.pbtxt' is text, not a binary GraphDef");
  EXPECT_EQ(message_of([] { read_tf_graph("nowhere.pb"); }),
            "cannot read 'nowhere.pb': file not found");
}

}  // namespace
}  // namespace halfscope::grappler
