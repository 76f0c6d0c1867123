// SPDX-License-Identifier: MIT
// The one exception of the project: what went wrong, and what the user can do about it.
// Library code throws it and never prints; only the main functions catch it.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace halfscope {

/// Bad usage (a flag, a name, a value) ends with exit code 2, everything else with 3.
enum class ErrorKind { runtime, usage };

class Error : public std::runtime_error {
 public:
  /// `what` is one line naming the offending thing; `hint` says what to do ("" if nothing helps).
  explicit Error(const std::string& what, std::string hint = "",
                 ErrorKind kind = ErrorKind::runtime)
      : std::runtime_error(what), hint_(std::move(hint)), kind_(kind) {}

  const std::string& hint() const noexcept { return hint_; }
  ErrorKind kind() const noexcept { return kind_; }

 private:
  std::string hint_;
  ErrorKind kind_;
};

/// A mistake of the caller: a wrong flag, an unknown name, a value out of range.
inline Error usage_error(const std::string& what, std::string hint = "") {
  return Error(what, std::move(hint), ErrorKind::usage);
}

}  // namespace halfscope
