// SPDX-License-Identifier: MIT
// LSTM, GRU and RNN, unrolled over time: one product of the whole sequence with the input weights,
// then a few nodes per step. All values have the shape [1, batch, ...] of one step, so that steps
// are joined along axis 0 and the batch stays on axis 1. Formulas: onnx/docs/Operators.md.
#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <numeric>
#include <utility>

#include "core/onnx/translate.h"

namespace halfscope::onnx_files {
namespace {

constexpr int64_t kMostStepNodes = 50'000;  // per node of the file

/// An activation function with its factors.
struct Activation {
  std::string name;  ///< in lower case
  float alpha = 0.0f, beta = 0.0f;
};

struct ActivationRow {
  std::string_view name;
  bool has_alpha, has_beta;
  float alpha = 0.0f, beta = 0.0f;  ///< used if the file gives none
  bool needs_factors = false;       ///< ONNX and ONNX Runtime disagree on their defaults
};
constexpr std::array kActivations{
    ActivationRow{"relu", false, false},
    ActivationRow{"tanh", false, false},
    ActivationRow{"sigmoid", false, false},
    ActivationRow{"affine", true, true, 1.0f, 0.0f, true},
    ActivationRow{"leakyrelu", true, false, 0.01f},
    ActivationRow{"thresholdedrelu", true, false, 1.0f, 0.0f, true},
    ActivationRow{"scaledtanh", true, true, 1.0f, 1.0f, true},
    ActivationRow{"hardsigmoid", true, true, 0.2f, 0.5f},
    ActivationRow{"elu", true, false, 1.0f},
    ActivationRow{"softsign", false, false},
    ActivationRow{"softplus", false, false},
};

/// Reads `count` activations with their factors, or uses the defaults in turn.
std::vector<Activation> read_activations(Translation& t, size_t count,
                                         const std::vector<std::string>& defaults) {
  std::vector<std::string> names = t.attributes().texts("activations");
  for (size_t i = 0; names.size() < count && t.attributes().texts("activations").empty(); ++i)
    names.push_back(defaults[i % defaults.size()]);
  if (names.size() != count) {
    throw t.error("it needs " + std::to_string(count) + " activations, not " +
                  std::to_string(names.size()));
  }
  const auto factors = [&](const char* name) {
    return t.attributes().reals(name).value_or(std::vector<float>{});
  };
  const std::vector<float> alphas = factors("activation_alpha"), betas = factors("activation_beta");
  size_t next_alpha = 0, next_beta = 0;  // only functions with a factor consume one
  std::vector<Activation> result;
  for (std::string name : names) {
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const auto row = std::find_if(kActivations.begin(), kActivations.end(),
                                  [&](const ActivationRow& each) { return each.name == name; });
    if (row == kActivations.end()) throw t.error("the activation '" + name + "' is not supported");
    const bool alpha_left = next_alpha < alphas.size(), beta_left = next_beta < betas.size();
    if (row->needs_factors && !(alpha_left && (beta_left || !row->has_beta)))
      throw t.error("the activation '" + name + "' takes no factors");
    Activation made{name, row->alpha, row->beta};
    if (row->has_alpha && alpha_left) made.alpha = alphas[next_alpha++];
    if (row->has_beta && beta_left) made.beta = betas[next_beta++];
    result.push_back(made);
  }
  return result;
}

/// Adds the nodes of an activation; the last one is called `suffix`.
ValueId activate(Translation& t, const Activation& of, ValueId x, const std::string& suffix) {
  const auto constant = [&](float value) { return t.graph().add_constant(value); };
  const double alpha = static_cast<double>(of.alpha), beta = static_cast<double>(of.beta);
  if (of.name == "sigmoid") return t.add("Sigmoid", {x}, {}, suffix);
  if (of.name == "tanh") return t.add("Tanh", {x}, {}, suffix);
  if (of.name == "relu") return t.add("Relu", {x}, {}, suffix);
  if (of.name == "softplus") return t.add("Softplus", {x}, {}, suffix);
  if (of.name == "leakyrelu") return t.add("LeakyRelu", {x}, {{"alpha", alpha}}, suffix);
  if (of.name == "elu") return t.add("Elu", {x}, {{"alpha", alpha}}, suffix);
  if (of.name == "hardsigmoid")
    return t.add("HardSigmoid", {x}, {{"alpha", alpha}, {"beta", beta}}, suffix);
  if (of.name == "affine") {
    const ValueId scaled = t.add("Mul", {x, constant(of.alpha)}, {}, suffix + "_scaled");
    return t.add("Add", {scaled, constant(of.beta)}, {}, suffix);
  }
  if (of.name == "scaledtanh") {
    const ValueId scaled = t.add("Mul", {x, constant(of.beta)}, {}, suffix + "_scaled");
    const ValueId y = t.add("Tanh", {scaled}, {}, suffix + "_tanh");
    return t.add("Mul", {y, constant(of.alpha)}, {}, suffix);
  }
  if (of.name == "softsign") {
    const ValueId size = t.add("Abs", {x}, {}, suffix + "_abs");
    const ValueId below = t.add("Add", {size, constant(1.0f)}, {}, suffix + "_below");
    return t.add("Div", {x, below}, {}, suffix);
  }
  // Only ThresholdedRelu is left: x above alpha, else 0.
  const ValueId above = t.add("Greater", {x, constant(of.alpha)}, {}, suffix + "_above");
  return t.add("Where", {above, x, constant(0.0f)}, {}, suffix);
}

/// The common part of the three operators. A state of zeros is kNone: the first step then skips its
/// products, and no constant in the graph depends on the batch size.
class Recurrence {
 public:
  Recurrence(Translation& t, int64_t gates, size_t functions,
             const std::vector<std::string>& default_activations);
  virtual ~Recurrence() = default;
  void run();

