// SPDX-License-Identifier: MIT
// Learning-rate schedules: a factor on the optimizer's rate as a function of the step. Skipped
// steps count, as where a framework's scheduler is stepped once per iteration.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/numeric/formats/float_format.h"

namespace halfscope {

struct Schedule {
  enum class Kind : uint8_t {
    constant,  ///< 1
    step,      ///< gamma^floor(t / every)
    cosine,    ///< floor + (1 - floor) (1 + cos(pi t / T)) / 2   (Loshchilov and Hutter 2017)
    linear,    ///< 1 + (floor - 1) t / T
    onecycle,  ///< up from 1 / div, and down to that over final_div (torch's OneCycleLR)
  };
  Kind kind = Kind::constant;
  /// Steps over which the rate rises linearly, (step + 1) / warmup; t counts from its end, and T is
  /// the number of steps left after it.
  int64_t warmup = 0;
  int64_t every = 0;   ///< step
  double gamma = 0.1;  ///< step
  double floor = 0.0;  ///< cosine, linear: the factor at the end
  // Of onecycle.
  double div = 25.0, final_div = 1e4;
  double start = 0.3;      ///< the part of all steps that the rate rises over
  bool anneal_cos = true;  ///< else in straight lines
  /// What plans of lanes say in place of it: Plan::schedule.
  std::optional<FloatFormat> format = std::nullopt;

  friend bool operator==(const Schedule&, const Schedule&) = default;
};

/// "constant", "step:every=N,gamma=G", "cosine:warmup=W,floor=F", "linear:...",
/// "onecycle:div=D,format=fp16": the options of the kind, warmup and format, all optional but
/// every. Throws Error (usage).
Schedule parse_schedule(std::string_view text);
/// The form that parse_schedule reads, options at their default left out.
std::string schedule_text(const Schedule& schedule);

/// The factor for a step counted from 0 of a run of `steps`.
double rate_factor(const Schedule& schedule, int64_t step, int64_t steps) noexcept;

/// The learning rate of that step: `rate` times the factor, or, in a format other than fp32, what
/// comes out if counts, numbers and the result of every operation are rounded to it.
double learning_rate(const Schedule& schedule, double rate, int64_t step, int64_t steps,
                     const FloatFormat& format = kFp32) noexcept;

/// Whether the factors depend on the length of the run.
bool depends_on_length(const Schedule& schedule) noexcept;

}  // namespace halfscope
