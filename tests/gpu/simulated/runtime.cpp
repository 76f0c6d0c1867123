// SPDX-License-Identifier: MIT
// The functions of the CUDA runtime.
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "tests/gpu/simulated/state.h"

namespace halfscope::simulated {
namespace {

constexpr size_t kUnit = 256;
constexpr unsigned char kFresh = 0xff, kFence = 0xa5;  // 0xff...: NaN in every format but e4m3

size_t pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }
size_t units(size_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }

/// Checks that the bytes after an allocation, up to the page's end, are unchanged.
void check_fence(std::byte* begin, size_t bytes) {
  const auto kept = [](std::byte b) { return b == std::byte{kFence}; };
  if (!std::all_of(begin + units(bytes), begin + pages(bytes), kept)) {
    violated("a kernel wrote behind its memory");
  }
}

/// As the runtime does before it frees memory.
void wait_for_all() {
  for (CUstream_st* stream : device().streams) {
    run_all(*stream);
    join(device().host, stream->clock);
  }
}

/// Pinning takes time, so steps that pin take longer.
void pin(std::byte* memory, size_t bytes) {
  device().pinned[memory] = bytes;
  ++device().transfers.pinned;
  device().clock += 1 + static_cast<int64_t>(bytes >> 20);
}

Access read_of(const void* memory) { return {allocation_of(memory), false}; }
Access write_to(const void* memory) { return {allocation_of(memory), true}; }

thread_local int current_index = 0;

bool is_pinned(const void* host, size_t bytes) {
  const auto* const at = static_cast<const std::byte*>(host);
  auto after = device().pinned.upper_bound(at);
  return after != device().pinned.begin() &&
         at + bytes <= std::prev(after)->first + std::prev(after)->second;
}

}  // namespace
}  // namespace halfscope::simulated

