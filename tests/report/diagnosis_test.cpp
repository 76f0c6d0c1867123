// SPDX-License-Identifier: MIT
// Output of a diagnosis for people and programs: its words, its lines for a terminal, its object
// and tables in docs/reference/diagnosis.md, and its place in the reports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "analysis/report/report.h"
#include "core/plan/causes.h"
#include "tests/report/report_fixtures.h"

namespace halfscope::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::ordered_json;
using Rows = std::vector<std::vector<std::string>>;

/// Returns the cells of the tables in docs/reference/diagnosis.md whose head begins with `head`.
Rows contract_rows(const std::string& head) {
  std::ifstream file(std::string(HALFSCOPE_SOURCE_DIR) + "/docs/reference/diagnosis.md");
  Rows rows;
  bool table = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("| " + head + " |")) {
      table = true;
      continue;
    }
    if (!line.starts_with("| ")) table = false;
    if (!table || line.starts_with("| ---")) continue;
    std::vector<std::string> cells;
    for (size_t from = 2, end = 0; (end = line.find(" |", from)) != std::string::npos;) {
      cells.push_back(line.substr(from, end - from));
      from = end + 3;
    }
    std::erase(cells.front(), '`');
    rows.push_back(std::move(cells));
  }
  return rows;
}

std::vector<std::string> names_in(const Json& list) {
  std::vector<std::string> names;
  for (const Json& name : list) names.push_back(name);
  return names;
}

Change change(FixKind kind, const std::string& path) { return {.kind = kind, .path = path}; }

TEST(DiagnosisContract, TablesHaveEveryWord) {
  Rows mechanisms, kinds;
  for (const Mechanism each : all_mechanisms()) {
    mechanisms.push_back({mechanism_name(each), mechanism_text(each)});
  }
  EXPECT_EQ(contract_rows("mechanism"), mechanisms);
  const Rows fixes = contract_rows("kind of fix");
  ASSERT_EQ(fixes.size(), all_fixes().size());
  for (size_t i = 0; i < fixes.size(); ++i) {
    const FixKind kind = all_fixes()[i];
    ASSERT_EQ(fixes[i].size(), 3u);
    EXPECT_EQ(fixes[i][0], fix_name(kind));
    EXPECT_EQ(fixes[i][1], fix_text(kind));
    const bool of_a_node = fixes[i][2].starts_with("the node `path`");
    const auto can_be_tried = [&](const char* path) {
      // Kinds whose text says how ranks reduce.
      const bool reduces =
          kind == FixKind::config || kind == FixKind::reduce_order || kind == FixKind::reduce_fp32;
      return Change{.kind = kind, .path = path, .value = 0.5, .text = reduces ? "ring" : ""}
          .can_be_tried();
    };
    EXPECT_EQ(fixes[i][2] != "-", can_be_tried("conv2")) << fix_name(kind);
    EXPECT_EQ(of_a_node, can_be_tried("conv2") && !can_be_tried("")) << fix_name(kind);
  }
}

TEST(DiagnosisContract, TheSchemaHasEveryWord) {
  std::ifstream file(std::string(HALFSCOPE_SOURCE_DIR) + "/docs/report.schema.json");
  const Json words = Json::parse(file).at("$defs");
  std::vector<std::string> mechanisms, kinds;
  for (const Mechanism each : all_mechanisms()) mechanisms.emplace_back(mechanism_name(each));
  for (const FixKind each : all_fixes()) kinds.emplace_back(fix_name(each));
  EXPECT_EQ(names_in(words.at("mechanism").at("enum")), mechanisms);
  EXPECT_EQ(names_in(words.at("fix_kind").at("enum")), kinds);
}

TEST(DiagnosisContract, TheTableHasTheKeysOfTheObject) {
  std::vector<std::string> documented, written;
  for (std::vector<std::string>& row : contract_rows("key")) {
    if (row.front().ends_with("[]")) row.front().resize(row.front().size() - 2);
    documented.push_back(row.front());
  }
  const Json json = Json::parse(diagnosis_json({}));
  for (const auto& [key, value] : json.items()) written.push_back(key);
  EXPECT_EQ(documented, written);
}

