// SPDX-License-Identifier: MIT
#include "core/onnx/importer.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>

#include "core/error.h"
#include "core/onnx/function_attributes.h"
#include "core/onnx/model_file.h"
#include "core/onnx/module_names.h"
#include "core/onnx/node_order.h"
#include "core/onnx/simplify.h"
#include "core/onnx/tensor_proto.h"
#include "core/onnx/tensorflow_file.h"
#include "core/onnx/translate.h"
#include "core/onnx/values.h"

namespace halfscope::onnx_files {
namespace {

constexpr size_t kMostNodes = 1'000'000;  // functions may expand to more nodes than the file has

using Nodes = google::protobuf::RepeatedPtrField<::onnx::NodeProto>;

bool is_default_domain(const std::string& domain) { return domain.empty() || domain == "ai.onnx"; }

/// Returns whether we support the domain's operators under the names of the default domain.
bool is_known_domain(const std::string& domain) {
  return is_default_domain(domain) || domain == "com.microsoft";
}

/// Frees the elements of a tensor that has been read.
void free_elements(::onnx::TensorProto& proto) {
  // Clearing keeps the memory for later; swapping gives it back.
  ::onnx::TensorProto empty;
  std::string().swap(*proto.mutable_raw_data());
  empty.mutable_float_data()->Swap(proto.mutable_float_data());
  empty.mutable_double_data()->Swap(proto.mutable_double_data());
  empty.mutable_int32_data()->Swap(proto.mutable_int32_data());
  empty.mutable_int64_data()->Swap(proto.mutable_int64_data());
  empty.mutable_uint64_data()->Swap(proto.mutable_uint64_data());
}

}  // namespace

Importer::Importer(::onnx::ModelProto& file, std::string name, std::filesystem::path folder,
                   ImportOptions options)
    : file_(file),
      name_(std::move(name)),
      folder_(std::move(folder)),
      options_(std::move(options)),
      opset_(opset_of(file, name_)) {
  if (options_.batch < 0) throw usage_error("the batch size cannot be negative");
}

OnnxImport Importer::run() {
  check_operators();
  const ::onnx::GraphProto& graph = file_.graph();
  if (graph.sparse_initializer_size() > 0)
    throw Error(name_ + ": sparse initializers are not supported");
  model_.name = std::filesystem::path(name_).stem().string();
  Scope scope;
  for (::onnx::TensorProto& proto : *file_.mutable_graph()->mutable_initializer()) {
    TensorPtr tensor = initializer(proto);
    free_elements(proto);
    initializers_[proto.name()] = tensor;
    bind_initializer(proto, std::move(tensor), scope);
  }
  origins_ = origins_of(graph);
  if (is_from_tensorflow(file_)) find_keras_layers(graph, origins_);
  readings_ = find_readings(file_, initializers_, origins_, options_);
  read_inputs(graph, scope);
  for (const auto& [key, size] : options_.dimensions) {
    if (used_dimensions_.contains(key)) continue;
    throw usage_error("no input has a dimension '" + printable(key) + "'",
                      "name the dimension as in the file, or as INPUT.INDEX");
  }
  run_nodes(graph.node(), scope, 0);
  read_outputs(graph, scope);
  OnnxImport result;
  take_batch(result);
  model_ = simplified(std::move(model_));
  give_weights();
  result.model = composed();
  result.notes = std::move(notes_);
  for (const std::string& text : readings_.notes) result.notes.push_back(text);
  result.constants = std::move(readings_.constants);
  result.doubts = std::move(readings_.doubts);
  result.open_batch = open_batch_;
  result.given_batch = given_batch_;
  result.input_types = std::move(input_types_);
  notes_.clear();
  name_by_module(result.model, modules_);
  result.types = types_of(result.model.graph);
  list_parameters(result);
  return result;
}

void Importer::check_operators() const {
  // List all of them at once, so that nobody has to fix a file one operator at a time.
  std::vector<std::string> missing;
  std::string first;
  const std::function<void(const Nodes&, int)> look = [&](const Nodes& nodes, int depth) {
    if (depth > kDeepest) throw Error(name_ + ": its graphs are nested too deeply");
    for (const ::onnx::NodeProto& node : nodes) {
      const bool known = find_function(node) != nullptr ||
                         (is_known_domain(node.domain()) && is_understood(node.op_type()));
      if (!known) {
        const std::string domain = is_default_domain(node.domain()) ? "" : node.domain() + ".";
        const std::string op = printable(domain + node.op_type());
        if (first.empty()) first = describe(node);
        if (std::find(missing.begin(), missing.end(), op) == missing.end()) missing.push_back(op);
      }
      for (const ::onnx::AttributeProto& attribute : node.attribute())
        look(attribute.g().node(), depth + 1);
    }
  };
  look(file_.graph().node(), 0);
  for (const ::onnx::FunctionProto& function : file_.functions()) look(function.node(), 0);
  if (missing.empty()) return;
  std::string all;
  for (const std::string& op : missing) all += (all.empty() ? "" : ", ") + op;
  throw Error(first + ": this operator is not supported",
              missing.size() == 1
                  ? "see docs/onnx.md for the supported operators"
                  : "the file needs " + all + "; see docs/onnx.md for the supported operators");
}

void Importer::bind(Scope& scope, const std::string& name, BindingPtr binding,
                    const std::string& what) {
  binding->name = name;
  if (!scope.names.emplace(name, std::move(binding)).second)
    throw Error(what + ": its output '" + printable(name) + "' already exists");
}

bool Importer::is_training_export() const {
  const Nodes& nodes = file_.graph().node();
  return std::any_of(nodes.begin(), nodes.end(), [](const ::onnx::NodeProto& node) {
    return node.op_type() == "BatchNormalization" &&
           std::any_of(node.attribute().begin(), node.attribute().end(), [](const auto& each) {
             return each.name() == "training_mode" && each.i() != 0;
           });
  });
}

TensorPtr Importer::initializer(const ::onnx::TensorProto& proto) const {
  return std::make_shared<KnownTensor>(
      read_tensor(proto, folder_, "initializer " + printable(proto.name())));
}

void Importer::bind_initializer(const ::onnx::TensorProto& proto, TensorPtr tensor, Scope& scope) {
  auto binding = std::make_shared<Binding>();
  binding->type = tensor->type;
  binding->trainable = tensor->real() && tensor->count() > 1 && !is_mask(*tensor);
  binding->known = std::move(tensor);
  bind(scope, proto.name(), std::move(binding), "initializer " + printable(proto.name()));
}

/// Moves initial weights into the model. They may be large, so the last variable that starts from a
/// tensor takes it over; only the variables before it get a copy.
void Importer::give_weights() {
  std::map<const KnownTensor*, int> left;
  for (const auto& [path, start] : starts_) ++left[start.get()];
  for (auto& [path, start] : starts_) {
    Tensor& initial = model_.initial[path];
    initial.shape = start->shape;
    if (--left[start.get()] == 0) {
      // The const_cast is safe: the tensor was not created const, and no reader is left.
      initial.data = std::move(std::const_pointer_cast<KnownTensor>(start)->reals);
    } else {
      initial.data = start->reals;
    }
    start.reset();
  }
  starts_.clear();
}

Shape Importer::input_shape(const ::onnx::ValueInfoProto& input) {
  const std::string what = "input " + printable(input.name());
  if (!input.type().has_tensor_type() || !input.type().tensor_type().has_shape())
    throw Error(what + ": its shape is missing",
                "export the network with the shapes of its inputs");
  const ::onnx::TensorShapeProto& proto = input.type().tensor_type().shape();
  Shape shape;
  std::string batch_name;
  for (int i = 0; i < proto.dim_size(); ++i) {
    const ::onnx::TensorShapeProto::Dimension& dimension = proto.dim(i);
    const std::string place = input.name() + "." + std::to_string(i);
    const auto given = [&]() -> std::optional<int64_t> {
      for (const std::string& key : {place, dimension.dim_param()}) {
        if (key.empty()) continue;
        if (const auto found = options_.dimensions.find(key); found != options_.dimensions.end()) {
          used_dimensions_.insert(key);
          if (i == 0 && given_batch_.empty()) given_batch_ = printable(key);
          return found->second;
        }
      }
      return std::nullopt;
    }();
    const bool fixed = dimension.has_dim_value();
    int64_t size = fixed ? dimension.dim_value() : 0;
    if (i == 0 && fixed && proto.dim_size() > 1) fixed_batch_ = size;
    if (given) {
      size = *given;
    } else if (!fixed && i == 0) {
      size = std::max<int64_t>(options_.batch, 1);
      const std::string name = printable(dimension.dim_param());
      if (open_batch_.empty()) open_batch_ = name.empty() ? "batch" : name;
    } else if (!fixed && !batch_name.empty() && dimension.dim_param() == batch_name) {
      size = shape[0];
    } else if (!fixed) {
      const std::string key = dimension.dim_param().empty() ? place : dimension.dim_param();
      throw usage_error(what + ": the size of dimension '" + printable(key) + "' is not fixed",
                        "set it, for example with --dimension " + printable(key) + "=16");
    }
    if (i == 0 && !fixed) batch_name = dimension.dim_param();
    shape.push_back(size);
  }
  checked_count(shape, what);
  if (element_count(shape) == 0)
    throw Error(what + ": shape " + to_string(shape) + " has no elements");
  return shape;
}

/// Returns whether the file fixes the first dimension of an input at one sample. A real vector with
/// a single number does not count: the number may be the same for all samples.
bool Importer::fixed_at_one(const ::onnx::ValueInfoProto& input, const Shape& shape) const {
  const ::onnx::TypeProto::Tensor& type = input.type().tensor_type();
  const auto data = static_cast<DataType>(type.elem_type());
  return !shape.empty() && shape[0] == 1 && type.shape().dim(0).has_dim_value() &&
         (shape.size() > 1 || is_integer(data)) &&
         !options_.dimensions.contains(input.name() + ".0");
}

void Importer::read_inputs(const ::onnx::GraphProto& graph, Scope& scope) {
  std::vector<ValueId> one_sample;
  for (const ::onnx::ValueInfoProto& input : graph.input()) {
    if (scope.names.contains(input.name())) continue;  // up to IR version 3, initializers too
    const Shape shape = input_shape(input);
    const std::string what = "input " + printable(input.name());
    auto binding = std::make_shared<Binding>();
    binding->type = static_cast<DataType>(input.type().tensor_type().elem_type());
    if (!is_real(binding->type) && !is_integer(binding->type))
      throw Error(what + ": inputs of " + type_name(binding->type) + " are not supported");
    const bool index = is_integer(binding->type) && is_index_input(input.name());
    binding->value = model_.graph.add_input(printable(input.name()), shape,
                                            index ? ElementType::index : ElementType::real);
    input_types_[model_.graph.inputs().back().name] = type_name(binding->type);
    if (fixed_at_one(input, shape)) one_sample.push_back(binding->value);
    elements_ += element_count(shape);
    if (model_.input == kNone && !index) model_.input = binding->value;
    bind(scope, input.name(), std::move(binding), what);
  }
  if (one_sample.empty() || !open_batch_.empty() || options_.batch <= 1) return;
  samples_ = std::make_unique<SampleAxes>(model_.graph, options_.batch);
  for (const ValueId value : one_sample) samples_->add_input(value);
}

/// Returns whether an input of integers stays integer. If the file only moves the integers and
/// casts them to float, like the pixels of an image, the input is real from the start.
bool Importer::is_index_input(const std::string& name) const {
  std::deque<std::string> open{name};
  std::set<std::string> seen{name};
  const std::set<std::string> passing{"Identity", "Reshape",   "Squeeze", "Unsqueeze", "Flatten",
                                      "Expand",   "Transpose", "Slice",   "Split"};
  bool becomes_real = false;
  std::unordered_map<std::string, std::vector<const ::onnx::NodeProto*>> readers;
  for (const ::onnx::NodeProto& node : file_.graph().node()) {
    for (const std::string& input : node.input()) readers[input].push_back(&node);
  }
  while (!open.empty()) {
    const std::string current = open.front();
    open.pop_front();
    for (const ::onnx::NodeProto* reader : readers[current]) {
      const ::onnx::NodeProto& node = *reader;
      for (int i = 0; i < node.input_size(); ++i) {
        if (node.input(i) != current) continue;
        const std::string& op = node.op_type();
        if (op == "Shape" || op == "Size") continue;
        if (op == "Cast") {
          const std::string what = describe(node);
          if (!is_real(static_cast<DataType>(NodeAttributes(node, what).integer("to", 0))))
            return true;
          becomes_real = true;
          continue;
        }
        if (!passing.contains(op) || i != 0 || find_function(node) != nullptr) return true;
        for (const std::string& output : node.output()) {
          if (seen.insert(output).second) open.push_back(output);
        }
      }
    }
  }
  return !becomes_real;
}

void Importer::run_nodes(const Nodes& nodes, Scope& scope, int depth) {
  if (depth > kDeepest) throw Error(name_ + ": its functions are nested too deeply");
  for (const ::onnx::NodeProto* node : in_order(nodes)) run_node(*node, scope, depth);
}

void Importer::run_node(const ::onnx::NodeProto& node, Scope& scope, int depth) {
  if (++nodes_run_ > kMostNodes) throw Error(name_ + ": the network has more than a million nodes");
  const std::string what = describe(node);
  const NodeAttributes attributes(node, what);
  std::vector<BindingPtr> inputs;
  for (const std::string& input : node.input()) {
    inputs.push_back(input.empty() ? nullptr : scope.find(input));
    if (!input.empty() && inputs.back() == nullptr && !scope.names.contains(input))
      throw Error(what + ": its input '" + printable(input) + "' is " + why_missing(input));
  }
  // Exporters write initializers of equal values once, and an Identity for every other one.
  const bool copies = node.op_type() == "Identity" && find_function(node) == nullptr &&
                      inputs.size() == 1 && node.output_size() == 1 && !node.output(0).empty() &&
                      !casts_in_code(node);
  if (copies && inputs[0] != nullptr && inputs[0]->known && inputs[0]->trainable) {
    if (!scope.names.emplace(node.output(0), inputs[0]).second)
      throw Error(what + ": its output '" + printable(node.output(0)) + "' already exists");
    return;
  }
  if (scope.outer == nullptr && depth == 0) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Reading* reading = readings_.find(node, static_cast<int>(i));
      if (reading != nullptr) inputs[i] = binding_of(*reading, inputs[i]);
    }
    restore_bias(node, attributes, inputs);
  }
  if (!casts_in_code(node) && fold_node(node, attributes, inputs, scope, what)) return;
  std::string wanted = node.name();
  if (wanted.empty() && node.output_size() > 0) wanted = node.output(0);
  const std::string path =
      unique_path(scope.prefix + printable(wanted.empty() ? node.op_type() : wanted));
  if (const auto found = origins_.find(&node); found != origins_.end()) {
    const NodeOrigin& origin = found->second;
    if (origin.known) modules_[path] = module_of(node, origin);
    if (origin.reads_copy) copies_.insert(path);
  }
  if (const ::onnx::FunctionProto* function = find_function(node)) {
    run_function(node, *function, scope, path, what, depth);
    return;
  }
  if (node.op_type() == "If") {
    run_branch(node, attributes, scope, path, what, depth);
    return;
  }
  if (run_unrolled(node, attributes, inputs, scope, path, what, depth)) return;
  const Translate translate = find_translator(node.op_type());
  if (translate == nullptr) {
    throw Error(what +
                    ": this operator is only supported for values that are known when the file "
                    "is read, but its inputs are computed at run time",
                "see docs/onnx.md for the supported operators");
  }
  const std::vector<BindingPtr> made = translated(translate, node, attributes, inputs, path, what);
  for (int i = 0; i < node.output_size(); ++i) {
    const std::string& output = node.output(i);
    if (output.empty()) continue;
    // Outputs that we do not compute, such as statistics, only matter if a node reads them.
    if (static_cast<size_t>(i) < made.size() && made[static_cast<size_t>(i)] != nullptr) {
      bind(scope, output, made[static_cast<size_t>(i)], what);
    } else {
      left_out_[output] = "output " + std::to_string(i + 1) + " of " + what;
    }
  }
}

