// SPDX-License-Identifier: MIT
#include "gpu/libraries/product_plan.h"

namespace halfscope::gpu {
namespace {

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

bool is_fp8(Storage storage) { return storage == Storage::e4m3fn || storage == Storage::e5m2; }

/// Returns whether contiguous lines of this many elements start on kLineBytes.
bool lines_begin_well(Storage storage, int64_t elements) {
  return elements * bytes_of(storage) % kLineBytes == 0;
}

TensorPlan tensor(bool channels_last, Storage storage, int64_t outer, int64_t channels,
                  int64_t height, int64_t width) {
  TensorPlan plan{storage, {outer, channels, height, width}, {}};
  plan.stride =
      channels_last
          ? std::array<int64_t, 4>{height * width * channels, 1, width * channels, channels}
          : std::array<int64_t, 4>{channels * height * width, height * width, width, 1};
  return plan;
}

}  // namespace

std::optional<Storage> storage_of(const FloatFormat& format) {
  for (const Storage each :
       {Storage::fp32, Storage::fp16, Storage::bf16, Storage::e4m3fn, Storage::e5m2}) {
    if (format.without_options() == format_of(each)) return each;
  }
  if (format.without_options() == kTf32) return Storage::tf32;
  return std::nullopt;
}

const char* name_of(Storage storage) {
  switch (storage) {
    case Storage::fp32:
      return "fp32";
    case Storage::tf32:
      return "tf32";
    case Storage::fp16:
      return "fp16";
    case Storage::bf16:
      return "bf16";
    case Storage::e4m3fn:
      return "e4m3fn";
    case Storage::e5m2:
      return "e5m2";
  }
  return "";
}

std::optional<MatrixPlan> plan_in_place(int64_t m, int64_t n, int64_t k, const MatrixStrides& at,
                                        Storage a, Storage b, Storage d) {
  // A row-major [rows][columns] matrix is a column-major columns x rows matrix.
  const auto as_seen = [&](Storage storage, int64_t row, int64_t column, int64_t rows,
                           int64_t columns) -> std::optional<LtMatrix> {
    const bool whole = bytes_of(storage) == 4 || lines_begin_well(storage, row * column);
    if (!whole) return std::nullopt;
    if (column == 1 && row >= columns) return LtMatrix{storage, columns, rows, row, false};
    if (row == 1 && column >= rows) return LtMatrix{storage, rows, columns, column, true};
    return std::nullopt;
  };
  const std::optional<LtMatrix> first = as_seen(b, at.b_row, at.b_column, k, n);
  const std::optional<LtMatrix> second = as_seen(a, at.a_row, at.a_column, m, k);
  if (!first || !second) return std::nullopt;
  if (is_fp8(a)) {
    const bool lines_of_k = first->transposed && !second->transposed;
    if (!lines_of_k || m % kLineBytes != 0 || n % kLineBytes != 0 || k % kLineBytes != 0) {
      return std::nullopt;
    }
  }
  const Storage sums = lines_begin_well(d, n) ? d : Storage::fp32;
  return MatrixPlan{n, m, k, *first, *second, {sums, n, m, n, false}};
}

PackedPlan plan_packed(int64_t m, int64_t n, int64_t k, Storage a, Storage b, Storage d) {
  const int64_t bytes = bytes_of(a), to = kLineBytes / bytes;
  const int64_t lines_a = is_fp8(a) ? round_up(m, to) : m;
  const int64_t lines_b = round_up(n, to), pitch = round_up(k, to);
  const LtMatrix first{b, pitch, lines_b, pitch, true}, second{a, pitch, lines_a, pitch, false};
  return {{lines_b, lines_a, pitch, first, second, {d, lines_b, lines_a, lines_b, false}},
          lines_a,
          lines_b,
          pitch,
          lines_b};
}

std::string cannot_multiply(std::optional<Storage> a, std::optional<Storage> b) {
  if (!a || !b) return "no library multiplies this format";
  if (is_fp8(*a) && is_fp8(*b)) {
    return *a == Storage::e5m2 && *b == Storage::e5m2 ? "cuBLASLt cannot multiply e5m2 by e5m2"
                                                      : "";
  }
  return *a == *b ? ""
                  : std::string("cuBLASLt cannot multiply ") + name_of(*a) + " by " + name_of(*b);
}

ConvPlan plan_convolution(ConvProduct product, const ConvGeometry& s, Storage operands,
                          Storage result, bool channels_last) {
  const int64_t in = s.group * s.in, out = s.group * s.out;
  const auto of = [&](int64_t outer, int64_t channels, int64_t height, int64_t width) {
    return tensor(channels_last, operands, outer, channels, height, width);
  };
  ConvPlan plan{.product = product,
                .x = of(s.batch, in, s.height, s.width),
                .w = of(out, s.in, s.kernel_h, s.kernel_w),
                .y = of(s.batch, out, s.out_height, s.out_width),
                .strides = {s.stride_h, s.stride_w},
                .dilations = {s.dilation_h, s.dilation_w},
                .pad_before = {s.pad_top, s.pad_left},
                .pad_after = {s.pad_bottom, s.pad_right},
                .channels_last = channels_last};
  TensorPlan& made = product == ConvProduct::forward      ? plan.y
                     : product == ConvProduct::grad_input ? plan.x
                                                          : plan.w;
  made.storage = result;
  return plan;
}

std::vector<ConvPlan> plans_of_convolution(ConvProduct product, const ConvGeometry& s,
                                           Storage operands, Storage result, bool copied) {
  const bool half = bytes_of(operands) == 2;
  const bool channels_last = half || (copied && operands == Storage::tf32);
  std::vector<ConvPlan> plans{plan_convolution(product, s, operands, result, channels_last)};
  if (half && result == Storage::fp32) {
    plans.push_back(plan_convolution(product, s, Storage::tf32, result, true));
  }
  return plans;
}

}  // namespace halfscope::gpu
