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

double parse_number(std::string_view text, std::string_view what, const std::string& setting) {
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0.0) ||
      !std::isfinite(value)) {
    throw usage_error(setting + ": " + std::string(what) + "=" + std::string(text) +
                      " is not a number >= 0");
  }
  return value;
}

bool parse_switch(std::string_view text, std::string_view what, const std::string& setting) {
  if (text == "true" || text == "1") return true;
  if (text == "false" || text == "0") return false;
  throw usage_error(setting + ": " + std::string(what) + "=" + std::string(text) +
                    " is neither true nor false");
}

constexpr const char* kRate = "lr";

/// A number or a switch.
struct Option {
  const char* key;
  double Optimizer::*number = nullptr;
  double below = std::numeric_limits<double>::infinity();  ///< the number must be smaller
  bool Optimizer::*toggle = nullptr;

  /// Switches are 0 and 1.
  double of(const Optimizer& optimizer) const {
    return toggle != nullptr ? (optimizer.*toggle ? 1.0 : 0.0) : optimizer.*number;
  }
  void set(Optimizer& optimizer, double value) const {
    if (toggle != nullptr) {
      optimizer.*toggle = value != 0.0;
    } else {
      optimizer.*number = value;
    }
  }
  double parse(std::string_view text, const std::string& setting) const {
    if (toggle != nullptr) return parse_switch(text, key, setting) ? 1.0 : 0.0;
    return parse_number(text, key, setting);
  }
  std::string text(double value) const {
    if (toggle == nullptr) return std::string(key) + "=" + number_text(value);
    return std::string(key) + (value != 0.0 ? "=true" : "=false");
  }
};

/// Every option of any optimizer, in the order in which they are printed.
constexpr Option kOptions[] = {
    {kRate, &Optimizer::learning_rate},
    {"beta1", &Optimizer::beta1, 1.0},
    {"beta2", &Optimizer::beta2, 1.0},
    {"alpha", &Optimizer::alpha, 1.0},
    {"momentum", &Optimizer::momentum, 1.0},
    {"dampening", &Optimizer::dampening},
    {"eps", &Optimizer::eps},
    {"weight_decay", &Optimizer::weight_decay},
    {.key = "nesterov", .toggle = &Optimizer::nesterov},
    {.key = "amsgrad", .toggle = &Optimizer::amsgrad},
    {.key = "centered", .toggle = &Optimizer::centered},
    {.key = "maximize", .toggle = &Optimizer::maximize},
};

std::vector<Option> options_named(std::initializer_list<std::string_view> keys) {
  std::vector<Option> options;
  for (const Option& each : kOptions) {
    if (std::find(keys.begin(), keys.end(), each.key) != keys.end()) options.push_back(each);
  }
  return options;
}

/// Returns the option with this key, or null.
const Option* find_option(std::span<const Option> options, std::string_view key) {
  const auto found = std::find_if(options.begin(), options.end(),
                                  [&](const Option& each) { return key == each.key; });
  return found != options.end() ? &*found : nullptr;
}

struct Kind {
  Optimizer::Kind kind;
  const char* name;
  double learning_rate;  ///< the default
  double weight_decay;
  std::vector<Option> options;
};

const std::vector<Kind>& kinds() {
  static const std::vector<Option> sgd =
      options_named({kRate, "momentum", "dampening", "weight_decay", "nesterov", "maximize"});
  static const std::vector<Option> adam =
      options_named({kRate, "beta1", "beta2", "eps", "weight_decay", "amsgrad", "maximize"});
  static const std::vector<Option> rmsprop =
      options_named({kRate, "alpha", "momentum", "eps", "weight_decay", "centered", "maximize"});
  static const std::vector<Kind> all{
      {Optimizer::Kind::sgd, "sgd", 0.1, 0.0, sgd},
      {Optimizer::Kind::adam, "adam", 0.001, 0.0, adam},
      {Optimizer::Kind::adamw, "adamw", 0.001, 0.01, adam},
      {Optimizer::Kind::rmsprop, "rmsprop", 0.01, 0.0, rmsprop},
  };
  return all;
}

const Kind& kind_of(const Optimizer& optimizer) {
  return *std::find_if(kinds().begin(), kinds().end(),
                       [&](const Kind& each) { return each.kind == optimizer.kind; });
}

Optimizer defaults_of(const Kind& kind) {
  Optimizer optimizer;
  optimizer.kind = kind.kind;
  optimizer.learning_rate = kind.learning_rate;
  optimizer.weight_decay = kind.weight_decay;
  return optimizer;
}

std::string known_options(const Kind& kind) {
  std::string text;
  for (const Option& option : kind.options) {
    text += std::string(text.empty() ? "" : ", ") + option.key +
            (std::isfinite(option.below) ? " (below 1)" : "");
  }
  return std::string(kind.name) + " has the options " + text;
}

void check_momentum(const Optimizer& optimizer, const std::string& setting) {
  if (!optimizer.nesterov || optimizer.momentum != 0.0) return;
  throw usage_error(setting + ": nesterov needs a momentum",
                    "write, for example, sgd:momentum=0.9,nesterov=true");
}