std::string Importer::why_missing(const std::string& value) const {
  const auto found = left_out_.find(value);
  if (found == left_out_.end()) return "not produced by any node";
  return found->second + ", which is not supported";
}

std::vector<BindingPtr> Importer::translated(Translate translate, const ::onnx::NodeProto& node,
                                             const NodeAttributes& attributes,
                                             const std::vector<BindingPtr>& inputs,
                                             const std::string& path, const std::string& what) {
  const size_t first = model_.graph.nodes().size();
  Translation translation(*this, node, attributes, inputs, path, what);
  translate(translation);
  // Nodes with other types have already been entered by set_node_type().
  for (size_t i = first; i < model_.graph.nodes().size(); ++i)
    node_types_.try_emplace(model_.graph.nodes()[i].path, translation.result_type());
  note_function(node, first);
  return translation.outputs();
}

bool Importer::fold_node(const ::onnx::NodeProto& node, const NodeAttributes& attributes,
                         const std::vector<BindingPtr>& inputs, Scope& scope,
                         const std::string& what) {
  const std::string& op = node.op_type();
  if (!is_known_domain(node.domain()) || find_function(node) != nullptr) return false;
  const bool of_shape = op == "Shape" || op == "Size";  // known for any value
  FoldCall call{.node = node,
                .attributes = attributes,
                .in = {},
                .opset = opset_,
                .folder = folder_,
                .what = what};
  std::vector<KnownTensor> shapes;
  shapes.reserve(inputs.size());
  for (const BindingPtr& input : inputs) {
    if (input != nullptr && input->known == nullptr) {
      if (!of_shape) return false;
      shapes.push_back({.shape = model_.graph.value(input->value).shape});
      call.in.push_back(&shapes.back());
      continue;
    }
    // Scales of quantized weights are part of their encoding.
    const bool computed = input != nullptr && input->trainable;
    if (computed && !of_shape && op != "DequantizeLinear") return false;
    call.in.push_back(input == nullptr ? nullptr : input->known.get());
  }
  std::optional<Folded> results = fold_twice(call);
  if (!results) return false;
  for (int i = 0; i < node.output_size() && i < static_cast<int>(results->outputs.size()); ++i) {
    if (node.output(i).empty()) continue;
    auto binding = std::make_shared<Binding>();
    auto tensor =
        std::make_shared<KnownTensor>(std::move(results->outputs[static_cast<size_t>(i)]));
    binding->several = fold_with_batch(call, inputs, *tensor, static_cast<size_t>(i));
    folded_ += tensor->count() + (binding->several ? binding->several->count() : 0);
    if (folded_ > kMostFolded)
      throw Error(what + ": up to this node, the constants have more than " +
                  std::to_string(kMostFolded) + " elements");
    binding->type = tensor->type;
    binding->known = std::move(tensor);
    if (results->rounds_within[static_cast<size_t>(i)] && binding->several == nullptr)
      compute_at_run_time(*binding, node, inputs, scope.prefix, i);
    bind(scope, node.output(i), std::move(binding), what);
  }
  return true;
}

