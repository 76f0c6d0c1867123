// SPDX-License-Identifier: MIT
// Standard output, which is for results and nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace halfscope {

using Json = nlohmann::ordered_json;

/// The name that stands for standard output where a result goes to a file.
inline constexpr std::string_view kStandardOutput = "-";

/// Writes a result to its file, or to standard output.
void write_result(const std::string& file, std::string_view text, bool force);
/// Throws Error (usage) if `file` is standard output, but `what` ("a run file") needs a file.
void check_is_file_name(const std::string& file, const char* what);
/// The files of a command. Empty names count as none.
struct CommandFiles {
  std::vector<std::string> read{};     ///< one file may be read for several purposes
  std::vector<std::string> written{};  ///< "-" is standard output
  std::vector<std::string> folders{};  ///< written, too; the command checks more of them
};
/// Throws Error (usage) if a file would be written twice, if an output is an input, or if one of
/// the outputs could not be written. Every command that writes calls this before its work.
void check_files(const CommandFiles& files, bool force);
/// Returns `stem` + `ending`, or the first of "stem2", "stem3" ... that is not a file yet: for
/// commands that are suggested to the user.
std::string free_name(const std::string& stem, const std::string& ending);
/// Writes text for people, to standard error if a result uses standard output.
void write_message(std::string_view text, bool output_taken);

/// Writes to standard output at once. A closed pipe is not an error: the rest is dropped.
/// Throws Error if the text cannot be written, as on a full disk.
void write_out(std::string_view text);
/// The same for a JSON result.
void write_json(const Json& json);

/// Returns a number for JSON (docs/reference/json.md): "inf", "-inf" and "nan" are words.
Json json_number(double value);

/// Returns a number for a table: four significant digits, "-" for NaN.
std::string table_number(double value);
/// Returns 0.956 as "95.60%", and NaN as "-".
std::string percentage(double value);

/// Returns `text` in lines of at most `width` characters at blanks.
std::vector<std::string> wrapped(std::string_view text, size_t width);

/// Style of text for people on a stream.
struct TextStyle {
  size_t width = 0;     ///< paragraphs are wrapped to this many columns; 0: one line each
  bool colour = false;  ///< important words are coloured with escape codes
};
/// Returns the style for a file descriptor. A terminal gets wrapped text of at most 80 columns, in
/// colour unless NO_COLOR is set or TERM is "dumb"; files and pipes get plain lines.
TextStyle text_style(int descriptor);

enum class Colour : uint8_t { red, green, yellow, cyan };
/// Returns `text`, bold and in colour if the style has colours.
std::string coloured(std::string_view text, Colour colour, const TextStyle& style);

/// Returns `text` and a newline, wrapped to the style's width. The first line starts with `first`
/// blanks, the others with `other`.
std::string paragraph(std::string_view text, const TextStyle& style, size_t first, size_t other);

/// Returns the width of a terminal, or 80 if it is unknown.
size_t window_width(int terminal);
/// Returns the width of the terminal at standard output, or 0 if it is not a terminal.
size_t output_width();

/// Returns the shortest text that reads back as the same number, without "e+05" below 2^53:
/// "65536".
std::string shortest(double value);

}  // namespace halfscope
