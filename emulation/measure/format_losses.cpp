// SPDX-License-Identifier: MIT
#include "emulation/measure/format_losses.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <exception>
#include <memory>
#include <unordered_set>

#include "core/error.h"
#include "core/numeric/formats/round.h"
#include "core/numeric/formats/round_odd.h"
#include "core/numeric/scaling/block_part.h"
#include "emulation/measure/measure.h"

namespace halfscope {
namespace {

/// Values that one thread reads and measures at a time.
constexpr uint64_t kSlice = uint64_t{1} << 18;
/// Values that are converted at a time: floats and doubles of a piece fit in the L2 cache.
constexpr uint64_t kPiece = 16384;
/// Slices that are measured in parallel before the results of their arrays are passed on.
constexpr uint64_t kBatch = 256;

uint64_t row_length(const StoredArray& array) {
  if (array.shape.empty()) return 1;
  return static_cast<uint64_t>(array.fortran_order ? array.shape.front() : array.shape.back());
}

/// Sums of squares over finite results.
void add_errors(const float* values, const double* exact, const float* rounded, uint64_t n,
                FormatLoss& loss) {
  for (uint64_t i = 0; i < n; ++i) {
    const double x = exact != nullptr ? exact[i] : static_cast<double>(values[i]);
    const double q = static_cast<double>(rounded[i]);
    if (!std::isfinite(x) || !std::isfinite(q)) continue;
    loss.signal += x * x;
    loss.error += (x - q) * (x - q);
  }
}

/// Cuts a stream of values into the blocks of a format, which end with the row.
class BlockMeter {
 public:
  /// The first value is at `position` in the array, where a block begins. `largest` is the largest
  /// finite magnitude of the array, which only formats that scale the whole tensor need.
  BlockMeter(const BlockFormat& format, const StoredArray& array, uint64_t position, float largest)
      : format_(format), largest_(largest), row_(row_length(array)) {
    const auto size = static_cast<uint64_t>(format.block_size);
    if (row_ % size == 0) row_ = array.count;  // rows do not matter
    left_in_row_ = row_ - position % row_;
  }

  /// Returns the first position at or after `position` where a block begins.
  static uint64_t next_block(const BlockFormat& format, const StoredArray& array,
                             uint64_t position) {
    const uint64_t row = row_length(array), size = static_cast<uint64_t>(format.block_size);
    const uint64_t in_row = position % row;
    return position - in_row + std::min(row, (in_row + size - 1) / size * size);
  }

  void feed(const float* values, uint64_t n, bool details, FormatLoss& loss) {
    while (n > 0) {
      const uint64_t take = std::min({n, left_in_row_, kPiece - pending_.size()});
      pending_.insert(pending_.end(), values, values + take);
      values += take;
      n -= take;
      left_in_row_ -= take;
      if (left_in_row_ == 0 || pending_.size() == kPiece) finish(details, loss);
      if (left_in_row_ == 0) left_in_row_ = row_;
    }
  }

  /// Measures what is left. kPiece is a multiple of the block size, so that blocks stay whole.
  void finish(bool details, FormatLoss& loss) {
    if (pending_.empty()) return;
    const auto n = static_cast<int64_t>(pending_.size());
    const BlockShape shape{1, n, 1};
    rounded_.resize(pending_.size());
    scales_.resize(static_cast<size_t>(block_count(shape, format_)));
    BlockStats stats;
    quantize_part(pending_, shape, format_, largest_, rounded_, scales_, &stats);
    loss.overflow += stats.clipped;
    loss.underflow += stats.flushed;
    loss.nan_blocks += stats.nan_blocks;
    if (details) add_errors(pending_.data(), nullptr, rounded_.data(), pending_.size(), loss);
    pending_.clear();
  }

 private:
  const BlockFormat& format_;
  float largest_;
  uint64_t row_, left_in_row_;
  std::vector<float> pending_, rounded_, scales_;
};

struct Partial {
  TensorStats stats;
  double smallest = std::numeric_limits<double>::infinity(), largest = 0.0;
  std::vector<FormatLoss> formats;
  std::unordered_set<uint64_t> distinct;
};

void merge_counts(const FormatLoss& from, FormatLoss& to) {
  to.overflow += from.overflow;
  to.underflow += from.underflow;
  to.subnormal += from.subnormal;
  to.nan_blocks += from.nan_blocks;
}

/// Measures parts of an array on one thread.
class Meter {
 public:
  Meter(std::span<const TargetFormat> targets, bool details)
      : targets_(targets), details_(details), base_(targets.size()) {
    for (size_t t = targets.size(); t-- > 0;) {
      if (!targets[t].blocks) base_ = t;
    }
  }

