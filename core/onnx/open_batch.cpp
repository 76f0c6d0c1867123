// SPDX-License-Identifier: MIT
#include "core/onnx/open_batch.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/onnx/exporter.h"
#include "core/onnx/model_file.h"
#include "core/onnx/node_order.h"
#include "core/onnx/tensor_proto.h"

namespace halfscope {
namespace {

using ::onnx::GraphProto;
using ::onnx::NodeProto;
using ::onnx::TensorProto;
using onnx_files::KnownTensor;

/// A reason why the number of samples is fixed.
struct Obstacle {
  std::string text;
};

::onnx::ModelProto parsed(const std::string& bytes, const std::string& name) {
  return onnx_files::parse_model({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()},
                                 name);
}

class Opener {
 public:
  Opener(GraphProto& graph, const GraphProto& other, int64_t samples, int64_t more,
         std::string dimension)
      : graph_(graph),
        other_(other),
        samples_(samples),
        more_(more),
        dimension_(std::move(dimension)) {}

  void run() {
    check_nodes();
    for (const NodeProto& node : graph_.node()) {
      taken_.insert(node.output().begin(), node.output().end());
      node_names_.insert(node.name());
    }
    for (const TensorProto& tensor : graph_.initializer()) taken_.insert(tensor.name());
    for (int i = 0; i < graph_.input_size(); ++i) {
      taken_.insert(graph_.input(i).name());
      open_dimensions(*graph_.mutable_input(i), other_.input(i), true);
    }
    if (source_.empty()) throw Obstacle{"no input has a dimension for the samples"};
    for (int i = 0; i < graph_.output_size(); ++i)
      open_dimensions(*graph_.mutable_output(i), other_.output(i), false);
    const int initializers = graph_.initializer_size();
    for (int i = 0; i < initializers; ++i) open_initializer(i);
    for (size_t i = dropped_.size(); i-- > 0;)
      graph_.mutable_initializer()->DeleteSubrange(dropped_[i], 1);
    // They read inputs and initializers alone: all come first.
    std::vector<NodeProto> later(graph_.node().begin(), graph_.node().end());
    graph_.clear_node();
    for (const auto* list : {&added_, &later}) {
      for (const NodeProto& node : *list) *graph_.add_node() = node;
    }
  }

 private:
  static std::string described(const NodeProto& node) { return onnx_files::describe(node); }

  void check_nodes() const {
    const auto differs = [](const NodeProto& a, const NodeProto& b) {
      return a.SerializeAsString() != b.SerializeAsString();
    };
    const int count = std::min(graph_.node_size(), other_.node_size());
    for (int i = 0; i < count; ++i) {
      if (differs(graph_.node(i), other_.node(i)))
        throw Obstacle{described(graph_.node(i)) + " depends on it"};
    }
    if (graph_.node_size() != other_.node_size() || graph_.input_size() != other_.input_size() ||
        graph_.output_size() != other_.output_size() ||
        graph_.initializer_size() != other_.initializer_size()) {
      throw Obstacle{"the nodes of the network depend on it"};
    }
  }

  /// How many times the samples a size is that differs in the two files; 0 if it is not that.
  int64_t multiple(int64_t a, int64_t b) const {
    if (a <= 0 || a % samples_ != 0 || b % more_ != 0) return 0;
    return a / samples_ == b / more_ ? a / samples_ : 0;
  }

  void open_dimensions(::onnx::ValueInfoProto& info, const ::onnx::ValueInfoProto& other,
                       bool input) {
    auto& shape = *info.mutable_type()->mutable_tensor_type()->mutable_shape();
    const auto& wanted = other.type().tensor_type().shape();
    for (int d = 0; d < shape.dim_size(); ++d) {
      const int64_t a = shape.dim(d).dim_value(), b = wanted.dim(d).dim_value();
      if (a == b) continue;
      const int64_t times = multiple(a, b);
      if (times == 0 || (input && times != 1))
        throw Obstacle{info.name() + " has " + std::to_string(a) + " for " +
                       std::to_string(samples_) + " samples, but " + std::to_string(b) + " for " +
                       std::to_string(more_)};
      shape.mutable_dim(d)->clear_value();
      if (times == 1) shape.mutable_dim(d)->set_dim_param(dimension_);
      if (input && source_.empty()) {
        source_ = info.name();
        source_dimension_ = d;
      }
    }
  }

