// SPDX-License-Identifier: MIT
// The executor of a real device: one kernel template for each kind of body, and one stream for all
// launches. Results go to the host on a second stream, which waits for the launches that make them.
// Inputs come on a third one, which must not wait for those.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/host_device.h"
#include "gpu/engine/device_cores.h"
#include "gpu/engine/device_sort.cuh"
#include "gpu/engine/executor.h"
#include "gpu/engine/pinned_staging.cuh"
#include "gpu/libraries/cuda_error.cuh"

// The simulated device fills memory that starts with any bytes. A real one leaves it alone.
#if !defined(HS_LEAVE_UNSET)
#define HS_LEAVE_UNSET(shared, state)
#endif

namespace halfscope::gpu {

// `go`, if not null, points to a number on the device; 0 means that the launch does nothing. Bodies
// are read from the launch parameters, even by functions that are not inlined and get their
// address.

template <class Body>
__global__ void run_items(int64_t n, const int32_t* go, const __grid_constant__ Body body) {
  if (go != nullptr && *go == 0) return;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += stride) {
    body(i);
  }
}

/// Returns how many blocks of a body a multiprocessor should hold at least; 0: any number.
template <class Body>
constexpr int least_blocks() {
  if constexpr (requires { Body::kLeastBlocks; }) return Body::kLeastBlocks;
  return 0;
}

template <class Body>
__global__ void __launch_bounds__(Body::kThreads, least_blocks<Body>())
    run_block(const int32_t* go, const __grid_constant__ Body body) {
  if (go != nullptr && *go == 0) return;
  __shared__ typename Body::Shared shared;
  typename Body::State state;
  HS_LEAVE_UNSET(shared, state);
  const int64_t steps = body.steps();
  for (int64_t s = 0; s < steps; ++s) {
    body.step(s, blockIdx.x, static_cast<int>(threadIdx.x), shared, state);
    __syncthreads();
  }
}

/// A body for querying how kernels were compiled.
struct Nothing {
  HS_HD void operator()(int64_t) const {}
};

