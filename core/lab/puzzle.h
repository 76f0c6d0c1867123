// SPDX-License-Identifier: MIT
// Precision puzzles: a small network whose plan breaks it, and changes to choose from. An answer is
// judged by running it and comparing with the same computation in double. docs/reference/puzzle.md
// describes the file of a level.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/models/zoo/truth.h"
#include "core/models/zoo/zoo.h"
#include "core/plan/plan_edit.h"

namespace halfscope::lab {

struct PuzzleChoice {
  std::string text{};
  PlanEdit edit{};
};

/// The number that shows what goes wrong.
struct PuzzleNumber {
  enum class Of : uint8_t {
    output,    ///< first element of the output
    error,     ///< relative error of what is judged
    loss,      ///< mean of the last fifth of the steps
    weight,    ///< first element of a weight
    average,   ///< first element of a weight's moving average
    moved,     ///< elements of a weight that changed during training
    distinct,  ///< different values among the elements of the output
    finite,    ///< finite elements of the output
  };
  Of of = Of::output;
  std::string text{};    ///< "average of 768 ones"
  std::string weight{};  ///< path, where one is needed
};

struct Puzzle {
  std::string name{};  ///< of the file, without its ending
  std::string title{};
  std::vector<std::string> story{};  ///< paragraphs
  std::string plan{};                ///< as zoo::lane_choice() reads it
  PuzzleNumber number{};
  std::vector<PuzzleChoice> choices{};
  std::string hint{};
  std::vector<std::string> lesson{};  ///< shown once it is solved
  std::string seen{};                 ///< where people met it
  zoo::Case which{};
};

/// At most so many choices, all of whose combinations can be tried.
inline constexpr size_t kMostChoices = 6;

/// Reads a level. Throws Error (usage) that names the part with a mistake; `name` is the file's.
Puzzle read_puzzle(std::string_view json, const std::string& name);

/// Returns the names of the levels that come with HalfScope, in their order, without reading them.
std::vector<std::string> puzzle_names();
/// Returns these levels.
const std::vector<Puzzle>& puzzles();

/// One answer: a set of choices, bit i for choice i.
struct PuzzleAnswer {
  uint32_t choices = 0;
  bool solved = false;
  std::string refused{};  ///< why these choices cannot be combined; empty if they ran
  zoo::Truth truth{};
  double number = 0.0;           ///< PuzzleNumber of this run
  int64_t bits = 0;              ///< more bits than without any choice; see bits_per_step()
  std::vector<double> losses{};  ///< of trainings
};

/// Runs answers to one puzzle and keeps their results.
class PuzzleDesk {
 public:
  /// Runs the reference. Once `stop` is true, which may be null and must outlive the desk, all that
  /// runs ends with an Error.
  PuzzleDesk(const Puzzle& puzzle, zoo::Backends backends, const std::atomic<bool>* stop = nullptr);

  const PuzzleAnswer& answer(uint32_t choices);
  /// Tries all combinations and returns the fewest bits that solve the puzzle; -1: none does.
  int64_t par();
  double right_number() const noexcept { return right_number_; }  ///< in double
  const std::vector<double>& right_losses() const { return judge_.reference().losses; }
  const Puzzle& puzzle() const noexcept { return puzzle_; }

 private:
  double number_of(const zoo::Results& results, double error) const;
  int64_t bits_of(const zoo::LaneChoice& lane) const;

  Puzzle puzzle_;
  zoo::Judge judge_;
  double right_number_ = 0.0;
  int64_t broken_bits_ = 0;
  std::map<uint32_t, PuzzleAnswer> answers_;
};

/// Returns the bits that a lane's operators read, write and keep in accumulators in one step (one
/// forward pass in inference), and that its ranks send. A measure of what precision costs that does
/// not depend on a device.
int64_t bits_per_step(const Executable& executable, int64_t micro_batches);

}  // namespace halfscope::lab
