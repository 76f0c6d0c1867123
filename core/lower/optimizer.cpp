// SPDX-License-Identifier: MIT
#include "core/lower/optimizer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <limits>

#include "core/error.h"
#include "core/key_values.h"
#include "core/near_miss.h"
#include "core/number_text.h"
#include "core/plan/plan.h"

namespace halfscope {
namespace {

double parse_number(std::string_view text, std::string_view what,
                    const std::string& setting = "optimizer") {
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0.0) ||
      !std::isfinite(value)) {
    throw usage_error(setting + ": " + std::string(what) + "=" + std::string(text) +
                      " is not a number >= 0");
  }
  return value;
}

struct Option {
  const char* key;
  double Optimizer::*field;
  double below;  ///< the value must be smaller
};

struct Switch {
  const char* key;
  bool Optimizer::*field;
};

constexpr const char* kDecay = "weight_decay";

bool parse_switch(std::string_view text, std::string_view what) {
  if (text == "true" || text == "1") return true;
  if (text == "false" || text == "0") return false;
  throw usage_error("optimizer: " + std::string(what) + "=" + std::string(text) +
                    " is neither true nor false");
}

struct Kind {
  Optimizer::Kind kind;
  const char* name;
  double learning_rate;  ///< the default
  double weight_decay;
  std::vector<Option> options;
  std::vector<Switch> switches{};
};

/// Returns every optimizer with its options, in the order in which they are printed.
const std::vector<Kind>& kinds() {
  constexpr double kAny = std::numeric_limits<double>::infinity();
  static const Option momentum{"momentum", &Optimizer::momentum, 1.0};
  static const Option beta1{"beta1", &Optimizer::beta1, 1.0},
      beta2{"beta2", &Optimizer::beta2, 1.0};
  static const Option eps{"eps", &Optimizer::eps, kAny}, alpha{"alpha", &Optimizer::alpha, 1.0};
  static const Option decay{kDecay, &Optimizer::weight_decay, kAny};
  static const Switch nesterov{"nesterov", &Optimizer::nesterov},
      amsgrad{"amsgrad", &Optimizer::amsgrad};
  static const std::vector<Kind> all{
      {Optimizer::Kind::sgd, "sgd", 0.1, 0.0, {momentum, decay}, {nesterov}},
      {Optimizer::Kind::adam, "adam", 0.001, 0.0, {beta1, beta2, eps, decay}, {amsgrad}},
      {Optimizer::Kind::adamw, "adamw", 0.001, 0.01, {beta1, beta2, eps, decay}, {amsgrad}},
      {Optimizer::Kind::rmsprop, "rmsprop", 0.01, 0.0, {alpha, momentum, eps, decay}},
  };
  return all;
}

Optimizer defaults_of(const Kind& kind) {
  Optimizer optimizer;
  optimizer.kind = kind.kind;
  optimizer.learning_rate = kind.learning_rate;
  optimizer.weight_decay = kind.weight_decay;
  return optimizer;
}

std::string known_options(const Kind& kind) {
  std::string text = std::string(kind.name) + " has the options lr";
  for (const Option& option : kind.options) {
    text += std::string(", ") + option.key + (std::isfinite(option.below) ? " (below 1)" : "");
  }
  for (const Switch& each : kind.switches) text += std::string(", ") + each.key;
  return text;
}

}  // namespace

Optimizer parse_optimizer(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string name(text.substr(0, colon));
  const auto kind =
      std::find_if(kinds().begin(), kinds().end(), [&](const Kind& k) { return name == k.name; });
  if (kind == kinds().end()) {
    std::vector<std::string> names;
    for (const Kind& each : kinds()) names.push_back(each.name);
    throw usage_error("unknown optimizer '" + name + "'",
                      did_you_mean(name, names, "optimizers: " + comma_list(names)));
  }
  Optimizer optimizer = defaults_of(*kind);
  for (const auto& [key, number, item] : key_values(text, "optimizer", known_options(*kind))) {
    const auto is_key = [&k = key](const auto& each) { return k == each.key; };
    const auto toggle = std::find_if(kind->switches.begin(), kind->switches.end(), is_key);
    if (toggle != kind->switches.end()) {
      optimizer.*(toggle->field) = parse_switch(number, key);
      continue;
    }
    const double value = parse_number(number, key);
    if (key == "lr") {
      optimizer.learning_rate = value;
      continue;
    }
    const auto option = std::find_if(kind->options.begin(), kind->options.end(), is_key);
    if (option == kind->options.end() || value >= option->below) {
      throw usage_error("optimizer: " + item + " is not valid for " + name, known_options(*kind));
    }
    optimizer.*(option->field) = value;
  }
  if (optimizer.nesterov && optimizer.momentum == 0.0) {
    throw usage_error("optimizer: nesterov needs a momentum",
                      "write, for example, sgd:momentum=0.9,nesterov=true");
  }
  return optimizer;
}

