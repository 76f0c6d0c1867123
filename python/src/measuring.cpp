// SPDX-License-Identifier: MIT
#include "python/src/measuring.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <vector>

#include "core/numeric/formats/round_odd.h"
#include "emulation/measure/measure.h"
#include "python/src/vector_clones.h"

namespace halfscope::python {
namespace {

/// Below this many elements, starting threads takes longer than it saves.
constexpr int64_t kThreadedFrom = 32768;

/// Returns how many x are zero while y is neither zero nor NaN, which says nothing. n <= kSumChunk.
HS_VECTOR_CLONES int32_t count_zeros_beside(const float* x, const float* y, int32_t n) noexcept {
  int32_t count = 0;
  for (int32_t i = 0; i < n; ++i) {
    const uint32_t own = std::bit_cast<uint32_t>(x[i]) << 1;
    const uint32_t other = std::bit_cast<uint32_t>(y[i]) & 0x7fffffffu;
    count += static_cast<int32_t>(own == 0) & static_cast<int32_t>(other - 1u < 0x7f800000u);
  }
  return count;
}

/// Returns how many updates x are zero while neither the gradient y nor the weight w is: nothing is
/// too small for a weight of 0.
HS_VECTOR_CLONES int32_t count_unmoved(const float* x, const float* y, const float* w,
                                       int32_t n) noexcept {
  int32_t count = 0;
  for (int32_t i = 0; i < n; ++i) {
    const uint32_t own = std::bit_cast<uint32_t>(x[i]) << 1;
    const uint32_t other = std::bit_cast<uint32_t>(y[i]) & 0x7fffffffu;
    const uint32_t weight = std::bit_cast<uint32_t>(w[i]) << 1;
    count += static_cast<int32_t>(own == 0) & static_cast<int32_t>(other - 1u < 0x7f800000u) &
             static_cast<int32_t>(weight != 0);
  }
  return count;
}

HS_VECTOR_CLONES void subtract_floats(const float* a, const float* b, int32_t n,
                                      float* out) noexcept {
  for (int32_t i = 0; i < n; ++i) out[i] = a[i] - b[i];
}

/// Returns elements first .. first + n as fp32, in memory or converted to `buffer`.
const float* floats_of(const Elements& elements, int64_t first, int64_t n, float* buffer) {
  if (const float* floats = elements.as_floats()) return floats + first;
  elements.load(first, n, buffer);
  return buffer;
}

/// Writes elements of a - b as fp32.
void subtract(const Elements& a, const Elements& b, int64_t first, int64_t count, float* out) {
  if (a.kind() == ElementKind::f64) {
    std::array<double, kSumChunk> wide, past;
    a.load_doubles(first, count, wide.data());
    b.load_doubles(first, count, past.data());
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      out[i] = round_to_odd(wide[i] - past[i]);
    }
    return;
  }
  std::array<float, kSumChunk> now, past;
  subtract_floats(floats_of(a, first, count, now.data()), floats_of(b, first, count, past.data()),
                  static_cast<int32_t>(count), out);
}

/// Chunks of one tensor that a thread measures together.
struct Part {
  size_t tensor = 0;
  int64_t first = 0, last = 0;  ///< chunks
};

/// 128 KiB of fp32: two such parts fit a core's second cache.
constexpr int64_t kPartChunks = 8;

int64_t chunks_of(const Measured& each) {
  return (each.elements->size() + kSumChunk - 1) / kSumChunk;
}

/// Returns parts of all tensors. Those of a mean of squares alternate with those of the tensor
/// before it, the mean of gradients, which both read.
std::vector<Part> parts_of(std::span<const Measured> list) {
  std::vector<Part> parts;
  for (size_t begin = 0; begin < list.size();) {
    size_t end = begin + 1;
    const int64_t chunks = chunks_of(list[begin]);
    while (end < list.size() && list[end].meaning == Meaning::squares &&
           chunks_of(list[end]) == chunks) {
      ++end;
    }
    for (int64_t first = 0; first < chunks; first += kPartChunks) {
      for (size_t i = begin; i < end; ++i) {
        parts.push_back({i, first, std::min(first + kPartChunks, chunks)});
      }
    }
    begin = end;
  }
  return parts;
}

void measure_chunk_of(const Measured& each, const ChunkMeter& meter, int64_t first,
                      TensorStats& own, double* sum, double* sum_sq) {
  const int64_t count = std::min(kSumChunk, each.elements->size() - first);
  std::array<float, kSumChunk> buffer, more;
  const float* values = buffer.data();
  if (each.meaning == Meaning::update) {
    const Elements old(each.before, each.elements->kind(),
                       std::array<int64_t, 1>{each.elements->size()}, {});
    subtract(*each.elements, old, first, count, buffer.data());
  } else {
    values = floats_of(*each.elements, first, count, buffer.data());
  }
  const int64_t zeros = own.zero;
  meter.measure(values, count, own, sum, sum_sq);
  // Most chunks have no zero, and reading one more tensor costs as much as measuring.
  if (each.beside != nullptr && own.zero > zeros) {
    const float* beside = floats_of(*each.beside, first, count, more.data());
    const int32_t n = static_cast<int32_t>(count);
    if (each.meaning == Meaning::update) {
      std::array<float, kSumChunk> weights;
      own.lost +=
          count_unmoved(values, beside, floats_of(*each.elements, first, count, weights.data()), n);
    } else {
      own.lost += count_zeros_beside(values, beside, n);
    }
  }
  if (each.copy != nullptr) {
    each.elements->copy(first, count, each.copy + first * element_size(each.elements->kind()));
  }
}

}  // namespace

