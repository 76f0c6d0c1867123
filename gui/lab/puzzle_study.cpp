// SPDX-License-Identifier: MIT
#include "gui/lab/puzzle_study.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/lab/puzzle_text.h"
#include "emulation/backends.h"
#include "emulation/threads.h"

namespace halfscope::gui {
namespace {

#if defined(__EMSCRIPTEN__)
constexpr bool kRunsInBackground = false;
#else
constexpr bool kRunsInBackground = true;
#endif

}  // namespace

PuzzleStudy::PuzzleStudy(bool waits) : waits_(waits || !kRunsInBackground) {
  const size_t count = puzzle_names().size();
  levels_.resize(count);
  desks_.resize(count);
}

PuzzleStudy::Outcome PuzzleStudy::work(const Job& job, std::shared_ptr<PuzzleDesk> desk,
                                       const std::atomic<bool>& stop) {
  const OneThread one;
  Outcome outcome;
  try {
    const Puzzle& puzzle = puzzles()[job.level];
    if (desk == nullptr) {
      const zoo::Backends backends{.emulated = &emulation_backend(),
                                   .in_double = &float64_backend()};
      desk = std::make_shared<PuzzleDesk>(puzzle, backends, &stop);
      outcome.network = network_text(puzzle);
    }
    outcome.answer = desk->answer(job.choices);
    if (job.task == Task::par) outcome.par = desk->par();
  } catch (const Error& error) {
    outcome.problem = error.what();
  }
  outcome.desk = std::move(desk);
  return outcome;
}

void PuzzleStudy::update() {
  if (!loaded_) {
    loaded_ = true;
    file_ = progress_file();
    progress_ = read_progress(file_);
    kept_ = !file_.empty();
    show(shown_);
  }
  if (std::optional<Outcome> outcome = pending_.take()) take(std::move(*outcome));
  if (pending_.running() || due_.empty()) return;
  // The level that is shown goes first.
  auto next =
      std::find_if(due_.begin(), due_.end(), [&](const Job& job) { return job.level == shown_; });
  if (next == due_.end()) next = due_.begin();
  // Without threads the window stops while a network runs: this frame says so before it does.
  if (waits_ && !std::exchange(announced_, true)) return;
  announced_ = false;
  running_ = *next;
  due_.erase(next);
  std::shared_ptr<PuzzleDesk> desk = desks_[running_.level];
  if (waits_) {
    take(work(running_, std::move(desk), *pending_.stop()));
  } else {
    // The desk reads `stop` as long as it lives, and the study has both.
    pending_.start([job = running_, desk = std::move(desk), stop = pending_.stop()]() mutable {
      return work(job, std::move(desk), *stop);
    });
  }
}

void PuzzleStudy::take(Outcome outcome) {
  PuzzleLevel& level = levels_[running_.level];
  level.problem = std::move(outcome.problem);
  if (!level.problem.empty()) return;
  desks_[running_.level] = std::move(outcome.desk);
  switch (running_.task) {
    case Task::open:
      level.open = true;
      level.network = std::move(outcome.network);
      level.broken = std::move(outcome.answer);
      level.right_number = desks_[running_.level]->right_number();
      level.right_losses = desks_[running_.level]->right_losses();
      break;
    case Task::answer: {
      const PuzzleAnswer& answer = level.tries.emplace_back(std::move(outcome.answer));
      level.shown = level.tries.size() - 1;
      if (answer.solved && !level.par) {
        due_.push_back({Task::par, running_.level, answer.choices});
      } else {
        keep(answer, level.par.value_or(0));
      }
      break;
    }
    case Task::par:
      level.par = outcome.par;
      keep(outcome.answer, outcome.par);
      break;
  }
}

void PuzzleStudy::keep(const PuzzleAnswer& answer, int64_t par) {
  // The terminal may have written it since.
  if (kept_) progress_ = read_progress(file_);
  note_try(progress_, puzzles()[running_.level].name, answer, par);
  kept_ = !file_.empty() && write_progress(file_, progress_);
}

bool PuzzleStudy::waits_for(Task task) const noexcept {
  const auto is = [&](const Job& job) { return job.task == task && job.level == shown_; };
  return (pending_.running() && is(running_)) || std::any_of(due_.begin(), due_.end(), is);
}

void PuzzleStudy::show(size_t level) {
  shown_ = std::min(level, levels_.size() - 1);
  if (!levels_[shown_].open && !opening()) due_.push_back({Task::open, shown_, 0});
}

void PuzzleStudy::run() {
  PuzzleLevel& now = level();
  if (now.chosen == 0 || !now.open || answering()) return;
  for (size_t i = 0; i < now.tries.size(); ++i) {
    if (now.tries[i].choices != now.chosen) continue;
    now.shown = i;
    return;
  }
  due_.push_back({Task::answer, shown_, now.chosen});
}

const SolvedPuzzle* PuzzleStudy::best(size_t level) const {
  const auto found = progress_.find(puzzles()[level].name);
  return found != progress_.end() && found->second.solved ? &found->second : nullptr;
}

size_t PuzzleStudy::solved() const {
  size_t count = 0;
  for (size_t i = 0; i < levels_.size(); ++i) count += best(i) != nullptr ? 1 : 0;
  return count;
}

}  // namespace halfscope::gui
