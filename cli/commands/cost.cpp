// SPDX-License-Identifier: MIT
// `halfscope cost`: memory and estimated time of plans.
#include "cli/tasks/cost.h"

#include <memory>

#include "cli/args/arguments.h"
#include "cli/args/setting.h"
#include "cli/commands/command.h"
#include "core/error.h"
#include "core/near_miss.h"

namespace halfscope {
namespace {

struct Flags {
  std::string devices = "a100";
  bool inference = false, all_layers = false;
};

std::vector<std::string> device_words() {
  std::vector<std::string> words;
  for (const Device& device : devices()) words.emplace_back(device.name);
  return words;
}

}  // namespace

void add_cost(CLI::App& app, Invocation& call) {
  auto flags = std::make_shared<Flags>();
  CLI::App* sub =
      app.add_subcommand("cost", "Count a network's memory and estimate its time under plans");
  sub->footer(
      "Example:  halfscope cost resnet50 --batch 256 --device v100,t4\n"
      "          halfscope cost net.onnx --plan bfloat16 --device h100");
  add_settings(*sub, kCost);
  offer(sub->add_option("--device", flags->devices,
                        "Devices to estimate for, or all: " + comma_list(device_words()))
            ->type_name("NAME,...")
            ->capture_default_str()
            ->group(group::kCommon),
        {.words = device_words(), .list = true});
  sub->add_flag("--inference", flags->inference, "Count a forward pass instead of a training step")
      ->group(group::kCommon);
  sub->add_flag("--layers", flags->all_layers, "Show all layers [the slowest]")
      ->group(group::kOutput);
  sub->callback([sub, flags, &call] {
    call.action = [sub, flags] {
      const Settings settings = read_settings(*sub, kCost);
      if (settings.model.empty())
        throw usage_error("cost needs a network", "try halfscope cost resnet50");
      const CostOptions options{parse_devices(flags->devices), flags->inference, flags->all_layers};
      return print_cost(kVersion, settings, options);
    };
  });
}

}  // namespace halfscope
