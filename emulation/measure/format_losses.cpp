// SPDX-License-Identifier: MIT
#include "emulation/measure/format_losses.h"

#include <omp.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <unordered_set>

#include "core/error.h"
#include "core/numeric/formats/round.h"
#include "core/numeric/formats/round_odd.h"
#include "emulation/measure/measure.h"

namespace halfscope {
namespace {

/// Values that one thread measures at a time.
constexpr uint64_t kSlice = uint64_t{1} << 20;
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
  /// The first value is at `position` in the array, where a block begins.
  BlockMeter(const BlockFormat& format, const StoredArray& array, uint64_t position)
      : format_(format), row_(row_length(array)) {
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
    quantize(pending_, shape, format_, rounded_, scales_, &stats);
    loss.overflow += stats.clipped;
    loss.underflow += stats.flushed;
    loss.nan_blocks += stats.nan_blocks;
    if (details) add_errors(pending_.data(), nullptr, rounded_.data(), pending_.size(), loss);
    pending_.clear();
  }

 private:
  const BlockFormat& format_;
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

void measure_mapped_slice(const TensorFile& file, std::span<const TargetFormat> targets,
                          bool details, Meter& meter, Collected& collected, uint64_t slice) {
  const StoredArray& array = *collected.array;
  const size_t size = stored_size(array.type);
  const std::span<const uint8_t> bytes = file.bytes(array);
  const auto part_of = [&](uint64_t from, uint64_t to) {
    return bytes.subspan(from * size, (to - from) * size);
  };
  const uint64_t first = slice * kSlice, last = std::min(first + kSlice, array.count);
  Partial part;
  part.formats.resize(targets.size());
  bool distinct = false;
#pragma omp critical(halfscope_losses_merge)
  distinct = details && collected.wants_distinct();
  meter.add(array, part_of(first, last), distinct, part);
  for (size_t t = 0; t < targets.size(); ++t) {
    if (!targets[t].blocks) continue;
    const BlockFormat& format = *targets[t].blocks;
    // Blocks belong to the slice in which they begin.
    const uint64_t from = BlockMeter::next_block(format, array, first);
    const uint64_t to = last == array.count ? last : BlockMeter::next_block(format, array, last);
    if (from >= to) continue;
    BlockMeter blocks(format, array, from);
    meter.add_blocks(array, part_of(from, to), blocks, part.formats[t]);
    blocks.finish(details, part.formats[t]);
  }
  file.release(part_of(first, last));
#pragma omp critical(halfscope_losses_merge)
  collected.merge(part, slice);
}

/// Members of archives are decompressed in order, so one thread reads them.
void measure_member(const TensorFile& file, std::span<const TargetFormat> targets, bool details,
                    Collected& collected) {
  const StoredArray& array = *collected.array;
  const size_t size = stored_size(array.type);
  const std::unique_ptr<ByteSource> source = file.open(array);
  Meter meter(targets, details);
  std::vector<std::unique_ptr<BlockMeter>> blocks(targets.size());
  std::vector<uint8_t> raw;
  for (uint64_t slice = 0; slice < collected.slices; ++slice) {
    raw.resize(std::min(kSlice, array.count - slice * kSlice) * size);
    source->read(raw);
    Partial part;
    part.formats.resize(targets.size());
    meter.add(array, raw, details && collected.wants_distinct(), part);
    for (size_t t = 0; t < targets.size(); ++t) {
      if (!targets[t].blocks) continue;
      if (!blocks[t]) blocks[t] = std::make_unique<BlockMeter>(*targets[t].blocks, array, 0);
      meter.add_blocks(array, raw, *blocks[t], part.formats[t]);
      if (slice + 1 == collected.slices) blocks[t]->finish(details, part.formats[t]);
    }
    collected.merge(part, slice);
  }
}

}  // namespace

void measure_losses(
    const TensorFile& file, std::span<const TargetFormat> targets, bool details,
    const std::function<void(const StoredArray& array, const ArrayLosses& losses)>& done) {
  for (const TargetFormat& target : targets) {
    if (!target.blocks || target.blocks->scale == ScaleKind::ue8m0) continue;
    throw usage_error("format " + target.name + " has a scale for the whole tensor",
                      "choose a format with power-of-two scales: mxfp8_e4m3, mxfp6_e2m3, mxfp4");
  }
  const std::vector<StoredArray>& arrays = file.arrays();
  for (size_t next = 0; next < arrays.size();) {
    std::vector<Collected> batch;
    std::vector<std::pair<size_t, uint64_t>> slices;
    while (next < arrays.size() && slices.size() < kBatch && batch.size() < kBatch) {
      batch.emplace_back(arrays[next++], targets.size());
      for (uint64_t s = 0; s < batch.back().slices; ++s) slices.emplace_back(batch.size() - 1, s);
    }
    if (file.is_mapped()) {
#pragma omp parallel
      {
        Meter meter(targets, details);
#pragma omp for schedule(dynamic)
        for (const auto& [array, slice] : slices) {
          measure_mapped_slice(file, targets, details, meter, batch[array], slice);
        }
      }
    } else {
      for (Collected& each : batch) measure_member(file, targets, details, each);
    }
    for (Collected& each : batch) done(*each.array, each.result(details));
  }
}

}  // namespace halfscope
