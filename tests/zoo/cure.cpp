// SPDX-License-Identifier: MIT
#include "tests/zoo/cure.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>

#include "analysis/proof/search.h"
#include "analysis/recorder.h"
#include "analysis/report/report.h"
#include "core/error.h"
#include "core/policy/policy.h"
#include "core/train/lane_setup.h"

namespace halfscope::zoo {
namespace {

const std::atomic<bool> kGoOn{false};

std::unique_ptr<TapSink> recorder_at(const std::filesystem::path& file, RunInfo info) {
  info.version = "zoo";
  auto recorder = std::make_unique<Recorder>(file, Recorder::Options{.force = true});
  recorder->begin(info);
  return recorder;
}

std::vector<LaneConfig> lanes_of_case(const LaneChoice& choice, const Backend& backend) {
  return with_references(
      {{.plan = preset_plan("float32").value(), .scaler = {}, .backend = &emulation_backend()},
       {.plan = choice.plan, .scaler = choice.scaler, .backend = &backend}});
}

Recommendation advice_for(const RunView& run, int lane) {
  const Report report = make_report(run);
  if (std::optional<Recommendation> advice = recommend(run, report.findings, lane)) return *advice;
  return {.lane = lane, .plan_json = run.lane(lane).plan_json};
}

SearchOptions search_of(const RunView& run) {
  // No case of ours needs as long; those that are files may.
  SearchOptions options{.on = true, .budget = {.seconds = 90.0}, .evidence = &run, .lane = 1};
  options.doubtful = is_doubtful(run, make_report(run).findings, 1);
  return options;
}

/// The diagnosis as it comes from the run file.
void diagnose_with(const std::optional<Proof>& proof, RunView run, Cure& cure) {
  if (proof) {
    cure.proof = proof_json(*proof);
    run.set_proof(1, cure.proof);
    cure.why_not = proof->text;
  }
  const Report report = make_report(run);
  const PlanEdit advice = report.recommendation ? report.recommendation->edit : PlanEdit{};
  cure.diagnosis = diagnose(run, report.findings, 1, advice, read_proof(run.proof(1)));
}

/// Returns whether that path is a label's, or a primitive of it.
bool is_of(const std::string& path, const std::string& label) {
  return path == label || path.starts_with(label + "/") || label.starts_with(path + "/") ||
         label.starts_with(path + ".");
}

void hold_against(const Labels& labels, const About& about, Cure& cure) {
  const Diagnosis& found = cure.diagnosis;
  const auto accepted = [&](const Change& change) {
    return std::find(about.fixes.begin(), about.fixes.end(), change.kind) != about.fixes.end();
  };
  cure.named = std::any_of(found.root.begin(), found.root.end(), [&](const Place& place) {
    return std::any_of(labels.root.begin(), labels.root.end(), [&](const std::string& root) {
      return is_of(place.layer, root) || is_of(place.node, root);
    });
  });
  if (labels.root.empty()) {
    cure.named = std::any_of(found.fix.changes.begin(), found.fix.changes.end(), accepted);
  }
  cure.explained = found.mechanism == about.mechanism;
  cure.decoy_advised =
      std::any_of(found.fix.changes.begin(), found.fix.changes.end(), [&](const Change& change) {
        return std::find(labels.decoys.begin(), labels.decoys.end(), change.path) !=
               labels.decoys.end();
      });
  cure.proved = found.verified;
  cure.minimal =
      cure.proved && found.fix.changes.size() <= std::max<size_t>(labels.fix.changes.size(), 1);
}

}  // namespace

Cure find_cure(const Case& which, const std::string& plan, const std::filesystem::path& folder,
               const Backend& backend) {
  const auto begin = std::chrono::steady_clock::now();
  Cure cure{.case_id = which.id, .plan = plan};
  const Setup setup = which.make();
  const LaneChoice choice = which.lane(plan);
  const std::filesystem::path file = folder / "run.hscope";
  const ErrorSampling errors{.enabled = true, .emulator = &emulation_backend()};
  try {
    if (setup.trains) {
      TrainConfig config = setup.train;
      config.build = [model = setup.model](int64_t) { return model; };
      config.errors = errors;
      config.lanes = lanes_of_case(choice, backend);
      config.sum_format = choice.sum_format;
      config.state_format = choice.state_format;
      {
        Trainer trainer(config, setup.data);
        const std::unique_ptr<TapSink> sink = recorder_at(file, trainer.describe());
        trainer.run(sink.get(), {}, kGoOn);
      }
      const RunView run = RunView::open(file);
      ProofRequest request{.training = config,
                           .original = choice.plan,
                           .scaler = choice.scaler,
                           .advice = advice_for(run, 1),
                           .backend = &backend};
      request.deviations.assign(run.deviations(1).begin(), run.deviations(1).end());
      request.harm = harm_of(LaneFacts(run, 1)).items;
      request.search = search_of(run);
      diagnose_with(prove(request, setup.data, {}, kGoOn), run, cure);
    } else {
      const RunnerConfig config{.lanes = lanes_of_case(choice, backend), .errors = errors};
      {
        Runner runner(setup.model, config, setup.data);
        const std::unique_ptr<TapSink> sink = recorder_at(file, runner.describe());
        runner.run(sink.get(), {}, kGoOn);
      }
      const RunView run = RunView::open(file);
      InferenceProofRequest request{.run = config,
                                    .network = [&setup] { return setup.model; },
                                    .original = choice.plan,
                                    .advice = advice_for(run, 1),
                                    .backend = &backend};
      request.search = search_of(run);
      diagnose_with(prove(request, setup.data, {}, kGoOn), run, cure);
    }
  } catch (const Error& error) {
    cure.why_not = error.what();
  }
  hold_against(setup.labels, which.about, cure);
  cure.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return cure;
}

CureScore score_of(const std::vector<Cure>& cures) {
  CureScore score;
  std::set<std::string> cases, unnamed, unexplained, decoys, unproved, large;
  for (const Cure& cure : cures) {
    cases.insert(cure.case_id);
    score.seconds += cure.seconds;
    if (!cure.named) unnamed.insert(cure.case_id);
    if (!cure.explained) unexplained.insert(cure.case_id);
    if (cure.decoy_advised) decoys.insert(cure.case_id);
    if (!cure.proved) unproved.insert(cure.case_id);
    if (!cure.minimal) large.insert(cure.case_id);
  }
  score.cases = static_cast<int>(cases.size());
  score.named = score.cases - static_cast<int>(unnamed.size());
  score.explained = score.cases - static_cast<int>(unexplained.size());
  score.decoys = static_cast<int>(decoys.size());
  score.proved = score.cases - static_cast<int>(unproved.size());
  score.minimal = score.cases - static_cast<int>(large.size());
  return score;
}

std::vector<Cure> find_cures(const std::vector<Case>& cases, const std::filesystem::path& folder,
                             const std::function<void(const Cure&)>& done) {
  std::vector<Cure> cures;
  for (const Case& each : cases) {
    if (!each.fails) continue;
    for (const std::string& plan : each.right) {
      cures.push_back(find_cure(each, plan, folder));
      done(cures.back());
    }
  }
  return cures;
}

namespace {

std::string roots_of(const Diagnosis& diagnosis) {
  std::string text;
  for (const Place& place : diagnosis.root) text += (text.empty() ? "" : ", ") + place.layer;
  return text.empty() ? "-" : text;
}

std::string fix_of(const Diagnosis& diagnosis) {
  std::string text;
  for (const Change& change : diagnosis.fix.changes) {
    text += fmt::format("{}{}{}{}", text.empty() ? "" : ", ", fix_name(change.kind),
                        change.path.empty() ? "" : " ", change.path);
    for (const std::string& node : change.nodes) text += " " + node;
  }
  return text.empty() ? "-" : text;
}

const char* mark(bool yes) { return yes ? "yes" : "NO"; }

}  // namespace

std::string cure_head() {
  return fmt::format("{:<6} {:<22} {:<6} {:<7} {:<7} {:<6} {:>6}  {}\n", "case", "mechanism",
                     "named", "proved", "minimal", "decoy", "trials", "fix");
}

std::string cure_row(const Cure& cure) {
  const Diagnosis& found = cure.diagnosis;
  return fmt::format("{:<6} {:<22} {:<6} {:<7} {:<7} {:<6} {:>6}  {}\n", cure.case_id,
                     mechanism_name(found.mechanism) + std::string(cure.explained ? "" : " *"),
                     mark(cure.named), mark(cure.proved), mark(cure.minimal),
                     cure.decoy_advised ? "YES" : "no", found.trials, fix_of(found));
}

std::string cure_totals(const CureScore& score) {
  return fmt::format(
      "cause named:              {} of {}\n"
      "mechanism as labelled:    {} of {}\n"
      "decoy advised:            {} of {}\n"
      "cure proved:              {} of {}\n"
      "no larger than labelled:  {} of {}\n"
      "time:                     {:.0f} s\n",
      score.named, score.cases, score.explained, score.cases, score.decoys, score.cases,
      score.proved, score.cases, score.minimal, score.cases, score.seconds);
}

std::string cure_markdown(const std::vector<Cure>& cures) {
  std::string text =
      "| case | plan | mechanism | root | fix | trials | named, proved, minimal |\n"
      "| --- | --- | --- | --- | --- | ---: | --- |\n";
  for (const Cure& cure : cures) {
    const Diagnosis& found = cure.diagnosis;
    const auto word = [](bool yes) { return yes ? "yes" : "no"; };
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {}, {}, {} |\n", cure.case_id, cure.plan,
                        mechanism_name(found.mechanism) + std::string(cure.explained ? "" : " (*)"),
                        roots_of(found), fix_of(found), found.trials, word(cure.named),
                        word(cure.proved), word(cure.minimal));
  }
  return text;
}

}  // namespace halfscope::zoo
