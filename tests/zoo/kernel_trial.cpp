// SPDX-License-Identifier: MIT
#include "tests/zoo/kernel_trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "analysis/report/report.h"
#include "tests/zoo/cure.h"
#include "tests/zoo/trial.h"

namespace halfscope::zoo {

std::unique_ptr<Program> FaultyKernel::compile(const Executable& executable) const {
  Executable faulty = executable;
  Graph& graph = faulty.graph;
  for (const Tap& tap : executable.taps) {
    if (!sites_(tap.site)) continue;
    const Shape shape = graph.value(tap.value).shape;
    Node& node = graph.node(graph.value(tap.value).producer);
    node.op = "Expand";
    node.attributes = {{"shape", shape}};
    node.inputs = {graph.add_constant(value_)};
  }
  return emulation_backend().compile(faulty);
}

std::vector<KernelTrial> kernel_trials() {
  const auto convolutions = [](const SiteInfo& site) {
    return site.op == "Conv" && site.role == Role::activation && site.format == kFp16;
  };
  const auto gradients = [](const SiteInfo& site) {
    return site.op == "Gemm" && site.role == Role::weight_grad && site.format == kBf16;
  };
  return {
      {"F32", "convolutions in fp16 return NaN", "OKcnnrun", "mixed_float16", convolutions,
       std::numeric_limits<float>::quiet_NaN()},
      {"F51", "products of fp4 return zeros as gradients of weights", "OKadam", "nvfp4", gradients,
       0.0f},
  };
}

namespace {

bool blames(const Diagnosis& found, const RunView& run, const Choice& sites) {
  const std::vector<SiteInfo>& all = run.lane(1).sites;
  const auto is_root = [&](const Place& place) {
    return std::any_of(all.begin(), all.end(), [&](const SiteInfo& site) {
      return sites(site) && site.name() == place.site;
    });
  };
  return found.mechanism == Mechanism::kernel_fault && !found.root.empty() &&
         std::all_of(found.root.begin(), found.root.end(), is_root);
}

}  // namespace

KernelScore score_of(const KernelTrial& trial, const std::filesystem::path& folder) {
  const Case& network = find_case(trial.network);
  const FaultyKernel backend(trial.sites, trial.value);
  Stage stage(network, folder);
  const Trial right = stage.run(trial.plan), wrong = stage.run(trial.plan, backend);
  const RunView run = RunView::open(folder / "run.hscope");
  const Report report = make_report(run);
  const PlanEdit advice = report.recommendation ? report.recommendation->edit : PlanEdit{};
  const Diagnosis recorded = diagnose(run, report.findings, 1, advice, std::nullopt);
  const Cure cure = find_cure(network, trial.plan, folder, backend);
  KernelScore score{.id = trial.id};
  score.healthy_elsewhere = right.truth.harm == Harm::none && !right.alarm;
  score.harmful = wrong.truth.harm == Harm::real;
  score.alarm = wrong.alarm;
  score.blamed = blames(recorded, run, trial.sites) && blames(cure.diagnosis, run, trial.sites);
  score.nothing_else = recorded.fix.empty();
  score.cause = cure.diagnosis.cause;
  score.headline = wrong.headline;
  return score;
}

std::string kernel_head() {
  return fmt::format("{:<6} {:<8} {:<8} {:<6} {:<7} {:<8}  {}\n", "case", "emulated", "faulty",
                     "alarm", "blamed", "advice", "cause");
}

std::string kernel_row(const KernelScore& score) {
  return fmt::format("{:<6} {:<8} {:<8} {:<6} {:<7} {:<8}  {}\n", score.id,
                     score.healthy_elsewhere ? "healthy" : "HARM", score.harmful ? "harm" : "NONE",
                     score.alarm ? "yes" : "NO", score.blamed ? "yes" : "NO",
                     score.nothing_else ? "none" : "LAYERS", score.cause);
}

}  // namespace halfscope::zoo