 protected:
  struct State {
    ValueId h = kNone, c = kNone;
  };
  /// The values of one direction.
  struct Direction {
    std::string prefix;  ///< of node names: "" or "forward/"
    bool reverse = false;
    std::vector<ValueId> steps;                       ///< [1, batch, gates * hidden] each
    ValueId weight = kNone;                           ///< [1, hidden, gates * hidden]
    ValueId input_bias = kNone, hidden_bias = kNone;  ///< [1, gates * hidden]
    ValueId peepholes = kNone;                        ///< [1, 3 * hidden]
    std::vector<Activation> activations;
    State start;
  };

  /// Prepares what all steps of a direction share, after the product of the whole sequence.
  virtual void prepare(Direction&, ValueId /*product*/) {}
  /// Returns the state after step `i`. `name` is the prefix of its node names.
  virtual State step(const Direction& d, size_t i, const State& before,
                     const std::string& name) = 0;
  /// Returns whether the second half of B is also added to the input's product.
  virtual bool joins_biases() const { return true; }

  /// Splits an axis into parts of these sizes.
  std::vector<ValueId> parts(ValueId x, int64_t axis, std::vector<int64_t> sizes,
                             const std::string& name) {
    if (sizes.size() == 1) return {x};
    return t_.add_all("Split", {x}, {{"axis", axis}, {"split", std::move(sizes)}}, name);
  }
  std::vector<ValueId> by_step(ValueId x, const std::string& name) {
    return parts(x, 0, std::vector<int64_t>(static_cast<size_t>(steps_), 1), name);
  }
  /// Returns a + b, treating kNone as zero.
  ValueId plus(ValueId a, ValueId b, const std::string& name) {
    if (a == kNone || b == kNone) return a == kNone ? b : a;
    return t_.add("Add", {a, b}, {}, name);
  }
  ValueId times(ValueId a, ValueId b, const std::string& name) {
    return a == kNone || b == kNone ? kNone : t_.add("Mul", {a, b}, {}, name);
  }
  ValueId product(ValueId h, ValueId weight, const std::string& name) {
    return h == kNone ? kNone : t_.add("MatMul", {h, weight}, {}, name);
  }
  /// Applies the activation of a gate, after clipping its argument if the file asks for it.
  ValueId gate(const Activation& of, ValueId x, const std::string& name) {
    if (clip_ > 0.0) x = t_.add("Clip", {x}, {{"min", -clip_}, {"max", clip_}}, name + "_clip");
    return activate(t_, of, x, name);
  }

  Translation& t_;
  const int64_t gates_;
  int64_t steps_ = 0, batch_ = 0, inputs_ = 0, hidden_ = 0;
  int64_t several_ = 0;  ///< batch size of the network if the file has one sample
  double clip_ = 0.0;

 private:
  void check(size_t i, const Shape& wanted, const char* name) const;
  /// Splits an input into one value [1, ...] per direction.
  std::vector<ValueId> per_direction(ValueId value, const char* name);
  std::vector<ValueId> states(size_t i, const char* name);
  void read_lengths();
  void set_outputs();
  ValueId held(size_t step, ValueId after, ValueId before, const std::string& name);

