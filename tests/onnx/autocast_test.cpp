// SPDX-License-Identifier: MIT
// Casts in the code of PyTorch networks and regions without autocast, as halfscope.save_twin writes
// them.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "core/policy/torch_lists.h"
#include "tests/onnx/torch_files.h"

namespace halfscope {
namespace {

using test::add_metadata;
using test::DynamoFile;
using test::random_values;
using testing::ElementsAre;
using testing::IsEmpty;

const Node& node_at(const OnnxImport& import, const std::string& path) {
  for (const Node& node : import.model.graph.nodes()) {
    if (node.path == path) return node;
  }
  throw Error("no node " + path);
}

/// Adds an Identity that casts: "float32", "autocast" or "" on each device.
void cast(DynamoFile& file, const std::string& from, const std::string& to, const char* cuda,
          const char* cpu) {
  ::onnx::NodeProto& node = file.node("Identity", {from}, {to}, to);
  if (*cuda != 0) add_metadata(node, 9, "halfscope.cast.cuda", cuda);
  if (*cpu != 0) add_metadata(node, 9, "halfscope.cast.cpu", cpu);
}

TEST(AutocastInCode, CastsStayNodes) {
  DynamoFile file;
  file.input("x", {2, 3}).output("y");
  file.floats("m.weight", {3, 3}, random_values(9, 1)).floats("m.shift", {3}, random_values(3, 2));
  file.signature({"m.weight"}, {"m.shift"});
  cast(file, "x", "wide", "float32", "");
  // The Identity of a parameter or a constant would otherwise be another name of it.
  cast(file, "m.weight", "narrow", "autocast", "autocast");
  cast(file, "m.shift", "shift", "autocast", "float32");
  file.node("MatMul", {"wide", "narrow"}, {"product"}, "product");
  file.node("Add", {"product", "shift"}, {"sum"}, "sum");
  file.node("Identity", {"sum"}, {"y"}, "plain");
  const OnnxImport import = file.import();
  const auto casts = [&](const char* path) {
    return ints_attribute(node_at(import, path), kTorchCast);
  };
  EXPECT_THAT(casts("wide"), ElementsAre(1, 0));
  EXPECT_THAT(casts("narrow"), ElementsAre(2, 2));
  EXPECT_THAT(casts("shift"), ElementsAre(2, 1));
  EXPECT_THAT(casts("product"), IsEmpty());
  EXPECT_THAT(test::trained(import), ElementsAre("m.weight"));
}

/// x * sigmoid(x), with autocast switched off in none, one or both of the nodes.
OnnxImport swish(const char* sigmoid, const char* product, bool with_cast = false) {
  DynamoFile file;
  file.input("x", {2, 3}).output("y");
  file.signature({});
  ::onnx::NodeProto& first = file.node("Sigmoid", {"x"}, {"s"}, "s");
  if (*sigmoid != 0) add_metadata(first, 9, "halfscope.autocast_off", sigmoid);
  if (with_cast) cast(file, "s", "c", "float32", "float32");
  ::onnx::NodeProto& second = file.node("Mul", {"x", with_cast ? "c" : "s"}, {"y"}, "y");
  if (*product != 0) add_metadata(second, 9, "halfscope.autocast_off", product);
  return file.import();
}

TEST(AutocastInCode, CompositesAreInOneRegionAndHaveNoCasts) {
  EXPECT_THAT(test::layers(swish("", "")), ElementsAre("y"));
  EXPECT_THAT(test::layers(swish("cuda cpu", "cuda cpu")), ElementsAre("y"));
  EXPECT_THAT(test::layers(swish("cuda", "")), ElementsAre("s", "y"));
  EXPECT_THAT(test::layers(swish("cuda", "cpu")), ElementsAre("s", "y"));
  EXPECT_THAT(test::layers(swish("", "", true)), ElementsAre("s", "c", "y"));
}

TEST(AutocastInCode, CompositesAreOfOneCall) {
  const auto written_for = [](const char* second) {
    DynamoFile file;
    file.input("x", {2, 3}).output("y");
    file.signature({});
    file.node("Sigmoid", {"x"}, {"s"}, "s");
    file.call("", "silu", "", {});
    file.node("Mul", {"x", "s"}, {"y"}, "y");
    file.call("", "silu", second, {});
    return test::layers(file.import());
  };
  EXPECT_THAT(written_for(""), ElementsAre("swish"));
  EXPECT_THAT(written_for("_1"), testing::SizeIs(2));
}

TEST(AutocastInCode, RegionsAreKnownByDevice) {
  const auto off = [](const OnnxImport& import) {
    return ints_attribute(node_at(import, "y"), kAutocastOff);
  };
  EXPECT_THAT(off(swish("", "")), IsEmpty());
  EXPECT_THAT(off(swish("cuda", "cuda")), ElementsAre(1, 0));
  EXPECT_THAT(off(swish("cpu", "cpu")), ElementsAre(0, 1));
  EXPECT_THAT(off(swish("", "cuda cpu")), ElementsAre(1, 1));
}

}  // namespace
}  // namespace halfscope
