// SPDX-License-Identifier: MIT
// Steps of the gradients of data-parallel ranks.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/ops/rank_reduction.h"
#include "gpu/bodies/indexing.h"
#include "gpu/bodies/rank_gradients.h"
#include "gpu/engine/group_steps.h"

namespace halfscope::gpu {

template <class X, class T>
Step rank_gradients_step(const NodeCall<X, T>& c) {
  return joint_step(c, [](const NodeCall<X, T>& call) {
    const bool in_place = static_cast<const void*>(exact(call.out[0])) == address(call.in[0]);
    return RankRow<T>{call.in[0],       call.in[1],          call.in[2], call.out[0],
                      call.in_count(1), call.in_shape(0)[0], in_place};
  });
}

template <class X, class T>
Step rank_reduction_step(const NodeCall<X, T>& c) {
  if (is_exchanged(*c.node)) {
    return joint_step(c, [](const NodeCall<X, T>& call) {
      return Copy<T>{call.in[0], call.out[0], call.out_count(0)};
    });
  }
  return joint_step(c, [](const NodeCall<X, T>& call) {
    const int64_t n = call.out_count(0), ranks = call.in_shape(0)[0];
    const halfscope::Reduction how = reduction_of(*call.node);
    const int64_t chunks = reduction_chunks(how.algorithm, ranks);
    return RankMean<T>{.stack = call.in[0],
                       .takes_part = call.in[1],
                       .rows = call.template working_memory<T>(n * ranks),
                       .y = call.out[0],
                       .additions = uploaded(call, rank_additions(how.algorithm, ranks, 0)),
                       .n = n,
                       .ranks = ranks,
                       .chunk_length = std::max<int64_t>(1, chunk_begin(n, chunks, 1)),
                       .after = how.average == halfscope::Reduction::Average::after,
                       .stores_each = how.algorithm != halfscope::Reduction::Algorithm::all_to_all,
                       .format = call.out_format(0)};
  });
}

}  // namespace halfscope::gpu
