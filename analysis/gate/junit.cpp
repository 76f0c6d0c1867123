// SPDX-License-Identifier: MIT
// A gate's result as JUnit XML, in the form that GitHub, GitLab and Jenkins read: a suite per lane,
// a case per rule and layer. GitLab merges cases without a classname and ignores the attribute
// `message`, so every case has a classname, and the text is in the element's body.
#include <fmt/format.h>

#include <map>
#include <utility>
#include <vector>

#include "analysis/gate/gate.h"
#include "core/utf8.h"

namespace halfscope {
namespace {

using State = GateCheck::State;

struct Case {
  std::string name;
  std::vector<const GateCheck*> checks;

  std::string lines(State state) const {
    std::string text;
    for (const GateCheck* check : checks) {
      if (check->state != state) continue;
      if (!text.empty()) text += "\n";
      text += (check->site.empty() ? "" : check->site + ": ") + check->text;
    }
    return text;
  }
  /// Returns the worst state that any check has.
  State state() const {
    State worst = State::passed;
    for (const GateCheck* check : checks) worst = std::max(worst, check->state);
    return worst;
  }
};

struct Suite {
  std::string lane;
  std::vector<Case> cases;

  int64_t count(bool failed) const {
    int64_t count = 0;
    for (const Case& each : cases) {
      count += failed ? each.state() == State::failed
                      : each.state() != State::failed && each.state() != State::passed;
    }
    return count;
  }
};

std::vector<Suite> suites_of(const GateResult& result) {
  std::vector<Suite> suites;
  for (const std::string& lane : result.lanes) suites.push_back({.lane = lane, .cases = {}});
  std::map<std::pair<int, std::string>, size_t> places;
  for (const GateCheck& check : result.checks) {
    Suite& suite = suites[static_cast<size_t>(check.lane)];
    std::string name = result.rule_of(check).name;
    if (!check.layer.empty()) name += ": " + check.layer;
    const auto [place, is_new] = places.try_emplace({check.lane, name}, suite.cases.size());
    if (is_new) suite.cases.push_back({.name = name, .checks = {}});
    suite.cases[place->second].checks.push_back(&check);
  }
  std::erase_if(suites, [](const Suite& suite) { return suite.cases.empty(); });
  return suites;
}

std::string case_xml(const Suite& suite, const Case& each) {
  const std::string head =
      fmt::format(R"(    <testcase name="{}" classname="halfscope.{}" time="0")",
                  markup_text(each.name), markup_text(suite.lane));
  const State state = each.state();
  if (state == State::passed) return head + "/>\n";
  const std::string text = each.lines(state);
  const std::string first = text.substr(0, text.find('\n'));
  if (state == State::failed) {
    return fmt::format(
        "{}>\n      <failure message=\"{}\" type=\"gate\">{}</failure>\n    </testcase>\n", head,
        markup_text(first), markup_text(text));
  }
  const char* why = state == State::known ? "known: " : "";
  return fmt::format("{}>\n      <skipped message=\"{}{}\"/>\n    </testcase>\n", head, why,
                     markup_text(first));
}

}  // namespace

std::string gate_junit(const GateResult& result) {
  const std::vector<Suite> suites = suites_of(result);
  size_t tests = 0;
  int64_t failures = 0, skipped = 0;
  std::string body;
  for (const Suite& suite : suites) {
    tests += suite.cases.size();
    failures += suite.count(true);
    skipped += suite.count(false);
    body += fmt::format(
        "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\" "
        "time=\"0\">\n",
        markup_text(suite.lane), suite.cases.size(), suite.count(true), suite.count(false));
    for (const Case& each : suite.cases) body += case_xml(suite, each);
    body += "  </testsuite>\n";
  }
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"halfscope\" tests=\"{}\" "
      "failures=\"{}\" errors=\"0\" skipped=\"{}\" time=\"0\">\n{}</testsuites>\n",
      tests, failures, skipped, body);
}

}  // namespace halfscope
