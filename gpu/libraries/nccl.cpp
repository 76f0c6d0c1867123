// SPDX-License-Identifier: MIT
#include "gpu/libraries/nccl.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>

#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "core/error.h"
#include "gpu/libraries/cuda_error.cuh"
#include "gpu/libraries/shared_library.h"

namespace halfscope::gpu {
namespace {

struct Functions {
  SharedLibrary library{"libnccl.so." + std::to_string(NCCL_MAJOR)};
  decltype(ncclGetVersion)* version = nullptr;
  decltype(ncclGetUniqueId)* unique_id = nullptr;
  decltype(ncclCommInitRank)* init = nullptr;
  decltype(ncclCommDestroy)* destroy = nullptr;
  decltype(ncclCommAbort)* abort = nullptr;
  decltype(ncclCommGetAsyncError)* async_error = nullptr;
  decltype(ncclGetErrorString)* error_string = nullptr;
  decltype(ncclGroupStart)* group_start = nullptr;
  decltype(ncclGroupEnd)* group_end = nullptr;
  decltype(ncclSend)* send = nullptr;
  decltype(ncclRecv)* receive = nullptr;

  Functions() {
    library.find(version, "ncclGetVersion");
    library.find(unique_id, "ncclGetUniqueId");
    library.find(init, "ncclCommInitRank");
    library.find(destroy, "ncclCommDestroy");
    library.find(abort, "ncclCommAbort");
    library.find(async_error, "ncclCommGetAsyncError");
    library.find(error_string, "ncclGetErrorString");
    library.find(group_start, "ncclGroupStart");
    library.find(group_end, "ncclGroupEnd");
    library.find(send, "ncclSend");
    library.find(receive, "ncclRecv");
  }
};

const Functions& nccl() {
  static const Functions all;
  return all;
}

void check_nccl(ncclResult_t result, const char* call) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  throw Error(fmt::format("NCCL {} failed: {}", call, nccl().error_string(result)),
              "set NCCL_DEBUG=WARN to see why, or HALFSCOPE_NCCL=off to send through the host");
}

struct Communicator {
  ncclComm_t comm = nullptr;

  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator() {
    if (comm == nullptr) return;
    // After an error the other ranks may never come here.
    static_cast<void>(std::uncaught_exceptions() > 0 ? nccl().abort(comm) : nccl().destroy(comm));
  }
};

/// The connections of this process, by exchange.
struct Connections {
  std::mutex mutex;
  std::map<const Exchange*, std::weak_ptr<Communicator>> all;
};
Connections& connections() {
  static Connections of_process;
  return of_process;
}

class NcclLink final : public DeviceLink {
 public:
  NcclLink(std::shared_ptr<Communicator> communicator, cudaStream_t stream)
      : communicator_(std::move(communicator)), stream_(stream) {}

  void transfer(std::span<const Mail> sends, std::span<const Mail> receives,
                std::byte* mailbox) override {
    const ncclComm_t comm = communicator_->comm;
    ncclResult_t earlier = ncclSuccess;
    check_nccl(nccl().async_error(comm, &earlier), "query");
    check_nccl(earlier, "transfer");
    check_nccl(nccl().group_start(), "group");
    ncclResult_t result = ncclSuccess;
    const auto put = [&](const Mail& mail, auto function) {
      if (result != ncclSuccess) return;
      result = function(mailbox + mail.at, static_cast<size_t>(mail.bytes), ncclUint8, mail.other,
                        comm, stream_);
    };
    for (const Mail& mail : receives) put(mail, nccl().receive);
    for (const Mail& mail : sends) put(mail, nccl().send);
    const ncclResult_t end = nccl().group_end();  // also after an error, or the group stays open
    check_nccl(result, "transfer");
    check_nccl(end, "transfer");
  }

 private:
  std::shared_ptr<Communicator> communicator_;
  cudaStream_t stream_;
};

/// Device memory and a stream for nccl_echo().
struct Scratchpad {
  std::byte* memory = nullptr;
  cudaStream_t stream = nullptr;

