// SPDX-License-Identifier: MIT
// Batch normalization, fused. Statistics and sums are in double: 16 threads per plane (sample,
// channel) in a fixed order, then one thread per channel adds its planes in order. The rest is in
// fp32. An accumulation that the plan names runs over (sample, pixel) of a channel.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/bodies/elements.h"
#include "core/numeric/sums/chain.h"
#include "gpu/bodies/divisor.h"
#include "gpu/bodies/several.h"
#include "gpu/bodies/updates.h"
#include "gpu/bodies/work.h"

namespace halfscope::gpu {

/// [batch, channels, plane...]
struct Planes {
  Divisor batch = 1, channels = 1, size = 1;

  HS_HD int64_t offset(int64_t sample, int64_t channel) const {
    return (sample * channels + channel) * size;
  }
  HS_HD double count() const { return static_cast<double>(batch * size); }
  HS_HD int64_t elements() const { return batch * channels * size; }

  /// Calls f(channel, begin, end) for elements at.first + begin to at.first + end, which are in one
  /// plane.
  template <class F>
  HS_HD void by_channel(const Neighbours& at, const F& f) const {
    int64_t plane = at.first / size;
    int begin = 0;
    while (begin < at.count) {
      const int64_t left = (plane + 1) * size - at.first;
      const int end = static_cast<int>(smaller(left, at.count));
      f(plane % channels, begin, end);
      begin = end;
      ++plane;
    }
  }
};

/// Two sums over one plane: element i is added to partial sum i % kPartialSums; the partial sums
/// are added as a balanced tree.
struct PlaneSums {
  double first, second;
};

/// PlaneSums of kLines lines by one block. thread % kPartialSums selects the partial sum and thread
/// / kPartialSums the line, so that adjacent threads read adjacent elements.
struct LineSums {
  static constexpr int kLines = 16, kThreads = kLines * kPartialSums;

  double first[kThreads], second[kThreads];

  HS_HD static int line_of(int thread) { return thread / kPartialSums; }
  HS_HD static bool leads(int thread) { return thread % kPartialSums == 0; }

  /// Adds the thread's share of its line's n elements, several at a time in order.
  template <class F>
  HS_HD void add_several(int64_t n, int thread, const F& f) {
    double one = 0.0, other = 0.0;
    for (int64_t i = thread % kPartialSums; i < n; i += kSeveral * kPartialSums) {
      f(spaced_from(i, kPartialSums, n), one, other);
    }
    first[thread] = one;
    second[thread] = other;
  }
  /// Returns the total. For the thread that leads a line, after all threads have synchronized.
  HS_HD PlaneSums total(int thread) const {
    return {add_tree(first + thread), add_tree(second + thread)};
  }
};

/// Sums of the planes of kLines channels by one block. Adjacent threads load pieces into shared
/// memory, and one thread per channel adds them in ascending order. `kSums` sums at once.
template <int kSums>
struct ChannelSums {
  static constexpr int kLines = 8, kPiece = 256, kThreads = 256;

  struct Shared {
    double term[kSums][kLines][kPiece + 1];  // + 1: channels start in different banks
  };
  struct State {
    double sum[kSums];
  };

  const Planes& planes;
  const double* terms[kSums];  ///< [channel][sample]; null: none

  static int64_t blocks(const Planes& planes) { return ceil_div(planes.channels, kLines); }
  HS_HD static int64_t steps(const Planes& planes) {
    return 2 * larger(ceil_div(planes.batch, kPiece), 1);
  }

  /// Returns the channel whose sums are now in the thread's `state`, or -1.
  HS_HD int64_t step(int64_t s, int64_t block, int thread, Shared& shared, State& state) const {
    const int64_t begin = s / 2 * kPiece, first = block * kLines;
    const int samples = static_cast<int>(smaller(kPiece, planes.batch - begin));
    const int lines = static_cast<int>(smaller(kLines, planes.channels - first));
    if (s == 0) {
      for (double& sum : state.sum) sum = 0.0;
    }
    if (s % 2 == 0) {
      load(first * planes.batch + begin, lines, samples, thread, shared);
    } else if (thread < lines) {
      for (int k = 0; k < kSums; ++k) {
        double sum = state.sum[k];
        for (int i = 0; i < samples; ++i) sum += shared.term[k][thread][i];
        state.sum[k] = sum;
      }
      if (s + 1 == steps(planes)) return first + thread;
    }
    return -1;
  }