  size_t directions_ = 1;
  bool batch_first_ = false;
  std::vector<Direction> all_;
  ValueId mask_ = kNone;               ///< [steps, batch, 1]: 1 while a sample's sequence lasts
  std::vector<ValueId> mask_of_step_;  ///< [1, batch, 1] each; empty if all have the same length
  std::vector<ValueId> sequences_;     ///< [steps, batch, hidden] of each direction
  std::vector<State> last_;
};

Recurrence::Recurrence(Translation& t, int64_t gates, size_t functions,
                       const std::vector<std::string>& default_activations)
    : t_(t), gates_(gates) {
  const Shape x = t.shape(0), w = t.shape(1), r = t.shape(2);
  if (x.size() != 3 || w.size() != 3 || r.size() != 3)
    throw t.error("X, W and R must have three dimensions");
  batch_first_ = t.attributes().integer("layout", 0) != 0;
  steps_ = x[batch_first_ ? 1 : 0];
  batch_ = x[batch_first_ ? 0 : 1];
  inputs_ = x[2];
  hidden_ = r[2];
  clip_ = t.attributes().real("clip", 0.0);
  const std::string direction = t.attributes().text("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
    throw t.error("the direction '" + direction + "' is not supported");
  directions_ = direction == "bidirectional" ? 2 : 1;
  const auto number = static_cast<int64_t>(directions_);
  if (steps_ < 1 || batch_ < 1 || hidden_ < 1)
    throw t.error("its input has no steps, samples or features");
  if (t.attributes().integer("hidden_size", hidden_) != hidden_)
    throw t.error("hidden_size is not the last dimension of R " + to_string(r));
  const int64_t rows = checked_count({gates, hidden_}, t.what());
  check(1, {number, rows, inputs_}, "W");
  check(2, {number, rows, hidden_}, "R");
  check(3, {number, 2 * rows}, "B");
  check(7, {number, 3 * hidden_}, "P");
  if (steps_ > kMostStepNodes / (12 * number)) {
    throw Error(
        t.what() + ": its sequence of " + std::to_string(steps_) + " steps is too long to unroll",
        "use at most " + std::to_string(kMostStepNodes / (12 * number)) +
            " steps: export a shorter sequence, or set its length with --dimension");
  }
  const std::vector<Activation> functions_of_all =
      read_activations(t, functions * directions_, default_activations);
  for (size_t d = 0; d < directions_; ++d) {
    Direction made;
    made.reverse = direction == "reverse" || d == 1;
    if (directions_ == 2) made.prefix = made.reverse ? "reverse/" : "forward/";
    const auto first = functions_of_all.begin() + static_cast<int64_t>(d * functions);
    made.activations.assign(first, first + static_cast<int64_t>(functions));
    all_.push_back(std::move(made));
  }
}

void Recurrence::check(size_t i, const Shape& wanted, const char* name) const {
  if (!t_.has(i) || t_.shape(i) == wanted) return;
  throw t_.error(std::string(name) + " must be " + to_string(wanted) + ", not " +
                 to_string(t_.shape(i)));
}

std::vector<ValueId> Recurrence::per_direction(ValueId value, const char* name) {
  return parts(value, 0, std::vector<int64_t>(directions_, 1), std::string(name) + "_directions");
}

std::vector<ValueId> Recurrence::states(size_t i, const char* name) {
  std::vector<ValueId> none(directions_, kNone);
  if (!t_.has(i)) return none;
  const auto number = static_cast<int64_t>(directions_);
  const Shape wanted =
      batch_first_ ? Shape{batch_, number, hidden_} : Shape{number, batch_, hidden_};
  check(i, wanted, name);
  // Exporters write a network's initial zeros as constants. They are not trained.
  if (t_.is_zeros(i, wanted, batch_first_ ? 0 : 1, several_)) return none;
  ValueId state = t_.real(i, name);
  if (batch_first_) {
    state = t_.add("Transpose", {state}, {{"perm", std::vector<int64_t>{1, 0, 2}}},
                   std::string(name) + "_batch");
  }
  return per_direction(state, name);
}

/// Reads sequence_lens. Nothing is masked if every sample has all steps. Otherwise a sample keeps
/// its last state after its end, and its later outputs are zeros.
void Recurrence::read_lengths() {
  if (!t_.has(4)) return;
  check(4, {batch_}, "sequence_lens");
  if (!t_.is_known(4)) {
    std::vector<int32_t> numbers(static_cast<size_t>(steps_));
    std::iota(numbers.begin(), numbers.end(), 0);
    const ValueId places = t_.graph().add_index_constant({steps_, 1, 1}, std::move(numbers));
    const ValueId lengths = t_.reshape(t_.index(4), {1, batch_, 1}, "lengths", {kAdded, 0, kAdded});
    mask_ = t_.add("Less", {places, lengths}, {}, "mask");
    mask_of_step_ = by_step(mask_, "mask_steps");
    return;
  }
  const std::vector<int64_t> lengths = t_.known_ints(4, "sequence_lens");
  if (std::all_of(lengths.begin(), lengths.end(), [&](int64_t l) { return l == steps_; })) return;
  std::vector<int32_t> all;
  for (int64_t i = 0; i < steps_; ++i) {
    std::vector<int32_t> here;
    for (int64_t length : lengths) {
      if (length < 1 || length > steps_) {
        throw t_.error("a sequence of " + std::to_string(length) + " steps of " +
                       std::to_string(steps_));
      }
      here.push_back(i < length ? 1 : 0);
    }
    all.insert(all.end(), here.begin(), here.end());
    mask_of_step_.push_back(t_.graph().add_index_constant({1, batch_, 1}, std::move(here)));
  }
  mask_ = t_.graph().add_index_constant({steps_, batch_, 1}, std::move(all));
}

ValueId Recurrence::held(size_t step, ValueId after, ValueId before, const std::string& name) {
  if (mask_of_step_.empty() || after == kNone) return after;
  const ValueId old = before == kNone ? t_.graph().add_constant(0.0f) : before;
  return t_.add("Where", {mask_of_step_[step], after, old}, {}, name);
}

void Recurrence::run() {
  ValueId x = t_.real(0);
  several_ = t_.importer().samples() == nullptr
                 ? batch_
                 : t_.importer().samples()->shape(x)[batch_first_ ? 0 : 1];
  if (batch_first_)
    x = t_.add("Transpose", {x}, {{"perm", std::vector<int64_t>{1, 0, 2}}}, "steps_first");
  const auto turned = [&](ValueId weight, const std::string& name) {
    return t_.add("Transpose", {weight}, {{"perm", std::vector<int64_t>{0, 2, 1}}}, name);
  };
  const std::vector<ValueId> w = per_direction(t_.weight(1, "weight_ih"), "weight_ih");
  const std::vector<ValueId> r = per_direction(t_.weight(2, "weight_hh"), "weight_hh");
  std::vector<ValueId> b(directions_, kNone), p(directions_, kNone);
  if (t_.has(3)) b = per_direction(t_.weight(3, "bias"), "bias");
  if (t_.has(7)) p = per_direction(t_.weight(7, "peepholes"), "peepholes");
  const std::vector<ValueId> h = states(5, "initial_h"), c = states(6, "initial_c");
  read_lengths();
  for (size_t k = 0; k < directions_; ++k) {
    Direction& d = all_[k];
    d.start = {h[k], c[k]};
    d.peepholes = p[k];
    // A single step from a zero state does not use it.
    if (steps_ > 1 || h[k] != kNone) d.weight = turned(r[k], d.prefix + "weight_hh");
    if (b[k] != kNone) {
      const int64_t rows = gates_ * hidden_;
      const std::vector<ValueId> halves = parts(b[k], 1, {rows, rows}, d.prefix + "biases");
      d.input_bias = joins_biases() ? plus(halves[0], halves[1], d.prefix + "bias") : halves[0];
      d.hidden_bias = joins_biases() ? kNone : halves[1];
    }
    ValueId all = product(x, turned(w[k], d.prefix + "weight_ih"), d.prefix + "input");
    all = plus(all, d.input_bias, d.prefix + "input_bias");
    prepare(d, all);
    State state = d.start;
    std::vector<ValueId> sequence(static_cast<size_t>(steps_));
    for (size_t n = 0; n < sequence.size(); ++n) {
      const size_t i = d.reverse ? sequence.size() - 1 - n : n;
      const std::string name = d.prefix + "step_" + std::to_string(i) + "/";
      State after = step(d, i, state, name);
      after.h = held(i, after.h, state.h, name + "kept_hidden");
      after.c = held(i, after.c, state.c, name + "kept_cell");
      state = after;
      sequence[i] = state.h;
    }
    last_.push_back(state);
    if (t_.node().output_size() == 0 || t_.node().output(0).empty()) continue;
    ValueId joined = sequence[0];
    if (steps_ > 1)
      joined = t_.add("Concat", sequence, {{"axis", int64_t{0}}}, d.prefix + "sequence");
    if (mask_ != kNone) {
      joined = t_.add("Where", {mask_, joined, t_.graph().add_constant(0.0f)}, {},
                      d.prefix + "sequence_masked");
    }
    sequences_.push_back(joined);
  }
  set_outputs();
}

/// Sets Y [steps, directions, batch, hidden], Y_h and Y_c [directions, batch, hidden]. With layout
/// 1 the batch comes first. The first of these outputs in the file gets the node's name.
void Recurrence::set_outputs() {
  bool named = false;
  const auto set = [&](int i, const std::string& name, const std::function<ValueId()>& joined,
                       const std::vector<int64_t>& order) {
    if (i >= t_.node().output_size() || t_.node().output(i).empty()) return;
    const ValueId value = joined();
    const std::string suffix = std::exchange(named, true) ? name : "";
    t_.set(static_cast<size_t>(i), batch_first_
                                       ? t_.add("Transpose", {value}, {{"perm", order}}, suffix)
                                       : t_.add("Identity", {value}, {}, suffix));
  };
  const auto sequence = [&] {
    const Shape shape{steps_, 1, batch_, hidden_};
    std::vector<ValueId> each;
    for (size_t k = 0; k < directions_; ++k)
      each.push_back(t_.reshape(sequences_[k], shape, all_[k].prefix + "sequence_direction",
                                {0, kAdded, 1, 2}));
    if (each.size() == 1) return each[0];
    return t_.add("Concat", each, {{"axis", int64_t{1}}}, "sequence");
  };
  const auto state = [&](const char* name, ValueId State::*which) {
    std::vector<ValueId> each;
    for (const State& last : last_) each.push_back(last.*which);
    if (each.size() == 1) return each[0];
    return t_.add("Concat", each, {{"axis", int64_t{0}}}, std::string(name) + "_directions");
  };
  set(0, "sequence", sequence, {2, 0, 1, 3});
  set(1, "last_hidden", [&] { return state("last_hidden", &State::h); }, {1, 0, 2});
  if (last_[0].c != kNone)
    set(2, "last_cell", [&] { return state("last_cell", &State::c); }, {1, 0, 2});
}

class Rnn : public Recurrence {
 public:
  explicit Rnn(Translation& t) : Recurrence(t, 1, 1, {"Tanh"}) {}

 private:
  void prepare(Direction& d, ValueId product) override {
    d.steps = by_step(product, d.prefix + "steps");
  }
  State step(const Direction& d, size_t i, const State& before, const std::string& name) override {
    const ValueId sum =
        plus(d.steps[i], product(before.h, d.weight, name + "product"), name + "sum");
    return {gate(d.activations[0], sum, name + "hidden"), kNone};
  }
};

/// LSTM with the gates in the order input, output, forget, cell.
class Lstm : public Recurrence {
 public:
  explicit Lstm(Translation& t)
      : Recurrence(t, 4, 3, {"Sigmoid", "Tanh", "Tanh"}),
        couples_(t.attributes().integer("input_forget", 0) != 0) {}

 private:
  void prepare(Direction& d, ValueId product) override {
    d.steps = by_step(product, d.prefix + "steps");
    peepholes_ = {kNone, kNone, kNone};
    if (d.peepholes != kNone)
      peepholes_ = parts(d.peepholes, 1, {hidden_, hidden_, hidden_}, d.prefix + "peepholes");
  }
  State step(const Direction& d, size_t i, const State& before, const std::string& name) override {
    const ValueId sum =
        plus(d.steps[i], product(before.h, d.weight, name + "product"), name + "sum");
    const std::vector<ValueId> of = parts(sum, 2, std::vector<int64_t>(4, hidden_), name + "gates");
    const auto seen = [&](ValueId x, size_t which, ValueId cell, const std::string& gate) {
      return plus(x, times(cell, peepholes_[which], name + gate + "_peephole"),
                  name + gate + "_sum");
    };
    const Activation &f = d.activations[0], &g = d.activations[1], &h = d.activations[2];
    const ValueId input = gate(f, seen(of[0], 0, before.c, "input"), name + "input");
    const ValueId fresh = gate(g, of[3], name + "candidate");
    ValueId kept = kNone;
    if (before.c != kNone) {
      const ValueId forget =
          couples_ ? t_.add("Sub", {t_.graph().add_constant(1.0f), input}, {}, name + "forget")
                   : gate(f, seen(of[2], 2, before.c, "forget"), name + "forget");
      kept = times(forget, before.c, name + "kept");
    }
    const ValueId cell = plus(kept, times(input, fresh, name + "written"), name + "cell");
    const ValueId output = gate(f, seen(of[1], 1, cell, "output"), name + "output");
    return {times(output, activate(t_, h, cell, name + "cell_out"), name + "hidden"), cell};
  }

  const bool couples_;
  std::vector<ValueId> peepholes_;  ///< input, output, forget
};

/// GRU with the gates in the order update, reset, hidden. With linear_before_reset, as in PyTorch,
/// the reset gate scales the product of the state plus its bias; otherwise it scales the state.
class Gru : public Recurrence {
 public:
  explicit Gru(Translation& t)
      : Recurrence(t, 3, 2, {"Sigmoid", "Tanh"}),
        linear_(t.attributes().integer("linear_before_reset", 0) != 0) {}

 private:
  bool joins_biases() const override { return !linear_; }

  void prepare(Direction& d, ValueId product) override {
    const std::vector<ValueId> kinds =
        parts(product, 2, {2 * hidden_, hidden_}, d.prefix + "kinds");
    gates_in_ = by_step(kinds[0], d.prefix + "gate_steps");
    fresh_in_ = by_step(kinds[1], d.prefix + "candidate_steps");
    if (!linear_ && d.weight != kNone) {
      weights_ = parts(d.weight, 2, {2 * hidden_, hidden_}, d.prefix + "weight_hh_kinds");
    } else if (d.hidden_bias != kNone && d.start.h == kNone) {
      biases_ = parts(d.hidden_bias, 1, {2 * hidden_, hidden_}, d.prefix + "hidden_biases");
    }
  }
  State step(const Direction& d, size_t i, const State& before, const std::string& name) override {
    ValueId gates_product = kNone, fresh_product = kNone;
    if (linear_) {
      ValueId all = product(before.h, d.weight, name + "product");
      if (all == kNone && d.hidden_bias != kNone) {
        gates_product = biases_[0];
        fresh_product = biases_[1];
      } else if (all != kNone) {
        all = plus(all, d.hidden_bias, name + "product_bias");
        const std::vector<ValueId> kinds =
            parts(all, 2, {2 * hidden_, hidden_}, name + "product_kinds");
        gates_product = kinds[0];
        fresh_product = kinds[1];
      }
    } else {
      if (before.h != kNone) gates_product = product(before.h, weights_[0], name + "gates_product");
    }
    const ValueId sum = plus(gates_in_[i], gates_product, name + "gates_sum");
    const std::vector<ValueId> of = parts(sum, 2, {hidden_, hidden_}, name + "gates");
    const Activation &f = d.activations[0], &g = d.activations[1];
    const ValueId update = gate(f, of[0], name + "update");
    if (linear_) {
      if (fresh_product != kNone)
        fresh_product =
            times(gate(f, of[1], name + "reset"), fresh_product, name + "reset_product");
    } else if (before.h != kNone) {
      const ValueId state = times(gate(f, of[1], name + "reset"), before.h, name + "reset_state");
      fresh_product = product(state, weights_[1], name + "candidate_product");
    }
    const ValueId fresh =
        gate(g, plus(fresh_in_[i], fresh_product, name + "candidate_sum"), name + "candidate");
    // (1 - update) * fresh + update * before
    if (before.h == kNone) {
      const ValueId lost = times(update, fresh, name + "lost");
      return {t_.add("Sub", {fresh, lost}, {}, name + "hidden"), kNone};
    }
    const ValueId change = t_.add("Sub", {before.h, fresh}, {}, name + "change");
    return {plus(fresh, times(update, change, name + "kept"), name + "hidden"), kNone};
  }

  const bool linear_;
  std::vector<ValueId> gates_in_, fresh_in_;  ///< per step
  std::vector<ValueId> weights_, biases_;     ///< for the gates, and for the candidate
};

template <class Cell>
void unroll(Translation& t) {
  Cell(t).run();
}

constexpr Translator kRecurrentTranslators[] = {
    {"LSTM", unroll<Lstm>},
    {"GRU", unroll<Gru>},
    {"RNN", unroll<Rnn>},
};

}  // namespace

std::span<const Translator> recurrent_translators() { return kRecurrentTranslators; }

}  // namespace halfscope::onnx_files
