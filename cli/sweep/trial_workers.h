// SPDX-License-Identifier: MIT
// The processes that work for a sweep, as the process that deals the trials sees them. Local
// processes and MPI ranks are the same to it. A message is a text of any length without zero bytes;
// a worker answers every message with one, in order.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace halfscope {

struct WorkerEvent {
  enum class Kind {
    result,  ///< the answer to a message
    died,    ///< the worker ended before it answered; another one takes its place
  };
  int worker = 0;
  Kind kind = Kind::result;
  std::string message{};  ///< the answer, or how the worker ended: "signal 9 (Killed)"
};

class TrialWorkers {
 public:
  virtual ~TrialWorkers() = default;
  /// Number of workers, which are counted from 0.
  virtual int size() const = 0;
  /// Returns the worker's name for the study file: "local 2", "rank 3 on node7".
  virtual std::string name(int worker) const = 0;
  /// Sends a message to a worker that has answered all others.
  virtual void give(int worker, const std::string& message) = 0;
  /// Waits for the next event, for at most this long. Returns nothing if there was none, also if a
  /// signal arrived.
  virtual std::optional<WorkerEvent> wait(std::chrono::milliseconds longest) = 0;
  /// Tells a worker that nothing more comes. It ends.
  virtual void stop(int worker) = 0;
};

/// The work of a worker: returns the answer to a message. MPI ranks and local processes call it for
/// every message that they receive.
class TrialServer {
 public:
  virtual ~TrialServer() = default;
  virtual std::string answer(const std::string& message) = 0;
};

}  // namespace halfscope
