// SPDX-License-Identifier: MIT
// Steps of several bodies of one type, in one launch (gpu/bodies/group.h).
#pragma once

#include <cstdint>
#include <vector>

#include "gpu/bodies/group.h"
#include "gpu/engine/node_call.h"

namespace halfscope::gpu {

/// Copies `data` to working memory while a program is compiled. A node's recorded and plain steps
/// share that memory, so both have to copy the same first, or the other way uses none.
template <class U, class X, class T>
const U* uploaded(const NodeCall<X, T>& c, const std::vector<U>& data) {
  U* const memory = c.template working_memory<U>(static_cast<int64_t>(data.size()));
  if (!data.empty()) c.executor->upload(memory, data.data(), data.size() * sizeof(U));
  return memory;
}

/// Makes one body of several, which must be independent of each other. Group is ItemGroup or
/// BlockGroup. `upload` copies a table to the device and returns where.
template <template <class> class Group, class Body, class Upload>
Group<Body> group_of(const std::vector<Body>& bodies, const Upload& upload) {
  std::vector<GroupBlock> plan;
  for (size_t i = 0; i < bodies.size(); ++i) {
    const int64_t blocks = Group<Body>::blocks_of(bodies[i]);
    for (int64_t block = 0; block < blocks; ++block) {
      plan.push_back({static_cast<int32_t>(i), static_cast<int32_t>(block)});
    }
  }
  return Group<Body>{upload(bodies), upload(plan), static_cast<int64_t>(plan.size())};
}

/// Makes the step of all bodies.
template <template <class> class Group, class X, class T, class Body>
Step group_step(const NodeCall<X, T>& c, const std::vector<Body>& bodies) {
  return blocks_step(
      *c.executor, group_of<Group>(bodies, [&](const auto& table) { return uploaded(c, table); }));
}

/// Makes the step of the body that make(call) returns, for this node and all that run with it.
template <class X, class T, class Make>
Step joint_step(const NodeCall<X, T>& c, const Make& make) {
  std::vector bodies{make(c)};
  if (c.others.empty()) return items_step(*c.executor, bodies[0].items(), bodies[0]);
  for (const NodeCall<X, T>* other : c.others) bodies.push_back(make(*other));
  return group_step<ItemGroup>(c, bodies);
}

}  // namespace halfscope::gpu
