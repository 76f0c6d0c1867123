// SPDX-License-Identifier: MIT
// Operands as libraries want them, and what is left to do with what they write: codes instead of
// fp32 containers, lines of k or channels last, and then bias, scales and the way back.
#pragma once

#include <cstdint>

#include "core/numeric/codes.h"
#include "gpu/bodies/products.h"

namespace halfscope::gpu {

/// An element as it is stored: fp32, or a code of the format.
template <class Stored>
HS_HD inline Stored stored(float x, const FloatFormat& format) {
  return static_cast<Stored>(detail::code_of_value(x, format));
}
template <>
HS_HD inline float stored<float>(float x, const FloatFormat&) {
  return x;
}

HS_HD inline float value_of(float x, const FloatFormat&) { return x; }
HS_HD inline float value_of(uint16_t code, const FloatFormat& format) {
  return decode(code, format);
}

/// Item = line * pitch + l: a(line, l) or b(l, line), zeros beyond the matrix. A term that takes no
/// part is a zero, too.
template <class Stored, class Source, bool kFirst>
struct PackLines {
  Source source;
  Stored* to;
  int64_t pitch;
  FloatFormat format;

  HS_HD void operator()(int64_t item) const {
    const int64_t line = item / pitch, l = item % pitch;
    const bool exists = l < source.k && line < (kFirst ? source.m : source.n);
    to[item] = stored<Stored>(exists ? value(line, l) : 0.0f, format);
  }

 private:
  HS_HD float value(int64_t line, int64_t l) const {
    return kFirst ? source.a(line, l) : source.b(l, line);
  }
};

/// [outer][channel][pixel] as [outer][pixel][channel]; item: an element of the latter.
template <class Stored>
struct ChannelsLast {
  const float* x;
  Stored* to;
  int64_t channels, pixels;
  FloatFormat format;

  HS_HD void operator()(int64_t item) const {
    const int64_t channel = item % channels, rest = item / channels;
    const int64_t pixel = rest % pixels, outer = rest / pixels;
    to[item] = stored<Stored>(x[(outer * channels + channel) * pixels + pixel], format);
  }
};

/// Sums that lie as the matrix of a product, in rows of `pitch`; item = i * n + j.
template <class Stored, class Source>
struct FinishMatrix {
  Source source;
  Epilogue<float> epilogue;
  const Stored* sums;
  int64_t pitch;
  FloatFormat format;  ///< of codes

  HS_HD void operator()(int64_t item) const {
    const int64_t i = item / source.n, j = item % source.n, at = source.place(i, j);
    const double sum = static_cast<double>(value_of(sums[i * pitch + j], format));
    source.y[at] = epilogue.finish(sum, source.bias_index(i, j), source.k, at);
  }
};

/// Sums of a convolution, with channels last or, if `pixels` is 0, as they are to lie; item: an
/// element of the result. `per_bias` neighbours share a bias, of which there are `biases`.
template <class Stored>
struct FinishTensor {
  Epilogue<float> epilogue;
  const Stored* sums;
  float* y;
  int64_t channels, pixels, per_bias, biases;
  FloatFormat format;

  HS_HD void operator()(int64_t item) const {
    const double sum = static_cast<double>(value_of(sums[place(item)], format));
    y[item] = epilogue.finish(sum, item / per_bias % biases, 0, item);
  }

 private:
  HS_HD int64_t place(int64_t item) const {
    if (pixels == 0) return item;
    const int64_t pixel = item % pixels, rest = item / pixels;
    return (rest / channels * pixels + pixel) * channels + rest % channels;
  }
};

}  // namespace halfscope::gpu
