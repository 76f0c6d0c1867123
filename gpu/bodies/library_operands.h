// SPDX-License-Identifier: MIT
// Operands as libraries want them where they do not lie so already, and what is left to do with
// what they write: lines of k or channels last, and then bias, scales and the way back.
#pragma once

#include <cstdint>

#include "gpu/bodies/divisor.h"
#include "gpu/bodies/products.h"

namespace halfscope::gpu {

/// Item = line * pitch + l: a(line, l) or b(l, line), zeros beyond the matrix. A term that takes no
/// part is a zero, too.
template <class Source, bool kFirst>
struct PackLines {
  Source source;
  void* to;
  Divisor pitch;
  Storage storage;

  HS_HD void operator()(int64_t item) const {
    const int64_t line = item / pitch, l = item - line * pitch;
    const bool exists = l < source.k && line < (kFirst ? source.m : int64_t{source.n});
    store(to, storage, item, exists ? value(line, l) : 0.0f);
  }

 private:
  HS_HD float value(int64_t line, int64_t l) const {
    return kFirst ? source.a(line, l) : source.b(l, line);
  }
};

/// [outer][channel][pixel] and [outer][pixel][channel] in tiles of some channels and pixels, by way
/// of shared memory: each of the two is read or written by neighbours.
class ChannelTiles {
 public:
  static constexpr int kThreads = 256;
  static constexpr int kMostElements = 4096, kMostChannels = 256;  ///< of a tile

  /// A channel's pixels begin in another bank than the next one's.
  struct Shared {
    float element[kMostElements + kMostChannels];
  };

  ChannelTiles(int64_t outer, int64_t channels, int64_t pixels)
      : outer_(channels == 1 ? 1 : outer),
        channels_(channels),
        pixels_(channels == 1 ? outer * pixels : pixels),
        tall_(smaller(channels_, most_channels(pixels_))),
        wide_(smaller(pixels_, kMostElements / larger(tall_, 1))),
        down_(ceil_div(channels_, tall_)),
        across_(ceil_div(pixels_, wide_)) {}

  HS_HD int64_t blocks() const { return outer_ * down_ * across_; }

  /// f(element in shared memory, place with channels before pixels, channel) for a thread's share
  /// of a tile, pixel by pixel.
  template <class F>
  HS_HD void by_pixels(int64_t block, int thread, const F& f) const {
    const Corner first = corner(block);
    for (int at = thread; at < size(); at += kThreads) {
      const int row = at / wide_, column = at - row * width();
      const int64_t channel = first.channel + row, pixel = first.pixel + column;
      if (channel >= channels_ || pixel >= pixels_) continue;
      f(row * pitch() + column, (first.outer * channels_ + channel) * pixels_ + pixel, channel);
    }
  }
  /// f(element in shared memory, place with channels last) likewise, channel by channel.
  template <class F>
  HS_HD void by_channels(int64_t block, int thread, const F& f) const {
    const Corner first = corner(block);
    for (int at = thread; at < size(); at += kThreads) {
      const int column = at / tall_, row = at - column * height();
      const int64_t channel = first.channel + row, pixel = first.pixel + column;
      if (channel >= channels_ || pixel >= pixels_) continue;
      f(row * pitch() + column, (first.outer * pixels_ + pixel) * channels_ + channel);
    }
  }

 private:
  /// Of a tile that is to have 64 pixels, or all of them.
  static int64_t most_channels(int64_t pixels) {
    return smaller(kMostElements / larger(smaller(pixels, 64), 1), kMostChannels);
  }
  struct Corner {
    int64_t outer, channel, pixel;
  };
  HS_HD Corner corner(int64_t block) const {
    const int64_t row = block / across_, outer = row / down_;
    return {outer, (row - outer * down_) * tall_, (block - row * across_) * wide_};
  }
  HS_HD int height() const { return static_cast<int>(static_cast<int64_t>(tall_)); }
  HS_HD int width() const { return static_cast<int>(static_cast<int64_t>(wide_)); }
  HS_HD int size() const { return height() * width(); }
  HS_HD int pitch() const { return width() | 1; }

  int64_t outer_, channels_, pixels_;
  Divisor tall_, wide_;    ///< channels and pixels of a tile
  Divisor down_, across_;  ///< tiles of one outer
};

/// [outer][channel][pixel] as [outer][pixel][channel].
struct ChannelsLast {
  static constexpr int kThreads = ChannelTiles::kThreads;
  using Shared = ChannelTiles::Shared;
  struct State {};

  In<float> x;
  void* to;
  Storage storage;
  ChannelTiles tiles;

  int64_t blocks() const { return tiles.blocks(); }
  HS_HD int64_t steps() const { return 2; }

  HS_HD void step(int64_t s, int64_t block, int thread, Shared& shared, State&) const {
    if (s == 0) {
      tiles.by_pixels(block, thread,
                      [&](int k, int64_t place, int64_t) { shared.element[k] = x[place]; });
    } else {
      tiles.by_channels(block, thread, [&](int k, int64_t place) {
        store(to, storage, place, shared.element[k]);
      });
    }
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
    const int64_t i = item / source.n, j = item - i * source.n, at = source.place(i, j);
    const double sum = static_cast<double>(sums[i * pitch + j]);
    source.y[at] = epilogue.finish(sum, source.bias_index(i, j), source.k, at);
  }
};

/// Sums of a convolution that lie as its result; item: an element of it. `per_bias` neighbours
/// share a bias, of which there are `biases`.
struct FinishPlanes {
  Epilogue<float> epilogue;
  In<float> sums;
  Out<float> y;
  Divisor per_bias, biases;

  HS_HD void operator()(int64_t item) const {
    const double sum = static_cast<double>(sums[item]);
    y[item] = epilogue.finish(sum, item / per_bias % biases, 0, item);
  }
};

/// Sums of a convolution with channels last; a bias is a channel's.
struct FinishChannelsLast {
  static constexpr int kThreads = ChannelTiles::kThreads;
  using Shared = ChannelTiles::Shared;
  struct State {};

  Epilogue<float> epilogue;
  In<float> sums;
  Out<float> y;
  ChannelTiles tiles;

  int64_t blocks() const { return tiles.blocks(); }
  HS_HD int64_t steps() const { return 2; }

  HS_HD void step(int64_t s, int64_t block, int thread, Shared& shared, State&) const {
    if (s == 0) {
      tiles.by_channels(block, thread,
                        [&](int k, int64_t place) { shared.element[k] = sums[place]; });
    } else {
      tiles.by_pixels(block, thread, [&](int k, int64_t place, int64_t channel) {
        const double sum = static_cast<double>(shared.element[k]);
        y[place] = epilogue.finish(sum, channel, 0, place);
      });
    }
  }
};

}  // namespace halfscope::gpu
