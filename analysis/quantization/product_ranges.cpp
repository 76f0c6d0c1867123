// SPDX-License-Identifier: MIT
#include "analysis/quantization/product_ranges.h"

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/graph/op_def.h"
#include "core/lower/known_values.h"
#include "core/train/feed.h"
#include "core/train/lane_setup.h"

namespace halfscope {
namespace {

/// Operand `operand` of a node, and where its magnitudes go.
struct Place {
  ValueId value = kNone;
  size_t product = 0, operand = 0;
};

}  // namespace

std::vector<ProductRanges> measure_products(const Model& network, const NamedTensors& weights,
                                            const Dataset& data, int64_t samples,
                                            const Backend& backend, const std::atomic<bool>& stop) {
  const Executable executable = lower_inference(network, Plan{});
  const Graph& graph = executable.graph;
  const std::vector<bool> known = known_values(executable);
  std::vector<ProductRanges> products;
  std::map<std::pair<std::string, std::string>, size_t> index;
  std::vector<Place> places;
  for (const NodeId id : executable.entry(Entry::eval)) {
    const Node& node = graph.node(id);
    if (!find_op(node.op).sums_products()) continue;
    const auto [found, is_new] = index.try_emplace({node.path, node.op}, products.size());
    if (is_new) products.push_back({.path = node.path, .op = node.op, .known = {true, true}});
    for (size_t i = 0; i < 2; ++i) {
      const bool weight = known[static_cast<size_t>(node.inputs[i])];
      products[found->second].known[i] = products[found->second].known[i] && weight;
      places.push_back({node.inputs[i], found->second, i});
    }
  }
  const std::unique_ptr<Program> program = backend.compile(executable);
  write_weights(*program, graph, weights);
  Feed feed(executable, data);
  const int64_t batches = std::min(samples, data.test.size()) / feed.batch();
  if (data.test.size() < feed.batch()) {
    throw usage_error("calibration needs a whole batch of " + std::to_string(feed.batch()) +
                          " samples, but there are " + std::to_string(data.test.size()),
                      "use a smaller --batch, or more samples");
  }
  std::vector<int64_t> which(static_cast<size_t>(feed.batch()));
  for (int64_t batch = 0; batch < std::max<int64_t>(batches, 1); ++batch) {
    if (stop) return {};
    std::iota(which.begin(), which.end(), batch * feed.batch());
    feed.write(executable, *program, data.test, which);
    program->set_random(0, static_cast<uint64_t>(batch));
    program->run(Entry::eval, {});
    for (const Place& place : places) {
      if (batch > 0 && known[static_cast<size_t>(place.value)]) continue;
      ProductRanges& product = products[place.product];
      MagnitudeHistogram& seen = product.seen[place.operand];
      seen.add(program->read(place.value).data);
      if (seen.not_finite() == 0) continue;
      throw Error(product.path + ": its operands have infinities or NaN in fp32",
                  "run the network in fp32 with --record, and look for the first bad operation");
    }
  }
  return products;
}

}  // namespace halfscope
