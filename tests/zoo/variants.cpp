// SPDX-License-Identifier: MIT
#include "tests/zoo/variants.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <stdexcept>

#include "core/models/zoo/net.h"
#include "core/numeric/formats/rng.h"
#include "tests/zoo/remake.h"

namespace halfscope::zoo {
namespace {

using Paths = std::map<std::string, std::string>;

constexpr std::string_view kAdded = "added_layer";
/// Identities beyond this width cost too much.
constexpr int64_t kWidest = 128;

/// A random order of 0 .. count - 1.
std::vector<size_t> shuffled(size_t count, Draw& draw) {
  std::vector<size_t> order(count);
  for (size_t i = 0; i < count; ++i) order[i] = i;
  for (size_t i = count; i > 1; --i) {
    std::swap(order[i - 1], order[static_cast<size_t>(draw.below(static_cast<int32_t>(i)))]);
  }
  return order;
}

std::vector<SampleArray>& arrays_of(Setup& setup) {
  return setup.trains ? setup.data.train.arrays : setup.data.test.arrays;
}

/// The case whose network is made by `change` of what it was.
Case changed(const Case& which, const std::function<void(Setup&)>& change) {
  Case result = which;
  result.make = [make = which.make, change] {
    Setup setup = make();
    change(setup);
    return setup;
  };
  return result;
}

/// The new name of a path, which may be a primitive's or a moving average's.
std::string new_name(const Paths& paths, const std::string& path) {
  const auto known = paths.find(path);
  if (known != paths.end()) return known->second;
  const size_t end = path.find_last_of("/.");
  return end == std::string::npos ? path : new_name(paths, path.substr(0, end)) + path.substr(end);
}

Paths names_for(const Setup& setup, Names names) {
  const Graph& graph = setup.model.graph;
  const Labels& labels = setup.labels;
  const auto is_in = [](const std::vector<std::string>& list, const std::string& path) {
    return std::find(list.begin(), list.end(), path) != list.end();
  };
  Paths paths;
  uint64_t count = 0;
  const auto give = [&](const std::string& path) {
    if (paths.contains(path)) return;
    const std::string number = std::to_string(++count);
    std::string name = "w" + std::to_string(splitmix64(count) % 9000 + 1000) + "x" + number;
    if (names == Names::misleading) {
      name = is_in(labels.root, path)     ? "harmless_relu" + number
             : is_in(labels.decoys, path) ? "overflow" + number + "_root"
                                          : "fp32_" + number;
    }
    paths[path] = name;
  };
  for (NodeId i = 0; i < static_cast<NodeId>(graph.nodes().size()); ++i) {
    if (setup.model.first_loss_node == kNone || i < setup.model.first_loss_node) {
      give(graph.node(i).path);
    }
  }
  for (const Variable& each : graph.variables()) give(each.path);
  for (const Input& each : graph.inputs()) {
    if (!is_answer(each.name)) give(each.name);
  }
  return paths;
}

void rename(Setup& setup, const Paths& paths) {
  const auto change = [&](std::string& path) { path = new_name(paths, path); };
  Remake remake(setup.model);
  remake.name = [&](const std::string& path) { return new_name(paths, path); };
  setup.model = remake.run();
  NamedTensors initial;
  for (auto& [path, tensor] : setup.model.initial) {
    initial[new_name(paths, path)] = std::move(tensor);
  }
  setup.model.initial = std::move(initial);
  for (SampleArray& array : arrays_of(setup)) change(array.name);
  for (std::string& path : setup.labels.root) change(path);
  for (std::string& path : setup.labels.decoys) change(path);
  change(setup.labels.first_symptom);
  for (Change& each : setup.labels.fix.changes) {
    if (!each.path.empty()) change(each.path);
  }
}

/// Layers that hand on what they read.
ValueId identities(Graph& graph, ValueId x) {
  const auto path = [&] { return std::string(kAdded) + std::to_string(graph.nodes().size()); };
  const Shape shape = graph.value(x).shape;
  x = graph.add1("Add", path(), {x, graph.add_constant(0.0f)});
  x = graph.add1("Mul", path(), {x, graph.add_constant(1.0f)});
  if (shape.size() < 2 || shape.back() > kWidest) return x;
  const int64_t width = shape.back();
  std::vector<float> identity(static_cast<size_t>(width * width), 0.0f);
  for (int64_t i = 0; i < width; ++i) identity[static_cast<size_t>(i * (width + 1))] = 1.0f;
  return graph.add1("MatMul", path(),
                    {x, graph.add_constant(Tensor{{width, width}, std::move(identity)})});
}

template <class T>
void repeat(std::vector<T>& values) {
  const std::vector<T> once = values;
  values.insert(values.end(), once.begin(), once.end());
}

void widen(Setup& setup) {
  Model& model = setup.model;
  const Graph& graph = model.graph;
  const int64_t batch = graph.value(graph.inputs().front().value).shape.at(0);
  Remake remake(model);
  remake.input_shape = [](Shape shape) {
    shape.at(0) *= 2;
    return shape;
  };
  remake.constant = [batch](Tensor tensor) {
    if (tensor.shape.size() < 2 || tensor.shape[0] != batch) return tensor;
    tensor.shape[0] *= 2;
    repeat(tensor.data);
    return tensor;
  };
  remake.node = [](Graph&, Node& node) {
    const auto shape = node.attributes.find("shape");
    if (shape != node.attributes.end()) std::get<std::vector<int64_t>>(shape->second).at(0) *= 2;
  };
  Model wide = remake.run();
  for (size_t i = 0; i < model.outputs.size(); ++i) {
    Shape shape = graph.value(model.outputs[i].value).shape;
    if (!shape.empty()) shape[0] *= 2;
    if (wide.graph.value(wide.outputs[i].value).shape != shape) {
      throw std::invalid_argument("the network fixes its number of samples");
    }
  }
  model = std::move(wide);
  for (SampleArray& array : arrays_of(setup)) {
    array.samples *= 2;
    repeat(array.reals);
    repeat(array.integers);
  }
  setup.train.batch *= 2;
}

}  // namespace

Case renamed(const Case& which, Names names) {
  const Paths paths = names_for(which.make(), names);
  Case result = changed(which, [paths](Setup& setup) { rename(setup, paths); });
  result.lane = [lane = which.lane, paths](const std::string& text) {
    LaneChoice choice = lane(text);
    for (PlanRule& rule : choice.plan.rules) rule.path = new_name(paths, rule.path);
    return choice;
  };
  return result;
}

Case permuted(const Case& which, uint64_t seed) {
  return changed(which, [seed](Setup& setup) {
    const Graph& graph = setup.model.graph;
    Draw draw(seed);
    Remake remake(setup.model);
    remake.inputs = shuffled(graph.inputs().size(), draw);
    remake.variables = shuffled(graph.variables().size(), draw);
    // Among the nodes whose operands are made any may be next; the loss's stay last.
    const size_t count = graph.nodes().size();
    const size_t loss = setup.model.first_loss_node == kNone
                            ? count
                            : static_cast<size_t>(setup.model.first_loss_node);
    std::vector<bool> done(count, false);
    remake.nodes.clear();
    while (remake.nodes.size() < count) {
      std::vector<size_t> ready;
      for (size_t i = 0; i < (remake.nodes.size() < loss ? loss : count); ++i) {
        const std::vector<ValueId>& inputs = graph.nodes()[i].inputs;
        const bool fed = std::all_of(inputs.begin(), inputs.end(), [&](ValueId input) {
          const NodeId maker = input == kNone ? kNone : graph.value(input).producer;
          return maker == kNone || done[static_cast<size_t>(maker)];
        });
        if (!done[i] && fed) ready.push_back(i);
      }
      const size_t next =
          remake.nodes.size() < loss
              ? ready[static_cast<size_t>(draw.below(static_cast<int32_t>(ready.size())))]
              : remake.nodes.size();
      done[next] = true;
      remake.nodes.push_back(next);
    }
    setup.model = remake.run();
    std::vector<SampleArray>& arrays = arrays_of(setup);
    std::vector<SampleArray> mixed;
    for (const size_t i : shuffled(arrays.size(), draw)) mixed.push_back(std::move(arrays[i]));
    arrays = std::move(mixed);
  });
}

Case deepened(const Case& which, End end) {
  return changed(which, [end](Setup& setup) {
    Remake remake(setup.model);
    const Graph& graph = setup.model.graph;
    const auto wanted = [&](ValueId value) {
      const std::vector<NamedValue>& outputs = setup.model.outputs;
      if (end == End::back) {
        return std::any_of(outputs.begin(), outputs.end(),
                           [&](const NamedValue& each) { return each.value == value; });
      }
      return graph.value(value).type == ElementType::real &&
             std::any_of(graph.inputs().begin(), graph.inputs().end(), [&](const Input& each) {
               return each.value == value && !is_answer(each.name);
             });
    };
    remake.behind = [&](Graph& made, ValueId old, ValueId now) {
      return wanted(old) ? identities(made, now) : now;
    };
    setup.model = remake.run();
  });
}

std::vector<std::string> added_layers(const Model& model) {
  std::vector<std::string> paths;
  for (const Node& node : model.graph.nodes()) {
    if (node.path.starts_with(kAdded)) paths.push_back(node.path);
  }
  return paths;
}

Case widened(const Case& which) { return changed(which, widen); }

Case reseeded(const Case& which, uint64_t seed) {
  Case result = which;
  result.make = [make = which.make, seed] {
    const OtherData other(seed);
    return make();
  };
  return result;
}

Case rescaled(const Case& which, int exponent) {
  return changed(which, [exponent](Setup& setup) {
    for (SampleArray& array : arrays_of(setup)) {
      if (is_answer(array.name)) continue;
      for (float& x : array.reals) x = std::ldexp(x, exponent);
    }
  });
}

std::string in_other_format(const Case& which, const std::string& plan) {
  const bool is_bf16 = plan.find("bfloat16") != std::string::npos;
  const std::string from = is_bf16 ? "bfloat16" : "float16", to = is_bf16 ? "float16" : "bfloat16";
  const size_t at = plan.find(from);
  if (at == std::string::npos) return "";
  std::string other = plan;
  other.replace(at, from.size(), to);
  try {
    (void)which.lane(other);
  } catch (const std::invalid_argument&) {
    return "";
  }
  return other;
}

}  // namespace halfscope::zoo
