// SPDX-License-Identifier: MIT
// Names of formats: the table and the grammar behind parse_format and format_name.
#include "core/numeric/formats/float_format.h"

#include <algorithm>
#include <charconv>

namespace halfscope {
namespace {

constexpr NamedFormat kNamed[] = {
    {"fp32", kFp32, {"float32"}, {"float", "single", "f32"}, 1},
    {"tf32", kTf32},
    {"bf16", kBf16, {"bfloat16"}, {}, 16, true},
    {"fp16", kFp16, {"float16", "half"}, {"f16"}, 10, true},
    {"e5m2", kE5m2, {"fp8_e5m2", "float8_e5m2"}, {}, 19, true},
    {"e4m3fn",
     kE4m3fn,
     {"fp8_e4m3fn", "fp8_e4m3", "float8_e4m3fn"},
     {"fp8", "float8", "e4m3"},
     17,
     true},
    {"e5m2fnuz", kE5m2fnuz, {"fp8_e5m2fnuz", "float8_e5m2fnuz"}, {}, 20},
    {"e4m3fnuz", kE4m3fnuz, {"fp8_e4m3fnuz", "float8_e4m3fnuz"}, {}, 18},
    {"e4m3b11fnuz", kE4m3b11fnuz, {"fp8_e4m3b11fnuz", "float8_e4m3b11fnuz"}},
    {"int8", kInt8Format, {}, {"i8", "s8"}},
    {"e3m2", kE3m2, {"float6_e3m2fn"}, {"fp6"}},
    {"e2m3", kE2m3, {"float6_e2m3fn"}},
    {"int4", kInt4Format, {}, {"i4", "s4"}},
    {"e2m1", kE2m1, {"float4_e2m1fn"}, {"fp4"}},
};

struct NamedEncoding {
  std::string_view suffix;
  Encoding encoding;
};

constexpr NamedEncoding kEncodings[] = {
    // "fnuz" before its prefix "fn"
    {"fnuz", Encoding::fnuz},
    {"fn", Encoding::finite_nan},
    {"finite", Encoding::finite},
    {"ieee", Encoding::ieee},
};

/// Returns the encoding of eXmY without a suffix: the element formats of OCP MX and integers have no
/// infinity and no NaN.
constexpr Encoding default_encoding(int exponent_bits, int mantissa_bits) {
  for (const NamedFormat& each : kNamed) {
    const FloatFormat& format = each.format;
    if (format.encoding == Encoding::finite && format.exponent_bits == exponent_bits &&
        format.mantissa_bits == mantissa_bits) {
      return Encoding::finite;
    }
  }
  return Encoding::ieee;
}

/// Returns the bias of IEEE 754-2019, 3.3; one more for fnuz, which has no top exponent to spare.
constexpr int default_bias(int exponent_bits, Encoding encoding) {
  return (1 << (exponent_bits - 1)) - (encoding == Encoding::fnuz ? 0 : 1);
}

/// Removes a decimal number without sign or unnecessary leading zero from the front of `text`.
std::optional<int> take_number(std::string_view& text) {
  int number = 0;
  const char* const end = text.data() + text.size();
  if (text.empty() || text[0] < '0' || text[0] > '9') return std::nullopt;
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || (text[0] == '0' && stop != text.data() + 1)) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(stop - text.data()));
  return number;
}

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

/// Removes a bias ("b11", "b-100") from the front of `text`, if there is one. Returns the problem,
/// or "".
std::string take_bias(std::string_view& text, std::optional<int>& bias) {
  if (!take(text, "b")) return "";
  const bool negative = take(text, "-");
  const std::optional<int> number = take_number(text);
  if (!number || (negative && *number == 0)) {
    return "\"b\" must be followed by the bias, a whole number";
  }
  bias = negative ? -*number : *number;
  return "";
}

std::string quoted(std::string_view text) { return "\"" + std::string(text) + "\""; }

