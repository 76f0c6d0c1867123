// SPDX-License-Identifier: MIT
// libFuzzer target: text as a number or an expression of `halfscope float`. The first two bytes
// choose a format and a rounding mode. Results must be values of the format and must be explained.
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "core/lab/explain.h"
#include "core/lab/expression.h"
#include "core/lab/number_text.h"
#include "core/numeric/formats/codes.h"

namespace {

using namespace halfscope;  // NOLINT: one target

void require(bool ok, const char* what, std::string_view text) {
  if (ok) return;
  std::fprintf(stderr, "%s: \"%.*s\"\n", what, static_cast<int>(text.size()), text.data());
  std::abort();
}

bool has_value(const FloatFormat& format, float value) {
  const float back = decode(encode(value, format), format);
  return back == value || (back != back && value != value);
}

void check_number(std::string_view text, const FloatFormat& format) {
  std::string problem;
  const std::optional<uint32_t> code = lab::read_number(text, format, problem);
  require(code.has_value() == problem.empty(), "neither a code nor a problem", text);
  if (!code) return;
  const float value = decode(*code, format);
  const std::string_view word = lab::trimmed(text);
  const auto exact = lab::ExactDecimal::parse(word);
  const auto far = lab::ExactDecimal::parse_far(word);
  require(!exact || !far, "a number is near and far", text);
  if (exact || far) {
    const std::string why =
        lab::explain_rounding(exact ? *exact : *far, value, format, far ? std::string(word) : "");
    require(!why.empty(), "no explanation", text);
  }
}

void check_expression(std::string_view text, const FloatFormat& format, RoundingMode mode) {
  std::string problem;
  const std::optional<lab::Expression> result = lab::evaluate(text, format, mode, 1, problem);
  require(result.has_value() == problem.empty(), "neither a result nor a problem", text);
  if (!result) return;
  require(has_value(format, result->value), "a result that the format does not have", text);
  for (const lab::ExpressionStep& step : result->steps) {
    require(has_value(format, step.result.value), "a step that the format does not have", text);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const auto& formats = named_formats();
  const FloatFormat format = formats[data[0] % formats.size()].format;
  const RoundingMode mode = kAllRoundingModes[data[1] % std::size(kAllRoundingModes)];
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  check_number(text, format);
  check_expression(text, format, mode);
  return 0;
}