/// Lanes in different formats get different numbers from such a node, so it is added to the graph
/// once something computes with its output.
void Importer::compute_at_run_time(Binding& binding, const ::onnx::NodeProto& node,
                                   const std::vector<BindingPtr>& inputs, const std::string& prefix,
                                   int output) {
  const Translate translate = find_translator(node.op_type());
  if (translate == nullptr) return;
  // The node of a function's body may no longer exist when this is called.
  const auto copy = std::make_shared<::onnx::NodeProto>(node);
  binding.at_run_time = [this, copy, translate, inputs, prefix, output] {
    const std::string what = describe(*copy);
    const NodeAttributes attributes(*copy, what);
    const std::string wanted = copy->name().empty() ? copy->output(0) : copy->name();
    const std::string path = unique_path(prefix + printable(wanted));
    const auto made = translated(translate, *copy, attributes, inputs, path, what);
    return made.at(static_cast<size_t>(output))->value;
  };
}

const ::onnx::FunctionProto* Importer::find_function(const ::onnx::NodeProto& node) const {
  for (const ::onnx::FunctionProto& function : file_.functions()) {
    if (function.name() == node.op_type() && function.domain() == node.domain()) return &function;
  }
  return nullptr;
}

void Importer::run_branch(const ::onnx::NodeProto& node, const NodeAttributes& attributes,
                          Scope& scope, const std::string& path, const std::string& what,
                          int depth) {
  const BindingPtr condition = node.input_size() > 0 ? scope.find(node.input(0)) : nullptr;
  if (condition == nullptr || condition->known == nullptr || condition->known->count() != 1) {
    throw Error(what + ": its condition is only known at run time, which is not supported",
                "export the network so that it always takes the same branch");
  }
  if (condition->several != nullptr && samples() != nullptr)
    samples()->refuse(what, "its condition depends on the number of samples");
  const ::onnx::GraphProto* branch =
      attributes.graph(condition->known->number(0) != 0.0 ? "then_branch" : "else_branch");
  if (branch == nullptr) throw Error(what + ": a branch is missing");
  Scope inner{.outer = &scope, .prefix = path + "/"};
  for (const ::onnx::TensorProto& proto : branch->initializer())
    bind_initializer(proto, initializer(proto), inner);
  run_nodes(branch->node(), inner, depth + 1);
  for (int i = 0; i < node.output_size(); ++i) {
    if (node.output(i).empty()) continue;
    const BindingPtr result =
        i < branch->output_size() ? inner.find(branch->output(i).name()) : nullptr;
    if (result == nullptr) throw Error(what + ": an output of its branch is missing");
    bind(scope, node.output(i), std::make_shared<Binding>(*result), what);
  }
}

