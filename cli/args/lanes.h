// SPDX-License-Identifier: MIT
// Lanes: how they are typed or written in files, and what they are with all settings applied.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/args/settings.h"
#include "cli/terminal/output.h"

namespace halfscope {

/// Reads a list such as "float32,cuda:plan.json". Throws Error (usage) that names the flag.
std::vector<LaneRequest> parse_lanes(const std::string& flag, const std::string& list);
/// Reads a plan's name, its JSON, or {"backend": NAME, "plan": either}. Throws Error (usage).
LaneRequest lane_from_json(const Json& json);
/// Returns the lanes as JSON, with the full JSON of every plan that is not a preset.
Json lanes_json(const Settings& settings);

/// Reads the value of --compare, such as "mixed_float16,bfloat16". Throws Error (usage).
std::pair<std::string, std::string> parse_pair(const std::string& text);
/// Reads a format that tensors can be stored in. Throws Error (usage) that names the flag.
FloatFormat stored_format(const std::string& flag, const std::string& text);
/// Reads {"decay": 0.9999, "form": "lerp", "format": "bf16", "compute": "bf16"}; only decay is
/// required. Throws Error (usage).
WeightAverage average_from_json(const Json& json);
Json average_json(const WeightAverage& average);

/// Returns the lanes that --lanes lists, or float32 and the plans of --plan. Throws Error (usage)
/// if both flags are given.
std::vector<LaneRequest> lane_requests(const Settings& settings);
/// Returns the lane's plan, before settings such as --fp32 change it. Throws Error (usage).
Plan plan_of(const LaneRequest& lane, const Settings& settings);
/// Returns the lanes with every setting applied. Throws Error (usage).
std::vector<LaneConfig> lanes_of(const Settings& settings);
/// Returns the settings without those that a lane in full precision does not follow: --fp32,
/// --loss-scale, formats of sums and updates ...
Settings full_precision_settings(Settings settings);
/// Returns which tensors to compare, and when. Throws Error (usage).
ErrorSampling error_sampling(const Settings& settings);

}  // namespace halfscope