/// Reads the part before the first colon. Returns the problem, or "".
std::string read_base(std::string_view text, FloatFormat& format) {
  for (const NamedFormat& each : kNamed) {
    const auto& aliases = each.aliases;
    if (text.empty() ||
        (text != each.name && std::find(aliases.begin(), aliases.end(), text) == aliases.end())) {
      continue;
    }
    format = each.format;
    return "";
  }
  const std::string unknown = quoted(text) + " is neither a named format nor of the form eXmY";
  std::string_view rest = text;
  if (!take(rest, "e")) return unknown;
  const std::optional<int> exponent_bits = take_number(rest);
  if (!exponent_bits || !take(rest, "m")) return unknown;
  const std::optional<int> mantissa_bits = take_number(rest);
  if (!mantissa_bits) return unknown;
  if (*exponent_bits < 1 || *exponent_bits > 8) {
    return "exponent bits are 1 to 8, not " + std::to_string(*exponent_bits);
  }
  if (*mantissa_bits > 23)
    return "mantissa bits are 0 to 23, not " + std::to_string(*mantissa_bits);

  format = {.exponent_bits = *exponent_bits,
            .mantissa_bits = *mantissa_bits,
            .bias = 0,
            .encoding = default_encoding(*exponent_bits, *mantissa_bits)};
  std::optional<int> bias;  // before the encoding or after it
  if (std::string problem = take_bias(rest, bias); !problem.empty()) return problem;
  for (const NamedEncoding& each : kEncodings) {
    if (!take(rest, each.suffix)) continue;
    format.encoding = each.encoding;
    break;
  }
  if (!bias) {
    if (std::string problem = take_bias(rest, bias); !problem.empty()) return problem;
  }
  format.bias = bias.value_or(default_bias(*exponent_bits, format.encoding));
  if (!rest.empty()) {
    return quoted(rest) + " is not an encoding (fn, fnuz, finite, ieee), a bias (bN) or an option";
  }
  if (is_valid(format)) return "";
  if (*exponent_bits == 1 && format.encoding != Encoding::finite) {
    return "a single exponent bit leaves no room for infinity or NaN; write e1m" +
           std::to_string(*mantissa_bits) + "finite";
  }
  const BiasRange range = bias_range(*exponent_bits, *mantissa_bits, format.encoding);
  const std::string reason = "fp32 cannot represent all its values; ";
  if (range.first > range.last) return reason + "no bias is possible with this many bits";
  return reason + "write a bias from b" + std::to_string(range.first) + " to b" +
         std::to_string(range.last);
}

std::string read_option(std::string_view option, FloatFormat& format) {
  const auto set = [option](bool& flag) {
    if (flag) return "option " + quoted(option) + " repeats an earlier option";
    flag = true;
    return std::string();
  };
  if (option == "sat") return set(format.saturate);
  if (option == "ftz-in") return set(format.flush_in);
  if (option == "ftz-out") return set(format.flush_out);
  if (option == "ftz") {
    const std::string problem = set(format.flush_in);
    return problem.empty() ? set(format.flush_out) : problem;
  }
  return quoted(option) + " is not an option (sat, ftz, ftz-in, ftz-out)";
}

/// Returns the problem, or "" with `format` complete.
std::string read_format(std::string_view text, FloatFormat& format) {
  size_t colon = text.find(':');
  std::string problem = read_base(text.substr(0, colon), format);
  while (problem.empty() && colon != std::string_view::npos) {
    const size_t next = text.find(':', colon + 1);
    const size_t length = next == std::string_view::npos ? next : next - colon - 1;
    problem = read_option(text.substr(colon + 1, length), format);
    colon = next;
  }
  return problem;
}

std::string base_name(const FloatFormat& base) {
  for (const NamedFormat& each : kNamed) {
    if (base == each.format) return std::string(each.name);
  }
  std::string name = "e" + std::to_string(base.exponent_bits);
  name.append("m").append(std::to_string(base.mantissa_bits));
  if (base.encoding != default_encoding(base.exponent_bits, base.mantissa_bits)) {
    for (const NamedEncoding& each : kEncodings) {
      if (each.encoding == base.encoding) name += each.suffix;
    }
  }
  if (base.bias != default_bias(base.exponent_bits, base.encoding)) {
    name.append("b").append(std::to_string(base.bias));
  }
  return name;
}

}  // namespace

std::span<const NamedFormat> named_formats() noexcept { return kNamed; }

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const NamedFormat& each : kNamed) names.emplace_back(each.name);
  return names;
}

std::optional<FloatFormat> parse_format(std::string_view text) {
  FloatFormat format;
  if (!read_format(text, format).empty()) return std::nullopt;
  return format;
}

std::string format_problem(std::string_view text) {
  FloatFormat format;
  return read_format(text, format);
}

std::string format_name(const FloatFormat& format) {
  std::string name = base_name(format.without_options());
  if (format.saturate) name += ":sat";
  if (format.flush_in && format.flush_out) return name + ":ftz";
  if (format.flush_in) name += ":ftz-in";
  if (format.flush_out) name += ":ftz-out";
  return name;
}

}  // namespace halfscope
