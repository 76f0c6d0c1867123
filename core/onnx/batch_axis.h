// SPDX-License-Identifier: MIT
// Converts networks that a file fixes at one sample to several: SampleAxes follows the samples
// through the graph while it is imported, and with_batch() makes the graph for several samples.
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
  /// `graph` must outlive this; `batch` is the number of samples.
  SampleAxes(const Graph& graph, int64_t batch) : graph_(graph), batch_(batch) {}

  /// Adds an input whose dimension 0, of size 1, is that of the samples.
  void add_input(ValueId input) { places_[input] = {}; }
  /// Adds a constant that was computed from the number of samples, with its value for several.
  void add_constant(ValueId constant, const KnownTensor& several, const std::string& what);
  /// Sets the DimensionSource of each dimension of the next node's output.
  void set_sources(std::vector<int64_t> sources) { next_sources_ = std::move(sources); }
  /// Follows the samples through the nodes added since the last call.
  void follow();
  /// Declares the shape that a value must have for several samples; the samples may enter an Expand
  /// only there.
  void expect(ValueId value, const Shape& several, const std::string& what);
  /// Reports that an operator picked a part of a dimension that is all of it with one sample.
  void picked(ValueId value, size_t axis, const std::string& what);
  void refuse(const std::string& what, const std::string& reason);

  /// Returns why the network cannot take several samples, beginning with the node; empty if it can.
  /// Only the first reason is kept.
  const std::string& refusal() const { return refusal_; }
  /// Checks the outputs and the other meanings of ambiguous shapes in the file: refuses if a
  /// Reshape could have put the samples elsewhere, so that a node mixes them.
  void finish(const std::vector<NamedValue>& outputs);

  int64_t batch() const { return batch_; }
  std::optional<SamplePlace> place(ValueId value) const;
  /// Returns the shape for several samples.
  Shape shape(ValueId value) const;
  const std::map<ValueId, KnownTensor>& constants() const { return constants_; }
  /// Returns the copies that the inputs of a node need.
  std::vector<SampleCopies> copies(NodeId node) const;

 private:
  void visit(NodeId id);
  std::string mixed_from(NodeId id, SamplePlace other) const;

  const Graph& graph_;
  int64_t batch_ = 1;
  SamplePlaces places_;
  std::map<ValueId, KnownTensor> constants_;  ///< their values for several samples
  std::vector<int64_t> next_sources_;
  std::map<NodeId, std::vector<int64_t>> sources_;
  std::map<NodeId, std::vector<SamplePlace>> others_;
  std::map<NodeId, std::vector<SampleCopies>> copies_;
  std::set<ValueId> joint_;  ///< computed from all samples together, such as a mean loss
  NodeId next_ = 0;
  std::string refusal_;
};

/// Returns the network for several samples, or nothing if `axes`, which followed them through its
/// graph, then says why not. `axes` must not have refused before. Throws Error if it is too large.
std::optional<Model> with_batch(const Model& one, SampleAxes& axes);

/// Returns the Error for networks of more than kMostElements numbers.
Error too_many_numbers(const std::string& what);

}  // namespace halfscope::onnx_files
