// SPDX-License-Identifier: MIT
#include "python/src/elements.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>

#include "core/numeric/formats/codes.h"
#include "core/numeric/formats/round_odd.h"
#include "python/src/vector_clones.h"

namespace halfscope::python {
namespace {

using Table = std::array<float, 256>;

Table decoded(const FloatFormat& format) {
  Table table{};
  for (uint32_t code = 0; code < table.size(); ++code) table[code] = decode(code, format);
  return table;
}

const Table& table_of(ElementKind kind) {
  static const Table e4m3fn = decoded(kE4m3fn), e4m3fnuz = decoded(kE4m3fnuz),
                     e5m2 = decoded(kE5m2), e5m2fnuz = decoded(kE5m2fnuz);
  switch (kind) {
    case ElementKind::e4m3fnuz:
      return e4m3fnuz;
    case ElementKind::e5m2:
      return e5m2;
    case ElementKind::e5m2fnuz:
      return e5m2fnuz;
    default:
      return e4m3fn;
  }
}

/// Subnormals are integers times 2^-24, computed without fp32 subnormals, which a program may have
/// switched off.
inline uint32_t bits_of_half(uint32_t code) noexcept {
  const uint32_t magnitude = code & 0x7fffu;
  const uint32_t sign = (code & 0x8000u) << 16;
  const float small = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f;
  const uint32_t special = magnitude >= 0x7c00u ? 0x38000000u : 0u;
  const uint32_t normal = (magnitude << 13) + 0x38000000u + special;
  return (magnitude < 0x400u ? std::bit_cast<uint32_t>(small) : normal) | sign;
}

HS_VECTOR_CLONES void convert_half(const uint8_t* in, int64_t n, float* out) noexcept {
  for (int64_t i = 0; i < n; ++i) {
    uint16_t code;
    std::memcpy(&code, in + 2 * i, sizeof(code));
    out[i] = std::bit_cast<float>(bits_of_half(code));
  }
}

HS_VECTOR_CLONES void convert_bfloat(const uint8_t* in, int64_t n, float* out) noexcept {
  for (int64_t i = 0; i < n; ++i) {
    uint16_t code;
    std::memcpy(&code, in + 2 * i, sizeof(code));
    out[i] = std::bit_cast<float>(static_cast<uint32_t>(code) << 16);
  }
}

void convert(const uint8_t* in, ElementKind kind, int64_t n, float* out) noexcept {
  switch (kind) {
    case ElementKind::f32:
      std::memcpy(out, in, static_cast<size_t>(n) * sizeof(float));
      return;
    case ElementKind::f64:
      for (int64_t i = 0; i < n; ++i) {
        double value;
        std::memcpy(&value, in + 8 * i, sizeof(value));
        out[i] = round_to_odd(value);
      }
      return;
    case ElementKind::f16:
      return convert_half(in, n, out);
    case ElementKind::bf16:
      return convert_bfloat(in, n, out);
    default:
      break;
  }
  const Table& table = table_of(kind);
  for (int64_t i = 0; i < n; ++i) out[i] = table[in[i]];
}

}  // namespace

int64_t element_size(ElementKind kind) noexcept {
  switch (kind) {
    case ElementKind::f64:
      return 8;
    case ElementKind::f32:
      return 4;
    case ElementKind::f16:
    case ElementKind::bf16:
      return 2;
    default:
      return 1;
  }
}

FloatFormat format_of(ElementKind kind) noexcept {
  switch (kind) {
    case ElementKind::f64:
    case ElementKind::f32:
      return kFp32;
    case ElementKind::f16:
      return kFp16;
    case ElementKind::bf16:
      return kBf16;
    case ElementKind::e4m3fn:
      return kE4m3fn;
    case ElementKind::e4m3fnuz:
      return kE4m3fnuz;
    case ElementKind::e5m2:
      return kE5m2;
    case ElementKind::e5m2fnuz:
      return kE5m2fnuz;
  }
  return kFp32;
}

namespace {

/// Returns whether a tensor of this shape is in row-major order without gaps.
bool is_row_major(std::span<const int64_t> shape, std::span<const int64_t> strides) {
  int64_t inside = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 1) continue;  // its stride is never used
    if (strides[i] != inside) return false;
    inside *= shape[i];
  }
  return true;
}

/// Returns whether each stride is the size of everything inside its dimension.
bool is_dense(const std::vector<size_t>& order, std::span<const int64_t> shape,
              std::span<const int64_t> strides) {
  int64_t inside = 1;
  for (auto i = order.rbegin(); i != order.rend(); ++i) {
    if (strides[*i] != inside) return false;
    inside *= shape[*i];
  }
  return true;
}

}  // namespace

