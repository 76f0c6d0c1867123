// SPDX-License-Identifier: MIT
#include "core/observe/lane_kernels.h"

#include <utility>

namespace halfscope {

const char* entry_name(Entry entry) {
  switch (entry) {
    case Entry::begin:
      return "begin";
    case Entry::grad:
      return "grad";
    case Entry::accumulate:
      return "accumulate";
    case Entry::norm:
      return "norm";
    case Entry::update:
      return "update";
    case Entry::eval:
      break;
  }
  return "eval";
}

void add_product_kernels(std::vector<ProductKernel>& kernels, const std::string& lane,
                         const Executable& executable, const Program& program) {
  const std::vector<Node>& nodes = executable.graph.nodes();
  for (NodeId id = 0; id < static_cast<NodeId>(nodes.size()); ++id) {
    const std::string kernel = program.kernel_of(id);
    const Node& node = nodes[static_cast<size_t>(id)];
    if (!kernel.empty()) kernels.push_back({lane, node.path, node.op, kernel});
  }
}

void add_entry_launches(std::vector<EntryLaunch>& launches, const std::string& lane,
                        const Program& program) {
  for (size_t i = 0; i < kEntryCount; ++i) {
    const Entry entry = static_cast<Entry>(i);
    for (std::string& how : program.launches_of(entry)) {
      launches.push_back({lane, entry_name(entry), std::move(how)});
    }
  }
}

}  // namespace halfscope
