// SPDX-License-Identifier: MIT
#include "core/lower/rounded_steps.h"

#include "core/error.h"

namespace halfscope {
namespace {

/// Adds nodes of the update phase that round to one format.
class RoundingNodes {
 public:
  RoundingNodes(Graph& graph, std::string path, const FloatFormat& format)
      : graph_(graph), path_(std::move(path)), format_(format) {}

  ValueId operator()(const char* op, std::vector<ValueId> inputs, const Attributes& attributes = {},
                     const Accumulation& accumulation = Accumulation::fp32) {
    const ValueId value = graph_.add1(op, path_, std::move(inputs), attributes);
    Node& node = graph_.node(graph_.value(value).producer);
    node.phase = Phase::update;
    node.plan.write = format_;
    node.plan.accumulation = accumulation;
    graph_.value(value).format = format_;
    return value;
  }
  ValueId times(ValueId a, double scalar) {
    return (*this)("Mul", {a, graph_.add_constant(static_cast<float>(scalar))});
  }

 private:
  Graph& graph_;
  std::string path_;
  FloatFormat format_;
};

/// Returns the 2-norm of a tensor, or of several numbers.
ValueId norm_of(const std::vector<ValueId>& tensors, RoundingNodes& inside, RoundingNodes& result,
                const Accumulation& accumulation) {
  ValueId sum = kNone;
  for (const ValueId tensor : tensors) {
    const ValueId squares = inside("Mul", {tensor, tensor});
    const ValueId part = inside("ReduceSum", {squares}, {{"keepdims", int64_t{0}}}, accumulation);
    sum = sum == kNone ? part : inside("Add", {sum, part});
  }
  return result("Sqrt", {sum});
}

std::string layer_of(const std::string& variable) {
  return variable.substr(0, variable.rfind('.'));
}

class RoundedUpdate {
 public:
  RoundedUpdate(Graph& graph, size_t variable, const FloatFormat& storage,
                const FloatFormat& format)
      : graph_(graph),
        variable_(variable),
        target_(graph.variables()[variable]),
        storage_(storage.contains(format) ? format : storage),
        round_(graph, layer_of(target_.path), format),
        keep_(graph, layer_of(target_.path), storage_) {}

  ValueId add_state(const std::string& what) {
    const ValueId state =
        graph_.add_variable(target_.path + "." + what, graph_.value(target_.value).shape, {});
    graph_.value(state).format = storage_;
    return state;
  }
  /// Sets the new value of a state to a sum, or to another function of two values.
  ValueId move(ValueId state, const std::string& what, ValueId a, ValueId b,
               const char* op = "Add") {
    const ValueId next = keep_(op, {a, b});
    for (Variable& each : graph_.variables()) {
      if (each.value == state) each.next = next;
    }
    update_.states.emplace_back(next, what);
    return next;
  }
  void show(ValueId value, const std::string& what) { update_.states.emplace_back(value, what); }

  /// Computes w - change, rounded to the variable's format; returns the new value and -change.
  std::vector<ValueId> subtract(ValueId w, ValueId change) {
    const ValueId one = graph_.add_constant(1.0f);
    // The gradient and its scalars are not read if a direction is given.
    const std::vector<ValueId> outputs =
        graph_.add("SgdUpdate", layer_of(target_.path), {w, change, one, one, one, change},
                   {{"weight_decay", 0.0}});
    graph_.node(graph_.value(outputs[0]).producer).phase = Phase::update;
    for (ValueId output : outputs) graph_.value(output).format = graph_.value(target_.value).format;
    return outputs;
  }
  void set_unscaled(ValueId gradient) { update_.unscaled = gradient; }
  void decay(const std::vector<ValueId>& shrunk) { update_.decay = shrunk[1]; }
  Update finish(ValueId w, ValueId change) {
    const std::vector<ValueId> outputs = subtract(w, change);
    graph_.variables()[variable_].next = outputs[0];
    update_.value = outputs[1];
    return std::move(update_);
  }

  ValueId weight() const { return target_.value; }
  RoundingNodes& round() { return round_; }