  explicit Scratchpad(size_t bytes) {
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    void* place = nullptr;
    check_cuda(cudaMalloc(&place, bytes), "allocation", bytes);
    memory = static_cast<std::byte*>(place);
  }
  Scratchpad(const Scratchpad&) = delete;
  Scratchpad& operator=(const Scratchpad&) = delete;
  ~Scratchpad() {
    static_cast<void>(cudaStreamSynchronize(stream));
    static_cast<void>(cudaFree(memory));
    static_cast<void>(cudaStreamDestroy(stream));
  }
};

/// A set-up in a thread that may outlive the wait for it.
struct SetUp {
  ncclComm_t comm = nullptr;
  ncclResult_t result = ncclInProgress;
  cudaError_t device = cudaSuccess;
  std::mutex mutex{};
  std::condition_variable done{};
};

/// Connects one rank. Throws Error, also after `limit`: some mistakes in a network or a firewall
/// make NCCL wait forever. Its call cannot be ended, so it stays in a thread. A communicator that
/// it makes later is not destroyed, because that would wait for the other ranks.
std::shared_ptr<Communicator> connected(int rank, int ranks, const ncclUniqueId& id,
                                        std::chrono::milliseconds limit) {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "device");
  const auto set_up = std::make_shared<SetUp>();
  std::thread([set_up, device, rank, ranks, id, init = nccl().init] {
    ncclComm_t comm = nullptr;
    const cudaError_t chosen = cudaSetDevice(device);  // a new thread begins with device 0
    const ncclResult_t result =
        chosen == cudaSuccess ? init(&comm, ranks, id, rank) : ncclUnhandledCudaError;
    const std::lock_guard<std::mutex> lock(set_up->mutex);
    set_up->comm = comm;
    set_up->device = chosen;
    set_up->result = result;
    set_up->done.notify_all();
  }).detach();
  std::unique_lock<std::mutex> lock(set_up->mutex);
  if (!set_up->done.wait_for(lock, limit, [&] { return set_up->result != ncclInProgress; })) {
    throw Error(fmt::format("NCCL did not connect the ranks within {} s",
                            std::chrono::duration<double>(limit).count()),
                "set NCCL_DEBUG=INFO to see where it waits");
  }
  check_cuda(set_up->device, "device");
  auto made = std::make_shared<Communicator>();
  made->comm = set_up->comm;
  check_nccl(set_up->result, "set-up");
  return made;
}

}  // namespace

int64_t nccl_version() {
  int version = 0;
  if (!nccl().library.missing().empty() || nccl().version(&version) != ncclSuccess) return 0;
  return version;
}

std::shared_ptr<void> connect_nccl(Exchange& exchange, std::string& why,
                                   std::chrono::milliseconds limit) {
  std::string problem = nccl().library.missing();
  ncclUniqueId id{};
  std::shared_ptr<Communicator> made;
  const auto attempt = [&](const auto& work) {
    if (!problem.empty()) return;
    try {
      work();
    } catch (const Error& error) {
      problem = error.what();
    }
  };
  const auto fails = [&] {
    const std::vector<std::string> all = all_gather_texts(exchange, problem);
    for (const std::string& each : all) {
      if (why.empty()) why = each;
    }
    return !why.empty();
  };
  if (exchange.rank() == 0) attempt([&] { check_nccl(nccl().unique_id(&id), "set-up"); });
  if (fails()) return nullptr;
  broadcast(exchange, 0, std::span(&id, 1));
  attempt([&] { made = connected(exchange.rank(), exchange.size(), id, limit); });
  if (fails()) return nullptr;
  Connections& all = connections();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.all[&exchange] = made;
  return made;
}

std::unique_ptr<DeviceLink> nccl_link(const Exchange& exchange, StreamPointer stream) {
  Connections& all = connections();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.all.find(&exchange);
  std::shared_ptr<Communicator> communicator =
      found == all.all.end() ? nullptr : found->second.lock();
  if (communicator == nullptr) return nullptr;
  return std::make_unique<NcclLink>(std::move(communicator), static_cast<cudaStream_t>(stream));
}

std::optional<std::vector<std::byte>> nccl_echo(std::span<const std::byte> bytes) {
  if (nccl_version() == 0) return std::nullopt;
  const auto n = static_cast<int64_t>(bytes.size());
  ncclUniqueId id{};
  check_nccl(nccl().unique_id(&id), "set-up");
  const Scratchpad pad(2 * bytes.size());
  check_cuda(
      cudaMemcpyAsync(pad.memory, bytes.data(), bytes.size(), cudaMemcpyHostToDevice, pad.stream),
      "copy to the device");
  NcclLink link(connected(0, 1, id, kNcclLimit), pad.stream);
  const Mail out{.other = 0, .at = 0, .bytes = n}, in{.other = 0, .at = n, .bytes = n};
  link.transfer({&out, 1}, {&in, 1}, pad.memory);
  std::vector<std::byte> arrived(bytes.size());
  check_cuda(cudaMemcpyAsync(arrived.data(), pad.memory + n, bytes.size(), cudaMemcpyDeviceToHost,
                             pad.stream),
             "copy from the device");
  check_cuda(cudaStreamSynchronize(pad.stream), "copy from the device");
  return arrived;
}

}  // namespace halfscope::gpu
