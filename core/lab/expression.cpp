// SPDX-License-Identifier: MIT
#include "core/lab/expression.h"

#include <fmt/format.h>

#include <cctype>
#include <cmath>
#include <limits>

#include "core/lab/number_text.h"
#include "core/numeric/formats/codes.h"
#include "core/numeric/formats/rng.h"
#include "core/numeric/formats/round.h"

namespace halfscope::lab {
namespace {

constexpr size_t kLongest = 400;
constexpr int kDeepest = 40, kMostPower = 64;

/// Thrown and caught in this file.
struct Mistake {
  std::string text;
};

/// A number on its way: rounded to the format, and as it would be without rounding.
struct Number {
  float value = 0.0f;
  std::optional<ExactDecimal> exact{};
  double near = 0.0;
};

bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.'; }

/// Returns where the number or name that starts at `at` ends. A sign belongs to an exponent: after
/// e in decimals, after p in hexadecimal floats.
size_t word_end(std::string_view text, size_t at) {
  const bool hex = text.substr(at).starts_with("0x") || text.substr(at).starts_with("0X");
  const bool digits = std::isdigit(static_cast<unsigned char>(text[at])) != 0 || text[at] == '.';
  size_t end = at;
  while (end < text.size()) {
    const char c = text[end];
    const bool sign = (c == '+' || c == '-') && end > at && digits;
    const char before = end > at ? text[end - 1] : ' ';
    const bool exponent = hex ? before == 'p' || before == 'P' : before == 'e' || before == 'E';
    if (!in_word(c) && !(sign && exponent)) break;
    ++end;
  }
  return end;
}

/// Recursive descent; each method reads one level of precedence.
class Evaluator {
 public:
  Evaluator(std::string_view text, const FloatFormat& format, RoundingMode mode, uint64_t seed)
      : text_(text), format_(format), mode_(mode), key_(random_key(seed, 0, 0)) {}

  Expression run() {
    const Number last = sum();
    if (peek() != '\0') throw Mistake{fmt::format("unexpected '{}'", text_.substr(at_))};
    done_.value = last.value;
    done_.exact = last.exact;
    done_.near_exact = last.exact ? last.exact->approximate() : last.near;
    return std::move(done_);
  }

 private:
  char peek() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (take(c)) return;
    throw Mistake{at_ < text_.size()
                      ? fmt::format("expected '{}' before '{}'", c, text_.substr(at_))
                      : fmt::format("expected '{}' at the end", c)};
  }

  Number sum() {
    if (++depth_ > kDeepest) throw Mistake{"too many parentheses"};
    Number left = product();
    for (;;) {
      if (take('+')) {
        left = apply(Operation::add, left, product());
      } else if (take('-')) {
        left = apply(Operation::sub, left, product());
      } else {
        --depth_;
        return left;
      }
    }
  }

  Number product() {
    Number left = signed_power();
    for (;;) {
      if (take('*')) {
        left = apply(Operation::mul, left, signed_power());
      } else if (take('/')) {
        left = apply(Operation::div, left, signed_power());
      } else {
        return left;
      }
    }
  }

  /// A sign is weaker than a power: -2^2 is -4.
  Number signed_power() {
    bool negative = false;
    while (peek() == '-' || peek() == '+') negative ^= text_[at_++] == '-';
    Number base = power();
    if (!negative) return base;
    base.value = -base.value;
    if (base.exact) base.exact = -*base.exact;
    base.near = -base.near;
    return base;
  }

  Number power() {
    const Number base = atom();
    const bool stars = text_.substr(at_).starts_with("**");
    if (!stars && !take('^')) return base;
    if (stars) at_ += 2;
    std::string digits;
    for (char c = peek(); std::isdigit(static_cast<unsigned char>(c)) != 0; c = text_[at_]) {
      digits += c;
      if (++at_ == text_.size()) break;
    }
    const int exponent = digits.empty() || digits.size() > 2 ? 0 : std::stoi(digits);
    if (exponent < 1 || exponent > kMostPower) {
      throw Mistake{fmt::format("a power needs a whole exponent from 1 to {}", kMostPower)};
    }
    Number result = base;
    for (int i = 1; i < exponent; ++i) result = apply(Operation::mul, result, base);
    return result;
  }

  Number atom() {
    const char c = peek();
    if (take('(')) {
      const Number inside = sum();
      expect(')');
      return inside;
    }
    if (c == '\0') throw Mistake{"a number is missing at the end"};
    if (!in_word(c))
      throw Mistake{fmt::format("a number is missing before '{}'", text_.substr(at_))};
    const size_t end = word_end(text_, at_);
    const std::string word(text_.substr(at_, end - at_));
    at_ = end;
    if (peek() == '(') return call(word);
    return number(word);
  }

  Number call(const std::string& name) {
    expect('(');
    if (name != "sqrt" && name != "fma") {
      throw Mistake{fmt::format("unknown function '{}': there are sqrt(a) and fma(a, b, c)", name)};
    }
    const Number a = sum();
    Number result;
    if (name == "sqrt") {
      result = apply(Operation::sqrt, a, {});
    } else {
      expect(',');
      const Number b = sum();
      expect(',');
      result = apply(Operation::fma, a, b, sum());
    }
    expect(')');
    return result;
  }

