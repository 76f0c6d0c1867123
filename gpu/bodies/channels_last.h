// SPDX-License-Identifier: MIT
// Batch normalization and pooling of tensors with channels last, [batch, pixel, channel]. Sums have
// the order that they have on planes (normalization.h), so both give the same bits. A thread takes
// kSeveral adjacent channels, and adjacent threads take adjacent packs of channels.
#pragma once

#include <cstdint>
#include <limits>

#include "gpu/bodies/normalization.h"
#include "gpu/bodies/pooling.h"
#include "gpu/bodies/several.h"

namespace halfscope::gpu {

/// Shares the sums over planes among blocks. A block has `across` packs of channels of some
/// samples, and 16 threads for each of these: one per partial sum.
struct PackTiles {
  static constexpr int kThreads = 256, kTeams = kThreads / kPartialSums;

  Planes planes;
  int across;     ///< packs of channels in a block, a power of two
  Divisor packs;  ///< blocks in a row of channels
  explicit PackTiles(const Planes& of) : planes(of), across(1), packs(1) {
    const int64_t all = of.channels / kSeveral;
    while (across < kTeams && 2 * across <= all) across *= 2;
    packs = ceil_div(all, across);
  }

  int64_t blocks() const { return packs * ceil_div(planes.batch, kTeams / across); }

  /// Place of a thread's sums.
  struct Team {
    int64_t sample, channel;
    int partial, number;  ///< number: among the block's teams
    bool works;
  };
  HS_HD Team team(int64_t block, int thread) const {
    const int pack = thread % across, partial = thread / across % kPartialSums;
    const int slot = thread / across / kPartialSums;
    const int64_t row = block / packs, column = block - row * packs;
    const int64_t sample = row * (kTeams / across) + slot;
    const int64_t channel = (column * across + pack) * kSeveral;
    return {sample, channel, partial, slot * across + pack,
            sample < planes.batch && channel < planes.channels};
  }
  /// Calls f(position of the first channel) for the thread's pixels, ascending.
  template <class F>
  HS_HD void for_pixels(const Team& team, const F& f) const {
    const int64_t step = kPartialSums * planes.channels;
    int64_t at = (team.sample * planes.size + team.partial) * planes.channels + team.channel;
    for (int64_t pixel = team.partial; pixel < planes.size; pixel += kPartialSums, at += step)
      f(at);
  }
};

/// The partial sums of a block's teams.
struct PackSums {
  /// One more than needed per channel, so that the channels of a pack are in different banks.
  double partial[PackTiles::kTeams * kSeveral][kPartialSums + 1];

  HS_HD void put(const PackTiles::Team& team, const double (&sums)[kSeveral]) {
    for (int j = 0; j < kSeveral; ++j) partial[team.number * kSeveral + j][team.partial] = sums[j];
  }
  HS_HD double total(int line) const { return add_tree(partial[line]); }
};

/// Calls f(line, plane) for the plane that this thread finishes: sums over partial[line].
template <class F>
HS_HD void finish_planes(const PackTiles& tiles, int64_t block, int thread, const F& f) {
  if (thread >= PackTiles::kTeams * kSeveral) return;
  const int number = thread / kSeveral, slot = number / tiles.across;
  // The first thread of that team knows where it is.
  const PackTiles::Team team =
      tiles.team(block, slot * tiles.across * kPartialSums + number % tiles.across);
  if (!team.works) return;
  f(thread, (team.channel + thread % kSeveral) * tiles.planes.batch + team.sample);
}

/// Same as PlaneMoment.
template <class T>
struct PlaneMomentLast {
  static constexpr int kThreads = PackTiles::kThreads;
  using Shared = PackSums;
  struct State {};

  PackTiles tiles;
  In<T> x;
  const double* mean;  ///< null: the sum
  double* sums;

  int64_t blocks() const { return tiles.blocks(); }
  HS_HD int64_t steps() const { return 2; }

