// SPDX-License-Identifier: MIT
// The table of tensor cores: names, what each has and has not, parameters.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "core/numeric/sums/tensor_core.h"

namespace halfscope {
namespace {

TEST(TensorCoreProfiles, NamesAndAliases) {
  std::set<std::string_view> seen;
  for (const TensorCoreArch& arch : tensor_core_archs()) {
    EXPECT_TRUE(seen.insert(arch.name).second) << arch.name;
    EXPECT_FALSE(arch.about.empty());
    for (const std::string_view alias : arch.aliases) {
      EXPECT_TRUE(seen.insert(alias).second) << alias;
    }
    ASSERT_TRUE(tensor_core_profile(arch.name, kFp16)) << arch.name;
    EXPECT_EQ(find_tensor_core_arch(arch.name), &arch);
  }
  EXPECT_EQ(seen.size(), 39u);
  const std::pair<const char*, const char*> same[] = {{"V100", "v100"},
                                                      {"T4", "t4"},
                                                      {"A2", "a100"},
                                                      {"A30", "a100"},
                                                      {"Ada", "ada"},
                                                      {"L40S", "ada"},
                                                      {"RTX4090", "ada"},
                                                      {"H200", "h100"},
                                                      {"B200", "b200"},
                                                      {"H200-WGMMA", "h100-wgmma"},
                                                      {"tcgen05", "b200-tcgen05"}};
  for (const auto& [alias, name] : same) {
    ASSERT_NE(find_tensor_core_arch(alias), nullptr) << alias;
    EXPECT_EQ(find_tensor_core_arch(alias)->name, name);
  }
  EXPECT_EQ(find_tensor_core_arch("h10"), nullptr);
  EXPECT_EQ(find_tensor_core_arch(""), nullptr);
}

TEST(TensorCoreProfiles, WhatAnArchitectureLacks) {
  EXPECT_FALSE(tensor_core_profile("v100", kBf16));
  EXPECT_FALSE(tensor_core_profile("t4", kTf32));
  EXPECT_FALSE(tensor_core_profile("a100", kE4m3fn));
  EXPECT_FALSE(tensor_core_profile("a100", kBf16, kFp16));
  EXPECT_FALSE(tensor_core_profile("a100", kFp16, kBf16));
  EXPECT_FALSE(tensor_core_profile("h100", kFp32));
  EXPECT_FALSE(tensor_core_profile("h100", kE4m3fn, kFp32, BlockScale::mxf8f6f4));
  EXPECT_FALSE(tensor_core_profile("b200", *parse_format("e2m1")));
  EXPECT_FALSE(tensor_core_profile("b200-tcgen05", kE4m3fn, kFp32, BlockScale::nvf4));
  EXPECT_FALSE(tensor_core_profile("nothing", kFp16));
}

TEST(TensorCoreProfiles, Parameters) {
  struct Row {
    const char* arch;
    FloatFormat input, accumulator;
    int products, fraction_bits, step;
    BlockOutput output;
  };
  const BlockOutput rz = BlockOutput::rz_fp32, rz13 = BlockOutput::rz_e8m13,
                    rne = BlockOutput::rne_fp16;
  const Row rows[] = {
      {"v100", kFp16, kFp32, 4, 23, 4, rz},
      {"t4", kFp16, kFp16, 8, 24, 8, rne},
      {"a100", kTf32, kFp32, 4, 24, 4, rz},
      {"ada", kE4m3fn, kFp32, 16, 13, 16, rz13},
      {"ada", kE5m2, kFp16, 16, 13, 16, rne},
      {"h100", kBf16, kFp32, 16, 25, 16, rz},
      {"h100", kE4m3fn, kFp32, 16, 25, 32, rz},
      {"h100-wgmma", kE5m2, kFp32, 32, 13, 32, rz13},
      {"b200", kE5m2, kFp16, 16, 25, 32, rne},
      {"b200-tcgen05", kE4m3fn, kFp32, 32, 25, 32, rz},
      {"rtx-blackwell", kE5m2, kFp16, 32, 25, 32, rne},
  };
  for (const Row& row : rows) {
    const auto profile = tensor_core_profile(row.arch, row.input, row.accumulator);
    ASSERT_TRUE(profile) << row.arch;
    EXPECT_EQ(profile->dot.products, row.products) << row.arch;
    EXPECT_EQ(profile->dot.fraction_bits, row.fraction_bits) << row.arch;
    EXPECT_EQ(profile->dot.output, row.output) << row.arch;
    EXPECT_EQ(profile->step(), row.step) << row.arch;
  }
  for (const char* name : {"e2m1", "e3m2", "e2m3"}) {
    const FloatFormat format = *parse_format(name);
    EXPECT_TRUE(tensor_core_profile("b200-tcgen05", format)) << name;
    EXPECT_TRUE(tensor_core_profile("rtx-blackwell", format, kFp32, BlockScale::mxf8f6f4)) << name;
  }
  const auto nvf4 =
      tensor_core_profile("b200-tcgen05", *parse_format("e2m1"), kFp32, BlockScale::nvf4);
  ASSERT_TRUE(nvf4);
  EXPECT_EQ(nvf4->dot.fraction_bits, 35);
  EXPECT_EQ(nvf4->step(), 64);
  EXPECT_EQ(nvf4->scale_block(), 16);
}

}  // namespace
}  // namespace halfscope