void Importer::run_function(const ::onnx::NodeProto& node, const ::onnx::FunctionProto& function,
                            Scope& scope, const std::string& path, const std::string& what,
                            int depth) {
  Scope inner{.outer = nullptr, .prefix = path + "/"};
  for (int i = 0; i < function.input_size(); ++i) {  // null for optional ones left out
    const bool given = i < node.input_size() && !node.input(i).empty();
    inner.names.emplace(function.input(i), given ? scope.find(node.input(i)) : nullptr);
  }
  Nodes body = function.node();
  const auto defaults = function_defaults_.try_emplace(&function);
  if (defaults.second) defaults.first->second = defaults_of(function);
  for (::onnx::NodeProto& each : body) give_attributes(each, node, defaults.first->second, what, 0);
  run_nodes(body, inner, depth + 1);
  for (int i = 0; i < node.output_size() && i < function.output_size(); ++i) {
    if (node.output(i).empty()) continue;
    const BindingPtr result = inner.find(function.output(i));
    if (result == nullptr)
      throw Error(what + ": output '" + function.output(i) + "' of its function is missing");
    bind(scope, node.output(i), std::make_shared<Binding>(*result), what);
  }
}

void Importer::read_outputs(const ::onnx::GraphProto& graph, const Scope& scope) {
  for (const ::onnx::ValueInfoProto& output : graph.output()) {
    const std::string what = "output " + printable(output.name());
    const BindingPtr binding = scope.find(output.name());
    if (binding == nullptr) throw Error(what + " is " + why_missing(output.name()));
    if (binding->sequence != nullptr)
      throw Error(what + ": it is a list of tensors, which is not supported");
    if (binding->value == kNone) {
      note(what + " does not depend on any input and is left out");
      continue;
    }
    model_.outputs.push_back({printable(output.name()), binding->value});
  }
  if (model_.outputs.empty()) throw Error(name_ + ": no output depends on an input");
}

