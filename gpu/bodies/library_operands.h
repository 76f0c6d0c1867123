// SPDX-License-Identifier: MIT
// Copies operands into the layout that libraries need (lines of k, or channels last), and finishes
// what they write: adds bias, applies scales, and restores the layout.
#pragma once

#include <cstdint>

#include "gpu/bodies/divisor.h"
#include "gpu/bodies/products.h"
#include "gpu/bodies/several.h"

namespace halfscope::gpu {

/// Item = line * pitch + l: a(line, l) or b(l, line), zeros beyond the matrix. A missing term is a
/// zero, too.
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

/// Converts between [outer][channel][pixel] and [outer][pixel][channel] in tiles of some channels
/// and pixels through shared memory, so that adjacent threads read and write adjacent elements on
/// both sides.
class ChannelTiles {
 public:
  static constexpr int kThreads = 256;
  static constexpr int kMostElements = 4096, kMostChannels = 256;  ///< of a tile

  /// Each channel's pixels begin in a different memory bank than the next channel's.
  struct Shared {
    float element[kMostElements + kMostChannels];
  };

  ChannelTiles(int64_t outer, int64_t channels, int64_t pixels)
      : outer_(channels == 1 ? 1 : outer),
        channels_(channels),
        pixels_(channels == 1 ? outer * pixels : pixels),
        tall_(smaller(channels_, most_channels(pixels_))),
        wide_(smaller(pixels_, whole(kMostElements / larger(tall_, 1)))),
        pixel_packs_(pixels_ % kSeveral == 0 ? int64_t{wide_} / kSeveral : 0),
        channel_packs_(channels_ % kSeveral == 0 ? int64_t{tall_} / kSeveral : 0),
        down_(ceil_div(channels_, larger(tall_, 1))),
        across_(ceil_div(pixels_, larger(wide_, 1))) {}

  HS_HD int64_t blocks() const { return outer_ * down_ * across_; }

  /// Elements and their positions in shared memory: the first position and the step.
  struct Share {
    Neighbours at;
    int place, step;
    int64_t channel;  ///< of the first
  };

  /// Calls f(Share) for a thread's share of a tile, in the order with channels before pixels. Takes
  /// several elements at a time if rows are multiples of that, otherwise one.
  template <class F>
  HS_HD void by_pixels(int64_t block, int thread, const F& f) const {
    const bool several = pixel_packs_ != 0;
    const Divisor& across = several ? pixel_packs_ : wide_;
    const int each = several ? kSeveral : 1, count = height() * narrow(across);
    const Corner first = corner(block);
    for (int at = thread; at < count; at += kThreads) {
      const int row = at / across, column = (at - row * narrow(across)) * each;
      const int64_t channel = first.channel + row, pixel = first.pixel + column;
      if (channel >= channels_ || pixel >= pixels_) continue;
      const int64_t place = (first.outer * channels_ + channel) * pixels_ + pixel;
      f(Share{{place, each}, row * pitch() + column, 1, channel});
    }
  }
  /// Same, in the order with channels last.
  template <class F>
  HS_HD void by_channels(int64_t block, int thread, const F& f) const {
    const bool several = channel_packs_ != 0;
    const Divisor& down = several ? channel_packs_ : tall_;
    const int each = several ? kSeveral : 1, count = width() * narrow(down);
    const Corner first = corner(block);
    for (int at = thread; at < count; at += kThreads) {
      const int column = at / down, row = (at - column * narrow(down)) * each;
      const int64_t channel = first.channel + row, pixel = first.pixel + column;
      if (channel >= channels_ || pixel >= pixels_) continue;
      const int64_t place = (first.outer * pixels_ + pixel) * channels_ + channel;
      f(Share{{place, each}, row * pitch() + column, pitch(), channel});
    }
  }

  /// Copies between a tensor (or what is computed from it) and shared memory.
  HS_HD static void take(const In<float>& x, const Share& share, Shared& shared) {
    if (share.at.count == 1) {
      shared.element[share.place] = x[share.at.first];
      return;
    }
    float element[kSeveral];
    read(x, share.at, element);
    for (int j = 0; j < kSeveral; ++j) shared.element[share.place + j * share.step] = element[j];
  }

