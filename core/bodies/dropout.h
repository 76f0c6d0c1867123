// SPDX-License-Identifier: MIT
// Dropout and its gradient (core/ops/dropout.cpp).
#pragma once

#include <cstdint>

#include "core/bodies/elements.h"
#include "core/host_device.h"
#include "core/numeric/formats/rng.h"
#include "core/numeric/formats/tensor_rounding.h"

namespace halfscope {

/// Decides which elements a node drops in one step.
struct DropoutDraw {
  uint64_t key = 0;
  uint64_t dropped = 0;  ///< draws of 32 bits below it drop the element
  double scale = 1.0;    ///< of the others
};

/// One item is an element: its product with 0 or the scale, rounded once.
template <class T, class In, class Out>
struct Dropout {
  In x;
  Out y;
  DropoutDraw draw;
  FloatFormat write;
  TensorRounding rounding{};
  HS_HD void operator()(int64_t i) const {
    const bool drops = random_draw(draw.key, static_cast<uint64_t>(i)) < draw.dropped;
    const T by = drops ? T{0} : static_cast<T>(draw.scale);
    const T value = x[i];
    y[i] = delivered<T>(static_cast<double>(value) * static_cast<double>(by), write,
                        rounding.element(i));
  }
};

}  // namespace halfscope
