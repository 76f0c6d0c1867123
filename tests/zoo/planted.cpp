// SPDX-License-Identifier: MIT
#include "tests/zoo/planted.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <memory>

#include "analysis/memory_sink.h"
#include "analysis/proof/search.h"
#include "analysis/proof/trial_runner.h"
#include "analysis/report/report.h"
#include "core/models/models.h"
#include "core/models/zoo/net.h"
#include "core/policy/policy.h"
#include "core/train/lane_setup.h"
#include "emulation/backends.h"
#include "tests/zoo/remake.h"

namespace halfscope::zoo {
namespace {

constexpr int64_t kBatch = 4;
const Shape kImage{3, 32, 32};
// Weights are of order 0.1, and results from 1 to 1000.
constexpr float kLarge = 0x1p18f, kSmall = 0x1p-40f, kOffset = 0x1p14f;

const std::atomic<bool> kRunOn{false};

/// Counts what a search runs.
class CountingTrials final : public TrialRunner {
 public:
  explicit CountingTrials(std::unique_ptr<TrialRunner> trials) : trials_(std::move(trials)) {}

  std::string prepare(const LaneConfig& original, Proof& proof) override {
    return trials_->prepare(original, proof);
  }
  Outcome run(const LaneConfig& lane, bool is_original) override {
    const Outcome outcome = trials_->run(lane, is_original);
    if (is_original) return outcome;
    ++count;
    if (outcome.trial.passes && first_cure == 0) first_cure = count;
    return outcome;
  }
  std::optional<RunView> record(const LaneConfig& lane) override {
    ++count;
    return trials_->record(lane);
  }
  std::string distance(const Outcome& outcome) const override { return trials_->distance(outcome); }
  std::string allowed(const Proof& proof) const override { return trials_->allowed(proof); }
  std::string failure(const Outcome& original, const Proof& proof) const override {
    return trials_->failure(original, proof);
  }
  std::string proved() const override { return trials_->proved(); }
  std::string healthy(const std::string& lane) const override { return trials_->healthy(lane); }
  std::string hint(const Outcome& advised) const override { return trials_->hint(advised); }

  int64_t count = 0, first_cure = 0;

 private:
  std::unique_ptr<TrialRunner> trials_;
};

ValueId undo(Graph& graph, const Fault& fault, ValueId x) {
  const bool offset = fault.kind == Fault::Kind::offset;
  const float by = fault.kind == Fault::Kind::overflow ? 1.0f / kLarge
                   : offset                            ? kOffset
                                                       : 1.0f / kSmall;
  return graph.add1(offset ? "Sub" : "Mul", undo_path(fault), {x, graph.add_constant(by)});
}

}  // namespace

std::string undo_path(const Fault& fault) { return fault.at + "_undo"; }

PlantedNet planted_resnet20(const std::vector<Fault>& faults) {
  const Model plain = build_network("resnet20", kBatch, kImage, 10);
  NamedTensors initial = initial_weights(plain.graph, 1);
  Remake remake(plain);
  const auto fault_at = [&](const std::string& path) {
    return std::find_if(faults.begin(), faults.end(),
                        [&](const Fault& fault) { return fault.at == path; });
  };
  remake.node = [&](Graph& graph, Node& node) {
    const auto fault = fault_at(node.path);
    if (fault == faults.end()) return;
    if (fault->kind == Fault::Kind::offset) {
      const Shape channels{graph.value(node.inputs.at(1)).shape.at(0)};
      const auto count = static_cast<size_t>(channels[0]);
      node.inputs.push_back(graph.add_variable(node.path + ".bias", channels, {}));
      initial[node.path + ".bias"] = Tensor{channels, std::vector<float>(count, kOffset)};
      return;
    }
    for (float& w : initial.at(node.path + ".weight").data) {
      w *= fault->kind == Fault::Kind::overflow ? kLarge : kSmall;
    }
  };
  remake.behind = [&](Graph& graph, ValueId old, ValueId now) {
    const NodeId maker = plain.graph.value(old).producer;
    if (maker == kNone) return now;
    const auto fault = fault_at(plain.graph.node(maker).path);
    return fault == faults.end() ? now : undo(graph, *fault, now);
  };
  PlantedNet net{.model = remake.run(), .data = {}};
  net.model.initial = std::move(initial);
  net.data.name = "random";
  SampleArray images{.name = "input", .sample_shape = kImage};
  images.reals = Draw(20).normals(kBatch * element_count(kImage));
  images.samples = kBatch;
  net.data.test.arrays.push_back(std::move(images));
  return net;
}

Hunt hunt(const PlantedNet& net, const std::string& plan_name, bool searches) {
  const Plan plan = preset_plan(plan_name).value();
  const Backend* const backend = &emulation_backend();
  const RunnerConfig config{
      .lanes = with_references(
          {{.plan = preset_plan("float32").value(), .scaler = {}, .backend = backend},
           {.plan = plan, .scaler = {}, .backend = backend}}),
      .errors = {.enabled = true, .emulator = backend}};
  MemorySink sink;
  Runner runner(net.model, config, net.data);
  sink.begin(runner.describe());
  runner.run(&sink, {}, kRunOn);
  const RunView run = sink.view();

  SearchRequest request{.original = plan, .evidence = &run, .lane = 1};
  request.layers = run.lane(1).layers;
  const Report report = make_report(run);
  if (const auto advice = recommend(run, report.findings, 1)) request.advice = advice->edit;

  const InferenceProofRequest proof{.run = config,
                                    .network = [&net] { return net.model; },
                                    .original = plan,
                                    .advice = {},
                                    .backend = backend};
  CountingTrials trials(inference_trials(proof, net.data, {}, kRunOn));
  const LaneConfig original{.plan = plan, .scaler = {}, .backend = backend};
  Proof unused;
  trials.prepare(original, unused);
  TrialBook book(original, trials, kRunOn, {});
  Hunt result{.nodes = static_cast<int64_t>(request.layers.size())};
  result.fails = !book.passes({});
  if (!result.fails || !searches) return result;
  result.cure = search(book, request).cure;
  result.to_cure = trials.first_cure;
  result.all = trials.count;
  for (const TriedEdit& tried : book.tried()) {
    if (!tried.passes) continue;
    result.first_size = static_cast<int64_t>(tried.edit.changes.size());
    break;
  }
  return result;
}

std::string hunt_text(const Hunt& hunt) {
  std::string text = fmt::format(
      "{} nodes, {} trials to the first cure (of {} changes), {} in all; cure:", hunt.nodes,
      hunt.to_cure, hunt.first_size, hunt.all);
  if (!hunt.fails) return text + " none needed\n";
  if (!hunt.cure) return text + " none\n";
  for (const Change& change : hunt.cure->changes) {
    text += fmt::format(" {} {},", fix_name(change.kind), change.path);
  }
  text.back() = '\n';
  return text;
}

}  // namespace halfscope::zoo
