// SPDX-License-Identifier: MIT
// Numbers that share a scale, as block formats store them.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "analysis/rules/text.h"  // counted
#include "cli/tasks/float_pages.h"
#include "cli/terminal/lane_summary.h"  // aligned
#include "core/error.h"
#include "core/lab/block_view.h"
#include "core/lab/number_text.h"
#include "core/near_miss.h"
#include "core/numeric/formats/codes.h"

namespace halfscope::lab {
namespace {

BlockFormat read_block_format(const std::string& text) {
  if (text == "mxfp8") return kMxfp8E4m3;
  if (text == "mxfp6") return kMxfp6E2m3;
  // The rule has a flag of its own.
  const bool plain = text.find(':') == std::string::npos;
  if (const auto format = parse_block_format(text); format && plain) return *format;
  const std::vector<std::string> names = viewed_block_formats();
  throw usage_error("--block: unknown block format '" + text + "'",
                    did_you_mean(text, names, "formats: " + comma_list(names)));
}

std::vector<float> read_numbers(const std::vector<std::string>& words) {
  if (words.empty()) {
    throw usage_error("--block needs numbers", "for example --block mxfp8 0.1 0.5 300");
  }
  std::vector<float> values;
  for (const std::string& word : words) {
    std::string problem;
    const std::optional<uint32_t> code = read_number(word, kFp32, problem);
    if (!code) throw usage_error("--block: " + problem, "separate numbers by blanks");
    values.push_back(decode(*code, kFp32));
  }
  if (values.size() > kMostBlockValues) {
    throw usage_error(fmt::format("--block: {} numbers, but a block has at most {}", values.size(),
                                  kMostBlockValues),
                      fmt::format("give {} numbers or fewer", kMostBlockValues));
  }
  return values;
}

std::string percent_of(double error, double value) {
  if (std::isnan(error)) return "-";
  if (error == 0.0) return "0";
  return value == 0.0 ? fmt::format("{:.3g}", error)
                      : fmt::format("{:+.3g}%", 100.0 * error / value);
}

Json block_json(const BlockView& view) {
  Json json{{"schema", "halfscope.float-block/1"},
            {"version", HALFSCOPE_VERSION},
            {"format", block_format_name(view.format)},
            {"rule", view.format.scale == ScaleKind::ue8m0 ? Json(block_scale_rule_name(view.rule))
                                                           : Json()},
            {"tensor_scale", json_number(static_cast<double>(view.tensor_scale))},
            {"rms_error", json_number(view.rms_error)}};
  json["blocks"] = Json::array();
  for (const SharedScale& each : view.scales) {
    json["blocks"].push_back({{"first", each.first},
                              {"count", each.count},
                              {"amax", json_number(static_cast<double>(each.amax))},
                              {"scale", json_number(static_cast<double>(each.scale))},
                              {"code", fmt::format("0x{:02x}", each.code)},
                              {"clipped", each.clipped},
                              {"flushed", each.flushed}});
  }
  json["values"] = Json::array();
  for (const BlockElement& each : view.elements) {
    json["values"].push_back({{"input", json_number(static_cast<double>(each.input))},
                              {"scaled", json_number(each.scaled)},
                              {"code", code_text(each.code, view.format.element)},
                              {"element", json_number(static_cast<double>(each.element))},
                              {"value", json_number(static_cast<double>(each.value))},
                              {"clipped", each.clipped},
                              {"flushed", each.flushed}});
  }
  return json;
}

}  // namespace

void show_block(const std::string& name, const std::string& rule_name,
                const std::vector<std::string>& numbers, const FloatChoice& choice) {
  const BlockFormat format = read_block_format(name);
  const std::optional<BlockScaleRule> rule = parse_block_scale_rule(rule_name);
  if (!rule) {
    throw usage_error("--rule: unknown rule '" + rule_name + "'", "use floor, nearest or ceil");
  }
  const BlockView view = view_block(read_numbers(numbers), format, *rule);
  if (choice.json) return write_json(block_json(view));
  const std::string element = format_name(format.element);
  std::string out = fmt::format("{} as {}: {} elements that share a scale\n\n",
                                counted(static_cast<int64_t>(view.elements.size()), "number"),
                                block_format_name(format), element);
  for (size_t i = 0; i < view.scales.size(); ++i) {
    out += paragraph(scale_reason(view, i), choice.style, 0, 0);
  }
  std::vector<std::vector<std::string>> rows{
      {"number", "/ scale", "code", element, "value", "error", ""}};
  const auto word = [](double x) { return std::isnan(x) ? "NaN" : fmt::format("{:.6g}", x); };
  for (const BlockElement& each : view.elements) {
    rows.push_back({word(static_cast<double>(each.input)), word(each.scaled),
                    std::isnan(each.element) ? "-" : code_text(each.code, format.element),
                    word(static_cast<double>(each.element)), word(static_cast<double>(each.value)),
                    percent_of(each.error, static_cast<double>(each.input)),
                    each.beyond    ? "clipped: beyond fp32"
                    : each.clipped ? "clipped"
                    : each.flushed ? "becomes 0"
                                   : ""});
  }
  out += "\n" + aligned(rows, {true, true, false, true, true, true, false});
  write_out(out);
}

}  // namespace halfscope::lab
