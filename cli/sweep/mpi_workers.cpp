// SPDX-License-Identifier: MIT
#include "cli/sweep/mpi_workers.h"

namespace halfscope {
namespace {

/// An empty message ends a worker.
constexpr const char* kStop = "";
constexpr std::chrono::seconds kLongestPatience{1};

}  // namespace

MpiWorkers::~MpiWorkers() {
  for (int worker = 0; worker < size(); ++worker) stop(worker);
  leave_together();
}

std::optional<WorkerEvent> MpiWorkers::wait(std::chrono::milliseconds longest) {
  std::optional<MpiJob::Mail> mail = job_.mail(longest);
  if (!mail) return std::nullopt;
  return WorkerEvent{mail->from, WorkerEvent::Kind::result, std::move(mail->text)};
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
