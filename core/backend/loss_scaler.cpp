// SPDX-License-Identifier: MIT
#include "core/backend/loss_scaler.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "core/error.h"
#include "core/near_miss.h"
#include "core/number_text.h"

namespace halfscope {
namespace {

using Kind = LossScalerConfig::Kind;

/// A framework's scaler: its default configuration and the options that it takes.
struct Framework {
  const char* name;
  LossScalerConfig defaults;
  std::vector<std::string> options;
};

const std::vector<Framework>& frameworks() {
  static const std::vector<Framework> all{
      {"torch",
       {.kind = Kind::torch, .initial = 65536.0},
       {"init", "growth", "backoff", "interval"}},
      {"tf-keras", {.kind = Kind::tf_keras, .initial = 32768.0}, {"init", "interval", "static"}},
      {"keras3",
       {.kind = Kind::keras3, .initial = 32768.0, .flushes = true},
       {"init", "interval", "backend", "static"}},
      {"apex",
       {.kind = Kind::apex, .initial = 65536.0, .maximum = 0x1p24},
       {"init", "window", "min", "max", "sum", "static"}},
      {"apex-fp16-utils",
       {.kind = Kind::apex_fp16_utils, .initial = 0x1p32, .growth_interval = 1000, .sums = true},
       {"init", "factor", "window", "static"}},
      {"deepspeed",
       {.kind = Kind::deepspeed,
        .initial = 65536.0,
        .growth_interval = 1000,
        .minimum = 1.0,
        .hysteresis = 2,
        .raises = true},
       {"init", "window", "hysteresis", "consecutive", "min", "raise", "no-raise", "fused", "sum",
        "static"}},
      {"deepspeed-bf16", {.kind = Kind::deepspeed_bf16}, {}},
  };
  return all;
}

const Framework* framework_of(Kind kind) {
  for (const Framework& each : frameworks()) {
    if (each.defaults.kind == kind) return &each;
  }
  return nullptr;
}

/// Whether the framework keeps the scale in fp32.
bool is_single(Kind kind) {
  return kind != Kind::apex && kind != Kind::apex_fp16_utils && kind != Kind::deepspeed;
}

std::string scale_number(const LossScalerConfig& config, double value) {
  return is_single(config.kind) ? number_text(static_cast<float>(value)) : number_text(value);
}

template <class Number>
std::optional<Number> whole_number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Parses the options of one framework's scaler.
class OptionParser {
 public:
  OptionParser(const Framework& framework, std::string_view text)
      : framework_(framework), text_(text), config_(framework.defaults) {}

  LossScalerConfig parse(std::string_view options) {
    if (options.empty()) fail("no option after the colon", known());
    for (size_t from = 0; from <= options.size();) {
      const size_t comma = std::min(options.find(',', from), options.size());
      set(options.substr(from, comma - from));
      from = comma + 1;
    }
    if (config_.fixed && seen_.size() > 1) {
      fail("a static scale has no other options", "use " + name() + ":static=X");
    }
    check_contradictions();
    return config_;
  }

 private:
  std::string name() const { return framework_.name; }

  [[noreturn]] void fail(const std::string& what, const std::string& hint) const {
    throw usage_error("loss scale '" + std::string(text_) + "': " + what, hint);
  }

  std::string known() const {
    return framework_.options.empty()
               ? name() + " has no options"
               : name() + " has the options " + comma_list(framework_.options);
  }

  double positive(const std::string& key, std::string_view value) const {
    const std::optional<double> number = whole_number<double>(value);
    const double kept =
        number && is_single(config_.kind) ? scaler::single(*number) : number.value_or(0.0);
    if (!(kept > 0.0) || !std::isfinite(kept)) {
      fail(key + "=" + std::string(value) + " is not a positive number in range",
           "use a number such as " + key + "=1024");
    }
    return kept;
  }

  int32_t count(const std::string& key, std::string_view value) const {
    const std::optional<int32_t> number = whole_number<int32_t>(value);
    if (!number || *number < 1) {
      fail(key + "=" + std::string(value) + " is not a number of steps", "use 1 or more");
    }
    return *number;
  }

  void flag(const std::string& key, bool has_value) const {
    if (has_value) fail(key + " takes no value", "write " + key + " alone");
  }

  bool has(const char* key) const {
    return std::find(seen_.begin(), seen_.end(), key) != seen_.end();
  }

