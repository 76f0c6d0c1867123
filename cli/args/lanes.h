// SPDX-License-Identifier: MIT
// Lanes: how they are typed or written in files, and what they are with all settings applied.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/args/settings.h"
#include "cli/terminal/output.h"

namespace halfscope {

/// "float32,cuda:plan.json": the lanes of a list. Throws Error (usage) that names the flag.
std::vector<LaneRequest> parse_lanes(const std::string& flag, const std::string& list);
/// A plan's name, its JSON, or {"backend": NAME, "plan": either}. Throws Error (usage).
LaneRequest lane_from_json(const Json& json);
/// The lanes of the settings with every plan spelled out that is no preset.
Json lanes_json(const Settings& settings);

/// "mixed_float16,bfloat16" of --compare. Throws Error (usage).
std::pair<std::string, std::string> parse_pair(const std::string& text);
/// A format that tensors are stored in. Throws Error (usage) that names the flag.
FloatFormat stored_format(const std::string& flag, const std::string& text);
/// {"decay": 0.9999, "form": "lerp", "format": "bf16", "compute": "bf16"}; the first is required.
/// Throws Error (usage).
WeightAverage average_from_json(const Json& json);
Json average_json(const WeightAverage& average);

/// The lanes of --lanes, or float32 and those of --plan. Throws Error (usage) if both are given.
std::vector<LaneRequest> lane_requests(const Settings& settings);
/// The plan of a lane, without what other settings change. Throws Error (usage).
Plan plan_of(const LaneRequest& lane, const Settings& settings);
/// The lanes as they are trained or run. Throws Error (usage).
std::vector<LaneConfig> lanes_of(const Settings& settings);
/// Which tensors are compared, and when. Throws Error (usage).
ErrorSampling error_sampling(const Settings& settings);

}  // namespace halfscope
