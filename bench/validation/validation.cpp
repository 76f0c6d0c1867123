// SPDX-License-Identifier: MIT
// validation: published figures of reduced precision beside the same figures computed here. Prints
// the tables of docs/validation.md, or keeps that page up to date.
//
//   validation [--write PAGE | --check PAGE]
//
// Exit code: 1 if a value is outside its accepted range or PAGE differs, 2 for wrong arguments.
#include <fmt/format.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "bench/validation/rows.h"
#include "core/error.h"
#include "emulation/threads.h"

namespace halfscope::validation {
namespace {

constexpr const char* kUsage = "validation [--write PAGE | --check PAGE]";

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error("cannot open '" + path + "'", "run it in the folder of the sources");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) throw Error("cannot write '" + path + "'");
}

std::vector<Table> all_tables() {
  return {roundings(), sums(), tensor_cores(), blocks(), losses(), trainings(), corrections()};
}

int run(int count, char** words) {
  const std::string flag = count > 1 ? words[1] : "";
  const bool writes = flag == "--write", checks = flag == "--check";
  if (count > 1 && (count != 3 || (!writes && !checks))) {
    throw usage_error("wrong arguments", kUsage);
  }
  const std::string page = count == 3 ? contents(words[2]) : "";
  const std::vector<Table> tables = all_tables();
  const std::string text = markdown(tables);
  const int bad = failures(tables);
  if (bad > 0) fmt::print(stderr, "{} values are outside their accepted range\n", bad);
  if (count == 1) {
    fmt::print("{}\n", text);
    return bad > 0 ? 1 : 0;
  }
  const std::string now = with_generated(page, text);
  if (writes) {
    write(words[2], now);
    return bad > 0 ? 1 : 0;
  }
  const std::string difference = first_difference(page, now);
  if (difference.empty()) return bad > 0 ? 1 : 0;
  fmt::print(stderr, "{}:{}\n", words[2], difference);
  fmt::print(stderr, "hint: update the page with `build/bin/validation --write {}`\n", words[2]);
  return 1;
}

}  // namespace
}  // namespace halfscope::validation

int main(int count, char** words) {
  halfscope::limit_spinning(words);
  try {
    return halfscope::validation::run(count, words);
  } catch (const halfscope::Error& error) {
    fmt::print(stderr, "validation: {}\nhint: {}\n", error.what(), error.hint());
    return 2;
  }
}
