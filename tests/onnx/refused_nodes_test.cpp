// SPDX-License-Identifier: MIT
// Forms of operators that cannot be computed exactly are refused with a line that names the node.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/onnx/network_support.h"

namespace halfscope {
namespace {

using test::FileBuilder;
using testing::HasSubstr;

std::string node_refusal(const FileBuilder& file) {
  try {
    file.import();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void set_text(::onnx::NodeProto& node, const std::string& name, const std::string& value) {
  ::onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(::onnx::AttributeProto::STRING);
  attribute.set_s(value);
}

FileBuilder attention(int64_t opset = 24) {
  FileBuilder file(opset);
  for (const char* name : {"q", "k", "v"}) file.input(name, {1, 2, 3, 4});
  file.output("y");
  return file;
}

TEST(RefusedNodes, AttentionOfAnotherDomain) {
  FileBuilder file = attention();
  file.node("Attention", {"q", "k", "v"}, {"y"}, "core").set_domain("com.microsoft");
  EXPECT_EQ(node_refusal(file),
            "core (Attention): this operator of domain 'com.microsoft' is not supported");
}

TEST(RefusedNodes, AttentionWithLengthsOrScores) {
  FileBuilder lengths = attention();
  lengths.integers("n", {1}, {2});
  lengths.node("Attention", {"q", "k", "v", "", "", "", "n"}, {"y"}, "core");
  EXPECT_THAT(node_refusal(lengths), HasSubstr("core (Attention): nonpad_kv_seqlen"));
  FileBuilder scores = attention();
  scores.node("Attention", {"q", "k", "v"}, {"y", "", "", "s"}, "core");
  EXPECT_THAT(node_refusal(scores), HasSubstr("core (Attention): scores as an output"));
}

TEST(RefusedNodes, AttentionWithAMaskThatDoesNotFit) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{3, 1}, std::vector<int64_t>{5}}) {
    FileBuilder file = attention();
    file.input("m", shape);
    file.node("Attention", {"q", "k", "v", "m"}, {"y"}, "core");
    EXPECT_THAT(node_refusal(file), HasSubstr("does not fit 3 keys"));
  }
}

std::string refusal_of_einsum(const std::string& equation) {
  FileBuilder file;
  file.input("a", {2, 3}).input("b", {3, 4}).output("y");
  set_text(file.node("Einsum", {"a", "b"}, {"y"}, "sum"), "equation", equation);
  return node_refusal(file);
}

TEST(RefusedNodes, EquationsThatDoNotFit) {
  EXPECT_EQ(refusal_of_einsum("ij,jk->ik"), "");
  EXPECT_EQ(refusal_of_einsum(" i j , j k -> i k "), "");
  for (const char* equation :
       {"", "ij->ij", "ij,jk,kl->il", "i,jk->ik", "ijk,jk->ik", "ij,jk->iik", "ij,jk->iz",
        "ij,kj->ik", "ij,jk->i.k", "i1,1k->ik", "ii,jk->k", "...,->...", "ij,jk->ik->k"})
    EXPECT_THAT(refusal_of_einsum(equation), HasSubstr("sum (Einsum): ")) << equation;
}

TEST(RefusedNodes, ResizeWithAntialiasAtCorners) {
  FileBuilder file(18);
  file.input("x", {1, 1, 4, 4}).output("y").integers("s", {4}, {1, 1, 2, 2});
  ::onnx::NodeProto& node = file.node("Resize", {"x", "", "", "s"}, {"y"}, "up");
  set_text(node, "mode", "linear");
  set_text(node, "coordinate_transformation_mode", "align_corners");
  test::set_int(node, "antialias", 1);
  EXPECT_THAT(node_refusal(file), HasSubstr("up (Resize): antialias with the coordinates"));
}

TEST(RefusedNodes, GridSampleOfVolumesWithCubic) {
  FileBuilder file(20);
  file.input("x", {1, 1, 2, 2, 2}).input("g", {1, 2, 2, 2, 3}).output("y");
  set_text(file.node("GridSample", {"x", "g"}, {"y"}, "warp"), "mode", "cubic");
  EXPECT_THAT(node_refusal(file), HasSubstr("warp (GridSample): cubic sampling of volumes"));
}

TEST(RefusedNodes, FourDimensionsOfPixels) {
  FileBuilder file;
  file.input("x", {1, 1, 2, 2, 2, 2}).output("y");
  test::set_ints(file.node("MaxPool", {"x"}, {"y"}, "pool"), "kernel_shape", {1, 1, 1, 1});
  EXPECT_THAT(node_refusal(file),
              HasSubstr("pool (MaxPool): only one to three dimensions are supported"));
}

TEST(RefusedNodes, ConditionsAndClassesOfRunTime) {
  FileBuilder compress;
  compress.input("x", {4}).input("c", {4}, 9).output("y");
  compress.node("Compress", {"x", "c"}, {"y"}, "keep");
  EXPECT_THAT(node_refusal(compress), HasSubstr("keep (Compress): its condition is only known"));
  FileBuilder classes;
  classes.input("x", {4}, 7).input("n", {1}, 7).output("y").floats("v", {2}, {0.0f, 1.0f});
  classes.node("OneHot", {"x", "n", "v"}, {"y"}, "mark");
  EXPECT_THAT(node_refusal(classes), HasSubstr("mark (OneHot): its depth is only known"));
}

TEST(RefusedNodes, RemaindersOfReals) {
  FileBuilder file;
  file.input("a", {3}).input("b", {3}).output("y");
  test::set_int(file.node("Mod", {"a", "b"}, {"y"}, "rest"), "fmod", 1);
  EXPECT_THAT(node_refusal(file), HasSubstr("rest (Mod): Mod of reals"));
}

}  // namespace
}  // namespace halfscope
