// SPDX-License-Identifier: MIT
// Networks that a file fixes at one sample take several: SampleAxes follows the samples through the
// graph of one while it is imported, and with_batch() makes the graph of several.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/graph/model.h"
#include "core/onnx/known_tensor.h"
#include "core/ops/samples.h"

namespace halfscope::onnx_files {

class SampleAxes {
 public:
  /// Of `graph`, which must outlive this, with that many samples.
  SampleAxes(const Graph& graph, int64_t batch) : graph_(graph), batch_(batch) {}

  /// An input whose dimension 0, of size 1, holds the samples.
  void add_input(ValueId input) { places_[input] = {}; }
  /// A constant that was computed from the number of samples, and what it is for several.
  void add_constant(ValueId constant, const KnownTensor& several, const std::string& what);
  /// DimensionSource of the result of the node that is added next.
  void set_sources(std::vector<int64_t> sources) { next_sources_ = std::move(sources); }
  /// Follows the samples through the nodes that were added since.
  void follow();
  /// What the shape of a value must be for several samples; an Expand may get them only there.
  void expect(ValueId value, const Shape& several, const std::string& what);
  /// An operator picked a part of that dimension which, with one sample, is all of it.
  void picked(ValueId value, size_t axis, const std::string& what);
  void refuse(const std::string& what, const std::string& reason);

  /// Why the network cannot take several samples, beginning with the node; empty if it can. Only
  /// the first reason is kept.
  const std::string& refusal() const { return refusal_; }
  /// Looks at the outputs, and at what else the ambiguous shapes in the file may mean: where a
  /// Reshape could have put the samples elsewhere such that a node mixes them, it refuses.
  void finish(const std::vector<NamedValue>& outputs);

  int64_t batch() const { return batch_; }
  std::optional<SamplePlace> place(ValueId value) const;
  /// The shape with several samples.
  Shape shape(ValueId value) const;
  const std::map<ValueId, KnownTensor>& constants() const { return constants_; }
  /// Of the inputs of a node.
  std::vector<SampleCopies> copies(NodeId node) const;

 private:
  void visit(NodeId id);
  std::string mixed_from(NodeId id, SamplePlace other) const;

  const Graph& graph_;
  int64_t batch_ = 1;
  SamplePlaces places_;
  std::map<ValueId, KnownTensor> constants_;  ///< what they are for several samples
  std::vector<int64_t> next_sources_;
  std::map<NodeId, std::vector<int64_t>> sources_;
  std::map<NodeId, std::vector<SamplePlace>> others_;
  std::map<NodeId, std::vector<SampleCopies>> copies_;
  std::set<ValueId> joint_;  ///< computed from all samples together, such as a mean loss
  NodeId next_ = 0;
  std::string refusal_;
};

/// The network with several samples, where `axes`, which followed them through its graph, refuses
/// nothing; or nothing, and `axes` says why. Throws Error if it is too large.
std::optional<Model> with_batch(const Model& one, SampleAxes& axes);

/// The Error for networks of more than kMostElements numbers.
Error too_many_numbers(const std::string& what);

}  // namespace halfscope::onnx_files
