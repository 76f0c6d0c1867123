// SPDX-License-Identifier: MIT
// Operations on single elements that run in the launch of another node: before its operand is read
// (ElementSource) or after its output is made (ElementSink). Every result is rounded as a
// separate node would round it, so the bits are the same.
#pragma once

#include <cstdint>

#include "core/bodies/elements.h"
#include "gpu/bodies/elementwise.h"
#include "gpu/bodies/several.h"

namespace halfscope::gpu {

/// An operation on element i of one tensor and, broadcast, of others.
struct ElementStep {
  enum class Kind : uint8_t { none, multiply, divide, add, choose };

  In<float> other = nullptr;  ///< null for `choose`: zero
  const int32_t* condition = nullptr;
  Operand at_other{}, at_condition{};
  Destination rounds{};  ///< rounds like this; its memory is not used
  Kind kind = Kind::none;
  bool if_true = true;  ///< choose: where the condition is nonzero, otherwise where it is zero

  HS_HD float operator()(int64_t i, float x) const {
    if (kind == Kind::none) return x;
    const bool chosen = kind == Kind::choose && (condition[at_condition(i)] != 0) == if_true;
    if (chosen) return rounds.rounded(x);
    return rounds.rounded(result(x, other == nullptr ? 0.0f : other[at_other(i)]));
  }
  /// Same for several neighbours.
  HS_HD void operator()(const Neighbours& at, float (&x)[kSeveral]) const {
    if (kind == Kind::none) return;
    float y[kSeveral];
    read_others(at, y);
    int32_t chosen[kSeveral];
    read_conditions(at, chosen);
    for (int j = 0; j < kSeveral; ++j) {
      const bool keeps = kind == Kind::choose && (chosen[j] != 0) == if_true;
      x[j] = rounds.rounded(keeps ? x[j] : result(x[j], y[j]));
    }
  }

 private:
  HS_HD void read_others(const Neighbours& at, float (&y)[kSeveral]) const {
    if (other == nullptr || at_other.kind == Operand::Kind::scalar) {
      const float one = other == nullptr ? 0.0f : other[0];
      for (float& each : y) each = one;
    } else if (at_other.keeps_neighbours()) {
      read(other, Neighbours{at_other(at.first), at.count}, y);
    } else {
      for (int j = 0; j < kSeveral; ++j) y[j] = j < at.count ? other[at_other(at.first + j)] : 0.0f;
    }
  }
  HS_HD void read_conditions(const Neighbours& at, int32_t (&chosen)[kSeveral]) const {
    const bool near = kind == Kind::choose && at.whole() && at_condition.keeps_neighbours();
    if (near && packed::begins_on_words(condition)) {
      const int32_t* const from = condition + at_condition(at.first);
      for (int half = 0; half < 2; ++half) {
        const auto words = packed::load_words<packed::Words<4>>(from + half * 4);
        for (int j = 0; j < 4; ++j) chosen[half * 4 + j] = static_cast<int32_t>(words.word[j]);
      }
      return;
    }
    for (int j = 0; j < kSeveral; ++j) {
      const bool reads = kind == Kind::choose && j < at.count;
      chosen[j] = reads ? condition[at_condition(at.first + j)] : 0;
    }
  }
  HS_HD float result(float x, float y) const {
    switch (kind) {
      case Kind::multiply:
        return MulOp{}(x, y);
      case Kind::divide:
        return DivOp{}(x, y);
      case Kind::add:
        return AddOp{}(x, y);
      case Kind::choose:
      case Kind::none:
        break;
    }
    return y;
  }
};

/// Two of them, one after the other. Not an array: g++ does not clear the padding after an array of
/// structures, and the simulated device would take those bytes for a pointer.
struct ElementSteps {
  ElementStep first{}, second{};

  HS_HD float operator()(int64_t i, float x) const { return second(i, first(i, x)); }
  HS_HD void operator()(const Neighbours& at, float (&x)[kSeveral]) const {
    first(at, x);
    second(at, x);
  }
};

/// Elements of x after these steps. Reads like In<float>.
struct ElementSource {
  In<float> x = nullptr;
  ElementSteps steps{};
  int64_t begin = 0;

  HS_HD float operator[](int64_t i) const { return steps(begin + i, x[begin + i]); }
  HS_HD ElementSource operator+(int64_t n) const { return {x, steps, begin + n}; }
};
HS_HD inline void read(const ElementSource& from, const Spaced& at, float (&to)[kSeveral]) {
  const Spaced there{from.begin + at.first, at.step, at.count};
  read(from.x, there, to);
  for (int j = 0; j < kSeveral; ++j) {
    if (j < at.count) to[j] = from.steps(there.first + j * int64_t{there.step}, to[j]);
  }
}
/// Same for neighbours of the whole tensor.
HS_HD inline void read(const ElementSource& from, const Neighbours& at, float (&to)[kSeveral]) {
  read(from.x, at, to);
  from.steps(at, to);
}

/// Stores elements after rounding and these steps. Is written like Out<float>.
struct ElementSink {
  Out<float> y = nullptr;
  Destination rounds{};  ///< of the node's own output; its memory is not used
  ElementSteps steps{};

  struct Element {
    const ElementSink& of;
    int64_t i;
    HS_HD void operator=(float value) const {  // NOLINT: no chains
      of.y[i] = of.steps(i, of.rounds.rounded(value));
    }
  };
  HS_HD Element operator[](int64_t i) const { return {*this, i}; }
};

}  // namespace halfscope::gpu
