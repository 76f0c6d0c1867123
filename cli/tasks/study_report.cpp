// SPDX-License-Identifier: MIT
#include "cli/tasks/study_report.h"

#include <filesystem>
#include <string>
#include <vector>

#include "analysis/study/study_facts.h"
#include "cli/terminal/output.h"
#include "core/error.h"

namespace halfscope {

void report_study(const StudyReportOptions& options) {
  const std::filesystem::path file = study_file_of(options.study);
  const CommandFiles files{.read = {file.string()},
                           .written = {options.html, options.md, options.json, options.csv}};
  check_files(files, options.force);
  bool writes = false;
  for (const std::string& result : files.written) {
    if (result.empty()) continue;
    writes = true;
    if (options.summary && result == kStandardOutput) {
      throw usage_error("--summary and - both write to standard output", "leave out one of them");
    }
  }
  const StudyView study = StudyView::open(file);
  const StudyFacts facts = make_study_facts(study);
  const auto write = [&](const std::string& result, const auto& text) {
    if (!result.empty()) write_result(result, text(), options.force);
  };
  write(options.html,
        [&] { return study_html(study, facts, study_links_from(options.html, file)); });
  write(options.md, [&] { return study_markdown(study, facts); });
  write(options.json, [&] { return study_json(study, facts); });
  write(options.csv, [&] { return study_csv(study, facts); });
  if (options.summary) {
    write_out(study_markdown_summary(study, facts));
  } else if (!writes && !options.quiet) {
    write_out(study_markdown(study, facts));
  }
}

}  // namespace halfscope
