// SPDX-License-Identifier: MIT
// Groups findings so that a report says each thing once: the same problem in several tensors, or
// in several lanes.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <numeric>
#include <tuple>

#include "analysis/report/remarks.h"
#include "analysis/report/report_parts.h"

namespace halfscope::report {
namespace {

/// Stands for the name of the lane that a text is about.
constexpr char kOwnName = '\x01';

bool in_names(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// Returns the text of a finding with kOwnName for the name of its lane.
std::string without_name(const Report& report, const Finding& finding) {
  const std::string& name = report.lanes[static_cast<size_t>(finding.lane)].name;
  std::string text = finding.text;
  for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
    // "float16" is not the lane in "mixed_float16", "cuda:float16" or "float16+fp32".
    const char before = at == 0 ? ' ' : text[at - 1];
    const size_t end = at + name.size();
    const char after = end == text.size() ? ' ' : text[end];
    if (in_names(before) || before == ':' || before == '-') continue;
    if (in_names(after) || after == '+' || after == '-') continue;
    text.replace(at, name.size(), 1, kOwnName);
  }
  return text;
}

/// Returns groups of findings of one lane: alike ones together, others alone.
std::vector<std::vector<size_t>> groups_in_lanes(const Report& report) {
  std::vector<size_t> order(report.findings.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return report.findings[a].severity > report.findings[b].severity;
  });
  const auto kind = [&](size_t i) {
    const Finding& of = report.findings[i];
    return std::tuple(of.lane, of.rule, of.severity, of.cause);
  };
  std::map<decltype(kind(0)), size_t> counts;
  for (const size_t i : order) {
    if (!report.findings[i].site.empty()) ++counts[kind(i)];
  }
  std::map<decltype(kind(0)), size_t> places;
  std::vector<std::vector<size_t>> groups;
  for (const size_t i : order) {
    const bool alike = !report.findings[i].site.empty() && counts[kind(i)] >= kAlike;
    const auto found = alike ? places.find(kind(i)) : places.end();
    if (found != places.end()) {
      groups[found->second].push_back(i);
      continue;
    }
    if (alike) places.emplace(kind(i), groups.size());
    groups.push_back({i});
  }
  return groups;
}

bool of_same_kind(const Finding& a, const Finding& b) {
  return a.lane != b.lane && std::tie(a.rule, a.severity, a.cause, a.site, a.layer) ==
                                 std::tie(b.rule, b.severity, b.cause, b.site, b.layer);
}

/// Adds the findings of another lane to a group if they say the same; returns whether they do. The
/// first ones need to share only most of their sentences.
bool join(const Report& report, const std::vector<size_t>& more, FindingGroup& group) {
  const std::vector<size_t>& own = group.lanes.front();
  if (own.size() != more.size()) return false;
  for (size_t i = 0; i < own.size(); ++i) {
    const Finding &a = report.findings[own[i]], &b = report.findings[more[i]];
    if (!of_same_kind(a, b)) return false;
    if (i > 0 && without_name(report, a) != without_name(report, b)) return false;
  }
  const std::string text = without_name(report, report.findings[more.front()]);
  const std::string shared = shared_sentences(group.shared, text);
  size_t longest = text.size();
  for (const std::vector<size_t>& lane : group.lanes) {
    longest = std::max(longest, without_name(report, report.findings[lane.front()]).size());
  }
  if (2 * shared.size() < longest) return false;
  group.lanes.push_back(more);
  group.shared = shared;
  return true;
}

}  // namespace

std::vector<FindingGroup> finding_groups(const Report& report) {
  std::vector<FindingGroup> groups;
  for (const std::vector<size_t>& each : groups_in_lanes(report)) {
    const bool known = std::any_of(groups.begin(), groups.end(),
                                   [&](FindingGroup& group) { return join(report, each, group); });
    if (!known) groups.push_back({{each}, without_name(report, report.findings[each.front()])});
  }
  return groups;
}

std::vector<std::string> lanes_of(const Report& report, const FindingGroup& group) {
  std::vector<std::string> names;
  for (const std::vector<size_t>& lane : group.lanes) {
    const Finding& finding = report.findings[lane.front()];
    names.push_back(report.lanes[static_cast<size_t>(finding.lane)].name);
  }
  return names;
}

std::string text_of(const Report& report, const FindingGroup& group) {
  const std::vector<std::string> names = lanes_of(report, group);
  if (names.size() == 1) return report.findings[group.lanes.front().front()].text;
  std::string text = group.shared;
  const bool names_lane = text.find(kOwnName) != std::string::npos;
  if (names_lane) text += ' ' + same_for_others(names);
  for (size_t i = 0; i < names.size(); ++i) {
    const Finding& finding = report.findings[group.lanes[i].front()];
    const std::string rest = without_name(report, finding).substr(group.shared.size());
    std::string own = rest;
    for (size_t at = own.find(kOwnName); at != std::string::npos; at = own.find(kOwnName)) {
      own.replace(at, 1, names[i]);
    }
    if (!own.empty()) text += fmt::format(" In {}:{}", names[i], own);
  }
  for (size_t at = text.find(kOwnName); at != std::string::npos; at = text.find(kOwnName)) {
    text.replace(at, 1, names.front());
  }
  return text;
}

}  // namespace halfscope::report
