// SPDX-License-Identifier: MIT
#include "cli/tasks/exported_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>

#include "analysis/rules/text.h"
#include "cli/args/backends.h"
#include "core/error.h"
#include "core/numeric/statistics/ulp.h"
#include "core/train/feed.h"
#include "core/train/lane_setup.h"

namespace halfscope {
namespace {

constexpr size_t kMostDifferences = 5;

struct RunLane {
  const Executable& executable;
  std::unique_ptr<Program> program;

  RunLane(const Executable& of, const Plan& plan, const NamedTensors& weights,
          const Dataset& samples)
      : executable(of), program(backend_for(plan).compile(of)) {
    write_weights(*program, executable.graph, weights);
    Feed feed(executable, samples);
    std::vector<int64_t> which(static_cast<size_t>(std::min(feed.batch(), samples.test.size())));
    std::iota(which.begin(), which.end(), int64_t{0});
    feed.write(executable, *program, samples.test, which);
    program->set_random(0, 0);
    program->run(Entry::eval, {});
  }
};

/// Formats that a result is in: its own, and those that the file casts it to.
bool is_written_in(const Graph& graph, ValueId value, const FloatFormat& format) {
  if (graph.value(value).format == format) return true;
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [&](const Node& node) {
    return (node.op == "Identity" || node.op == "Cast") && node.inputs[0] == value &&
           graph.value(node.outputs[0]).format == format;
  });
}

/// The largest distance in ulps, of both rounded to the format; NaN of one alone, and a difference
/// of indices, is the largest.
int64_t most_ulps(const Tensor& a, const Tensor& b, const FloatFormat& format) {
  if (a.data.size() != b.data.size()) return kUlpUnordered;
  int64_t most = 0;
  for (size_t i = 0; i < a.data.size(); ++i)
    most = std::max(most, ulp_distance(a.data[i], b.data[i], format));
  return most;
}

/// Sums over all elements of what the lane and the file compute.
struct Distance {
  double difference = 0.0, size = 0.0;  ///< squares
  int64_t count = 0, nan = 0;           ///< elements; of them NaN in both
  int64_t nan_in_one = 0;
  bool same_shape = true;

  void add(const Tensor& ours, const Tensor& theirs) {
    same_shape = same_shape && ours.shape == theirs.shape;
    if (!same_shape) return;
    for (size_t i = 0; i < ours.data.size(); ++i) {
      const double x = static_cast<double>(ours.data[i]), y = static_cast<double>(theirs.data[i]);
      ++count;
      if (std::isfinite(x)) size += x * x;
      if (std::isnan(x) || std::isnan(y)) {
        ++(std::isnan(x) && std::isnan(y) ? nan : nan_in_one);
      } else if (x != y) {
        difference += (x - y) * (x - y);
      }
    }
  }
  double relative() const { return difference == 0.0 ? 0.0 : std::sqrt(difference / size); }

  /// "0.02%"
  std::string text() const {
    if (!same_shape) return "another shape";
    if (nan_in_one > 0) return counted(nan_in_one, "NaN") + " on one side";
    const double share = relative();
    return std::isfinite(share) ? percent(share) : "infinity";
  }
};

class Checker {
 public:
  Checker(const RunLane& lane, const RunLane& file) : lane_(lane), file_(file) {
    const Graph& graph = file_.executable.graph;
    for (NodeId id : file_.executable.entry(Entry::eval)) {
      // Casts of operands have the path of their node.
      if (graph.node(id).op != "Cast") by_path_.try_emplace(graph.node(id).path, id);
    }
  }

  TypedCheck run() {
    for (NodeId id : lane_.executable.entry(Entry::eval)) compare_node(id);
    for (const NamedValue& output : lane_.executable.outputs) compare_output(output);
    return std::move(check_);
  }

 private:
  void compare_node(NodeId id) {
    const Graph& graph = lane_.executable.graph;
    const Node& node = graph.node(id);
    const auto found = by_path_.find(node.path);
    if (node.op == "Cast" || found == by_path_.end()) return;
    const ValueId ours = node.outputs[0];
    const ValueId theirs = file_.executable.graph.node(found->second).outputs[0];
    const FloatFormat& format = graph.value(ours).format;
    if (graph.value(ours).type != ElementType::real) return;
    ++check_.nodes;
    if (!is_written_in(file_.executable.graph, theirs, format)) {
      differ(fmt::format("{} writes {}, in the file {}", node.path, format_name(format),
                         format_name(file_.executable.graph.value(theirs).format)));
    }
    if (!first_.empty()) return;
    const Tensor a = lane_.program->read(ours), b = file_.program->read(theirs);
    if (most_ulps(a, b, format) == 0) return;
    Distance distance;
    distance.add(a, b);
    first_ = fmt::format("{} ({})", node.path, distance.text());
  }

