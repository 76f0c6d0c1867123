// SPDX-License-Identifier: MIT
// `halfscope report` on a study: the results of many trainings as HTML, Markdown, JSON or CSV.
#pragma once

#include <string>

namespace halfscope {

struct StudyReportOptions {
  std::string study;                ///< its file or folder
  std::string html, md, json, csv;  ///< files of the report; "" for none
  bool force = false, quiet = false, summary = false;
};

/// Writes the files, or prints Markdown if there are none. Throws Error if the study cannot be read
/// or an output cannot be written.
void report_study(const StudyReportOptions& options);

}  // namespace halfscope
