// SPDX-License-Identifier: MIT
// Several elements at a time compared with one by one, in every storage, at every offset; and
// tensors with channels last converted by tiles of any size.
#include "gpu/bodies/several.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gpu/bodies/library_operands.h"
#include "gpu/engine/executor.h"
#include "tests/gpu/lockstep.h"

namespace halfscope::test {
namespace {

using gpu::kSeveral;
using gpu::Storage;

constexpr Storage kAllStorages[] = {Storage::fp32, Storage::tf32,   Storage::fp16,
                                    Storage::bf16, Storage::e4m3fn, Storage::e5m2};

struct alignas(16) Word {
  uint32_t part[4] = {};
  friend bool operator==(const Word&, const Word&) = default;
};

/// Memory for n elements that begins `offset` elements after a multiple of 16 bytes.
class Memory {
 public:
  Memory(Storage storage, int64_t n, int64_t offset)
      : storage_(storage), offset_(offset), words_(static_cast<size_t>(n + offset) / 4 + 1) {}
  std::byte* at() {
    return reinterpret_cast<std::byte*>(words_.data()) + offset_ * gpu::bytes_of(storage_);
  }
  const std::vector<Word>& words() const { return words_; }

 private:
  Storage storage_;
  int64_t offset_;
  std::vector<Word> words_;
};

TEST(Several, AreReadAndWrittenLikeOneByOne) {
  const std::vector<float> values = noise(40, 1);
  for (const Storage storage : kAllStorages) {
    const FloatFormat format = gpu::format_of(storage);
    SCOPED_TRACE(format_name(format));
    for (const int64_t offset : {0, 1, 8}) {
      for (int64_t n = 1; n <= 40; ++n) {
        Memory narrow(storage, n, offset), by_one(storage, n, offset),
            exact(Storage::fp32, n, offset);
        const gpu::Destination to{narrow.at(), storage, format};
        const gpu::Destination each{by_one.at(), storage, format};
        float* const unrounded = reinterpret_cast<float*>(exact.at());
        const gpu::StoredOutput plain(unrounded, to, true), recorded(unrounded, to, false);
        for (int64_t i = 0; i < n; ++i) each.round(i, values[static_cast<size_t>(i)]);
        for (int64_t item = 0; item < gpu::items_of_several(n); ++item) {
          const gpu::Neighbours at = gpu::several_of(item, n);
          float some[kSeveral] = {};
          for (int j = 0; j < at.count; ++j) some[j] = values[static_cast<size_t>(at.first + j)];
          write(plain, at, some);
          write(recorded, at, some);
        }
        ASSERT_EQ(narrow.words(), by_one.words()) << n << " from " << offset;
        const gpu::StoredInput in(narrow.at(), storage);
        const gpu::StoredInput wide(reinterpret_cast<float*>(exact.at()));
        for (int64_t item = 0; item < gpu::items_of_several(n); ++item) {
          const gpu::Neighbours at = gpu::several_of(item, n);
          float stored[kSeveral], whole[kSeveral];
          read(in, at, stored);
          read(wide, at, whole);
          for (int j = 0; j < kSeveral; ++j) {
            const bool there = j < at.count;
            ASSERT_EQ(stored[j], there ? in[at.first + j] : 0.0f) << n << " from " << offset;
            ASSERT_EQ(whole[j], there ? values[static_cast<size_t>(at.first + j)] : 0.0f);
          }
        }
        for (int64_t step = 1; step < 4; ++step) {
          const int count = static_cast<int>(std::min<int64_t>(gpu::ceil_div(n, step), kSeveral));
          float some[kSeveral];
          read(in, gpu::Spaced{0, step, count}, some);
          for (int j = 0; j < kSeveral; ++j) {
            ASSERT_EQ(some[j], j < count ? in[j * step] : 0.0f) << n << " every " << step;
          }
        }
      }
    }
  }
}

TEST(ChannelTiles, TurnTensorsOfAnySize) {
  gpu::HostExecutor executor(gpu::HostOrder::shuffled);
  struct Size {
    int64_t outer, channels, pixels;
  };
  for (const Size& s : {Size{2, 3, 1024}, Size{3, 64, 64}, Size{2, 72, 80}, Size{2, 512, 9},
                        Size{2, 300, 16}, Size{1, 65, 63}, Size{5, 1, 7}, Size{4, 7, 1},
                        Size{2, 520, 49}, Size{1, 8, 8200}, Size{1, 1, 1}, Size{2, 1030, 4}}) {
    const int64_t n = s.outer * s.channels * s.pixels;
    SCOPED_TRACE(std::to_string(s.channels) + " channels, " + std::to_string(s.pixels) + " pixels");
    for (const Storage storage : {Storage::fp32, Storage::fp16, Storage::bf16}) {
      std::vector<float> x = noise(n, 2);
      for (float& value : x) value = round_to_format(value, gpu::format_of(storage)).value;
      const gpu::ChannelTiles tiles(s.outer, s.channels, s.pixels);
      std::vector<float> turned(static_cast<size_t>(n)), back(static_cast<size_t>(n));
      executor.blocks(gpu::ChannelsLast{x.data(), turned.data(), storage, tiles});
      const gpu::StoredInput last(turned.data(), storage);
      int64_t at = 0;
      for (int64_t o = 0; o < s.outer; ++o) {
        for (int64_t p = 0; p < s.pixels; ++p) {
          for (int64_t c = 0; c < s.channels; ++c) {
            ASSERT_EQ(last[at++], x[static_cast<size_t>((o * s.channels + c) * s.pixels + p)]);
          }
        }
      }
      std::vector<float> bias(static_cast<size_t>(s.channels));
      for (size_t c = 0; c < bias.size(); ++c) bias[c] = static_cast<float>(c);
      gpu::Epilogue<float> epilogue;
      epilogue.bias = bias.data();
      executor.blocks(gpu::FinishChannelsLast{epilogue, last, back.data(), tiles});
      for (int64_t i = 0; i < n; ++i) {
        const float plus = bias[static_cast<size_t>(i / s.pixels % s.channels)];
        ASSERT_EQ(back[static_cast<size_t>(i)], x[static_cast<size_t>(i)] + plus) << i;
      }
    }
  }
}

}  // namespace
}  // namespace halfscope::test