class CudaExecutor {
 public:
  CudaExecutor() {
    int device = 0, major = 0, minor = 0;
    check_cuda(cudaGetDevice(&device), "device");
    staging_ = &PinnedStaging::of_device(device);
    check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "device");
    check_cuda(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "device");
    // Code compiled from an older architecture's PTX has no newer instructions.
    cudaFuncAttributes code{};
    check_cuda(cudaFuncGetAttributes(&code, run_items<Nothing>), "kernel");
    const bool same = code.ptxVersion / 10 == major;
    cores_ = {same ? cores_of_capability(major, minor) : "none", code.ptxVersion >= 89};
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
    check_cuda(cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking), "stream");
    check_cuda(cudaStreamCreateWithFlags(&inputs_, cudaStreamNonBlocking), "stream");
    for (cudaEvent_t& event : staged_) event = new_event();
    for (cudaEvent_t& event : fed_) event = new_event();
  }
  CudaExecutor(const CudaExecutor&) = delete;
  CudaExecutor& operator=(const CudaExecutor&) = delete;
  ~CudaExecutor() {
    static_cast<void>(cudaStreamSynchronize(stream_));
    static_cast<void>(cudaStreamSynchronize(copies_));
    static_cast<void>(cudaStreamSynchronize(inputs_));
    staging_->forget(staged_);
    staging_->forget(fed_);
    for (cudaEvent_t event : events_) static_cast<void>(cudaEventDestroy(event));
    for (cudaGraphExec_t graph : graphs_) static_cast<void>(cudaGraphExecDestroy(graph));
    for (const auto& [memory, bytes] : memory_) static_cast<void>(cudaFree(memory));
    for (void* memory : host_memory_) static_cast<void>(cudaFreeHost(memory));
    static_cast<void>(cudaStreamDestroy(inputs_));
    static_cast<void>(cudaStreamDestroy(copies_));
    static_cast<void>(cudaStreamDestroy(stream_));
  }

  cudaStream_t stream() const { return stream_; }
  DeviceCores tensor_core() const { return cores_; }

  template <class Body>
  void items(int64_t n, const Body& body) {
    check_items<Body>();
    if (n <= 0) return;
    constexpr int64_t kThreads = 256, kEnough = int64_t{1} << 20;
    const int64_t blocks = (n + kThreads - 1) / kThreads;
    const cudaLaunchConfig_t grid = config(blocks < kEnough ? blocks : kEnough, kThreads);
    check_cuda(cudaLaunchKernelEx(&grid, run_items<Body>, n, go_, body), "launch");
  }

  template <class Body>
  void blocks(const Body& body) {
    check_blocks<Body>();
    const int64_t blocks = body.blocks();
    check_count(blocks);
    if (blocks <= 0) return;
    const cudaLaunchConfig_t grid = config(blocks, Body::kThreads);
    check_cuda(cudaLaunchKernelEx(&grid, run_block<Body>, go_, body), "launch");
  }

  template <class F>
  void enqueue(const F& f) {
    check_unconditional(go_);
    f();
  }

  static size_t sort_bytes(const PairSort& sort) { return device_sort_bytes(sort); }
  void sort(const PairSort& sort) {
    enqueue([&] { sort_on_device(sort, stream_); });
  }

  void only_if(const int32_t* go) { go_ = go; }

  /// Launches that were captured as a CUDA graph.
  struct Recording {
    enum class State : uint8_t { fresh, warm, graph, none };
    State state = State::fresh;
    cudaGraphExec_t graph = nullptr;
    size_t nodes = 0;   ///< in the graph
    std::string why{};  ///< why there is no graph
  };

  /// Returns how the recording is launched, in words, or "" if it has not run yet.
  static std::string describe(const Recording& recording) {
    using State = typename Recording::State;
    switch (recording.state) {
      case State::warm:
        return "launched one by one: not run twice yet";
      case State::graph:
        return "CUDA graph of " + std::to_string(recording.nodes) + " nodes";
      case State::none:
        return "not captured: " + recording.why;
      case State::fresh:
        break;
    }
    return "";
  }

  /// Runs f() plainly the first time, because kernels are loaded and libraries set up then. If its
  /// launches cannot be captured, it always runs plainly.
  template <class F>
  void replay(Recording& recording, const F& f) {
    using State = typename Recording::State;
    if (recording.state == State::warm) {
      capture(recording, f);
      recording.state = recording.graph != nullptr ? State::graph : State::none;
    }
    if (recording.state == State::graph) {
      check_cuda(cudaGraphLaunch(recording.graph, stream_), "launch of a graph");
      return;
    }
    f();
    if (recording.state == State::fresh) recording.state = State::warm;
  }

  void* allocate(size_t bytes) {
    void* memory = nullptr;
    check_cuda(cudaMalloc(&memory, bytes), "allocation", bytes);
    memory_[memory] = bytes;
    allocated_ += static_cast<int64_t>(bytes);
    check_cuda(cudaMemsetAsync(memory, 0, bytes, stream_), "memset", bytes);
    return memory;
  }
  void release(void* memory) {
    // Freeing waits for work that uses the memory; an error will appear in the next call.
    const auto found = memory_.find(memory);
    if (found == memory_.end()) return;
    allocated_ -= static_cast<int64_t>(found->second);
    memory_.erase(found);
    static_cast<void>(cudaFree(memory));
  }
  int64_t allocated() const { return allocated_; }
  void upload(void* to, const void* from, size_t bytes) {
    staging_->upload(to, from, bytes, stream_, staged_);
  }
  struct Buffer {
    void* memory = nullptr;
    cudaEvent_t filled = nullptr, read = nullptr;
  };
  void feed(Buffer& buffer, const void* from, size_t bytes) {
    if (buffer.filled == nullptr) {
      buffer.filled = new_event();
      buffer.read = new_event();
      was_read(buffer);  // allocate() is still clearing it
    }
    check_cuda(cudaStreamWaitEvent(inputs_, buffer.read, 0), "event");
    staging_->upload(buffer.memory, from, bytes, inputs_, fed_);
    check_cuda(cudaEventRecord(buffer.filled, inputs_), "event");
    check_cuda(cudaStreamWaitEvent(stream_, buffer.filled, 0), "event");
  }
  void was_read(Buffer& buffer) { check_cuda(cudaEventRecord(buffer.read, stream_), "event"); }
  void download(void* to, const void* from, size_t bytes) {
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_),
               "copy from the device", bytes);
    check_cuda(cudaStreamSynchronize(stream_), "copy from the device", bytes);
  }
  void copy(void* to, const void* from, size_t bytes) {
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_),
               "copy on the device", bytes);
  }

  void* host_memory(size_t bytes) {
    void* memory = nullptr;
    check_cuda(cudaMallocHost(&memory, bytes), "pinned-memory allocation", bytes);
    host_memory_.push_back(memory);
    return memory;
  }
  struct Mark {
    cudaEvent_t begin = nullptr, pause = nullptr, go_on = nullptr, end = nullptr, copied = nullptr;
  };
  void begin(Mark& mark) {
    if (mark.begin == nullptr) {
      mark = {new_event(), new_event(), new_event(), new_event(), new_event()};
    }
    check_cuda(cudaEventRecord(mark.begin, stream_), "event");
  }
  void pause(Mark& mark) { check_cuda(cudaEventRecord(mark.pause, stream_), "event"); }
  void go_on(Mark& mark) { check_cuda(cudaEventRecord(mark.go_on, stream_), "event"); }
  void fetch(Mark& mark, void* to, const void* from, size_t bytes) {
    check_cuda(cudaEventRecord(mark.end, stream_), "event");
    check_cuda(cudaStreamWaitEvent(copies_, mark.end, 0), "event");
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, copies_),
               "copy from the device", bytes);
    check_cuda(cudaEventRecord(mark.copied, copies_), "event");
  }
  double wait(Mark& mark) {
    check_cuda(cudaEventSynchronize(mark.copied), "copy from the device");
    float before = 0.0f, after = 0.0f;
    check_cuda(cudaEventElapsedTime(&before, mark.begin, mark.pause), "event");
    check_cuda(cudaEventElapsedTime(&after, mark.go_on, mark.end), "event");
    return static_cast<double>(before) + static_cast<double>(after);
  }

 private:
  cudaLaunchConfig_t config(int64_t blocks, int threads) const {
    cudaLaunchConfig_t grid{};
    grid.gridDim = dim3(static_cast<unsigned>(blocks));
    grid.blockDim = dim3(static_cast<unsigned>(threads));
    grid.stream = stream_;
    return grid;
  }

  cudaEvent_t new_event() {
    cudaEvent_t event = nullptr;
    check_cuda(cudaEventCreate(&event), "event");
    events_.push_back(event);
    return event;
  }

  /// Captures f() as a graph, or notes why that failed. Nothing runs.
  template <class F>
  void capture(Recording& recording, const F& f) {
    const auto succeeds = [&recording](cudaError_t error, const char* call) {
      if (error == cudaSuccess) return true;
      // The first failure is the cause of the others.
      if (recording.why.empty()) recording.why = cuda_failure(error, call);
      static_cast<void>(cudaGetLastError());
      return false;
    };
    // Calls of other threads must not end the capture.
    if (!succeeds(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
                  "cudaStreamBeginCapture")) {
      return;
    }
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t ready = nullptr;
    try {
      f();
    } catch (const Error& error) {  // if capturing is not the cause, it will be thrown again later
      recording.why = error.what();
    } catch (...) {
      static_cast<void>(cudaStreamEndCapture(stream_, &graph));
      if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
      throw;
    }
    const bool ended = succeeds(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
    if (ended && recording.why.empty() &&
        succeeds(cudaGraphGetNodes(graph, nullptr, &recording.nodes), "cudaGraphGetNodes") &&
        succeeds(cudaGraphInstantiate(&ready, graph, 0), "cudaGraphInstantiate")) {
      graphs_.push_back(ready);
      recording.graph = ready;
    }
    if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
    static_cast<void>(cudaGetLastError());
  }

  std::vector<cudaGraphExec_t> graphs_;
  std::vector<cudaEvent_t> events_;
  cudaStream_t stream_ = nullptr, copies_ = nullptr, inputs_ = nullptr;
  const int32_t* go_ = nullptr;
  PinnedStaging* staging_ = nullptr;        ///< shared by all executors of the device
  PinnedStaging::Events staged_{}, fed_{};  ///< of stream_ and of inputs_
  std::vector<void*> host_memory_;
  DeviceCores cores_;
  int64_t allocated_ = 0;
  std::map<void*, size_t> memory_;
};

}  // namespace halfscope::gpu
