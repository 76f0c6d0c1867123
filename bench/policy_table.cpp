// SPDX-License-Identifier: MIT
// Networks under the policies of frameworks: nodes per format, casts, bytes they move, and loss and
// accuracy of trainings with the same seed and batches. Prints Markdown.
//
//   policy_table [--steps N] [NETWORK...]      NETWORK: lenet, resnet20, or a case of the zoo
#include <fmt/format.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "analysis/memory_sink.h"
#include "analysis/plans/casts.h"
#include "analysis/plans/decisions.h"
#include "core/data/dataset.h"
#include "core/error.h"
#include "core/models/zoo/zoo.h"
#include "core/policy/policy.h"
#include "core/train/trainer.h"
#include "emulation/backends.h"

namespace halfscope {
namespace {

/// A network, its data, and how it is trained.
struct Subject {
  std::string name;
  Model model;
  Dataset data;
  TrainConfig train;
};

Subject subject_named(const std::string& name, int64_t steps) {
  for (const zoo::Case& each : zoo::all_cases()) {
    if (each.id != name) continue;
    zoo::Setup setup = each.make();
    if (!setup.trains) throw usage_error(name + " is not trained", "name a case that trains");
    TrainConfig train = setup.train;
    train.build = [model = setup.model](int64_t) { return model; };
    train.steps = steps;
    return {name, std::move(setup.model), std::move(setup.data), std::move(train)};
  }
  Dataset data = make_digits();
  TrainConfig train;
  train.model = name;
  train.steps = steps;
  Model model = build_model(name, train.batch, data.sample_shape, data.classes);
  return {name, std::move(model), std::move(data), std::move(train)};
}

struct Result {
  double loss = 0.0;  ///< mean of the last fifth of the steps
  double accuracy = std::numeric_limits<double>::quiet_NaN();  ///< NaN without labels
  int64_t skipped = 0;
};

/// Trains one policy, alone: all of them at once would need the memory of as many networks. Each
/// gets the same weights and batches.
Result trained(const Subject& subject, const std::string& name, const Plan& plan) {
  TrainConfig config = subject.train;
  config.every = 0;
  const bool scales = needs_loss_scaling(plan);
  config.lanes = {{.plan = plan,
                   .scaler = scales ? parse_loss_scale(usual_scaler(name)) : LossScalerConfig{},
                   .backend = &emulation_backend(),
                   .own_name = name}};
  Trainer trainer(config, subject.data);
  MemorySink sink;
  sink.begin(trainer.describe());
  const std::atomic<bool> stop{false};
  trainer.run(&sink, nullptr, stop);
  const RunView run = sink.view();
  Result result;
  const auto rows = run.steps(0);
  for (const StepRow& row : rows) result.skipped += row.skipped ? 1 : 0;
  const auto last = rows.last((rows.size() + 4) / 5);
  for (const StepRow& row : last) result.loss += row.loss / static_cast<double>(last.size());
  if (!run.evals(0).empty()) result.accuracy = run.evals(0).back().accuracy;
  return result;
}

void print(const Subject& subject) {
  fmt::print("\n### {}, {} steps\n\n", subject.name, subject.train.steps);
  fmt::print(
      "| policy | nodes in fp32 | in fewer bits | casts | MB moved | skipped steps | loss | "
      "accuracy |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
  for (const PresetInfo& preset : presets()) {
    const std::optional<Plan> plan = preset_plan(preset.name, subject.model);
    if (!plan || plan->double_precision) continue;
    const ExplainedPlan explained = explain_plan(subject.model, *plan);
    int64_t full = 0;
    for (const NodeDecision& node : explained.nodes) full += node.read == kFp32 ? 1 : 0;
    const CastTotals casts = total(value_casts(explained.executable));
    const Result result = trained(subject, preset.name, *plan);
    const std::string accuracy =
        std::isnan(result.accuracy) ? "" : fmt::format("{:.1f}%", 100.0 * result.accuracy);
    fmt::print("| `{}` | {} | {} | {} | {:.3g} | {} | {:.4g} | {} |\n", preset.name, full,
               static_cast<int64_t>(explained.nodes.size()) - full, casts.casts,
               static_cast<double>(casts.bytes) / 1e6, result.skipped, result.loss, accuracy);
  }
}

int run(int count, char** words) {
  int64_t steps = 100;
  std::vector<std::string> names;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    if (word == "--steps" && i + 1 < count) {
      steps = std::atoll(words[++i]);
    } else if (word.starts_with("-")) {
      throw usage_error("unknown flag '" + word + "'", "policy_table [--steps N] [NETWORK...]");
    } else {
      names.push_back(word);
    }
  }
  if (steps < 1) throw usage_error("--steps needs a number of steps, 1 or more", "try --steps 100");
  if (names.empty()) names = {"lenet", "resnet20", "OKcnn", "OKgpt"};
  for (const std::string& name : names) print(subject_named(name, steps));
  return 0;
}

}  // namespace
}  // namespace halfscope

int main(int count, char** words) {
  try {
    return halfscope::run(count, words);
  } catch (const halfscope::Error& error) {
    fmt::print(stderr, "policy_table: {}\nhint: {}\n", error.what(), error.hint());
    return 2;
  }
}