 private:
  HS_HD void load(int64_t from, int lines, int samples, int thread, Shared& shared) const {
    for (int at = thread; at < lines * kPiece; at += kThreads) {
      const int line = at / kPiece, sample = at % kPiece;
      if (sample >= samples) continue;
      for (int k = 0; k < kSums; ++k) {
        shared.term[k][line][sample] =
            terms[k] != nullptr ? terms[k][from + line * planes.batch + sample] : 0.0;
      }
    }
  }
};

/// Elements of a channel, in fp32 and minus an offset, as factors of a named sum.
template <class T>
struct ChannelTerms {
  Planes planes;
  int64_t channel;
  In<T> a, b;  ///< b null: plain values
  double a_offset, b_offset;

  HS_HD int64_t at(int64_t k) const {
    return planes.offset(k / planes.size, channel) + k % planes.size;
  }
  HS_HD float left(int64_t k) const {
    return static_cast<float>(static_cast<double>(a[at(k)]) - a_offset);
  }
  HS_HD float right(int64_t k) const {
    return b == nullptr ? 1.0f : static_cast<float>(static_cast<double>(b[at(k)]) - b_offset);
  }
  HS_HD bool present(int64_t) const { return true; }

  HS_HD double sum(const ChainSpec& how) const {
    const int64_t n = planes.batch * planes.size;
    const double total = sum_of_terms(how, *this, n, channel);
    return b == nullptr ? total : static_cast<double>(deliver_sum(how, total, nullptr, n, channel));
  }
};

/// Line = channel * batch + sample: sum of x, or of squared distances from the mean.
template <class T>
struct PlaneMoment {
  static constexpr int kThreads = LineSums::kThreads;
  using Shared = LineSums;
  struct State {};

  Planes planes;
  In<T> x;
  const double* mean;  ///< null: the sum
  double* sums;

  HS_HD int64_t lines() const { return planes.batch * planes.channels; }
  int64_t blocks() const { return ceil_div(lines(), LineSums::kLines); }
  HS_HD int64_t steps() const { return 2; }

  HS_HD void step(int64_t s, int64_t block, int thread, Shared& shared, State&) const {
    const int64_t line = block * LineSums::kLines + LineSums::line_of(thread);
    if (line >= lines()) return;
    if (s == 0) {
      add(line, thread, shared);
    } else if (LineSums::leads(thread)) {
      sums[line] = shared.total(thread).first;
    }
  }

 private:
  HS_HD void add(int64_t line, int thread, Shared& shared) const {
    const int64_t channel = line / planes.batch;
    const In<T> in = x + planes.offset(line % planes.batch, channel);
    const double centre = mean != nullptr ? mean[channel] : 0.0;
    const bool squares = mean != nullptr;
    shared.add_several(planes.size, thread, [&](const Spaced& at, double& total, double&) {
      T element[kSeveral];
      read(in, at, element);
      for (int j = 0; j < kSeveral; ++j) {
        const double value = static_cast<double>(element[j]), centred = value - centre;
        if (j < at.count) total += squares ? centred * centred : value;
      }
    });
  }
};

template <class T>
struct BatchMean {
  using Sums = ChannelSums<1>;
  static constexpr int kThreads = Sums::kThreads;
  using Shared = Sums::Shared;
  using State = Sums::State;

  Planes planes;
  In<T> x;
  const double* parts;
  double* mean;
  ChainSpec how;
  bool named;

  int64_t blocks() const { return Sums::blocks(planes); }
  HS_HD int64_t steps() const { return Sums::steps(planes); }

  HS_HD void step(int64_t s, int64_t block, int thread, Shared& shared, State& state) const {
    const int64_t channel = Sums{planes, {parts}}.step(s, block, thread, shared, state);
    if (channel >= 0) finish(channel, state.sum[0]);
  }

 private:
  HS_HD void finish(int64_t channel, double sum) const {
    if constexpr (kNamesSums<T>) {
      if (named) sum = ChannelTerms<T>{planes, channel, x, nullptr, 0.0, 0.0}.sum(how);
    }
    mean[channel] = sum / planes.count();
  }
};

/// In training: a channel's running and batch statistics. Then the factors that all its elements
/// need.
template <class T>
struct ChannelFactors {
  using Sums = ChannelSums<1>;
  static constexpr int kThreads = Sums::kThreads;
  using Shared = Sums::Shared;
  using State = Sums::State;

