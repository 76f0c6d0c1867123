// SPDX-License-Identifier: MIT
// The add-on for GoogleTest, for unit tests of a kernel's precision. CMake target halfscope::gtest.
//   EXPECT_THAT(out, UlpNear(reference, 2, fp16));
//   EXPECT_NO_OVERFLOW(fp16, [&] { kernel(a, b, out); });
//   ExpectWithinAccumulationBound(out, a, b, {.m = 8, .n = 16, .k = 64}, fp16, "fp32");
//   TYPED_TEST_SUITE(KernelTest, NarrowFormats, FormatNames);
#pragma once

#include "core/testing/accumulation_bound.h"
#include "core/testing/formats.h"
#include "core/testing/no_overflow.h"
#include "core/testing/ulp_near.h"
