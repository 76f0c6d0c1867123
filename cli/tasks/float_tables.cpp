// SPDX-License-Identifier: MIT
// The page of a format, which lists its values, and the page of sums.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/rules/text.h"  // counted
#include "cli/tasks/float_pages.h"
#include "cli/terminal/lane_summary.h"  // aligned
#include "core/error.h"
#include "core/lab/explain.h"
#include "core/lab/number_text.h"
#include "core/lab/running_sum.h"
#include "core/numeric/formats/codes.h"

namespace halfscope::lab {
namespace {

constexpr int kAllValuesBits = 8;  ///< formats with at most so many bits are listed in full
constexpr size_t kAllBinades = 40, kEnds = 6;

const char* encoding_text(const FloatFormat& format) {
  switch (format.encoding) {
    case Encoding::ieee:
      return format.has_nan() ? "infinities and NaN, as in IEEE 754" : "infinities, no NaN";
    case Encoding::finite_nan:
      return "no infinity; one magnitude is NaN (fn)";
    case Encoding::fnuz:
      return "no infinity, no -0; its code is NaN (fnuz)";
    case Encoding::finite:
      return format.evenly_spaced() ? "whole numbers as sign and magnitude; overflow saturates"
                                    : "numbers only; overflow saturates";
  }
  return "";
}

std::string number_word(double value, const FloatFormat& format) {
  return value_text(static_cast<float>(value), format);
}

Json format_json(const FloatFormat& format, const FormatFacts& facts) {
  return {{"name", format_name(format)},
          {"bits", format.bits()},
          {"exponent_bits", format.exponent_bits},
          {"mantissa_bits", format.mantissa_bits},
          {"bias", format.bias},
          {"largest", facts.largest},
          {"smallest_normal", facts.smallest_normal},
          {"smallest", facts.smallest},
          {"epsilon", facts.epsilon},
          {"last_whole", facts.last_whole},
          {"values", facts.values},
          {"nans", facts.nans},
          {"dynamic_range_db", facts.decibels}};
}

std::string exponent_name(const Binade& binade, const FloatFormat& format) {
  if (format.evenly_spaced()) return binade.subnormal ? "low half" : "high half";
  return fmt::format("2^{}{}", binade.exponent, binade.subnormal ? " subnormal" : "");
}

/// All digits where they are few, as in formats of 8 bits; otherwise the shortest that reads back,
/// but at least three.
std::string value_cell(double value, const FloatFormat& format) {
  constexpr size_t kFew = 12;
  const std::string exact = exact_text(static_cast<float>(value));
  if (exact.size() <= kFew) return exact;
  if (format.bits() <= kAllValuesBits) return fmt::format("{:.4g}", value);
  // fp16's smallest number is 5.96e-08 everywhere, although 6e-08 would do.
  const std::string three = fmt::format("{:.3g}", value), word = number_word(value, format);
  return three.size() > word.size() ? three : word;
}

/// "0.25 (2^-2)"; powers of two that read well as decimals stand alone.
std::string power_cell(double value, const FloatFormat& format) {
  const std::string power = power_or_number(value), number = value_cell(value, format);
  return power.starts_with("2^") ? fmt::format("{} ({})", number, power) : number;
}

/// Every positive value, a line or more for each exponent, in columns.
std::string all_values(const FloatFormat& format, size_t width) {
  const std::vector<Binade> list = binades(format);
  size_t longest = 0, cell = 0;
  for (const Binade& each : list) {
    longest = std::max(longest, exponent_name(each, format).size());
    for (int64_t i = 0; i < each.count; ++i) {
      const double value = each.first + static_cast<double>(i) * each.step;
      cell = std::max(cell, value_cell(value, format).size());
    }
  }
  const size_t indent = 2 + longest;
  size_t columns = 1;  // a power of two, so that rows start at round significands
  while (indent + 2 * columns * (cell + 2) <= width && columns < 16) columns *= 2;
  std::string text;
  for (const Binade& each : list) {
    const int64_t skipped = each.subnormal ? 1 : 0;  // zero, the first code of its row
    for (int64_t i = 0; i < each.count; ++i) {
      const auto place = static_cast<size_t>(i + skipped) % columns;
      if (i == 0 || place == 0) {
        text += fmt::format("{}  {:<{}}", text.empty() ? "" : "\n",
                            i == 0 ? exponent_name(each, format) : "", longest);
        if (i == 0 && skipped != 0) text += std::string(cell + 1, ' ') + "0";
      }
      text += fmt::format(
          "  {:>{}}", value_cell(each.first + static_cast<double>(i) * each.step, format), cell);
    }
  }
  return text + "\n";
}

std::string binade_table(const FloatFormat& format) {
  const std::vector<Binade> list = binades(format);
  std::vector<std::vector<std::string>> rows{
      {"exponent", "from", "to", "apart", "values", "first code"}};
  for (size_t i = 0; i < list.size(); ++i) {
    if (list.size() > kAllBinades) {
      // The ends, and the neighborhood of 1.
      const bool near_one = std::abs(list[i].exponent) <= 4 && !list[i].subnormal;
      const bool shown = i < kEnds || i + kEnds >= list.size() || near_one;
      if (!shown) {
        if (rows.back().size() > 1 && rows.back()[0] != "...")
          rows.push_back({"...", "", "", "", "", ""});
        continue;
      }
    }
    const Binade& each = list[i];
    rows.push_back({exponent_name(each, format), number_word(each.first, format),
                    number_word(each.last, format), power_or_number(each.step),
                    fmt::format("{}", each.count), code_text(each.first_code, format)});
  }
  return aligned(rows, {false, true, true, true, true, false});
}

}  // namespace

void show_format(const FloatFormat& format, const FloatChoice& choice) {
  const FormatFacts facts = format_facts(format);
  const std::string name = format_name(format);
  if (choice.json) {
    Json json{{"schema", "halfscope.float-format/1"}, {"version", HALFSCOPE_VERSION}};
    json["format"] = format_json(format, facts);
    json["binades"] = Json::array();
    for (const Binade& each : binades(format)) {
      json["binades"].push_back({{"exponent", each.exponent},
                                 {"subnormal", each.subnormal},
                                 {"first", each.first},
                                 {"last", each.last},
                                 {"step", each.step},
                                 {"count", each.count},
                                 {"first_code", code_text(each.first_code, format)}});
    }
    json["values"] = Json::array();
    if (format.bits() <= kAllValuesBits) {
      for (uint32_t code = 0; code <= all_codes(format); ++code) {
        const float value = decode(code, format);
        json["values"].push_back({{"code", code_text(code, format)},
                                  {"value", json_number(static_cast<double>(value))}});
      }
    }
    return write_json(json);
  }
  std::string out = fmt::format("{}: 1 sign bit, {} (bias {}), {}\n\n", name,
                                counted(format.exponent_bits, "exponent bit"), format.bias,
                                counted(format.mantissa_bits, "mantissa bit"));
  const auto row = [&](const char* what, const std::string& value) {
    out += fmt::format("  {:<17}{}\n", what, value);
  };
  row("largest", value_cell(facts.largest, format));
  if (!format.evenly_spaced() && facts.smallest_normal != facts.smallest) {
    row("smallest normal", power_cell(facts.smallest_normal, format));
  }
  row("smallest", power_cell(facts.smallest, format));
  if (facts.epsilon > 0.0) {
    row("next after 1", fmt::format("1 + {}", power_or_number(facts.epsilon)));
  }
  if (facts.last_whole >= 1.0) {
    row("whole numbers", fmt::format("all up to {}", shortest(facts.last_whole)));
  }
  row("values",
      fmt::format("{} different finite values, {} codes for NaN", facts.values, facts.nans));
  row("dynamic range", fmt::format("{:.1f} dB (largest / smallest)", facts.decibels));
  row("special codes", encoding_text(format));
  if (format.bits() <= kAllValuesBits) {
    out += "\nAll positive values, by exponent:\n\n" +
           all_values(format, choice.style.width == 0 ? 80 : choice.style.width);
  } else {
    out += "\nPositive values, by exponent:\n\n" + binade_table(format);
  }
  write_out(out);
}

void show_sums(const FloatFormat& format, const std::string& words, const FloatChoice& choice) {
  std::string problem;
  const std::optional<std::vector<Terms>> terms = read_terms(words, problem);
  if (!terms)
    throw usage_error("--sum: " + problem, "for example --sum 4096x1.0 or --sum 1,1000x1e-4");
  const RunningSums sums = running_sums(*terms, format, choice.seed);
  const auto error_of = [&](const SumSeries& each) {
    return sums.exact == 0.0 ? static_cast<double>(each.last)
                             : static_cast<double>(each.last) / sums.exact - 1.0;
  };
  if (choice.json) {
    Json json{{"schema", "halfscope.float-sum/1"}, {"version", HALFSCOPE_VERSION},
              {"format", format_name(format)},     {"terms", words},
              {"count", sums.terms.back()},        {"exact", sums.exact}};
    json["sums"] = Json::array();
    for (const SumSeries& each : sums.series) {
      json["sums"].push_back(
          {{"name", each.name},
           {"sum", json_number(static_cast<double>(each.last))},
           {"relative_error", sums.exact == 0.0 ? Json() : json_number(error_of(each))},
           {"stalled_after", each.stalled_after < 0 ? Json() : Json(each.stalled_after)}});
    }
    return write_json(json);
  }
  std::vector<std::vector<std::string>> rows{{"summed in", "sum", "error", "stalls after"}};
  for (const SumSeries& each : sums.series) {
    const double error = error_of(each);
    rows.push_back(
        {each.name,
         std::isfinite(each.last) ? value_text(each.last, each.format) : exact_text(each.last),
         !std::isfinite(error) ? "-"
         : sums.exact == 0.0   ? fmt::format("{:.3g}", error)
         : error == 0.0        ? "0"
                               : fmt::format("{:+.3g}%", 100.0 * error),
         each.stalled_after < 0 ? "-" : counted(each.stalled_after, "term")});
  }
  std::string out = fmt::format("{} added one by one; the exact sum is {}\n\n",
                                counted(sums.terms.back(), "term"), shortest(sums.exact));
  out += aligned(rows, {false, true, true, true});
  const SumSeries& plain = sums.series.front();
  if (plain.stalled_after >= 0) {
    const SumMoment moment = sum_moment(*terms, format, plain.stalled_after);
    out += "\n" +
           paragraph(fmt::format("{} after {}: {}", plain.name,
                                 counted(plain.stalled_after, "term"), moment_text(moment, format)),
                     choice.style, 0, 0);
  }
  write_out(out);
}

}  // namespace halfscope::lab
