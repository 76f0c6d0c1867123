// SPDX-License-Identifier: MIT
// posix_spawn with one pipe for both outputs, read without waiting; POSIX.1-2017.
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

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw Error(std::string("cannot start a program: ") + std::strerror(errno));
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
    throw Error("cannot start " + words[0] + ": " + std::strerror(failure),
                "build `halfscope` beside the viewer, or put it in PATH");
  }
  fcntl(pipe_, F_SETFL, O_NONBLOCK);
}

ChildProcess::~ChildProcess() {
  interrupt();
  if (running()) {
    int status = 0;
    // It finishes the step it is in; what it has written is whole.
    for (int waits = 0; waits < 10 && waitpid(pid_, &status, WNOHANG) == 0; ++waits)
      usleep(100'000);
    kill(pid_, SIGKILL);
    waitpid(pid_, &status, 0);
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
  if (running()) kill(pid_, SIGINT);
}

std::string halfscope_program() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    const std::filesystem::path beside = self.parent_path() / "halfscope";
    if (std::filesystem::is_regular_file(beside, error)) return beside.string();
  }
  return "halfscope";
}

}  // namespace halfscope::gui