  Planes planes;
  In<T> x, scale, old_mean, old_var;
  const double *batch_mean, *squares;  ///< null in inference
  Out<T> next_mean, next_var, saved_mean, saved_inverse;
  Out<T> mean, factor;
  double epsilon, momentum, unbiased;
  ChainSpec how;
  bool named;

  int64_t blocks() const { return Sums::blocks(planes); }
  HS_HD int64_t steps() const { return Sums::steps(planes); }

  HS_HD void step(int64_t s, int64_t block, int thread, Shared& shared, State& state) const {
    const int64_t channel = Sums{planes, {squares}}.step(s, block, thread, shared, state);
    if (channel >= 0) finish(channel, state.sum[0]);
  }

 private:
  HS_HD void finish(int64_t channel, double sum) const {
    double centre = static_cast<double>(old_mean[channel]);
    double var = static_cast<double>(old_var[channel]);
    if (batch_mean != nullptr) {
      const double fresh = batch_mean[channel];
      if constexpr (kNamesSums<T>) {
        if (named) sum = ChannelTerms<T>{planes, channel, x, x, fresh, fresh}.sum(how.second());
      }
      const double batch_var = sum / planes.count();
      next_mean[channel] = static_cast<T>(momentum * centre + (1.0 - momentum) * fresh);
      next_var[channel] = static_cast<T>(momentum * var + (1.0 - momentum) * batch_var * unbiased);
      centre = fresh;
      var = batch_var;
    }
    const double inverse = 1.0 / std::sqrt(var + epsilon);
    if (batch_mean != nullptr) {
      saved_mean[channel] = static_cast<T>(centre);
      saved_inverse[channel] = static_cast<T>(inverse);
    }
    mean[channel] = static_cast<T>(centre);
    factor[channel] = static_cast<T>(inverse * static_cast<double>(scale[channel]));
  }
};

/// Returns a normalized element, and the gradient of one, from the factors of its channel.
template <class T>
HS_HD T normalized(T value, T middle, T times, T plus) {
  return (value - middle) * times + plus;
}
template <class T>
HS_HD T normalized_grad(T g, T value, T middle, T inclined, T times, T less) {
  return times * ((g - less) - (value - middle) * inclined);
}

/// The end of a launch that normalizes. In a plain step other nodes may follow:
/// the value is rounded, another tensor is added, the sum is rounded, and ReLU takes the larger of
/// it and zero. Values that nobody else reads are not stored.
template <class T>
struct Afterwards {
  Out<T> last{};                       ///< of the last node
  Destination normal{}, sum{};         ///< of the nodes before; without memory: not stored
  In<T> other{};                       ///< null: nothing is added
  bool follows = false, relu = false;  ///< follows: the normalization is not the last node

  HS_HD void finish(const Neighbours& at, T (&value)[kSeveral]) const {
    if constexpr (kNamesSums<T>) {
      if (follows) round(normal, at, value);
      if (!(other == nullptr)) {
        T more[kSeveral];
        read(other, at, more);
        for (int j = 0; j < kSeveral; ++j) value[j] = value[j] + more[j];
        if (relu) round(sum, at, value);
      }
      for (int j = 0; relu && j < kSeveral; ++j) value[j] = ReluOp{}(value[j]);
    }
    write(last, at, value);
  }

 private:
  /// Rounds, and stores if there is memory.
  HS_HD static void round(const Destination& to, const Neighbours& at, float (&value)[kSeveral]) {
    for (int j = 0; j < kSeveral; ++j) value[j] = to.rounded(value[j]);
    if (to.memory != nullptr) store(to.memory, to.storage, at, value);
  }
};

/// Item: several elements.
template <class T>
struct Normalize {
  Planes planes;
  In<T> x, mean, factor, bias;
  Afterwards<T> then;

  HS_HD void operator()(int64_t item) const {
    const Neighbours at = several_of(item, planes.elements());
    T value[kSeveral];
    read(x, at, value);
    planes.by_channel(at, [&](int64_t channel, int begin, int end) {
      const T middle = mean[channel], times = factor[channel], plus = bias[channel];
      for (int j = 0; j < kSeveral; ++j) {
        if (begin <= j && j < end) value[j] = normalized(value[j], middle, times, plus);
      }
    });
    then.finish(at, value);
  }
};

/// Line = channel * batch + sample: sums of dy and of dy * (x - mean).
template <class T>
struct PlaneGradSums {
  static constexpr int kThreads = LineSums::kThreads;
  using Shared = LineSums;
  struct State {};

