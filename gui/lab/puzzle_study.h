// SPDX-License-Identifier: MIT
// PuzzleStudy: the levels of the tab "Puzzles" as far as they have been played. Networks run in the
// background, or in a frame of their own where there are no threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/lab/puzzle.h"
#include "core/lab/puzzle_progress.h"
#include "gui/lab/background_task.h"

namespace halfscope::gui {

using namespace lab;

/// One level, with the answers of this session.
struct PuzzleLevel {
  bool open = false;      ///< the reference and the broken run are known
  std::string problem{};  ///< why the level cannot run
  std::string network{};  ///< as network_text() writes it
  PuzzleAnswer broken{};
  double right_number = 0.0;
  std::vector<double> right_losses{};
  uint32_t chosen = 0;                ///< the user's choices, not run yet
  std::vector<PuzzleAnswer> tries{};  ///< in their order
  std::optional<size_t> shown{};      ///< place of the try that is shown
  std::optional<int64_t> par{};       ///< known once a try solves the level
  bool hint = false;

  /// Returns the try that is shown, or null.
  const PuzzleAnswer* answer() const noexcept { return shown ? &tries[*shown] : nullptr; }
};

class PuzzleStudy {
 public:
  /// `waits`: runs networks on the calling thread, as where there are no threads.
  explicit PuzzleStudy(bool waits = false);

  /// Takes what has been run, and starts what is to run next. Call it once per frame.
  void update();
  /// Returns whether something is running or will be.
  bool busy() const noexcept { return pending_.running() || !due_.empty(); }

  /// Shows a level, and runs its reference if that is not known.
  void show(size_t level);
  /// Runs the user's choices, or shows their answer if they were tried.
  void run();

  size_t shown() const noexcept { return shown_; }
  const Puzzle& puzzle() const { return puzzles()[shown_]; }
  PuzzleLevel& level() { return levels_[shown_]; }
  const PuzzleLevel& level() const { return levels_[shown_]; }
  /// Returns what runs or will run for the level that is shown.
  bool opening() const noexcept { return waits_for(Task::open); }
  bool answering() const noexcept { return waits_for(Task::answer); }
  /// Returns the best of all sessions; null if the level was never solved.
  const SolvedPuzzle* best(size_t level) const;
  size_t solved() const;

 private:
  enum class Task : uint8_t { open, answer, par };
  struct Job {
    Task task = Task::open;
    size_t level = 0;
    uint32_t choices = 0;
  };
  /// A desk is used by one job at a time.
  struct Outcome {
    std::shared_ptr<PuzzleDesk> desk{};
    PuzzleAnswer answer{};
    int64_t par = -1;
    std::string network{}, problem{};
  };
  static Outcome work(const Job& job, std::shared_ptr<PuzzleDesk> desk,
                      const std::atomic<bool>& stop);
  void take(Outcome outcome);
  void keep(const PuzzleAnswer& answer, int64_t par);
  bool waits_for(Task task) const noexcept;

  bool waits_;
  bool announced_ = false;  ///< a frame has shown that the next job runs
  bool loaded_ = false;     ///< progress_ has been read
  bool kept_ = false;       ///< the file has everything of progress_
  std::filesystem::path file_{};
  PuzzleProgress progress_{};
  size_t shown_ = 0;
  std::vector<PuzzleLevel> levels_{};
  std::vector<std::shared_ptr<PuzzleDesk>> desks_{};
  std::deque<Job> due_{};
  Job running_{};
  BackgroundTask<Outcome> pending_{};
};

}  // namespace halfscope::gui