  HS_HD void step(int64_t s, int64_t block, int thread, Shared& shared, State&) const {
    if (s == 0) {
      add(tiles.team(block, thread), shared);
    } else {
      finish_planes(tiles, block, thread,
                    [&](int line, int64_t plane) { sums[plane] = shared.total(line); });
    }
  }

 private:
  HS_HD void add(const PackTiles::Team& team, Shared& shared) const {
    if (!team.works) return;
    double centre[kSeveral] = {}, total[kSeveral] = {};
    const bool squares = mean != nullptr;
    for (int j = 0; j < kSeveral; ++j) centre[j] = squares ? mean[team.channel + j] : 0.0;
    tiles.for_pixels(team, [&](int64_t at) {
      T element[kSeveral];
      read(x, Neighbours{at, kSeveral}, element);
      for (int j = 0; j < kSeveral; ++j) {
        const double value = static_cast<double>(element[j]), centred = value - centre[j];
        total[j] += squares ? centred * centred : value;
      }
    });
    shared.put(team, total);
  }
};

/// Same as PlaneGradSums.
template <class T>
struct PlaneGradSumsLast {
  static constexpr int kThreads = PackTiles::kThreads;
  struct Shared {
    PackSums first, second;
  };
  struct State {};

  PackTiles tiles;
  In<T> dy, x, mean;
  double *first, *second;

  int64_t blocks() const { return tiles.blocks(); }
  HS_HD int64_t steps() const { return 2; }

  HS_HD void step(int64_t s, int64_t block, int thread, Shared& shared, State&) const {
    if (s == 0) {
      add(tiles.team(block, thread), shared);
    } else {
      finish_planes(tiles, block, thread, [&](int line, int64_t plane) {
        first[plane] = shared.first.total(line);
        second[plane] = shared.second.total(line);
      });
    }
  }

 private:
  HS_HD void add(const PackTiles::Team& team, Shared& shared) const {
    if (!team.works) return;
    double centre[kSeveral], sum[kSeveral] = {}, product[kSeveral] = {};
    for (int j = 0; j < kSeveral; ++j) centre[j] = static_cast<double>(mean[team.channel + j]);
    tiles.for_pixels(team, [&](int64_t at) {
      T g[kSeveral], element[kSeveral];
      read(dy, Neighbours{at, kSeveral}, g);
      read(x, Neighbours{at, kSeveral}, element);
      for (int j = 0; j < kSeveral; ++j) {
        sum[j] += static_cast<double>(g[j]);
        product[j] += static_cast<double>(g[j]) * (static_cast<double>(element[j]) - centre[j]);
      }
    });
    shared.first.put(team, sum);
    shared.second.put(team, product);
  }
};

/// Items of kPixels pixels of one pack of channels each, so that factors of channels are read
/// once for all of them.
struct PackItems {
  static constexpr int kPixels = 4;

  int64_t rows, channels;  ///< rows: pixels of all samples
  Divisor packs;

  explicit PackItems(const Planes& of)
      : rows(of.batch * of.size), channels(of.channels), packs(of.channels / kSeveral) {}

  int64_t items() const { return ceil_div(rows, kPixels) * packs; }
  HS_HD int64_t channel(int64_t item) const { return item % packs * kSeveral; }
  /// Calls f(Neighbours) for the item's elements.
  template <class F>
  HS_HD void for_elements(int64_t item, const F& f) const {
    const int64_t first = item / packs * kPixels, pack = channel(item);
    const int64_t count = smaller(kPixels, rows - first);
    for (int64_t p = 0; p < count; ++p) f(Neighbours{(first + p) * channels + pack, kSeveral});
  }
};

/// Same as Normalize.
template <class T>
struct NormalizeLast {
  PackItems items;
  In<T> x, mean, factor, bias;
  Afterwards<T> then;

