// SPDX-License-Identifier: MIT
// posix_spawn with one pipe, or one file, for both outputs, read without waiting; POSIX.1-2017.
#include "gui/app/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/error.h"

extern char** environ;

namespace halfscope::gui {
namespace {

constexpr size_t kMostOutput = size_t{1} << 20;
constexpr int kMostWaits = 600;  ///< tenths of a second until what was interrupted is killed

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& words, const std::string& log) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  std::array<int, 2> ends{-1, -1};
  if (log.empty()) {
    if (pipe2(ends.data(), O_CLOEXEC) != 0) {
      throw Error(std::string("cannot start a program: ") + std::strerror(errno));
    }
  } else {
    ends[1] = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
    ends[0] = open(log.c_str(), O_RDONLY | O_CLOEXEC);
    if (ends[0] < 0 || ends[1] < 0) {
      const std::string why = std::strerror(errno);
      for (const int end : ends) {
        if (end >= 0) close(end);
      }
      throw Error("cannot write '" + log + "': " + why);
    }
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  const int failure =
      posix_spawnp(&pid_, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  pipe_ = ends[0];
  if (failure != 0) {
    close(pipe_);
    pid_ = -1;
    throw Error("cannot start '" + words[0] + "': " + std::strerror(failure),
                "build `halfscope` next to the viewer, or add its folder to PATH");
  }
  fcntl(pipe_, F_SETFL, O_NONBLOCK);
}

ChildProcess::~ChildProcess() {
  interrupt();
  if (running()) {
    int status = 0;
    // It finishes the step it is in; what it has written is whole.
    pid_t ended = 0;
    for (int waits = 0; waits < kMostWaits && ended == 0; ++waits) {
      ended = waitpid(pid_, &status, WNOHANG);
      if (ended == 0) usleep(100'000);
    }
    if (ended == 0) {
      kill();
      waitpid(pid_, &status, 0);
    }
  }
  if (pipe_ >= 0) close(pipe_);
}

void ChildProcess::read_pipe() {
  std::array<char, 4096> buffer{};
  ssize_t got = 0;
  while ((got = read(pipe_, buffer.data(), buffer.size())) > 0) {
    output_.append(buffer.data(), static_cast<size_t>(got));
  }
  if (output_.size() > kMostOutput) output_.erase(0, output_.size() - kMostOutput / 2);
}

void ChildProcess::poll() {
  if (!running()) return;
  int status = 0;
  const pid_t ended = waitpid(pid_, &status, WNOHANG);
  read_pipe();
  if (ended != pid_) return;
  exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  pid_ = -1;
}

void ChildProcess::interrupt() noexcept {
  if (running()) ::kill(pid_, SIGINT);
}

void ChildProcess::kill() noexcept {
  if (running()) ::kill(pid_, SIGKILL);
}

std::string program_beside(const std::string& name) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    const std::filesystem::path beside = self.parent_path() / name;
    if (std::filesystem::is_regular_file(beside, error)) return beside.string();
  }
  return name;
}

}  // namespace halfscope::gui
