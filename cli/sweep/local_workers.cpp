// SPDX-License-Identifier: MIT
#include "cli/sweep/local_workers.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace halfscope {
namespace {

constexpr char kEnd = '\0';  // of a message
/// A process that ends this often in a row before it is ready will not get better.
constexpr int kMostFailedStarts = 5;

Error cannot_start(int number) {
  return Error("cannot start a worker: " + std::generic_category().message(number),
               "use fewer --workers");
}

/// Returns false if the other side is gone.
bool send_all(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

/// Appends what has arrived. Returns false at the end.
bool receive_some(int socket, std::string& received) {
  std::array<char, 1U << 16U> part{};
  while (true) {
    const ssize_t got = recv(socket, part.data(), part.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    received.append(part.data(), static_cast<size_t>(got));
    return true;
  }
}

/// Takes the first whole message out of what has arrived.
std::optional<std::string> take_message(std::string& received) {
  const size_t end = received.find(kEnd);
  if (end == received.npos) return std::nullopt;
  std::string message = received.substr(0, end);
  received.erase(0, end + 1);
  return message;
}

/// Returns how a process ended: "signal 9 (Killed)". Waits until it has.
std::string reap(pid_t process) {
  int status = 0;
  while (waitpid(process, &status, 0) < 0) {
    if (errno != EINTR) return "unknown";
  }
  if (!WIFSIGNALED(status)) return fmt::format("exit code {}", WEXITSTATUS(status));
  return fmt::format("signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
}

/// Runs in the child: only calls that are safe between fork and exec.
[[noreturn]] void become_worker(int socket, pid_t parent, const char* program,
                                char* const* arguments) {
  // Ctrl-C goes to all processes of a terminal, but the parent decides what it means. It ends the
  // workers when it ends, however that happens.
  for (const int each : {SIGINT, SIGTERM, SIGHUP}) signal(each, SIG_IGN);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  if (dup2(socket, STDIN_FILENO) >= 0) execv(program, arguments);
  _exit(127);
}

}  // namespace

LocalWorkers::LocalWorkers(int count, std::string program, std::vector<std::string> arguments)
    : program_(std::move(program)),
      arguments_(std::move(arguments)),
      workers_(static_cast<size_t>(count)) {
  for (Process& worker : workers_) start(worker);
}

LocalWorkers::~LocalWorkers() {
  for (int worker = 0; worker < size(); ++worker) stop(worker);
  for (const Process& worker : workers_) {
    if (worker.id <= 0) continue;
    if (!worker.task.empty()) kill(worker.id, SIGKILL);
    reap(worker.id);
  }
}

void LocalWorkers::start(Process& worker) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw cannot_start(errno);
  }
  std::vector<char*> words{program_.data()};
  for (std::string& argument : arguments_) words.push_back(argument.data());
  words.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) become_worker(ends[1], parent, program_.c_str(), words.data());
  const int number = errno;
  close(ends[1]);
  if (child < 0) {
    close(ends[0]);
    throw cannot_start(number);
  }
  worker.id = child;
  worker.socket = ends[0];
  worker.received.clear();
  worker.ready = false;
}

std::string LocalWorkers::name(int worker) const { return fmt::format("local {}", worker + 1); }

void LocalWorkers::give(int worker, const std::string& message) {
  Process& process = workers_.at(static_cast<size_t>(worker));
  process.task = message + kEnd;
  // If the worker has just died, wait() says so.
  static_cast<void>(send_all(process.socket, process.task));
}

void LocalWorkers::start_again(int number, const std::string& how) {
  Process& worker = workers_[static_cast<size_t>(number)];
  if (++worker.failed_starts >= kMostFailedStarts) {
    throw Error(fmt::format("worker {} did not start in {} attempts: {}", number + 1,
                            worker.failed_starts, how),
                "use fewer --workers if memory is short");
  }
  start(worker);
  if (!worker.task.empty()) static_cast<void>(send_all(worker.socket, worker.task));
}

std::optional<WorkerEvent> LocalWorkers::read_from(int number) {
  Process& worker = workers_[static_cast<size_t>(number)];
  if (receive_some(worker.socket, worker.received)) {
    std::optional<std::string> message = take_message(worker.received);
    if (message && !worker.ready) {
      worker.ready = true;
      worker.failed_starts = 0;
      message = take_message(worker.received);
    }
    if (!message) return std::nullopt;
    worker.task.clear();
    return WorkerEvent{number, WorkerEvent::Kind::result, std::move(*message)};
  }
  close(std::exchange(worker.socket, -1));
  const std::string how = reap(std::exchange(worker.id, -1));
  if (!worker.ready) {
    start_again(number, how);
    return std::nullopt;
  }
  worker.task.clear();
  start(worker);
  return WorkerEvent{number, WorkerEvent::Kind::died, how};
}

std::optional<WorkerEvent> LocalWorkers::wait(std::chrono::milliseconds longest) {
  std::vector<pollfd> sockets;
  for (const Process& worker : workers_) sockets.push_back({worker.socket, POLLIN, 0});
  const int ready = poll(sockets.data(), sockets.size(), static_cast<int>(longest.count()));
  if (ready <= 0) return std::nullopt;  // time is up, or a signal
  for (size_t i = 0; i < sockets.size(); ++i) {
    if (sockets[i].revents != 0) return read_from(static_cast<int>(i));
  }
  return std::nullopt;
}

void LocalWorkers::stop(int number) {
  Process& worker = workers_.at(static_cast<size_t>(number));
  if (worker.socket < 0) return;
  close(std::exchange(worker.socket, -1));
}

int serve_messages(TrialServer& server) {
  std::string received;
  // First of all: it is ready.
  if (!send_all(STDIN_FILENO, std::string_view(&kEnd, 1))) return 0;
  while (receive_some(STDIN_FILENO, received)) {
    while (const std::optional<std::string> message = take_message(received)) {
      if (!send_all(STDIN_FILENO, server.answer(*message) + kEnd)) return 0;
    }
  }
  return 0;
}

}  // namespace halfscope
