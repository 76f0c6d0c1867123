// SPDX-License-Identifier: MIT
#include "core/lab/puzzle.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "core/error.h"
#include "core/graph/op_def.h"
#include "core/lower/lower.h"

namespace halfscope::lab {
namespace {

/// The levels as texts, in a file that the build makes from examples/puzzles.
struct PuzzleText {
  const char* name;
  const char* json;
};
constexpr PuzzleText kLevels[] = {
#include "puzzle_levels.inc"
};

zoo::LaneChoice edited(const Puzzle& puzzle, uint32_t choices) {
  zoo::LaneChoice lane = puzzle.which.lane(puzzle.plan);
  PlanEdit edit;
  for (size_t i = 0; i < puzzle.choices.size(); ++i) {
    if ((choices >> i & 1) != 0) edit.add(puzzle.choices[i].edit);
  }
  lane.plan = edit.apply(lane.plan);
  if (const std::optional<double> scale = edit.loss_scale()) {
    lane.scaler = {.kind = LossScalerConfig::Kind::constant, .initial = *scale};
  }
  return lane;
}

/// Operators that only bring a value into another format.
bool converts(const Node& node) {
  return node.op == "Cast" || node.op == "Quantize" || node.op == "Dequantize" ||
         node.op == "ScaleUpdate";
}

/// Operators whose results are sums, in whose accumulators partial sums wait.
bool adds_terms(const Node& node) {
  const std::string_view op = node.op;
  const auto has = [&](std::string_view part) { return op.find(part) != std::string_view::npos; };
  return lookup_op(op)->sums_products() || has("Sum") || has("Mean") || has("AveragePool") ||
         has("Normalization") || has("Softmax");
}

}  // namespace

std::vector<std::string> puzzle_names() {
  std::vector<std::string> names;
  for (const PuzzleText& each : kLevels) names.emplace_back(each.name);
  return names;
}

const std::vector<Puzzle>& puzzles() {
  static const std::vector<Puzzle> kPuzzles = [] {
    std::vector<Puzzle> list;
    for (const PuzzleText& each : kLevels) list.push_back(read_puzzle(each.json, each.name));
    return list;
  }();
  return kPuzzles;
}

int64_t bits_per_step(const Executable& executable, int64_t micro_batches) {
  const Graph& graph = executable.graph;
  const auto elements_of = [&](ValueId id) {
    const Value& value = graph.value(id);
    const int64_t each = value.type == ElementType::real ? value.format.bits() : 32;
    return element_count(value.shape) * each;
  };
  const auto bits_of = [&](ValueId id) -> int64_t {
    if (id == kNone) return 0;
    const NodeId producer = graph.value(id).producer;
    if (producer == kNone || graph.node(producer).op != "Dequantize") return elements_of(id);
    // A product reads codes, and a scale of 8 bits for each block.
    const Node& node = graph.node(producer);
    return elements_of(node.inputs[0]) + 8 * element_count(graph.value(node.inputs[1]).shape);
  };
  int64_t bits = 0;
  for (size_t entry = 0; entry < kEntryCount; ++entry) {
    const auto which = static_cast<Entry>(entry);
    // Training never runs `eval`, and inference runs nothing else.
    if ((which == Entry::eval) != (executable.forward == Entry::eval)) continue;
    const int64_t times = which == Entry::grad         ? micro_batches * executable.ranks
                          : which == Entry::accumulate ? micro_batches
                                                       : 1;
    for (const NodeId id : executable.entry(which)) {
      const Node& node = graph.node(id);
      // Operands count in the format in which their operator reads them.
      if (converts(node)) continue;
      int64_t sum = 0;
      for (const ValueId input : node.inputs) sum += bits_of(input);
      for (const ValueId output : node.outputs) sum += bits_of(output);
      if (adds_terms(node) && !node.outputs.empty()) {
        const Value& result = graph.value(node.outputs[0]);
        const bool few = node.plan.accumulation.sums_in_format();
        sum += element_count(result.shape) * (few ? result.format.bits() : 32);
      }
      bits += times * sum;
    }
  }
  for (const ReducedGradient& each : executable.reduced) {
    // A reduce-scatter and an all-gather each send (ranks - 1) / ranks of the tensor per rank.
    const Value& reduced = graph.value(each.reduced);
    const FloatFormat format = executable.reduction.format.value_or(reduced.format);
    bits += 2 * (executable.ranks - 1) * element_count(reduced.shape) * format.bits();
  }
  return bits;
}

PuzzleDesk::PuzzleDesk(const Puzzle& puzzle, zoo::Backends backends, const std::atomic<bool>* stop)
    : puzzle_(puzzle), judge_(puzzle_.which, backends, stop) {
  right_number_ = number_of(judge_.reference(), 0.0);
  broken_bits_ = bits_of(edited(puzzle_, 0));
}

int64_t PuzzleDesk::bits_of(const zoo::LaneChoice& lane) const {
  const zoo::Setup& setup = judge_.setup();
  if (!setup.trains) return bits_per_step(lower_inference(setup.model, lane.plan), 1);
  const TrainConfig& train = setup.train;
  const TrainingSpec spec{.optimizer = train.optimizer,
                          .micro_batches = train.micro_batches,
                          .sum_format = lane.sum_format,
                          .state_format = lane.state_format,
                          .average = train.average,
                          .clips = false,
                          .divides_by_scale = false,
                          .ranks = train.ranks,
                          .reduction = train.reduction};
  return bits_per_step(lower(setup.model, lane.plan, spec), train.micro_batches);
}

double PuzzleDesk::number_of(const zoo::Results& results, double error) const {
  const auto first = [](const NamedTensors& tensors, const std::string& name) {
    const auto found = tensors.find(name);
    if (found == tensors.end() || found->second.data.empty()) {
      return std::numeric_limits<double>::quiet_NaN();
    }
    return static_cast<double>(found->second.data.front());
  };
  const PuzzleNumber& number = puzzle_.number;
  switch (number.of) {
    case PuzzleNumber::Of::error:
      return error;
    case PuzzleNumber::Of::weight:
      return first(results.weights, number.weight);
    case PuzzleNumber::Of::average:
      return first(results.averages, number.weight);
    case PuzzleNumber::Of::loss:
      return zoo::final_loss(results.losses);
    case PuzzleNumber::Of::moved: {
      const std::vector<float>& start = results.start.at(number.weight).data;
      const std::vector<float>& end = results.weights.at(number.weight).data;
      int64_t moved = 0;
      for (size_t i = 0; i < start.size(); ++i) moved += start[i] != end[i] ? 1 : 0;
      return static_cast<double>(moved);
    }
    case PuzzleNumber::Of::output:
      return first(results.outputs, results.outputs.begin()->first);
    case PuzzleNumber::Of::distinct: {
      const std::vector<float>& values = results.outputs.begin()->second.data;
      return static_cast<double>(std::set<float>(values.begin(), values.end()).size());
    }
    case PuzzleNumber::Of::finite: {
      const std::vector<float>& values = results.outputs.begin()->second.data;
      return static_cast<double>(
          std::count_if(values.begin(), values.end(), [](float x) { return std::isfinite(x); }));
    }
  }
  return 0.0;
}

const PuzzleAnswer& PuzzleDesk::answer(uint32_t choices) {
  choices &= (uint32_t{1} << puzzle_.choices.size()) - 1;
  const auto known = answers_.find(choices);
  if (known != answers_.end()) return known->second;
  const zoo::LaneChoice lane = edited(puzzle_, choices);
  PuzzleAnswer answer{.choices = choices};
  zoo::Results results;
  try {
    results = judge_.results(lane);
  } catch (const Error& error) {  // choices that contradict each other
    if (judge_.stopped()) throw;
    answer.refused = error.what();
    answer.number = std::numeric_limits<double>::quiet_NaN();
    return answers_[choices] = std::move(answer);
  }
  answer.truth = judge_.judge(lane, results);
  answer.solved = answer.truth.harm == zoo::Harm::none;
  answer.number = number_of(results, answer.truth.error);
  answer.bits = bits_of(lane) - broken_bits_;
  answer.losses = std::move(results.losses);
  return answers_[choices] = std::move(answer);
}

int64_t PuzzleDesk::par() {
  int64_t fewest = -1;
  for (uint32_t choices = 1; choices < uint32_t{1} << puzzle_.choices.size(); ++choices) {
    const PuzzleAnswer& each = answer(choices);
    if (each.solved && (fewest < 0 || each.bits < fewest)) fewest = each.bits;
  }
  return fewest;
}

}  // namespace halfscope::lab