  Number number(const std::string& word) {
    std::string problem;
    const std::optional<uint32_t> code = read_number(word, format_, problem);
    if (!code) throw Mistake{problem};
    Number result{.value = decode(*code, format_)};
    result.exact = ExactDecimal::parse(word);
    if (!result.exact && std::isfinite(result.value)) {
      const std::optional<double> typed = read_double(word);  // a hexadecimal float
      const bool is_float = word.find_first_of("pP.") != std::string::npos && typed;
      result.exact = ExactDecimal(is_float ? *typed : static_cast<double>(result.value));
    }
    result.near = result.exact ? result.exact->approximate() : static_cast<double>(result.value);
    const bool same = result.exact && std::isfinite(result.value) &&
                      *result.exact == ExactDecimal(static_cast<double>(result.value));
    if (const std::optional<ExactDecimal> far = ExactDecimal::parse_far(word)) {
      result.exact.reset();
      result.near = far->approximate();
      const Rounded<double> rounded = round_to_format(far->rounding_input(), format_);
      ExpressionStep step{.text = word, .is_number = true};
      step.result = {.value = result.value,
                     .flags = rounded.flags,
                     .exact = word,
                     .error_ulps = std::numeric_limits<double>::quiet_NaN()};
      add_step(std::move(step));
    } else if (!same && result.exact) {
      const Rounded<double> rounded = round_to_format(result.exact->rounding_input(), format_);
      ExpressionStep step{.text = word, .is_number = true};
      step.result.value = result.value;
      step.result.flags = static_cast<uint8_t>(rounded.flags | kInexact);
      step.result.exact = result.exact->text();
      step.result.error_ulps =
          std::isfinite(result.value)
              ? (ExactDecimal(static_cast<double>(result.value)) - *result.exact).approximate() /
                    ulp_of(result.near)
              : std::numeric_limits<double>::quiet_NaN();
      add_step(std::move(step));
    }
    return result;
  }

  double ulp_of(double x) const {
    const int exponent =
        x == 0.0 || !std::isfinite(x) ? format_.min_exponent() : exponent_of(std::fabs(x));
    return std::ldexp(1.0, std::max(exponent, format_.min_exponent()) - format_.mantissa_bits);
  }

  Number apply(Operation operation, const Number& a, const Number& b, const Number& c = {}) {
    const Rounding rounding{.mode = mode_, .random = random_draw(key_, done_.steps.size())};
    ExpressionStep step;
    step.text = operation_text(operation, a.value, b.value, c.value);
    step.result = calculate(operation, a.value, b.value, c.value, format_, rounding);
    Number result{.value = step.result.value};
    exactly(operation, a, b, c, result);
    add_step(std::move(step));
    return result;
  }

  /// Computes without rounding, as far as results end.
  static void exactly(Operation operation, const Number& a, const Number& b, const Number& c,
                      Number& result) {
    const bool known = a.exact && (operation == Operation::sqrt || b.exact) &&
                       (operation != Operation::fma || c.exact);
    switch (operation) {
      case Operation::add:
        if (known) result.exact = *a.exact + *b.exact;
        result.near = a.near + b.near;
        break;
      case Operation::sub:
        if (known) result.exact = *a.exact - *b.exact;
        result.near = a.near - b.near;
        break;
      case Operation::mul:
        if (known) result.exact = *a.exact * *b.exact;
        result.near = a.near * b.near;
        break;
      case Operation::fma:
        if (known) result.exact = *a.exact * *b.exact + *c.exact;
        result.near = a.near * b.near + c.near;
        break;
      case Operation::div: {
        result.near = a.near / b.near;
        if (!known || b.exact->zero()) break;
        const ExactDecimal quotient(result.near);
        if (quotient * *b.exact == *a.exact) result.exact = quotient;
        break;
      }
      case Operation::sqrt: {
        result.near = std::sqrt(a.near);
        if (!known || a.exact->negative()) break;
        const ExactDecimal root(result.near);
        if (root * root == *a.exact) result.exact = root;
        break;
      }
    }
  }

  std::string operation_text(Operation operation, float a, float b, float c) const {
    const auto text = [&](float x) { return value_text(x, format_); };
    switch (operation) {
      case Operation::add:
        return text(a) + " + " + text(b);
      case Operation::sub:
        return text(a) + " - " + text(b);
      case Operation::mul:
        return text(a) + " \u00d7 " + text(b);
      case Operation::div:
        return text(a) + " / " + text(b);
      case Operation::fma:
        return text(a) + " \u00d7 " + text(b) + " + " + text(c);
      case Operation::sqrt:
        return "\u221a" + text(a);
    }
    return "";
  }

  void add_step(ExpressionStep step) {
    done_.flags = static_cast<uint8_t>(done_.flags | step.result.flags);
    done_.steps.push_back(std::move(step));
  }

  std::string_view text_;
  FloatFormat format_;
  RoundingMode mode_;
  uint64_t key_;
  size_t at_ = 0;
  int depth_ = 0;
  Expression done_{};
};

}  // namespace

std::optional<Expression> evaluate(std::string_view text, const FloatFormat& format,
                                   RoundingMode mode, uint64_t seed, std::string& problem) {
  problem.clear();
  if (text.size() > kLongest) {
    problem = fmt::format("an expression may have at most {} characters", kLongest);
    return std::nullopt;
  }
  try {
    return Evaluator(text, format, mode, seed).run();
  } catch (const Mistake& mistake) {
    problem = mistake.text;
    return std::nullopt;
  }
}

bool is_expression(std::string_view text) {
  text = trimmed(text);
  while (!text.empty() && (text.front() == '-' || text.front() == '+')) text.remove_prefix(1);
  if (text.empty()) return false;
  if (!in_word(text.front())) return true;
  return word_end(text, 0) < text.size();
}

}  // namespace halfscope::lab