  struct Reader {
    NodeProto* node;
    int input;
  };
  std::vector<Reader> readers(const std::string& name) {
    std::vector<Reader> list;
    for (NodeProto& node : *graph_.mutable_node()) {
      for (int i = 0; i < node.input_size(); ++i) {
        if (node.input(i) == name) list.push_back({&node, i});
      }
    }
    return list;
  }

  void open_initializer(int i) {
    const TensorProto &a = graph_.initializer(i), &b = other_.initializer(i);
    const bool same_shape =
        std::equal(a.dims().begin(), a.dims().end(), b.dims().begin(), b.dims().end());
    if (a.name() != b.name()) throw Obstacle{"the name of " + a.name() + " depends on it"};
    if (same_shape && a.raw_data() == b.raw_data() &&
        (!a.raw_data().empty() || a.SerializeAsString() == b.SerializeAsString())) {
      return;
    }
    const std::vector<Reader> used = readers(a.name());
    const std::string where = used.empty() ? a.name() : described(*used.front().node);
    const KnownTensor mine = onnx_files::read_tensor(a, {}, where);
    const KnownTensor theirs = onnx_files::read_tensor(b, {}, where);
    const bool shapes = std::all_of(used.begin(), used.end(), [](const Reader& reader) {
      const std::string& op = reader.node->op_type();
      return reader.input == 1 && (op == "Reshape" || op == "Expand");
    });
    if (shapes && same_shape && !mine.real()) {
      open_target(i, mine, theirs, used, where);
    } else {
      open_rows(i, mine, theirs, used, where);
    }
  }

  /// The shape that a Reshape or an Expand wants.
  void open_target(int at, const KnownTensor& mine, const KnownTensor& theirs,
                   const std::vector<Reader>& used, const std::string& where) {
    std::vector<size_t> differing;
    for (size_t d = 0; d < mine.ints.size(); ++d) {
      if (mine.ints[d] != theirs.ints[d]) differing.push_back(d);
    }
    const bool reshapes = std::all_of(used.begin(), used.end(), [](const Reader& reader) {
      return reader.node->op_type() == "Reshape" && reader.node->attribute_size() == 0;
    });
    if (reshapes && differing.size() == 1) {
      KnownTensor target = mine;
      target.ints[differing[0]] = -1;
      const std::string name = graph_.initializer(at).name();
      graph_.mutable_initializer(at)->Clear();
      onnx_files::write_tensor(target, name, *graph_.mutable_initializer(at));
      return;
    }
    const std::string shape = run_time_shape(mine.ints, theirs.ints, where);
    for (const Reader& reader : used) reader.node->set_input(reader.input, shape);
    dropped_.push_back(at);
  }

  /// A constant of one row for every sample, all alike: one row, and as many as there are samples.
  void open_rows(int at, const KnownTensor& mine, const KnownTensor& theirs,
                 const std::vector<Reader>& used, const std::string& where) {
    size_t axis = mine.shape.size();
    for (size_t d = 0; d < mine.shape.size() && mine.shape.size() == theirs.shape.size(); ++d) {
      if (mine.shape[d] == theirs.shape[d]) continue;
      if (axis != mine.shape.size()) throw Obstacle{where + " depends on it in several dimensions"};
      axis = d;
    }
    if (axis == mine.shape.size() || mine.type != theirs.type)
      throw Obstacle{where + " computes with it"};
    KnownTensor row = rows_of(mine, axis, 1);
    for (const KnownTensor* each : {&mine, &theirs}) {
      const KnownTensor repeated = rows_of(row, axis, each->shape[axis]);
      if (repeated.reals != each->reals || repeated.ints != each->ints)
        throw Obstacle{where + " has different numbers for each sample"};
    }
    const std::string name = graph_.initializer(at).name();
    graph_.mutable_initializer(at)->Clear();
    onnx_files::write_tensor(row, name, *graph_.mutable_initializer(at));
    const std::string shape = run_time_shape(mine.shape, theirs.shape, where);
    const std::string all = fresh(name + "_samples");
    add("Expand", all, {name, shape}, all);
    for (const Reader& reader : used) reader.node->set_input(reader.input, all);
  }

