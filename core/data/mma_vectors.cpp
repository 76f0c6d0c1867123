// SPDX-License-Identifier: MIT
#include "core/data/mma_vectors.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <string_view>
#include <system_error>

#include "core/error.h"

namespace halfscope {
namespace {

constexpr size_t kBuffer = size_t{1} << 16;
constexpr size_t kMaxLine = 9 * (2 * size_t{MmaVectorReader::kMaxK} + 2) + 64;
constexpr const char* kForm =
    "start the file with a header '# ... k=N'; each line after it is a[0..k-1] b[0..k-1] c d in 8 "
    "hex digits each";
constexpr std::string_view kBlanks = " \t\r;,";

/// Removes the next word from the front of `text` and returns it, or "" at the end.
std::string_view next_word(std::string_view& text, std::string_view blanks) {
  text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size()));
  const std::string_view word = text.substr(0, text.find_first_of(blanks));
  text.remove_prefix(word.size());
  return word;
}

/// Returns an arbitrary word in a form that is safe to print in a message.
std::string printable(std::string_view word) {
  constexpr size_t kMost = 24;
  std::string text;
  for (const char c : word.substr(0, kMost)) text += c > ' ' && c < '\x7f' ? c : '?';
  return text + (word.size() > kMost ? "..." : "");
}

std::string shown(std::string_view word) { return "'" + printable(word) + "'"; }

bool parse_bits(std::string_view word, float& value) {
  uint32_t bits = 0;
  const char* const end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, bits, 16);
  value = std::bit_cast<float>(bits);
  return word.size() == 8 && error == std::errc() && stop == end;
}

}  // namespace

MmaVectorReader::MmaVectorReader(const std::filesystem::path& file)
    : name_(file.string()), input_file_(file), buffer_(kBuffer) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) {
    throw Error("cannot read '" + name_ + "': it is a folder", "name the files in it");
  }
  std::string line;
  while (read_line(line)) {
    std::string_view rest = line;
    if (next_word(rest, kBlanks).empty()) continue;
    parse_header(line);
    return;
  }
  throw Error(name_ + ": the file is empty", kForm);
}

void MmaVectorReader::parse_header(const std::string& line) {
  if (!line.starts_with('#')) fail("no header with k= before the first vector");
  std::string_view rest = line;
  std::string_view k;
  for (std::string_view word = next_word(rest, kBlanks); !word.empty();
       word = next_word(rest, kBlanks)) {
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view key = word.substr(0, equals);
    const std::string value = printable(word.substr(equals + 1));
    if (key == "gpu") gpu_ = value;
    if (key == "input") input_ = value;
    if (key == "output") output_ = value;
    if (key == "k") k = word.substr(equals + 1);
  }
  if (k.empty()) fail("the header has no k=");
  const auto [stop, error] = std::from_chars(k.data(), k.data() + k.size(), k_);
  if (error != std::errc() || stop != k.data() + k.size() || k_ < 1 || k_ > kMaxK) {
    fail("k=" + shown(k) + " in the header, expected 1 to " + std::to_string(kMaxK));
  }
}

bool MmaVectorReader::read_line(std::string& line) {
  line.clear();
  for (;;) {
    if (used_ == filled_) {
      filled_ = input_file_.read(buffer_.data(), buffer_.size());
      used_ = 0;
      if (filled_ == 0) {
        line_ += line.empty() ? 0 : 1;
        return !line.empty();
      }
    }
    const auto begin = buffer_.begin() + static_cast<std::ptrdiff_t>(used_);
    const auto stop = buffer_.begin() + static_cast<std::ptrdiff_t>(filled_);
    const auto end = std::find(begin, stop, '\n');
    line.append(begin, end);
    used_ = static_cast<size_t>(end - buffer_.begin());
    if (line.size() > kMaxLine) {
      ++line_;
      fail("the line is longer than " + std::to_string(kMaxLine) + " characters");
    }
    if (end != stop) {
      ++used_;
      ++line_;
      return true;
    }
  }
}

bool MmaVectorReader::next(MmaVector& vector) {
  std::string line;
  const size_t k = static_cast<size_t>(k_), wanted = 2 * k + 2;
  while (read_line(line)) {
    std::string_view rest = line;
    if (line.starts_with('#')) continue;
    vector.a.resize(k);
    vector.b.resize(k);
    vector.line = line_;
    size_t count = 0;
    for (std::string_view word = next_word(rest, " \t\r"); !word.empty();
         word = next_word(rest, " \t\r"), ++count) {
      float value = 0.0f;
      if (!parse_bits(word, value)) {
        fail("word " + std::to_string(count + 1) + " is " + shown(word) +
             ", expected 8 hex digits");
      }
      if (count >= wanted) continue;
      (count < k            ? vector.a[count]
       : count < 2 * k      ? vector.b[count - k]
       : count + 1 < wanted ? vector.c
                            : vector.d) = value;
    }
    if (count == 0) continue;
    if (count != wanted) {
      fail("found " + std::to_string(count) + (count == 1 ? " number" : " numbers") +
           ", expected " + std::to_string(wanted) + " for k=" + std::to_string(k_));
    }
    return true;
  }
  return false;
}

void MmaVectorReader::fail(const std::string& what) const {
  throw Error(name_ + ", line " + std::to_string(line_) + ": " + what, kForm);
}

}  // namespace halfscope
