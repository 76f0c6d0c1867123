// SPDX-License-Identifier: MIT
#include "core/lab/puzzle_progress.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>

namespace halfscope::lab {
namespace {

constexpr const char* kProgressSchema = "halfscope.progress/1";

}  // namespace

std::filesystem::path progress_file() {
  if (const char* file = std::getenv("HALFSCOPE_PROGRESS")) return file;
  const auto below = [](const char* variable, const char* path) -> std::filesystem::path {
    const char* folder = std::getenv(variable);
    return folder == nullptr || *folder == '\0' ? std::filesystem::path()
                                                : std::filesystem::path(folder) / path;
  };
  if (auto file = below("XDG_DATA_HOME", "halfscope/puzzles.json"); !file.empty()) return file;
  return below("HOME", ".local/share/halfscope/puzzles.json");
}

PuzzleProgress read_progress(const std::filesystem::path& file) {
  PuzzleProgress progress;
  std::error_code failed;
  if (file.empty() || !std::filesystem::is_regular_file(file, failed)) return progress;
  std::ifstream in(file, std::ios::binary);
  if (!in) return progress;
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  const nlohmann::json wanted = kProgressSchema;
  if (!json.is_object() || !json.contains("schema") || json.at("schema") != wanted) return progress;
  const auto levels = json.find("levels");
  if (levels == json.end() || !levels->is_object()) return progress;
  const auto number = [](const nlohmann::json& level, const char* key) -> int64_t {
    const auto found = level.find(key);
    return found != level.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
  };
  for (const auto& [name, level] : levels->items()) {
    if (!level.is_object()) continue;
    const auto solved = level.find("solved");
    progress[name] = {.bits = number(level, "bits"),
                      .par = number(level, "par"),
                      .tries = number(level, "tries"),
                      .solved = solved != level.end() && *solved == nlohmann::json(true)};
  }
  return progress;
}

void note_try(PuzzleProgress& progress, const std::string& level, const PuzzleAnswer& answer,
              int64_t par) {
  SolvedPuzzle& entry = progress[level];
  if (!entry.solved) ++entry.tries;
  if (!answer.solved) return;
  entry.bits = entry.solved ? std::min(entry.bits, answer.bits) : answer.bits;
  entry.solved = true;
  entry.par = par;
}

bool write_progress(const std::filesystem::path& file, const PuzzleProgress& progress) {
  if (file.empty()) return true;
  nlohmann::ordered_json json{{"schema", kProgressSchema},
                              {"levels", nlohmann::ordered_json::object()}};
  for (const auto& [name, level] : progress) {
    json["levels"][name] = {
        {"solved", level.solved}, {"tries", level.tries}, {"bits", level.bits}, {"par", level.par}};
  }
  std::error_code error;
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path(), error);
  // A reader never sees half a file.
  const std::filesystem::path fresh = file.string() + ".partial";
  std::ofstream out(fresh, std::ios::binary);
  out << json.dump(1) << '\n';
  out.close();
  if (!out) {
    std::filesystem::remove(fresh, error);
    return false;
  }
  std::filesystem::rename(fresh, file, error);
  return !error;
}

}  // namespace halfscope::lab