using namespace halfscope::simulated;  // NOLINT: the runtime's functions are in no namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  ALIVE();
  *count = device().count;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* index) {
  ALIVE();
  *index = current_index;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int index) {
  ALIVE();
  if (index < 0 || index >= device().count) return said(cudaErrorInvalidDevice);
  current_index = index;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int index) {
  ALIVE();
  if (index < 0 || index >= device().count) return said(cudaErrorInvalidDevice);
  *properties = {};
  properties->pciBusID = index;
  std::strcpy(properties->name, "simulated device");
  properties->major = 9;
  properties->totalGlobalMem = static_cast<size_t>(device().memory);
  properties->multiProcessorCount = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  ALIVE();
  if (attribute != cudaDevAttrComputeCapabilityMajor &&
      attribute != cudaDevAttrComputeCapabilityMinor) {
    return said(cudaErrorInvalidValue);
  }
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? 9 : 0;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    default:
      return "an error of the simulated device";
  }
}
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
    default:
      return "cudaErrorSimulated";
  }
}
cudaError_t cudaGetLastError() {
  const std::lock_guard<std::recursive_mutex> lock(device().mutex);
  return std::exchange(device().last, device().lost);
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  ALIVE();
  NOT_IN_CAPTURE();
  *memory = nullptr;
  if (bytes == 0) return cudaSuccess;
  const size_t all = pages(bytes);
  if (device().taken + static_cast<int64_t>(all) > device().memory ||
      device().used + all > kArena) {
    return said(cudaErrorMemoryAllocation);
  }
  device().taken += static_cast<int64_t>(all);
  std::byte* begin = nullptr;
  for (const auto& [place, size] : device().released) {
    if (size != all) continue;
    begin = place;
    break;
  }
  if (begin != nullptr) {
    device().released.erase(begin);
  } else {
    begin = device().arena + device().used;
    device().used += all + kPage;  // the page after an allocation belongs to nobody
  }
  if (device().open > 0) violated("memory is taken by what runs on the device");
  const Open open(begin, all);
  constexpr size_t kMostFilled = size_t{256} << 10;  // larger ones may never be touched
  std::memset(begin, kFresh, std::min(bytes, kMostFilled));
  std::memset(begin + units(bytes), kFence, all - units(bytes));
  device().live[begin] = {bytes, ++device().allocations};
  device().uses[device().allocations];
  *memory = begin;
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  ALIVE();
  if (memory == nullptr) return cudaSuccess;
  NOT_IN_CAPTURE();
  wait_for_all();
  const auto found = device().live.find(static_cast<std::byte*>(memory));
  if (found == device().live.end()) return said(cudaErrorInvalidValue);
  const size_t all = pages(found->second.bytes);
  {
    const Open open(found->first, all);
    check_fence(found->first, found->second.bytes);
  }
  if (madvise(found->first, all, MADV_DONTNEED) != 0) violated("madvise failed");
  device().taken -= static_cast<int64_t>(all);
  device().released[found->first] = all;
  device().uses.erase(found->second.number);
  device().live.erase(found);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  ALIVE();
  *total = static_cast<size_t>(device().memory);
  *free = static_cast<size_t>(std::max<int64_t>(device().memory - device().taken, 0));
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  ALIVE();
  NOT_IN_CAPTURE();
  auto* const place = static_cast<std::byte*>(std::malloc(bytes));
  pin(place, bytes);
  *memory = place;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  ALIVE();
  if (memory == nullptr) return cudaSuccess;
  NOT_IN_CAPTURE();
  wait_for_all();
  if (device().pinned.erase(static_cast<std::byte*>(memory)) == 0) {
    return said(cudaErrorInvalidValue);
  }
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned) {
  ALIVE();
  NOT_IN_CAPTURE();
  pin(static_cast<std::byte*>(memory), bytes);
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* memory) {
  ALIVE();
  NOT_IN_CAPTURE();
  wait_for_all();
  return said(device().pinned.erase(static_cast<std::byte*>(memory)) == 0 ? cudaErrorInvalidValue
                                                                          : cudaSuccess);
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  ALIVE();
  if (!on_device(memory, bytes)) violated("memset of what is no memory of the device");
  return said(put(stream, {[=] { std::memset(memory, value, bytes); }, {write_to(memory)}}));
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  ALIVE();
  const auto copy = [=] { std::memcpy(to, from, bytes); };
  if (kind == cudaMemcpyDeviceToDevice) {
    if (!on_device(to, bytes) || !on_device(from, bytes)) {
      violated("a copy on the device of what is no memory of it");
    }
    return said(put(stream, {copy, {read_of(from), write_to(to)}}));
  }
  const bool up = kind == cudaMemcpyHostToDevice;
  if (!up && kind != cudaMemcpyDeviceToHost) violated("a copy of a kind that is not simulated");
  ++(up ? device().transfers.to_device : device().transfers.to_host);
  const void* const host = up ? from : to;
  if (!on_device(up ? to : from, bytes)) violated("a copy of what is no memory of the device");
  if (on_device(host, 0)) violated("a copy that takes the device's memory for the host's");
  const Access access = up ? write_to(to) : read_of(from);
  if (is_pinned(host, bytes)) {
    return said(put(stream, {copy, {access}, up ? from : nullptr, bytes}));
  }
  NOT_IN_CAPTURE();
  if (up) {  // the runtime has read it when it returns
    const auto* const begin = static_cast<const std::byte*>(from);
    const auto kept = [to, data = std::vector<std::byte>(begin, begin + bytes)] {
      std::memcpy(to, data.data(), data.size());
    };
    return said(put(stream, {kept, {access}}));
  }
  return said(put(stream, {copy, {access}}));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  ALIVE();
  *stream = new CUstream_st;
  device().streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard<std::recursive_mutex> lock(device().mutex);
  if (device().streams.erase(stream) == 0) violated("a stream ends twice");
  if (device().lost == cudaSuccess) run_all(*stream);
  // All its work is done, and a later stream may get the same address.
  device().host.erase(stream);
  for (CUstream_st* each : device().streams) each->clock.erase(stream);
  for (CUevent_st* each : device().events) each->clock.erase(stream);
  for (auto& [allocation, uses] : device().uses) uses.erase(stream);
  delete stream;
  return device().lost;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  ALIVE();
  NOT_IN_CAPTURE();
  if (device().streams.count(stream) == 0) violated("a stream that is gone is waited for");
  ++device().transfers.waits;
  run_all(*stream);
  join(device().host, stream->clock);
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  ALIVE();
  NOT_IN_CAPTURE();
  if (device().events.count(event) == 0) violated("an event that is gone is waited for");
  join(stream->clock, event->clock);
  return said(put(stream, {[event, until = event->recorded] { run_to(*event, until); }}));
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  ALIVE();
  *event = new CUevent_st;
  device().events.insert(*event);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::lock_guard<std::recursive_mutex> lock(device().mutex);
  if (device().events.erase(event) == 0) violated("an event ends twice");
  delete event;
  return device().lost;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  ALIVE();
  NOT_IN_CAPTURE();
  if (device().events.count(event) == 0) violated("an event that is gone is recorded");
  event->stream = stream;
  const cudaError_t error = put(stream, {[event, number = ++event->recorded] {
                                  event->reached = number;
                                  event->time = device().clock;
                                }});
  event->clock = stream->clock;
  return said(error);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  ALIVE();
  NOT_IN_CAPTURE();
  if (device().events.count(event) == 0) violated("an event that is gone is waited for");
  if (event->recorded > 0) ++device().transfers.waits;
  run_to(*event, event->recorded);
  join(device().host, event->clock);
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  ALIVE();
  if (begin->recorded == 0 || end->recorded == 0) return said(cudaErrorInvalidResourceHandle);
  if (begin->reached < begin->recorded || end->reached < end->recorded) {
    return said(cudaErrorNotReady);
  }
  *ms = static_cast<float>(end->time - begin->time);
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  ALIVE();
  if (mode != cudaStreamCaptureModeThreadLocal) violated("a capture that restricts other threads");
  if (stream->capturing) return said(cudaErrorIllegalState);
  stream->captured.clear();
  stream->capturing = true;
  stream->capturer = std::this_thread::get_id();
  stream->invalid = false;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  ALIVE();
  *graph = nullptr;
  if (!stream->capturing) return said(cudaErrorIllegalState);
  stream->capturing = false;
  if (stream->invalid || device().refused == InCapture::end) {
    return said(cudaErrorStreamCaptureInvalidated);
  }
  *graph = new CUgraph_st{std::move(stream->captured)};
  ++device().graphs;
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  ALIVE();
  if (nodes != nullptr) violated("the nodes of a graph are not simulated, only their number");
  *count = graph->work.size();
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* ready, cudaGraph_t graph, unsigned long long) {
  ALIVE();
  if (device().refused == InCapture::instantiate) return said(cudaErrorMemoryAllocation);
  *ready = new CUgraphExec_st{graph->work};
  ++device().graphs;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  --device().graphs;
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  --device().graphs;
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  ALIVE();
  if (device().until_lost-- <= 0) {
    device().lost = cudaErrorLaunchFailure;
    return said(device().lost);
  }
  ++device().launches.graphs;
  for (const Work& each : graph->work) static_cast<void>(put(stream, each));
  return cudaSuccess;
}

}  // extern "C"