  /// Refuses options of which the framework would ignore one, and limits that make an overflow
  /// raise the scale: apex and DeepSpeed compute max(scale / 2, min). A first scale above apex's
  /// maximum is no mistake, since apex lowers it.
  void check_contradictions() const {
    struct Exclusion {
      const char *one, *other, *why;
    };
    static constexpr Exclusion kExclusions[] = {
        {"raise", "no-raise", "raise and no-raise contradict each other"},
        {"fused", "raise", "DeepSpeed's fused optimizer raises no error"},
        {"fused", "hysteresis", "DeepSpeed's fused optimizer has no hysteresis"},
        {"fused", "consecutive", "DeepSpeed's fused optimizer has no hysteresis"}};
    for (const Exclusion& each : kExclusions) {
      if (!has(each.one) || !has(each.other)) continue;
      fail(each.why, std::string("leave out ") + each.one + " or " + each.other);
    }
    if (config_.fixed) return;
    const std::string minimum = "min=" + number_text(config_.minimum);
    if (config_.maximum > 0.0 && config_.minimum > config_.maximum) {
      fail(minimum + " is larger than max=" + number_text(config_.maximum),
           "use a min that is at most max");
    }
    const double first = initial_state(config_).scale;
    if (first < config_.minimum) {
      fail("the first scale, " + number_text(first) + ", is below " + minimum +
               ", so an overflow would raise it",
           "use a min that is at most the first scale");
    }
  }

  void set(std::string_view option) {
    const size_t equals = std::min(option.find('='), option.size());
    std::string key(option.substr(0, equals));
    const std::string_view value = option.substr(std::min(equals + 1, option.size()));
    // Every framework has its own word for the same number.
    const auto takes = [&](const char* word) {
      return std::find(framework_.options.begin(), framework_.options.end(), word) !=
             framework_.options.end();
    };
    if (key == "interval" && takes("window")) key = "window";
    if (key == "window" && takes("interval")) key = "interval";
    if (!takes(key.c_str())) {
      if (key == "static") {
        fail(name() + " has no static scale", "use static:X");
      }
      fail("unknown option '" + std::string(option) + "'",
           did_you_mean(key, framework_.options, known()));
    }
    if (has(key.c_str())) {
      fail("the option " + key + " occurs twice", "give each option once");
    }
    seen_.push_back(key);
    apply(key, value, equals < option.size());
  }

  void apply(const std::string& key, std::string_view value, bool has_value) {
    if (key == "init" || key == "static") {
      config_.initial = positive(key, value);
      config_.fixed = key == "static";
    } else if (key == "growth" || key == "factor") {
      config_.growth = factor(key, value);
      if (!(config_.growth > 1.0)) fail(key + " must be larger than 1", "use " + key + "=2");
    } else if (key == "backoff") {
      config_.backoff = factor(key, value);
      if (!(config_.backoff < 1.0)) fail("backoff must be smaller than 1", "use backoff=0.5");
    } else if (key == "interval" || key == "window") {
      config_.growth_interval = count(key, value);
    } else if (key == "hysteresis") {
      config_.hysteresis = count(key, value);
    } else if (key == "min") {
      config_.minimum = positive(key, value);
    } else if (key == "max") {
      config_.maximum = positive(key, value);
    } else if (key == "backend") {
      set_backend(value);
    } else {
      flag(key, has_value);
      if (key == "consecutive") config_.consecutive = true;
      if (key == "sum") config_.sums = true;
      if (key == "raise" || key == "no-raise") config_.raises = key == "raise";
      if (key == "fused") {
        config_.raises = false;
        config_.hysteresis = 1;
      }
    }
  }

  double factor(const std::string& key, std::string_view value) const {
    const std::optional<double> number = whole_number<double>(value);
    if (!number || !(*number > 0.0) || !std::isfinite(*number)) {
      fail(key + "=" + std::string(value) + " is not a positive number", "use a number");
    }
    return *number;
  }

  /// TensorFlow and JAX flush subnormal numbers to zero, PyTorch does not.
  void set_backend(std::string_view value) {
    static const std::vector<std::string> kBackends{"tensorflow", "jax", "torch"};
    if (std::find(kBackends.begin(), kBackends.end(), value) == kBackends.end()) {
      fail("unknown backend '" + std::string(value) + "'",
           did_you_mean(value, kBackends, "use tensorflow, jax or torch"));
    }
    config_.flushes = value != "torch";
  }