  void compare_output(const NamedValue& output) {
    const auto& outputs = file_.executable.outputs;
    const auto found = std::find_if(outputs.begin(), outputs.end(), [&](const NamedValue& each) {
      return each.name == output.name;
    });
    if (found == outputs.end()) return differ("output " + output.name + " is missing in the file");
    const Value& value = lane_.executable.graph.value(output.value);
    const Tensor ours = lane_.program->read(output.value);
    const Tensor theirs = file_.program->read(found->value);
    const int64_t ulps = most_ulps(ours, theirs, value.format);
    check_.outputs += static_cast<int64_t>(ours.data.size());
    check_.max_ulps = std::max(check_.max_ulps, ulps);
    const bool index = value.type == ElementType::index;
    if (ulps <= (index ? 0 : 1)) return;
    Distance distance;
    distance.add(ours, theirs);
    differ(fmt::format("output {} differs ({}){}", output.name, distance.text(),
                       first_.empty() ? "" : "; the first result that differs is from " + first_));
  }

  void differ(std::string text) { check_.differences.push_back(std::move(text)); }

  const RunLane& lane_;
  const RunLane& file_;
  std::map<std::string, NodeId> by_path_;
  std::string first_;  ///< node whose result differs
  TypedCheck check_;
};

}  // namespace

std::string TypedCheck::summary() const {
  if (differences.empty()) {
    return fmt::format("checked: the formats of {} are the plan's, and {} {}",
                       counted(nodes, "node"), counted(outputs, "output number"),
                       max_ulps == 0 ? "agree" : "agree up to 1 ulp");
  }
  std::string text = "read back, the file differs from the plan: ";
  for (size_t i = 0; i < std::min(differences.size(), kMostDifferences); ++i)
    text += (i == 0 ? "" : "; ") + differences[i];
  const size_t more = differences.size() - std::min(differences.size(), kMostDifferences);
  return more == 0 ? text : text + fmt::format("; and {} more", more);
}

TypedCheck check_typed_file(const OnnxImport& file, const Executable& lane,
                            const NamedTensors& weights, const Dataset& samples) {
  const Executable executable = lower_inference(file.model, file.types);
  const RunLane ours(lane, Plan{}, weights, samples);
  const RunLane theirs(executable, Plan{}, starting_weights(file.model, 0, {}), samples);
  return Checker(ours, theirs).run();
}

std::string check_outputs(const OnnxImport& file, const Executable& lane,
                          const NamedTensors& weights, const Dataset& samples) {
  constexpr double kSame = 0.01;
  const Executable executable = lower_inference(file.model, file.types);
  const RunLane ours(lane, Plan{}, weights, samples);
  const RunLane theirs(executable, Plan{}, starting_weights(file.model, 0, {}), samples);
  Distance distance;
  for (const NamedValue& output : lane.outputs) {
    const auto found =
        std::find_if(executable.outputs.begin(), executable.outputs.end(),
                     [&](const NamedValue& each) { return each.name == output.name; });
    if (found == executable.outputs.end()) {
      return "read back, the file has no output " + output.name;
    }
    distance.add(ours.program->read(output.value), theirs.program->read(found->value));
    if (!distance.same_shape) return "read back, output " + output.name + " has another shape";
  }
  const std::string numbers =
      fmt::format("{} numbers of outputs{}", distance.count,
                  distance.nan > 0 ? fmt::format(" ({} NaN)", distance.nan) : "");
  const double error = distance.relative();
  if (distance.nan_in_one > 0 || !(error <= kSame)) {
    return fmt::format("read back, the file differs from the plan: its outputs by {}",
                       distance.text());
  }
  if (error == 0.0) return "read back: " + numbers + " equal";
  return fmt::format(
      "read back: {} numbers of outputs within {:.1g} of the plan's, relative to "
      "their size",
      distance.count, error);
}

}  // namespace halfscope
