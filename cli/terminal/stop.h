// SPDX-License-Identifier: MIT
// Ctrl-C: the first one asks for an orderly end, the second one ends the program at once.
#pragma once

#include <atomic>

namespace halfscope {

/// True once the user asked to stop. From now on SIGINT, SIGTERM and SIGHUP ask for that.
const std::atomic<bool>& catch_stop_signals();

}  // namespace halfscope
