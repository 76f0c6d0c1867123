// SPDX-License-Identifier: MIT
// The device message of tf.keras. The texts were printed by
// tf_keras.src.mixed_precision.device_compatibility_check.
#include <gtest/gtest.h>

#include "core/policy/keras.h"

namespace halfscope {
namespace {

constexpr const char* kSuffix =
    "See https://developer.nvidia.com/cuda-gpus for a list of GPUs and their compute "
    "capabilities.\nIf you will use compatible GPU(s) not attached to this host, e.g. by running a "
    "multi-worker model, you can ignore this warning. This message will only be logged once";

TEST(KerasDeviceMessage, OnlyMixedFloat16HasOne) {
  for (const char* policy : {"mixed_bfloat16", "float32", "float16", ""})
    EXPECT_EQ(keras_device_message(policy, {{"GPU 1", {{6, 0}}}}).text, "");
}

TEST(KerasDeviceMessage, OneFastGpu) {
  const KerasDeviceMessage message =
      keras_device_message("mixed_float16", {{"Tesla V100", {{7, 0}}}});
  EXPECT_FALSE(message.warns);
  EXPECT_EQ(message.text,
            "Mixed precision compatibility check (mixed_float16): OK\nYour GPU will likely run "
            "quickly with dtype policy mixed_float16 as it has compute capability of at least 7.0. "
            "Your GPU: Tesla V100, compute capability 7.0");
}

TEST(KerasDeviceMessage, SeveralFastGpus) {
  const KerasDeviceMessage message = keras_device_message(
      "mixed_float16", {{"GPU 1", {{7, 0}}}, {"GPU 2", {{7, 1}}}, {"GPU 3", {{8, 0}}}});
  EXPECT_FALSE(message.warns);
  EXPECT_EQ(message.text,
            "Mixed precision compatibility check (mixed_float16): OK\nYour GPUs will likely run "
            "quickly with dtype policy mixed_float16 as they all have compute capability of at "
            "least 7.0");
}

TEST(KerasDeviceMessage, OneSlowGpu) {
  const KerasDeviceMessage message = keras_device_message("mixed_float16", {{"GPU 1", {{6, 0}}}});
  EXPECT_TRUE(message.warns);
  EXPECT_EQ(message.text,
            std::string("Mixed precision compatibility check (mixed_float16): WARNING\nYour GPU "
                        "may run slowly with dtype policy mixed_float16 because it does not have "
                        "compute capability of at least 7.0. Your GPU:\n  GPU 1, compute "
                        "capability 6.0\n") +
                kSuffix);
}

TEST(KerasDeviceMessage, WithoutComputeCapability) {
  EXPECT_EQ(keras_device_message("mixed_float16", {{}}).text,
            std::string("Mixed precision compatibility check (mixed_float16): WARNING\nYour GPU "
                        "may run slowly with dtype policy mixed_float16 because it does not have "
                        "compute capability of at least 7.0. Your GPU:\n  Unknown GPU, no compute "
                        "capability (probably not an Nvidia GPU)\n") +
                kSuffix);
}

TEST(KerasDeviceMessage, SlowGpusAreMerged) {
  const KerasDeviceMessage message = keras_device_message(
      "mixed_float16",
      {{"GPU 1", {{6, 0}}}, {"GPU 1", {{6, 0}}}, {"GPU 1", {{6, 0}}}, {"GPU 2", {{3, 10}}}});
  EXPECT_EQ(message.text,
            std::string("Mixed precision compatibility check (mixed_float16): WARNING\nYour GPUs "
                        "may run slowly with dtype policy mixed_float16 because they do not have "
                        "compute capability of at least 7.0. Your GPUs:\n  GPU 1, compute "
                        "capability 6.0 (x3)\n  GPU 2, compute capability 3.10\n") +
                kSuffix);
}

TEST(KerasDeviceMessage, FastOnesComeFirst) {
  const KerasDeviceMessage message = keras_device_message(
      "mixed_float16", {{"GPU 2", {{6, 0}}}, {"GPU 1", {{7, 0}}}, {"GPU 1", {{7, 0}}}});
  EXPECT_TRUE(message.warns);
  EXPECT_EQ(message.text,
            std::string("Mixed precision compatibility check (mixed_float16): WARNING\nSome of "
                        "your GPUs may run slowly with dtype policy mixed_float16 because they do "
                        "not all have compute capability of at least 7.0. Your GPUs:\n  GPU 1, "
                        "compute capability 7.0 (x2)\n  GPU 2, compute capability 6.0\n") +
                kSuffix);
}

TEST(KerasDeviceMessage, NoGpu) {
  const KerasDeviceMessage message = keras_device_message("mixed_float16", {});
  EXPECT_TRUE(message.warns);
  EXPECT_EQ(message.text,
            "Mixed precision compatibility check (mixed_float16): WARNING\nThe dtype policy "
            "mixed_float16 may run slowly because this machine does not have a GPU. Only Nvidia "
            "GPUs with compute capability of at least 7.0 run quickly with mixed_float16.\nIf you "
            "will use compatible GPU(s) not attached to this host, e.g. by running a multi-worker "
            "model, you can ignore this warning. This message will only be logged once");
}

}  // namespace
}  // namespace halfscope
