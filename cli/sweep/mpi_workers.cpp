// SPDX-License-Identifier: MIT
#include "cli/sweep/mpi_workers.h"

#include <algorithm>

namespace halfscope {
namespace {

/// An empty message ends a worker.
constexpr const char* kStop = "";
constexpr std::chrono::seconds kLongestPatience{1};

}  // namespace

MpiWorkers::~MpiWorkers() {
  // Whoever still sends an answer would wait for its receiver for ever.
  while (std::find(busy_.begin(), busy_.end(), true) != busy_.end()) wait(kLongestPatience);
  for (int worker = 0; worker < size(); ++worker) stop(worker);
  leave_together();
}

std::optional<WorkerEvent> MpiWorkers::wait(std::chrono::milliseconds longest) {
  std::optional<MpiJob::Mail> mail = job_.mail(longest);
  if (!mail) return std::nullopt;
  busy_[static_cast<size_t>(mail->from)] = false;
  return WorkerEvent{mail->from, WorkerEvent::Kind::result, std::move(mail->text)};
}

void MpiWorkers::give(int worker, const std::string& message) {
  busy_[static_cast<size_t>(worker)] = true;
  job_.post(worker, message);
}

void MpiWorkers::stop(int worker) {
  if (stopped_[static_cast<size_t>(worker)]) return;
  stopped_[static_cast<size_t>(worker)] = true;
  job_.post(worker, kStop);
}

void serve_ranks(MpiJob& job, TrialServer& server) {
  for (;;) {
    const std::optional<MpiJob::Mail> mail = job.mail(kLongestPatience);
    if (!mail) continue;
    if (mail->text == kStop) return;
    job.post(mail->from, server.answer(mail->text));
  }
}

}  // namespace halfscope
