// SPDX-License-Identifier: MIT
// A library that executes plans by the rules of cuBLASLt (column-major matrices with leading
// dimensions, op, the requirements of fp8) and cuDNN (sizes and strides, cross-correlation),
// element by element and independently of how plans are made. By default, sums are chains of fp32
// fused multiply-adds in the emulator's order, so that a correct layout gives the emulator's bits.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/backend/backend.h"
#include "core/numeric/formats/codes.h"
#include "gpu/host_program.h"
#include "gpu/libraries/product_library.h"

namespace halfscope::test {

using gpu::ConvPlan;
using gpu::ConvProduct;
using gpu::LtMatrix;
using gpu::MatrixPlan;
using gpu::Storage;
using gpu::TensorPlan;

inline float load(const void* data, int64_t at, Storage storage) {
  const auto code = [&](auto word) {
    std::memcpy(&word, static_cast<const std::byte*>(data) + at * static_cast<int64_t>(sizeof word),
                sizeof word);
    return word;
  };
  switch (storage) {
    case Storage::fp16:
      return decode(code(uint16_t{}), kFp16);
    case Storage::bf16:
      return decode(code(uint16_t{}), kBf16);
    case Storage::e4m3fn:
      return decode(code(uint8_t{}), kE4m3fn);
    case Storage::e5m2:
      return decode(code(uint8_t{}), kE5m2);
    case Storage::fp32:
    case Storage::tf32:
      break;
  }
  return code(float{});
}

/// fp32, or rounded to 16 bits.
inline void store(void* data, int64_t at, Storage storage, float value) {
  if (storage == Storage::fp32) {
    static_cast<float*>(data)[at] = value;
  } else {
    ASSERT_TRUE(storage == Storage::fp16 || storage == Storage::bf16);
    static_cast<uint16_t*>(data)[at] =
        static_cast<uint16_t>(encode(value, storage == Storage::fp16 ? kFp16 : kBf16));
  }
}

/// The sum of a[k] * b[k].
using SumProducts = std::function<float(std::span<const float> a, std::span<const float> b)>;

inline float chain_of_products(std::span<const float> a, std::span<const float> b) {
  float sum = 0.0f;
  for (size_t k = 0; k < a.size(); ++k) sum = std::fma(a[k], b[k], sum);
  return sum;
}

/// The terms of one sum.
struct Terms {
  std::vector<float> a{}, b{};

  void add(float x, float y) {
    a.push_back(x);
    b.push_back(y);
  }
};

struct InterpretedOptions {
  bool matrices = true, convolutions = true, fast = false;
  bool half_convolutions = true;  ///< of 16 bits, summed and written in fp32
  SumProducts sum = chain_of_products;
  bool channels_inside = false;              ///< forward convolutions: k is (row, column, channel)
  std::vector<Accumulation> known_orders{};  ///< for the backend
  int64_t most_copied = int64_t{1} << 30;
  bool biases = true;                        ///< matrix products add them on request
  std::vector<MatrixPlan>* plans = nullptr;  ///< receives the plans of matrix products
};

class InterpretedMatrix final : public gpu::LibraryProduct {
 public:
  InterpretedMatrix(const MatrixPlan& plan, SumProducts sum) : plan_(plan), sum_(std::move(sum)) {
    expect_size(plan.first, plan.m, plan.k);
    expect_size(plan.second, plan.k, plan.n);
    expect_size(plan.d, plan.m, plan.n);
    EXPECT_FALSE(plan.d.transposed);
    EXPECT_GE(plan.count, 1);
    // Outputs of a batch must not overlap. A bias is stored like d, here in 16 bits.
    if (plan.count > 1) {
      EXPECT_GE(plan.d.stride, plan.d.leading * plan.d.columns);
    }
    if (plan.bias != nullptr) {
      EXPECT_EQ(width(plan.d), 2);
    }
    if (width(plan.first) == 1) {  // cuBLASLt's list for fp8 kernels
      EXPECT_TRUE(plan.first.transposed && !plan.second.transposed);
      EXPECT_EQ(width(plan.second), 1);
      for (const int64_t size : {plan.m, plan.n, plan.k}) EXPECT_EQ(size % 16, 0);
    } else {
      EXPECT_EQ(plan.first.storage, plan.second.storage);
    }
  }

  void run(const void* a, const void* b, void* result) override {
    for (int64_t p = 0; p < plan_.count; ++p) {
      run_one(place_of(plan_.second, a, p), place_of(plan_.first, b, p),
              const_cast<void*>(place_of(plan_.d, result, p)));
    }
  }
  std::string text() const override {
    return plan_.bias != nullptr ? "interpreted matrix with bias" : "interpreted matrix";
  }

