// SPDX-License-Identifier: MIT
// The layout of --help: a summary, the usage, the flags by group with their defaults, an example.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <string>

namespace halfscope {

class HelpFormatter : public CLI::FormatterBase {
 public:
  explicit HelpFormatter(size_t width) : width_(width) {}
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;

 private:
  size_t width_;
};

}  // namespace halfscope