  /// The tensor with this many times its first row along an axis.
  static KnownTensor rows_of(const KnownTensor& x, size_t axis, int64_t count) {
    KnownTensor result{.type = x.type, .shape = x.shape};
    result.shape[axis] = count;
    int64_t inner = 1, outer = 1;
    for (size_t d = 0; d < x.shape.size(); ++d)
      (d < axis ? outer : inner) *= d == axis ? 1 : x.shape[d];
    const auto fill = [&](const auto& from, auto& to) {
      for (int64_t o = 0; o < outer && !from.empty(); ++o) {
        const auto begin = from.begin() + o * x.shape[axis] * inner;
        for (int64_t i = 0; i < count; ++i) to.insert(to.end(), begin, begin + inner);
      }
    };
    fill(x.reals, result.reals);
    fill(x.ints, result.ints);
    return result;
  }

  /// A list of sizes some of which are multiples of the samples.
  std::string run_time_shape(const std::vector<int64_t>& mine, const std::vector<int64_t>& theirs,
                             const std::string& where) {
    std::vector<std::string> parts;
    std::vector<int64_t> fixed;
    const auto end_fixed = [&] {
      if (!fixed.empty()) parts.push_back(list(fixed));
      fixed.clear();
    };
    for (size_t d = 0; d < mine.size(); ++d) {
      if (mine[d] == theirs[d]) {
        fixed.push_back(mine[d]);
        continue;
      }
      const int64_t times = multiple(mine[d], theirs[d]);
      if (times == 0) throw Obstacle{where + " has a size that is not a multiple of it"};
      end_fixed();
      parts.push_back(samples_times(times));
    }
    end_fixed();
    if (parts.size() == 1) return parts[0];
    const std::string result = fresh(dimension_ + "_shape");
    onnx_files::set_attribute(add("Concat", result, parts, result), "axis", int64_t{0});
    return result;
  }

  /// The number of samples, or so many times that, as a list of one.
  std::string samples_times(int64_t times) {
    if (times != 1) {
      const std::string result = fresh(dimension_ + "_times_" + std::to_string(times));
      add("Mul", result, {samples_times(1), list({times})}, result);
      return result;
    }
    if (count_.empty()) {
      count_ = fresh(dimension_ + "_size");
      NodeProto& node = add("Shape", count_, {source_}, count_);
      onnx_files::set_attribute(node, "start", int64_t{source_dimension_});
      onnx_files::set_attribute(node, "end", int64_t{source_dimension_} + 1);
    }
    return count_;
  }

  std::string list(const std::vector<int64_t>& values) {
    const std::string name = fresh(dimension_ + "_sizes");
    onnx_files::write_tensor(onnx_files::known_list(values), name, *graph_.add_initializer());
    return name;
  }

  std::string fresh(const std::string& wanted) {
    std::string name = wanted;
    for (int n = 2; !taken_.insert(name).second || node_names_.contains(name); ++n)
      name = wanted + "_" + std::to_string(n);
    return name;
  }

  NodeProto& add(const std::string& op, const std::string& name,
                 const std::vector<std::string>& inputs, const std::string& output) {
    NodeProto& node = added_.emplace_back();
    node.set_op_type(op);
    node.set_name(name);
    for (const std::string& input : inputs) node.add_input(input);
    node.add_output(output);
    return node;
  }

  GraphProto& graph_;
  const GraphProto& other_;
  int64_t samples_, more_;
  std::string dimension_;
  std::string source_;  ///< an input that has the samples for a dimension
  int source_dimension_ = 0;
  std::string count_;  ///< the samples as a list of one, once they are wanted
  std::vector<NodeProto> added_;
  std::vector<int> dropped_;  ///< initializers that nobody reads any more
  std::set<std::string> taken_, node_names_;
};

}  // namespace

OpenedBatch open_batch(const BatchPair& pair, const std::string& dimension,
                       const std::string& name) {
  ::onnx::ModelProto file = parsed(pair.file, name);
  const ::onnx::ModelProto other = parsed(pair.other, name);
  try {
    Opener(*file.mutable_graph(), other.graph(), pair.samples, pair.more, dimension).run();
  } catch (const Obstacle& obstacle) {
    return {.bytes = {}, .obstacle = obstacle.text};
  }
  return {.bytes = onnx_files::model_bytes(file, name), .obstacle = {}};
}

}  // namespace halfscope
