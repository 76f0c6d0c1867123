// SPDX-License-Identifier: MIT
#include "gpu/libraries/product_plan.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace halfscope::gpu {
namespace {

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

bool is_fp8(Storage storage) { return storage == Storage::e4m3fn || storage == Storage::e5m2; }

/// Returns whether contiguous lines of this many elements start on kLineBytes.
bool lines_begin_well(Storage storage, int64_t elements) {
  return elements * bytes_of(storage) % kLineBytes == 0;
}

/// Products of one call: kernels that take the batch in a grid's third dimension have no more.
constexpr int64_t kMostInACall = 65535;

/// Returns the largest power of two up to kMostAlignment that divides `bytes`.
int64_t alignment_of(int64_t bytes) { return std::gcd(kMostAlignment, bytes); }

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
                                        Storage a, Storage b, Storage d, int64_t d_pitch) {
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
  const int64_t pitch = d_pitch > 0 ? d_pitch : n;
  const Storage sums = lines_begin_well(d, pitch) ? d : Storage::fp32;
  return MatrixPlan{n, m, k, *first, *second, {sums, n, m, pitch, false}};
}

std::vector<BatchOffset> offsets_of(const std::vector<BatchLevel>& levels) {
  std::vector<BatchOffset> offsets{{}};
  for (const BatchLevel& level : levels) {
    const size_t before = offsets.size();
    for (int64_t i = 1; i < level.size; ++i) {
      for (size_t at = 0; at < before; ++at) {
        const BatchOffset from = offsets[at];
        offsets.push_back({from.a + i * level.a, from.b + i * level.b, from.d + i * level.d});
      }
    }
  }
  return offsets;
}

std::optional<InPlacePlan> plan_batch_in_place(int64_t m, int64_t n, int64_t k,
                                               const MatrixStrides& at,
                                               std::vector<BatchLevel> levels, Storage a, Storage b,
                                               Storage d, int64_t d_pitch) {
  const auto more_rows = [&](const BatchLevel& level) {
    return level.b == 0 && level.a == m * at.a_row && level.d == m * n;
  };
  while (!levels.empty() && more_rows(levels.front())) {
    m *= levels.front().size;
    levels.erase(levels.begin());
  }
  std::optional<MatrixPlan> plan = plan_in_place(m, n, k, at, a, b, d, d_pitch);
  if (!plan) return std::nullopt;
  int64_t bytes_a = 0, bytes_b = 0, bytes_d = 0;  // greatest common divisors of all distances
  for (const BatchLevel& level : levels) {
    bytes_a = std::gcd(bytes_a, level.a * bytes_of(a));
    bytes_b = std::gcd(bytes_b, level.b * bytes_of(b));
    bytes_d = std::gcd(bytes_d, level.d * bytes_of(plan->d.storage));
  }
  const bool narrow = bytes_of(a) < 4;
  if (narrow && (bytes_a % kLineBytes != 0 || bytes_b % kLineBytes != 0)) return std::nullopt;
  plan->second.alignment = alignment_of(bytes_a);
  plan->first.alignment = alignment_of(bytes_b);
  plan->d.alignment = alignment_of(bytes_d);
  const auto largest =
      std::max_element(levels.begin(), levels.end(),
                       [](const BatchLevel& x, const BatchLevel& y) { return x.size < y.size; });
  if (largest != levels.end()) {
    if (largest->size > kMostInACall) return std::nullopt;
    plan->count = largest->size;
    plan->second.stride = largest->a;
    plan->first.stride = largest->b;
    plan->d.stride = largest->d;
    levels.erase(largest);
  }
  return InPlacePlan{*plan, offsets_of(levels)};
}

PackedPlan plan_packed(int64_t m, int64_t n, int64_t k, Storage a, Storage b, Storage d,
                       int64_t count) {
  const int64_t bytes = bytes_of(a), to = kLineBytes / bytes;
  const int64_t lines_a = is_fp8(a) ? round_up(m, to) : m;
  const int64_t lines_b = round_up(n, to), pitch = round_up(k, to);
  MatrixPlan matrix{lines_b,
                    lines_a,
                    pitch,
                    {b, pitch, lines_b, pitch, true},
                    {a, pitch, lines_a, pitch, false},
                    {d, lines_b, lines_a, lines_b, false},
                    count};
  if (count > 1) {
    for (LtMatrix* each : {&matrix.first, &matrix.second, &matrix.d}) {
      each->stride = each->leading * each->columns;
      each->alignment = alignment_of(each->stride * bytes_of(each->storage));
    }
  }
  return {matrix, lines_a, lines_b, pitch, lines_b};
}

int64_t PackedPlan::operand_bytes() const {
  return matrix.count * (a_lines + b_lines) * pitch * bytes_of(matrix.first.storage);
}
int64_t PackedPlan::sum_bytes() const {
  return matrix.count * a_lines * d_pitch * bytes_of(matrix.d.storage);
}

int64_t products_of_a_call(int64_t count, int64_t bytes_of_one, int64_t most) {
  const int64_t fit =
      std::clamp<int64_t>(most / std::max<int64_t>(bytes_of_one, 1), 1, kMostInACall);
  const int64_t calls = (count + fit - 1) / fit;
  return calls == 0 ? 1 : (count + calls - 1) / calls;
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
