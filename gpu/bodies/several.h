// SPDX-License-Identifier: MIT
// Several elements of a tensor at a time: the storage format is checked once, and all their bytes
// are requested together, which a device needs to keep its memory busy. Adjacent elements use
// transactions of 16 bytes. The values do not depend on this.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "gpu/bodies/aligned.h"
#include "gpu/bodies/work.h"

namespace halfscope::gpu {

inline constexpr int kSeveral = 8;

/// Elements first + j * step for 0 <= j < count, of kSeveral or fewer.
struct Spaced {
  int64_t first, step;
  int count;
};

/// Returns the elements before `end`.
HS_HD inline Spaced spaced_from(int64_t first, int step, int64_t end) noexcept {
  return {first, step, static_cast<int>(smaller((end - first + step - 1) / step, kSeveral))};
}

/// Elements [first, first + count), of kSeveral or fewer. `first` is a multiple of kSeveral.
struct Neighbours {
  int64_t first;
  int count;

  HS_HD bool whole() const { return count == kSeveral; }
};

/// Returns how many items n elements make; several_of() returns the elements of one item.
HS_HD constexpr int64_t items_of_several(int64_t n) noexcept { return ceil_div(n, kSeveral); }
HS_HD inline Neighbours several_of(int64_t item, int64_t n) noexcept {
  const int64_t first = item * kSeveral;
  return {first, static_cast<int>(smaller(kSeveral, n - first))};
}

namespace packed {

template <int kWords>
struct alignas(4 * kWords) Words {
  uint32_t word[kWords];
};
template <class W>
HS_HD inline W load_words(const void* memory) noexcept {
  check_aligned(memory, alignof(W));
  W words;
  std::memcpy(&words, __builtin_assume_aligned(memory, alignof(W)), sizeof words);
  return words;
}
template <class W>
HS_HD inline void store_words(void* memory, const W& words) noexcept {
  check_aligned(memory, alignof(W));
  std::memcpy(__builtin_assume_aligned(memory, alignof(W)), &words, sizeof words);
}
HS_HD inline bool begins_on_words(const void* memory) noexcept {
  return reinterpret_cast<uintptr_t>(memory) % 16 == 0;
}

/// Loads from `from`, which is aligned to 16 bytes.
HS_HD inline void load_whole(const void* from, Storage storage, float (&to)[kSeveral]) noexcept {
  if (bytes_of(storage) == 2) {
    const auto words = load_words<Words<4>>(from);
    for (int j = 0; j < kSeveral; ++j) {
      const uint32_t word = words.word[j / 2];
      to[j] = storage == Storage::fp16
                  ? half_of_code(static_cast<uint16_t>(word >> (j % 2 * 16)))
                  : std::bit_cast<float>(j % 2 != 0 ? word & 0xffff0000u : word << 16);
    }
    return;
  }
  for (int half = 0; half < 2; ++half) {
    const auto words = load_words<Words<4>>(static_cast<const std::byte*>(from) + half * 16);
    for (int j = 0; j < 4; ++j) to[half * 4 + j] = std::bit_cast<float>(words.word[j]);
  }
}

HS_HD inline void store_whole(float* to, const float (&from)[kSeveral]) noexcept {
  for (int half = 0; half < 2; ++half) {
    Words<4> words;
    for (int j = 0; j < 4; ++j) words.word[j] = std::bit_cast<uint32_t>(from[half * 4 + j]);
    store_words(to + half * 4, words);
  }
}
/// Stores elements rounded to a 16-bit format.
HS_HD inline void store_whole(uint16_t* to, Storage storage,
                              const float (&from)[kSeveral]) noexcept {
  Words<4> words{};
  for (int j = 0; j < kSeveral; ++j) {
    const uint32_t code =
        storage == Storage::fp16 ? code_of_half(from[j]) : code_of_bfloat(from[j]);
    words.word[j / 2] |= code << (j % 2 * 16);
  }
  store_words(to, words);
}

}  // namespace packed

/// Reads elements; those beyond `count` become zeros.
template <class T>
HS_HD void read(const T* from, const Spaced& at, T (&to)[kSeveral]) noexcept {
  for (int j = 0; j < kSeveral; ++j) to[j] = j < at.count ? from[at.first + j * at.step] : T{0};
}
HS_HD inline void read(const StoredInput& from, const Spaced& at, float (&to)[kSeveral]) noexcept {
  const Storage storage = from.storage();
  if (bytes_of(storage) == 2) {
    const uint16_t* const codes = static_cast<const uint16_t*>(from.memory()) + at.first;
    uint16_t code[kSeveral];
    for (int j = 0; j < kSeveral; ++j) {
      code[j] = j < at.count ? codes[j * at.step] : uint16_t{0};
    }
    for (int j = 0; j < kSeveral; ++j) {
      to[j] = storage == Storage::fp16 ? half_of_code(code[j])
                                       : std::bit_cast<float>(uint32_t{code[j]} << 16);
    }
  } else if (bytes_of(storage) == 4) {
    read(static_cast<const float*>(from.memory()), at, to);
  } else {
    for (int j = 0; j < kSeveral; ++j) {
      to[j] = j < at.count ? from[at.first + j * at.step] : 0.0f;
    }
  }
}

template <class T>
HS_HD void read(const T* from, const Neighbours& at, T (&to)[kSeveral]) noexcept {
  read(from, Spaced{at.first, 1, at.count}, to);
}
HS_HD inline void read(const StoredInput& from, const Neighbours& at,
                       float (&to)[kSeveral]) noexcept {
  const int64_t bytes = bytes_of(from.storage());
  if (at.whole() && bytes > 1 && packed::begins_on_words(from.memory())) {
    packed::load_whole(static_cast<const std::byte*>(from.memory()) + at.first * bytes,
                       from.storage(), to);
  } else {
    read(from, Spaced{at.first, 1, at.count}, to);
  }
}

template <class T>
HS_HD void write(T* to, const Neighbours& at, const T (&from)[kSeveral]) noexcept {
  for (int j = 0; j < kSeveral; ++j) {
    if (j < at.count) to[at.first + j] = from[j];
  }
}
/// Stores values that the storage can represent.
HS_HD inline void store(void* memory, Storage storage, const Neighbours& at,
                        const float (&from)[kSeveral]) noexcept {
  const int64_t bytes = bytes_of(storage);
  if (!at.whole() || bytes == 1 || !packed::begins_on_words(memory)) {
    for (int j = 0; j < kSeveral; ++j) {
      if (j < at.count) store(memory, storage, at.first + j, from[j]);
    }
  } else if (bytes == 2) {
    packed::store_whole(static_cast<uint16_t*>(memory) + at.first, storage, from);
  } else {
    packed::store_whole(static_cast<float*>(memory) + at.first, from);
  }
}
/// Writes elements rounded to nearest even.
HS_HD inline void write(const Destination& to, const Neighbours& at,
                        const float (&from)[kSeveral]) noexcept {
  if (to.rounds_itself) {
    store(to.memory, to.storage, at, from);
    return;
  }
  for (int j = 0; j < kSeveral; ++j) {
    if (j < at.count) to.round(at.first + j, from[j]);
  }
}
HS_HD inline void write(const StoredOutput& to, const Neighbours& at,
                        const float (&from)[kSeveral]) noexcept {
  if (to.stores_now()) {
    write(to.destination(), at, from);
  } else if (at.whole() && packed::begins_on_words(to.exact())) {
    packed::store_whole(to.exact() + at.first, from);
  } else {
    write(to.exact(), at, from);
  }
}

}  // namespace halfscope::gpu
