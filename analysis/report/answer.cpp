// SPDX-License-Identifier: MIT
// The answer: why it happened, what to do and how sure that is, in one sentence each. Every form of
// the report puts it right after the verdict.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "analysis/report/further_causes.h"
#include "analysis/report/report_parts.h"

namespace halfscope {
namespace {

std::string as_sentence(std::string text) {
  if (text.empty()) return text;
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text.back() == '.' ? text : text + ".";
}

/// Returns whether a healthy lane of this run follows the advice for `lane`.
bool is_followed(const Report& report, int lane) {
  return report.recommendation &&
         report::cure_with(report, lane, report.recommendation->edit.fp32_layers()) != nullptr;
}

/// Fills in how sure the advice for a lane is: a proof says most, then a lane of this run that
/// follows the advice, then the diagnosis.
void add_confidence(const Report& report, int lane, Answer& answer) {
  const ActionReport* action = report.actions.empty() ? nullptr : &report.actions.front();
  const bool about_it = report.diagnosis && report.diagnosis->lane == lane;
  const Diagnosis* diagnosis = about_it ? &*report.diagnosis : nullptr;
  const bool followed = is_followed(report, lane);
  if (report.proof && report.proof_lane == lane && !report.proof->text.empty()) {
    answer.basis = report.proof->text;
  } else if (diagnosis != nullptr && !followed) {
    answer.basis = diagnosis->mechanism == Mechanism::unknown
                       ? "Neither the cause nor the change is tested yet."
                       : "The run shows the cause. The change is not tested yet.";
  } else if (action != nullptr) {
    answer.basis = as_sentence(action->basis);
  }
  if (diagnosis != nullptr && !followed) {
    answer.confidence = confidence_name(diagnosis->confidence);
  } else if (action != nullptr) {
    answer.confidence = action->confidence;
  }
}

}  // namespace

bool reference_fails(const Report& report) {
  return std::any_of(report.findings.begin(), report.findings.end(), [&](const Finding& finding) {
    return finding.lane == report.reference && finding.severity == Severity::error;
  });
}

std::vector<int> healthy_siblings(const Report& report, int lane) {
  std::vector<int> siblings;
  const Verdict::State own = report.lanes[static_cast<size_t>(lane)].state;
  if (own != Verdict::State::broken && own != Verdict::State::attention) return siblings;
  for (size_t i = 0; i < report.lanes.size(); ++i) {
    const LaneReport& each = report.lanes[i];
    if (!each.reference && !each.lost && each.state == Verdict::State::healthy) {
      siblings.push_back(static_cast<int>(i));
    }
  }
  return siblings;
}

std::string tested_advice(const Report& report, int lane) {
  if (report.actions.empty() || !report.actions.front().of_cure) return "";
  const Answer answer = answer_of(report);
  if (answer.lane != lane) return "";
  return fmt::format("{} Confidence {}. {}", answer.todo, answer.confidence, answer.basis);
}

bool report::answered_otherwise(const Report& report) {
  const std::string todo = answer_of(report).todo;
  return !todo.empty() && !report.actions.empty() && todo != report.actions.front().text;
}

Answer answer_of(const Report& report) {
  Answer answer;
  if (report.verdict.state == Verdict::State::healthy) return answer;
  if (report.diagnosis && !says(report.verdict.text, report.diagnosis->cause)) {
    answer.why = cause_sentence(*report.diagnosis);
  }
  if (report.recommendation) {
    answer.lane = report.recommendation->lane;
    answer.todo = report.recommendation->text;
  } else if (!report.actions.empty() &&
             (!reference_fails(report) || report.actions.front().lane == report.reference)) {
    answer.lane = report.actions.front().lane;
    answer.todo = report.actions.front().text;
  }
  if (!answer.todo.empty()) add_confidence(report, answer.lane, answer);
  if (report.diagnosis && report.diagnosis->lane == answer.lane) {
    answer.cost = cost_words(report.diagnosis->fix_cost);
  }
  if (!report.actions.empty() && report.actions.front().of_cure) {
    // The run itself has tested another change than the advised one.
    const ActionReport& action = report.actions.front();
    answer.lane = action.lane;
    answer.todo = action.text;
    answer.confidence = action.confidence;
    answer.basis = as_sentence(action.basis);
    answer.cost.clear();
  }
  return answer;
}

}  // namespace halfscope