std::string optimizer_text(const Optimizer& optimizer) {
  const auto kind = std::find_if(kinds().begin(), kinds().end(),
                                 [&](const Kind& each) { return each.kind == optimizer.kind; });
  const Optimizer defaults = defaults_of(*kind);
  std::string text = std::string(kind->name) + ":lr=" + number_text(optimizer.learning_rate);
  for (const Option& option : kind->options) {
    const double value = optimizer.*(option.field);
    if (value != defaults.*(option.field))
      text += "," + std::string(option.key) + "=" + number_text(value);
  }
  for (const Switch& each : kind->switches) {
    if (optimizer.*(each.field)) text += std::string(",") + each.key + "=true";
  }
  return text;
}

ParameterGroup parse_parameter_group(std::string_view text) {
  const std::string example = "write, for example, '*.bias:weight_decay=0'";
  const size_t colon = text.rfind(':');
  if (colon == text.npos || colon == 0) {
    throw usage_error("parameter group '" + std::string(text) + "' is not GLOB:OPTION=VALUE",
                      example);
  }
  ParameterGroup group{.glob = std::string(text.substr(0, colon))};
  const std::string what = "parameter group '" + group.glob + "'";
  const std::vector<std::string> known{"lr", kDecay};
  for (const auto& [key, number, item] : key_values(text.substr(colon), what, example)) {
    if (key != "lr" && key != kDecay) {
      throw usage_error(what + " has no option '" + key + "'",
                        did_you_mean(key, known, "options: " + comma_list(known)));
    }
    (key == "lr" ? group.learning_rate : group.weight_decay) = parse_number(number, key, what);
  }
  if (!group.learning_rate && !group.weight_decay) {
    throw usage_error(what + " changes nothing", example);
  }
  return group;
}

std::string parameter_group_text(const ParameterGroup& group) {
  std::string text = group.glob;
  char separator = ':';
  const auto option = [&](const char* key, const std::optional<double>& value) {
    if (!value) return;
    text += separator + std::string(key) + "=" + number_text(*value);
    separator = ',';
  };
  option("lr", group.learning_rate);
  option(kDecay, group.weight_decay);
  return text;
}

const ParameterGroup* group_of(std::span<const ParameterGroup> groups, const Variable& variable) {
  const auto found = std::find_if(groups.begin(), groups.end(), [&](const ParameterGroup& group) {
    return glob_match(group.glob, variable.path) ||
           (!variable.alias.empty() && glob_match(group.glob, variable.alias));
  });
  return found != groups.end() ? &*found : nullptr;
}

Optimizer optimizer_of(const Optimizer& optimizer, std::span<const ParameterGroup> groups,
                       const Variable& variable) {
  Optimizer result = optimizer;
  if (const ParameterGroup* const group = group_of(groups, variable)) {
    result.learning_rate = group->learning_rate.value_or(result.learning_rate);
    result.weight_decay = group->weight_decay.value_or(result.weight_decay);
  }
  return result;
}

namespace {

/// Adds the nodes of one variable's update.
class UpdateBuilder {
 public:
  UpdateBuilder(Graph& graph, size_t variable, ValueId gradient, const UpdateScalars& scalars,
                const FloatFormat& storage)
      : graph_(graph),
        variable_(variable),
        target_(graph.variables()[variable]),
        path_(target_.path.substr(0, target_.path.rfind('.'))),
        storage_(storage),
        gradient_{target_.value, gradient, scalars.inverse_scale, scalars.clip} {}

  const std::vector<ValueId>& gradient() const { return gradient_; }

  size_t add_state(const std::string& what) {
    const ValueId state =
        graph_.add_variable(target_.path + "." + what, graph_.value(target_.value).shape, {});
    graph_.value(state).format = storage_;
    return graph_.variables().size() - 1;
  }

  /// Adds a node whose outputs are the new values of states; returns them.
  std::vector<ValueId> add_moved(const char* op, std::vector<ValueId> inputs,
                                 const std::vector<std::string>& whats,
                                 const Attributes& attributes) {
    std::vector<size_t> states;
    for (const std::string& what : whats) {
      states.push_back(add_state(what));
      inputs.push_back(graph_.variables()[states.back()].value);
    }
    const std::vector<ValueId> outputs = add(op, std::move(inputs), attributes);
    for (size_t i = 0; i < states.size(); ++i) {
      graph_.value(outputs[i]).format = storage_;
      graph_.variables()[states[i]].next = outputs[i];
      update_.states.emplace_back(outputs[i], whats[i]);
    }
    return outputs;
  }