TEST(DiagnosisWords, ChangesOfOneKindAreToldTogether) {
  const PlanEdit edit{
      .changes = {change(FixKind::operator_fp32, "a"), change(FixKind::store_fp32, "b"),
                  change(FixKind::operator_fp32, "c"), change(FixKind::store_fp32, "d")}};
  EXPECT_EQ(edit_sentence(edit), "Keep a and c in fp32, and keep the outputs of b and d in fp32.");
  EXPECT_EQ(edit_text({.changes = {change(FixKind::operator_fp32, "a"),
                                   change(FixKind::store_fp32, "b")}}),
            "keep a in fp32 and keep the output of b in fp32");
  EXPECT_EQ(edit_text(PlanEdit::of(FixKind::accumulate_fp32, "norm/var")),
            "let norm/var accumulate in fp32");
  EXPECT_EQ(edit_sentence({.changes = {{.kind = FixKind::format, .text = "bf16"}}}),
            "Use bf16 instead of every format below fp32.");
  EXPECT_EQ(edit_text({.changes = {change(FixKind::clamp, "a"), change(FixKind::clamp, "b")}}),
            "clamp the outputs of a and b to the format's range");
  EXPECT_EQ(edit_text({.changes = {{.kind = FixKind::prescale, .path = "a", .value = 0.0625}}}),
            "scale a down by 16 (2^4) and its output back up where it is read");
  EXPECT_EQ(
      edit_text({.changes = {{.kind = FixKind::keep_integer, .path = "c", .nodes = {"a", "b"}}}}),
      "keep the integers of a, b and c exact");
  EXPECT_EQ(edit_text(PlanEdit::of(FixKind::amax_floor)),
            "compute scales from an amax of at least 1e-12");
}

TEST(DiagnosisWords, PartsAreNamedByWhatIsTakenAway) {
  const std::pair<Change, const char*> parts[] = {
      {change(FixKind::operator_fp32, "conv2"), "conv2"},
      {change(FixKind::store_fp32, "conv2"), "the fp32 output of conv2"},
      {change(FixKind::accumulate_fp32, "norm/var"), "the fp32 accumulation of norm/var"},
      {change(FixKind::constant, "add"), "the new constant of add"},
      {change(FixKind::clamp, "a b"), "the clamping of a b"},
      {{.kind = FixKind::prescale, .path = "a b", .value = 0.5}, "the scaling of a b"},
      {change(FixKind::keep_integer, "c"), "the exact integers of c"},
      {change(FixKind::schedule_fp32, ""), "the fp32 learning rate"},
      {{.kind = FixKind::loss_scale, .value = 8.0}, "the loss scale"},
      {change(FixKind::weights_fp32, ""), "the fp32 master weights"},
      {{.kind = FixKind::stochastic_rounding, .text = "gradients"},
       "the stochastic rounding of gradients"},
      // Layers that are called like a kind.
      {change(FixKind::operator_fp32, "constant"), "constant"},
      {change(FixKind::operator_fp32, "prescale"), "prescale"},
  };
  for (const auto& [part, words] : parts) EXPECT_EQ(part_text(part.name()), words);
}

Diagnosis overflow() {
  Diagnosis diagnosis{.lane = 1, .harmed = true, .mechanism = Mechanism::forward_overflow};
  diagnosis.root = {{.layer = "conv2", .node = "/net/Conv_2", .site = "conv2.activation"}};
  diagnosis.cause = "conv2 overflows fp16.";
  diagnosis.chain = {
      {.site = "conv2.activation", .layer = "conv2", .text = "22% larger than 65504"},
      {.site = "fc1.activation", .layer = "fc1", .text = "100% NaN"}};
  diagnosis.fix = PlanEdit::of(FixKind::store_fp32, "conv2");
  diagnosis.fix_text = edit_sentence(diagnosis.fix);
  diagnosis.decoys = {
      {{.layer = "relu"}, "A."}, {{.layer = "fc1"}, "B."}, {{.layer = "pool"}, "A."}};
  diagnosis.confidence = Confidence::medium;
  diagnosis.reasons = {"Nothing was tried yet.", "The run shows the cause."};
  return diagnosis;
}

