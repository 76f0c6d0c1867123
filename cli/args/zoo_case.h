// SPDX-License-Identifier: MIT
// The cases of the zoo as networks, data and settings of `train` and `run`: "zoo:F7".
#pragma once

#include <string>
#include <vector>

#include "cli/args/settings.h"
#include "core/data/dataset.h"
#include "core/models/zoo/zoo.h"

namespace halfscope {

/// Returns the case of "zoo:F7". Throws Error (usage) that names the nearest one and all.
const zoo::Case& zoo_case(const std::string& spec);
/// Returns what it builds, which is kept for the next call.
const zoo::Setup& zoo_setup(const std::string& spec);

/// Returns the network of "zoo:F7", under that name.
Model zoo_network(const std::string& spec);
/// Returns its samples. Inference reads the test part, training the other one.
Dataset zoo_data(const std::string& spec);
/// Loads the data of a case, or a data set that load_dataset() knows.
Dataset load_data(const std::string& spec);

/// Fills in what the network's case says of data and training, where the user has said nothing.
/// Does nothing for other networks. Throws Error (usage) for an unknown case, and for one that is
/// trained if it is to be run, or the other way round.
void take_case_settings(Settings& settings);

/// Returns the plan "zoo:naive_float16". Throws Error (usage) that names the nearest one.
Plan zoo_plan_of(const std::string& spec);

/// Returns the plan (plans.h) under which the case is worth a look.
std::string plan_of_case(const zoo::Case& which);
/// Fills in that plan, and what belongs to it, where the user has said nothing of lanes.
void take_case_plan(Settings& settings);

/// Returns the words that have `train` or `run` do what the case does under a plan (plans.h):
/// "--plan", "mixed_bfloat16", "--accumulate-grads", "bf16".
std::vector<std::string> lane_words(const zoo::Case& which, const std::string& plan);

}  // namespace halfscope
