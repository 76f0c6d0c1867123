// SPDX-License-Identifier: MIT
// TensorFlow's automatic mixed precision (the grappler pass auto_mixed_precision) on a graph: which
// type attributes become float16 or bfloat16, where casts are inserted, and why. It follows
// tensorflow/core/grappler/optimizers/auto_mixed_precision.cc of TensorFlow 2.21 phase by phase;
// docs/reference/tf-amp.md describes them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/policy/grappler/lists.h"
#include "core/policy/grappler/tf_graph.h"

namespace halfscope::grappler {

/// The rule that decided about a type attribute.
enum class AmpWhy : uint8_t {
  // Painted: it becomes float16.
  allowed,       ///< its operator is on the allow list
  forced,        ///< the level UNSAFE_FORCE_ALL
  between,       ///< infer or clear, on a path from one allowed operator to another
  follows,       ///< infer, reads a painted attribute and no denied one
  connected,     ///< clear, connected to a painted one through clear operators
  list_painted,  ///< a TensorList whose other operators are painted
  loop_painted,  ///< NextIteration, whose Merge is painted
  cast_painted,  ///< an existing Cast to float32 that only painted attributes read
  // Not painted.
  other_type,      ///< not float32
  preserved,       ///< the node must not change
  other_device,    ///< not on the device of this mode
  slow_device,     ///< all GPUs are older than compute capability 7.0
  denied,          ///< its operator is on the deny list
  denied_by,       ///< infer or clear, downstream of a denied one
  unsafe_list,     ///< a TensorList that leaves the graph or the device
  list_denied,     ///< a TensorList of which another operator is denied
  no_type,         ///< the operator does not accept the target type here
  loop_broken,     ///< NextIteration or Merge of a loop that is not painted throughout
  no_kernel,       ///< the operator has no kernel of the target type on the device
  not_listed,      ///< its operator is on none of the lists
  reads_variable,  ///< Identity or Enter that reads a variable's reference
  no_allow,        ///< infer: nothing that it reads is painted
  reads_denied,    ///< infer: it reads a painted attribute, but also a denied one
  not_connected,   ///< clear: nothing painted is connected to it
  nothing_to_do,   ///< the graph has no operator of the allow list
};

enum class AmpColor : uint8_t { allow, deny, none };

/// One type attribute of one node.
struct AmpPaint {
  size_t node = 0;
  std::string attr;  ///< "T", "dtypes[2]", or a type if it is fixed: "variant"
  AmpColor color = AmpColor::none;
  AmpWhy why = AmpWhy::not_listed;
  bool changed = false;  ///< becomes the target type: painted and float32
  bool is_float = false;
  /// Paths of paints that decided, from the deciding one to this one, without this one. `after` is
  /// the path on the other side: from this one to the allowed operator after it (AmpWhy::between).
  std::vector<size_t> path{}, after{};
};

struct AmpCast {
  std::string name;  ///< TensorFlow's: "conv-0-CastToFp16-0-AutoMixedPrecision"
  size_t node = 0, port = 0;
  bool to_target = false;  ///< else to float32
  bool counted = false;    ///< in the log: to the target type, and not of a constant or variable
  std::vector<std::pair<size_t, size_t>> readers{};  ///< node and port
};

/// Counts as in NVIDIA's containers ("Automatic Mixed Precision Grappler Pass Summary"). The source
/// of that summary is not public; these are our definitions.
struct AmpSummary {
  size_t processable = 0;  ///< nodes that may change
  size_t recognized = 0;   ///< those whose operator is on one of the four lists
  size_t converted = 0;    ///< nodes with a changed attribute
  size_t casts = 0;        ///< casts to the target type, without those of constants and variables
  size_t allowed_converted = 0;  ///< converted nodes of the allow list
  size_t blocking = 0;           ///< processable nodes of the deny list
  size_t blocked = 0;            ///< processable nodes that these deny
};

struct AmpPainting {
  AmpOptions options;
  AmpLists lists;
  std::vector<AmpPaint> paints;            ///< in the order of the nodes
  std::vector<AmpCast> casts;              ///< in the order in which they are inserted
  std::vector<std::string> renamed_nodes;  ///< FusedBatchNorm that became V2
  size_t changed = 0;                      ///< attributes
  size_t counted_casts = 0;
  AmpSummary summary;
  /// The pass does nothing; `log` says why.
  bool skipped = false;
  /// TensorFlow's line: "Converted 4/10 nodes to float16 precision using ..."
  std::string log;

  bool node_changed(size_t node) const;
};

/// Paints a graph. Throws Error if TensorFlow's pass would fail, for example because an operator is
/// on two lists, or if the graph is not valid.
AmpPainting paint(const TfGraph& graph, const AmpOptions& options);

/// Returns the lines of AmpSummary, in the form of NVIDIA's containers.
std::string summary_text(const AmpSummary& summary);

/// Returns why one attribute has its colour, in one or two sentences.
std::string reason_of(const TfGraph& graph, const AmpPainting& painting, size_t paint);

/// An edit of the lists, and what it would do.
struct AmpTrial {
  std::string text;  ///< "remove Mean from the deny list"
  std::vector<AmpListEdit> edits;
  std::vector<bool> changed;  ///< by paint, after the edit
};

/// Paints the graph under each edit that moves one operator of the graph to another list, or off
/// its list. Edits that change nothing are left out.
std::vector<AmpTrial> trials(const TfGraph& graph, const AmpPainting& painting);

/// Returns what would change a paint: the edit that changes the fewest other nodes, with their
/// number; or what to change in the graph, if no edit of the lists does.
std::string change_of(const AmpPainting& painting, const std::vector<AmpTrial>& trials,
                      size_t paint);
/// Returns TensorFlow's environment variables that make this edit, as a shell takes them in front
/// of a command, with the edits that were set before; "" if no edit of the lists changes the paint.
std::string change_variables(const AmpPainting& painting, const std::vector<AmpTrial>& trials,
                             size_t paint);

}  // namespace halfscope::grappler
