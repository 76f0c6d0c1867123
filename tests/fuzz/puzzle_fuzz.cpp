// SPDX-License-Identifier: MIT
// libFuzzer target: text as the file of a puzzle. A level that is read has texts, a network that
// can be built, and a plan; small ones are also run with every choice.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/error.h"
#include "core/lab/puzzle.h"
#include "core/lab/puzzle_text.h"
#include "emulation/backends.h"
#include "emulation/threads.h"

namespace {

using namespace halfscope;  // NOLINT: one target

/// Returns whether a level runs in a few milliseconds.
bool is_small(const zoo::Setup& setup) {
  constexpr int64_t kFew = 1 << 12;
  int64_t elements = 0;
  const Graph& graph = setup.model.graph;
  for (const Node& node : graph.nodes()) {
    for (const ValueId output : node.outputs) elements += element_count(graph.value(output).shape);
  }
  for (const Variable& variable : graph.variables())
    elements += element_count(graph.value(variable.value).shape);
  if (elements > kFew) return false;
  return !setup.trains ||
         (setup.train.steps <= 4 && setup.train.ranks <= 4 && setup.train.micro_batches <= 4);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const OneThread one;
  const zoo::Backends backends{.emulated = &emulation_backend(), .in_double = &float64_backend()};
  try {
    const lab::Puzzle puzzle =
        lab::read_puzzle({reinterpret_cast<const char*>(data), size}, "level");
    if (puzzle.choices.empty() || puzzle.choices.size() > lab::kMostChoices) std::abort();
    if (lab::network_text(puzzle).empty()) std::abort();
    if (!is_small(puzzle.which.make())) return 0;
    lab::PuzzleDesk desk(puzzle, backends);
    for (uint32_t choices = 0; choices < uint32_t{1} << puzzle.choices.size(); ++choices) {
      const lab::PuzzleAnswer& answer = desk.answer(choices);
      if (!answer.solved && lab::why_not(answer).empty()) std::abort();
    }
  } catch (const Error&) {  // refused, as it may be
  }
  return 0;
}