namespace {

/// Returns `wanted`, or the first unused one of wanted_2, wanted_3 ...
std::string free_path(std::map<std::string, int>& taken, const std::string& wanted) {
  int& last = taken[wanted];
  if (++last == 1) return wanted;
  while (true) {
    std::string path = wanted + "_" + std::to_string(last);
    if (taken.try_emplace(path, 1).second) return path;
    ++last;
  }
}

}  // namespace

std::string Importer::unique_path(const std::string& wanted) { return free_path(paths_, wanted); }

std::string Importer::variable_path(const std::string& wanted) {
  return free_path(variable_paths_, wanted);
}

void Importer::note(const std::string& text) {
  if (std::find(notes_.begin(), notes_.end(), text) == notes_.end()) notes_.push_back(text);
}

std::vector<ValueId> Importer::add(const std::string& op, const std::string& path,
                                   std::vector<ValueId> inputs, Attributes attributes) {
  std::vector<ValueId> outputs =
      model_.graph.add(op, path, std::move(inputs), std::move(attributes));
  for (ValueId output : outputs) {
    elements_ += checked_count(model_.graph.value(output).shape, path + " (" + op + ")");
    if (elements_ > kMostElements) throw too_many_numbers(path + " (" + op + ")");
  }
  if (samples_ != nullptr) samples_->follow();
  return outputs;
}

