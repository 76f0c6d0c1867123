// SPDX-License-Identifier: MIT
#include "core/train/schedule.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>
#include <vector>

#include "core/error.h"
#include "core/key_values.h"
#include "core/near_miss.h"
#include "core/number_text.h"
#include "core/numeric/elementary/elementary.h"

namespace halfscope {
namespace {

struct Name {
  Schedule::Kind kind;
  const char* name;
  std::vector<std::string> options;
};

const std::vector<Name>& names() {
  static const std::vector<Name> all{{Schedule::Kind::constant, "constant", {"warmup"}},
                                     {Schedule::Kind::step, "step", {"every", "gamma", "warmup"}},
                                     {Schedule::Kind::cosine, "cosine", {"floor", "warmup"}},
                                     {Schedule::Kind::linear, "linear", {"floor", "warmup"}}};
  return all;
}

double number_of(std::string_view text, std::string_view item) {
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0.0) || value > 1e15) {
    throw usage_error("schedule: " + std::string(item) + " is not a number >= 0");
  }
  return value;
}

int64_t count_of(std::string_view text, std::string_view item) {
  const double value = number_of(text, item);
  if (value != std::floor(value))
    throw usage_error("schedule: " + std::string(item) + " is not a whole number");
  return static_cast<int64_t>(value);
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
    throw usage_error("unknown schedule " + name,
                      did_you_mean(name, known, "schedules: " + comma_list(known)));
  }
  Schedule schedule;
  schedule.kind = found->kind;
  const std::string known = "options of " + name + ": " + comma_list(found->options);
  for (const auto& [key, value, item] : key_values(text, "schedule", known)) {
    if (std::find(found->options.begin(), found->options.end(), key) == found->options.end()) {
      throw usage_error(
          "schedule: " + name + " has no option " + key,
          did_you_mean(key, found->options, "options: " + comma_list(found->options)));
    }
    if (key == "warmup") schedule.warmup = count_of(value, item);
    if (key == "every") schedule.every = count_of(value, item);
    if (key == "gamma") schedule.gamma = number_of(value, item);
    if (key == "floor") schedule.floor = number_of(value, item);
  }
  if (schedule.kind == Schedule::Kind::step && schedule.every < 1) {
    throw usage_error("schedule: step needs every=N", "write for example step:every=30,gamma=0.1");
  }
  return schedule;
}

std::string schedule_text(const Schedule& schedule) {
  const Schedule defaults;
  std::string text = names()[static_cast<size_t>(schedule.kind)].name;
  char separator = ':';
  const auto option = [&](const char* key, double value, double fallback) {
    if (value == fallback) return;
    text += separator + std::string(key) + "=" + number_text(value);
    separator = ',';
  };
  option("every", static_cast<double>(schedule.every), static_cast<double>(defaults.every));
  option("gamma", schedule.gamma, defaults.gamma);
  option("floor", schedule.floor, defaults.floor);
  option("warmup", static_cast<double>(schedule.warmup), static_cast<double>(defaults.warmup));
  return text;
}

double rate_factor(const Schedule& schedule, int64_t step, int64_t steps) noexcept {
  if (step < schedule.warmup)
    return static_cast<double>(step + 1) / static_cast<double>(schedule.warmup);
  const double t = static_cast<double>(step - schedule.warmup);
  const double length = std::max(1.0, static_cast<double>(steps - schedule.warmup));
  const double done = std::min(1.0, t / length);
  switch (schedule.kind) {
    case Schedule::Kind::constant:
      return 1.0;
    case Schedule::Kind::step:
      return elementary::pow(schedule.gamma, std::floor(t / static_cast<double>(schedule.every)));
    case Schedule::Kind::cosine:
      return schedule.floor +
             (1.0 - schedule.floor) * 0.5 * (1.0 + elementary::cos(std::numbers::pi * done));
    case Schedule::Kind::linear:
      return 1.0 + (schedule.floor - 1.0) * done;
  }
  return 1.0;
}

bool depends_on_length(const Schedule& schedule) noexcept {
  return schedule.kind == Schedule::Kind::cosine || schedule.kind == Schedule::Kind::linear;
}

}  // namespace halfscope
