// SPDX-License-Identifier: MIT
#include "cli/args/lanes.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include "analysis/order_cache.h"
#include "cli/args/network.h"
#include "cli/args/planned_network.h"
#include "cli/args/tf_amp.h"
#include "core/error.h"
#include "core/near_miss.h"
#include "core/policy/grappler/training_graph.h"
#include "core/policy/policy.h"
#include "core/train/lane_setup.h"
#include "gpu/backends.h"

namespace halfscope {
namespace {

/// Sets the formats of the update, which override the plan.
void set_update_formats(Plan& plan, const Settings& settings) {
  const auto set = [](auto& target, const std::optional<FloatFormat>& format) {
    if (format) target = *format;
  };
  set(plan.update_compute, settings.optimizer_compute);
  set(plan.clip, settings.clip_format);
  set(plan.schedule, settings.schedule.format);
  if (!settings.average) return;
  set(plan.average, settings.average->format);
  set(plan.average_compute, settings.average->compute);
}

bool names_update_formats(const Settings& settings) {
  return settings.optimizer_compute || settings.clip_format || settings.schedule.format ||
         (settings.average && (settings.average->format || settings.average->compute));
}

/// `preset`: the name of the plan before settings such as --fp32 changed it.
LossScalerConfig scaler_of(const Plan& plan, const std::string& preset, const Settings& settings) {
  if (settings.loss_scale) {
    return is_full_precision(plan) ? LossScalerConfig{} : *settings.loss_scale;
  }
  return needs_loss_scaling(plan) ? parse_loss_scale(usual_scaler(preset)) : LossScalerConfig{};
}

/// Returns the lane's backend; --fast replaces cuda by cuda-fast.
std::string backend_of(const LaneRequest& lane, const Settings& settings) {
  const std::string name = lane.backend.empty() ? settings.backend : lane.backend;
  const bool moves = settings.fast && name == gpu_backend_name(GpuProducts::library);
  return moves ? gpu_backend_name(GpuProducts::fast) : name;
}

LaneConfig lane_of(const LaneRequest& request, const Settings& settings) {
  LaneConfig lane{.plan = plan_of(request, settings), .scaler = {}};
  if (lane.plan.double_precision && !request.backend.empty()) {
    throw usage_error(
        "--lanes: '" + lane_text(request) + "' runs in double precision, which has its own backend",
        "write " + request.plan);
  }
  if (!is_full_precision(lane.plan)) {
    about({"fp32"}, [&] {
      for (const std::string& glob : settings.fp32) keep_fp32(lane.plan, glob);
    });
    if (!settings.fp32.empty()) lane.plan.name += "+fp32";
    if (settings.accumulation) accumulate_in(lane.plan, *settings.accumulation);
    if (settings.fuse) {
      lane.plan.fuses = true;
      lane.plan.name += "+fused";
    }
    set_update_formats(lane.plan, settings);
  }
  lane.scaler = scaler_of(lane.plan, request.plan, settings);
  if (!request.backend.empty()) lane.own_name = request.backend + ":" + lane.plan.name;
  const std::vector<std::string> causes{request.backend.empty() ? "backend" : "lanes"};
  about(causes, [&] { lane.backend = &backend_for(lane.plan, backend_of(request, settings)); });
  return lane;
}

/// Throws Error (usage) for settings that no lane follows.
void check_followed(const Settings& settings, const std::vector<LaneConfig>& lanes) {
  const std::string fast = gpu_backend_name(GpuProducts::fast);
  const auto is_fast = [&](const LaneConfig& lane) { return lane.backend->name() == fast; };
  if (settings.fast && std::none_of(lanes.begin(), lanes.end(), is_fast)) {
    throw usage_error("--fast needs a lane on the backend cuda",
                      "add --backend cuda, or name lanes cuda:PLAN")
        .about({"fast"});
  }
  const auto is_reference = [](const LaneConfig& lane) { return is_full_precision(lane.plan); };
  if (!std::all_of(lanes.begin(), lanes.end(), is_reference)) return;
  const char* const unused = !settings.fp32.empty()  ? "fp32"
                             : settings.accumulation ? "accumulate"
                             : settings.fuse         ? "fuse"
                                                     : nullptr;
  if (unused != nullptr) {
    throw usage_error(std::string("--") + unused + " needs a lane that is not a reference",
                      "add a plan to --lanes")
        .about({unused});
  }
  if (settings.optimizer_state || settings.accumulate_grads) {
    throw usage_error(
        std::string(settings.optimizer_state ? "--optimizer-state" : "--accumulate-grads") +
            " needs a lane that is not a reference",
        "add a plan to --lanes")
        .about({settings.optimizer_state ? "optimizer_state" : "accumulate_grads"});
  }
  if (names_update_formats(settings)) {
    throw usage_error(
        "--optimizer-compute, --clip-format and formats of --ema and --schedule need a lane that "
        "is not a reference",
        "add a plan to --lanes")
        .about({"optimizer_compute", "clip_format", "ema", "schedule"});
  }
}

}  // namespace

std::vector<LaneRequest> parse_lanes(const std::string& flag, const std::string& list) {
  std::vector<LaneRequest> lanes;
  for (const std::string& text : split_lanes(list)) {
    if (text.empty()) {
      throw usage_error(flag + " " + list + ": an empty name", "write A,B without blanks");
    }
    lanes.push_back(parse_lane(text));
  }
  return lanes;
}

LaneRequest lane_from_json(const Json& json) {
  if (json.is_string()) {
    if (json.get<std::string>().empty()) throw usage_error("a plan has an empty name");
    return parse_lane(json.get<std::string>());
  }
  if (!json.is_object()) {
    throw usage_error("must be a plan: its name, its JSON or {\"backend\": NAME, \"plan\": PLAN}");
  }
  if (!json.contains("plan") && !json.contains("backend")) {
    return {.backend = "", .plan = "", .spelled_out = plan_from_json(json.dump())};
  }
  for (const auto& [member, unused] : json.items()) {
    if (member != "plan" && member != "backend") {
      throw usage_error("unknown key \"" + member + "\"", "keys: backend, plan");
    }
  }
  if (!json.contains("plan")) throw usage_error("a lane names a backend without a \"plan\"");
  const Json& plan = json["plan"];
  if (plan.is_object() && (plan.contains("plan") || plan.contains("backend"))) {
    throw usage_error("\"plan\" must be a plan's name or its JSON");
  }
  LaneRequest lane = lane_from_json(plan);
  if (!json.contains("backend")) return lane;
  if (!json["backend"].is_string()) throw usage_error("\"backend\" must be a text");
  lane.backend = json["backend"];
  check_backend_name(lane.backend);
  return lane;
}

Json lanes_json(const Settings& settings) {
  Json lanes = Json::array();
  for (const LaneRequest& lane : lane_requests(settings)) {
    Json plan = lane.plan;
    if (lane.spelled_out || !preset_plan(lane.plan)) {
      plan = Json::parse(plan_to_json(plan_of(lane, settings)));
    }
    if (!lane.backend.empty()) plan = {{"backend", lane.backend}, {"plan", plan}};
    lanes.push_back(std::move(plan));
  }
  return lanes;
}

std::pair<std::string, std::string> parse_pair(const std::string& text) {
  const size_t comma = text.find(',');
  if (comma == 0 || comma == std::string::npos || comma + 1 == text.size()) {
    throw usage_error("--compare '" + text + "': not two lanes",
                      "write --compare mixed_float16,bfloat16");
  }
  std::pair<std::string, std::string> lanes{text.substr(0, comma), text.substr(comma + 1)};
  if (lanes.first == lanes.second) {
    throw usage_error("--compare '" + text + "' compares a lane with itself",
                      "name two different lanes");
  }
  return lanes;
}

FloatFormat stored_format(const std::string& flag, const std::string& text) {
  const std::optional<FloatFormat> format = parse_format(text);
  if (!format) throw usage_error(flag + ": unknown format '" + text + "'", format_hint(text));
  if (format->flush_in && !format->flush_out) {
    throw usage_error(flag + " '" + text + "': a stored format cannot flush only what is read",
                      "use :ftz or :ftz-out, which flush what is written");
  }
  return *format;
}

WeightAverage average_from_json(const Json& json) {
  const std::vector<std::string> keys{"decay", "form", "format", "compute"};
  const std::string example = "write {\"decay\": 0.999, \"format\": \"bf16\"}";
  if (!json.is_object()) throw usage_error("must be a number, a text or an object", example);
  std::string decay, options;
  for (const auto& [key, value] : json.items()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      throw usage_error("unknown key \"" + key + "\"",
                        did_you_mean(key, keys, "keys: " + comma_list(keys)));
    }
    if (value.is_null()) continue;
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    if (value.is_structured() || value.is_boolean() || text.find_first_of(",:=") != text.npos) {
      throw usage_error("\"" + key + "\" must be one text or number", example);
    }
    if (key == "decay") {
      decay = text;
    } else {
      options += (options.empty() ? ":" : ",") + key + "=" + text;
    }
  }
  if (decay.empty()) throw usage_error("\"decay\" is missing", example);
  return parse_weight_average(decay + options);
}

