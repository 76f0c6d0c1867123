// SPDX-License-Identifier: MIT
// How OpenMP's threads wait for each other.
#pragma once

namespace halfscope {

/// For the first line of a main function. GCC's OpenMP threads spin for milliseconds at a
/// barrier; when another program wants the same core, that makes a step ten times slower. They
/// should spin for some microseconds and then sleep. libgomp reads the setting (GOMP_SPINCOUNT)
/// once, when it is loaded, so this sets it and starts the program anew with the same arguments,
/// unless the environment has a say (GOMP_SPINCOUNT or OMP_WAIT_POLICY). Where it cannot, the
/// program goes on as it is. Results do not depend on it.
void limit_spinning(char** argv) noexcept;

}  // namespace halfscope
