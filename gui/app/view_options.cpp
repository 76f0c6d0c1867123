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
#include "core/error.h"

namespace halfscope::gui {
namespace {

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
  app.add_option("run", options.runs, "Run file to open, and another one to compare it with")
      ->expected(0, -1)  // more than two get an answer in words
      ->type_name("RUN");
  app.add_option("--lab", options.lab,
                 "Open the float lab at a value: \"fp16 0.1\", \"e4m3fn 0x7e\"")
      ->type_name("TEXT");
  app.add_option("--screenshot", options.screenshot,
                 "Write a picture and end; needs no display (docs/contracts.md)")
      ->type_name("FILE");
  app.add_option("--script", options.script, "What to do before the picture, a command a line")
      ->type_name("FILE");
  app.add_option("--size", options.size, "Of the window or picture, in pixels")
      ->capture_default_str()
      ->type_name("WxH");
  app.add_option("--scale", options.scale, "Of text and widgets; 0: the display's")
      ->capture_default_str()
      ->type_name("NUMBER");
  app.add_flag("--force", options.force, "Replace pictures that are there already");
  app.add_flag("--light", options.light, "Dark on light, for print");
}

void check_view_options(ViewOptions& options) {
  const std::optional<std::pair<int, int>> size = parse_size(options.size);
  if (!size) {
    throw usage_error(fmt::format("--size {}: not a size", options.size),
                      fmt::format("from {}x{} to {}x{}, such as 1440x900", kLeastWidth,
                                  kLeastHeight, kMost, kMost));
  }
  options.width = size->first;
  options.height = size->second;
  if (options.scale != 0.0 && !(options.scale >= 0.5 && options.scale <= 4.0)) {
    throw usage_error(fmt::format("--scale {}: is out of range", options.scale), "from 0.5 to 4");
  }
  if (!options.script.empty() && options.screenshot.empty()) {
    throw usage_error("--script makes pictures", "name one with --screenshot");
  }
  if (options.runs.size() > 2) {
    throw usage_error(fmt::format("{} runs are too many: {}", options.runs.size(), options.runs[2]),
                      "the viewer holds one run against one other");
  }
  for (const std::string& file : options.runs) {
    if (!std::filesystem::exists(file)) {
      throw Error(fmt::format("there is no file {}", file),
                  "`halfscope train --out RUN` makes run files");
    }
  }
  if (!options.screenshot.empty()) check_picture(options, options.screenshot);
}

void check_picture(const ViewOptions& options, const std::string& picture) {
  std::vector<std::string> inputs = options.runs;
  if (!options.script.empty()) inputs.push_back(options.script);
  for (const std::string& input : inputs) {
    std::error_code error;
    if (std::filesystem::equivalent(input, picture, error) && !error) {
      throw usage_error(fmt::format("{} would be overwritten by a picture", input),
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