std::string group_setting(const ParameterGroup& group) {
  return "parameter group '" + group.glob + "'";
}

}  // namespace

bool is_adam(const Optimizer& optimizer) {
  return optimizer.kind == Optimizer::Kind::adam || optimizer.kind == Optimizer::Kind::adamw;
}

Optimizer parse_optimizer(std::string_view text) {
  const std::string what = "optimizer";
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
  for (const auto& [key, value, item] : key_values(text, what, known_options(*kind))) {
    const Option* const option = find_option(kind->options, key);
    const double number = option != nullptr ? option->parse(value, what) : 0.0;
    if (option == nullptr || number >= option->below) {
      throw usage_error("optimizer: " + item + " is not valid for " + name, known_options(*kind));
    }
    option->set(optimizer, number);
  }
  check_momentum(optimizer, what);
  return optimizer;
}

std::string optimizer_text(const Optimizer& optimizer) {
  const Kind& kind = kind_of(optimizer);
  const Optimizer defaults = defaults_of(kind);
  std::string text = kind.name;
  char separator = ':';
  for (const Option& option : kind.options) {
    const double value = option.of(optimizer);
    if (option.key != std::string_view(kRate) && value == option.of(defaults)) continue;
    text += separator + option.text(value);
    separator = ',';
  }
  return text;
}

bool ParameterGroup::sets(std::string_view key) const {
  return std::any_of(options.begin(), options.end(),
                     [&](const auto& option) { return option.first == key; });
}

ParameterGroup parse_parameter_group(std::string_view text) {
  const std::string example = "write, for example, '*.bias:weight_decay=0'";
  const size_t colon = text.rfind(':');
  if (colon == text.npos || colon == 0) {
    throw usage_error("parameter group '" + std::string(text) + "' is not GLOB:OPTION=VALUE",
                      example);
  }
  ParameterGroup group{.glob = std::string(text.substr(0, colon)), .options = {}};
  const std::string what = group_setting(group);
  std::vector<std::string> known;
  for (const Option& each : kOptions) known.emplace_back(each.key);
  for (const auto& [key, value, item] : key_values(text.substr(colon), what, example)) {
    const Option* const option = find_option(kOptions, key);
    if (option == nullptr) {
      throw usage_error(what + " has no option '" + key + "'",
                        did_you_mean(key, known, "options: " + comma_list(known)));
    }
    const double number = option->parse(value, what);
    if (number >= option->below) throw usage_error(what + ": " + item + " is not below 1");
    group.options.emplace_back(option->key, number);
  }
  if (group.options.empty()) throw usage_error(what + " changes nothing", example);
  std::sort(group.options.begin(), group.options.end(), [](const auto& a, const auto& b) {
    return find_option(kOptions, a.first) < find_option(kOptions, b.first);
  });
  return group;
}

std::string parameter_group_text(const ParameterGroup& group) {
  std::string text = group.glob;
  char separator = ':';
  for (const auto& [key, value] : group.options) {
    text += separator + find_option(kOptions, key)->text(value);
    separator = ',';
  }
  return text;
}

const ParameterGroup* group_of(std::span<const ParameterGroup> groups, const Variable& variable) {
  const auto found = std::find_if(groups.begin(), groups.end(), [&](const ParameterGroup& group) {
    return glob_match(group.glob, variable.path) ||
           (!variable.alias.empty() && glob_match(group.glob, variable.alias));
  });
  return found != groups.end() ? &*found : nullptr;
}

bool has_option(const Optimizer& optimizer, std::string_view key) {
  return find_option(kind_of(optimizer).options, key) != nullptr;
}

std::optional<ScheduledOption> parse_scheduled_option(std::string_view text) {
  const size_t colon = text.rfind(':');
  ScheduledOption option;
  if (colon != text.npos) option.glob = text.substr(0, colon);
  option.key = text.substr(colon == text.npos ? 0 : colon + 1);
  const bool known = option.key == kRate || option.key == "momentum" || option.key == "beta1";
  if (!known || colon == 0) return std::nullopt;
  return option;
}

std::string scheduled_option_text(const ScheduledOption& option) {
  return option.glob.empty() ? option.key : option.glob + ':' + option.key;
}

std::optional<size_t> scheduled_at(std::span<const ScheduledOption> scheduled,
                                   const ParameterGroup* group, std::string_view key) {
  const auto find = [&](std::string_view glob) -> std::optional<size_t> {
    for (size_t i = 0; i < scheduled.size(); ++i) {
      if (scheduled[i].key == key && scheduled[i].glob == glob) return i;
    }
    return std::nullopt;
  };
  if (group != nullptr) {
    if (const std::optional<size_t> own = find(group->glob)) return own;
    if (group->sets(key)) return std::nullopt;
  }
  return find("");
}

