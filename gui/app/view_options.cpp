// SPDX-License-Identifier: MIT
#include "gui/app/view_options.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <charconv>
#include <filesystem>
#include <optional>

#include "analysis/output_file.h"
#include "analysis/study/study_view.h"
#include "core/error.h"

namespace halfscope::gui {
namespace {

constexpr int kCardWidth = 1200, kCardHeight = 630;  ///< as social networks show links
constexpr size_t kMostRuns = 12;                     ///< more lines cannot be told apart
constexpr int kLeastWidth = 640, kLeastHeight = 400, kMost = 16384;

/// "1440x900".
std::optional<std::pair<int, int>> parse_size(const std::string& text) {
  const char* end = text.data() + text.size();
  int width = 0, height = 0;
  const auto [cross, error] = std::from_chars(text.data(), end, width);
  if (error != std::errc{} || cross == end || *cross != 'x') return std::nullopt;
  const auto [rest, second] = std::from_chars(cross + 1, end, height);
  if (second != std::errc{} || rest != end) return std::nullopt;
  if (width < kLeastWidth || height < kLeastHeight || width > kMost || height > kMost) {
    return std::nullopt;
  }
  return std::pair{width, height};
}

}  // namespace

void add_view_options(CLI::App& app, ViewOptions& options) {
  app.add_option("run", options.runs,
                 "Run file to open, a second one to compare it with, and more whose loss is added; "
                 "or the folder of a study")
      ->expected(0, -1)  // too many get an answer in words
      ->type_name("RUN");
  app.add_option("--lab", options.lab,
                 "Open the float lab at a value, such as \"fp16 0.1\" or \"e4m3fn 0x7e\"")
      ->type_name("TEXT");
  app.add_option("--screenshot", options.screenshot,
                 "Write a PNG and exit; needs no display (see docs/reference/view.md)")
      ->type_name("FILE");
  app.add_option("--share", options.share,
                 "Write verdict, Spectrum and loss as one picture of 1200x630 pixels and exit; "
                 "needs no display")
      ->type_name("FILE");
  app.add_option("--script", options.script,
                 "Run this script before the screenshot, one command per line")
      ->type_name("FILE");
  app.add_option("--size", options.size, "Size of the window or screenshot in pixels")
      ->capture_default_str()
      ->type_name("WxH");
  app.add_option("--scale", options.scale, "Scale of text and widgets; 0 uses the display's scale")
      ->capture_default_str()
      ->type_name("NUMBER");
  app.add_flag("--force", options.force, "Replace existing screenshots");
  app.add_flag("--light", options.light, "Light theme, for print");
}

void check_view_options(ViewOptions& options) {
  const std::optional<std::pair<int, int>> size = parse_size(options.size);
  if (!size) {
    throw usage_error(fmt::format("--size {}: not a valid size", options.size),
                      fmt::format("use a size from {}x{} to {}x{}, for example 1440x900",
                                  kLeastWidth, kLeastHeight, kMost, kMost));
  }
  options.width = size->first;
  options.height = size->second;
  if (options.scale != 0.0 && !(options.scale >= 0.5 && options.scale <= 4.0)) {
    throw usage_error(fmt::format("--scale {}: out of range", options.scale),
                      "use a number from 0.5 to 4");
  }
  if (!options.script.empty() && options.screenshot.empty() && options.share.empty()) {
    throw usage_error("--script needs --screenshot", "add --screenshot FILE");
  }
  if (!options.share.empty()) {
    if (!options.screenshot.empty()) {
      throw usage_error("--share and --screenshot draw different pictures", "remove one of them");
    }
    if (options.runs.empty()) throw usage_error("--share needs a run", "add its file");
    options.width = kCardWidth;
    options.height = kCardHeight;
  }
  if (options.runs.size() > kMostRuns) {
    throw usage_error(fmt::format("the viewer opens at most {} runs, but {} were given", kMostRuns,
                                  options.runs.size()),
                      fmt::format("remove '{}'", options.runs[kMostRuns]));
  }
  for (const std::string& file : options.runs) {
    if (!std::filesystem::exists(file)) {
      throw Error(fmt::format("cannot open '{}': file not found", file),
                  "record a run with `halfscope train --out RUN`");
    }
  }
  for (size_t i = 0; i < options.runs.size(); ++i) {
    if (!is_study(options.runs[i])) continue;
    if (!options.share.empty()) {
      throw usage_error("--share needs a run, but '" + options.runs[i] + "' is a study",
                        "pass the run file of one trial");
    }
    if (options.runs.size() == 1) continue;
    throw usage_error("a study is opened alone", "remove '" + options.runs[i == 0 ? 1 : i] + "'");
  }
  for (const std::string& picture : {options.screenshot, options.share}) {
    if (!picture.empty()) check_picture(options, picture);
  }
}

void check_picture(const ViewOptions& options, const std::string& picture) {
  std::vector<std::string> inputs = options.runs;
  if (!options.script.empty()) inputs.push_back(options.script);
  for (const std::string& input : inputs) {
    std::error_code error;
    if (std::filesystem::equivalent(input, picture, error) && !error) {
      throw usage_error(fmt::format("'{}' would be overwritten by a picture", input),
                        "give the picture another name");
    }
  }
  check_output_file(picture, options.force);
}

std::vector<std::string> view_arguments(const ViewOptions& options) {
  std::vector<std::string> words;
  const auto add = [&words](const char* flag, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {flag, value});
  };
  add("--lab", options.lab);
  add("--screenshot", options.screenshot);
  add("--share", options.share);
  add("--script", options.script);
  add("--size", options.size);
  if (options.scale != 0.0) add("--scale", fmt::format("{}", options.scale));
  if (options.force) words.emplace_back("--force");
  if (options.light) words.emplace_back("--light");
  if (!options.runs.empty()) words.emplace_back("--");
  words.insert(words.end(), options.runs.begin(), options.runs.end());
  return words;
}

}  // namespace halfscope::gui