TEST(DiagnosisLines, SayCauseWayFixAndWhatIsInnocent) {
  Diagnosis diagnosis = overflow();
  const std::string before =
      "cause: conv2 overflows fp16.\n"
      "where: conv2 (/net/Conv_2 in the model file)\n"
      "mechanism: forward_overflow (outputs of the forward pass are larger than the format's "
      "largest number)\n"
      "leads to: conv2 (22% larger than 65504) -> fc1 (100% NaN)\n";
  const std::string after =
      "not the cause: relu and pool. A.\n"
      "not the cause: fc1. B.\n";
  EXPECT_EQ(diagnosis_lines(diagnosis),
            before + "fix, not tried yet: Keep the output of conv2 in fp32.\n" + after +
                "confidence: medium. Nothing was tried yet.\n");
  diagnosis.trials = 7;
  EXPECT_THAT(diagnosis_lines(diagnosis), HasSubstr("\nfix, tried, but not enough: Keep the"));
  diagnosis.verified = true;
  diagnosis.alternatives = {{.changes = {{.kind = FixKind::format, .text = "bf16"}}}};
  EXPECT_EQ(diagnosis_lines(diagnosis),
            before + "fix, proved by 7 trials: Keep the output of conv2 in fp32.\n" +
                "or, as small: Use bf16 instead of every format below fp32.\n" + after +
                "confidence: medium. Nothing was tried yet.\n");
  diagnosis.harmed = false;
  EXPECT_EQ(diagnosis_lines(diagnosis), "");
}

TEST(DiagnosisLines, AMechanismThatIsTheCauseIsNotToldTwice) {
  Diagnosis diagnosis = overflow();
  diagnosis.mechanism = Mechanism::lost_update;
  diagnosis.cause = "Updates are smaller than half an ulp of the weights.";
  EXPECT_THAT(diagnosis_lines(diagnosis), HasSubstr("\nmechanism: lost_update\n"));
}

TEST(DiagnosisReport, EveryFormTellsTheSame) {
  Report report = make_report(full_run());
  ASSERT_TRUE(report.diagnosis);
  EXPECT_EQ(report.diagnosis->root.at(0).layer, "conv2");
  report.diagnosis = overflow();
  report.diagnosis->does_not_help = {{PlanEdit::in_fp32({"fc1"}), 0.25, false}};
  const std::string html = report_html(report);
  const size_t at = html.find("id=\"cause\"");
  ASSERT_LT(at, html.find("id=\"actions\""));
  const std::string block = html.substr(at, html.find("</section>", at) - at);
  EXPECT_THAT(html.substr(0, at), HasSubstr("conv2 overflows fp16"));
  EXPECT_THAT(block, HasSubstr("<code>forward_overflow</code>"));
  EXPECT_THAT(block, HasSubstr("(/net/Conv_2 in the network's file)"));
  EXPECT_THAT(block, HasSubstr("Confidence: medium."));
  EXPECT_THAT(block, HasSubstr("<td>Keep fc1 in fp32.</td><td class=\"n\">25%</td>"));
  EXPECT_LT(block.find("22% larger than 65504"), block.find("100% NaN"));
  EXPECT_GT(block.find("fc1</a></b>: B."), block.find("<details"));

  const std::string md = report_markdown(report);
  EXPECT_THAT(md, HasSubstr("\n**Cause** in `mixed_float16`: conv2 "));
  EXPECT_THAT(md, HasSubstr(" `conv2` (22% larger than 65504) &rarr; `fc1` (100% NaN)\n"));
  EXPECT_THAT(md, HasSubstr("\n- Not the cause: fc1. B.\n"));
  EXPECT_THAT(report_markdown_summary(report), HasSubstr("conv2 overflows fp16"));
  const Json json = Json::parse(report_json(report)).at("diagnosis");
  EXPECT_EQ(json.at("mechanism"), "forward_overflow");
  EXPECT_EQ(json.at("fix").at("kind"), "store_fp32");
  EXPECT_EQ(json.at("root").at(0).at("node"), "/net/Conv_2");
}

TEST(DiagnosisReport, HealthyRunsHaveNone) {
  const Report report = make_report(make_run(healthy_spec()));
  EXPECT_FALSE(report.diagnosis);
  EXPECT_THAT(report_html(report), Not(HasSubstr("id=\"cause\"")));
  EXPECT_THAT(report_markdown(report), Not(HasSubstr("**Cause**")));
  EXPECT_TRUE(Json::parse(report_json(report)).at("diagnosis").is_null());
}

}  // namespace
}  // namespace halfscope::test