 private:
  void run_one(const void* a, const void* b, void* result) {
    for (int64_t i = 0; i < plan_.m; ++i) {
      for (int64_t j = 0; j < plan_.n; ++j) {
        Terms terms;
        for (int64_t l = 0; l < plan_.k; ++l) {
          terms.add(at(plan_.second, a, l, j), at(plan_.first, b, i, l));
        }
        float sum = sum_(terms.a, terms.b);
        if (plan_.bias != nullptr) sum += load(plan_.bias, i, plan_.d.storage);
        store(result, j * plan_.d.leading + i, plan_.d.storage, sum);
      }
    }
  }
  /// Returns the address of the batch's matrix `p`, after checking its alignment.
  static const void* place_of(const LtMatrix& matrix, const void* data, int64_t p) {
    const std::byte* const place =
        static_cast<const std::byte*>(data) + p * matrix.stride * width(matrix);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(place) % static_cast<uintptr_t>(matrix.alignment), 0u);
    return place;
  }
  static int64_t width(const LtMatrix& matrix) {
    const bool byte = matrix.storage == Storage::e4m3fn || matrix.storage == Storage::e5m2;
    return byte ? 1 : matrix.storage == Storage::fp16 || matrix.storage == Storage::bf16 ? 2 : 4;
  }
  static void expect_size(const LtMatrix& matrix, int64_t rows, int64_t columns) {
    EXPECT_EQ(matrix.transposed ? matrix.columns : matrix.rows, rows);
    EXPECT_EQ(matrix.transposed ? matrix.rows : matrix.columns, columns);
    EXPECT_GE(matrix.leading, matrix.rows);
    if (width(matrix) < 4) {
      EXPECT_EQ(matrix.leading * width(matrix) % 16, 0);
    }
  }
  /// op(matrix)(row, column)
  static float at(const LtMatrix& matrix, const void* data, int64_t row, int64_t column) {
    const int64_t place =
        matrix.transposed ? row * matrix.leading + column : column * matrix.leading + row;
    return load(data, place, matrix.storage);
  }

  MatrixPlan plan_;
  SumProducts sum_;
};

class InterpretedConvolution final : public gpu::LibraryProduct {
 public:
  InterpretedConvolution(const ConvPlan& plan, const InterpretedOptions& options)
      : plan_(plan), options_(options) {
    for (size_t i = 0; i < 2; ++i) {  // cuDNN's formula
      const int64_t covered = plan.dilations[i] * (plan.w.size[i + 2] - 1) + 1;
      const int64_t padded = plan.x.size[i + 2] + plan.pad_before[i] + plan.pad_after[i];
      EXPECT_EQ(plan.y.size[i + 2], (padded - covered) / plan.strides[i] + 1);
    }
    EXPECT_EQ(plan.x.size[0], plan.y.size[0]);
    EXPECT_EQ(plan.w.size[0], plan.y.size[1]);
    groups_ = plan.x.size[1] / plan.w.size[1];
    EXPECT_EQ(plan.x.size[1], groups_ * plan.w.size[1]);
    EXPECT_EQ(plan.w.size[0] % groups_, 0);
  }

  void run(const void* a, const void* b, void* result) override {
    if (plan_.product == ConvProduct::forward) forward(a, b, result);
    if (plan_.product == ConvProduct::grad_input) grad_input(a, b, result);
    if (plan_.product == ConvProduct::grad_weight) grad_weight(a, b, result);
  }
  std::string text() const override {
    const Storage read = plan_.product == ConvProduct::forward ? plan_.x.storage : plan_.y.storage;
    return std::string("interpreted convolution in ") + gpu::name_of(read) +
           (plan_.channels_last ? ", channels last" : "");
  }

 private:
  static int64_t place(const TensorPlan& t, int64_t n, int64_t c, int64_t h, int64_t w) {
    return n * t.stride[0] + c * t.stride[1] + h * t.stride[2] + w * t.stride[3];
  }
  static float at(const TensorPlan& t, const void* data, int64_t n, int64_t c, int64_t h,
                  int64_t w) {
    return load(data, place(t, n, c, h, w), t.storage);
  }
  /// The input position that tap (r, s) of output (p, q) reads; false on the padding.
  bool input_of(int64_t p, int64_t q, int64_t r, int64_t s, int64_t& h, int64_t& w) const {
    h = p * plan_.strides[0] + r * plan_.dilations[0] - plan_.pad_before[0];
    w = q * plan_.strides[1] + s * plan_.dilations[1] - plan_.pad_before[1];
    return h >= 0 && w >= 0 && h < plan_.x.size[2] && w < plan_.x.size[3];
  }
  /// Output channels of a group.
  int64_t outs() const { return plan_.w.size[0] / groups_; }
  /// The channel of x that channel c of the filter for output channel k reads.
  int64_t channel_of(int64_t k, int64_t c) const { return k / outs() * plan_.w.size[1] + c; }
  template <class F>
  static void over(const TensorPlan& t, const F& f) {
    for (int64_t n = 0; n < t.size[0]; ++n) {
      for (int64_t c = 0; c < t.size[1]; ++c) {
        for (int64_t h = 0; h < t.size[2]; ++h) {
          for (int64_t w = 0; w < t.size[3]; ++w) f(n, c, h, w);
        }
      }
    }
  }