Optimizer optimizer_of(const Optimizer& optimizer, std::span<const ParameterGroup> groups,
                       const Variable& variable) {
  Optimizer result = optimizer;
  const ParameterGroup* const group = group_of(groups, variable);
  if (group == nullptr) return result;
  const Kind& kind = kind_of(optimizer);
  for (const auto& [key, value] : group->options) {
    const Option* const option = find_option(kind.options, key);
    if (option == nullptr) {
      throw usage_error(group_setting(*group) + ": " + kind.name + " has no option '" + key + "'",
                        known_options(kind))
          .about({"param_group", "optimizer"});
    }
    option->set(result, value);
  }
  check_momentum(result, group_setting(*group));
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

  /// Adds a node whose outputs are the new values of states; returns them. The states are its last
  /// inputs, apart from `more`.
  std::vector<ValueId> add_moved(const char* op, std::vector<ValueId> inputs,
                                 const std::vector<std::string>& whats,
                                 const Attributes& attributes,
                                 const std::vector<ValueId>& more = {}) {
    std::vector<size_t> states;
    for (const std::string& what : whats) {
      states.push_back(add_state(what));
      inputs.push_back(graph_.variables()[states.back()].value);
    }
    inputs.insert(inputs.end(), more.begin(), more.end());
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
  Attributes plain{{"weight_decay", decoupled ? 0.0 : optimizer.weight_decay}};
  if (optimizer.maximize) plain["maximize"] = int64_t{1};
  const auto plain_and = [&](std::initializer_list<Attributes::value_type> more) {
    Attributes all = plain;
    all.insert(more);
    return all;
  };
  switch (optimizer.kind) {
    case Optimizer::Kind::sgd: {
      std::vector<ValueId> inputs = with(b.gradient(), {scalars.learning_rate});
      if (has_momentum(optimizer, scalars)) {
        const Attributes attributes = plain_and({{"momentum", optimizer.momentum}});
        const auto more = [&](ValueId share) {
          std::vector<ValueId> scalar_inputs;
          if (share != kNone) scalar_inputs.push_back(share);
          if (scalars.momentum == kNone) return scalar_inputs;
          if (share == kNone) scalar_inputs.push_back(graph.add_constant(1.0f));
          scalar_inputs.push_back(scalars.momentum);
          return scalar_inputs;
        };
        inputs.push_back(b.add_moved("Momentum", b.gradient(), {"momentum"}, attributes,
                                     more(scalars.share))[0]);
        // g' + momentum * v' is Momentum once more, of the momentum that has moved.
        if (optimizer.nesterov) {
          std::vector<ValueId> ahead = with(b.gradient(), {inputs.back()});
          const std::vector<ValueId> last = more(kNone);
          ahead.insert(ahead.end(), last.begin(), last.end());
          inputs.back() = b.add("Momentum", std::move(ahead), attributes)[0];
        }
      }
      return b.finish("SgdUpdate", inputs, plain);
    }
    case Optimizer::Kind::adam:
    case Optimizer::Kind::adamw: {
      const Attributes moments =
          plain_and({{"beta1", optimizer.beta1}, {"beta2", optimizer.beta2}});
      const std::vector<ValueId> moved =
          b.add_moved("AdamMoments", b.gradient(), {"adam_m", "adam_v"}, moments,
                      scalars.beta1 == kNone ? std::vector<ValueId>{}
                                             : std::vector<ValueId>{scalars.beta1, scalars.rest_1});
      const ValueId square =
          optimizer.amsgrad ? b.add_moved("Max", {moved[1]}, {"adam_v_max"}, {})[0] : moved[1];
      return b.finish(
          "AdamUpdate",
          {graph.variables()[variable].value, moved[0], square, scalars.learning_rate,
           scalars.correction_1, scalars.correction_2},
          {{"eps", optimizer.eps}, {"decoupled_decay", decoupled ? optimizer.weight_decay : 0.0}});
    }
    case Optimizer::Kind::rmsprop: {
      const double alpha = optimizer.alpha;
      const Attributes step = plain_and({{"eps", optimizer.eps}, {"momentum", optimizer.momentum}});
      ValueId square = kNone;
      if (optimizer.centered) {
        const std::vector<ValueId> moved =
            b.add_moved("AdamMoments", b.gradient(), {"grad_avg", "square_avg"},
                        plain_and({{"beta1", alpha}, {"beta2", alpha}}));
        const ValueId of_mean = b.add("Mul", {moved[0], moved[0]}, {})[0];
        square = b.add("Sub", {moved[1], of_mean}, {})[0];
      } else {
        square = b.add_moved("SquareAverage", b.gradient(), {"square_avg"},
                             plain_and({{"alpha", alpha}}))[0];
      }
      std::vector<ValueId> inputs = with(b.gradient(), {scalars.learning_rate, square});
      if (has_momentum(optimizer, scalars)) {
        std::vector<ValueId> more;
        if (scalars.momentum != kNone) more.push_back(scalars.momentum);
        inputs.push_back(
            b.add_moved("RmsMomentum", with(b.gradient(), {square}), {"momentum"}, step, more)[0]);
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
