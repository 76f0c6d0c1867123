// SPDX-License-Identifier: MIT
// Controls how OpenMP's threads wait for each other.
#pragma once

namespace halfscope {

/// Limits the time that waiting OpenMP threads spin. Call it in the first line of main(). GCC's
/// OpenMP threads spin for milliseconds at a barrier; if another program wants the same core, that
/// makes a step ten times slower. They should spin for some microseconds and then sleep. libgomp
/// reads the setting (GOMP_SPINCOUNT) once, when it is loaded, so this sets it and restarts the
/// program with the same arguments. It does nothing if the environment has GOMP_SPINCOUNT or
/// OMP_WAIT_POLICY, or if restarting fails. Outputs do not depend on it.
void limit_spinning(char** argv) noexcept;

/// While it lives, the work of the thread that made it is not divided among OpenMP threads. Small
/// networks run faster that way, because waking threads takes longer than their work.
class OneThread {
 public:
  OneThread() noexcept;
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

}  // namespace halfscope