  /// Adds values to `to`, but for block formats. `count_distinct`: collect them, too.
  void add(const StoredArray& array, std::span<const uint8_t> raw, bool count_distinct,
           Partial& to) {
    for_pieces(array, raw, [&](const float* values, const double* exact, uint64_t n) {
      if (base_ == targets_.size()) add_target(kFp32, values, exact, n, nullptr, to);
      for (size_t t = 0; t < targets_.size(); ++t) {
        if (targets_[t].blocks) continue;
        add_target(targets_[t].format, values, exact, n, &to.formats[t], t == base_ ? to : unused_);
      }
      if (exact != nullptr) add_range(exact, n, to);
      if (count_distinct) add_distinct(values, exact, n, to);
    });
    if (!beyond_fp32(array.type) && to.stats.max_abs > 0) {
      to.smallest = static_cast<double>(to.stats.min_abs);
      to.largest = static_cast<double>(to.stats.max_abs);
    }
  }

  /// Returns the largest finite magnitude of the values.
  float largest(const StoredArray& array, std::span<const uint8_t> raw) {
    float most = 0.0f;
    for_pieces(array, raw, [&](const float* values, const double*, uint64_t n) {
      most = std::max(most, largest_finite({values, static_cast<size_t>(n)}));
    });
    return most;
  }

  void add_blocks(const StoredArray& array, std::span<const uint8_t> raw, BlockMeter& meter,
                  FormatLoss& loss) {
    for_pieces(array, raw, [&](const float* values, const double*, uint64_t n) {
      meter.feed(values, n, details_, loss);
    });
  }

 private:
  /// Calls work(values, exact, n): the values as floats, and as doubles if fp32 is not enough.
  template <class Work>
  void for_pieces(const StoredArray& array, std::span<const uint8_t> raw, const Work& work) {
    const size_t size = stored_size(array.type);
    const uint64_t count = raw.size() / size;
    const bool direct = array.type == StoredType::f32 &&
                        std::endian::native == std::endian::little && !array.big_endian &&
                        reinterpret_cast<uintptr_t>(raw.data()) % alignof(float) == 0;
    const uint64_t step = direct && !details_ ? 8 * kPiece : kPiece;
    for (uint64_t first = 0; first < count; first += step) {
      const uint64_t n = std::min(step, count - first);
      const std::span<const uint8_t> part = raw.subspan(first * size, n * size);
      if (direct) {
        work(reinterpret_cast<const float*>(part.data()), nullptr, n);
        continue;
      }
      values_.resize(kPiece);
      if (!beyond_fp32(array.type)) {
        decode_values(part, array.type, array.big_endian, values_.data());
        work(values_.data(), nullptr, n);
        continue;
      }
      exact_.resize(kPiece);
      decode_values(part, array.type, array.big_endian, exact_.data(), LargeIntegers::odd);
      for (uint64_t i = 0; i < n; ++i) values_[i] = round_to_odd(exact_[i]);
      work(values_.data(), exact_.data(), n);
    }
  }

  void add_target(const FloatFormat& format, const float* values, const double* exact, uint64_t n,
                  FormatLoss* loss, Partial& to) {
    const bool errors = details_ && loss != nullptr;
    if (errors) rounded_.resize(kPiece);
    float* const out = errors ? rounded_.data() : nullptr;
    TensorStats stats = measure_tensor(values, out, static_cast<int64_t>(n), format);
    if (exact != nullptr && format.mantissa_bits > 21) round_doubles(format, exact, n, out, stats);
    if (loss != nullptr) {
      loss->overflow += stats.overflow;
      loss->underflow += stats.underflow;
      loss->subnormal += stats.subnormal;
    }
    if (errors) add_errors(values, exact, out, n, *loss);
    if (&to != &unused_) to.stats.merge(stats);
  }

  /// Replaces the counts of rounding: values rounded to odd would be rounded twice.
  static void round_doubles(const FloatFormat& format, const double* exact, uint64_t n, float* out,
                            TensorStats& stats) {
    stats.overflow = stats.underflow = stats.subnormal = 0;
    for (uint64_t i = 0; i < n; ++i) {
      const Rounded<double> rounded = round_to_format(exact[i], format);
      if (out != nullptr) out[i] = static_cast<float>(rounded.value);
      if (!std::isfinite(exact[i])) continue;
      const double magnitude = std::fabs(rounded.value);
      stats.overflow += (rounded.flags & kOverflow) != 0;
      stats.underflow += magnitude == 0.0 && exact[i] != 0.0;
      stats.subnormal += magnitude != 0.0 && magnitude < format.min_normal();
    }
  }