  std::vector<ValueId> add(const char* op, std::vector<ValueId> inputs,
                           const Attributes& attributes) {
    std::vector<ValueId> outputs = graph_.add(op, path_, std::move(inputs), attributes);
    graph_.node(graph_.value(outputs[0]).producer).phase = Phase::update;
    return outputs;
  }

  /// Adds the node that updates the variable itself.
  Update finish(const char* op, std::vector<ValueId> inputs, const Attributes& attributes) {
    const std::vector<ValueId> outputs = add(op, std::move(inputs), attributes);
    for (ValueId output : outputs) graph_.value(output).format = graph_.value(target_.value).format;
    graph_.variables()[variable_].next = outputs[0];
    update_.value = outputs[1];
    return std::move(update_);
  }

 private:
  Graph& graph_;
  size_t variable_;
  Variable target_;
  std::string path_;
  FloatFormat storage_;
  std::vector<ValueId> gradient_;
  Update update_;
};

std::vector<ValueId> with(std::vector<ValueId> list, std::initializer_list<ValueId> more) {
  list.insert(list.end(), more);
  return list;
}

}  // namespace

Update add_update(Graph& graph, size_t variable, ValueId gradient, const Optimizer& optimizer,
                  const UpdateScalars& scalars, const FloatFormat& storage) {
  UpdateBuilder b(graph, variable, gradient, scalars, storage);
  const bool decoupled = optimizer.kind == Optimizer::Kind::adamw;
  const Attributes decay{{"weight_decay", decoupled ? 0.0 : optimizer.weight_decay}};
  const auto decay_and = [&](std::initializer_list<Attributes::value_type> more) {
    Attributes all = decay;
    all.insert(more);
    return all;
  };
  switch (optimizer.kind) {
    case Optimizer::Kind::sgd: {
      std::vector<ValueId> inputs = with(b.gradient(), {scalars.learning_rate});
      if (optimizer.momentum != 0.0) {
        const Attributes attributes = decay_and({{"momentum", optimizer.momentum}});
        inputs.push_back(b.add_moved("Momentum", b.gradient(), {"momentum"}, attributes)[0]);
        // g' + momentum * v' is Momentum once more, of the momentum that has moved.
        if (optimizer.nesterov) {
          inputs.back() = b.add("Momentum", with(b.gradient(), {inputs.back()}), attributes)[0];
        }
      }
      return b.finish("SgdUpdate", inputs, decay);
    }
    case Optimizer::Kind::adam:
    case Optimizer::Kind::adamw: {
      const Attributes moments =
          decay_and({{"beta1", optimizer.beta1}, {"beta2", optimizer.beta2}});
      const std::vector<ValueId> moved =
          b.add_moved("AdamMoments", b.gradient(), {"adam_m", "adam_v"}, moments);
      const ValueId square =
          optimizer.amsgrad ? b.add_moved("Max", {moved[1]}, {"adam_v_max"}, {})[0] : moved[1];
      return b.finish(
          "AdamUpdate",
          {graph.variables()[variable].value, moved[0], square, scalars.learning_rate,
           scalars.correction_1, scalars.correction_2},
          {{"eps", optimizer.eps}, {"decoupled_decay", decoupled ? optimizer.weight_decay : 0.0}});
    }
    case Optimizer::Kind::rmsprop: {
      const Attributes average = decay_and({{"alpha", optimizer.alpha}});
      const Attributes step = decay_and({{"eps", optimizer.eps}, {"momentum", optimizer.momentum}});
      const ValueId square = b.add_moved("SquareAverage", b.gradient(), {"square_avg"}, average)[0];
      std::vector<ValueId> inputs = with(b.gradient(), {scalars.learning_rate, square});
      if (optimizer.momentum != 0.0) {
        inputs.push_back(
            b.add_moved("RmsMomentum", with(b.gradient(), {square}), {"momentum"}, step)[0]);
      }
      return b.finish("RmsUpdate", inputs, step);
    }
  }
  throw Error("unknown optimizer");
}

ValueId add_gradient_sum(Graph& graph, size_t variable, ValueId gradient, ValueId keep,
                         const FloatFormat& format) {
  const Variable target = graph.variables()[variable];
  const ValueId sum =
      graph.add_variable(target.path + ".grad_sum", graph.value(target.value).shape, {});
  const size_t index = graph.variables().size() - 1;
  const ValueId next = graph.add1("GradientSum", target.path.substr(0, target.path.rfind('.')),
                                  {sum, gradient, keep});
  graph.node(graph.value(next).producer).phase = Phase::update;
  graph.value(sum).format = graph.value(next).format = format;
  graph.variables()[index].next = next;
  return next;
}

}  // namespace halfscope
