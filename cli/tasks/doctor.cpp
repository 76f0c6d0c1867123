// SPDX-License-Identifier: MIT
// The sections of `halfscope doctor`. Everything is read, nothing is changed. This is the one
// file outside their rooms that includes the libraries' headers: it reports their versions.
#include "cli/tasks/doctor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <omp.h>
#include <sqlite3.h>
#include <zip.h>
#include <zlib.h>

#include <Eigen/Core>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
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

/// In bytes; nothing where the system does not say.
struct Memory {
  std::optional<double> total, available;
  std::optional<double> limit;  ///< limit of a container, if below the machine's memory
};

Memory query_memory() {
  constexpr double kKibibyte = 1024.0;  // the unit of /proc/meminfo
  Memory memory;
  if (const auto total = leading_number(proc_value("/proc/meminfo", "MemTotal"))) {
    memory.total = *total * kKibibyte;
  }
  if (const auto available = leading_number(proc_value("/proc/meminfo", "MemAvailable"))) {
    memory.available = *available * kKibibyte;
  }
  std::ifstream in("/sys/fs/cgroup/memory.max");
  std::string limit;
  if (in >> limit) memory.limit = leading_number(limit);  // "max" means none
  return memory;
}

std::string gibibytes(std::optional<double> bytes) {
  return bytes ? fmt::format("{:.1f} GiB", *bytes / (1024.0 * 1024.0 * 1024.0)) : "unknown";
}

std::string memory_text() {
  const Memory memory = query_memory();
  std::string text =
      fmt::format("{}, {} available", gibibytes(memory.total), gibibytes(memory.available));
  if (memory.limit) text += fmt::format(", limited to {}", gibibytes(memory.limit));
  return text;
}

/// Name and version of every library the program uses.
std::vector<std::pair<std::string, std::string>> libraries() {
  return {
      {"Eigen",
       fmt::format("{}.{}.{}", EIGEN_WORLD_VERSION, EIGEN_MAJOR_VERSION, EIGEN_MINOR_VERSION)},
      {"SQLite", sqlite3_libversion()},
      {"zlib", zlibVersion()},
      {"libzip", zip_libzip_version()},
      {"fmt",
       fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)},
      {"nlohmann-json", fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR,
                                    NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH)},
  };
}

const char* state_name(GpuState state) {
  switch (state) {
    case GpuState::not_built:
      return "not_built";
    case GpuState::no_driver:
      return "no_driver";
    case GpuState::old_driver:
      return "old_driver";
    case GpuState::no_device:
      return "no_device";
    case GpuState::failed:
      return "failed";
    case GpuState::ready:
      return "ready";
  }
  return "unknown";
}

nlohmann::ordered_json version_json(const GpuVersion& version) {
  if (!version.found()) return nullptr;
  return version.text();
}

nlohmann::ordered_json gpu_json(const GpuReport& gpus) {
  nlohmann::ordered_json json;
  json["state"] = state_name(gpus.state);
  json["problem"] = gpus.problem;
  json["toolkit"] = version_json(gpus.toolkit);
  json["runtime"] = version_json(gpus.runtime);
  json["driver"] = version_json(gpus.driver);
  json["cublas_lt"] = version_json(gpus.cublas_lt);
  json["cudnn"] = version_json(gpus.cudnn);
  json["nccl"] = version_json(gpus.nccl);
  json["devices"] = nlohmann::ordered_json::array();
  for (const GpuDevice& device : gpus.devices) {
    const std::string capability = fmt::format("{}.{}", device.major, device.minor);
    json["devices"].push_back({{"name", device.name},
                               {"compute_capability", capability},
                               {"memory_bytes", device.memory_bytes},
                               {"multiprocessors", device.sm_count},
                               {"tensor_cores", tensor_core_formats(device.major, device.minor)}});
  }
  return json;
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

int run_doctor(std::ostream& out, std::string_view version, const DoctorNetwork* network) {
  const auto line = [&out](std::string_view key, std::string_view value) {
    out << fmt::format("{:<18}{}\n", key, value);
  };
  line("HalfScope", version);
  line("compiler", compiler());
  line("processor", processor_name());
  line("instruction sets", instruction_sets());
  line("threads", fmt::format("{} of {} processors", omp_get_max_threads(), omp_get_num_procs()));
  line("memory", memory_text());

  out << "\nLibraries\n";
  for (const auto& [name, number] : libraries()) line("  " + name, number);

  out << "\nGPU\n";
  const GpuReport gpus = query_gpus();
  for (const std::string& text : describe(gpus)) out << "  " << text << "\n";
  out << "  " << backends_text(gpus) << "\n";
  if (network != nullptr) out << "\n" << layers_text(*network, gpus.devices);
  return 0;
}

nlohmann::ordered_json doctor_json(std::string_view version, const DoctorNetwork* network) {
  using Json = nlohmann::ordered_json;
  const auto bytes = [](std::optional<double> value) {
    return value ? Json(static_cast<int64_t>(*value)) : Json(nullptr);
  };
  const Memory memory = query_memory();
  Json json;
  json["schema"] = "halfscope.doctor/1";
  json["version"] = version;
  json["compiler"] = compiler();
  json["processor"] = processor_name();
  json["instruction_sets"]["supported"] = Json::array();
  for (const Isa isa : supported_isas()) {
    json["instruction_sets"]["supported"].push_back(isa_name(isa));
  }
  json["instruction_sets"]["in_use"] = isa_name(active_isa());
  json["threads"] = omp_get_max_threads();
  json["processors"] = omp_get_num_procs();
  json["memory"] = {{"total_bytes", bytes(memory.total)},
                    {"available_bytes", bytes(memory.available)},
                    {"limit_bytes", bytes(memory.limit)}};
  for (const auto& [name, number] : libraries()) json["libraries"][name] = number;
  json["gpu"] = gpu_json(query_gpus());
  json["network"] = nullptr;
  json["layers"] = nullptr;
  if (network != nullptr) {
    json["network"] = {{"model", network->model}, {"plan", network->plan}, {"batch", nullptr}};
    if (network->batch > 0) json["network"]["batch"] = network->batch;
    json["layers"] = layers_json(network->layers);
  }
  return json;
}

}  // namespace halfscope
