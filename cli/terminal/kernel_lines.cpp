// SPDX-License-Identifier: MIT
#include "cli/terminal/kernel_lines.h"

#include <fmt/format.h>

#include <cstdio>

namespace halfscope {

void print_kernels(std::span<const ProductKernel> kernels) {
  for (const ProductKernel& each : kernels) {
    fmt::print(stderr, "{} {} {}: {}\n", each.lane, each.node, each.op, each.kernel);
  }
}

void print_launches(std::span<const EntryLaunch> launches) {
  for (const EntryLaunch& each : launches) {
    fmt::print(stderr, "{} entry {}: {}\n", each.lane, each.entry, each.how);
  }
}

}  // namespace halfscope