Json average_json(const WeightAverage& average) {
  Json json{{"decay", average.decay},
            {"form", average.form == WeightAverage::Form::lerp ? "lerp" : "average"}};
  if (average.format) json["format"] = format_name(*average.format);
  if (average.compute) json["compute"] = format_name(*average.compute);
  return json;
}

std::vector<LaneRequest> lane_requests(const Settings& settings) {
  if (settings.plans.empty()) return settings.lanes;
  if (settings.is_given("lanes")) {
    throw usage_error("--plan and --lanes exclude each other", "add the plan to --lanes")
        .about({"plan", "lanes"});
  }
  std::vector<LaneRequest> lanes{parse_lane("float32")};
  for (const LaneRequest& lane : settings.plans) {
    if (lane_text(lane) != "float32") lanes.push_back(lane);
  }
  return lanes;
}

namespace {

/// Returns the network of an ONNX file without its weights. Keeps the last one, because all lanes
/// of a command, and most trials of a study, ask for the same.
const Model& network_of_file(const Settings& settings) {
  struct Known {
    std::string file;
    std::filesystem::file_time_type time;
    NetworkOptions options;
    Model network;
  };
  static std::optional<Known> known;
  NetworkOptions options = network_options(settings);
  options.quiet = true;
  std::error_code ignored;  // a missing file is refused below
  const auto time = std::filesystem::last_write_time(settings.model, ignored);
  const bool same = known && known->file == settings.model && known->time == time &&
                    known->options.dimensions == options.dimensions &&
                    known->options.trainable == options.trainable &&
                    known->options.frozen == options.frozen &&
                    known->options.untied == options.untied;
  if (!same) {
    known = Known{settings.model, time, options, load_network_file(settings.model, options).model};
    known->network.initial.clear();
  }
  return known->network;
}

}  // namespace