Elements::Elements(const void* data, ElementKind kind, std::span<const int64_t> shape,
                   std::span<const int64_t> strides, std::span<const int64_t> order_of)
    : data_(static_cast<const uint8_t*>(data)), kind_(kind) {
  for (const int64_t extent : shape) size_ *= extent;
  if (size_ == 0 || strides.empty()) return;
  if (order_of.empty()) order_of = strides;
  // Most tensors; the rest of this takes longer than it takes to measure a small one.
  if (is_row_major(shape, strides) && is_row_major(shape, order_of)) return;
  std::vector<size_t> order;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] > 1) order.push_back(i);
  }
  std::vector<size_t> by_stride = order;
  std::stable_sort(by_stride.begin(), by_stride.end(),
                   [&](size_t a, size_t b) { return order_of[a] > order_of[b]; });
  if (is_dense(by_stride, shape, order_of)) order = by_stride;
  dense_ = is_dense(order, shape, strides);
  if (dense_) return;
  for (const size_t i : order) {
    shape_.push_back(shape[i]);
    strides_.push_back(strides[i]);
  }
}

const float* Elements::as_floats() const noexcept {
  const bool aligned = reinterpret_cast<uintptr_t>(data_) % alignof(float) == 0;
  if (!dense_ || !aligned || kind_ != ElementKind::f32) return nullptr;
  return reinterpret_cast<const float*>(data_);
}

/// Calls visit(pointer, count, step in elements) for pieces of the innermost dimension.
template <class Visit>
void Elements::runs(int64_t first, int64_t n, const Visit& visit) const noexcept {
  const int64_t size = element_size(kind_);
  if (dense_) {
    visit(data_ + first * size, n, int64_t{1});
    return;
  }
  const int64_t inner = shape_.back(), step = strides_.back();
  while (n > 0) {
    const int64_t at = first % inner;
    int64_t rest = first / inner, offset = at * step;
    for (size_t i = shape_.size() - 1; i-- > 0;) {
      offset += rest % shape_[i] * strides_[i];
      rest /= shape_[i];
    }
    const int64_t count = std::min(n, inner - at);
    visit(data_ + offset * size, count, step);
    first += count;
    n -= count;
  }
}

namespace {

/// Copies every step-th element to neighbouring places.
template <class Unit>
void gather(const uint8_t* in, int64_t count, int64_t step, uint8_t* out) noexcept {
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(out + i * static_cast<int64_t>(sizeof(Unit)),
                in + i * step * static_cast<int64_t>(sizeof(Unit)), sizeof(Unit));
  }
}

void gather(const uint8_t* in, int64_t size, int64_t count, int64_t step, uint8_t* out) noexcept {
  switch (size) {
    case 8:
      return gather<uint64_t>(in, count, step, out);
    case 4:
      return gather<uint32_t>(in, count, step, out);
    case 2:
      return gather<uint16_t>(in, count, step, out);
    default:
      return gather<uint8_t>(in, count, step, out);
  }
}

}  // namespace

void Elements::load(int64_t first, int64_t n, float* out) const noexcept {
  const int64_t size = element_size(kind_);
  runs(first, n, [&](const uint8_t* in, int64_t count, int64_t step) {
    if (step == 1) {
      convert(in, kind_, count, out);
      out += count;
      return;
    }
    constexpr int64_t kPiece = 512;
    std::array<uint8_t, kPiece * 8> piece;
    for (int64_t done = 0; done < count; done += kPiece) {
      const int64_t part = std::min(kPiece, count - done);
      gather(in + done * step * size, size, part, step, piece.data());
      convert(piece.data(), kind_, part, out + done);
    }
    out += count;
  });
}

void Elements::load_doubles(int64_t first, int64_t n, double* out) const noexcept {
  runs(first, n, [&](const uint8_t* in, int64_t count, int64_t step) {
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(out + i, in + i * step * 8, sizeof(double));
    }
    out += count;
  });
}

void Elements::copy(int64_t first, int64_t n, uint8_t* out) const noexcept {
  const int64_t size = element_size(kind_);
  runs(first, n, [&](const uint8_t* in, int64_t count, int64_t step) {
    if (step == 1) {
      std::memcpy(out, in, static_cast<size_t>(count * size));
    } else {
      gather(in, size, count, step, out);
    }
    out += count * size;
  });
}

}  // namespace halfscope::python
