// SPDX-License-Identifier: MIT
// Wording: the sentences that HalfScope writes about runs, one a line, to be read by people who
// review them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "analysis/audit/audit.h"
#include "analysis/run_view.h"

namespace halfscope::test {

class Wording {
 public:
  /// Begins a section.
  void section(const std::string& title);
  /// Adds each sentence of `text` as "kind: sentence"; nothing if there is none.
  void add(const std::string& kind, const std::string& text);
  /// Adds each line of `text` unchanged except for its indentation.
  void add_lines(const std::string& kind, const std::string& text);
  /// Adds the verdict, findings, diagnosis, actions and proof of a run.
  void add_run(const RunView& run);
  /// Adds what an audit says of constants, except for sentences that were there before.
  void add_audit(const std::vector<AuditedConstant>& constants);

  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::vector<std::string> audited_;
};

/// Compares `text` with the file, or rewrites the file where HALFSCOPE_REWRITE is set. Returns what
/// is different and how to rewrite the file; "" if nothing is.
std::string difference(const std::string& text, const std::filesystem::path& file);

}  // namespace halfscope::test
