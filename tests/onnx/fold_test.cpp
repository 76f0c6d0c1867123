// SPDX-License-Identifier: MIT
// Values that are computed while a file is read, as ONNX defines them.
#include "core/onnx/fold.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/onnx/proto.h"
#include "tests/onnx/network_support.h"

namespace halfscope::onnx_files {
namespace {

using testing::ElementsAre;
using testing::NanSensitiveFloatEq;
using testing::Pointwise;

KnownTensor reals(std::vector<float> values) {
  KnownTensor tensor{.shape = {static_cast<int64_t>(values.size())}};
  tensor.reals = std::move(values);
  return tensor;
}

KnownTensor folded(const ::onnx::NodeProto& node, const std::vector<const KnownTensor*>& in) {
  const std::string what = "node";
  const NodeAttributes attributes(node, what);
  return fold({node, attributes, in, 17, ".", what}).value().at(0);
}

TEST(Fold, FindsInfinities) {
  const KnownTensor x = reals({0.0f, HUGE_VALF, -HUGE_VALF, NAN, -1e38f});
  const auto found = [&](int64_t positive, int64_t negative) {
    ::onnx::NodeProto node;
    node.set_op_type("IsInf");
    test::set_int(node, "detect_positive", positive);
    test::set_int(node, "detect_negative", negative);
    const KnownTensor result = folded(node, {&x});
    EXPECT_EQ(result.type, DataType::boolean);
    return result.ints;
  };
  EXPECT_THAT(found(1, 1), ElementsAre(0, 1, 1, 0, 0));
  EXPECT_THAT(found(1, 0), ElementsAre(0, 1, 0, 0, 0));
  EXPECT_THAT(found(0, 1), ElementsAre(0, 0, 1, 0, 0));
  EXPECT_THAT(found(0, 0), ElementsAre(0, 0, 0, 0, 0));
}

TEST(Fold, ClipsNumbers) {
  ::onnx::NodeProto node;
  node.set_op_type("Clip");
  const KnownTensor x = reals({-5, -1, 0, 3, 9, NAN}), low = reals({-2}), high = reals({4});
  EXPECT_THAT(folded(node, {&x, &low, &high}).reals,
              Pointwise(NanSensitiveFloatEq(), std::vector<float>{-2, -1, 0, 3, 4, NAN}));
  EXPECT_THAT(folded(node, {&x, nullptr, &high}).reals,
              Pointwise(NanSensitiveFloatEq(), std::vector<float>{-5, -1, 0, 3, 4, NAN}));
  EXPECT_THAT(folded(node, {&x, &high, &low}).reals,  // the upper limit wins
              Pointwise(NanSensitiveFloatEq(), std::vector<float>{-2, -2, -2, -2, -2, NAN}));
  const KnownTensor places = known_list({-7, 0, 7}), first = known_ints({0}, {}),
                    last = known_ints({6}, {});
  EXPECT_THAT(folded(node, {&places, &first, &last}).ints, ElementsAre(0, 0, 6));
}

// Transformers with rotary embeddings of all dimensions cut off an empty rest and append it again.
TEST(Fold, PartsOfNothingAreLeftOut) {
  test::FileBuilder file;
  file.input("x", {2, 3}).output("y");
  file.integers("three", {1}, {3}).integers("end", {1}, {INT64_MAX}).integers("axis", {1}, {1});
  file.node("Slice", {"x", "three", "end", "axis"}, {"rest"}, "rest");
  file.node("Relu", {"x"}, {"first"}, "first");
  test::set_int(file.node("Concat", {"first", "rest"}, {"y"}, "join"), "axis", 1);
  const std::vector<Tensor> in{{{2, 3}, {1, -2, 3, -4, 5, -6}}};
  const Plan plan;
  test::expect_close(test::run(test::start(file.import().model, plan), in).at(0),
                     {{2, 3}, {1, 0, 3, 0, 5, 0}}, 0.0);
}

}  // namespace
}  // namespace halfscope::onnx_files
