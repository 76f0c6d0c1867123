// SPDX-License-Identifier: MIT
#include "core/json_keys.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

namespace halfscope {
namespace {

/// Keeps the keys of the objects that are open, and nothing else of the text.
class KeyReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::string twice;

  bool start_object(size_t) override {
    open_.emplace_back();
    return true;
  }
  bool key(std::string& name) override {
    if (open_.back().insert(name).second) return true;
    twice = name;
    return false;
  }
  bool end_object() override {
    open_.pop_back();
    return true;
  }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(nlohmann::json::binary_t&) override { return true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) override {
    return false;
  }

 private:
  std::vector<std::set<std::string>> open_;
};

/// `byte` is where parsing stopped, counted from 1; one beyond the end if the text is truncated.
std::string problem_at(std::string_view text, size_t byte) {
  const size_t at = std::min(byte > 0 ? byte - 1 : 0, text.size());
  const auto lines = std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n');
  const size_t line_start = text.substr(0, at).rfind('\n') + 1;  // npos + 1 is 0
  std::string what = "the text ends too early";
  if (at < text.size()) {
    const char c = text[at];
    const bool printable = c > ' ' && c < 0x7f;
    what = printable ? std::string("unexpected ") + c : "something is missing or not closed";
  }
  return "line " + std::to_string(lines + 1) + ", column " + std::to_string(at - line_start + 1) +
         ": " + what;
}

}  // namespace

std::string json_problem(std::string_view text) {
  try {
    const nlohmann::json unused = nlohmann::json::parse(text);
    return "";
  } catch (const nlohmann::json::parse_error& error) {
    return problem_at(text, error.byte);
  } catch (const nlohmann::json::exception&) {  // beyond a double's range
    return "a number is too large";
  }
}

std::string repeated_key(std::string_view json) {
  KeyReader reader;
  nlohmann::json::sax_parse(json, &reader);
  return reader.twice;
}

}  // namespace halfscope
