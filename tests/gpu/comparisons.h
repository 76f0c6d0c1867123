// SPDX-License-Identifier: MIT
// Compares single operators with the emulator, one after another. A difference fails the test,
// which continues with the next operator. If the environment variable HALFSCOPE_BITS_TABLE names a
// file, each comparison immediately appends a line to it, so that a process that dies leaves its
// results:
//   OPERATOR <TAB> CASE <TAB> VARIANT <TAB> equal
//                                           differs: FIRST DIFFERENCE
//                                           error: MESSAGE
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <initializer_list>
#include <string>
#include <utility>

#include "tests/gpu/op_lockstep.h"

namespace halfscope::test {

inline void append_to_bits_table(std::initializer_list<std::string> cells) {
  const char* const file = std::getenv("HALFSCOPE_BITS_TABLE");
  if (file == nullptr || *file == '\0') return;
  std::string line;
  for (const std::string& cell : cells) {
    if (!line.empty()) line += '\t';
    for (const char c : cell) line += c == '\t' || c == '\n' ? ' ' : c;
  }
  line += '\n';
  const int descriptor = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  const ssize_t written = descriptor < 0 ? -1 : write(descriptor, line.data(), line.size());
  if (descriptor >= 0) close(descriptor);
  EXPECT_EQ(written, static_cast<ssize_t>(line.size())) << "cannot append to " << file;
}

inline std::string describe(const Variant& variant) {
  return format_name(variant.format) + " " + accumulation_name(variant.accumulation) + " " +
         std::string(rounding_mode_name(variant.rounding));
}

class Comparisons {
 public:
  /// `what` begins the names of variants in the table.
  explicit Comparisons(const Backend& backend, std::string what = "")
      : backend_(backend), what_(std::move(what)) {}

  /// Runs `work(OpLockstep&)`, which compares, and fails the test if something differs or throws.
  template <class F>
  void add(const OpCase& op, const Variant& variant, const F& work) {
    if (is_lost_) return;  // later results would say nothing about kernels
    const std::string outcome = outcome_of(op, variant, work);
    const std::string name = what_.empty() ? describe(variant) : what_ + ", " + describe(variant);
    append_to_bits_table({op.op, describe(op), name, outcome});
    if (outcome != "equal") ADD_FAILURE() << describe(op) << " in " << name << ": " << outcome;
  }

  int64_t elements() const { return elements_; }
  int64_t statistics() const { return statistics_; }

  /// Returns "equal", "differs: ..." or "error: ...".
  template <class F>
  std::string outcome_of(const OpCase& op, const Variant& variant, const F& work) {
    try {
      OpLockstep program(op, variant, backend_);
      (*program).keep_differences();
      work(program);
      elements_ += (*program).compared_elements();
      statistics_ += (*program).compared_statistics();
      const std::string& difference = (*program).first_difference();
      return difference.empty() ? "equal" : "differs: " + difference;
    } catch (const std::exception& error) {
      is_lost_ = !works(op, variant);
      return std::string("error: ") + error.what();
    }
  }
  bool is_lost() const { return is_lost_; }

 private:
  /// After some errors a device does nothing more.
  bool works(const OpCase& op, const Variant& variant) const {
    try {
      const OpLockstep program(op, variant, backend_);
      return true;
    } catch (const DeviceError&) {
      return false;
    } catch (const std::exception&) {
      return true;
    }
  }

  const Backend& backend_;
  std::string what_;
  bool is_lost_ = false;
  int64_t elements_ = 0, statistics_ = 0;
};

}  // namespace halfscope::test
