// SPDX-License-Identifier: MIT
// The sections of `halfscope doctor`. Everything is read, nothing is changed. This is the one
// file outside their rooms that includes the libraries' headers: it reports their versions.
#include "cli/doctor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <omp.h>
#include <sqlite3.h>
#include <zlib.h>

#include <Eigen/Core>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "emulation/isa.h"
#include "gpu/device_info.h"

namespace halfscope {
namespace {

/// The text after "KEY<blanks>:" of the first line of a /proc file that starts with KEY; empty
/// if there is none, as on systems without /proc.
std::string proc_value(const char* file, std::string_view key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "";
}

std::string processor_name() {
  const std::string name = proc_value("/proc/cpuinfo", "model name");
  return name.empty() ? "unknown" : name;
}

/// The number a text starts with.
std::optional<double> leading_number(const std::string& text) {
  if (text.empty() || text[0] < '0' || text[0] > '9') return std::nullopt;
  return std::stod(text);
}

/// /proc/meminfo counts in KiB.
std::string gibibytes(std::optional<double> kibibytes) {
  return kibibytes ? fmt::format("{:.1f} GiB", *kibibytes / (1024.0 * 1024.0)) : "unknown";
}

std::string memory() {
  const std::optional<double> total = leading_number(proc_value("/proc/meminfo", "MemTotal"));
  const std::optional<double> free = leading_number(proc_value("/proc/meminfo", "MemAvailable"));
  std::string text = fmt::format("{}, {} available", gibibytes(total), gibibytes(free));
  // A container may be allowed less than the machine has; "max" means no limit.
  std::ifstream in("/sys/fs/cgroup/memory.max");
  std::string limit;
  if (in >> limit) {
    if (const std::optional<double> bytes = leading_number(limit)) {
      text += fmt::format(", limited to {}", gibibytes(*bytes / 1024.0));
    }
  }
  return text;
}

std::string compiler() {
#if defined(__clang__)
  return fmt::format("Clang {}", __clang_version__);
#elif defined(__GNUC__)
  return fmt::format("GCC {}", __VERSION__);
#else
  return "unknown";
#endif
}

std::string instruction_sets() {
  std::vector<std::string> names;
  for (Isa isa : supported_isas()) names.emplace_back(isa_name(isa));
  return fmt::format("{} (in use: {})", fmt::join(names, ", "), isa_name(active_isa()));
}

}  // namespace

int run_doctor(std::ostream& out, std::string_view version) {
  const auto line = [&out](std::string_view key, std::string_view value) {
    out << fmt::format("{:<18}{}\n", key, value);
  };
  line("HalfScope", version);
  line("compiler", compiler());
  line("processor", processor_name());
  line("instruction sets", instruction_sets());
  line("threads", fmt::format("{} of {} processors", omp_get_max_threads(), omp_get_num_procs()));
  line("memory", memory());

  out << "\nLibraries\n";
  line("  Eigen",
       fmt::format("{}.{}.{}", EIGEN_WORLD_VERSION, EIGEN_MAJOR_VERSION, EIGEN_MINOR_VERSION));
  line("  SQLite", sqlite3_libversion());
  line("  zlib", zlibVersion());
  line("  fmt",
       fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100));
  line("  nlohmann-json", fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR,
                                      NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH));

  out << "\nGPU\n";
  for (const std::string& text : describe(query_gpus())) out << "  " << text << "\n";
  out << "  training runs on the processor: GPU formats are emulated, a GPU is not used yet\n";
  return 0;
}

}  // namespace halfscope
