// SPDX-License-Identifier: MIT
// A gate's violations as SARIF 2.1.0 (OASIS). GitHub's code scanning needs a physical location:
// the rule's line in the gate file, or the run file where there is no gate file. Its fingerprint
// must not change from run to run, or every run opens new alerts.
#include <fmt/format.h>

#include <cctype>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "analysis/gate/gate.h"
#include "core/hash.h"

namespace halfscope {
namespace {

using Sarif = nlohmann::ordered_json;
using State = GateCheck::State;

/// Returns an id that no other kind of violation has: "limit/overflow", "finding/lost_updates".
std::string sarif_rule(const GateCheck& check) {
  if (check.finding) return "finding/" + check.of;
  return std::isnan(check.limit) ? "limit/incomplete" : "limit/" + check.of;
}

std::string about_rule(const GateCheck& check) {
  if (check.finding) return "HalfScope's rule " + check.of + " found a problem.";
  if (std::isnan(check.limit)) return "The run ended too early.";
  return "The measure " + check.of + " exceeds a limit of the gate, or was not measured.";
}

std::string fingerprint(const std::string& text) { return fmt::format("{:016x}", fnv1a(text)); }

/// Returns a file name as a URI reference (RFC 3986); absolute names become "file:///...".
std::string uri_of(const std::string& file) {
  std::string uri = file.starts_with('/') ? "file://" : "";
  for (const char c : file) {
    const unsigned char byte = static_cast<unsigned char>(c);
    const bool plain = byte < 0x80 && std::isalnum(byte) != 0;
    if (plain || std::string_view("-._~/").find(c) != std::string_view::npos) {
      uri += c;
    } else {
      uri += fmt::format("%{:02X}", byte);
    }
  }
  return uri;
}

/// A violation that the baseline has as well is only a note.
std::string level_of(const GateCheck& check) {
  if (check.state == State::known || check.severity == Severity::info) return "note";
  return severity_name(check.severity);
}

std::string baseline_state(const GateCheck& check) {
  if (check.state == State::known) return "unchanged";
  return check.before && !(*check.before <= check.limit) ? "updated" : "new";
}

Sarif result_json(const GateResult& result, const GateCheck& check, size_t rule_index) {
  const GateRule& rule = result.rule_of(check);
  const std::string& lane = result.lane_of(check);
  const bool has_line = !result.gate.file.empty() && rule.line > 0;
  const std::string place = check.site.empty() ? "" : check.site + ": ";
  Sarif physical{{"artifactLocation", {{"uri", uri_of(has_line ? result.gate.file : result.run)}}}};
  physical["region"] = {{"startLine", has_line ? rule.line : 1}};
  const std::string path = check.layer.empty() ? lane : lane + "/" + check.layer;
  Sarif logical{{"name", check.layer.empty() ? lane : check.layer},
                {"fullyQualifiedName", path},
                {"kind", "module"}};
  Sarif location{{"physicalLocation", std::move(physical)}};
  location["logicalLocations"] = Sarif::array({std::move(logical)});
  Sarif json;
  json["ruleId"] = sarif_rule(check);
  json["ruleIndex"] = rule_index;
  json["level"] = level_of(check);
  json["message"] = {{"text", fmt::format("{}: {}{}", lane, place, check.text)}};
  json["locations"] = Sarif::array({std::move(location)});
  json["partialFingerprints"] = {
      {"halfscopeSite/v1",
       fingerprint(sarif_rule(check) + '\n' + rule.name + '\n' + lane + '\n' + check.site)}};
  if (!result.baseline.empty()) json["baselineState"] = baseline_state(check);
  return json;
}

}  // namespace

std::string gate_sarif(const GateResult& result) {
  Sarif rules = Sarif::array(), results = Sarif::array();
  std::map<std::string, size_t> places;
  for (const GateCheck& check : result.checks) {
    if (check.state != State::failed && check.state != State::known) continue;
    const std::string id = sarif_rule(check);
    const auto [place, is_new] = places.try_emplace(id, places.size());
    if (is_new) {
      rules.push_back({{"id", id}, {"shortDescription", {{"text", about_rule(check)}}}});
    }
    results.push_back(result_json(result, check, place->second));
  }
  Sarif driver{{"name", "HalfScope"}};
  if (!result.version.empty()) driver["version"] = result.version;
  driver["rules"] = std::move(rules);
  Sarif run;
  run["tool"] = {{"driver", std::move(driver)}};
  run["results"] = std::move(results);
  run["columnKind"] = "unicodeCodePoints";
  Sarif json{{"$schema", "https://json.schemastore.org/sarif-2.1.0.json"}, {"version", "2.1.0"}};
  json["runs"] = Sarif::array({std::move(run)});
  return json.dump(2, ' ', false, Sarif::error_handler_t::replace) + "\n";
}

}  // namespace halfscope
