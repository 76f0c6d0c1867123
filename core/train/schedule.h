// SPDX-License-Identifier: MIT
// Learning-rate schedules: a factor on the optimizer's rate as a function of the step, or a rate
// for each step. Skipped steps count, as in a framework whose scheduler is stepped once per
// iteration.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/lower/optimizer.h"
#include "core/numeric/formats/float_format.h"

namespace halfscope {

/// The values of an option by step.
struct OptionSeries {
  ScheduledOption option;
  std::vector<double> values;

  friend bool operator==(const OptionSeries&, const OptionSeries&) = default;
};

struct Schedule {
  enum class Kind : uint8_t {
    constant,  ///< 1
    step,      ///< gamma^floor(t / every)
    cosine,    ///< floor + (1 - floor) (1 + cos(pi t / T)) / 2   (Loshchilov and Hutter 2017)
    linear,    ///< 1 + (floor - 1) t / T
    onecycle,  ///< up from 1 / div to 1, then down to 1 / (div final_div) (torch's OneCycleLR)
    file,      ///< the rates of a file, whatever made them
  };
  Kind kind = Kind::constant;
  /// Steps over which the rate rises linearly, (step + 1) / warmup; t counts from its end, and T is
  /// the number of steps left after it.
  int64_t warmup = 0;
  int64_t every = 0;   ///< step
  double gamma = 0.1;  ///< step
  double floor = 0.0;  ///< cosine, linear: the factor at the end
  // onecycle only.
  double div = 25.0, final_div = 1e4;
  double start = 0.3;                  ///< fraction of all steps in which the rate rises
  bool anneal_cos = true;              ///< cosine, else linear
  std::string file{};                  ///< file: its name
  std::vector<double> rates{};         ///< file: by step; read_rates() fills them
  std::vector<OptionSeries> series{};  ///< file: other options that change; each as long as `rates`
  /// Format that rates are computed in; the command line copies it to Plan::schedule of the lanes.
  std::optional<FloatFormat> format = std::nullopt;

  friend bool operator==(const Schedule&, const Schedule&) = default;
};

/// Parses "constant", "step:every=N,gamma=G", "cosine:warmup=W,floor=F", "linear:...",
/// "onecycle:div=D,format=fp16": the options of each kind, warmup and format. All are optional
/// except `every`. "file:NAME" names a file and does not read it. Throws Error (usage).
Schedule parse_schedule(std::string_view text);
/// Returns the text that parse_schedule() reads, without options at their defaults.
std::string schedule_text(const Schedule& schedule);

/// Reads the values of a schedule of kind `file`: the rates of a .npy, .npz or .safetensors file
/// with one array, or several arrays named by the option (ScheduledOption), "lr" among them. Does
/// nothing for other kinds. Throws Error that names the file; usage if arrays are named or shaped
/// differently, rates are not finite and at least 0, a beta1 is not from 0 to below 1, or a
/// momentum not between 0 and 1.
void read_rates(Schedule& schedule);

/// Returns the learning rate of a step, counted from 0, of a run of `steps`: `rate` times the
/// factor, or the file's rate times `rate` / `base`, where `base` is the rate that the file was
/// made for. In a format other than fp32, counts, numbers and the result of every operation are
/// rounded to it.
double learning_rate(const Schedule& schedule, double rate, int64_t step, int64_t steps,
                     const FloatFormat& format, double base) noexcept;
inline double learning_rate(const Schedule& schedule, double rate, int64_t step, int64_t steps,
                            const FloatFormat& format = kFp32) noexcept {
  return learning_rate(schedule, rate, step, steps, format, rate);
}

/// Returns the learning rate of a step from Schedule::series[series], in a format.
double series_rate(const Schedule& schedule, size_t series, int64_t step,
                   const FloatFormat& format) noexcept;

/// Returns which options besides the optimizer's learning rate change, in the order of
/// Schedule::series.
std::vector<ScheduledOption> scheduled_options(const Schedule& schedule);

/// Returns whether the factors depend on the length of the run.
bool depends_on_length(const Schedule& schedule) noexcept;

}  // namespace halfscope