  static void add_range(const double* exact, uint64_t n, Partial& to) {
    for (uint64_t i = 0; i < n; ++i) {
      const double magnitude = std::fabs(exact[i]);
      if (magnitude == 0.0 || !std::isfinite(magnitude)) continue;
      to.smallest = std::min(to.smallest, magnitude);
      to.largest = std::max(to.largest, magnitude);
    }
  }

  static void add_distinct(const float* values, const double* exact, uint64_t n, Partial& to) {
    for (uint64_t i = 0; i < n; ++i) {
      double x = exact != nullptr ? exact[i] : static_cast<double>(values[i]);
      if (x == 0.0) x = 0.0;  // both zeros are one value
      if (std::isnan(x)) x = std::numeric_limits<double>::quiet_NaN();
      to.distinct.insert(std::bit_cast<uint64_t>(x));
      if (to.distinct.size() > static_cast<size_t>(kMostDistinct)) return;
    }
  }

  std::span<const TargetFormat> targets_;
  bool details_;
  size_t base_;  ///< the target whose rounding TensorStats describes
  Partial unused_;
  std::vector<float> values_, rounded_;
  std::vector<double> exact_;
};

/// Collects the parts of one array.
struct Collected {
  const StoredArray* array;
  Partial total;
  std::vector<FormatLoss> sums;  ///< for each slice and target, to be added in order
  uint64_t slices = 0;
  float largest = 0.0f;  ///< finite magnitude, if a format needs it before the blocks

  Collected(const StoredArray& of, size_t targets)
      : array(&of), slices((of.count + kSlice - 1) / kSlice) {
    total.formats.resize(targets);
    sums.resize(slices * targets);
  }

  void merge(const Partial& part, uint64_t slice) {
    total.stats.merge(part.stats);
    total.smallest = std::min(total.smallest, part.smallest);
    total.largest = std::max(total.largest, part.largest);
    for (size_t t = 0; t < total.formats.size(); ++t) {
      merge_counts(part.formats[t], total.formats[t]);
      sums[slice * total.formats.size() + t] = part.formats[t];
    }
    if (wants_distinct()) total.distinct.insert(part.distinct.begin(), part.distinct.end());
  }

  bool wants_distinct() const {
    return total.distinct.size() <= static_cast<size_t>(kMostDistinct);
  }

