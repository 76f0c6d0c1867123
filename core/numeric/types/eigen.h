// SPDX-License-Identifier: MIT
// Eigen matrices of Float<F>: include this, and Eigen::Matrix<halfscope::half, ...> multiplies,
// sums and computes norms. Every scalar operation is rounded to F and seen by a FloatEventScope.
// The order of a sum is Eigen's: reductions pairwise by halves, products in blocks. To study
// orders, write loops or use the GEMMs of emulation/. This is the only header of core/ that needs
// Eigen (3.4); nothing in core/ includes it.
#pragma once

#include <Eigen/Core>

#include "core/numeric/formats/float_format.h"
#include "core/numeric/types/float_limits.h"
#include "core/numeric/types/float_value.h"

template <halfscope::FloatFormat F>
struct Eigen::NumTraits<halfscope::Float<F>> : Eigen::GenericNumTraits<halfscope::Float<F>> {
  // Costs control unrolling and the evaluation of subexpressions: an emulated operation is
  // expensive.
  enum {
    IsInteger = 0,
    IsSigned = 1,
    IsComplex = 0,
    RequireInitialization = 0,
    ReadCost = 1,
    AddCost = 16,
    MulCost = 16,
  };
  /// Returns the default precision of isApprox: a few units in the last place.
  static halfscope::Float<F> dummy_precision() {
    const double ulp = halfscope::FloatFormat::power_of_two(-F.mantissa_bits);
    return halfscope::Float<F>(8 * ulp);
  }
};
