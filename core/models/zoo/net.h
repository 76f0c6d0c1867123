// SPDX-License-Identifier: MIT
// Net: builds the network of a case together with its data. Nodes, variables and inputs get
// meaningless names, because no rule may judge by a name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/models/zoo/zoo.h"
#include "core/numeric/formats/rng.h"

namespace halfscope::zoo {

inline constexpr FixKind kOperator = FixKind::operator_fp32, kStore = FixKind::store_fp32,
                         kSums = FixKind::accumulate_fp32;

/// Random numbers from a counter, computed by exact operations only, so they are the same on every
/// machine.
class Draw {
 public:
  explicit Draw(uint64_t seed) : seed_(seed) {}
  /// Returns a number in [0, 1).
  double uniform() {
    return static_cast<double>(splitmix64((seed_ << 32) + next_++) >> 11) * 0x1p-53;
  }
  /// Returns a number from about N(0, 1): the sum of twelve uniform numbers, minus 6.
  double normal();
  int32_t below(int32_t end) { return static_cast<int32_t>(uniform() * end); }
  std::vector<float> uniforms(int64_t count, double low, double high);
  std::vector<float> normals(int64_t count, double deviation = 1.0, double mean = 0.0);

 private:
  uint64_t seed_, next_ = 0;
};

/// While an object lives, nets of its thread draw numbers from another seed; names stay the same.
class OtherData {
 public:
  explicit OtherData(uint64_t seed);
  OtherData(const OtherData&) = delete;
  OtherData& operator=(const OtherData&) = delete;
  ~OtherData();

 private:
  uint64_t before_;
};

class Net {
 public:
  explicit Net(uint64_t seed);

  Draw draw;

  // Inputs, variables and outputs get a meaningless name unless they are given one.
  /// Adds an input for `shape[0]` samples at once; `values` are those of all samples.
  ValueId in(const Shape& shape, std::vector<float> values, const std::string& named = "");
  ValueId index_in(const Shape& shape, std::vector<int32_t> values, const std::string& named = "");
  /// Adds a trained variable that starts with these values.
  ValueId variable(const Shape& shape, std::vector<float> values, const std::string& named = "");
  ValueId buffer(const Shape& shape, std::vector<float> values);
  ValueId constant(const Shape& shape, std::vector<float> values);
  ValueId constant(double value) { return graph().add_constant(static_cast<float>(value)); }

  ValueId op(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {});
  /// Adds a node with a name that plans can refer to.
  ValueId op_at(const std::string& path, const std::string& op, std::vector<ValueId> inputs,
                Attributes attributes = {});

  ValueId add(ValueId a, ValueId b) { return op("Add", {a, b}); }
  ValueId sub(ValueId a, ValueId b) { return op("Sub", {a, b}); }
  ValueId mul(ValueId a, ValueId b) { return op("Mul", {a, b}); }
  ValueId div(ValueId a, ValueId b) { return op("Div", {a, b}); }
  ValueId sum(ValueId x, std::vector<int64_t> axes, bool keep = true) {
    return op("ReduceSum", {x}, {{"axes", std::move(axes)}, {"keepdims", int64_t{keep}}});
  }
  ValueId mean(ValueId x, std::vector<int64_t> axes, bool keep = true) {
    return op("ReduceMean", {x}, {{"axes", std::move(axes)}, {"keepdims", int64_t{keep}}});
  }
  /// Adds the mean of all elements, a scalar.
  ValueId mean_of_all(ValueId x);
  ValueId reshape(ValueId x, Shape shape) {
    return op("Reshape", {x}, {{"shape", std::move(shape)}});
  }
  ValueId columns(ValueId x, int64_t first, int64_t end);

  /// Adds a linear layer with normal weights of deviation `gain` / sqrt(inputs) and a zero bias.
  ValueId linear(ValueId x, int64_t out, double gain = 1.0);
  /// Adds x w^T + b with these weights [out, in].
  ValueId linear(ValueId x, int64_t out, std::vector<float> weights);
  ValueId conv(ValueId x, int64_t out, int64_t kernel, double gain = 1.0);
  ValueId layer_norm(ValueId x, double scale = 1.0);
  /// Adds a batch normalization in training mode.
  ValueId batch_norm(ValueId x);

  /// Returns the path of the node that produces a value, or of the variable.
  std::string path_of(ValueId value) const;
  // Labels of the case, by the outputs of nodes or by path; see Labels.
  void root(const std::string& path) { labels_.root.push_back(path); }
  void root(ValueId value) { root(path_of(value)); }
  void symptom(const std::string& path) { labels_.first_symptom = path; }
  void symptom(ValueId value) { symptom(path_of(value)); }
  void decoy(const std::string& path) { labels_.decoys.push_back(path); }
  void decoy(ValueId value) { decoy(path_of(value)); }
  /// Adds a change to the smallest fix.
  void fix(const Change& change) { labels_.fix.add(change); }
  /// Adds a change of the whole lane.
  void fix(FixKind kind) { fix(Change{.kind = kind}); }
  void fix(FixKind kind, const std::string& path) { fix(Change{.kind = kind, .path = path}); }
  void fix(FixKind kind, ValueId value) { fix(kind, path_of(value)); }
  void fix_each(FixKind kind, const std::vector<ValueId>& values) {
    for (const ValueId value : values) fix(kind, value);
  }

  /// Sets up inference of this output on all samples of the inputs.
  Setup infer(ValueId output);
  /// Set up training: with a loss that the network computes, on scores with labels (one per row),
  /// or on predictions with targets.
  Setup train_loss(ValueId loss, const std::string& optimizer, int64_t steps);
  Setup train_classes(ValueId scores, std::vector<int32_t> labels, const std::string& optimizer,
                      int64_t steps);
  Setup train_squares(ValueId prediction, std::vector<float> targets, const std::string& optimizer,
                      int64_t steps);

  const Node& made_by(ValueId value) const {
    return model_.graph.node(model_.graph.value(value).producer);
  }
  const Shape& shape(ValueId value) const { return model_.graph.value(value).shape; }
  Graph& graph() { return model_.graph; }
  /// Returns the samples of the first input.
  int64_t samples() const { return arrays_.front().samples; }

 private:
  std::string name();
  void add_array(const std::string& name, const Shape& shape, std::vector<float> reals,
                 std::vector<int32_t> integers);
  Setup training(const std::string& optimizer, int64_t steps);

  uint64_t seed_, names_ = 0;
  Model model_;
  int64_t batch_ = 0;
  std::vector<SampleArray> arrays_;
  Labels labels_;
};

}  // namespace halfscope::zoo