ValueId Importer::index_value(Binding& binding, const std::string& what) {
  if (binding.known == nullptr) {
    if (model_.graph.value(binding.value).type == ElementType::index) return binding.value;
    throw Error(what +
                ": its indices are real numbers computed at run time, which is not supported");
  }
  if (binding.as_index != kNone) return binding.as_index;
  const KnownTensor& known = *binding.known;
  if (known.real()) throw Error(what + ": its indices must be integers");
  std::vector<int32_t> indices;
  for (int64_t value : known.ints) {
    if (value < INT32_MIN || value > INT32_MAX)
      throw Error(what + ": index " + std::to_string(value) + " is out of range");
    indices.push_back(static_cast<int32_t>(value));
  }
  elements_ += known.count();
  return binding.as_index = model_.graph.add_index_constant(known.shape, std::move(indices));
}

ValueId Importer::buffer(const KnownTensor& start, const std::string& path,
                         const std::string& role) {
  const std::string name = variable_path(path + "." + role);
  model_.initial[name] = {start.shape, start.true_reals()};
  return model_.graph.add_buffer(name, start.shape, {});
}

void Importer::set_buffer_next(ValueId buffer, ValueId next) {
  for (Variable& variable : model_.graph.variables()) {
    if (variable.value == buffer) variable.next = next;
  }
}

}  // namespace halfscope::onnx_files
