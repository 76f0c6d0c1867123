// SPDX-License-Identifier: MIT
#include "cli/mpi/job.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <thread>
#include <vector>

#include "core/error.h"

namespace halfscope {
namespace {

namespace fs = std::filesystem;

MpiJob* joined = nullptr;
bool began = false;  ///< begin_together() has succeeded

constexpr const char* kIgnore = "HALFSCOPE_MPI";

/// Returns a number that a launcher has set; 0 without one.
int number_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::atoi(text);
}

/// A job as its launcher describes it.
struct Launched {
  const char* by;      ///< name of the implementation of MPI
  const char* module;  ///< file name of the library for it
  int processes;
};

/// Throws Error (usage) for a launcher that no module supports.
std::optional<Launched> launched() {
  const char* wish = std::getenv(kIgnore);
  if (wish != nullptr && std::string_view(wish) == "off") return std::nullopt;
  if (const int size = number_in("OMPI_COMM_WORLD_SIZE"); size > 0) {
    return Launched{"Open MPI", "halfscope_openmpi.so", size};
  }
  // Hydra, which starts MPICH and its relatives, and Slurm with --mpi=pmi2.
  if (const int size = number_in("PMI_SIZE"); size > 0) {
    return Launched{"MPICH", "halfscope_mpich.so", size};
  }
  // Slurm with --mpi=pmix.
  if (std::getenv("PMIX_RANK") != nullptr && number_in("SLURM_STEP_NUM_TASKS") != 1) {
    throw usage_error("this launcher of MPI programs is not supported",
                      "start the processes with mpirun, or set HALFSCOPE_MPI=off if each process "
                      "does different work");
  }
  return std::nullopt;
}

/// Returns the folders that may contain a module: beside the program, and where it is installed.
std::vector<fs::path> module_folders() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error).parent_path();
  return {program, program / HALFSCOPE_MODULE_FOLDER};
}

MpiJob* join(const Launched& job) {
  std::string why = "it was not built";
  for (const fs::path& folder : module_folders()) {
    const fs::path file = folder / job.module;
    if (!fs::exists(file)) continue;
    // MPI's own plug-ins look for its symbols among the global ones.
    void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) {
      why = dlerror();
      continue;
    }
    using Join = MpiJob* (*)();
    const auto start = reinterpret_cast<Join>(dlsym(library, "halfscope_join_mpi_job"));
    if (start != nullptr) return start();
    why = "it is not a library of this program";
  }
  throw usage_error(fmt::format("{} started {} processes, but {} cannot be used: {}", job.by,
                                job.processes, job.module, why),
                    fmt::format("install {}'s development files and build again, or start one "
                                "process without mpirun",
                                job.by));
}

std::map<std::string, std::string> read_facts(const std::string& text) {
  std::map<std::string, std::string> facts;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find('=');
    facts[line.substr(0, equals)] = line.substr(equals + 1);
  }
  return facts;
}

std::string comma_ranks(const std::vector<size_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  }
  return text;
}

}  // namespace

MpiJob* mpi_job() {
  static const std::optional<Launched> job = launched();
  if (!job || job->processes < 2) return nullptr;
  if (joined == nullptr) joined = join(*job);
  return joined;
}

void refuse_job(const std::string& command) {
  const std::optional<Launched> job = launched();
  if (!job || job->processes < 2) return;
  throw usage_error(
      fmt::format("'{}' runs in one process, but {} started {}", command, job->by, job->processes),
      "start it without mpirun");
}

int leave_mpi_job(int code, bool failed) {
  // Before they join, processes have the same errors. A launcher may kill all at the first exit
  // code that is not 0, so only the process that prints the error has one.
  if (joined == nullptr) return failed && !is_first_process() ? 0 : code;
  std::fflush(nullptr);
  if (failed && began) joined->abort(code);
  joined->finish();
  return code;
}

void leave_together() { began = false; }

std::string rank_prefix() { return began ? fmt::format("rank {}: ", joined->rank()) : ""; }

bool is_first_process() {
  return number_in("OMPI_COMM_WORLD_RANK") == 0 && number_in("PMI_RANK") == 0;
}

int local_rank() {
  return std::max({number_in("OMPI_COMM_WORLD_LOCAL_RANK"), number_in("MPI_LOCALRANKID"),
                   number_in("SLURM_LOCALID")});
}

int threads_of_process() {
  const int64_t processors = omp_get_num_procs();  // that this process may use
  const int64_t all = std::max<int64_t>(std::thread::hardware_concurrency(), processors);
  const int64_t here =
      std::max({1, number_in("OMPI_COMM_WORLD_LOCAL_SIZE"), number_in("MPI_LOCALNRANKS")});
  // Launchers bind processes to equal parts of a computer, or to none.
  const int64_t sharing = std::max<int64_t>(1, here * processors / all);
  return static_cast<int>(std::max<int64_t>(1, processors / sharing));
}

void begin_together(MpiJob& job, const std::function<void()>& prepare,
                    const std::function<std::string()>& facts) {
  std::optional<Error> error;
  try {
    prepare();
  } catch (const Error& e) {
    error = e;
  } catch (const std::bad_alloc&) {
    error = Error("out of memory", "use a smaller --batch or fewer lanes");
  }
  const std::string own = error ? fmt::format("error\n{}", error->what()) : facts();
  const std::vector<std::string> all = all_gather_texts(job, own);
  const auto failed = [](const std::string& text) { return text.starts_with("error\n"); };
  const auto first = std::find_if(all.begin(), all.end(), failed);
  if (first != all.end()) {
    if (!job.records()) throw SilentEnd();
    if (error) throw *error;
    throw Error(fmt::format("rank {}: {}", first - all.begin(), first->substr(6)),
                "start all processes on the same files and with the same program");
  }
  const bool agree = std::all_of(all.begin(), all.end(),
                                 [&](const std::string& each) { return each == all.back(); });
  began = agree;
  if (agree) return;
  if (!job.records()) throw SilentEnd();
  for (const auto& [what, value] : read_facts(own)) {
    std::vector<size_t> others;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      if (read_facts(all[rank])[what] != value) others.push_back(rank);
    }
    if (others.empty()) continue;
    throw usage_error(
        fmt::format("the processes do not agree: {} {} another {} than rank {}",
                    comma_ranks(others), others.size() == 1 ? "has" : "have", what, job.rank()),
        "start all processes on the same files and with the same program");
  }
  throw usage_error("the processes do not run the same program",
                    "start all processes on the same files and with the same program");
}

}  // namespace halfscope
