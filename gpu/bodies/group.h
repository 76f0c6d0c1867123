// SPDX-License-Identifier: MIT
// One launch for several tensors: the same body with other operands for each, in a table on the
// device. A network has hundreds of small tensors, each of which would take a launch and leave most
// of a device idle.
#pragma once

#include <cstdint>

#include "gpu/bodies/work.h"

namespace halfscope::gpu {

/// Work of one block: block number `block` of body number `body`.
struct GroupBlock {
  int32_t body, block;
};

/// Runs all items of bodies that have items().
template <class Body>
struct ItemGroup {
  static constexpr int kThreads = 256;
  static constexpr int64_t kItems = 512;  ///< per block

  const Body* bodies;
  const GroupBlock* plan;
  int64_t count;  ///< blocks

  struct Shared {};
  struct State {};

  static int64_t blocks_of(const Body& body) { return ceil_div(body.items(), kItems); }
  int64_t blocks() const { return count; }
  HS_HD int64_t steps() const { return 1; }

  HS_HD void step(int64_t, int64_t block, int thread, Shared&, State&) const {
    const GroupBlock own = plan[block];
    const Body& body = bodies[own.body];
    const int64_t begin = own.block * kItems, end = smaller(begin + kItems, body.items());
    for (int64_t item = begin + thread; item < end; item += kThreads) body(item);
  }
};

/// Runs all blocks of bodies that have the same number of steps, Body::kSteps.
template <class Body>
struct BlockGroup {
  static constexpr int kThreads = Body::kThreads;

  const Body* bodies;
  const GroupBlock* plan;
  int64_t count;  ///< blocks

  using Shared = typename Body::Shared;
  using State = typename Body::State;

  static int64_t blocks_of(const Body& body) { return body.blocks(); }
  int64_t blocks() const { return count; }
  HS_HD int64_t steps() const { return Body::kSteps; }

  HS_HD void step(int64_t s, int64_t block, int thread, Shared& shared, State& state) const {
    const GroupBlock own = plan[block];
    bodies[own.body].step(s, own.block, thread, shared, state);
  }
};

}  // namespace halfscope::gpu
