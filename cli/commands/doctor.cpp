// SPDX-License-Identifier: MIT
// `halfscope doctor`: see doctor.h.
#include "cli/tasks/doctor.h"

#include <optional>
#include <sstream>
#include <utility>

#include "cli/args/lanes.h"
#include "cli/args/network.h"
#include "cli/args/setting.h"
#include "cli/args/zoo_case.h"
#include "cli/commands/command.h"
#include "cli/terminal/output.h"
#include "core/error.h"

namespace halfscope {
namespace {

std::optional<DoctorNetwork> examined(const Settings& settings) {
  if (settings.model.empty()) {
    for (const char* key : {"plan", "data", "dimension", "batch"}) {
      if (!settings.is_given(key)) continue;
      throw usage_error(std::string("--") + key + " is for the layers of a network", "add --model");
    }
    return std::nullopt;
  }
  DoctorNetwork result;
  result.model = settings.model;
  const LaneRequest asked =
      settings.plans.empty() ? parse_lane("mixed_float16") : settings.plans[0];
  result.plan = lane_text(asked);
  NetworkOptions wanted = network_options(settings);
  wanted.batch = result.batch = settings.batch > 0 ? settings.batch : 128;
  wanted.batch_given = settings.batch > 0;
  if (!settings.data.empty()) describe_samples(load_data(settings.data), wanted);
  const Plan plan = plan_of(asked, settings);
  if (plan.double_precision) {
    throw usage_error(
        "--plan '" + result.plan + "' runs in double precision, which is only a reference",
        "name a plan of 32 or fewer bits");
  }
  Model network;
  if (is_network_file(settings.model)) {
    OnnxImport import = load_network_file(settings.model, wanted);
    if (!takes_batch(import, wanted.batch)) result.batch = 0;
    network = std::move(import.model);
  } else {
    network = load_network(settings.model, wanted);
    if (zoo::is_zoo(settings.model)) result.batch = 0;  // it fixes that
  }
  result.layers = tensor_core_fits(lower_inference(network, plan));
  return result;
}

}  // namespace

void add_doctor(CLI::App& app, Invocation& call) {
  CLI::App* sub = app.add_subcommand(
      "doctor", "Show this machine's hardware and which layers fit tensor cores");
  sub->footer("Example:  halfscope doctor --model lenet --plan mixed_float16 --batch 256");
  add_settings(*sub, kDoctor);
  sub->callback([sub, &call] {
    call.action = [sub] {
      const Settings settings = read_settings(*sub, kDoctor);
      const std::optional<DoctorNetwork> network = examined(settings);
      const DoctorNetwork* looked_at = network ? &*network : nullptr;
      if (settings.json) {
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