  HS_HD void operator()(int64_t item) const {
    const Neighbours own{items.channel(item), kSeveral};
    T middle[kSeveral], times[kSeveral], plus[kSeveral];
    read(mean, own, middle);
    read(factor, own, times);
    read(bias, own, plus);
    items.for_elements(item, [&](const Neighbours& at) {
      T value[kSeveral];
      read(x, at, value);
      for (int j = 0; j < kSeveral; ++j) {
        value[j] = normalized(value[j], middle[j], times[j], plus[j]);
      }
      then.finish(at, value);
    });
  }
};

/// Same as NormalizeGrad.
template <class T>
struct NormalizeGradLast {
  PackItems items;
  In<T> dy, x, mean, factor, share, slope;
  Out<T> dx;

  HS_HD void operator()(int64_t item) const {
    const Neighbours own{items.channel(item), kSeveral};
    T middle[kSeveral], times[kSeveral], less[kSeveral], inclined[kSeveral];
    read(mean, own, middle);
    read(factor, own, times);
    read(share, own, less);
    read(slope, own, inclined);
    items.for_elements(item, [&](const Neighbours& at) {
      T value[kSeveral], g[kSeveral];
      read(x, at, value);
      read(dy, at, g);
      for (int j = 0; j < kSeveral; ++j) {
        value[j] = normalized_grad(g[j], value[j], middle[j], inclined[j], times[j], less[j]);
      }
      write(dx, at, value);
    });
  }
};

/// Spreads a number per sample and channel over the pixels: ReduceMeanGrad. Item: an element of dx.
template <class T>
struct MeanGradLast {
  In<T> dy;
  Out<T> dx;
  Divisor channels, plane;  ///< plane: elements of a sample
  int64_t pixels;

  HS_HD void operator()(int64_t item) const {
    const int64_t sample = item / plane, channel = item % channels;
    dx[item] = dy[sample * channels + channel] / static_cast<T>(pixels);
  }
};

/// The elements of a plane, `channels` apart.
template <class T>
struct EveryChannel {
  In<T> first;
  int64_t channels;
  HS_HD auto operator[](int64_t pixel) const { return first[pixel * channels]; }
};

/// Same as MaxPool. Item: an output.
template <class T>
struct MaxPoolLast {
  In<T> x;
  Out<T> y;
  int32_t* index;
  Windows s;
  Divisor channels;

  HS_HD void operator()(int64_t item) const {
    const int64_t place = item / channels, channel = item - place * channels;
    const int64_t sample = place / s.out_plane, pixel = place - sample * s.out_plane;
    const EveryChannel<T> in{x + (sample * s.plane * channels + channel), channels};
    const int64_t at = place_of_largest(in, s, pixel / s.out_width, pixel % s.out_width);
    y[item] = at < 0 ? -std::numeric_limits<T>::infinity() : in[at];
    index[item] = static_cast<int32_t>(at);
  }
};

/// Same as MaxPoolGrad. Item: an element of dx.
template <class T>
struct MaxPoolGradLast {
  In<T> dy;
  const int32_t* index;
  Out<T> dx;
  Windows s;
  Divisor channels;

  HS_HD void operator()(int64_t item) const {
    const int64_t place = item / channels, channel = item - place * channels;
    const int64_t sample = place / s.plane, pixel = place - sample * s.plane;
    dx[item] = sum_of_choosers<T>(dy, index, s, pixel, [&](int64_t p, int64_t q) {
      return ((sample * s.out_height + p) * s.out_width + q) * channels + channel;
    });
  }
};

/// Element i of a tensor with channels second, where it has channels last; to U.
template <class U>
struct FromChannelsLast {
  In<float> x;
  U* to;
  Divisor channels, pixels;

  HS_HD void operator()(int64_t i) const {
    const int64_t plane = i / pixels, pixel = i - plane * pixels, sample = plane / channels;
    to[i] = static_cast<U>(x[(sample * pixels + pixel) * channels + (plane - sample * channels)]);
  }
};

}  // namespace halfscope::gpu