  const Framework& framework_;
  const std::string_view text_;
  LossScalerConfig config_;
  std::vector<std::string> seen_;
};

/// Parses "dynamic:INIT" and "static:X".
LossScalerConfig parse_plain(std::string_view text, std::string_view kind,
                             std::optional<std::string_view> number) {
  LossScalerConfig config{.kind = kind == "dynamic" ? Kind::dynamic : Kind::constant,
                          .initial = 65536.0};
  if (!number) return config;
  const float value = whole_number<float>(*number).value_or(0.0f);
  if (!(value > 0.0f) || !std::isfinite(value) || !std::isfinite(1.0f / value)) {
    throw usage_error("loss scale '" + std::string(text) + "': " + std::string(*number) +
                          " is not a positive number in range",
                      "use a number from 2^-126 to 2^127, such as 1024");
  }
  config.initial = static_cast<double>(value);
  return config;
}

}  // namespace

SharedStep shared_step(const LossScalerState& state, const LossScalerConfig& config,
                       const std::vector<bool>& finite) {
  SharedStep step;
  bool all = true;
  for (const bool each : finite) {
    step.skipped.push_back(skips(config, each));
    all = all && each;
  }
  step.next = next_state(state, config, all);
  return step;
}

LossScalerConfig parse_loss_scale(std::string_view text) {
  if (text == "none") return {};
  const size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  std::optional<std::string_view> rest;
  if (colon != std::string_view::npos) rest = text.substr(colon + 1);
  if (kind == "dynamic" || (kind == "static" && rest)) return parse_plain(text, kind, rest);
  for (const Framework& each : frameworks()) {
    if (kind != each.name) continue;
    return rest ? OptionParser(each, text).parse(*rest) : each.defaults;
  }
  std::vector<std::string> kinds{"dynamic", "static", "none"};
  kinds.insert(kinds.end(), framework_scalers().begin(), framework_scalers().end());
  const std::string_view number = kind.starts_with("static=") ? kind.substr(7) : kind;
  if (!rest && read_loss_scale("static:" + std::string(number))) {
    throw usage_error("unknown loss scale '" + std::string(text) + "'",
                      "did you mean static:" + std::string(number) + "?");
  }
  const std::string near = closest(kind, kinds);
  const std::string forms = "use dynamic, dynamic:INIT, static:X, none, or a framework's scaler: " +
                            comma_list(framework_scalers());
  throw usage_error("unknown loss scale '" + std::string(text) + "'",
                    near.empty() || near == kind ? forms : did_you_mean(kind, kinds));
}

std::optional<LossScalerConfig> read_loss_scale(std::string_view text) noexcept {
  try {
    return parse_loss_scale(text);
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string loss_scale_text(const LossScalerConfig& config) {
  if (config.kind == Kind::none) return "none";
  const std::string initial = scale_number(config, config.initial);
  const Framework* const framework = framework_of(config.kind);
  if (framework == nullptr) {
    return (config.kind == Kind::dynamic ? "dynamic:" : "static:") + initial;
  }
  const std::string name = framework->name;
  if (config.kind == Kind::deepspeed_bf16) return name;
  if (config.fixed) return name + ":static=" + initial;
  std::string text = name + ":init=" + initial;
  const LossScalerConfig& usual = framework->defaults;
  const auto option = [&](bool differs, const std::string& option) {
    if (differs) text += "," + option;
  };
  const bool torch = config.kind == Kind::torch;
  option(config.growth != usual.growth,
         (torch ? "growth=" : "factor=") + number_text(config.growth));
  option(config.backoff != usual.backoff, "backoff=" + number_text(config.backoff));
  const bool window = std::find(framework->options.begin(), framework->options.end(), "window") !=
                      framework->options.end();
  option(config.growth_interval != usual.growth_interval,
         (window ? "window=" : "interval=") + std::to_string(config.growth_interval));
  option(config.hysteresis != usual.hysteresis, "hysteresis=" + std::to_string(config.hysteresis));
  option(config.consecutive, "consecutive");
  option(config.minimum != usual.minimum, "min=" + number_text(config.minimum));
  option(config.maximum != usual.maximum, "max=" + number_text(config.maximum));
  option(config.raises != usual.raises, config.raises ? "raise" : "no-raise");
  option(config.flushes != usual.flushes, "backend=torch");
  option(config.sums != usual.sums, "sum");
  return text;
}

std::span<const std::string> framework_scalers() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Framework& each : frameworks()) all.emplace_back(each.name);
    return all;
  }();
  return names;
}

StopText stop_text(const LossScalerConfig& config, ScalerStop stop) {
  switch (stop) {
    case ScalerStop::none:
      break;
    case ScalerStop::at_minimum:
      return {"the loss scale is already at its minimum, " + number_text(config.minimum) +
                  ", and the gradients still overflow; DeepSpeed ends the training here",
              "run halfscope diagnose to find what overflows, or lower the minimum with min=X"};
    case ScalerStop::division_by_zero:
      return {
          "the loss scale is 0; apex ends the training with a ZeroDivisionError here",
          "run halfscope diagnose to find what overflows, or give the scale a floor with min=1"};
  }
  return {};
}

}  // namespace halfscope
