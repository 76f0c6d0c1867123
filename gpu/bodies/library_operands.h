// SPDX-License-Identifier: MIT
// Operands as libraries want them where they do not lie so already, and what is left to do with
// what they write: lines of k or channels last, and then bias, scales and the way back.
#pragma once

#include <cstdint>

#include "gpu/bodies/products.h"

namespace halfscope::gpu {

/// Item = line * pitch + l: a(line, l) or b(l, line), zeros beyond the matrix. A term that takes no
/// part is a zero, too.
template <class Source, bool kFirst>
struct PackLines {
  Source source;
  void* to;
  int64_t pitch;
  Storage storage;

  HS_HD void operator()(int64_t item) const {
    const int64_t line = item / pitch, l = item % pitch;
    const bool exists = l < source.k && line < (kFirst ? source.m : source.n);
    store(to, storage, item, exists ? value(line, l) : 0.0f);
  }

 private:
  HS_HD float value(int64_t line, int64_t l) const {
    return kFirst ? source.a(line, l) : source.b(l, line);
  }
};

/// [outer][channel][pixel] as [outer][pixel][channel]; item: an element of the latter.
struct ChannelsLast {
  In<float> x;
  void* to;
  int64_t channels, pixels;
  Storage storage;

  HS_HD void operator()(int64_t item) const {
    const int64_t channel = item % channels, rest = item / channels;
    const int64_t pixel = rest % pixels, outer = rest / pixels;
    store(to, storage, item, x[(outer * channels + channel) * pixels + pixel]);
  }
};

/// Sums that lie as the matrix of a product, in rows of `pitch`; item = i * n + j.
template <class Source>
struct FinishMatrix {
  Source source;
  Epilogue<float> epilogue;
  In<float> sums;
  int64_t pitch;

  HS_HD void operator()(int64_t item) const {
    const int64_t i = item / source.n, j = item % source.n, at = source.place(i, j);
    const double sum = static_cast<double>(sums[i * pitch + j]);
    source.y[at] = epilogue.finish(sum, source.bias_index(i, j), source.k, at);
  }
};

/// Sums of a convolution, with channels last or, if `pixels` is 0, as they are to lie; item: an
/// element of the result. `per_bias` neighbours share a bias, of which there are `biases`.
struct FinishTensor {
  Epilogue<float> epilogue;
  In<float> sums;
  Out<float> y;
  int64_t channels, pixels, per_bias, biases;

  HS_HD void operator()(int64_t item) const {
    const double sum = static_cast<double>(sums[place(item)]);
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
