// SPDX-License-Identifier: MIT
// Tensors in the memory of a device: every code of every storage, which formats go where, and what
// a training takes.
#include "gpu/bodies/stored.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>

#include "core/lower/lower.h"
#include "core/models/models.h"
#include "core/numeric/formats/codes.h"
#include "core/policy/policy.h"
#include "gpu/backends.h"
#include "gpu/engine/layout.h"

namespace halfscope {
namespace {

using gpu::Storage;

TEST(Stored, EveryCodeComesBack) {
  for (const Storage storage : {Storage::fp16, Storage::bf16, Storage::e4m3fn, Storage::e5m2}) {
    const FloatFormat format = gpu::format_of(storage);
    SCOPED_TRACE(format_name(format));
    for (uint32_t code = 0; code < uint32_t{1} << format.bits(); ++code) {
      std::array<uint16_t, 4> memory{};  // two elements of any storage
      const float value = decode(code, format);
      gpu::store(memory.data(), storage, 1, value);
      const float back = gpu::load(memory.data(), storage, 1);
      ASSERT_TRUE(std::bit_cast<uint32_t>(back) == std::bit_cast<uint32_t>(value) ||
                  (std::isnan(value) && std::isnan(back)))
          << code;
      const auto* bytes = reinterpret_cast<const uint8_t*>(memory.data());
      EXPECT_EQ(bytes[0], 0) << code;  // the neighbour
      if (std::isnan(value)) continue;
      const uint32_t stored = format.bits() == 16 ? memory[1] : bytes[1];
      EXPECT_EQ(stored, code);
    }
  }
}

TEST(Stored, FormatsTakeTheFewestBytesThatHoldThem) {
  const auto storage = [](const char* format) {
    return gpu::storage_for(parse_format(format).value());
  };
  EXPECT_EQ(storage("float32"), Storage::fp32);
  EXPECT_EQ(storage("tf32"), Storage::fp32);
  EXPECT_EQ(storage("float16"), Storage::fp16);
  EXPECT_EQ(storage("bfloat16"), Storage::bf16);
  EXPECT_EQ(storage("e4m3fn"), Storage::e4m3fn);
  EXPECT_EQ(storage("e5m2"), Storage::e5m2);
  EXPECT_EQ(storage("e2m1"), Storage::e4m3fn);
  EXPECT_EQ(storage("e4m3fnuz"), Storage::fp16);  // half of e4m3fn's smallest number
  EXPECT_EQ(storage("e5m3"), Storage::fp16);
  EXPECT_EQ(storage("e8m3"), Storage::bf16);
  EXPECT_EQ(storage("e6m9"), Storage::fp32);
}

TEST(Stored, ResultsAreExactOrStoredAtOnce) {
  const FloatFormat format = kFp16;
  std::array<uint16_t, 4> codes{};
  std::array<float, 4> exact{};
  const gpu::Destination to{codes.data(), Storage::fp16, format};
  const gpu::StoredOutput recorded = gpu::StoredOutput(exact.data(), to, false) + 2;
  recorded[1] = 1.0f + 0x1p-12f;
  EXPECT_EQ(exact[3], 1.0f + 0x1p-12f);
  EXPECT_EQ(codes[3], 0);
  const gpu::StoredOutput plain = gpu::StoredOutput(exact.data(), to, true) + 2;
  plain[1] = 65520.0f;
  *plain = -1.0f - 0x1p-11f - 0x1p-20f;
  EXPECT_EQ(exact[3], 1.0f + 0x1p-12f);
  EXPECT_EQ(codes[3], encode(INFINITY, kFp16));
  EXPECT_EQ(codes[2], encode(-1.0f - 0x1p-10f, kFp16));
}

// Rounding in integers, or by the device, where storing is rounding: every upper half of a float
// with lower halves next to every tie, against the rounding of the project.
TEST(Stored, StoringRoundsLikeEveryOtherRounding) {
  for (const char* name : {"fp16", "bf16", "fp16:sat", "bf16:ftz", "e5m9"}) {
    const FloatFormat format = parse_format(name).value();
    const Storage storage = gpu::storage_for(format);
    std::array<uint16_t, 2> codes{};  // an element of any storage
    const gpu::Destination to{codes.data(), storage, format};
    EXPECT_EQ(to.rounds_itself, format == kFp16 || format == kBf16) << name;
    for (uint32_t upper = 0; upper < 0x10000; ++upper) {
      for (const uint32_t lower : {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x2fffu, 0x3000u,
                                   0x3001u, 0x7fffu, 0x8000u, 0x8001u, 0xe000u, 0xffffu}) {
        const float x = std::bit_cast<float>(upper << 16 | lower);
        to.round(0, x);
        const float rounded = round_to_format(x, format).value;
        ASSERT_EQ(codes[0], detail::code_of_value(rounded, gpu::format_of(storage)))
            << name << ", bits " << std::hex << (upper << 16 | lower);
      }
    }
  }
}

TEST(Stored, TrainingsInHalfPrecisionTakeLessMemory) {
  const auto bytes = [](const char* plan) {
    const Model model = build_model("resnet20", 32, {3, 32, 32}, 10);
    const Executable exe = lower(model, preset_plan(plan).value(), {});
    const auto program = host_executor_backend().compile(exe);
    EXPECT_GT(program->device_bytes(), gpu::Layout(exe).bytes());
    return static_cast<double>(gpu::Layout(exe).bytes());
  };
  const double fp32 = bytes("float32");
  EXPECT_LT(bytes("mixed_float16"), 0.62 * fp32);  // activations and gradients by half
  EXPECT_LT(bytes("float16"), 0.52 * fp32);
}

}  // namespace
}  // namespace halfscope