 private:
  Graph& graph_;
  size_t variable_;
  Variable target_;
  FloatFormat storage_;
  RoundingNodes round_, keep_;
  Update update_;
};

}  // namespace

void divide_by_scale(Graph& graph, std::vector<ValueId>& gradients,
                     const std::vector<std::string>& paths, UpdateScalars& scalars) {
  for (size_t i = 0; i < gradients.size(); ++i) {
    RoundingNodes round(graph, layer_of(paths[i]), kFp32);
    gradients[i] = round("Div", {gradients[i], scalars.inverse_scale});
  }
  scalars.inverse_scale = graph.add_constant(1.0f);
}

ClippedGradients add_clipping(Graph& graph, const std::vector<ValueId>& gradients,
                              const std::vector<std::string>& paths, ValueId inverse_scale,
                              ValueId limit, const Plan& plan) {
  const FloatFormat inner = plan.clip_stagewise ? plan.clip : kFp32;
  const Accumulation sums = plan.clip_stagewise ? plan.defaults.accumulation : Accumulation::fp32;
  ClippedGradients result;
  std::vector<ValueId> norms;
  for (size_t i = 0; i < gradients.size(); ++i) {
    RoundingNodes round(graph, layer_of(paths[i]), plan.clip),
        inside(graph, layer_of(paths[i]), inner);
    result.unscaled.push_back(round("Mul", {gradients[i], inverse_scale}));
    norms.push_back(norm_of({result.unscaled.back()}, inside, round, sums));
  }
  constexpr const char* kPath = "clipping";
  RoundingNodes round(graph, kPath, plan.clip), inside(graph, kPath, inner);
  result.norm = norm_of(norms, inside, round, Accumulation::fp32);
  const ValueId padded = round("Add", {result.norm, graph.add_constant(1e-6f)});
  const ValueId ratio = round("Div", {limit, padded});
  const ValueId factor = round("Min", {ratio, graph.add_constant(1.0f)});
  for (size_t i = 0; i < gradients.size(); ++i) {
    RoundingNodes scaled(graph, layer_of(paths[i]), plan.clip);
    result.clipped.push_back(scaled("Mul", {result.unscaled[i], factor}));
  }
  return result;
}

Update add_rounded_update(Graph& graph, size_t variable, ValueId gradient,
                          const Optimizer& optimizer, const UpdateScalars& scalars,
                          const FloatFormat& storage, const FloatFormat& format, bool unscaled,
                          bool clips) {
  RoundedUpdate b(graph, variable, storage, format);
  RoundingNodes& round = b.round();
  ValueId w = b.weight(), g = gradient;
  if (!unscaled) {
    g = round("Mul", {g, scalars.inverse_scale});
    b.set_unscaled(g);
    if (clips) g = round("Mul", {g, scalars.clip});
  }
  if (optimizer.maximize) g = round("Neg", {g});
  const bool decoupled = optimizer.kind == Optimizer::Kind::adamw;
  if (optimizer.weight_decay != 0.0 && !decoupled) {
    g = round("Add", {g, round.times(w, optimizer.weight_decay)});
  }
  // An option that changes by step is a scalar.
  const auto times = [&](ValueId a, ValueId scalar, double constant) {
    return scalar != kNone ? round("Mul", {a, scalar}) : round.times(a, constant);
  };
  // (1 - share) * g + share * the previous value
  const auto move_mean = [&](const char* what, double share, ValueId scalar = kNone,
                             ValueId rest = kNone) {
    const ValueId state = b.add_state(what), kept = times(state, scalar, share);
    return b.move(state, what, kept, times(g, rest, 1.0 - share));
  };
  // The same for g^2
  const auto move_square = [&](const char* what, double share) {
    const ValueId state = b.add_state(what);
    const ValueId square = round("Mul", {g, g});
    b.show(square, "grad_squared");
    const ValueId kept = round.times(state, share);
    return b.move(state, what, kept, round.times(square, 1.0 - share));
  };
  const auto move_momentum = [&](ValueId added) {
    const ValueId state = b.add_state("momentum");
    const ValueId kept = times(state, scalars.momentum, optimizer.momentum);
    return b.move(state, "momentum", kept, added);
  };
  switch (optimizer.kind) {
    case Optimizer::Kind::sgd: {
      ValueId direction = g;
      if (has_momentum(optimizer, scalars)) {
        direction = move_momentum(scalars.share != kNone ? round("Mul", {g, scalars.share}) : g);
      }
      if (optimizer.nesterov) {
        direction = round("Add", {g, times(direction, scalars.momentum, optimizer.momentum)});
      }
      return b.finish(w, round("Mul", {direction, scalars.learning_rate}));
    }
    case Optimizer::Kind::adam:
    case Optimizer::Kind::adamw: {
      const std::string path = "metrics/step_size";
      RoundingNodes scalar(graph, path, kFp32);
      if (decoupled && optimizer.weight_decay != 0.0) {
        const ValueId rate = scalar.times(scalars.learning_rate, optimizer.weight_decay);
        const std::vector<ValueId> shrunk = b.subtract(w, round("Mul", {w, rate}));
        b.decay(shrunk);
        w = shrunk[0];
      }
      const ValueId next_m = move_mean("adam_m", optimizer.beta1, scalars.beta1, scalars.rest_1);
      ValueId next_v = move_square("adam_v", optimizer.beta2);
      if (optimizer.amsgrad) {
        const ValueId largest = b.add_state("adam_v_max");
        next_v = b.move(largest, "adam_v_max", largest, next_v, "Max");
      }
      const ValueId step_size = scalar("Div", {scalars.learning_rate, scalars.correction_1});
      const ValueId root_2 = scalar("Sqrt", {scalars.correction_2});
      const ValueId root = round("Div", {round("Sqrt", {next_v}), root_2});
      const ValueId divisor =
          round("Add", {root, graph.add_constant(static_cast<float>(optimizer.eps))});
      return b.finish(w, round("Mul", {round("Div", {next_m, divisor}), step_size}));
    }
    case Optimizer::Kind::rmsprop: {
      ValueId square = move_square("square_avg", optimizer.alpha);
      if (optimizer.centered) {
        const ValueId mean = move_mean("grad_avg", optimizer.alpha);
        square = round("Sub", {square, round("Mul", {mean, mean})});
      }
      const ValueId divisor = round(
          "Add", {round("Sqrt", {square}), graph.add_constant(static_cast<float>(optimizer.eps))});
      ValueId direction = round("Div", {g, divisor});
      if (has_momentum(optimizer, scalars)) direction = move_momentum(direction);
      return b.finish(w, round("Mul", {direction, scalars.learning_rate}));
    }
  }
  throw Error("unknown optimizer");
}

}  // namespace halfscope
