// SPDX-License-Identifier: MIT
#include "core/policy/grappler/device_name.h"

#include <algorithm>
#include <cctype>

namespace halfscope::grappler {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }

/// Consumes a number or "*".
bool take_id(std::string_view& rest) {
  if (rest.starts_with('*')) {
    rest.remove_prefix(1);
    return true;
  }
  size_t length = 0;
  while (length < rest.size() && is_digit(rest[length])) ++length;
  rest.remove_prefix(length);
  return length > 0;
}

/// Consumes a name that starts with a letter, or "*".
bool take_word(std::string_view& rest, std::string& word) {
  if (rest.starts_with('*')) {
    rest.remove_prefix(1);
    word.clear();  // any type is as good as none
    return true;
  }
  if (rest.empty() || !is_letter(rest[0])) return false;
  size_t length = 0;
  while (length < rest.size() && (is_letter(rest[length]) || is_digit(rest[length]) ||
                                  rest[length] == '_' || rest[length] == '-')) {
    ++length;
  }
  word = rest.substr(0, length);
  rest.remove_prefix(length);
  return true;
}

bool take(std::string_view& rest, std::string_view prefix) {
  if (!rest.starts_with(prefix)) return false;
  rest.remove_prefix(prefix.size());
  return true;
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

}  // namespace

std::string device_type(std::string_view rest) {
  if (rest == "/") return "";
  std::string type, ignored;
  while (!rest.empty()) {
    if (take(rest, "/job:")) {
      if (!take_word(rest, ignored)) return "";
    } else if (take(rest, "/replica:") || take(rest, "/task:")) {
      if (!take_id(rest)) return "";
    } else if (take(rest, "/device:")) {
      if (!take_word(rest, type)) return "";
      if (take(rest, ":") && !take_id(rest)) return "";
    } else if (take(rest, "/cpu:") || take(rest, "/CPU:")) {
      type = "cpu";
      if (!take_id(rest)) return "";
    } else if (take(rest, "/gpu:") || take(rest, "/GPU:")) {
      type = "gpu";
      if (!take_id(rest)) return "";
    } else {
      return "";
    }
  }
  return lower(type);
}

bool is_on_device(std::string_view name, std::string_view type, std::string_view usual) {
  const std::string own = name.empty() ? std::string(usual) : device_type(name);
  return own.find(type) != std::string::npos;
}

}  // namespace halfscope::grappler
