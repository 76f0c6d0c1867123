// SPDX-License-Identifier: MIT
// The characters of a text header, one after another: what the parsers of .npy and .safetensors
// headers share.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "core/data/npy.h"
#include "core/error.h"

namespace halfscope {

class HeaderText {
 protected:
  /// `blank` has the characters that may stand between tokens. `what` names the file and the kind
  /// of header in messages: "w.npy: .npy header".
  HeaderText(std::string_view text, std::string_view blank, std::string what)
      : text_(text), blank_(blank), what_(std::move(what)) {}

  [[noreturn]] void fail(const std::string& why) const {
    throw Error(what_ + ": " + why, kDamagedFileHint);
  }

  /// Returns the next character that is not blank, or 0 at the end.
  char peek() noexcept {
    while (at_ < text_.size() && blank_.find(text_[at_]) != std::string_view::npos) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char wanted) noexcept {
    if (peek() != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!accept(wanted)) {
      fail("'" + std::string(1, wanted) + "' expected at byte " + std::to_string(at_));
    }
  }

  std::string_view text_;
  size_t at_ = 0;

 private:
  std::string_view blank_;
  std::string what_;
};

}  // namespace halfscope
