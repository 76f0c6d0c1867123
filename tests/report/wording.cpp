// SPDX-License-Identifier: MIT
#include "tests/report/wording.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <set>
#include <span>
#include <sstream>

#include "analysis/report/report.h"
#include "analysis/report/report_parts.h"
#include "analysis/rules/text.h"

namespace halfscope::test {
namespace {

/// Cuts after ". " and after "." at the end of a line.
std::vector<std::string> sentences(const std::string& text) {
  std::vector<std::string> found(1);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n') {
      found.emplace_back();
      continue;
    }
    found.back() += text[i];
    const bool ends = text[i] == '.' && i + 1 < text.size() && text[i + 1] == ' ';
    if (!ends) continue;
    found.emplace_back();
    ++i;
  }
  std::erase_if(found, [](const std::string& each) {
    return std::all_of(each.begin(), each.end(), [](unsigned char c) { return std::isspace(c); });
  });
  return found;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// A few of many that say nearly the same.
std::span<const TriedEdit> first(const std::vector<TriedEdit>& tried) {
  return std::span(tried).first(std::min<size_t>(tried.size(), 3));
}

const std::string& lane_name(const Report& report, int lane) {
  return report.lanes[static_cast<size_t>(lane)].name;
}

void add_lanes(Wording& wording, const Report& report) {
  for (const LaneReport& lane : report.lanes) {
    wording.add("lane", fmt::format("{}: {}", lane.name, lane_verdict(lane)));
    for (const HarmItem& item : lane.harm.items) wording.add("  harm", item.text);
    for (const std::string& each : lane.harm.unchecked) wording.add("  unchecked", each);
    wording.add("  inconclusive", lane.harm.inconclusive);
    if (lane.lost) wording.add("  failed", lane.lost->why);
  }
}

void add_findings(Wording& wording, const Report& report) {
  for (const Finding& finding : report.findings) {
    wording.add(finding.rule, fmt::format("[{}] {}", severity_name(finding.severity),
                                          lane_name(report, finding.lane)));
    wording.add("  mechanism", finding.mechanism);
    wording.add("  text", finding.text);
    wording.add("  action", finding.action.text);
  }
}

void add_diagnosis(Wording& wording, const Diagnosis& diagnosis) {
  wording.add_lines("diagnosis", diagnosis_lines(diagnosis));
  wording.add("  mechanism", mechanism_meaning(diagnosis));
  wording.add("  symptom", diagnosis.symptom);
  for (const TriedEdit& tried : first(diagnosis.does_not_help)) {
    wording.add("  tried in vain", edit_sentence(tried.edit) + " " + tried.why);
  }
  for (const Decoy& decoy : diagnosis.decoys) {
    wording.add("  not the cause", decoy.place.layer + ": " + decoy.why);
  }
}

void add_proof(Wording& wording, const Proof& proof) {
  wording.add(proof.holds ? "proof holds" : "proof fails", proof.text);
  for (const Cause& cause : proof.causes) wording.add("  cause", cause.text);
  for (const TriedEdit& tried : first(proof.tried)) {
    if (!tried.why.empty()) wording.add("  tried", edit_text(tried.edit) + ": " + tried.why);
  }
}

}  // namespace

void Wording::section(const std::string& title) {
  text_ += fmt::format("{}== {}\n", text_.empty() ? "" : "\n", title);
}

void Wording::add(const std::string& kind, const std::string& text) {
  for (const std::string& each : sentences(text)) text_ += fmt::format("{}: {}\n", kind, each);
}

void Wording::add_lines(const std::string& kind, const std::string& text) {
  for (const std::string& each : lines_of(text)) {
    if (!each.empty()) text_ += fmt::format("{}| {}\n", kind, each);
  }
}

void Wording::add_run(const RunView& run) {
  const Report report = make_report(run);
  add(verdict_name(report.verdict.state), report.verdict.headline);
  add("  more", report.verdict.more);
  add_lanes(*this, report);
  add_findings(*this, report);
  if (report.diagnosis) add_diagnosis(*this, *report.diagnosis);
  for (const ActionReport& action : report.actions) {
    add("action", action.text);
    add("  effect", action.effect);
    add("  confidence", action.confidence + ": " + action.basis);
    add("  change my mind", action.change_my_mind);
  }
  std::set<std::string> advice;
  for (const LayerReport& layer : report.layers) {
    if (!layer.advice.empty()) advice.insert(layer.advice);
  }
  for (const std::string& each : advice) add("layer", each);
  if (report.proof) add_proof(*this, *report.proof);
  for (const ErrorReport& errors : report.errors) add("errors", errors.text);
  for (const KernelReport& kernels : report.kernels) add("kernels", kernels.text);
  for (const EventReport& event : report.events) {
    std::string way;
    for (const EventLink& link : event.links) {
      way += fmt::format("{}{} ({})", way.empty() ? "" : " -> ", link.name, link.note);
    }
    add("event", way);
  }
}

void Wording::add_audit(const std::vector<AuditedConstant>& constants) {
  for (const AuditedConstant& each : constants) {
    const std::string about = each.text + "\n" + each.advice;
    if (each.text.empty() && each.advice.empty()) continue;
    if (std::find(audited_.begin(), audited_.end(), about) != audited_.end()) continue;
    audited_.push_back(about);
    add("audit", fmt::format("[{}] {} {} {}", severity_name(each.severity), audited_name(each.of),
                             each.path, each.name));
    add("  text", each.text);
    add("  advice", each.advice);
  }
}

std::string difference(const std::string& text, const std::filesystem::path& file) {
  if (std::getenv("HALFSCOPE_REWRITE") != nullptr) {
    std::ofstream(file, std::ios::binary) << text;
    return "";
  }
  std::ifstream in(file, std::ios::binary);
  const std::string kept{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (text == kept) return "";
  const std::vector<std::string> now = lines_of(text), before = lines_of(kept);
  size_t i = 0;
  while (i < now.size() && i < before.size() && now[i] == before[i]) ++i;
  std::string section;
  for (size_t k = 0; k < i; ++k) {
    if (now[k].starts_with("== ")) section = now[k];
  }
  return fmt::format(
      "{}, line {}, in \"{}\"\n  file: {}\n  now:  {}\nIf the new words are meant, rewrite the "
      "file and read its diff:\n  HALFSCOPE_REWRITE=1 ctest --test-dir {} -R '^wording_test$'\n",
      file.string(), i + 1, section, i < before.size() ? before[i] : "(end of the file)",
      i < now.size() ? now[i] : "(no more lines)", HALFSCOPE_BINARY_DIR);
}

}  // namespace halfscope::test
