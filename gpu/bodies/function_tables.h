// SPDX-License-Identifier: MIT
// Functions of operands in 16 or 8 bits, looked up: there are few codes, so a table has the result
// of each. It is filled by the bodies that compute them, so the bits are the same.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/bodies/functions.h"
#include "gpu/bodies/several.h"

namespace halfscope::gpu {

/// Gradients of (dy, x) that are dy combined with a function of x alone, which takes long.
template <class Function>
concept HasSlowPart = requires(const Function f, double x) {
  f.slow(x);
  f.finish(x, x, x);
};

/// Writes that function of x for every code.
template <class Function>
struct SlowParts {
  In<float> codes;
  double* table;
  Function f{};

  HS_HD void operator()(int64_t i) const { table[i] = f.slow(static_cast<double>(codes[i])); }
};

/// Reads the codes of adjacent elements; those beyond `count` become zeros.
HS_HD inline void read_codes(const In<float>& x, const Neighbours& at, uint32_t (&to)[kSeveral]) {
  if (bytes_of(x.storage()) == 2) {
    const uint16_t* const from = static_cast<const uint16_t*>(x.memory()) + at.first;
    if (at.whole() && packed::begins_on_words(x.memory())) {
      const auto words = packed::load_words<packed::Words<4>>(from);
      for (int j = 0; j < kSeveral; ++j) to[j] = words.word[j / 2] >> (j % 2 * 16) & 0xffffu;
    } else {
      for (int j = 0; j < kSeveral; ++j) to[j] = j < at.count ? from[j] : 0u;
    }
  } else {
    const uint8_t* const from = static_cast<const uint8_t*>(x.memory()) + at.first;
    for (int j = 0; j < kSeveral; ++j) to[j] = j < at.count ? from[j] : 0u;
  }
}

/// y = table[code of x]; item: several of the n elements.
struct LookUp {
  In<float> x;
  Out<float> y;
  int64_t n;
  const float* table;

  HS_HD void operator()(int64_t item) const {
    const Neighbours at = several_of(item, n);
    uint32_t code[kSeveral];
    float value[kSeveral];
    read_codes(x, at, code);
    for (int j = 0; j < kSeveral; ++j) value[j] = table[code[j]];
    write(y, at, value);
  }
};

/// A gradient whose slow part is looked up; item: several of the n elements.
template <class Function>
struct LookUpGradient {
  In<float> dy, x;
  Out<float> y;
  int64_t n;
  const double* table;
  Function f{};
  FloatFormat write_format = kFp32;

  HS_HD void operator()(int64_t item) const {
    const Neighbours at = several_of(item, n);
    uint32_t code[kSeveral];
    float upstream[kSeveral], value[kSeveral];
    read_codes(x, at, code);
    read(x, at, value);
    read(dy, at, upstream);
    for (int j = 0; j < kSeveral; ++j) {
      const double made =
          f.finish(static_cast<double>(upstream[j]), static_cast<double>(value[j]), table[code[j]]);
      value[j] = delivered<float>(made, write_format);
    }
    write(y, at, value);
  }
};

}  // namespace halfscope::gpu
