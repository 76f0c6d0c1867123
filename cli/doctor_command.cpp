// SPDX-License-Identifier: MIT
// `halfscope doctor`: see doctor.h.
#include <memory>
#include <optional>
#include <sstream>
#include <utility>

#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/doctor.h"
#include "cli/network.h"
#include "cli/output.h"
#include "core/error.h"

namespace halfscope {
namespace {

struct DoctorOptions {
  std::string model, data, plan;
  std::vector<std::string> dimensions;
  int64_t batch = 0;  ///< 0: not given
  bool json = false;
};

std::optional<DoctorNetwork> examined(const DoctorOptions& options) {
  if (options.model.empty()) {
    const char* flag = !options.plan.empty()         ? "--plan"
                       : !options.data.empty()       ? "--data"
                       : !options.dimensions.empty() ? "--dimension"
                       : options.batch > 0           ? "--batch"
                                                     : nullptr;
    if (flag == nullptr) return std::nullopt;
    throw usage_error(std::string(flag) + " is for the layers of a network", "add --model");
  }
  DoctorNetwork result;
  result.model = options.model;
  result.plan = options.plan.empty() ? "mixed_float16" : options.plan;
  NetworkOptions wanted;
  wanted.batch = result.batch = options.batch > 0 ? options.batch : 128;
  wanted.batch_given = options.batch > 0;
  wanted.dimensions = parse_dimensions(options.dimensions);
  // As in a training; files and fully connected networks say themselves what they take.
  const bool takes_images = !is_network_file(options.model) && !options.model.starts_with("mlp:");
  if (!options.data.empty() || takes_images) {
    describe_samples(load_dataset(options.data.empty() ? "digits" : options.data), wanted);
  }
  const Plan plan = network_plan(result.plan, options.model, wanted);
  if (plan.double_precision) {
    throw usage_error("--plan " + result.plan + " computes in double, which is for reference alone",
                      "name a plan of 32 or fewer bits");
  }
  Model network;
  if (is_network_file(options.model)) {
    OnnxImport import = load_network_file(options.model, wanted);
    if (!takes_batch(import, wanted.batch)) result.batch = 0;
    network = std::move(import.model);
  } else {
    network = load_network(options.model, wanted);
  }
  result.layers = tensor_core_fits(lower_inference(network, plan));
  return result;
}

}  // namespace

void add_doctor(CLI::App& app, Command& command) {
  auto options = std::make_shared<DoctorOptions>();
  CLI::App* sub = app.add_subcommand(
      "doctor", "Say what this machine and this build offer, and which layers suit tensor cores");
  sub->footer("Example:  halfscope doctor --model lenet --plan mixed_float16 --batch 256");
  const char* kGroup = "Network and data";
  offer(sub->add_option("--model", options->model,
                        "List the layers of lenet, lenet-hot, resnet20, mlp:A-B-...-Z or a file "
                        "*.onnx, and whether their dimensions suit tensor cores")
            ->type_name("NAME")
            ->group(kGroup),
        {.words = network_words(), .files = "*.onnx"});
  offer(sub->add_option("--plan", options->plan,
                        "Whose formats the layers read; default: mixed_float16")
            ->type_name("PLAN")
            ->group(kGroup),
        {.words = plan_words(), .files = "*.json"});
  add_integer(*sub, "--batch", options->batch, 1, kMostSamples,
              "Samples at once, where the network leaves it open; default: 128")
      ->default_str("")
      ->group(kGroup);
  offer(sub->add_option("--data", options->data,
                        "Data whose shape a built-in network takes: digits, mnist:DIR, ...; "
                        "default: digits")
            ->type_name("SPEC")
            ->group(kGroup),
        {.words = {"digits", "mnist:", "cifar10:"}, .folders_after = {"mnist:", "cifar10:"}});
  add_dimension_option(*sub, options->dimensions);
  sub->add_flag("--json", options->json, "Print it as JSON")->group(group::kOutput);
  sub->callback([options, &command] {
    command = [options] {
      const std::optional<DoctorNetwork> network = examined(*options);
      const DoctorNetwork* looked_at = network ? &*network : nullptr;
      if (options->json) {
        write_json(doctor_json(kVersion, looked_at));
        return 0;
      }
      std::ostringstream text;
      const int code = run_doctor(text, kVersion, looked_at);
      write_out(text.view());
      return code;
    };
  });
}

}  // namespace halfscope
