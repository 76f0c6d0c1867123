// SPDX-License-Identifier: MIT
// The numbers of one rank in an exchange of gradients (core/exchange/exchange_plan.h): between a
// gradient, its sum on the way, and messages. Each body works on one part of a tensor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/numeric/formats/codes.h"
#include "gpu/bodies/rank_gradients.h"
#include "gpu/bodies/work.h"

namespace halfscope::gpu {

/// Numbers in a message: `width` bytes each, fp32 if it is 4, else codes of `format`.
template <class Byte>
struct Message {
  Byte* bytes;
  int64_t width;
  FloatFormat format;  ///< without options

  HS_HD float read(int64_t i) const {
    if (width == 4) return reinterpret_cast<const float*>(bytes)[i];
    const uint32_t code = width == 2 ? uint32_t{reinterpret_cast<const uint16_t*>(bytes)[i]}
                                     : uint32_t{static_cast<uint8_t>(bytes[i])};
    return decode(code, format);
  }
  HS_HD void write(int64_t i, float x) const {
    if (width == 4) {
      reinterpret_cast<float*>(bytes)[i] = x;
    } else if (width == 2) {
      reinterpret_cast<uint16_t*>(bytes)[i] = static_cast<uint16_t>(encode(x, format));
    } else {
      bytes[i] = static_cast<std::byte>(encode(x, format));
    }
  }
};
using InMessage = Message<const std::byte>;
using OutMessage = Message<std::byte>;

/// A gradient as it takes part: rounded and, before the additions, divided.
struct OwnNumbers {
  In<float> gradient;
  float* own;
  int64_t n;
  FloatFormat format;
  float divisor;  ///< 0: it is divided after the additions

  HS_HD int64_t items() const { return n; }
  HS_HD void operator()(int64_t i) const {
    const float x = rounded_in(gradient[i], format);
    own[i] = divisor == 0.0f ? x : rounded_in(x / divisor, format);
  }
};

struct PackNumbers {
  const float* from;
  OutMessage to;
  int64_t n;

  HS_HD int64_t items() const { return n; }
  HS_HD void operator()(int64_t i) const { to.write(i, from[i]); }
};

/// An addition of an all-reduce.
struct AddNumbers {
  float* own;
  InMessage sent;
  int64_t n;
  FloatFormat stored;  ///< the sum is rounded to this; fp32: it is not

  HS_HD int64_t items() const { return n; }
  HS_HD void operator()(int64_t i) const { own[i] = rounded_in(own[i] + sent.read(i), stored); }
};

/// The sum of all ranks' numbers in the order of ranks, in fp32. `sent` is the first message, and
/// the one of the next sender begins `stride` bytes later.
struct SumNumbers {
  float* own;
  InMessage sent;
  int64_t n, stride;
  int32_t rank, ranks;

  HS_HD int64_t items() const { return n; }
  HS_HD void operator()(int64_t i) const {
    InMessage next = sent;
    float sum = 0.0f;
    for (int32_t from = 0; from < ranks; ++from) {
      float x = own[i];
      if (from != rank) {
        x = next.read(i);
        next.bytes += stride;
      }
      sum = from == 0 ? x : sum + x;
    }
    own[i] = sum;
  }
};

struct MeanNumbers {
  const float* sum;
  float* mean;
  int64_t n;
  FloatFormat stored;  ///< the mean is rounded to this; fp32: it is not
  float divisor;       ///< 0: it was divided before the additions

  HS_HD int64_t items() const { return n; }
  HS_HD void operator()(int64_t i) const {
    mean[i] = rounded_in(divisor == 0.0f ? sum[i] : sum[i] / divisor, stored);
  }
};

struct TakeNumbers {
  InMessage sent;
  float* mean;
  int64_t n;

  HS_HD int64_t items() const { return n; }
  HS_HD void operator()(int64_t i) const { mean[i] = sent.read(i); }
};

}  // namespace halfscope::gpu