Plan plan_of(const LaneRequest& lane, const Settings& settings) {
  if (lane.spelled_out) return *lane.spelled_out;
  if (needs_network(lane.plan)) {
    if (settings.model.empty()) {
      throw usage_error("'" + lane.plan + "' decides node by node and needs a network",
                        "add --model");
    }
    const Model network = planned_network(settings);
    if (!is_tf_amp(lane.plan)) return preset_plan(lane.plan, network).value();
    Plan plan = grappler::tf_amp_plan(network, amp_options(lane.plan));
    plan.name = lane.plan;
    return plan;
  }
  // Exporters write some functions as several operators, which only a look at the file shows.
  if (depends_on_file(lane.plan) && is_network_file(settings.model))
    return preset_plan(lane.plan, network_of_file(settings)).value();
  if (depends_on_network(lane.plan) && is_network_file(settings.model))
    return preset_plan(lane.plan, planned_network(settings)).value();
  return network_plan(lane.plan, settings.model, network_options(settings));
}

std::vector<LaneConfig> lanes_of(const Settings& settings) {
  std::vector<LaneConfig> lanes;
  std::set<std::string> seen;
  about({settings.plans.empty() ? "lanes" : "plan"}, [&] {
    for (const LaneRequest& request : lane_requests(settings)) {
      lanes.push_back(lane_of(request, settings));
      if (!seen.insert(lanes.back().name()).second) {
        throw usage_error("two lanes are named '" + lanes.back().name() + "'",
                          "give every lane's plan its own name");
      }
    }
  });
  check_followed(settings, lanes);
  return with_references(std::move(lanes));
}

Settings full_precision_settings(Settings settings) {
  settings.fp32.clear();
  settings.accumulation.reset();
  settings.fuse = false;
  settings.loss_scale.reset();
  // Mistakes with a loss scale, which such a lane does not have.
  settings.clip_before_unscale = settings.unscale_only = false;
  settings.accumulate_grads.reset();
  settings.optimizer_state.reset();
  settings.optimizer_compute.reset();
  settings.clip_format.reset();
  settings.schedule.format.reset();
  if (settings.average) {
    settings.average->format.reset();
    settings.average->compute.reset();
  }
  if (settings.reduction) {
    settings.reduction->format.reset();
    if (*settings.reduction == Reduction{}) settings.reduction.reset();
  }
  return settings;
}

ErrorSampling error_sampling(const Settings& settings) {
  const char* off = settings.no_errors   ? "--no-errors"
                    : settings.no_record ? "--no-record"
                                         : nullptr;
  const char* on = settings.errors_every > 0   ? "--errors-every"
                   : !settings.compare.empty() ? "--compare"
                                               : nullptr;
  if (off != nullptr && on != nullptr) {
    throw usage_error(std::string(off) + " and " + on + " exclude each other",
                      "leave out one of them")
        .about({"no_errors", "no_record", "errors_every", "compare"});
  }
  ErrorSampling sampling{.enabled = off == nullptr,
                         .every = settings.errors_every,
                         .pairs = settings.compare,
                         .emulator = &backend_for(preset_plan("float32").value())};
  static OrderFiles orders(cache_folder());
  sampling.orders = &orders;
  return sampling;
}

}  // namespace halfscope
