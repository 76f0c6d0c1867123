// SPDX-License-Identifier: MIT
// Rules for the position of a batch's samples in the outputs of operators: how a network that a
// file fixes at one sample can process several. OpDef::keeps_samples is one of these rules, or one
// that its operator defines.
//
// A rule sees the graph of one sample. A value that will contain several samples has a SamplePlace;
// all other values are the same for all samples. The rule says where the results have the samples,
// or why the node cannot process several.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/op_def.h"

namespace halfscope {

/// Dimension `axis` of a value with several samples is [before, samples, rest], in row-major order.
/// Its size in the graph of one sample is before * rest: 1 if samples have their own dimension. All
/// other dimensions are those of one sample.
struct SamplePlace {
  size_t axis = 0;
  int64_t before = 1;
  bool operator==(const SamplePlace&) const = default;
};
using SamplePlaces = std::unordered_map<ValueId, SamplePlace>;

/// An input that is the same for all samples, and where it needs one copy per sample.
struct SampleCopies {
  size_t input = 0;
  SamplePlace place{};
};

/// The answer of a rule.
struct SampleResult {
  /// Place in the results, up to OpDef::statistics_from; without one they need no change.
  std::optional<SamplePlace> place{};
  /// Other places that the shapes allow: those of a Reshape are ambiguous.
  std::vector<SamplePlace> others{};
  std::vector<SampleCopies> copies{};
  std::string refusal{};  ///< why the node cannot process several samples; empty if it can
  /// For a refusal: the node mixes samples. Otherwise several samples do not fit at all.
  bool mixes = false;
};

/// Reshape: what is known about a dimension of its result besides the size.
enum DimensionSource : int64_t {
  kAnything = -1,  ///< nothing
  kAdded = -2,     ///< new, and it has no samples
  kLeftOpen = -3,  ///< the file leaves its size open
};                 // 0 and above: that dimension of the operand

/// A node of the graph of one sample, and the places where its inputs will have several.
class SampleNode {
 public:
  /// `sources`: one DimensionSource for every dimension of the result, or nothing.
  SampleNode(const Graph& graph, const Node& node, const SamplePlaces& places,
             std::span<const int64_t> sources)
      : graph_(graph), node_(node), places_(places), sources_(sources) {}

  const Node& node() const { return node_; }
  size_t input_count() const { return node_.inputs.size(); }
  bool has(size_t input) const { return input < input_count() && node_.inputs[input] != kNone; }
  /// Returns nothing for omitted inputs and for inputs that are the same for all samples.
  std::optional<SamplePlace> place(size_t input) const;
  const Shape& shape(size_t input) const { return graph_.value(node_.inputs.at(input)).shape; }
  size_t rank(size_t input) const { return shape(input).size(); }
  const Shape& result() const { return graph_.value(node_.outputs[0]).shape; }
  std::span<const int64_t> sources() const { return sources_; }

  /// Returns the attribute `axis` for an operand of that rank, made non-negative.
  size_t axis(size_t rank, int64_t fallback) const;
  /// Returns whether an input other than the first contains samples.
  bool others_hold_samples() const;

 private:
  const Graph& graph_;
  const Node& node_;
  const SamplePlaces& places_;
  std::span<const int64_t> sources_;
};

namespace samples {

/// An operand as broadcasting sees it: an input of the node, or its leading dimensions.
struct Operand {
  Shape shape;
  std::optional<SamplePlace> place;
  size_t input = 0;
};

SampleResult at(std::optional<SamplePlace> place);
SampleResult mixes(std::string refusal);
SampleResult unfit(std::string refusal);

/// Each element is independent; one operand.
SampleResult alone(const SampleNode& n);
/// Operands broadcast to the result. An operand that all samples share has a dimension of 1 where
/// the samples are, or one sample's size where samples are merged with other dimensions (for
/// example the heads of a learned query). In the latter case each sample gets a copy.
SampleResult broadcast(const SampleNode& n);
/// Returns whether each element of the operator's results depends on one element of each operand.
bool is_elementwise(const OpDef& def);
SampleResult broadcast_to(size_t rank, std::span<const Operand> operands);
/// Rows of axis 0 are independent; inputs after the first are the same for all samples.
SampleResult only_first(const SampleNode& n);
/// Windows, or sums, over axes 2 and later of one operand.
SampleResult planes(const SampleNode& n);
/// Works along the attribute `axis` of its first input.
SampleResult along(const SampleNode& n, int64_t fallback);
template <int64_t Default>
SampleResult inner_axis(const SampleNode& n) {
  return along(n, Default);
}
/// Works along the attribute `axes`, which the result may not have (attribute keepdims).
SampleResult reduction(const SampleNode& n);
SampleResult reduced(const SampleNode& n, const std::vector<int64_t>& axes);
/// The same elements in the same order under another shape.
SampleResult reshape(const SampleNode& n);

}  // namespace samples
}  // namespace halfscope
