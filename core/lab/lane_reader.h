// SPDX-License-Identifier: MIT
// LaneReader: finds a weight's nodes in the graph of a lane, and reads the tensors of its watched
// step where one sample passes through them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/lab/lane_stations.h"
#include "core/lower/execution.h"
#include "core/lower/narrow.h"
#include "core/numeric/formats/round.h"
#include "core/numeric/sums/accumulate.h"

namespace halfscope::lab {

inline size_t at(int64_t index) { return static_cast<size_t>(index); }
inline double wide(float x) { return static_cast<double>(x); }

/// The nodes and values of one layer, and where the weight is in them.
class LaneReader {
 public:
  LaneReader(const WatchedStep& step, const MicroscopePlace& place, int64_t sample)
      : step_(step),
        graph_(step.executable->graph),
        place_(place),
        per_rank_(kSmallBatch / static_cast<int64_t>(step.ranks.size())),
        rank_(sample / per_rank_),
        row_(sample % per_rank_),
        own_(step.ranks.at(at(rank_))),
        path_(place.layer == 1 ? "fc1" : "fc2") {
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      const Node& node = graph_.node(id);
      if (node.path == path_ && node.op == "Gemm" && node.phase == Phase::forward) product_ = id;
    }
    for (const Variable& variable : graph_.variables()) {
      if (variable.path == path_ + ".weight") weight_ = &variable;
    }
    if (product_ == halfscope::kNone || weight_ == nullptr) throw Error("no layer " + path_);
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      const Node& node = graph_.node(id);
      if (node.forward != product_ || node.op != "Gemm") continue;
      if (graph_.value(node.outputs[0]).shape == graph_.value(weight_->value).shape) gradient_ = id;
    }
    columns_ = graph_.value(weight_->value).shape.at(1);
    rows_ = graph_.value(weight_->value).shape.at(0);
    element_ = place.row * columns_ + place.column;
  }

  /// Returns |input * gradient| of the sample's product, as the products read them.
  double share() const {
    const Node& node = graph_.node(gradient_);
    const float dy = own(node.inputs[0])[at(row_ * rows_ + place_.row)];
    const float x = own(node.inputs[1])[at(row_ * columns_ + place_.column)];
    return std::fabs(wide(dy) * wide(x));
  }

  SampleRow row() const {
    SampleRow result{.rank = rank_};
    const auto rows_of = [&](const std::vector<float>& values, int64_t width, int64_t row) {
      const auto first = values.begin() + row * width;
      return std::vector<float>(first, first + width);
    };
    result.pixels = rows_of(own(step_.executable->input), kSmallInputs, row_);
    result.inputs =
        rows_of(own(before_narrowing(graph_, graph_.node(product_).inputs[0])), columns_, row_);
    result.weights = rows_of(step_.before.at(weight_->value), columns_, place_.row);
    return result;
  }

 protected:
  /// Returns what the sample's rank computed; variables are those at the beginning.
  const std::vector<float>& own(ValueId value) const { return of_rank(own_, value); }
  const std::vector<float>& of_rank(const WatchedStep::Rank& rank, ValueId value) const {
    const auto found = rank.values.find(value);
    return found != rank.values.end() ? found->second : step_.before.at(value);
  }
  double scalar(ValueId value) const {
    const auto found = step_.scalars.find(value);
    return found == step_.scalars.end() ? 1.0 : found->second;
  }

  /// Rounds as the engine rounds element `index` of a value.
  double rounded(ValueId value, float exact, int64_t index, const RandomSource& random) const {
    const Value& description = graph_.value(value);
    if (description.format == kFp32) return wide(exact);
    const TensorRounding how = rounding_now(description.rounding, value, random);
    return wide(round_to_format(exact, description.format, how.element(index)).value);
  }

  /// A sum of products, for one element of its result.
  struct Sum {
    SumSpec spec{};
    std::vector<float> left{}, right{};
    int64_t element = 0;
    /// Returns the sum of the first terms; the others count as zeros, so that draws stay in place.
    float of_first(size_t terms, const float* bias = nullptr) const {
      std::vector<float> a(left.size(), 0.0f), b(right.size(), 0.0f);
      std::copy_n(left.begin(), terms, a.begin());
      std::copy_n(right.begin(), terms, b.begin());
      return sum_of_products(spec, a, b, bias, element);
    }
  };
  Sum sum_of(const Node& node, int64_t element) const {
    Sum sum{.spec = sum_spec_of(graph_, node), .element = element};
    sum.spec.key = sum_key(node.plan.accumulation.rounding, node.outputs[0], own_.random);
    return sum;
  }

  const WatchedStep& step_;
  const Graph& graph_;
  const MicroscopePlace place_;
  int64_t per_rank_, rank_, row_;
  const WatchedStep::Rank& own_;
  std::string path_;
  NodeId product_ = halfscope::kNone, gradient_ = halfscope::kNone;
  const Variable* weight_ = nullptr;
  int64_t columns_ = 0, rows_ = 0, element_ = 0;
};

}  // namespace halfscope::lab
