// SPDX-License-Identifier: MIT
#include "core/train/schedule.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>
#include <vector>

#include "core/data/npz.h"
#include "core/data/tensor_file.h"
#include "core/error.h"
#include "core/key_values.h"
#include "core/near_miss.h"
#include "core/number_text.h"
#include "core/numeric/elementary/elementary.h"
#include "core/numeric/formats/round.h"

namespace halfscope {
namespace {

struct Name {
  Schedule::Kind kind;
  const char* name;
  std::vector<std::string> options;
};

const std::vector<Name>& names() {
  static const std::vector<Name> all{
      {Schedule::Kind::constant, "constant", {"warmup", "format"}},
      {Schedule::Kind::step, "step", {"every", "gamma", "warmup", "format"}},
      {Schedule::Kind::cosine, "cosine", {"floor", "warmup", "format"}},
      {Schedule::Kind::linear, "linear", {"floor", "warmup", "format"}},
      {Schedule::Kind::onecycle, "onecycle", {"div", "final_div", "start", "anneal", "format"}},
      {Schedule::Kind::file, "file", {}}};
  return all;
}

double number_of(std::string_view text, std::string_view item) {
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0.0) || value > 1e30) {
    throw usage_error("schedule: '" + std::string(item) + "' is not a number >= 0");
  }
  return value;
}

int64_t count_of(std::string_view text, std::string_view item) {
  const double value = number_of(text, item);
  if (value != std::floor(value) || value > 1e15)
    throw usage_error("schedule: '" + std::string(item) + "' is not a whole number");
  return static_cast<int64_t>(value);
}

double positive_of(std::string_view text, std::string_view item) {
  const double value = number_of(text, item);
  if (!(value > 0.0)) throw usage_error("schedule: '" + std::string(item) + "' must be above 0");
  return value;
}

FloatFormat format_of_rates(std::string_view text) {
  const std::optional<FloatFormat> format = parse_format(text);
  if (!format) {
    throw usage_error(
        "schedule: unknown format '" + std::string(text) + "'",
        did_you_mean(std::string(text), format_names(), "formats: " + comma_list(format_names())));
  }
  return *format;
}

/// Sets one option of the schedule.
void set_option_of(Schedule& schedule, const std::string& key, std::string_view value,
                   std::string_view item) {
  if (key == "warmup") schedule.warmup = count_of(value, item);
  if (key == "every") schedule.every = count_of(value, item);
  if (key == "gamma") schedule.gamma = number_of(value, item);
  if (key == "floor") schedule.floor = number_of(value, item);
  if (key == "div") schedule.div = positive_of(value, item);
  if (key == "final_div") schedule.final_div = positive_of(value, item);
  if (key == "start") {
    schedule.start = number_of(value, item);
    if (schedule.start >= 1.0) throw usage_error("schedule: start must be below 1");
  }
  if (key == "anneal") {
    if (value != "cos" && value != "linear") {
      throw usage_error("schedule: unknown value in '" + std::string(item) + "'",
                        "write anneal=cos or anneal=linear");
    }
    schedule.anneal_cos = value == "cos";
  }
  if (key == "format") schedule.format = format_of_rates(value);
}

}  // namespace

Schedule parse_schedule(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string name(text.substr(0, colon));
  const auto found = std::find_if(names().begin(), names().end(),
                                  [&](const Name& each) { return name == each.name; });
  if (found == names().end()) {
    std::vector<std::string> known;
    for (const Name& each : names()) known.push_back(each.name);
    throw usage_error("unknown schedule '" + name + "'",
                      did_you_mean(name, known, "schedules: " + comma_list(known)));
  }
  Schedule schedule;
  schedule.kind = found->kind;
  if (schedule.kind == Schedule::Kind::file) {
    if (colon == text.npos || colon + 1 == text.size()) {
      throw usage_error("schedule: file has no name", "write, for example, file:rates.npy");
    }
    schedule.file = text.substr(colon + 1);  // may contain any character
    return schedule;
  }
  const std::string known = "options of " + name + ": " + comma_list(found->options);
  for (const auto& [key, value, item] : key_values(text, "schedule", known)) {
    if (std::find(found->options.begin(), found->options.end(), key) == found->options.end()) {
      throw usage_error(
          "schedule: '" + name + "' has no option '" + key + "'",
          did_you_mean(key, found->options, "options: " + comma_list(found->options)));
    }
    set_option_of(schedule, std::string(key), value, item);
  }
  if (schedule.kind == Schedule::Kind::step && schedule.every < 1) {
    throw usage_error("schedule: step needs every=N",
                      "write, for example, step:every=30,gamma=0.1");
  }
  return schedule;
}

