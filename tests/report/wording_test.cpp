// SPDX-License-Identifier: MIT
// Every sentence of sample runs, held against tests/report/wording.txt, which people read. Its
// numbers are the same on every machine, as the emulator's bits are.
#include "tests/report/wording.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include "analysis/diagnosis/diagnosis.h"
#include "analysis/fixes/fixes.h"
#include "analysis/report/report.h"
#include "analysis/rules/text.h"
#include "core/models/zoo/zoo.h"
#include "core/plan/causes.h"
#include "core/policy/policy.h"
#include "tests/analysis/sample_run.h"
#include "tests/report/harm_run.h"
#include "tests/report/report_fixtures.h"
#include "tests/zoo/cure.h"

namespace halfscope::test {
namespace {

/// Failures of the zoo of which each has sentences that the others do not.
constexpr const char* kCases[] = {
    "F2",  "F4",   "F6",  "F7",  "F8h",  "F10",  "F11", "F13a", "F14",  "F15", "F16h", "F17",
    "F18", "F18l", "F19", "F21", "F22",  "F22r", "F23", "F24",  "F24b", "F25", "F28",  "F31",
    "F33", "F34",  "F36", "F38", "F38b", "F40",  "F41", "F42",  "F45",  "F48", "F49",  "F50"};

void add_case(Wording& wording, const zoo::Case& which, const std::string& plan,
              const std::filesystem::path& folder) {
  wording.section(which.id + " under " + plan);
  const zoo::Cure cure = zoo::find_cure(which, plan, folder);
  const RunView recorded = RunView::open(folder / "run.hscope");
  if (cure.proof.empty()) {
    wording.add_run(recorded);
    wording.add("not proved", cure.why_not);
    return;
  }
  const Report before = make_report(recorded);
  wording.add("untried", before.verdict.headline);
  const bool few = which.id == "F7" || which.id == "F24" || which.id == "F36";
  if (few && before.diagnosis) wording.add_lines("untried", diagnosis_lines(*before.diagnosis));
  RunView proved = recorded;
  proved.set_proof(1, cure.proof);
  wording.add_run(proved);
}

void add_zoo(Wording& wording) {
  const TemporaryFolder folder;
  for (const char* id : kCases) {
    const zoo::Case& which = zoo::find_case(id);
    add_case(wording, which, which.right.at(0), folder.path());
  }
  for (const char* id : {"OKcnn", "OKcnnrun"}) {
    const zoo::Case& which = zoo::find_case(id);
    add_case(wording, which, which.plain.at(0), folder.path());
  }
}

void add_run(Wording& wording, const std::string& title, const RunView& run) {
  wording.section(title);
  wording.add_run(run);
}

RunSpec with_steps(RunSpec spec, int steps) {
  spec.steps = steps;
  return spec;
}

/// mixed_float16 with a loss scale that overflows in fc2 `skips` times.
RunView skipping(const std::vector<double>& scales, const char* setting) {
  RunInfo info = make_run(healthy_spec()).info();
  info.lanes[1].loss_scale = setting;
  info.steps_planned = static_cast<int64_t>(scales.size());
  RunView run(std::move(info), RunStatus::complete);
  for (size_t i = 0; i < scales.size(); ++i) {
    const int64_t step = static_cast<int64_t>(i);
    const bool skipped = scales[i] < 0.0;
    const double loss = std::exp(-0.01 * static_cast<double>(i));
    run.add_step(0, {.step = step, .loss = loss});
    run.add_step(
        1, {.step = step, .loss = loss, .loss_scale = std::fabs(scales[i]), .skipped = skipped});
    TensorStats stats{.n = 4, .max_abs = 1.0f};
    if (skipped) stats = {.n = 4, .overflow = 1, .max_abs = 131072.0f};
    run.add_window(1, run.find_site(1, "fc2.activation_grad").value(),
                   {.step = step, .stats = stats});
  }
  return run;
}

std::vector<double> falling_scales(int skips, int steps) {
  std::vector<double> scales;
  for (int i = 0; i < steps; ++i) {
    scales.push_back(std::ldexp(i < skips ? -1.0 : 1.0, 16 - std::min(i, skips)));
  }
  return scales;
}

RunView with_kernels(int64_t explained, int64_t beyond) {
  RunSpec spec = healthy_spec();
  spec.lanes[1].name = "cuda:mixed_float16";
  spec.lanes[1].backend = "cuda";
  RunView run = make_run(spec);
  for (const SiteInfo& site : run.lane(1).sites) {
    KernelCheck check{.step = 4, .site = site.order, .n = 1000};
    if (site.name() == "conv1.activation") {
      check.kernel = "a library 1.2";
      check.beyond = beyond;
      check.differing = 16;
      check.max_ulps = 3.0;
      check.worst = 7;
      check.order = "tensor-core:h100";
      check.sampled = 500;
      check.explained = explained;
      check.unexplained = explained < 500 ? "results change" : "";
    }
    run.add_kernel(1, check);
  }
  return run;
}

void add_trainings(Wording& wording) {
  add_run(wording, "healthy, 20 steps", make_run(healthy_spec()));
  add_run(wording, "healthy, 100 steps", make_run(with_steps(healthy_spec(), 100)));
  add_run(wording, "healthy, 1 step", make_run(with_steps(healthy_spec(), 1)));
  add_run(wording, "no steps", make_run(with_steps(healthy_spec(), 0)));
  for (const RunStatus status :
       {RunStatus::running, RunStatus::interrupted, RunStatus::early_stop, RunStatus::died}) {
    add_run(wording, std::string("healthy, ") + status_name(status),
            with_status(make_run(healthy_spec()), status, 400));
  }
  add_run(wording, "overflow, 40 steps", make_run(with_steps(hot_spec(), 40)));
  add_run(wording, "overflow, 1 step", make_run(with_steps(hot_spec(), 1)));
  add_run(wording, "overflow, the program died",
          with_status(make_run(hot_spec()), RunStatus::died, 400));
  RunSpec two = hot_spec();
  layer_of(two, "conv1").activation = 16.0;
  add_run(wording, "two layers overflow", make_run(two));
  add_run(wording, "three lanes, errors and a proof", full_run());
  RunSpec lanes = healthy_spec();
  lanes.lanes.push_back({.name = "bfloat16", .format = kBf16, .loss_scale = 1.0});
  add_run(wording, "three healthy lanes", make_run(with_steps(lanes, 60)));
  RunSpec alone = hot_spec();
  alone.lanes.erase(alone.lanes.begin());
  add_run(wording, "one lane without a reference", make_run(alone));
  add_run(wording, "no loss scale works", make_run(no_scale_spec()));
  RunSpec tiny = healthy_spec();
  for (LayerSpec& layer : tiny.layers) layer.gradient = -26.0;
  tiny.lanes[1].loss_scale = 1.0;
  tiny.lanes[1].dynamic = false;
  add_run(wording, "gradients underflow", make_run(tiny));
  RunSpec updates = healthy_spec();
  updates.lanes[1] = {.name = "bfloat16", .format = kBf16, .storage = kBf16, .loss_scale = 1.0};
  add_run(wording, "updates are lost", make_run(updates));
  RunSpec state = healthy_spec();
  state.lanes[0].state = -28.0;
  state.lanes[1] = {.name = "float16", .format = kFp16, .storage = kFp16, .loss_scale = 16384.0};
  state.lanes[1].state = -28.0;
  state.lanes[1].update = state.lanes[1].late_update = 3.0;
  add_run(wording, "the optimizer's state underflows", make_run(state));
  RunSpec data = healthy_spec();
  data.nan_from_the_start = true;
  add_run(wording, "the data contain NaN", make_run(data));
  RunView failed = make_run(healthy_spec());
  failed.set_lost(1, {7, "CUDA launch: unspecified launch failure"});
  add_run(wording, "a lane's backend failed", failed);
}

void add_scales(Wording& wording) {
  add_run(wording, "1 skipped step", skipping(falling_scales(1, 100), "dynamic:65536"));
  add_run(wording, "8 skipped steps", skipping(falling_scales(8, 100), "dynamic:65536"));
  add_run(wording, "every step skipped", skipping(falling_scales(30, 30), "dynamic:65536"));
  add_run(wording, "the only step skipped", skipping({-65536.0}, "dynamic:65536"));
  add_run(wording, "a static scale skips",
          skipping(std::vector<double>(60, -65536.0), "static:65536"));
  std::vector<double> probes, down;
  for (int step = 0; step < 300; ++step) {
    probes.push_back(step % 4 == 3 ? -2048.0 : 1024.0);
    down.push_back(std::ldexp(step % 10 == 9 ? -1.0 : 1.0, 30 - step / 10));
  }
  add_run(wording, "the scale grows often", skipping(probes, "dynamic:65536"));
  add_run(wording, "the scale does not settle", skipping(down, "dynamic:65536"));
}

void add_others(Wording& wording) {
  add_run(wording, "kernels, explained", with_kernels(500, 0));
  add_run(wording, "kernels, unexplained", with_kernels(400, 0));
  add_run(wording, "kernels, 1 fault", with_kernels(400, 1));
  add_run(wording, "kernels, 3 faults", with_kernels(400, 3));
  add_run(wording, "inference without evidence", harm_inference({kReferenceLane, kFp16Lane}));
  add_run(wording, "losses 20% apart, no cause known", trained_beside_float32(kFp16Lane, 1.2));
  add_run(wording, "losses 5% apart, not checked", trained_beside_float32(kFp16Lane, 1.05));
  for (const int sites : {0, 1, 2}) {
    RunView run = trained_beside_float32(kFp16Lane);
    run.add_deviation(1,
                      {.step = 0, .of = Deviation::Of::loss, .n = 1, .error = 0.3, .spread = 0.0});
    for (int site = 0; site < sites; ++site) {
      run.add_error(1, {.step = 0,
                        .site = site,
                        .other_lane = 0,
                        .other_site = site,
                        .n = 4,
                        .differing = 1,
                        .total = site == 0 ? 0.01 : 0.25,
                        .local_fp32 = sites == 1 ? 0.2 : 0.001,
                        .local_fp64 = sites == 1 ? 0.2 : 0.001});
    }
    add_run(wording, "a wrong loss, errors of " + counted(sites, "layer"), run);
  }
}

/// One edit of each kind, of one node and of several.
std::vector<PlanEdit> sample_edits() {
  std::vector<PlanEdit> edits;
  for (const FixKind kind : all_fixes()) {
    Change change{.kind = kind};
    switch (kind) {
      case FixKind::operator_fp32:
      case FixKind::store_fp32:
      case FixKind::accumulate_fp32:
      case FixKind::constant:
      case FixKind::clamp:
        change.path = "conv1";
        break;
      case FixKind::prescale:
        change.path = "conv1";
        change.value = 0x1p-7;
        break;
      case FixKind::keep_integer:
        change.path = "index";
        change.nodes = {"count"};
        break;
      case FixKind::loss_scale:
        change.value = 1024.0;
        break;
      case FixKind::format:
        change.text = "bf16";
        break;
      case FixKind::stochastic_rounding:
        change.text = "weights";
        break;
      case FixKind::reduce_order:
      case FixKind::reduce_fp32:
        change.text = "ring:format=fp32";
        break;
      default:
        break;
    }
    edits.push_back({.changes = {change}});
    if (change.path.empty() || kind == FixKind::keep_integer) continue;
    Change other = change;
    other.path = "fc1";
    edits.push_back({.changes = {change, other}});
  }
  edits.push_back({.changes = {{.kind = FixKind::operator_fp32, .path = "conv1"},
                               {.kind = FixKind::operator_fp32, .path = "fc1"},
                               {.kind = FixKind::weights_fp32},
                               {.kind = FixKind::loss_scale, .value = 1024.0}}});
  return edits;
}

void add_edits(Wording& wording) {
  LaneInfo lane;
  lane.name = "float16";
  lane.plan_json = plan_to_json(*preset_plan("float16"));
  for (const auto& [path, op] : {std::pair{"conv1", "Conv"},
                                 {"fc1", "Gemm"},
                                 {"index", "Add"},
                                 {"count", "Add"},
                                 {"block.0:softmax", "Softmax"}}) {
    LayerInfo layer;
    layer.path = path;
    layer.op = op;
    layer.read = layer.write = kFp16;
    lane.layers.push_back(layer);
  }
  wording.section("changes of a plan");
  for (const PlanEdit& edit : sample_edits()) wording.add("edit", edit_sentence(edit));
  wording.section("parts of a change");
  for (const PlanEdit& edit : sample_edits()) {
    if (edit.changes.size() == 1) wording.add("without", part_text(edit.changes[0].name()));
  }
  wording.section("mechanisms");
  for (const Mechanism each : all_mechanisms()) {
    wording.add(mechanism_name(each), mechanism_text(each));
  }
  wording.section("fixes as code");
  std::vector<PlanEdit> edits = sample_edits();
  edits.push_back(PlanEdit::in_fp32({"block.0:softmax"}));
  for (const FixTarget target : all_fix_targets()) {
    if (target == FixTarget::plan) continue;
    std::string said;  // comments only, each once
    for (const PlanEdit& edit : edits) {
      std::istringstream code(fix_as(target, lane, edit));
      for (std::string line; std::getline(code, line);) {
        const size_t at = line.find('#');
        if (at == std::string::npos) continue;
        const std::string words = line.substr(at) + "\n";
        if (said.find(words) == std::string::npos) said += words;
      }
    }
    wording.add_lines(fix_target_name(target), said);
  }
}

void add_audits(Wording& wording) {
  wording.section("audits");
  for (const zoo::Case& each : zoo::all_cases()) {
    const zoo::Setup setup = each.make();
    std::vector<std::string> plans = each.right;
    plans.insert(plans.end(), each.plain.begin(), each.plain.end());
    for (const std::string& plan : plans) {
      const zoo::LaneChoice lane = each.lane(plan);
      TrainConfig training = setup.train;
      training.sum_format = lane.sum_format;
      training.state_format = lane.state_format;
      wording.add_audit(
          audit_constants(setup.model, lane.plan, setup.trains ? &training : nullptr));
    }
  }
}

void add_lists(Wording& wording) {
  wording.section("lists");
  std::vector<std::string> names;
  for (const char* name : {"conv1", "conv2", "fc1", "fc2", "fc3", "fc4", "fc5", "fc6"}) {
    names.push_back(name);
    wording.add(std::to_string(names.size()), name_list(names));
  }
}

TEST(Wording, IsAsInTheFile) {
  Wording wording;
  add_lists(wording);
  add_edits(wording);
  add_trainings(wording);
  add_scales(wording);
  add_others(wording);
  add_zoo(wording);
  add_audits(wording);
  EXPECT_EQ(difference(wording.text(), HALFSCOPE_SOURCE_DIR "/tests/report/wording.txt"), "");
}

TEST(ListPhrases, JoinNamesAsOneWouldSayThem) {
  using Names = std::vector<std::string>;
  const std::vector<std::pair<Names, std::string>> phrases{
      {{}, ""},
      {{"conv1"}, "conv1"},
      {{"conv1", "conv2"}, "conv1 and conv2"},
      {{"conv1", "conv2", "fc1"}, "conv1, conv2 and fc1"},
      {{"conv1", "conv2", "fc1", "fc2"}, "conv1, conv2, fc1 and 1 more"},
      {{"conv1", "conv2", "fc1", "fc2", "fc3"}, "conv1, conv2, fc1 and 2 more"},
  };
  for (const auto& [names, phrase] : phrases) EXPECT_EQ(name_list(names, 3), phrase);
}

}  // namespace
}  // namespace halfscope::test
