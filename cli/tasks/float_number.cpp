// SPDX-License-Identifier: MIT
// One number or expression, in one format or in all of them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "cli/tasks/float_pages.h"
#include "cli/terminal/lane_summary.h"  // aligned
#include "core/error.h"
#include "core/lab/explain.h"
#include "core/lab/expression.h"
#include "core/lab/number_text.h"
#include "core/lab/rounding_place.h"
#include "core/numeric/formats/codes.h"
#include "core/numeric/formats/rng.h"
#include "core/numeric/formats/round.h"
#include "core/numeric/statistics/ulp.h"
#include "core/policy/policy.h"

namespace halfscope::lab {
namespace {

constexpr size_t kLongestWords = 24;

/// Returns a number as typed, without its middle if it is long.
std::string short_words(const std::string& text) {
  return text.size() <= kLongestWords ? text
                                      : text.substr(0, 8) + "..." + text.substr(text.size() - 13);
}

/// A number as typed, and what the format makes of it.
struct TypedNumber {
  float value = 0.0f;
  uint8_t flags = 0;
  std::optional<ExactDecimal> typed{};  ///< before rounding; empty for codes
  bool far = false;                     ///< `typed` only stands for the number (parse_far())

  /// Returns the number before rounding, if its digits are known.
  std::optional<ExactDecimal> exact() const { return far ? std::nullopt : typed; }
};

/// Returns the number, or an empty optional with the reason in `problem`.
std::optional<TypedNumber> read_typed(const std::string& text, const FloatFormat& format,
                                      const FloatChoice& choice, std::string& problem) {
  const std::optional<uint32_t> code = read_number(text, format, problem);
  if (!code) return std::nullopt;
  TypedNumber number{.value = decode(*code, format)};
  number.typed = ExactDecimal::parse(trimmed(text));
  if (!number.typed) {
    number.typed = ExactDecimal::parse_far(trimmed(text));
    number.far = number.typed.has_value();
  }
  if (!number.typed) return number;
  // Decimals are rounded once from all their digits; double decides only other modes and flags.
  const Rounding rounding{.mode = choice.mode,
                          .random = random_draw(random_key(choice.seed, 0, 0), 0)};
  const Rounded<double> rounded = round_to_format(number.typed->rounding_input(), format, rounding);
  if (choice.mode != RoundingMode::nearest_even) number.value = static_cast<float>(rounded.value);
  number.flags = rounded.flags;
  return number;
}

std::string bits_text(uint32_t code, const FloatFormat& format, const TextStyle& style) {
  const auto part = [&](int high, int count) {
    std::string bits;
    for (int bit = high; bit > high - count; --bit) bits += (code >> bit & 1) != 0 ? '1' : '0';
    return bits;
  };
  const int m = format.mantissa_bits, e = format.exponent_bits;
  std::string text = coloured(part(m + e, 1), Colour::red, style) + " " +
                     coloured(part(m + e - 1, e), Colour::green, style);
  if (m > 0) text += " " + coloured(part(m - 1, m), Colour::cyan, style);
  return text;
}

/// Names under the bits, shorter where there are few.
std::string bits_legend(const FloatFormat& format) {
  const auto fit = [](std::array<std::string_view, 3> names, int width) {
    for (const std::string_view name : names) {
      const int rest = width - static_cast<int>(name.size());
      if (rest >= 0) return std::string(name) + std::string(static_cast<size_t>(rest), ' ');
    }
    return std::string();
  };
  std::string text = "s " + fit({"exponent", "exp", "e"}, format.exponent_bits);
  if (format.mantissa_bits > 0) text += " " + fit({"fraction", "frac", "f"}, format.mantissa_bits);
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

using Rows = std::vector<std::pair<std::string, std::string>>;

std::string facts(const Rows& rows) {
  std::string text;
  for (const auto& [name, value] : rows) text += fmt::format("  {:<17}{}\n", name, value);
  return text;
}

std::string ulps_text(double ulps) {
  return std::isnan(ulps) ? "-" : ulps == 0.0 ? "0" : fmt::format("{:+.4g} ulp", ulps);
}

/// Error of a stored value in ulps of the exact one; NaN where there is none.
double error_ulps(float value, const ExactDecimal& exact, const FloatFormat& format) {
  if (!std::isfinite(value)) return std::numeric_limits<double>::quiet_NaN();
  return (ExactDecimal(static_cast<double>(value)) - exact).approximate() /
         ulp_size(exact.approximate(), format);
}

Json value_json(float value, const FloatFormat& format) {
  return {{"code", code_text(detail::code_of_value(value, format), format)},
          {"value", json_number(static_cast<double>(value))},
          {"digits", exact_text(value)},
          {"kind", kind_text(value, format)}};
}

/// Returns a stored value and how it differs from the exact one, if that is known.
Json result_json(float value, const std::optional<ExactDecimal>& exact, const Json& flags,
                 const FloatFormat& format) {
  return {{"result", value_json(value, format)},
          {"exact", exact ? Json(exact->text()) : Json()},
          {"error_ulps", exact ? json_number(error_ulps(value, *exact, format)) : Json()},
          {"flags", flags}};
}

/// Returns the page of one entry, as yet without steps.
Json entry_json(const std::string& entry, const FloatFormat& format, const FloatChoice& choice,
                const Json& result) {
  Json json{{"schema", "halfscope.float/1"},
            {"version", HALFSCOPE_VERSION},
            {"format", format_name(format)},
            {"entry", entry},
            {"rounding", rounding_mode_name(choice.mode)}};
  json.update(result);
  json["steps"] = Json::array();
  return json;
}

/// Returns how a code of an integer format stores its sign, and the code that processors use.
std::string integer_encoding(uint32_t code, const FloatFormat& format) {
  const uint32_t sign = uint32_t{1} << (format.bits() - 1), magnitude = code & ~sign;
  if (code != 0 && magnitude == 0) return "sign and magnitude; two's complement has no -0";
  const uint32_t twos = code == magnitude ? code : (0 - magnitude) & all_codes(format);
  return "sign and magnitude; in two's complement " + code_text(twos, format);
}

/// Facts about a stored value that do not depend on how it was made.
Rows stored_facts(float value, const FloatFormat& format) {
  const uint32_t code = detail::code_of_value(value, format);
  const std::string kind = kind_text(value, format);
  Rows rows{{"value", exact_text(value)}};
  if (kind == "normal" || kind == "subnormal") rows.emplace_back(kind, formula_text(value, format));
  rows.emplace_back("exponent field", exponent_text(code, format));
  rows.emplace_back("code",
                    code_text(code, format) + "   " + hex_float(static_cast<double>(value)));
  if (format.evenly_spaced()) rows.emplace_back("encoding", integer_encoding(code, format));
  if (std::isnan(value)) return rows;
  const auto next = [&](int by) {
    const float other = neighbour(value, by, format);
    return other == value ? std::string("none") : distinct_text(other, format);
  };
  rows.emplace_back("neighbors", next(-1) + "  and  " + next(+1));
  if (std::isfinite(value)) {
    rows.emplace_back("one ulp", power_or_number(ulp_size(static_cast<double>(value), format)));
  }
  return rows;
}

/// Says which format other programs mean by this name.
std::string other_meaning(const std::string& name) {
  for (const NamedFormat& each : named_formats()) {
    if (std::find(each.elsewhere.begin(), each.elsewhere.end(), name) == each.elsewhere.end()) {
      continue;
    }
    return fmt::format("\nOther programs mean {} by {}: its largest number is {:g}.\n", each.name,
                       name, each.format.max_finite());
  }
  return "";
}

void show_typed(const FloatFormat& format, const std::string& text, const TypedNumber& number,
                const FloatChoice& choice) {
  const std::string name = format_name(format);
  const float value = number.value;
  if (choice.json) {
    return write_json(
        entry_json(text, format, choice,
                   result_json(value, number.exact(),
                               number.typed ? Json(flags_text(number.flags)) : Json(), format)));
  }
  const uint32_t code = detail::code_of_value(value, format);
  std::string out = fmt::format("{} in {}\n\n", text, name);
  out += "  " + bits_text(code, format, choice.style) + "\n  " + bits_legend(format) + "\n\n";
  Rows rows = stored_facts(value, format);
  if (number.typed && !number.far && std::isfinite(value)) {
    const ExactDecimal error = ExactDecimal(static_cast<double>(value)) - *number.typed;
    rows.insert(rows.begin() + 1,
                {"rounding error",
                 error.zero() ? "none"
                              : fmt::format("{} ({})",
                                            error.text().size() <= 40
                                                ? error.text()
                                                : fmt::format("{:.6g}", error.approximate()),
                                            ulps_text(error_ulps(value, *number.typed, format)))});
  }
  out += facts(rows);
  if (number.typed && (choice.mode == RoundingMode::nearest_even || std::isnan(value))) {
    const std::string words = number.far ? short_words(text) : "";
    out +=
        "\n" + paragraph(explain_rounding(*number.typed, value, format, words), choice.style, 0, 0);
  }
  write_out(out + other_meaning(name));
}

std::string exact_of(const Expression& expression) {
  if (expression.exact) {
    const std::string all = expression.exact->text();
    return all.size() <= 40 ? all : fmt::format("{:.17g}...", expression.near_exact);
  }
  if (!std::isfinite(expression.near_exact)) return "none";
  return fmt::format("{:.16g}...", expression.near_exact);
}

std::string value_word(float value, const FloatFormat& format) {
  if (!std::isfinite(value)) return exact_text(value);
  return distinct_text(value, format);
}

void show_evaluated(const FloatFormat& format, const std::string& text,
                    const Expression& expression, const FloatChoice& choice) {
  const std::string name = format_name(format);
  if (choice.json) {
    Json json = entry_json(
        text, format, choice,
        result_json(expression.value, expression.exact, flags_text(expression.flags), format));
    for (const ExpressionStep& step : expression.steps) {
      json["steps"].push_back(
          {{"step", step.text},
           {"number", step.is_number},
           {"exact", step.result.exact.empty() ? Json() : Json(step.result.exact)},
           {"value", json_number(static_cast<double>(step.result.value))},
           {"error_ulps", json_number(step.result.error_ulps)},
           {"flags", flags_text(step.result.flags)}});
    }
    return write_json(json);
  }
  std::string out = fmt::format("{} in {}\n", text, name);
  if (!expression.steps.empty()) {
    std::vector<std::vector<std::string>> rows{{"step", "exact", "stored", "error", "flags"}};
    for (const ExpressionStep& step : expression.steps) {
      std::string exact = step.result.exact.empty() ? "none" : step.result.exact;
      if (ExactDecimal::parse_far(exact)) {
        exact = short_words(exact);
      } else if (exact.size() > kLongestWords) {
        exact = fmt::format(
            "{:.15g}...",
            read_double(exact.ends_with("...") ? exact.substr(0, exact.size() - 3) : exact)
                .value_or(0.0));
      }
      rows.push_back({step.is_number ? "read " + step.text : step.text, exact,
                      value_word(step.result.value, format), ulps_text(step.result.error_ulps),
                      flags_text(step.result.flags)});
    }
    out += "\n" + aligned(rows, {false, false, false, false, false});
  }
  out += fmt::format("\n{} = {} in {}", text, value_word(expression.value, format), name);
  const std::string exact = exact_of(expression);
  const bool same = expression.exact && std::isfinite(expression.value) &&
                    *expression.exact == ExactDecimal(static_cast<double>(expression.value));
  out += same ? ", which is exact.\n" : fmt::format("; without rounding: {}\n", exact);
  // The last step explains the result if it is the one that lost something.
  if (!same && !expression.steps.empty() && choice.mode == RoundingMode::nearest_even) {
    const ExpressionStep& last = expression.steps.back();
    const std::optional<ExactDecimal> far = ExactDecimal::parse_far(last.result.exact);
    const std::optional<ExactDecimal> number = far ? far : ExactDecimal::parse(last.result.exact);
    if (number && last.result.flags != 0) {
      const std::string words = far ? short_words(last.result.exact) : "";
      out += paragraph(explain_rounding(*number, last.result.value, format, words), choice.style, 0,
                       0);
    }
  }
  write_out(out);
}

[[noreturn]] void refuse(const std::string& text, const std::string& problem) {
  const bool named = problem.find("'" + text + "'") != std::string::npos;
  throw usage_error(named ? problem : fmt::format("cannot read '{}': {}", text, problem),
                    "write a number (0.1, 1e-7, inf, 0x1.8p-3), a code (0x2e66, 0b0101) or an "
                    "expression in quotes ('256*256', 'sqrt(2)')");
}

}  // namespace

FloatFormat read_format(const std::string& text) {
  if (const std::optional<FloatFormat> format = parse_format(text)) return *format;
  const std::string problem = format_problem(text);
  const bool named = problem.starts_with("\"" + text + "\"");
  throw usage_error(named ? problem : fmt::format("'{}' is not a format: {}", text, problem),
                    named
                        ? format_hint(text)
                        : "write eXmY with X exponent bits and Y mantissa bits, or a name such as "
                          "fp16, bf16 or e4m3fn");
}

void show_number(const FloatFormat& format, const std::string& words, const FloatChoice& choice) {
  const std::string text(trimmed(words));
  std::string problem;
  if (is_expression(text)) {
    const std::optional<Expression> expression =
        evaluate(text, format, choice.mode, choice.seed, problem);
    if (!expression) refuse(text, problem);
    return show_evaluated(format, text, *expression, choice);
  }
  const std::optional<TypedNumber> number = read_typed(text, format, choice, problem);
  if (!number) refuse(text, problem);
  show_typed(format, text, *number, choice);
}

void show_compared(const std::string& words, const FloatChoice& choice) {
  const std::string text(trimmed(words));
  std::string problem;
  Json list = Json::array();
  std::vector<std::vector<std::string>> rows{{"format", "code", "stored", "error", "ulps", ""}};
  std::string exact_words;
  for (const NamedFormat& each : named_formats()) {
    const FloatFormat& format = each.format;
    float value = 0.0f;
    uint8_t flags = 0;
    std::optional<ExactDecimal> exact;
    if (is_expression(text)) {
      const std::optional<Expression> result =
          evaluate(text, format, choice.mode, choice.seed, problem);
      if (!result) refuse(text, problem);
      value = result->value;
      flags = result->flags;
      exact = result->exact;
      exact_words = exact_of(*result);
    } else {
      const std::optional<TypedNumber> number = read_typed(text, format, choice, problem);
      if (!number) {
        // A code has a width: formats with fewer bits have no such code.
        if (trimmed(text).starts_with("0")) {
          rows.push_back({std::string(each.name), "-", "-", "-", "-", problem});
          continue;
        }
        refuse(text, problem);
      }
      value = number->value;
      flags = number->flags;
      exact = number->exact();
    }
    const double off =
        exact ? error_ulps(value, *exact, format) : std::numeric_limits<double>::quiet_NaN();
    std::string error = "-";
    if (exact && std::isfinite(value)) {
      const double difference = (ExactDecimal(static_cast<double>(value)) - *exact).approximate();
      error = difference == 0.0 ? "0"
              : exact->zero()   ? fmt::format("{:.3g}", difference)
                                : fmt::format("{:.3g}%", 100.0 * difference / exact->approximate());
    }
    std::string mark;
    if ((flags & kOverflow) != 0) {
      mark = "overflow";
    } else if ((flags & kFlushed) != 0) {
      mark = "becomes 0";
    } else if (kind_text(value, format) == "subnormal") {
      mark = "subnormal";
    }
    rows.push_back(
        {std::string(each.name), code_text(detail::code_of_value(value, format), format),
         value_word(value, format), error,
         std::isnan(off) || (flags & kOverflow) != 0 ? "-" : fmt::format("{:.2f}", std::fabs(off)),
         mark});
    Json& row = list.emplace_back(Json{{"format", each.name}});
    row.update(result_json(value, exact, flags_text(flags), format));
  }
  if (choice.json) {
    return write_json(Json{{"schema", "halfscope.float-compare/1"},
                           {"version", HALFSCOPE_VERSION},
                           {"entry", text},
                           {"rounding", rounding_mode_name(choice.mode)},
                           {"formats", list}});
  }
  std::string out = text + " in every format\n\n";
  out += aligned(rows, {false, false, false, true, true, false});
  if (is_expression(text)) out += "\nWithout rounding: " + exact_words + "\n";
  write_out(out);
}

}  // namespace halfscope::lab