namespace {

Error bad_file(const std::string& file, const std::string& what) {
  return usage_error("schedule: '" + file + "' " + what,
                     "write one array with the learning rate of each step, for example by "
                     "numpy.save('rates.npy', rates), or arrays named lr, momentum, beta1 and "
                     "GLOB:lr by numpy.savez");
}

/// Checks an array and returns its values.
std::vector<double> checked_values(const std::string& file, const ScheduledOption& option,
                                   DoubleTensor& array) {
  if (array.shape.size() != 1 || array.data.empty()) {
    throw bad_file(
        file, "has an array of shape " + to_string(array.shape) + ", not one rate for each step");
  }
  // SGD without a momentum has no state, so a momentum cannot become 0.
  const bool rates = option.key == "lr", positive = option.key == "momentum";
  for (size_t step = 0; step < array.data.size(); ++step) {
    const double value = array.data[step];
    if (std::isfinite(value) && (positive ? value > 0.0 : value >= 0.0) && (rates || value < 1.0)) {
      continue;
    }
    throw bad_file(file, "has the " + (rates ? "learning rate" : option.key) + " " +
                             number_text(value) + " in step " + std::to_string(step));
  }
  return std::move(array.data);
}

}  // namespace

void read_rates(Schedule& schedule) {
  if (schedule.kind != Schedule::Kind::file) return;
  const std::string& file = schedule.file;
  NamedDoubleTensors arrays;
  if (tensor_file_kind(file) == TensorFileKind::npy) {
    arrays["lr"] = read_npy_double(file);
  } else {
    arrays = read_tensors_double(file);
  }
  schedule.rates.clear();
  schedule.series.clear();
  for (auto& [name, array] : arrays) {
    std::optional<ScheduledOption> option = parse_scheduled_option(name);
    if (!option && arrays.size() == 1) option = ScheduledOption{.key = "lr"};
    if (!option) throw bad_file(file, "has an array '" + name + "', which is no option");
    std::vector<double> values = checked_values(file, *option, array);
    if (*option == ScheduledOption{.key = "lr"}) {
      schedule.rates = std::move(values);
    } else {
      schedule.series.push_back({std::move(*option), std::move(values)});
    }
  }
  if (schedule.rates.empty()) throw bad_file(file, "has no array 'lr'");
  for (const OptionSeries& each : schedule.series) {
    if (each.values.size() == schedule.rates.size()) continue;
    throw bad_file(file, "has " + std::to_string(schedule.rates.size()) + " learning rates, but '" +
                             scheduled_option_text(each.option) + "' has " +
                             std::to_string(each.values.size()) + " values");
  }
}

std::vector<ScheduledOption> scheduled_options(const Schedule& schedule) {
  std::vector<ScheduledOption> options;
  for (const OptionSeries& each : schedule.series) options.push_back(each.option);
  return options;
}

std::string schedule_text(const Schedule& schedule) {
  const Schedule defaults;
  std::string text = names()[static_cast<size_t>(schedule.kind)].name;
  if (schedule.kind == Schedule::Kind::file) return text + ":" + schedule.file;
  char separator = ':';
  const auto option = [&](const char* key, double value, double fallback) {
    if (value == fallback) return;
    text += separator + std::string(key) + "=" + number_text(value);
    separator = ',';
  };
  option("every", static_cast<double>(schedule.every), static_cast<double>(defaults.every));
  option("gamma", schedule.gamma, defaults.gamma);
  option("floor", schedule.floor, defaults.floor);
  option("div", schedule.div, defaults.div);
  option("final_div", schedule.final_div, defaults.final_div);
  option("start", schedule.start, defaults.start);
  if (schedule.anneal_cos != defaults.anneal_cos) {
    text += separator + std::string("anneal=linear");
    separator = ',';
  }
  option("warmup", static_cast<double>(schedule.warmup), static_cast<double>(defaults.warmup));
  if (schedule.format) text += separator + ("format=" + format_name(*schedule.format));
  return text;
}