  ArrayLosses result(bool details) {
    ArrayLosses losses{.stats = total.stats,
                       .smallest = total.smallest,
                       .largest = total.largest,
                       .formats = total.formats};
    for (size_t i = 0; i < sums.size(); ++i) {
      FormatLoss& loss = losses.formats[i % losses.formats.size()];
      loss.signal += sums[i].signal;
      loss.error += sums[i].error;
    }
    if (details && wants_distinct()) losses.distinct = static_cast<int64_t>(total.distinct.size());
    return losses;
  }
};

/// Returns whether a format scales the whole tensor by its largest magnitude, which takes a pass of
/// its own.
bool needs_largest(std::span<const TargetFormat> targets) {
  return std::any_of(targets.begin(), targets.end(), [](const TargetFormat& target) {
    return target.blocks && target.blocks->scale == ScaleKind::e4m3fn_and_fp32;
  });
}

/// Reads the values of an array from `first` to `last` into `raw` and returns them.
std::span<const uint8_t> read_part(const TensorFile& file, const StoredArray& array, uint64_t first,
                                   uint64_t last, std::vector<uint8_t>& raw) {
  const size_t size = stored_size(array.type);
  raw.resize((last - first) * size);
  file.read(array, first * size, raw);
  return raw;
}

void find_largest(const TensorFile& file, Meter& meter, Collected& collected, uint64_t slice,
                  std::vector<uint8_t>& raw) {
  const StoredArray& array = *collected.array;
  const uint64_t first = slice * kSlice, last = std::min(first + kSlice, array.count);
  const float largest = meter.largest(array, read_part(file, array, first, last, raw));
#pragma omp critical(halfscope_losses_merge)
  collected.largest = std::max(collected.largest, largest);
}

void measure_slice(const TensorFile& file, std::span<const TargetFormat> targets, bool details,
                   Meter& meter, Collected& collected, uint64_t slice, std::vector<uint8_t>& raw) {
  const StoredArray& array = *collected.array;
  const uint64_t first = slice * kSlice, last = std::min(first + kSlice, array.count);
  // Blocks belong to the slice in which they begin.
  const auto end_of = [&](const BlockFormat& format) {
    return last == array.count ? last : BlockMeter::next_block(format, array, last);
  };
  uint64_t end = last;
  for (const TargetFormat& target : targets) {
    if (target.blocks) end = std::max(end, end_of(*target.blocks));
  }
  const size_t size = stored_size(array.type);
  const std::span<const uint8_t> bytes = read_part(file, array, first, end, raw);
  Partial part;
  part.formats.resize(targets.size());
  bool distinct = false;
#pragma omp critical(halfscope_losses_merge)
  distinct = details && collected.wants_distinct();
  meter.add(array, bytes.first((last - first) * size), distinct, part);
  for (size_t t = 0; t < targets.size(); ++t) {
    if (!targets[t].blocks) continue;
    const BlockFormat& format = *targets[t].blocks;
    const uint64_t from = BlockMeter::next_block(format, array, first), to = end_of(format);
    if (from >= to) continue;
    BlockMeter blocks(format, array, from, collected.largest);
    meter.add_blocks(array, bytes.subspan((from - first) * size, (to - from) * size), blocks,
                     part.formats[t]);
    blocks.finish(details, part.formats[t]);
  }
#pragma omp critical(halfscope_losses_merge)
  collected.merge(part, slice);
}

/// Calls work(bytes, slice) for each slice of a member. Members of archives are decompressed in
/// order, so one thread reads them.
template <class Work>
void for_slices(const TensorFile& file, const StoredArray& array, const Work& work) {
  const std::unique_ptr<ByteSource> source = file.open(array);
  std::vector<uint8_t> raw;
  for (uint64_t slice = 0; slice * kSlice < array.count; ++slice) {
    raw.resize(std::min(kSlice, array.count - slice * kSlice) * stored_size(array.type));
    source->read(raw);
    work(raw, slice);
  }
}

void measure_member(const TensorFile& file, std::span<const TargetFormat> targets, bool details,
                    Collected& collected) {
  const StoredArray& array = *collected.array;
  Meter meter(targets, details);
  if (needs_largest(targets)) {
    for_slices(file, array, [&](std::span<const uint8_t> raw, uint64_t) {
      collected.largest = std::max(collected.largest, meter.largest(array, raw));
    });
  }
  std::vector<std::unique_ptr<BlockMeter>> blocks(targets.size());
  for_slices(file, array, [&](std::span<const uint8_t> raw, uint64_t slice) {
    Partial part;
    part.formats.resize(targets.size());
    meter.add(array, raw, details && collected.wants_distinct(), part);
    for (size_t t = 0; t < targets.size(); ++t) {
      if (!targets[t].blocks) continue;
      if (!blocks[t]) {
        blocks[t] = std::make_unique<BlockMeter>(*targets[t].blocks, array, 0, collected.largest);
      }
      meter.add_blocks(array, raw, *blocks[t], part.formats[t]);
      if (slice + 1 == collected.slices) blocks[t]->finish(details, part.formats[t]);
    }
    collected.merge(part, slice);
  });
}

/// Calls work(meter, array, slice, buffer) for the slices on all threads. Throws what it throws.
template <class Work>
void each_slice(const std::vector<std::pair<size_t, uint64_t>>& slices,
                std::span<const TargetFormat> targets, bool details, const Work& work) {
  std::exception_ptr failure;
  std::atomic<bool> failed = false;
#pragma omp parallel
  {
    Meter meter(targets, details);
    std::vector<uint8_t> raw;
#pragma omp for schedule(dynamic)
    for (const auto& [array, slice] : slices) {
      if (failed) continue;
      try {
        work(meter, array, slice, raw);
      } catch (...) {  // nothing may leave a parallel region
#pragma omp critical(halfscope_losses_merge)
        if (!failed.exchange(true)) failure = std::current_exception();
      }
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

void measure_losses(
    const TensorFile& file, std::span<const TargetFormat> targets, bool details,
    const std::function<void(const StoredArray& array, const ArrayLosses& losses)>& done) {
  const std::vector<StoredArray>& arrays = file.arrays();
  for (size_t next = 0; next < arrays.size();) {
    std::vector<Collected> batch;
    std::vector<std::pair<size_t, uint64_t>> slices;
    while (next < arrays.size() && slices.size() < kBatch && batch.size() < kBatch) {
      batch.emplace_back(arrays[next++], targets.size());
      for (uint64_t s = 0; s < batch.back().slices; ++s) slices.emplace_back(batch.size() - 1, s);
    }
    if (file.is_plain()) {
      if (needs_largest(targets)) {
        each_slice(slices, targets, details,
                   [&](Meter& meter, size_t array, uint64_t slice, std::vector<uint8_t>& raw) {
                     find_largest(file, meter, batch[array], slice, raw);
                   });
      }
      each_slice(slices, targets, details,
                 [&](Meter& meter, size_t array, uint64_t slice, std::vector<uint8_t>& raw) {
                   measure_slice(file, targets, details, meter, batch[array], slice, raw);
                 });
    } else {
      for (Collected& each : batch) measure_member(file, targets, details, each);
    }
    for (Collected& each : batch) done(*each.array, each.result(details));
  }
}

}  // namespace halfscope
