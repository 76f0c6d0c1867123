// SPDX-License-Identifier: MIT
#pragma once

#include <mpfr.h>

namespace halfscope::testing {

/// Owns a number of MPFR.
class MpfrNumber {
 public:
  explicit MpfrNumber(mpfr_prec_t precision) { mpfr_init2(x_, precision); }
  ~MpfrNumber() { mpfr_clear(x_); }
  MpfrNumber(const MpfrNumber&) = delete;
  MpfrNumber& operator=(const MpfrNumber&) = delete;
  mpfr_ptr get() { return x_; }

 private:
  mpfr_t x_;
};

}  // namespace halfscope::testing
