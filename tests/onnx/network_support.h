// SPDX-License-Identifier: MIT
// Helpers for the tests of ONNX files: running an imported network, and building files in memory.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/lower/lower.h"
#include "core/onnx/import.h"
#include "core/onnx/proto.h"
#include "core/plan/plan.h"
#include "core/train/lane_setup.h"
#include "emulation/backends.h"

namespace halfscope::test {

/// A network ready to run under a plan.
struct RunningNetwork {
  Executable executable;
  std::unique_ptr<Program> program;
};

inline RunningNetwork start(const Model& model, const Plan& plan) {
  RunningNetwork network{lower_inference(model, plan), nullptr};
  const Backend& backend = plan.double_precision ? float64_backend() : emulation_backend();
  network.program = backend.compile(network.executable);
  write_weights(*network.program, network.executable.graph, starting_weights(model, 1, {}), {});
  return network;
}

/// Inputs in the order of the file; integers come as numbers.
inline std::vector<Tensor> run(const RunningNetwork& network, std::span<const Tensor> inputs) {
  const Graph& graph = network.executable.graph;
  for (size_t i = 0; i < graph.inputs().size() && i < inputs.size(); ++i) {
    const ValueId value = graph.inputs()[i].value;
    if (graph.value(value).type == ElementType::index) {
      const std::vector<int32_t> indices(inputs[i].data.begin(), inputs[i].data.end());
      network.program->write(value, std::span<const int32_t>(indices));
    } else {
      network.program->write(value, std::span<const float>(inputs[i].data));
    }
  }
  network.program->run(Entry::eval, {});
  std::vector<Tensor> outputs;
  for (const NamedValue& output : network.executable.outputs)
    outputs.push_back(network.program->read(output.value));
  return outputs;
}

/// Equal up to `tolerance` of the largest expected element; infinities and NaNs where expected.
inline void expect_close(const Tensor& actual, const Tensor& expected, double tolerance) {
  ASSERT_EQ(actual.shape, expected.shape);
  double largest = 1e-30;
  for (float value : expected.data) {
    if (std::isfinite(value)) largest = std::max(largest, std::fabs(static_cast<double>(value)));
  }
  for (size_t i = 0; i < expected.data.size(); ++i) {
    const float a = actual.data[i], e = expected.data[i];
    if (std::isfinite(e)) {
      ASSERT_NEAR(a, e, tolerance * largest) << "element " << i;
    } else {
      ASSERT_TRUE(a == e || (std::isnan(a) && std::isnan(e))) << "element " << i << ": " << a;
    }
  }
}

/// Builds files in memory.
class FileBuilder {
 public:
  explicit FileBuilder(int64_t opset = 17) {
    file_.set_ir_version(8);
    file_.add_opset_import()->set_version(opset);
  }

  ::onnx::ModelProto& file() { return file_; }
  ::onnx::GraphProto& graph() { return *file_.mutable_graph(); }

  FileBuilder& input(const std::string& name, const std::vector<int64_t>& shape, int type = 1) {
    ::onnx::ValueInfoProto& info = *graph().add_input();
    info.set_name(name);
    ::onnx::TypeProto::Tensor& tensor = *info.mutable_type()->mutable_tensor_type();
    tensor.set_elem_type(type);
    tensor.mutable_shape();
    for (int64_t size : shape) {
      auto& dimension = *tensor.mutable_shape()->add_dim();
      if (size >= 0) dimension.set_dim_value(size);
    }
    return *this;
  }
  FileBuilder& output(const std::string& name) {
    graph().add_output()->set_name(name);
    return *this;
  }
  ::onnx::NodeProto& node(const std::string& op, std::initializer_list<std::string> inputs,
                          std::initializer_list<std::string> outputs,
                          const std::string& name = "") {
    ::onnx::NodeProto& added = *graph().add_node();
    added.set_op_type(op);
    added.set_name(name);
    for (const std::string& each : inputs) added.add_input(each);
    for (const std::string& each : outputs) added.add_output(each);
    return added;
  }
  FileBuilder& floats(const std::string& name, const std::vector<int64_t>& shape,
                      const std::vector<float>& values) {
    ::onnx::TensorProto& tensor = *graph().add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(1);
    for (int64_t size : shape) tensor.add_dims(size);
    for (float value : values) tensor.add_float_data(value);
    return *this;
  }
  FileBuilder& integers(const std::string& name, const std::vector<int64_t>& shape,
                        const std::vector<int64_t>& values) {
    ::onnx::TensorProto& tensor = *graph().add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(7);
    for (int64_t size : shape) tensor.add_dims(size);
    for (int64_t value : values) tensor.add_int64_data(value);
    return *this;
  }

  std::vector<uint8_t> bytes() const {
    const std::string text = file_.SerializeAsString();
    return {text.begin(), text.end()};
  }
  OnnxImport import(const ImportOptions& options = {}) const {
    return parse_onnx(bytes(), "net.onnx", ".", options);
  }

 private:
  ::onnx::ModelProto file_;
};

/// Adds metadata; the classes of older ONNX versions do not have its field (core/onnx/origin.h has
/// the fields' numbers).
inline void add_metadata(google::protobuf::Message& message, int field, const std::string& key,
                         const std::string& value) {
  ::onnx::StringStringEntryProto entry;
  entry.set_key(key);
  entry.set_value(value);
  message.GetReflection()->MutableUnknownFields(&message)->AddLengthDelimited(
      field, entry.SerializeAsString());
}

inline void set_ints(::onnx::NodeProto& node, const std::string& name,
                     const std::vector<int64_t>& values) {
  ::onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(::onnx::AttributeProto::INTS);
  for (int64_t value : values) attribute.add_ints(value);
}
inline void set_int(::onnx::NodeProto& node, const std::string& name, int64_t value) {
  ::onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(::onnx::AttributeProto::INT);
  attribute.set_i(value);
}

}  // namespace halfscope::test
