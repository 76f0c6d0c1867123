// SPDX-License-Identifier: MIT
// libFuzzer target: bytes as a TensorFlow GraphDef or SavedModel, then everything that
// `plan explain tf-amp` asks of it.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "core/error.h"
#include "core/policy/grappler/paint.h"
#include "core/policy/grappler/tf_graph_def.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace halfscope;
  using namespace halfscope::grappler;
  try {
    const TfGraph graph = parse_tf_graph({data, size}, "fuzz.pb");
    const AmpPainting painting = paint(graph, AmpOptions{});
    constexpr size_t kMostTrials = 8;  // each paints the graph again
    const bool small = graph.nodes.size() <= kMostTrials;
    const std::vector<AmpTrial> tried = small ? trials(graph, painting) : std::vector<AmpTrial>{};
    for (size_t i = 0; i < painting.paints.size(); ++i) {
      if (reason_of(graph, painting, i).empty()) std::abort();
      change_of(painting, tried, i);
      change_variables(painting, tried, i);
    }
    summary_text(painting.summary);
  } catch (const Error&) {  // refused, as it may be
  }
  return 0;
}
