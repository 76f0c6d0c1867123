// SPDX-License-Identifier: MIT
// A device in software, with those interfaces of the CUDA runtime, cuBLASLt, cuDNN and NCCL that
// gpu/ uses, so that the sources of the backend cuda run without a GPU. It is strict where a GPU
// is, and also where a GPU may be:
//
//   - work on a stream runs when someone waits for it, and not before;
//   - a kernel gets only device memory, and the host cannot access that;
//   - memory starts as NaN, ends within its last 256 bytes, and is gone when it is freed, also for
//     graphs that were captured before;
//   - shared memory and the state of a thread start as NaN in every block;
//   - threads of a block meet at every barrier; blocks and threads run in any order;
//   - two streams use the same allocation only if an event, or the host, waits in between. Kernels
//     count as writing wherever their arguments point, libraries wherever they say;
//   - pinned memory stays as it is until copies from it have run;
//   - during a capture nothing is allocated, freed or waited for;
//   - memory runs out, captures fail, and the device is lost, when a test requests it;
//   - a kernel takes a millisecond, and pinning memory one per MiB.
//
// It shows nothing about speed, nvcc's code (tensor cores, contraction, memory order), or the
// algorithms that the libraries choose.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <vector>

namespace halfscope::simulated {

/// Values of a kernel's built-in variables.
struct ThreadPlace {
  uint3 thread{}, block{};
  dim3 threads{}, blocks{};
};
ThreadPlace& this_thread();

/// __syncthreads().
void barrier();

/// Fills with NaNs what a kernel gets with any bytes in it: memory that the block shares, if this
/// is its first thread, and the thread's own.
void leave_unset(void* shared, size_t shared_bytes, void* own, size_t own_bytes);

/// Pointers to the device's memory among a kernel's arguments.
using Pointers = std::vector<const void*>;

/// Clears the bytes between members, where anything may lie: also what looks like a pointer.
template <class T>
void clear_padding(T& value) {
#if defined(__GNUC__) && !defined(__clang__)
  __builtin_clear_padding(&value);
#else
  static_cast<void>(value);
#endif
}

/// An argument of a kernel. It has no padding, or that is cleared.
struct Argument {
  const void* data;
  size_t size;
  const char* type;

  template <class T>
  explicit Argument(const T& value) : data(&value), size(sizeof value), type(typeid(T).name()) {
    static_assert(std::is_trivially_copyable_v<T>,
                  "a kernel is handed what cannot be copied there");
    static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__, "copies are not aligned to that");
  }
};
/// A copy of its bytes.
using KeptArgument = std::vector<std::byte>;

/// A kernel, and how to call it for one thread.
struct Kernel {
  void (*kernel)();
  void (*call)(void (*kernel)(), const std::vector<KeptArgument>& arguments);
};

/// Runs `kernel` once for every thread when the stream gets there. Pointers among its arguments
/// must be to the device; it uses that memory.
cudaError_t launch(const cudaLaunchConfig_t& config, const Kernel& kernel,
                   std::initializer_list<Argument> arguments);

/// Work of a library's, on a stream, and the memory that it uses as far as it says so.
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work, const Pointers& memory = {});

/// Returns whether [memory, memory + bytes) is within one allocation of the device.
bool on_device(const void* memory, size_t bytes);

/// Reports what no program may do, such as a wild pointer, and ends the program.
[[noreturn]] void violated(const std::string& rule);

/// Looks for pointers in a kernel's argument: those to the device must be valid, and there must be
/// none to the host. Adds those to the device to `memory`.
void check_argument(const Argument& argument, Pointers& memory);

/// The device has so much memory from now on; HALFSCOPE_SIMULATED_MEMORY says it from the start.
void limit_memory(int64_t bytes);
/// Makes the runtime list `count` devices, which share one memory. HALFSCOPE_SIMULATED_DEVICES does
/// so from the start.
void list_devices(int count);
/// Makes every call fail after this many more launches. HALFSCOPE_SIMULATED_LOST_AFTER does so from
/// the start.
void lose_after(int64_t launches);
/// Event at which captures fail from now on. HALFSCOPE_SIMULATED_REFUSES sets it from the start:
/// launch, end or instantiate.
enum class InCapture : uint8_t { nothing, launch, end, instantiate };
void refuse(InCapture what);
/// Keeps the last rank of NCCL from connecting, and with it all others, until it is called with
/// false. HALFSCOPE_SIMULATED_NCCL=hangs does so from the start.
void hang_nccl(bool hangs);
/// Launches since the program began, by themselves and as parts of graphs.
struct Launches {
  int64_t single = 0, graphs = 0;
};
Launches launches();
/// Copies from the device to the host and back, how often the host waited for work, and how often
/// memory was pinned, since the program began.
struct Transfers {
  int64_t to_host = 0, to_device = 0, waits = 0, pinned = 0;
};
Transfers transfers();
/// Resources that were not released.
struct InUse {
  int64_t memory = 0;  ///< allocations of the device, and
  int64_t pinned = 0;  ///< pinned memory
  int64_t streams = 0, graphs = 0, events = 0;

  friend bool operator==(const InUse&, const InUse&) = default;
};
InUse in_use();

}  // namespace halfscope::simulated