  Planes planes;
  In<T> dy, x, mean;
  double *first, *second;

  HS_HD int64_t lines() const { return planes.batch * planes.channels; }
  int64_t blocks() const { return ceil_div(lines(), LineSums::kLines); }
  HS_HD int64_t steps() const { return 2; }

  HS_HD void step(int64_t s, int64_t block, int thread, Shared& shared, State&) const {
    const int64_t line = block * LineSums::kLines + LineSums::line_of(thread);
    if (line >= lines()) return;
    if (s == 0) {
      add(line, thread, shared);
    } else if (LineSums::leads(thread)) {
      const PlaneSums sums = shared.total(thread);
      first[line] = sums.first;
      second[line] = sums.second;
    }
  }

 private:
  HS_HD void add(int64_t line, int thread, Shared& shared) const {
    const int64_t channel = line / planes.batch;
    const int64_t at = planes.offset(line % planes.batch, channel);
    const double centre = static_cast<double>(mean[channel]);
    const In<T> gradient = dy + at, in = x + at;
    shared.add_several(planes.size, thread, [&](const Spaced& some, double& sum, double& product) {
      T g[kSeveral], element[kSeveral];
      read(gradient, some, g);
      read(in, some, element);
      for (int j = 0; j < kSeveral; ++j) {
        if (j >= some.count) continue;
        sum += static_cast<double>(g[j]);
        product += static_cast<double>(g[j]) * (static_cast<double>(element[j]) - centre);
      }
    });
  }
};

template <class T>
struct ChannelGrads {
  using Sums = ChannelSums<2>;
  static constexpr int kThreads = Sums::kThreads;
  using Shared = Sums::Shared;
  using State = Sums::State;

  Planes planes;
  In<T> dy, x, scale, mean, inverse;
  const double *first, *second;
  Out<T> dscale, dbias;
  Out<T> factor, share, slope;
  ChainSpec how;
  bool named;

  int64_t blocks() const { return Sums::blocks(planes); }
  HS_HD int64_t steps() const { return Sums::steps(planes); }

  HS_HD void step(int64_t s, int64_t block, int thread, Shared& shared, State& state) const {
    const int64_t channel = Sums{planes, {first, second}}.step(s, block, thread, shared, state);
    if (channel >= 0) finish(channel, state.sum[0], state.sum[1]);
  }

 private:
  HS_HD void finish(int64_t channel, double gradients, double products) const {
    const double centre = static_cast<double>(mean[channel]);
    const double deviation = static_cast<double>(inverse[channel]);
    if constexpr (kNamesSums<T>) {
      if (named) {
        gradients = ChannelTerms<T>{planes, channel, dy, nullptr, 0.0, 0.0}.sum(how);
        products = ChannelTerms<T>{planes, channel, dy, x, 0.0, centre}.sum(how.second());
      }
    }
    const double of_scale = products * deviation;
    dscale[channel] = static_cast<T>(of_scale);
    dbias[channel] = static_cast<T>(gradients);
    factor[channel] = static_cast<T>(static_cast<double>(scale[channel]) * deviation);
    share[channel] = static_cast<T>(gradients / planes.count());
    slope[channel] = static_cast<T>(of_scale * deviation / planes.count());
  }
};

/// Item: several elements.
template <class T>
struct NormalizeGrad {
  Planes planes;
  In<T> dy, x, mean, factor, share, slope;
  Out<T> dx;

  HS_HD void operator()(int64_t item) const {
    const Neighbours at = several_of(item, planes.elements());
    T value[kSeveral], g[kSeveral];
    read(x, at, value);
    read(dy, at, g);
    planes.by_channel(at, [&](int64_t channel, int begin, int end) {
      const T middle = mean[channel], inclined = slope[channel];
      const T times = factor[channel], less = share[channel];
      for (int j = 0; j < kSeveral; ++j) {
        if (begin <= j && j < end) {
          value[j] = normalized_grad(g[j], value[j], middle, inclined, times, less);
        }
      }
    });
    write(dx, at, value);
  }
};

}  // namespace halfscope::gpu
