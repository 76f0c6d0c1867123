// SPDX-License-Identifier: MIT
#include "cli/lane_options.h"

#include <algorithm>
#include <optional>
#include <set>

#include "analysis/order_cache.h"
#include "cli/arguments.h"
#include "cli/backends.h"
#include "cli/network.h"
#include "core/error.h"
#include "core/near_miss.h"
#include "core/policy/policy.h"
#include "gpu/backends.h"

namespace halfscope {
namespace {

/// What a lane can begin with.
std::vector<std::string> lane_words() {
  std::vector<std::string> words = plan_words();
  for (const std::string& name : backend_names()) words.push_back(name + ":");
  return words;
}

/// The items of a comma-separated list; a plan's JSON may hold commas, but no braces in names.
/// Throws Error (usage) for an empty one.
std::vector<std::string> split_list(const std::string& list) {
  std::vector<std::string> items;
  for (size_t start = 0; start <= list.size();) {
    size_t comma = start;  // the next one that is not inside a plan's JSON
    for (int depth = 0; comma < list.size() && (list[comma] != ',' || depth > 0); ++comma) {
      depth += (list[comma] == '{' ? 1 : 0) - (list[comma] == '}' ? 1 : 0);
    }
    items.push_back(list.substr(start, comma - start));
    if (items.back().empty()) {
      throw usage_error("--lanes " + list + ": an empty name", "write A,B without blanks");
    }
    start = comma + 1;
  }
  return items;
}

std::optional<Accumulation> accumulation_of(const TrainOptions& options) {
  if (options.accumulate.empty()) return std::nullopt;
  const std::optional<Accumulation> accumulation = parse_accumulation(options.accumulate);
  if (!accumulation) {
    throw usage_error("unknown accumulation " + options.accumulate,
                      accumulation_hint(options.accumulate));
  }
  return accumulation;
}

/// Of what comes after the gradients, whatever the plan says.
void set_update_formats(Plan& plan, const TrainOptions& options) {
  const auto set = [&](auto& target, const std::optional<FloatFormat>& format) {
    if (format) target = *format;
  };
  set(plan.update_compute, stored_format("--optimizer-compute", options.compute_format));
  set(plan.clip, stored_format("--clip-format", options.clip_format));
  if (options.ema.empty()) return;
  const WeightAverage average = parse_weight_average(options.ema);
  set(plan.average, average.format);
  set(plan.average_compute, average.compute);
}

bool names_update_formats(const TrainOptions& options) {
  if (!options.compute_format.empty() || !options.clip_format.empty()) return true;
  if (options.ema.empty()) return false;
  const WeightAverage average = parse_weight_average(options.ema);
  return average.format || average.compute;
}

}  // namespace

bool is_inline_plan(const std::string& plan) { return plan.starts_with('{'); }

std::vector<std::string> lane_names(const TrainOptions& options) {
  if (options.plan.empty()) return split_list(options.lanes);
  if (options.lanes_given) {
    throw usage_error("--plan and --lanes exclude each other", "add the plan to --lanes");
  }
  std::vector<std::string> names{"float32"};
  if (options.plan != "float32") names.push_back(options.plan);
  return names;
}

ErrorSampling error_sampling(const TrainOptions& options) {
  const char* off = options.no_errors ? "--no-errors" : options.no_record ? "--no-record" : nullptr;
  const char* on = options.errors_every > 0   ? "--errors-every"
                   : !options.compare.empty() ? "--compare"
                                              : nullptr;
  if (off != nullptr && on != nullptr) {
    throw usage_error(std::string(off) + " and " + on + " exclude each other",
                      "leave out one of them");
  }
  ErrorSampling sampling;
  sampling.enabled = !options.no_errors && !options.no_record;
  sampling.every = options.errors_every;
  sampling.emulator = &backend_for(preset_plan("float32").value());
  static OrderFiles orders(cache_folder());
  sampling.orders = &orders;
  for (const std::string& pair : options.compare) {
    const size_t comma = pair.find(',');
    if (comma == 0 || comma == std::string::npos || comma + 1 == pair.size()) {
      throw usage_error("--compare " + pair + " does not name two lanes",
                        "write --compare mixed_float16,bfloat16");
    }
    sampling.pairs.emplace_back(pair.substr(0, comma), pair.substr(comma + 1));
    if (sampling.pairs.back().first == sampling.pairs.back().second) {
      throw usage_error("--compare " + pair + " compares a lane with itself", "name two lanes");
    }
  }
  return sampling;
}

std::vector<LaneConfig> lanes_of(const TrainOptions& options) {
  const std::optional<Accumulation> accumulation = accumulation_of(options);
  std::optional<LossScalerConfig> scaler;
  if (!options.loss_scale.empty()) scaler = parse_loss_scale(options.loss_scale);
  check_backend_name(options.backend);
  std::vector<LaneConfig> lanes;
  std::set<std::string> seen;
  bool only_references = true, any_fast = false;
  for (const std::string& text : lane_names(options)) {
    const LaneRequest request = parse_lane(text);
    LaneConfig lane;
    lane.plan = is_inline_plan(request.plan)
                    ? plan_from_json(request.plan)
                    : network_plan(request.plan, options.model,
                                   {.dimensions = parse_dimensions(options.dimensions)});
    if (lane.plan.double_precision && !request.backend.empty()) {
      throw usage_error("--lanes: " + text + " computes in double, for which there is one backend",
                        "write " + request.plan);
    }
    const bool reference = is_full_precision(lane.plan);
    only_references = only_references && reference;
    if (!reference) {
      for (const std::string& glob : options.fp32) keep_fp32(lane.plan, glob);
      if (!options.fp32.empty()) lane.plan.name += "+fp32";
      if (accumulation) accumulate_in(lane.plan, *accumulation);
      set_update_formats(lane.plan, options);
    }
    if (scaler) {
      if (!reference) lane.scaler = *scaler;
    } else if (needs_loss_scaling(lane.plan)) {
      lane.scaler = parse_loss_scale("dynamic");
    }
    if (!request.backend.empty()) lane.own_name = request.backend + ":" + lane.plan.name;
    if (!seen.insert(lane.name()).second) {
      throw usage_error("two lanes are named " + lane.name(),
                        "give every lane's plan its own name");
    }
    std::string backend = request.backend.empty() ? options.backend : request.backend;
    const bool becomes_fast = options.fast && backend == gpu_backend_name(GpuProducts::library);
    if (becomes_fast) backend = gpu_backend_name(GpuProducts::fast);
    any_fast = any_fast || (becomes_fast && !lane.plan.double_precision);
    lane.backend = &backend_for(lane.plan, backend);
    lanes.push_back(std::move(lane));
  }
  if (options.fast && !any_fast) {
    throw usage_error("--fast needs a lane on the backend cuda",
                      "add --backend cuda, or name lanes cuda:PLAN");
  }
  if (only_references && (!options.fp32.empty() || accumulation)) {
    throw usage_error("--fp32 and --accumulate need a lane that is not a reference",
                      "add a plan to --lanes");
  }
  if (only_references && names_update_formats(options)) {
    throw usage_error(
        "--optimizer-compute, --clip-format and formats of --ema need a lane that is not a "
        "reference",
        "add a plan to --lanes");
  }
  return lanes;
}

void add_lane_options(CLI::App& sub, TrainOptions& options) {
  const char* kGroup = "Lanes";
  offer(sub.add_option("--lanes", options.lanes,
                       "Plans to train side by side, presets or files, separated by commas; "
                       "emulated:PLAN, cuda:PLAN and the like name the backend, too")
            ->each([&options](const std::string&) { options.lanes_given = true; })
            ->capture_default_str()
            ->type_name("PLAN,...")
            ->group(kGroup),
        {.words = lane_words(), .files = "*.json", .list = true});
  offer(sub.add_option("--backend", options.backend,
                       "What lanes run on that name none: emulated (this processor), cuda (an "
                       "NVIDIA GPU, products by cuBLASLt and cuDNN) or cuda-own (by our own "
                       "kernels, with the emulator's bits)")
            ->capture_default_str()
            ->type_name("NAME")
            ->group(kGroup),
        {.words = backend_names()});
  sub.add_flag("--fast", options.fast,
               "Lanes on cuda let the libraries choose: bits may change from run to run, and "
               "statistics of products may be those after rounding")
      ->group(kGroup);
  sub.add_flag(
         "--kernels", options.kernels,
         "Print the kernel that runs each matrix product on the GPU and, at the end, what was "
         "launched as CUDA graphs")
      ->group(kGroup);
  sub.add_option("--fp32", options.fp32,
                 "Keep layers whose path matches in fp32; may be given several times")
      ->expected(1)
      ->take_all()
      ->type_name("GLOB")
      ->group(kGroup);
  offer(sub.add_option("--accumulate", options.accumulate,
                       "How lanes sum: fp32, fp64, pairwise, kahan, format, format-mul-add, "
                       "fma32-then-round or tensor-core:ARCH, each with options such as "
                       "promote=128 or, of the formats, rounding=stochastic; default: as the "
                       "plan says")
            ->type_name("A")
            ->group(kGroup),
        {.words = {accumulation_names().begin(), accumulation_names().end()}});
}

void add_comparison_options(CLI::App& sub, TrainOptions& options, const std::string& steps) {
  const char* kGroup = "Recording";
  add_integer(sub, "--errors-every", options.errors_every, 1, kMostCounted,
              "Compare the lanes' tensors and watch their sums every N " + steps +
                  "; default: first, middle and last")
      ->group(kGroup);
  sub.add_option("--compare", options.compare,
                 "Lanes to compare; default: each with the reference; may be given several times")
      ->expected(1)
      ->take_all()
      ->type_name("LANE,LANE")
      ->group(kGroup);
  sub.add_flag("--no-errors", options.no_errors, "Compare no tensors")->group(kGroup);
}

void add_run_lane_options(CLI::App& sub, TrainOptions& options) {
  add_lane_options(sub, options);
  const char* kGroup = "Recording";
  add_integer(sub, "--every", options.every, 1, 1'000'000'000,
              "Record statistics every N batches; needs --record")
      ->default_str(std::to_string(options.every))
      ->group(kGroup);
  add_comparison_options(sub, options, "batches");
}

}  // namespace halfscope
