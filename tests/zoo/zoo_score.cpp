// SPDX-License-Identifier: MIT
// zoo_score: runs the documented failures of reduced precision and the healthy controls. Prints
// whether HalfScope notices each harm without false alarms, and whether it names the cause of each
// failure and proves the smallest change that fixes it.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/zoo/coverage.h"
#include "tests/zoo/cure.h"
#include "tests/zoo/files.h"
#include "tests/zoo/kernel_trial.h"
#include "tests/zoo/score.h"

namespace halfscope::zoo {
namespace {

constexpr const char* kUsage =
    "usage: zoo_score [OPTION...]\n"
    "Runs documented failures and healthy controls; prints what HalfScope says of each.\n"
    "  --case ID         Run this case only (repeatable)\n"
    "  --files DIR       Score the cases in DIR, too: folders with net.onnx, data.npz, case.json\n"
    "                    [HALFSCOPE_TEST_DATA/zoo-cases, ../shared/data/zoo-cases]\n"
    "  --no-files        Leave them out\n"
    "  --only-files      Leave the built-in cases out\n"
    "  --text            Print the first sentence of each verdict\n"
    "  --seconds         Print how long each trial took\n"
    "  --markdown        Print the tables of docs/zoo.md after the totals\n"
    "  --no-cures        Look for no causes and cures, and try no faulty kernels\n"
    "  --only-cures      Look for causes and cures alone\n"
    "  --need-right P    Percent of failures to notice with the right kind of plan [100]\n"
    "  --need-plain P    Percent of failures to notice with plain presets [80]\n"
    "  --most-alarms N   Largest number of false alarms [0]\n"
    "  --most-unnamed N  Failures whose cause may be missed [3]\n"
    "  --most-unexplained N  Failures whose mechanism may be another than labelled (*) [6]\n"
    "  --most-unproved N Failures without a cure that is proved [4]\n"
    "  --most-large N    Failures without one that is as small as labelled [4]\n"
    "Exit code: 1 if a number is not reached, 2 for wrong arguments.\n";

struct Options {
  std::vector<std::string> cases;
  std::filesystem::path files;
  bool with_files = true, built_in = true, verdicts = true, cures = true, text = false,
       seconds = false, markdown = false;
  double need_right = 100.0, need_plain = 80.0;
  int most_alarms = 0, most_unnamed = 3, most_unexplained = 6, most_unproved = 4, most_large = 4;
};

std::filesystem::path usual_files() {
  const char* const folder = std::getenv("HALFSCOPE_TEST_DATA");
  const std::filesystem::path base =
      folder != nullptr ? std::filesystem::path(folder)
                        : std::filesystem::path(HALFSCOPE_SOURCE_DIR) / "../shared/data";
  return base / "zoo-cases";
}

/// Returns whether the arguments make sense.
bool read_options(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const auto value = [&] { return i + 1 < argc ? std::string(argv[++i]) : std::string(); };
    if (flag == "--case") {
      options.cases.push_back(value());
    } else if (flag == "--files") {
      options.files = value();
    } else if (flag == "--no-files") {
      options.with_files = false;
    } else if (flag == "--only-files") {
      options.built_in = false;
    } else if (flag == "--text") {
      options.text = true;
    } else if (flag == "--seconds") {
      options.seconds = true;
    } else if (flag == "--markdown") {
      options.markdown = true;
    } else if (flag == "--need-right") {
      options.need_right = std::atof(value().c_str());
    } else if (flag == "--need-plain") {
      options.need_plain = std::atof(value().c_str());
    } else if (flag == "--no-cures") {
      options.cures = false;
    } else if (flag == "--only-cures") {
      options.verdicts = false;
    } else if (flag == "--most-alarms") {
      options.most_alarms = std::atoi(value().c_str());
    } else if (flag == "--most-unnamed") {
      options.most_unnamed = std::atoi(value().c_str());
    } else if (flag == "--most-unexplained") {
      options.most_unexplained = std::atoi(value().c_str());
    } else if (flag == "--most-unproved") {
      options.most_unproved = std::atoi(value().c_str());
    } else if (flag == "--most-large") {
      options.most_large = std::atoi(value().c_str());
    } else {
      return false;
    }
  }
  return true;
}

/// A folder that goes away with the program.
class Folder {
 public:
  Folder()
      : path_(std::filesystem::temp_directory_path() /
              ("halfscope_zoo_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Runs the cases and prints the verdicts; returns whether the numbers are reached.
bool score_verdicts(const std::vector<Case>& cases, const Options& options,
                    const std::filesystem::path& folder) {
  std::fputs(table_head().c_str(), stdout);
  const std::vector<Trial> trials = run_cases(cases, folder, [&](const Trial& trial) {
    std::fputs(table_row(trial, options.text).c_str(), stdout);
    if (options.seconds) std::printf("         %.2f s\n", trial.seconds);
    std::fflush(stdout);
  });
  const Score result = score_of(cases, trials);
  std::printf("\n%s\n", totals(result).c_str());
  if (options.markdown) std::printf("%s\n", markdown(cases, trials).c_str());
  const double all = result.cases;
  return 100.0 * result.noticed_right >= options.need_right * all &&
         100.0 * result.noticed_plain >= options.need_plain * all &&
         result.alarms + result.clean_alarms <= options.most_alarms;
}

/// Same for causes and fixes.
bool score_cures(const std::vector<Case>& cases, const Options& options,
                 const std::filesystem::path& folder) {
  std::fputs(cure_head().c_str(), stdout);
  const std::vector<Cure> cures = find_cures(cases, folder, [&](const Cure& cure) {
    std::fputs(cure_row(cure).c_str(), stdout);
    if (options.text)
      std::printf("       %s\n       %s\n", cure.diagnosis.cause.c_str(), cure.why_not.c_str());
    if (options.seconds) std::printf("         %.2f s\n", cure.seconds);
    std::fflush(stdout);
  });
  const CureScore result = score_of(cures);
  std::printf("\n%s\n", cure_totals(result).c_str());
  if (options.markdown) std::printf("%s\n", cure_markdown(cures).c_str());
  return result.cases - result.named <= options.most_unnamed && result.decoys == 0 &&
         result.cases - result.explained <= options.most_unexplained &&
         result.cases - result.proved <= options.most_unproved &&
         result.cases - result.minimal <= options.most_large;
}

/// Prints what becomes of faulty kernels; returns whether they are all blamed.
bool score_kernels(const std::filesystem::path& folder) {
  std::printf("Faulty kernels\n%s", kernel_head().c_str());
  bool right = true;
  for (const KernelTrial& trial : kernel_trials()) {
    const KernelScore result = score_of(trial, folder);
    std::fputs(kernel_row(result).c_str(), stdout);
    right = right && result.right();
  }
  std::puts("");
  return right;
}

/// Runs and prints the cases; returns whether the numbers are reached.
bool score(const std::string& title, std::vector<Case> cases, const Options& options,
           const std::filesystem::path& folder) {
  if (!options.cases.empty()) {
    std::erase_if(cases, [&](const Case& each) {
      return std::find(options.cases.begin(), options.cases.end(), each.id) == options.cases.end();
    });
  }
  if (cases.empty()) return true;
  std::puts(title.c_str());
  const bool verdicts = !options.verdicts || score_verdicts(cases, options, folder);
  return (!options.cures || score_cures(cases, options, folder)) && verdicts;
}

int run(const Options& options) {
  const Folder folder;
  bool reached = true;
  if (options.built_in) {
    reached = score("Built-in cases", all_cases(), options, folder.path());
    if (options.cases.empty()) {
      if (options.cures) reached = score_kernels(folder.path()) && reached;
      std::printf("%s\n", coverage_text(coverage()).c_str());
    }
  }
  if (!options.with_files) return reached ? 0 : 1;
  const std::filesystem::path files = options.files.empty() ? usual_files() : options.files;
  if (!std::filesystem::is_directory(files)) {
    std::printf("Cases as files: none, there is no folder %s\n", files.c_str());
    return options.files.empty() && reached ? 0 : 1;
  }
  const bool also = score("Cases as files", file_cases(files), options, folder.path());
  return reached && also ? 0 : 1;
}

}  // namespace
}  // namespace halfscope::zoo

int main(int argc, char** argv) {
  halfscope::zoo::Options options;
  if (!halfscope::zoo::read_options(argc, argv, options)) {
    std::fputs(halfscope::zoo::kUsage, stderr);
    return 2;
  }
  try {
    return halfscope::zoo::run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "zoo_score: %s\n", error.what());
    return 2;
  }
}
