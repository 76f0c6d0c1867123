// SPDX-License-Identifier: MIT
// `halfscope quantize`: a plan for inference in int8, fp8 or another narrow format.
#include "cli/tasks/quantize.h"

#include <memory>

#include "cli/args/arguments.h"
#include "cli/args/network.h"
#include "cli/args/setting.h"
#include "cli/commands/command.h"
#include "cli/tasks/cost.h"
#include "core/error.h"
#include "core/near_miss.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

struct Flags {
  std::string format = "int8", method = "max", scales = "channel", devices = "a100";
  int64_t calibration = 512;
  double tolerance = -1.0;
  std::vector<std::string> keep;
};

FloatFormat code_format(const std::string& text) {
  const std::optional<FloatFormat> format = parse_format(text);
  if (!format) {
    throw usage_error("--format: unknown format '" + text + "'", format_hint(text));
  }
  if (format->bits() > 8) {
    throw usage_error("--format: " + text + " has more than 8 bits and needs no calibration",
                      "use int8, e4m3fn or another narrow format");
  }
  return *format;
}

RangeMethod range_method(const std::string& text) {
  if (const std::optional<RangeMethod> method = parse_range_method(text)) return *method;
  const std::vector<std::string> methods{"max", "percentile", "percentile:99.9", "mse", "entropy"};
  throw usage_error("--method: unknown method '" + text + "'",
                    did_you_mean(text, methods,
                                 "use max, percentile:P with P above 0 and at most 100, mse or "
                                 "entropy"));
}

QuantizeOptions options_of(const Flags& flags) {
  QuantizeOptions options{.format = code_format(flags.format),
                          .method = range_method(flags.method),
                          .by_channel = flags.scales == "channel",
                          .calibration = flags.calibration,
                          .kept = flags.keep,
                          .devices = parse_devices(flags.devices)};
  if (flags.tolerance >= 0.0) {
    options.tolerance = {.quality = flags.tolerance, .error = flags.tolerance};
  }
  return options;
}

}  // namespace

void add_quantize(CLI::App& app, Invocation& call) {
  auto flags = std::make_shared<Flags>();
  CLI::App* sub = app.add_subcommand("quantize", "Make a plan for inference in int8, int4 or fp8");
  sub->footer(
      "Example:  halfscope quantize net.onnx --data mnist:data/mnist --out int8.json\n"
      "          halfscope quantize lenet --init w.npz --data digits --format e4m3fn --method mse");
  add_settings(*sub, kQuantize);
  offer(sub->add_option("--format", flags->format, "Format of operands of products")
            ->type_name("FORMAT")
            ->capture_default_str()
            ->group(group::kCommon),
        {.words = {"int8", "int4", "e4m3fn", "e5m2"}});
  offer(sub->add_option("--method", flags->method,
                        "How to choose the range of activations: max, percentile:P, mse or entropy")
            ->type_name("METHOD")
            ->capture_default_str()
            ->group(group::kCommon),
        {.words = {"max", "percentile:99.99", "mse", "entropy"}});
  offer(sub->add_option("--scales", flags->scales,
                        "Scales of weights: one for each output channel, or one per tensor")
            ->type_name("channel|tensor")
            ->check(CLI::IsMember({"channel", "tensor"}))
            ->capture_default_str()
            ->group(group::kCommon),
        {.words = {"channel", "tensor"}});
  add_integer(*sub, "--calibration", flags->calibration, 1, kMostSamples,
              "Samples to calibrate with, from the training part if there is one [512]")
      ->group(group::kCommon);
  add_number(*sub, "--tolerance", flags->tolerance, 0.0, 1.0,
             "Loss of accuracy (of mAP50) that is allowed [0.01]; without labels, relative error "
             "of the outputs [0.1]")
      ->group(group::kCommon);
  sub->add_option("--keep", flags->keep, "Layers not to quantize, by path (repeatable)")
      ->type_name("GLOB")
      ->expected(1)
      ->take_all()
      ->group(group::kCommon);
  offer(sub->add_option("--device", flags->devices, "Devices to estimate the latency for")
            ->type_name("NAME,...")
            ->capture_default_str()
            ->group(group::kOutput),
        {.words = {"a100", "h100", "t4"}, .list = true});
  sub->callback([sub, flags, &call] {
    call.action = [sub, flags] {
      const Settings settings = read_settings(*sub, kQuantize);
      if (settings.model.empty()) {
        throw usage_error("quantize needs a network", "try halfscope quantize lenet --data digits");
      }
      check_network_exists(settings.model);
      return quantize_network(settings, options_of(*flags));
    };
  });
}

}  // namespace halfscope