namespace {

/// Learning rates of one run. `Round` rounds every number and every result.
template <class Round>
class Rates {
 public:
  Rates(const Schedule& schedule, double rate, int64_t steps, const Round& round, double base)
      : schedule_(schedule),
        rate_(round(rate)),
        steps_(steps),
        round_(round),
        share_(rate == base ? 1.0 : round(rate / base)) {}

  double at(int64_t step) const {
    if (schedule_.kind == Schedule::Kind::file) {
      const size_t last = schedule_.rates.size() - 1;
      return round_(round_(schedule_.rates[std::min(static_cast<size_t>(step), last)]) * share_);
    }
    if (schedule_.kind == Schedule::Kind::onecycle) return onecycle(step);
    const int64_t warmup = schedule_.warmup;
    const double factor = step < warmup ? round_(count(step + 1) / count(warmup))
                                        : after_warmup(step - warmup, steps_ - warmup);
    return round_(rate_ * factor);
  }

 private:
  double count(int64_t n) const { return round_(static_cast<double>(n)); }

  double after_warmup(int64_t t, int64_t length) const {
    const double floor = round_(schedule_.floor);
    const auto done = [&] {
      return std::min(1.0, round_(count(t) / count(std::max<int64_t>(1, length))));
    };
    switch (schedule_.kind) {
      case Schedule::Kind::step:
        return round_(elementary::pow(round_(schedule_.gamma),
                                      std::floor(round_(count(t) / count(schedule_.every)))));
      case Schedule::Kind::cosine: {
        const double half = round_(round_(1.0 - floor) * 0.5);
        return round_(floor + round_(half * round_(1.0 + wave(done()))));
      }
      case Schedule::Kind::linear:
        return round_(1.0 + round_(round_(floor - 1.0) * done()));
      default:
        return 1.0;
    }
  }

  double wave(double part) const {
    return round_(elementary::cos(round_(round_(std::numbers::pi) * part)));
  }

  /// Returns the point at fraction `done` of the way from a to b.
  double between(double a, double b, double done) const {
    if (!schedule_.anneal_cos) return round_(round_(round_(b - a) * done) + a);
    return round_(b + round_(round_(round_(a - b) / 2.0) * round_(1.0 + wave(done))));
  }

  double onecycle(int64_t step) const {
    const double first = round_(rate_ / round_(schedule_.div));
    const double last = round_(first / round_(schedule_.final_div));
    const double total = count(steps_);
    const double top = round_(round_(round_(schedule_.start) * total) - 1.0);
    const double end = round_(total - 1.0);
    const double at = count(step);
    if (at <= top && top > 0.0) return between(first, rate_, round_(at / top));
    const double from = std::max(top, 0.0);  // nothing rises where there is no step for it
    if (!(end > from)) return rate_;
    return between(rate_, last, std::min(1.0, round_(round_(at - from) / round_(end - from))));
  }

  const Schedule& schedule_;
  double rate_;
  int64_t steps_;
  const Round& round_;
  double share_;  ///< of the rates in a file
};

}  // namespace

double learning_rate(const Schedule& schedule, double rate, int64_t step, int64_t steps,
                     const FloatFormat& format, double base) noexcept {
  if (format == kFp32) {
    const auto exact = [](double x) { return x; };
    return Rates(schedule, rate, steps, exact, base).at(step);
  }
  // Doubles have more than twice the bits of any format, so each operation is rounded only once.
  const auto rounded = [&](double x) {
    return static_cast<double>(round_to_format(x, format).value);
  };
  return Rates(schedule, rate, steps, rounded, base).at(step);
}

double series_rate(const Schedule& schedule, size_t series, int64_t step,
                   const FloatFormat& format) noexcept {
  const double rate = schedule.series[series].values[static_cast<size_t>(step)];
  return format == kFp32 ? rate : static_cast<double>(round_to_format(rate, format).value);
}

bool depends_on_length(const Schedule& schedule) noexcept {
  return schedule.kind == Schedule::Kind::cosine || schedule.kind == Schedule::Kind::linear ||
         schedule.kind == Schedule::Kind::onecycle;
}

}  // namespace halfscope
