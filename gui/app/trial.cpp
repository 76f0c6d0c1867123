// SPDX-License-Identifier: MIT
// The plan file is written before the process starts. Plan and run file are kept afterwards.
#include "gui/app/trial.h"

#include <fmt/format.h>

#include "analysis/output_file.h"
#include "core/error.h"
#include "gui/state/edited_plan.h"

namespace halfscope::gui {
namespace {

namespace fs = std::filesystem;

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw Error(fmt::format("cannot create folder '{}': {}", folder.string(), error.message()),
                "set XDG_STATE_HOME to a writable folder");
  }
}

/// Returns the first "trial-N" without a run file.
fs::path free_stem(const fs::path& folder) {
  for (int number = 1;; ++number) {
    const fs::path stem = folder / fmt::format("trial-{}", number);
    if (!fs::exists(stem.string() + ".hscope")) return stem;
  }
}

std::vector<std::string> with_program(std::vector<std::string> words) {
  words.insert(words.begin(), program_beside("halfscope"));
  return words;
}

}  // namespace

Trial::Trial(const std::vector<std::string>& words, std::string run_file)
    : run_file_(std::move(run_file)),
      command_(command_text(words)),
      process_(words, fs::path(run_file_).replace_extension(".log").string()) {}

std::unique_ptr<Trial> Trial::demo(const fs::path& folder) {
  make_folder(folder);
  const std::string run_file = (folder / "demo.hscope").string();
  return std::unique_ptr<Trial>(
      new Trial(with_program({"train", "--model", "lenet-hot", "--lanes", "float32,mixed_float16",
                              "--steps", "60", "--out", run_file, "--force"}),
                run_file));
}

std::unique_ptr<Trial> Trial::of_plan(const fs::path& folder, const RunInfo& run, int lane,
                                      int reference, const PlanEdit& edits) {
  make_folder(folder);
  const fs::path stem = free_stem(folder);
  const std::string plan_file = stem.string() + ".json", run_file = stem.string() + ".hscope";
  const LaneInfo& from = run.lanes.at(static_cast<size_t>(lane));
  const std::vector<std::string> words =
      with_program(trial_command(run, reference, edits, plan_argument(from, plan_file), run_file));
  write_output_file(plan_file, edited_plan(from, edits), true);
  return std::unique_ptr<Trial>(new Trial(words, run_file));
}

bool Trial::poll() {
  const bool before = process_.running();
  process_.poll();
  return before && !process_.running();
}

}  // namespace halfscope::gui