  void forward(const void* x, const void* w, void* y) const {
    over(plan_.y, [&](int64_t n, int64_t k, int64_t p, int64_t q) {
      Terms terms;
      const int64_t channels = plan_.w.size[1], taps = plan_.w.size[2] * plan_.w.size[3];
      for (int64_t l = 0; l < channels * taps; ++l) {
        const int64_t c = options_.channels_inside ? l % channels : l / taps;
        const int64_t tap = options_.channels_inside ? l / channels : l % taps;
        const int64_t r = tap / plan_.w.size[3], s = tap % plan_.w.size[3];
        int64_t h, at_w;
        const bool inside = input_of(p, q, r, s, h, at_w);
        terms.add(at(plan_.w, w, k, c, r, s),
                  inside ? at(plan_.x, x, n, channel_of(k, c), h, at_w) : 0.0f);
      }
      store(y, place(plan_.y, n, k, p, q), plan_.y.storage, options_.sum(terms.a, terms.b));
    });
  }

  void grad_input(const void* dy, const void* w, void* dx) const {
    over(plan_.x, [&](int64_t n, int64_t c, int64_t h, int64_t at_w) {
      Terms terms;
      const int64_t ins = plan_.w.size[1], first = c / ins * outs();
      for (int64_t r = 0; r < plan_.w.size[2]; ++r) {
        for (int64_t s = 0; s < plan_.w.size[3]; ++s) {
          for (int64_t k = first; k < first + outs(); ++k) {
            const int64_t p = h + plan_.pad_before[0] - r * plan_.dilations[0];
            const int64_t q = at_w + plan_.pad_before[1] - s * plan_.dilations[1];
            if (p < 0 || q < 0 || p % plan_.strides[0] != 0 || q % plan_.strides[1] != 0) continue;
            const int64_t out_p = p / plan_.strides[0], out_q = q / plan_.strides[1];
            if (out_p >= plan_.y.size[2] || out_q >= plan_.y.size[3]) continue;
            terms.add(at(plan_.y, dy, n, k, out_p, out_q), at(plan_.w, w, k, c % ins, r, s));
          }
        }
      }
      store(dx, place(plan_.x, n, c, h, at_w), plan_.x.storage, options_.sum(terms.a, terms.b));
    });
  }

  void grad_weight(const void* dy, const void* x, void* dw) const {
    over(plan_.w, [&](int64_t k, int64_t c, int64_t r, int64_t s) {
      Terms terms;
      for (int64_t n = 0; n < plan_.y.size[0]; ++n) {
        for (int64_t p = 0; p < plan_.y.size[2]; ++p) {
          for (int64_t q = 0; q < plan_.y.size[3]; ++q) {
            int64_t h, w;
            const bool inside = input_of(p, q, r, s, h, w);
            const float value = inside ? at(plan_.x, x, n, channel_of(k, c), h, w) : 0.0f;
            terms.add(at(plan_.y, dy, n, k, p, q), value);
          }
        }
      }
      store(dw, place(plan_.w, k, c, r, s), plan_.w.storage, options_.sum(terms.a, terms.b));
    });
  }

  ConvPlan plan_;
  InterpretedOptions options_;
  int64_t groups_ = 1;
};

class InterpretedLibrary final : public gpu::ProductLibrary {
 public:
  explicit InterpretedLibrary(const InterpretedOptions& options) : options_(options) {}
  std::unique_ptr<gpu::LibraryProduct> matrix(const MatrixPlan& plan, std::string& why) override {
    const bool biased = plan.bias != nullptr && !options_.biases;
    if (options_.matrices && !biased) {
      if (options_.plans != nullptr) options_.plans->push_back(plan);
      return std::make_unique<InterpretedMatrix>(plan, options_.sum);
    }
    why = "no matrices here";
    return nullptr;
  }
  std::unique_ptr<gpu::LibraryProduct> convolution(const ConvPlan& plan,
                                                   std::string& why) override {
    why = "no convolutions here";
    if (!options_.convolutions) return nullptr;
    const Storage read = plan.product == ConvProduct::forward ? plan.x.storage : plan.y.storage;
    const bool half = read == Storage::fp16 || read == Storage::bf16;
    why = "no sums of halves here";
    if (half && plan.made().storage == Storage::fp32 && !options_.half_convolutions) return nullptr;
    return std::make_unique<InterpretedConvolution>(plan, options_);
  }
  bool fast() const override { return options_.fast; }
  int64_t most_copied() const override { return options_.most_copied; }

 private:
  InterpretedOptions options_;
};

/// Products by such a library, all else by the bodies of our own kernels.
class LibraryBackend final : public Backend {
 public:
  explicit LibraryBackend(InterpretedOptions options) : options_(std::move(options)) {}
  const char* name() const noexcept override { return "interpreted"; }
  std::vector<Accumulation> known_orders() const override { return options_.known_orders; }
  std::unique_ptr<Program> compile(const Executable& executable) const override {
    return gpu::compile_on_host(executable, true, std::make_unique<InterpretedLibrary>(options_));
  }

 private:
  InterpretedOptions options_;
};

}  // namespace halfscope::test
