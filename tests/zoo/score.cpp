// SPDX-License-Identifier: MIT
#include "tests/zoo/score.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace halfscope::zoo {
namespace {

/// "0.036%", "16%", "240%".
std::string percent(double share) {
  const double value = 100.0 * share;
  return value >= 10.0 ? fmt::format("{:.0f}%", value) : fmt::format("{:.2g}%", value);
}

std::string error_text(const Truth& truth) {
  if (truth.non_finite > 0) return fmt::format("{} not finite", truth.non_finite);
  return percent(truth.error);
}

const char* harm_text(Harm harm) {
  switch (harm) {
    case Harm::none:
      return "none";
    case Harm::unclear:
      return "unclear";
    case Harm::real:
      break;
  }
  return "harm";
}

const char* judgement_text(Judgement judgement) {
  switch (judgement) {
    case Judgement::right:
      return "right";
    case Judgement::missed:
      return "MISSED";
    case Judgement::alarmed:
      return "FALSE ALARM";
    case Judgement::unjudged:
      break;
  }
  return "-";
}

std::string share(int part, int all) {
  if (all == 0) return "there are none";
  return fmt::format("{} of {} ({:.0f}%)", part, all, 100.0 * part / all);
}

}  // namespace

Judgement judge(const Trial& trial) {
  if (trial.truth.harm == Harm::unclear) return Judgement::unjudged;
  if (trial.truth.harm == Harm::real) return trial.alarm ? Judgement::right : Judgement::missed;
  return trial.alarm ? Judgement::alarmed : Judgement::right;
}

Score score_of(const std::vector<Case>& cases, const std::vector<Trial>& trials) {
  Score score;
  for (const Trial& trial : trials) {
    const Judgement judgement = judge(trial);
    if (judgement == Judgement::unjudged) {
      ++score.unjudged;
    } else if (trial.truth.harm == Harm::real) {
      ++score.harmful;
      if (trial.alarm) ++score.harmful_noticed;
    } else {
      ++(trial.control ? score.controls : score.clean);
      if (trial.alarm) ++(trial.control ? score.alarms : score.clean_alarms);
    }
  }
  for (const Case& each : cases) {
    if (!each.fails) continue;
    ++score.cases;
    bool reproduced = false, missed = false, plain = false;
    for (const Trial& trial : trials) {
      if (trial.case_id != each.id) continue;
      const bool harmful = trial.truth.harm == Harm::real;
      reproduced = reproduced || (trial.right_kind && harmful);
      missed = missed || (trial.right_kind && harmful && !trial.alarm);
      const bool is_plain =
          std::find(each.plain.begin(), each.plain.end(), trial.plan) != each.plain.end();
      plain = plain || (is_plain && harmful && trial.alarm);
    }
    score.noticed_right += reproduced && !missed ? 1 : 0;
    score.noticed_plain += plain ? 1 : 0;
    score.not_reproduced += reproduced ? 0 : 1;
  }
  return score;
}

std::vector<Trial> run_cases(const std::vector<Case>& cases, const std::filesystem::path& folder,
                             const std::function<void(const Trial&)>& done) {
  std::vector<Trial> trials;
  for (const Case& each : cases) {
    Stage stage(each, folder);
    std::vector<std::string> plans = each.right;
    for (const std::string& plan : each.plain) {
      if (std::find(plans.begin(), plans.end(), plan) == plans.end()) plans.push_back(plan);
    }
    for (size_t i = 0; i < plans.size(); ++i) {
      trials.push_back(stage.run(plans[i]));
      trials.back().right_kind = i < each.right.size();
      done(trials.back());
    }
  }
  return trials;
}

std::string table_head() {
  return fmt::format("{:<8} {:<44} {:>15} {:>7} {:>7}  {:<8} {:<19} {}\n", "case",
                     "plan (* of the right kind)", "error", "drift", "weights", "truth", "verdict",
                     "judgement");
}

std::string table_row(const Trial& trial, bool with_headline) {
  std::string row =
      fmt::format("{:<8} {:<44} {:>15} {:>7} {:>7}  {:<8} {:<19} {}\n", trial.case_id,
                  trial.plan + (trial.right_kind ? " *" : ""), error_text(trial.truth),
                  trial.truth.drift > 0.0 ? percent(trial.truth.drift) : "",
                  trial.truth.moved > 0.0 ? percent(trial.truth.moved) : "",
                  harm_text(trial.truth.harm), trial.verdict, judgement_text(judge(trial)));
  if (with_headline) row += fmt::format("         {}\n", trial.headline);
  return row;
}

std::string totals(const Score& score) {
  return fmt::format(
      "failures noticed with the right kind of plan: {}\n"
      "failures noticed with plain presets:          {}\n"
      "false alarms on healthy controls:             {}\n"
      "false alarms where a failure does not show:   {}\n"
      "harmful trials noticed:                       {}\n"
      "trials too close to call:                     {}\n"
      "failures that did not show:                   {}\n",
      share(score.noticed_right, score.cases), share(score.noticed_plain, score.cases),
      share(score.alarms, score.controls), share(score.clean_alarms, score.clean),
      share(score.harmful_noticed, score.harmful), score.unjudged, score.not_reproduced);
}

std::string markdown(const std::vector<Case>& cases, const std::vector<Trial>& trials) {
  std::string failing =
      "| case | what goes wrong | plan | error | verdict | plain plans with harm, noticed | "
      "plain plans without, alarms |\n| --- | --- | --- | ---: | --- | ---: | ---: |\n";
  std::string healthy =
      "| control | network | largest error without harm | trials without harm, alarms | "
      "trials with harm, noticed |\n| --- | --- | ---: | ---: | ---: |\n";
  for (const Case& each : cases) {
    int harm = 0, noticed = 0, clean = 0, alarms = 0;
    double largest = 0.0;
    std::string right = "|  |  | ";
    for (const Trial& trial : trials) {
      if (trial.case_id != each.id) continue;
      if (trial.right_kind) {
        right =
            fmt::format("| `{}` | {} | {} ", trial.plan, error_text(trial.truth), trial.verdict);
      }
      const Harm truth = trial.truth.harm;
      if (truth == Harm::none) largest = std::max(largest, trial.truth.error);
      if (std::find(each.plain.begin(), each.plain.end(), trial.plan) == each.plain.end()) continue;
      harm += truth == Harm::real ? 1 : 0;
      noticed += truth == Harm::real && trial.alarm ? 1 : 0;
      clean += truth == Harm::none ? 1 : 0;
      alarms += truth == Harm::none && trial.alarm ? 1 : 0;
    }
    if (each.fails) {
      failing += fmt::format("| {} | {} {}| {}, {} | {}, {} |\n", each.id, each.what, right, harm,
                             noticed, clean, alarms);
    } else {
      healthy += fmt::format("| {} | {} | {} | {}, {} | {}, {} |\n", each.id, each.what,
                             percent(largest), clean, alarms, harm, noticed);
    }
  }
  return failing + "\n" + healthy;
}

}  // namespace halfscope::zoo
