// SPDX-License-Identifier: MIT
#include "cli/terminal/output.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <system_error>

#include "analysis/output_file.h"
#include "core/error.h"

namespace halfscope {
namespace {

/// Returns the file behind links and "..", which need not exist.
std::filesystem::path true_path(const std::string& file) {
  // absolute(): weakly_canonical() leaves a name that is not there yet relative.
  std::error_code ignored;
  const std::filesystem::path path = std::filesystem::absolute(file, ignored);
  std::filesystem::path canonical = std::filesystem::weakly_canonical(path, ignored);
  return canonical.empty() ? path : canonical;
}

}  // namespace

void write_out(std::string_view text) {
  static bool reader_left = false;
  if (reader_left) return;
  errno = 0;
  const bool done =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (done) return;
  if (errno == EPIPE) {  // main() ignores SIGPIPE
    reader_left = true;
    return;
  }
  const std::error_code reason(errno, std::generic_category());
  throw Error("cannot write to standard output: " + reason.message(), "check the free disk space");
}

void write_result(const std::string& file, std::string_view text, bool force) {
  if (file == kStandardOutput) return write_out(text);
  write_output_file(file, text, force);
}

void check_is_file_name(const std::string& file, const char* what) {
  if (file != kStandardOutput) return;
  throw usage_error(std::string(what) + " cannot be written to standard output (-)",
                    "name a file; ./- is one called -");
}

void check_files(const CommandFiles& files, bool force) {
  std::set<std::filesystem::path> read, written;
  for (const std::string& file : files.read) {
    if (file.empty()) continue;
    read.insert(true_path(file));
    read.insert(true_path(file + "-wal"));  // SQLite has the last steps of a growing run there
  }
  std::vector<std::string> outputs = files.written;
  outputs.insert(outputs.end(), files.folders.begin(), files.folders.end());
  for (const std::string& file : outputs) {
    if (file.empty()) continue;
    const std::filesystem::path path = true_path(file);
    const bool twice = !written.insert(path).second;
    if (!twice && !read.contains(path)) continue;
    throw usage_error("'" + file + (twice ? "' is named twice" : "' is also an input"),
                      "use a different file for each input and output");
  }
  for (const std::string& file : files.written) {
    if (!file.empty() && file != kStandardOutput) check_output_file(file, force);
  }
}

std::string free_name(const std::string& stem, const std::string& ending) {
  std::error_code ignored;
  std::string name = stem + ending;
  for (int i = 2; i < 1000 && std::filesystem::exists(name, ignored); ++i) {
    name = stem + std::to_string(i) + ending;
  }
  return name;
}

void write_message(std::string_view text, bool output_taken) {
  if (!output_taken) return write_out(text);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

void write_json(const Json& json) {
  // Names may hold any bytes; invalid UTF-8 is replaced rather than refused.
  write_out(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

Json json_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0.0 ? "inf" : "-inf";
  return value;
}

std::string table_number(double value) {
  return std::isnan(value) ? "-" : fmt::format("{:.4g}", value);
}

std::string percentage(double value) {
  return std::isnan(value) ? "-" : fmt::format("{:.2f}%", 100.0 * value);
}

std::vector<std::string> wrapped(std::string_view text, size_t width) {
  std::vector<std::string> lines;
  std::string line;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find(' ', start), text.size());
    const std::string_view word = text.substr(start, end - start);
    if (!line.empty() && line.size() + 1 + word.size() > width) {
      lines.push_back(std::move(line));
      line.clear();
    }
    if (!line.empty()) line += ' ';
    line += word;
    start = end + 1;
  }
  lines.push_back(std::move(line));
  return lines;
}

TextStyle text_style(int descriptor) {
  constexpr size_t kLeast = 20, kMost = 80;
  if (isatty(descriptor) == 0) return {};
  const char* no_colour = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  const bool dumb = terminal != nullptr && std::string_view(terminal) == "dumb";
  // no-color.org: an empty value is as good as none.
  const bool refused = no_colour != nullptr && *no_colour != '\0';
  return {.width = std::clamp(window_width(descriptor), kLeast, kMost),
          .colour = !dumb && !refused};
}

std::string coloured(std::string_view text, Colour colour, const TextStyle& style) {
  if (!style.colour) return std::string(text);
  int code = 31;
  switch (colour) {
    case Colour::red:
      code = 31;
      break;
    case Colour::green:
      code = 32;
      break;
    case Colour::yellow:
      code = 33;
      break;
    case Colour::cyan:
      code = 36;
      break;
  }
  return fmt::format("\033[1;{}m{}\033[0m", code, text);
}

std::string paragraph(std::string_view text, const TextStyle& style, size_t first, size_t other) {
  if (style.width == 0) return std::string(first, ' ') + std::string(text) + "\n";
  const size_t indent = std::max(first, other);
  const size_t room = style.width > indent ? style.width - indent : 1;
  std::string lines;
  for (const std::string& line : wrapped(text, room)) {
    lines += std::string(lines.empty() ? first : other, ' ') + line + "\n";
  }
  return lines;
}

size_t output_width() { return isatty(STDOUT_FILENO) != 0 ? window_width(STDOUT_FILENO) : 0; }

size_t window_width(int terminal) {
  constexpr size_t kUsual = 80;
  winsize size{};
  if (ioctl(terminal, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsual;
  return size.ws_col;
}

std::string shortest(double value) {
  const bool whole = value == std::floor(value) && std::fabs(value) < 0x1p53;
  return whole ? fmt::format("{:.0f}", value) : fmt::format("{}", value);
}

}  // namespace halfscope