 private:
  static int64_t whole(int64_t n) { return n / kSeveral * kSeveral; }
  /// Returns the most channels of a tile that should have 64 pixels, or all of them.
  static int64_t most_channels(int64_t pixels) {
    return whole(smaller(kMostElements / larger(smaller(pixels, 64), 1), kMostChannels));
  }
  struct Corner {
    int64_t outer, channel, pixel;
  };
  HS_HD Corner corner(int64_t block) const {
    const int64_t row = block / across_, outer = row / down_;
    return {outer, (row - outer * down_) * tall_, (block - row * across_) * wide_};
  }
  HS_HD static int narrow(const Divisor& d) { return static_cast<int>(int64_t{d}); }
  HS_HD int height() const { return narrow(tall_); }
  HS_HD int width() const { return narrow(wide_); }
  HS_HD int pitch() const { return width() | 1; }

  int64_t outer_, channels_, pixels_;
  Divisor tall_, wide_;  ///< channels and pixels of a tile
  /// Packs of kSeveral in a row and in a column; 0: rows or columns are not multiples of it.
  Divisor pixel_packs_, channel_packs_;
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
      tiles.by_pixels(block, thread, [&](const ChannelTiles::Share& share) {
        ChannelTiles::take(x, share, shared);
      });
    } else {
      tiles.by_channels(block, thread,
                        [&](const ChannelTiles::Share& share) { give(share, shared); });
    }
  }

 private:
  HS_HD void give(const ChannelTiles::Share& share, const Shared& shared) const {
    if (share.at.count == 1) {
      store(to, storage, share.at.first, shared.element[share.place]);
      return;
    }
    float element[kSeveral];
    for (int j = 0; j < kSeveral; ++j) element[j] = shared.element[share.place + j * share.step];
    store(to, storage, share.at, element);
  }
};

/// Sums in the layout of the product's matrix, in rows of `pitch`; item = i * n + j.
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

/// Sums in the layout of the single output matrix; item: several elements.
struct FinishRows {
  Epilogue<float> epilogue;
  In<float> sums;
  Out<float> y;
  int64_t elements;
  Divisor n;
  int64_t k, bias_row, bias_column;
  int64_t first;  ///< index of the first element among all outputs

  HS_HD void operator()(int64_t item) const {
    const Neighbours at = several_of(item, elements);
    float made[kSeveral];
    read(sums, at, made);
    int64_t i = at.first / n, j = at.first - i * n;
    for (int e = 0; e < kSeveral; ++e) {
      if (e >= at.count) continue;
      const int64_t bias = i * bias_row + j * bias_column;
      made[e] = epilogue.finish(static_cast<double>(made[e]), bias, k, first + at.first + e);
      if (++j == n) {
        j = 0;
        ++i;
      }
    }
    write(y, at, made);
  }
};

/// Sums of a convolution in the layout of its output; item: several elements. Each run of
/// `per_bias` elements shares one of `biases` biases.
struct FinishPlanes {
  Epilogue<float> epilogue;
  In<float> sums;
  Out<float> y;
  int64_t elements;
  Divisor per_bias, biases;

  HS_HD void operator()(int64_t item) const {
    const Neighbours at = several_of(item, elements);
    float made[kSeveral];
    read(sums, at, made);
    for (int j = 0; j < kSeveral; ++j) {
      if (j >= at.count) continue;
      const int64_t i = at.first + j;
      const int64_t bias = epilogue.bias == nullptr ? 0 : i / per_bias % biases;
      made[j] = epilogue.finish(static_cast<double>(made[j]), bias, 0, i);
    }
    write(y, at, made);
  }
};

/// Sums of a convolution with channels last; each channel has one bias.
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
      tiles.by_channels(block, thread, [&](const ChannelTiles::Share& share) {
        ChannelTiles::take(sums, share, shared);
      });
    } else {
      tiles.by_pixels(block, thread,
                      [&](const ChannelTiles::Share& share) { give(share, shared); });
    }
  }

 private:
  HS_HD void give(const ChannelTiles::Share& share, const Shared& shared) const {
    float made[kSeveral] = {};
    for (int j = 0; j < kSeveral; ++j) {
      if (j >= share.at.count) continue;
      const double sum = static_cast<double>(shared.element[share.place + j * share.step]);
      made[j] = epilogue.finish(sum, share.channel, 0, share.at.first + j);
    }
    write(y, share.at, made);
  }
};

}  // namespace halfscope::gpu
