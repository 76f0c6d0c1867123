// SPDX-License-Identifier: MIT
#include "bench/count/watch.h"

#include "bench/count/launch.h"
#include "core/numeric/elementary/elementary.h"
#include "core/numeric/elementary/quick_exp.h"

namespace halfscope::count {

Watch watch;

namespace {

bool watching = false;

void touch(const void* at, size_t bytes, bool writes, const void* code) {
  if (!watching) return;
  const uintptr_t address = reinterpret_cast<uintptr_t>(at);
  if (address - watch.device < watch.device_bytes) {
    watch.accesses.push_back(
        {.offset = address - watch.device, .bytes = bytes, .writes = writes, .code = code});
  } else if (address - watch.shared < watch.shared_bytes) {
    ++watch.shared_accesses;
  }
}

/// Returns how many calls of exp a call of the function takes as long as, 0 for others.
double weight_of(const void* function) {
  using Function = double (*)(double) noexcept;
  static const Function one[] = {elementary::exp,  elementary::log, elementary::expm1,
                                 elementary::tanh, elementary::erf, elementary::erfc,
                                 elementary::sin,  elementary::cos, elementary::log1p};
  for (const Function each : one) {
    if (function == reinterpret_cast<const void*>(each)) return 1.0;
  }
  if (function == reinterpret_cast<const void*>(&elementary::pow)) return 1.0;
  if (function == reinterpret_cast<const void*>(&elementary::quick_exp)) {
    return kQuickExpOperations / kFunctionOperations;
  }
  if (function == reinterpret_cast<const void*>(&elementary::narrow_interval) ||
      function == reinterpret_cast<const void*>(&elementary::rounds_surely)) {
    return kDecisionOperations / kFunctionOperations;
  }
  return 0.0;
}

}  // namespace

void begin_watching() { watching = true; }
void end_watching() { watching = false; }

}  // namespace halfscope::count

// The names and types are the compilers' (GCC and Clang).
#define HALFSCOPE_TOUCH(at, bytes, writes) \
  halfscope::count::touch(at, bytes, writes, __builtin_return_address(0))
#define HALFSCOPE_WATCH(bytes)                                                       \
  void __tsan_read##bytes(void* at) { HALFSCOPE_TOUCH(at, bytes, false); }           \
  void __tsan_write##bytes(void* at) { HALFSCOPE_TOUCH(at, bytes, true); }           \
  void __tsan_unaligned_read##bytes(void* at) { HALFSCOPE_TOUCH(at, bytes, false); } \
  void __tsan_unaligned_write##bytes(void* at) { HALFSCOPE_TOUCH(at, bytes, true); } \
  void __tsan_volatile_read##bytes(void* at) { HALFSCOPE_TOUCH(at, bytes, false); }  \
  void __tsan_volatile_write##bytes(void* at) { HALFSCOPE_TOUCH(at, bytes, true); }  \
  void __tsan_read_write##bytes(void* at) {                                          \
    HALFSCOPE_TOUCH(at, bytes, false);                                               \
    HALFSCOPE_TOUCH(at, bytes, true);                                                \
  }

#pragma GCC diagnostic ignored "-Wmissing-declarations"
extern "C" {
HALFSCOPE_WATCH(1)
HALFSCOPE_WATCH(2)
HALFSCOPE_WATCH(4)
HALFSCOPE_WATCH(8)
HALFSCOPE_WATCH(16)
void __tsan_read_range(void* at, size_t bytes) { HALFSCOPE_TOUCH(at, bytes, false); }
void __tsan_write_range(void* at, size_t bytes) { HALFSCOPE_TOUCH(at, bytes, true); }
// Reference counts of the standard library.
int __tsan_atomic32_fetch_add(volatile int* at, int by, int) {
  return __atomic_fetch_add(at, by, __ATOMIC_SEQ_CST);
}
int __tsan_atomic32_load(const volatile int* at, int) {
  return __atomic_load_n(at, __ATOMIC_SEQ_CST);
}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

void __cyg_profile_func_enter(void* function, void*) {
  using namespace halfscope::count;  // NOLINT: in the global namespace by name only
  if (watching) watch.functions += weight_of(function);
}
void __cyg_profile_func_exit(void*, void*) {}
}
