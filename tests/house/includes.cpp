// SPDX-License-Identifier: MIT
// Which code may include which: the rooms among each other, the folders of a room, and the
// libraries of a room. A new folder gets a row in kFolders, a new library one in kLibraries; there
// is no other way.
#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "tests/house/rules.h"

namespace halfscope::house {
namespace {

using Names = std::span<const std::string_view>;

struct Include {
  int line = 0;
  bool quoted = false;
  std::string_view target;
};

struct Room {
  std::string_view name;
  Names may_include;
};

constexpr std::array<std::string_view, 1> kCoreMay{"core"};
constexpr std::array<std::string_view, 2> kEmulationMay{"core", "emulation"};
constexpr std::array<std::string_view, 2> kGpuMay{"core", "gpu"};
constexpr std::array<std::string_view, 2> kAnalysisMay{"core", "analysis"};
constexpr std::array<std::string_view, 4> kGuiMay{"core", "emulation", "analysis", "gui"};
constexpr std::array<std::string_view, 6> kCliMay{"core",     "emulation", "gpu",
                                                  "analysis", "gui",       "cli"};
constexpr std::array<std::string_view, 4> kPythonMay{"core", "emulation", "analysis", "python"};
constexpr std::array<std::string_view, 5> kExamplesMay{"core", "emulation", "gpu", "analysis",
                                                       "examples"};
constexpr std::array<std::string_view, 9> kAll{"core", "emulation", "gpu",   "analysis", "gui",
                                               "cli",  "tests",     "bench", "examples"};
constexpr std::array<Room, 10> kRooms{{{"core", kCoreMay},
                                       {"emulation", kEmulationMay},
                                       {"gpu", kGpuMay},
                                       {"analysis", kAnalysisMay},
                                       {"gui", kGuiMay},
                                       {"cli", kCliMay},
                                       {"python", kPythonMay},
                                       {"examples", kExamplesMay},
                                       {"tests", kAll},
                                       {"bench", kAll}}};

/// The folders of rooms that have several, in order: each may include those before it, so none go
/// in circles.
constexpr auto kFolders = std::to_array<std::string_view>(
    {"core", "core/numeric/elementary", "core/numeric/formats", "core/numeric/types",
     "core/numeric/scaling", "core/numeric/sums", "core/numeric/sum_orders",
     "core/numeric/statistics", "core/bodies", "core/data", "core/plan", "core/graph", "core/ops",
     "core/policy/grappler", "core/policy", "core/models", "core/lower", "core/onnx",
     "core/exchange", "core/backend", "core/observe", "core/train", "core/models/zoo", "core/lab",
     "core/c_api", "core/testing",
     //
     "emulation", "emulation/measure", "emulation/gemm", "emulation/engine",
     //
     "gpu/bodies", "gpu/libraries", "gpu/engine", "gpu",
     //
     "analysis", "analysis/export", "analysis/fixes", "analysis/rules", "analysis/spectrum",
     "analysis/audit", "analysis/cost", "analysis/causes", "analysis/plans", "analysis/proof",
     "analysis/diagnosis", "analysis/quantization", "analysis/gate", "analysis/report",
     "analysis/study",
     //
     "cli/mpi", "cli/terminal", "cli/args", "cli/tasks", "cli/sweep", "cli/commands", "cli",
     //
     "python/src",
     //
     "gui/data", "gui/state", "gui/widgets", "gui/lab", "gui/panels", "gui/study", "gui/app",
     "gui/web/standard", "gui/web", "gui"});

/// A header belongs to a library if it starts with one of `headers`. It may be included by files
/// whose path matches one of `places`: "analysis/" is a folder, "core/policy/*.cpp" its sources
/// at any depth, anything else one file. Tests and benchmarks may include everything.
struct Library {
  std::string_view name;
  std::array<std::string_view, 11> headers;
  std::array<std::string_view, 8> places;
};

// cli/tasks/doctor.cpp reports the versions of the libraries and so sees all their headers.
constexpr std::array<Library, 21> kLibraries{{
    {"SQLite", {"sqlite3"}, {"analysis/", "cli/tasks/doctor.cpp"}},
    {"CUDA",
     {"cuda", "cublas", "cudnn", "nccl", "nvrtc", "nvml", "mma.h", "cooperative_groups", "cub/",
      "driver_types.h", "nvtx3/"},
     {"gpu/"}},
    {"Eigen",
     {"Eigen/"},
     {"core/numeric/types/eigen.h", "emulation/*.cpp", "cli/tasks/doctor.cpp"}},
    {"zlib", {"zlib.h"}, {"core/data/", "cli/tasks/doctor.cpp"}},
    {"libzip", {"zip.h"}, {"core/data/", "cli/tasks/doctor.cpp"}},
    {"nlohmann-json",
     {"nlohmann/"},
     {"core/json_keys.cpp", "core/policy/*.cpp", "core/lab/*.cpp", "analysis/", "gui/", "cli/"}},
    {"fmt",
     {"fmt/"},
     {"core/policy/*.cpp", "core/data/", "core/lab/", "emulation/", "gpu/", "analysis/", "gui/",
      "cli/"}},
    {"CLI11", {"CLI/"}, {"cli/", "gui/main.cpp", "gui/app/view_options.cpp"}},
    {"MPI", {"mpi.h"}, {"cli/mpi/mpi_module.cpp"}},
    {"OpenMP",
     {"omp.h"},
     {"emulation/", "analysis/proof/side_by_side.cpp", "cli/", "python/src/measuring.cpp"}},
    {"x86 intrinsics", {"immintrin.h", "x86intrin.h", "cpuid.h"}, {"emulation/"}},
    {"GoogleTest", {"gtest/", "gmock/"}, {"core/testing/", "examples/10_kernel_test.cpp"}},
    {"Google Benchmark", {"benchmark/"}, {}},
    {"protobuf", {"google/", "onnx/"}, {"core/onnx/"}},
    {"viewer libraries", {"imgui", "backends/imgui", "GLFW/", "GL/", "EGL/", "stb"}, {"gui/"}},
    {"emscripten", {"emscripten"}, {"gui/web/"}},
    {"nanobind", {"nanobind/"}, {"python/"}},
    {"the dynamic loader", {"dlfcn.h"}, {"gpu/", "cli/mpi/job.cpp"}},
    {"the C library", {"stddef.h", "stdint.h"}, {"core/c_api/"}},
    {"glibc's memory", {"malloc.h"}, {"core/memory.cpp"}},
    {"POSIX",
     {"unistd.h", "fcntl.h", "sys/", "poll.h", "signal.h", "sched.h", "spawn.h"},
     {"core/data/", "analysis/", "gui/", "cli/", "emulation/", "python/src/background.cpp"}},
}};

/// The headers of the C++ standard library are those without a dot and a folder.
bool is_standard(std::string_view header) { return header.find_first_of("./") == header.npos; }

std::string_view room_of(std::string_view path) {
  const size_t slash = path.find('/');
  return slash == path.npos ? std::string_view{} : path.substr(0, slash);
}

std::string_view folder_of(std::string_view path) {
  return path.substr(0, std::min(path.rfind('/'), path.size()));
}

/// Returns the position of a folder in kFolders, or the number of rows if it is missing.
size_t place_of(std::string_view folder) {
  return static_cast<size_t>(std::find(kFolders.begin(), kFolders.end(), folder) -
                             kFolders.begin());
}

/// Returns whether the folder is missing in kFolders, although others of its room are listed.
bool is_unlisted(std::string_view folder, std::string_view room) {
  return place_of(folder) == kFolders.size() &&
         std::any_of(kFolders.begin(), kFolders.end(),
                     [&](std::string_view each) { return folder_of(each) == room; });
}

bool is_in_place(std::string_view path, std::string_view place) {
  if (const size_t star = place.find('*'); star != place.npos) {
    return path.starts_with(place.substr(0, star)) && path.ends_with(place.substr(star + 1));
  }
  return place.ends_with('/') ? path.starts_with(place) : path == place;
}

const Room* find_room(std::string_view name) {
  const auto found = std::find_if(kRooms.begin(), kRooms.end(),
                                  [&](const Room& room) { return room.name == name; });
  return found == kRooms.end() ? nullptr : &*found;
}

const Library* find_library(std::string_view header) {
  const auto found = std::find_if(kLibraries.begin(), kLibraries.end(), [&](const Library& each) {
    return std::any_of(each.headers.begin(), each.headers.end(), [&](std::string_view start) {
      return !start.empty() && header.starts_with(start);
    });
  });
  return found == kLibraries.end() ? nullptr : &*found;
}

/// Reads `#include <x>` and `#include "x"` with any blanks; other lines are not includes.
std::optional<Include> parse_include(std::string_view line) {
  const auto skip_blanks = [&line] {
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  };
  skip_blanks();
  if (!line.starts_with('#')) return std::nullopt;
  line.remove_prefix(1);
  skip_blanks();
  constexpr std::string_view kWord = "include";
  if (!line.starts_with(kWord)) return std::nullopt;
  line.remove_prefix(kWord.size());
  skip_blanks();
  if (line.empty() || (line[0] != '"' && line[0] != '<')) return std::nullopt;
  const bool quoted = line[0] == '"';
  const size_t end = line.find(quoted ? '"' : '>', 1);
  if (end == line.npos) return std::nullopt;
  return Include{.quoted = quoted, .target = line.substr(1, end - 1)};
}

std::vector<Include> includes_of(std::string_view text) {
  std::vector<Include> includes;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    if (std::optional<Include> include = parse_include(text.substr(0, end))) {
      include->line = number;
      includes.push_back(*include);
    }
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
  }
  return includes;
}

/// Returns what is wrong with one include of a file of `room`, or "" if nothing is.
std::string judge(const File& file, const Room& room, const Include& include) {
  std::string target(include.target);
  if (target.find("..") != target.npos) return "includes " + target + " by a relative path";
  if (room.name == "examples") {  // as consumers do; scripts/public_headers.cmake writes these
    constexpr std::string_view kInstalled = "halfscope/";
    if (target.starts_with(kInstalled)) {
      target.erase(0, kInstalled.size());
      if (target.starts_with("testing/")) target.insert(0, "core/");
    } else if (find_room(room_of(target)) != nullptr) {
      return "examples include \"halfscope/" + target + "\"";
    }
  }
  const std::string_view other = room_of(target);
  if (find_room(other) != nullptr) {
    const bool may = std::find(room.may_include.begin(), room.may_include.end(), other) !=
                     room.may_include.end();
    if (!may) return std::string(room.name) + " must not know " + target;
    const std::string_view from = folder_of(file.path), to = folder_of(target);
    if (other != room.name || place_of(to) <= place_of(from)) return "";
    return std::string(from) + " must not know " + target + ": " + std::string(to) + " comes later";
  }
  if (include.quoted) return "";  // a file beside this one
  if (is_standard(target) || room.name == "tests" || room.name == "bench") return "";
  const Library* library = find_library(target);
  if (library == nullptr) return "<" + target + "> belongs to no library we know";
  const bool may = std::any_of(
      library->places.begin(), library->places.end(),
      [&](std::string_view place) { return !place.empty() && is_in_place(file.path, place); });
  return may ? "" : std::string(library->name) + " must not be used here: <" + target + ">";
}

}  // namespace

Violations check_includes(const File& file) {
  Violations violations;
  const Room* room = find_room(room_of(file.path));
  if (room == nullptr || !is_cpp(file.path)) return violations;
  if (const std::string folder(folder_of(file.path)); is_unlisted(folder, room->name)) {
    return {{file.path, 0, folder + " has no place in kFolders of tests/house/includes.cpp"}};
  }
  for (const Include& include : includes_of(file.text)) {
    if (std::string what = judge(file, *room, include); !what.empty()) {
      violations.push_back({file.path, include.line, std::move(what)});
    }
  }
  return violations;
}

}  // namespace halfscope::house
