// SPDX-License-Identifier: MIT
// The rows of docs/validation.md: a published figure, the same figure computed here, and what may
// lie between them. Rows are grouped in tables, one source file each.
#pragma once

#include <string>
#include <vector>

namespace halfscope::validation {

/// A published figure beside ours.
struct Row {
  std::string what;       ///< what is measured
  std::string source;     ///< Markdown
  std::string published;  ///< as published
  std::string ours;
  std::string accepted;  ///< "equal", or the range that `ours` may be in
  bool pass = false;
  std::string note{};  ///< why the values may differ, and what is different; below the table
  std::string zoo{};   ///< case of the zoo with the same failure
};

struct Table {
  char letter = 'A';  ///< its rows are A1, A2 ...
  std::string title, introduction;
  std::vector<Row> rows{};
};

/// Returns a row whose two values must be the same text.
Row exact(std::string what, std::string source, std::string published, std::string ours,
          std::string note = "");

/// Returns a row for a published value that does not hold: the two texts must differ.
Row differs(std::string what, std::string source, std::string published, std::string ours,
            std::string note);
/// Returns the row with the case of the zoo that shows the same failure.
Row in_zoo(std::string id, Row row);

/// Range of values, its ends included.
struct Accepted {
  double low = 0.0, high = 0.0;
};
/// How numbers of a row are written.
enum class Unit : char { plain, percent };
/// Returns a row whose value must be in a range.
Row within(std::string what, std::string source, std::string published, double ours,
           Accepted accepted, std::string note = "", Unit unit = Unit::plain);

/// Returns a number with at most three significant digits.
std::string short_number(double x);
/// Returns a number with a few more digits: 65504, 9.8616, inf, NaN.
std::string long_number(double x);
/// Returns "0.3%" of 0.003.
std::string percent(double share);
/// Returns a power of two as "2^-24"; any other number as long_number().
std::string power(double x);

/// Returns a link to an issue or a pull request: "pytorch #53635".
std::string issue(const std::string& repository, int number);
std::string pull(const std::string& repository, int number);
/// Returns a link to a paper: "1710.03740, section 3.1".
std::string paper(const std::string& number, const std::string& where);

// One function per table.
Table roundings();     ///< ranges, and single roundings
Table sums();          ///< sums in few bits
Table tensor_cores();  ///< products on tensor cores
Table blocks();        ///< scales of blocks, and stochastic rounding
Table losses();        ///< losses and gradients
Table trainings();     ///< networks that are trained here
Table corrections();   ///< published figures that do not hold

/// Returns the tables as Markdown, without a final empty line.
std::string markdown(const std::vector<Table>& tables);
/// Returns the number of rows outside their accepted range.
int failures(const std::vector<Table>& tables);

/// Marks the beginning and the end of the generated part of the page.
inline constexpr const char* kBegin = "<!-- begin: build/bin/validation -->";
inline constexpr const char* kEnd = "<!-- end: build/bin/validation -->";
/// Returns the page with `generated` between the two marks. Throws Error if it lacks one of them.
std::string with_generated(const std::string& page, const std::string& generated);
/// Returns the number of the first line that differs and both lines, or "" if the pages are equal.
std::string first_difference(const std::string& page, const std::string& now);

}  // namespace halfscope::validation
