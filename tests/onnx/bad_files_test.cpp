// SPDX-License-Identifier: MIT
// Files that are damaged, hostile, or refer to missing data: one clear line that names the node,
// and nothing else happens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/error.h"
#include "tests/data/test_files.h"
#include "tests/onnx/network_support.h"

namespace halfscope {
namespace {

using test::FileBuilder;
using testing::AllOf;
using testing::HasSubstr;

std::string refusal_of(const std::vector<uint8_t>& bytes) {
  try {
    parse_onnx(bytes, "net.onnx", ".");
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    return what + " | " + error.hint();
  }
  return "";
}
std::string refusal_of(const FileBuilder& file) { return refusal_of(file.bytes()); }

/// One node of this operator between x [2, 3] and y.
FileBuilder one(const std::string& op, const std::string& name = "n") {
  FileBuilder file;
  file.input("x", {2, 3}).output("y");
  file.node(op, {"x"}, {"y"}, name);
  return file;
}

TEST(BadOnnxFile, NoModelAtAll) {
  EXPECT_THAT(refusal_of(std::vector<uint8_t>{}), HasSubstr("is not a valid ONNX file"));
  EXPECT_THAT(refusal_of(std::vector<uint8_t>{'h', 'e', 'l', 'l', 'o'}),
              HasSubstr("not a valid ONNX file"));
  std::vector<uint8_t> bytes = one("Relu").bytes();
  for (size_t length = 1; length < bytes.size(); ++length) {
    // Whatever is cut off: never anything but an Error, or a smaller network.
    try {
      parse_onnx(std::span(bytes).first(length), "net.onnx", ".");
    } catch (const Error&) {
    }
  }
}

TEST(BadOnnxFile, OperatorSets) {
  const auto of_opset = [](int64_t version) {
    FileBuilder file = one("Relu");
    file.file().mutable_opset_import(0)->set_version(version);
    return refusal_of(file);
  };
  EXPECT_THAT(of_opset(7), HasSubstr("operator set 7, but only 8 to 28 are supported"));
  EXPECT_THAT(of_opset(99), HasSubstr("operator set 99"));
  EXPECT_THAT(of_opset(-1), HasSubstr("operator set -1"));
  EXPECT_EQ(of_opset(8), "");
  FileBuilder none = one("Relu");
  none.file().clear_opset_import();
  EXPECT_THAT(refusal_of(none), HasSubstr("does not say which operator set"));
}

TEST(BadOnnxFile, UnknownOperatorsAreAllNamed) {
  FileBuilder file = one("Relu");
  file.node("StringSplit", {"x"}, {"a"}, "words");
  file.node("NonMaxSuppression", {"x"}, {"b"}, "boxes");
  file.node("Fused", {"x"}, {"c"}, "vendor").set_domain("com.example");
  EXPECT_THAT(refusal_of(file),
              AllOf(HasSubstr("words (StringSplit): this operator is not supported"),
                    HasSubstr("StringSplit, NonMaxSuppression, com.example.Fused")));
}

TEST(BadOnnxFile, NodesThatReadNothingOrThemselves) {
  FileBuilder missing = one("Relu");
  missing.node("Add", {"x", "ghost"}, {"z"}, "sum");
  EXPECT_THAT(refusal_of(missing),
              HasSubstr("sum (Add): its input 'ghost' is not produced by any node"));
  FileBuilder cycle = one("Relu");
  cycle.node("Add", {"x", "b"}, {"a"}, "first");
  cycle.node("Neg", {"a"}, {"b"}, "second");
  EXPECT_THAT(refusal_of(cycle), HasSubstr("first (Add): depends on itself"));
  FileBuilder twice = one("Relu");
  twice.node("Neg", {"x"}, {"y"}, "again");
  EXPECT_THAT(refusal_of(twice), HasSubstr("again (Neg): its output 'y' already exists"));
  EXPECT_THAT(refusal_of(one("Add", "sum")), HasSubstr("sum (Add): input 1 is missing"));
  FileBuilder output = one("Relu");
  output.output("ghost");
  EXPECT_THAT(refusal_of(output), HasSubstr("output ghost is not produced by any node"));
  FileBuilder places;
  places.input("x", {1, 1, 4, 4}).output("y").output("places");
  test::set_ints(places.node("MaxPool", {"x"}, {"y", "places"}, "pool"), "kernel_shape", {2, 2});
  EXPECT_THAT(refusal_of(places),
              HasSubstr("output places is output 2 of pool (MaxPool), which is not supported"));
  places.node("Neg", {"places"}, {"z"}, "reader");
  EXPECT_THAT(refusal_of(places),
              HasSubstr("reader (Neg): its input 'places' is output 2 of pool"));
}

TEST(BadOnnxFile, ShapesThatDoNotFit) {
  FileBuilder file;
  file.input("x", {2, 3}).output("y");
  file.floats("w", {4, 2}, std::vector<float>(8, 1.0f));
  file.node("MatMul", {"x", "w"}, {"y"}, "fc");
  EXPECT_THAT(refusal_of(file), HasSubstr("fc (MatMul)"));
  FileBuilder reshape;
  reshape.input("x", {2, 3}).output("y").integers("to", {2}, {4, -1});
  reshape.node("Reshape", {"x", "to"}, {"y"}, "view");
  EXPECT_THAT(refusal_of(reshape), HasSubstr("view (Reshape): [2, 3] cannot be reshaped"));
  EXPECT_THAT(refusal_of(FileBuilder().input("x", {2, 0})), HasSubstr("has no elements"));
  EXPECT_THAT(refusal_of(FileBuilder().input("x", {2}, 8)), HasSubstr("inputs of string"));
}

TEST(BadOnnxFile, AttributesOfAnotherType) {
  FileBuilder file = one("Relu");
  ::onnx::NodeProto& node = file.node("Softmax", {"x"}, {"z"}, "soft");
  ::onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name("axis");
  attribute.set_type(::onnx::AttributeProto::STRING);
  attribute.set_s("last");
  EXPECT_THAT(refusal_of(file), HasSubstr("soft (Softmax): attribute 'axis' is not an integer"));
}

TEST(BadOnnxFile, SizesThatOverflow) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  FileBuilder input;
  input.input("x", {kHuge, 2}).output("y");
  input.node("Relu", {"x"}, {"y"});
  EXPECT_THAT(refusal_of(input), HasSubstr("has more than"));
  for (int64_t size : {kHuge, int64_t{1} << 40}) {
    FileBuilder expand;
    expand.input("x", {1, 3}).output("y").integers("to", {2}, {size, 3});
    expand.node("Expand", {"x", "to"}, {"y"}, "grow");
    EXPECT_THAT(refusal_of(expand), HasSubstr("has more than")) << size;
    FileBuilder pad;
    pad.input("x", {1, 3}).output("y").integers("by", {4}, {0, 0, size, 0});
    pad.node("Pad", {"x", "by"}, {"y"}, "pad");
    EXPECT_THAT(refusal_of(pad), HasSubstr("a pad of")) << size;
    FileBuilder conv;
    conv.input("x", {1, 1, 8, 8}).output("y").floats("w", {1, 1, 1, 1}, {1.0f});
    test::set_ints(conv.node("Conv", {"x", "w"}, {"y"}, "conv"), "strides", {size, 1});
    EXPECT_THAT(refusal_of(conv), HasSubstr("a stride of")) << size;
    FileBuilder zeros;
    zeros.input("x", {1, 3}).output("y").integers("shape", {1}, {size});
    zeros.node("ConstantOfShape", {"shape"}, {"c"}, "zeros");
    zeros.node("Relu", {"x"}, {"y"});
    EXPECT_THAT(refusal_of(zeros), HasSubstr("zeros (ConstantOfShape)")) << size;
    FileBuilder range;
    range.input("x", {1, 3}).output("y").integers("a", {}, {0}).integers("b", {}, {size});
    range.integers("c", {}, {1});
    range.node("Range", {"a", "b", "c"}, {"r"}, "count");
    range.node("Relu", {"x"}, {"y"});
    EXPECT_THAT(refusal_of(range), HasSubstr("count (Range): the range has too many steps"))
        << size;
  }
}

TEST(BadOnnxFile, SlicesWithAnyNumbersAreHarmless) {
  constexpr int64_t kLow = std::numeric_limits<int64_t>::min(),
                    kHigh = std::numeric_limits<int64_t>::max();
  for (int64_t start : {kLow, int64_t{-1}, int64_t{0}, kHigh}) {
    for (int64_t end : {kLow, int64_t{-1}, int64_t{0}, kHigh}) {
      for (int64_t step : {kLow, int64_t{-1}, int64_t{0}, int64_t{1}, kHigh}) {
        FileBuilder file;
        file.input("x", {4, 3}).output("y");
        file.integers("s", {1}, {start}).integers("e", {1}, {end}).integers("a", {1}, {0});
        file.integers("t", {1}, {step});
        file.node("Slice", {"x", "s", "e", "a", "t"}, {"y"}, "cut");
        const std::string text = refusal_of(file);
        // A part of no elements is known, as if it were a constant.
        EXPECT_TRUE(text.empty() || text.find("cut (Slice)") == 0 ||
                    text.find("net.onnx: no output depends on an input") == 0)
            << text;
      }
    }
  }
}

TEST(BadOnnxFile, ConstantsAreLimitedTogether) {
  FileBuilder file = one("Relu");
  file.integers("large", {1}, {int64_t{1} << 26});
  for (int i = 0; i < 60; ++i)
    file.node("ConstantOfShape", {"large"}, {"c" + std::to_string(i)}, "zeros");
  EXPECT_THAT(refusal_of(file), HasSubstr("up to this node, the constants have more than"));
}

TEST(BadOnnxFile, TextsAreMadePrintable) {
  FileBuilder file;
  file.input("x", {1, 1, 4, 4}).output("y").floats("w", {1, 1, 1, 1}, {1.0f});
  ::onnx::NodeProto& node = file.node("Conv", {"x", "w"}, {"y"}, "a\xE9z \xC3\xA9");
  ::onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name("auto_pad");
  attribute.set_type(::onnx::AttributeProto::STRING);
  attribute.set_s("\x1b[31mX\nY");
  EXPECT_EQ(refusal_of(file), "a_z \xC3\xA9 (Conv): the padding '_[31mX_Y' is not supported | ");
}

TEST(BadOnnxFile, FunctionsThatCallThemselves) {
  FileBuilder file;
  file.input("x", {2}).output("y");
  ::onnx::FunctionProto& function = *file.file().add_functions();
  function.set_name("Loop");
  function.set_domain("local");
  function.add_input("a");
  function.add_output("b");
  ::onnx::NodeProto& inner = *function.add_node();
  inner.set_op_type("Loop");
  inner.set_domain("local");
  inner.add_input("a");
  inner.add_output("b");
  file.node("Loop", {"x"}, {"y"}, "call").set_domain("local");
  EXPECT_THAT(refusal_of(file), HasSubstr("nested too deeply"));
}

TEST(BadOnnxFile, DepthIsLimited) {
  // Graphs in attributes of nodes, 2,000 deep.
  ::onnx::GraphProto graph;
  for (int i = 0; i < 2000; ++i) {
    ::onnx::GraphProto outer;
    ::onnx::NodeProto& node = *outer.add_node();
    node.set_op_type("If");
    ::onnx::AttributeProto& attribute = *node.add_attribute();
    attribute.set_name("then_branch");
    attribute.set_type(::onnx::AttributeProto::GRAPH);
    attribute.mutable_g()->Swap(&graph);
    graph.Swap(&outer);
  }
  FileBuilder file = one("Relu");
  file.graph().mutable_node()->Add()->Swap(graph.mutable_node(0));
  EXPECT_THAT(refusal_of(file), HasSubstr("is not a valid ONNX file"));
}

TEST(BadOnnxFile, Files) {
  const test::TemporaryFolder folder;
  EXPECT_THROW(read_onnx(folder / "none.onnx"), Error);
  EXPECT_THROW(read_onnx(folder.path()), Error);
  // 3 GB, none of which take space on the disk.
  test::write_bytes(folder / "large.onnx", {1, 2, 3});
  std::filesystem::resize_file(folder / "large.onnx", uint64_t{3} << 30);
  test::expect_error([&] { read_onnx(folder / "large.onnx"); }, ErrorKind::runtime,
                     {"is larger than 2 GB"});
}

}  // namespace
}  // namespace halfscope
