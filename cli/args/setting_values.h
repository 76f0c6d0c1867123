// SPDX-License-Identifier: MIT
// The kinds of values that rows of the table of settings are made of: one function per kind, which
// ties a member of Settings to its text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "cli/args/setting.h"
#include "core/error.h"
#include "core/near_miss.h"

namespace halfscope {

using Texts = std::vector<std::string>;

/// A switch: given or not.
inline SettingValue toggle(bool Settings::*member) {
  return {
      .read = [member](Settings& s, const std::string&, const std::string&) { s.*member = true; },
      .texts = [member](const Settings& s) { return s.*member ? Texts{""} : Texts{}; },
      .json = [member](const Settings& s) { return Json(s.*member); }};
}

/// Any text.
inline SettingValue text(const char* name, std::string Settings::*member) {
  return {
      .name = name,
      .read = [member](Settings& s, const std::string&,
                       const std::string& value) { s.*member = value; },
      .texts =
          [member](const Settings& s) { return (s.*member).empty() ? Texts{} : Texts{s.*member}; }};
}

/// One of these words.
inline SettingValue choice(const char* name, std::string Settings::*member, Texts words) {
  SettingValue value = text(name, member);
  value.read = [member, words](Settings& s, const std::string& flag, const std::string& word) {
    for (const std::string& each : words) {
      if (each == word) return void(s.*member = word);
    }
    throw usage_error(flag + ": unknown value '" + word + "'",
                      did_you_mean(word, words, "use one of: " + comma_list(words)));
  };
  return value;
}

/// Any number of texts.
inline SettingValue texts(const char* name, Texts Settings::*member) {
  return {.name = name,
          .many = true,
          .read = [member](Settings& s, const std::string&,
                           const std::string& value) { (s.*member).push_back(value); },
          .texts = [member](const Settings& s) { return s.*member; }};
}

/// A whole number from `least` to `most`. 0 counts as not set where it is below `least`.
template <typename Integer>
SettingValue whole(Integer Settings::*member, uint64_t least, uint64_t most) {
  const auto is_set = [member, least](const Settings& s) {
    return least == 0 || s.*member != Integer{0};
  };
  return {
      .name = "N",
      .read =
          [member, least, most](Settings& s, const std::string& flag, const std::string& value) {
            s.*member = static_cast<Integer>(parse_integer(flag, value, least, most));
          },
      .texts =
          [member, is_set](const Settings& s) {
            return is_set(s) ? Texts{std::to_string(s.*member)} : Texts{};
          },
      .json = [member, is_set](const Settings& s) { return is_set(s) ? Json(s.*member) : Json(); }};
}

/// A number of at least 0, which counts as not set.
inline SettingValue real(double Settings::*member, double most) {
  return {
      .name = "X",
      .read = [member, most](
                  Settings& s, const std::string& flag,
                  const std::string& value) { s.*member = parse_number(flag, value, 0.0, most); },
      .texts =
          [member](const Settings& s) {
            return s.*member == 0.0 ? Texts{} : Texts{shortest(s.*member)};
          },
      .json = [member](const Settings& s) { return s.*member == 0.0 ? Json() : Json(s.*member); }};
}

/// Any value with a parser and a printer; not set while an optional is empty.
template <typename Member, typename Parse, typename Print>
SettingValue parsed(const char* name, Member Settings::*member, Parse parse, Print print) {
  return {.name = name,
          .read =
              [member, parse](Settings& s, const std::string& flag, const std::string& value) {
                if constexpr (std::is_invocable_v<Parse, const std::string&, const std::string&>) {
                  s.*member = parse(flag, value);
                } else {
                  s.*member = parse(value);
                }
              },
          .texts =
              [member, print](const Settings& s) {
                if constexpr (requires { (s.*member).has_value(); }) {
                  return (s.*member).has_value() ? Texts{print(*(s.*member))} : Texts{};
                } else {
                  return Texts{print(s.*member)};
                }
              }};
}

}  // namespace halfscope
