// SPDX-License-Identifier: MIT
// The project's only exception: what went wrong, and what the user can do about it. Library code
// throws it and never prints; only the main functions catch it.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace halfscope {

/// Bad usage (a flag, a name, a value) exits with code 2, everything else with 3.
enum class ErrorKind { runtime, usage };

class Error : public std::runtime_error {
 public:
  /// `what` is one line that names the cause; `hint` says what to do ("" if nothing helps).
  explicit Error(const std::string& what, std::string hint = "",
                 ErrorKind kind = ErrorKind::runtime)
      : std::runtime_error(what), hint_(std::move(hint)), kind_(kind) {}

  const std::string& hint() const noexcept { return hint_; }
  ErrorKind kind() const noexcept { return kind_; }
  /// Returns the settings that caused the error, by their keys in configuration files ("batch");
  /// empty if the code that threw it does not know.
  const std::vector<std::string>& settings() const noexcept { return settings_; }

  /// Returns the same error with these settings as its cause.
  Error about(std::vector<std::string> settings) const {
    Error error = *this;
    error.settings_ = std::move(settings);
    return error;
  }
  /// Returns the same error with another text.
  Error with_text(const std::string& what) const {
    return Error(what, hint_, kind_).about(settings_);
  }

 private:
  std::string hint_;
  ErrorKind kind_;
  std::vector<std::string> settings_;
};

/// Returns an error for a mistake of the caller: a wrong flag, an unknown name, a value out of
/// range.
inline Error usage_error(const std::string& what, std::string hint = "") {
  return Error(what, std::move(hint), ErrorKind::usage);
}

/// Calls `work` and marks its errors as caused by `keys` unless they already name settings.
template <typename Work>
auto about(const std::vector<std::string>& keys, const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    throw error.settings().empty() ? error.about(keys) : error;
  }
}

}  // namespace halfscope
