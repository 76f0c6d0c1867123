// SPDX-License-Identifier: MIT
// The functions of NCCL that gpu/ uses. Ranks may be threads or processes of one computer, which
// send through sockets. A group of messages waits for earlier work on its stream, sends, waits for
// the others' messages, and puts what arrived on the stream.
#include <nccl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/gpu/simulated/state.h"

using namespace halfscope::simulated;  // NOLINT: the library's functions are in no namespace

namespace {

/// A message in a group.
struct Message {
  std::byte* memory;
  size_t bytes;
  int other;
  bool sends;
  ncclComm_t comm;
  cudaStream_t stream;
};

struct Group {
  int depth = 0;
  std::vector<Message> messages;
};
thread_local Group group;

/// Bytes that are under way.
struct Flow {
  std::vector<std::byte> bytes;
  size_t done = 0;
  int socket = -1;
  bool sends = false;
};

sockaddr_un address_of(const ncclUniqueId& id, int rank, socklen_t& size) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = std::string(id.internal) + "-" + std::to_string(rank);
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // the first byte 0: not a file
  size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

/// Sends or receives what is possible without waiting. Returns false if the other rank is gone.
bool move_on(Flow& flow) {
  while (flow.done < flow.bytes.size()) {
    std::byte* const at = flow.bytes.data() + flow.done;
    const size_t rest = flow.bytes.size() - flow.done;
    const ssize_t moved = flow.sends ? send(flow.socket, at, rest, MSG_DONTWAIT | MSG_NOSIGNAL)
                                     : recv(flow.socket, at, rest, MSG_DONTWAIT);
    if (moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (moved <= 0) return false;
    flow.done += static_cast<size_t>(moved);
  }
  return true;
}

/// Runs all flows. Two flows in the same direction of a socket run one after the other.
bool run(std::vector<Flow>& flows) {
  for (;;) {
    std::vector<pollfd> waits;
    for (size_t i = 0; i < flows.size(); ++i) {
      Flow& flow = flows[i];
      const bool first = std::none_of(
          flows.begin(), flows.begin() + static_cast<std::ptrdiff_t>(i), [&](const Flow& other) {
            return other.socket == flow.socket && other.sends == flow.sends &&
                   other.done < other.bytes.size();
          });
      if (!first || flow.done == flow.bytes.size()) continue;
      if (!move_on(flow)) return false;
      if (flow.done == flow.bytes.size()) continue;
      waits.push_back({flow.socket, static_cast<short>(flow.sends ? POLLOUT : POLLIN), 0});
    }
    const bool done = std::all_of(flows.begin(), flows.end(),
                                  [](const Flow& flow) { return flow.done == flow.bytes.size(); });
    if (done) return true;
    constexpr int kMilliseconds = 10;
    poll(waits.data(), waits.size(), kMilliseconds);
  }
}

}  // namespace

struct ncclComm {
  int rank = 0, ranks = 1;
  std::vector<int> sockets;  ///< by rank
  ~ncclComm() {
    for (const int each : sockets) {
      if (each >= 0) close(each);
    }
  }
};

namespace {

/// Connects with every other rank: lower ones listen.
bool meet(ncclComm& comm, const ncclUniqueId& id) {
  socklen_t size = 0;
  const int own = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = address_of(id, comm.rank, size);
  if (bind(own, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(own, comm.ranks) != 0) {
    return false;
  }
  for (int other = 0; other < comm.rank; ++other) {
    const int out = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address = address_of(id, other, size);
    while (connect(out, reinterpret_cast<sockaddr*>(&address), size) != 0) {
      if (errno != ECONNREFUSED && errno != EAGAIN) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (write(out, &comm.rank, sizeof comm.rank) != sizeof comm.rank) return false;
    comm.sockets[static_cast<size_t>(other)] = out;
  }
  for (int other = comm.rank + 1; other < comm.ranks; ++other) {
    const int in = accept(own, nullptr, nullptr);
    int who = 0;
    if (in < 0 || read(in, &who, sizeof who) != sizeof who) return false;
    comm.sockets[static_cast<size_t>(who)] = in;
  }
  close(own);
  return true;
}

/// Two ranks may not have the same device.
bool differ(ncclComm& comm) {
  int device = 0;
  cudaGetDevice(&device);
  std::vector<Flow> flows;
  for (const int each : comm.sockets) {
    if (each < 0) continue;
    Flow out{std::vector<std::byte>(sizeof device), 0, each, true};
    std::memcpy(out.bytes.data(), &device, sizeof device);
    flows.push_back(out);
    flows.push_back({std::vector<std::byte>(sizeof device), 0, each, false});
  }
  if (!run(flows)) return false;
  return std::all_of(flows.begin(), flows.end(), [&](const Flow& flow) {
    return flow.sends || std::memcmp(flow.bytes.data(), &device, sizeof device) != 0;
  });
}

/// The bytes of device memory after all earlier work on the stream.
std::vector<std::byte> fetched(const Message& message) {
  const std::lock_guard<std::recursive_mutex> lock(device().mutex);
  run_all(*message.stream);
  const Open open;
  return {message.memory, message.memory + message.bytes};
}

ncclResult_t run_group(const std::vector<Message>& messages) {
  std::vector<Flow> flows;
  std::vector<const Message*> of_flow;
  std::deque<std::vector<std::byte>> to_itself;
  for (const Message& message : messages) {
    {
      const std::lock_guard<std::recursive_mutex> lock(device().mutex);
      if (message.stream == nullptr) violated("NCCL on the default stream");
      if (message.stream->capturing) violated("a message of NCCL in a capture");
      if (!on_device(message.memory, message.bytes)) violated("NCCL with memory of the host");
    }
    if (message.other == message.comm->rank) {
      if (message.sends) to_itself.push_back(fetched(message));
      continue;
    }
    const int socket = message.comm->sockets[static_cast<size_t>(message.other)];
    flows.push_back({message.sends ? fetched(message) : std::vector<std::byte>(message.bytes), 0,
                     socket, message.sends});
    of_flow.push_back(&message);
  }
  if (!run(flows)) return ncclRemoteError;
  const auto deliver = [](const Message& message, std::vector<std::byte> bytes) {
    if (bytes.size() != message.bytes) violated("NCCL sends and receives different sizes");
    return enqueue(message.stream,
                   [to = message.memory, bytes = std::move(bytes)] {
                     std::memcpy(to, bytes.data(), bytes.size());
                   },
                   {message.memory});
  };
  for (size_t i = 0; i < flows.size(); ++i) {
    if (flows[i].sends) continue;
    if (deliver(*of_flow[i], std::move(flows[i].bytes)) != cudaSuccess) {
      return ncclUnhandledCudaError;
    }
  }
  for (const Message& message : messages) {
    if (message.other != message.comm->rank || message.sends) continue;
    if (to_itself.empty()) violated("a rank waits for a message that it does not send");
    if (deliver(message, std::move(to_itself.front())) != cudaSuccess) {
      return ncclUnhandledCudaError;
    }
    to_itself.pop_front();
  }
  return ncclSuccess;
}

ncclResult_t put_message(const Message& message) {
  if (message.comm == nullptr || message.other < 0 || message.other >= message.comm->ranks) {
    return ncclInvalidArgument;
  }
  group.messages.push_back(message);
  return group.depth > 0 ? ncclSuccess : run_group(std::exchange(group.messages, {}));
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclInvalidUsage  ? "invalid usage"
         : result == ncclRemoteError ? "remote process exited or there was a network error"
                                     : "an error of the simulated library";
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> count{0};
  const std::string name = "halfscope-nccl-" + std::to_string(getpid()) + "-" +
                           std::to_string(std::random_device()()) + "-" + std::to_string(++count);
  *id = {};
  std::memcpy(id->internal, name.data(), name.size());
  return ncclSuccess;
}
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  auto made = std::make_unique<ncclComm>();
  made->rank = rank;
  made->ranks = ranks;
  made->sockets.assign(static_cast<size_t>(ranks), -1);
  while (rank + 1 == ranks && device().nccl_hangs) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (!meet(*made, id)) return ncclSystemError;
  if (!differ(*made)) return ncclInvalidUsage;
  *comm = made.release();
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) { return ncclCommDestroy(comm); }
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* error) {
  *error = ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (group.depth == 0) return ncclInvalidUsage;
  return --group.depth > 0 ? ncclSuccess : run_group(std::exchange(group.messages, {}));
}
ncclResult_t ncclSend(const void* memory, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  if (type != ncclUint8) violated("only bytes are simulated");
  auto* const bytes = static_cast<std::byte*>(const_cast<void*>(memory));
  return put_message({bytes, count, peer, true, comm, stream});
}
ncclResult_t ncclRecv(void* memory, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  if (type != ncclUint8) violated("only bytes are simulated");
  return put_message({static_cast<std::byte*>(memory), count, peer, false, comm, stream});
}

}  // extern "C"