std::vector<TensorStats> measure_list(std::span<const Measured> list, int threads) {
  std::vector<TensorStats> all(list.size());
  std::vector<size_t> chunk(list.size() + 1);  // where each tensor's sums begin
  int64_t elements = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    chunk[i + 1] = chunk[i] + static_cast<size_t>(chunks_of(list[i]));
    elements += list[i].elements->size();
  }
  // Sums of chunks are added in order, so that no bit depends on the number of threads.
  std::vector<double> sum(chunk.back()), sum_sq(chunk.back());
  std::vector<ChunkMeter> meters;
  meters.reserve(list.size());
  for (const Measured& each : list) meters.emplace_back(each.format);
  const auto measure_part = [&](const Part& part, TensorStats& own) {
    for (int64_t c = part.first; c < part.last; ++c) {
      const size_t at = chunk[part.tensor] + static_cast<size_t>(c);
      measure_chunk_of(list[part.tensor], meters[part.tensor], c * kSumChunk, own, &sum[at],
                       &sum_sq[at]);
    }
  };
  const std::vector<Part> parts = parts_of(list);
  const int team = omp_get_max_threads();
  if (elements < kThreadedFrom || parts.size() < 2 || team == 1 || threads == 1) {
    for (const Part& part : parts) measure_part(part, all[part.tensor]);
  } else {
    // A smaller team would make OpenMP end threads that PyTorch starts again: surplus ones wait.
    std::atomic<size_t> next = 0;
#pragma omp parallel num_threads(team)
    if (threads == 0 || omp_get_thread_num() < threads) {
      for (size_t p = next++; p < parts.size(); p = next++) {
        TensorStats own;
        measure_part(parts[p], own);
#pragma omp critical(halfscope_python_merge)
        all[parts[p].tensor].merge(own);
      }
    }
  }
  for (size_t i = 0; i < list.size(); ++i) {
    for (size_t c = chunk[i]; c < chunk[i + 1]; ++c) {
      all[i].sum += sum[c];
      all[i].sum_sq += sum_sq[c];
    }
    if (list[i].meaning == Meaning::numbers) continue;
    all[i].zero -= all[i].lost;
    if (list[i].meaning == Meaning::update) continue;
    all[i].underflow += all[i].lost;
    all[i].lost = 0;
  }
  return all;
}

TensorStats measure_elements(const Elements& elements, const FloatFormat& format) {
  const Measured one{.elements = &elements, .format = format};
  return measure_list({&one, 1}, 0).front();
}

}  // namespace halfscope::python
