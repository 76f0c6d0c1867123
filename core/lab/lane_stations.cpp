// SPDX-License-Identifier: MIT
#include "core/lab/lane_stations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/bodies/scaling.h"
#include "core/error.h"
#include "core/lab/lane_reader.h"
#include "core/lab/number_text.h"
#include "core/lower/execution.h"
#include "core/lower/narrow.h"
#include "core/numeric/formats/arithmetic.h"
#include "core/numeric/formats/round.h"
#include "core/numeric/sums/accumulate.h"
#include "core/ops/ops.h"

namespace halfscope::lab {
namespace {

/// Says how a block's scale follows from its largest number.
std::string scale_text(int64_t count, float amax, double wanted, double kept,
                       const BlockFormat& format) {
  const std::string element = format_name(format.element.without_options());
  const std::string begin =
      fmt::format("{} numbers share one scale. The largest is {:.4g}, ", count, amax);
  if (amax == 0.0f) return begin + "so any scale would do.";
  if (format.scale != ScaleKind::ue8m0) {
    return begin + fmt::format(
                       "and {} reaches {:g}, so the scale should be {:.4g}. It is stored as "
                       "an e4m3fn number times the tensor's own scale.",
                       element, format.element.max_finite(), wanted);
  }
  if (format.rule == ScaleRule::up) {
    return begin + fmt::format(
                       "and {} reaches {:g}, so the scale should be {:.4g}. The next power "
                       "of two above is 2^{}.",
                       element, format.element.max_finite(), wanted, exponent_of(kept));
  }
  return begin + fmt::format(
                     "with exponent 2^{}. The largest exponent of {} is 2^{}, so the scale "
                     "is 2^{}: the rule of OCP MX looks at exponents only.",
                     exponent_of(wide(amax)), element, format.element.max_exponent(),
                     exponent_of(kept));
}

/// Repeats the step's arithmetic for one element.
class LaneStations : public LaneReader {
 public:
  using LaneReader::LaneReader;

  std::vector<Station> stations() {
    forward();
    backward();
    if (step_.ranks.size() > 1) ranks();
    update();
    return std::move(stations_);
  }

 private:
  Station& add(std::string key, std::string name, StationPart part, const FloatFormat& format) {
    Station& station = stations_.emplace_back();
    station.key = std::move(key);
    station.name = std::move(name);
    station.part = part;
    station.format = format;
    return station;
  }
  void set(Station& station, double exact, double stored, double recomputed, std::string text) {
    station.exact = exact;
    station.stored = stored;
    station.recomputed = recomputed;
    station.text = std::move(text);
    describe_rounding(station);
  }

  // The operand of a product: a Cast, block-scaled codes, or the value itself.
  void operand(const Node& reader, size_t input, int64_t index, const char* key,
               const std::string& name, const char* scale_name, StationPart part,
               const std::string& what) {
    const ValueId read = reader.inputs[input];
    const ValueId source = before_narrowing(graph_, read);
    if (read == source) return;
    const float exact = own(source)[at(index)], stored = own(read)[at(index)];
    const Node& node = graph_.node(graph_.value(read).producer);
    if (node.op != "Dequantize") {
      const FloatFormat& format = graph_.value(read).format;
      Station& station = add(key, name, part, format);
      set(station, wide(exact), wide(stored), rounded(read, exact, index, own_.random),
          fmt::format("The product reads {} in {}.", what, format_name(format)));
      return;
    }
    const Node& quantize = graph_.node(graph_.value(node.inputs[0]).producer);
    const BlockShape shape = block_shape(quantize, graph_.value(source).shape);
    const BlockFormat format = block_format(quantize);
    const std::vector<float>& values = own(source);
    // The block of this element along the summed dimension.
    const int64_t inner = index % shape.inner, along = index / shape.inner % shape.length;
    const int64_t outer = index / (shape.inner * shape.length);
    const int64_t block = along / format.block_size;
    float amax = 0.0f;
    const int64_t last = std::min((block + 1) * format.block_size, shape.length);
    for (int64_t k = block * format.block_size; k < last; ++k) {
      amax =
          std::max(amax, std::fabs(values[at((outer * shape.length + k) * shape.inner + inner)]));
    }
    const size_t place = at((outer * blocks_along(shape, format) + block) * shape.inner + inner);
    const double of_tensor = wide(own(quantize.outputs[2])[0]);
    const float kept = own(quantize.outputs[1])[place];
    const double unit = wide(kept) * of_tensor;
    const bool power = format.scale == ScaleKind::ue8m0;
    Station& scale = add(std::string(key) + " scale", scale_name, part,
                         power ? FloatFormat{8, 0, 127} : kE4m3fn);
    const double wanted = wide(amax) / (format.element.max_finite() * of_tensor);
    const double again = wide(block_scale(std::bit_cast<uint32_t>(amax), format, of_tensor));
    set(scale, wanted, wide(kept), again,
        scale_text(last - block * format.block_size, amax, wanted, wide(kept), format));
    // A scale is chosen, not rounded to the nearest: the bin shows where it lies.
    if (scale.loss != StationLoss::none) scale.loss = StationLoss::rounded;
    const ValueId codes = node.inputs[0];
    const FloatFormat& element = graph_.value(codes).format;
    Station& station = add(key, name, part, element);
    station.unit = unit;
    const bool two_scales = format.scale == ScaleKind::e4m3fn_and_fp32;
    const float tensor_scale = static_cast<float>(of_tensor);
    const float code = two_scales ? code_by_two_scales(exact, kept, tensor_scale, element)
                       : power    ? code_by_power_of_two(exact, kept)
                                  : code_by_quotient(exact, kept);
    const float code_again = static_cast<float>(rounded(codes, code, index, own_.random));
    set(station, wide(exact), wide(stored), wide(value_of_code(code_again, kept, tensor_scale)),
        fmt::format("The product reads {} as a number of {} times the scale {:.4g}.", what,
                    format_name(element.without_options()), unit));
  }

  FloatFormat accumulator_of(const Node& node) const {
    return node.plan.accumulation.sums_in_format() ? graph_.value(node.outputs[0]).format : kFp32;
  }

  /// Adds the stations of the product of term k, and of the accumulator behind it.
  void term(const Node& node, const Sum& sum, size_t k, const char* product, const char* total,
            StationPart part, const std::string& what) {
    const double exact = wide(sum.left[k]) * wide(sum.right[k]);
    const FloatFormat accumulator = accumulator_of(node);
    const bool separate = node.plan.accumulation.kind == Accumulation::format_mul_add;
    Station& multiplied = add(product, "Product", part, accumulator);
    multiplied.by_engine = false;
    if (separate) {
      const TensorRounding draws =
          SumDraws::of(sum.spec, static_cast<int64_t>(sum.left.size()), sum.element);
      const double stored =
          round_to_format(exact, accumulator, draws.element(2 * static_cast<int64_t>(k))).value;
      set(multiplied, exact, stored, stored, what + " The product is rounded before it is added.");
    } else {
      multiplied.rounds = false;
      set(multiplied, exact, exact, exact,
          what + " All bits of the product enter the sum: this multiply-add rounds only once.");
    }
    const double before = wide(sum.of_first(k)), after = wide(sum.of_first(k + 1));
    Station& added = add(total, "Accumulator", part, accumulator);
    added.by_engine = false;
    added.previous = before;
    const double addend = separate ? stations_[stations_.size() - 2].stored : exact;
    set(added, before + addend, after, after,
        fmt::format("Term {} of {}: the running sum was {:.6g}. The accumulator is {}.", k + 1,
                    sum.left.size(), before, format_name(accumulator)));
    if (addend != 0.0 && before == after) added.loss = StationLoss::swamped;
  }

  void forward() {
    const Node& node = graph_.node(product_);
    const double stored = wide(step_.before.at(weight_->value)[at(element_)]);
    const FloatFormat& storage = graph_.value(weight_->value).format;
    Station& weight = add("weight", "Stored weight", StationPart::forward, storage);
    weight.rounds = false;
    set(weight, stored, stored, stored,
        fmt::format("The step begins with this weight. It is stored in {}.", format_name(storage)));
    operand(node, 1, element_, "read weight", "Weight as read", "Scale of weights",
            StationPart::forward, "it");
    operand(node, 0, row_ * columns_ + place_.column, "read input", "Input as read",
            "Scale of inputs", StationPart::forward, "the input of this weight");
    Sum sum = sum_of(node, row_ * rows_ + place_.row);
    for (int64_t k = 0; k < columns_; ++k) {
      sum.left.push_back(own(node.inputs[0])[at(row_ * columns_ + k)]);
      sum.right.push_back(own(node.inputs[1])[at(place_.row * columns_ + k)]);
    }
    const size_t k = at(place_.column);
    term(node, sum, k, "product", "sum", StationPart::forward,
         fmt::format("The weight is multiplied by its input, {:.6g}.", sum.left[k]));
    const float bias = own(node.inputs[2])[at(place_.row)];
    const float exact = sum.of_first(sum.left.size(), &bias);
    const int64_t index = row_ * rows_ + place_.row;
    const ValueId output = node.outputs[0];
    Station& out =
        add("output", "Output stored", StationPart::forward, graph_.value(output).format);
    const float kept = own(output)[at(index)];
    const char* after = place_.layer == 2 ? "It is the score of one class."
                        : kept > 0.0f     ? "ReLU lets it pass."
                                          : "ReLU makes it 0, so no gradient comes back.";
    set(out, wide(exact), wide(kept), rounded(output, exact, index, own_.random),
        fmt::format("The sum of all {} products and the bias leaves the accumulator and is stored. "
                    "{}",
                    sum.left.size(), after));
  }

  void backward() {
    const Executable& exe = *step_.executable;
    const double scale = scalar(exe.loss_scale);
    const double loss = wide(own(exe.loss)[0]);
    Station& plain = add("loss", "Loss", StationPart::backward, graph_.value(exe.loss).format);
    plain.rounds = false;
    set(plain, loss, loss, loss, "The mean loss of the samples of this rank, computed in fp32.");
    Station& scaled = add("scaled loss", "Loss \u00d7 scale", StationPart::backward, kFp32);
    scaled.by_engine = false;
    const double times = wide(static_cast<float>(loss * scale));
    set(scaled, loss * scale, times, times,
        scale == 1.0 ? "There is no loss scale: gradients keep their own size."
                     : fmt::format("The loss is multiplied by {:g}, and so is every gradient until "
                                   "it is unscaled.",
                                   scale));
    const Node& node = graph_.node(gradient_);
    const ValueId dy = before_narrowing(graph_, node.inputs[0]);
    const int64_t index = row_ * rows_ + place_.row;
    if (place_.layer == 2) {
      logit_gradient(dy, place_.row, "output gradient", "Output gradient",
                     "The loss sends back how much this output should change: softmax minus "
                     "target, divided by the samples of the rank.");
    } else {
      hidden_gradient(dy, index);
    }
    operand(node, 0, index, "read gradient", "Gradient as read", "Scale of gradients",
            StationPart::backward, "the gradient of the output");
    // Without blocks it is the number that the forward pass read.
    if (scales_operands(node)) {
      operand(node, 1, row_ * columns_ + place_.column, "read input back", "Input as read again",
              "Scale of inputs again", StationPart::backward, "the input of this weight");
    }
    Sum sum = sum_of(node, element_);
    for (int64_t s = 0; s < per_rank_; ++s) {
      sum.left.push_back(own(node.inputs[0])[at(s * rows_ + place_.row)]);
      sum.right.push_back(own(node.inputs[1])[at(s * columns_ + place_.column)]);
    }
    term(node, sum, at(row_), "gradient product", "gradient sum", StationPart::backward,
         fmt::format("The sample's share in the weight's gradient: its output gradient times its "
                     "input, {:.6g}.",
                     sum.right[at(row_)]));
    const float exact = sum.of_first(sum.left.size());
    const ValueId stored = node.outputs[0];
    Station& gradient =
        add("gradient", "Gradient stored", StationPart::backward, graph_.value(stored).format);
    set(gradient, wide(exact), wide(own(stored)[at(element_)]),
        rounded(stored, exact, element_, own_.random),
        fmt::format("The sum over {} samples is stored as the weight's gradient.", per_rank_));
    mark_scaled(scale);
  }

  void logit_gradient(ValueId value, int64_t unit, const char* key, const char* name,
                      const char* text) {
    const int64_t index = row_ * kSmallClasses + unit;
    const float exact = own_.unrounded.at(value)[at(index)];
    Station& station = add(key, name, StationPart::backward, graph_.value(value).format);
    set(station, wide(exact), wide(own(value)[at(index)]),
        rounded(value, exact, index, own_.random), text);
  }

  /// The gradient of a hidden unit: a sum over the classes, which ReLU passes or stops.
  void hidden_gradient(ValueId dy, int64_t index) {
    const Node& relu = graph_.node(graph_.value(dy).producer);
    ValueId hidden = halfscope::kNone;
    for (const ValueId input : relu.inputs) {
      const NodeId producer = graph_.value(input).producer;
      if (producer != halfscope::kNone && graph_.node(producer).op == "Gemm" &&
          graph_.node(producer).phase == Phase::backward) {
        hidden = input;
      }
    }
    if (hidden == halfscope::kNone) throw Error("no gradient of the hidden layer");
    const Node& node = graph_.node(graph_.value(hidden).producer);
    const ValueId logits = before_narrowing(graph_, node.inputs[0]);
    const std::vector<float>& row = own_.unrounded.at(logits);
    int64_t largest = 0;
    for (int64_t j = 0; j < kSmallClasses; ++j) {
      if (std::fabs(row[at(row_ * kSmallClasses + j)]) >
          std::fabs(row[at(row_ * kSmallClasses + largest)])) {
        largest = j;
      }
    }
    logit_gradient(logits, largest, "logit gradient", "Gradient of a score",
                   "The loss sends back how much each class score should change. This is the "
                   "largest of the ten.");
    Sum sum = sum_of(node, index);
    const int64_t hidden_units = rows_;
    for (int64_t j = 0; j < kSmallClasses; ++j) {
      sum.left.push_back(own(node.inputs[0])[at(row_ * kSmallClasses + j)]);
      sum.right.push_back(own(node.inputs[1])[at(j * hidden_units + place_.row)]);
    }
    const float exact = sum.of_first(sum.left.size());
    Station& station = add("output gradient", "Output gradient", StationPart::backward,
                           graph_.value(hidden).format);
    const double again = rounded(hidden, exact, index, own_.random);
    const double passed = wide(own(dy)[at(index)]);
    const bool stopped = passed == 0.0 && again != 0.0;
    set(station, wide(exact), wide(own(hidden)[at(index)]), again,
        stopped ? "Ten score gradients times their weights add up to the gradient of this unit. "
                  "ReLU then stops it, because the unit's output was not positive."
                : "Ten score gradients times their weights add up to the gradient of this unit.");
  }

  /// Everything after the loss carries the loss scale.
  void mark_scaled(double scale) {
    bool scaled = false;
    for (Station& station : stations_) {
      scaled = scaled || station.key == "scaled loss";
      if (scaled && !station.key.starts_with("read input")) station.twin_factor = scale;
    }
  }

  /// Repeats the all-reduce for one element: reduce_rows() with a station per addition.
  void ranks() {
    const Executable& exe = *step_.executable;
    const ReducedGradient* reduced = nullptr;
    for (const ReducedGradient& each : exe.reduced) {
      if (each.variable == weight_->path) reduced = &each;
    }
    if (reduced == nullptr) throw Error("no reduction of " + weight_->path);
    const int64_t count = static_cast<int64_t>(step_.ranks.size());
    const int64_t elements = rows_ * columns_;
    const Reduction& how = exe.reduction;
    const FloatFormat format = graph_.value(reduced->reduced).format;
    const bool after = how.average == Reduction::Average::after;
    const bool each = how.algorithm != Reduction::Algorithm::all_to_all;
    const int64_t chunks = reduction_chunks(how.algorithm, count);
    int64_t chunk = 0;
    while (chunk + 1 < chunks && chunk_begin(elements, chunks, chunk + 1) <= element_) ++chunk;
    const std::vector<RankAddition> additions = rank_additions(how.algorithm, count, chunk);
    const auto store = [&](float x) { return round_to_format(x, format).value; };
    const double scale = scalar(exe.loss_scale);
    std::vector<float> rows;
    for (const WatchedStep::Rank& rank : step_.ranks) {
      const float own_gradient = of_rank(rank, graph_.node(gradient_).outputs[0])[at(element_)];
      float row = store(own_gradient);
      if (!after) row = store(row / static_cast<float>(count));
      rows.push_back(row);
    }
    if (!after) {
      Station& divided =
          add("divided", fmt::format("\u00f7 {} ranks", count), StationPart::ranks, format);
      divided.by_engine = false;
      divided.twin_factor = scale;
      const double gradient = wide(of_rank(own_, graph_.node(gradient_).outputs[0])[at(element_)]);
      const double kept = wide(rows[at(rank_)]);
      set(divided, gradient / static_cast<double>(count), kept, kept,
          fmt::format("Rank {} divides its gradient by the number of ranks before it is sent.",
                      rank_));
    }
    const double engine = wide(step_.after.at(reduced->reduced)[at(element_)]);
    for (size_t hop = 0; hop < additions.size(); ++hop) {
      const auto [to, from] = additions[hop];
      const bool last = hop + 1 == additions.size();
      const float before = rows[at(to)], sent = rows[at(from)], sum = before + sent;
      const bool rounds = each || last;
      const float kept = rounds ? store(sum) : sum;
      rows[at(to)] = last && after ? sum : kept;
      Station& station =
          add(fmt::format("hop {}", hop + 1), fmt::format("Rank {} + rank {}", to, from),
              StationPart::ranks, rounds ? format : kFp32);
      station.twin_factor = scale;
      station.by_engine = last && !after;
      station.previous = std::fabs(before) > std::fabs(sent) ? wide(before) : wide(sent);
      set(station, wide(before) + wide(sent), station.by_engine ? engine : wide(kept), wide(kept),
          fmt::format("Hop {} of {}: rank {} adds {:.6g}, sent by rank {}, to its {:.6g}.", hop + 1,
                      additions.size(), to, sent, from, before));
      if (std::min(std::fabs(before), std::fabs(sent)) > 0.0f &&
          kept == static_cast<float>(station.previous)) {
        station.loss = StationLoss::swamped;
      }
    }
    if (after) {
      const float sum = rows[at(additions.back().to)];
      const float mean = sum / static_cast<float>(count);
      Station& station =
          add("reduced", fmt::format("\u00f7 {} ranks", count), StationPart::ranks, format);
      station.twin_factor = scale;
      set(station, wide(sum) / static_cast<double>(count), engine, wide(store(mean)),
          "The sum of all ranks is divided by their number and stored.");
    }
  }

  const Node* update_node(const char* op) const {
    for (const Node& node : graph_.nodes()) {
      if (node.op == op && node.inputs[0] == weight_->value) return &node;
    }
    return nullptr;
  }

  void update() {
    const Executable& exe = *step_.executable;
    const Node* const moments = update_node("AdamMoments");
    const Node* const adam = update_node("AdamUpdate");
    const Node* const sgd = update_node("SgdUpdate");
    const Node* const last = adam != nullptr ? adam : sgd;
    if (last == nullptr) throw Error("no update of " + weight_->path);
    const ValueId gradient_value = (moments != nullptr ? moments : sgd)->inputs[1];
    const float gradient = (step_.ranks.size() > 1 ? step_.after.at(gradient_value)
                                                   : own(gradient_value))[at(element_)];
    const float inverse = step_.updated ? static_cast<float>(scalar(exe.inverse_scale))
                                        : static_cast<float>(1.0 / scalar(exe.loss_scale));
    const float clip = step_.updated ? static_cast<float>(scalar(exe.clip)) : 1.0f;
    const float g = (gradient * inverse) * clip;
    Station& unscaled = add("unscaled", "Unscaled", StationPart::update, kFp32);
    unscaled.by_engine = false;
    set(unscaled, wide(gradient) * wide(inverse), wide(g), wide(g),
        inverse == 1.0f ? "There is nothing to unscale."
                        : fmt::format("The gradient is divided by the loss scale, in fp32: it "
                                      "becomes {:.4g}.",
                                      g));
    if (!step_.updated) {
      skipped();
      return;
    }
    float amount = 0.0f;
    if (moments != nullptr) {
      amount = adam_stations(*moments, *adam, g);
    } else {
      const float rate = static_cast<float>(scalar(exe.learning_rate));
      amount = -(rate * g);
      add_update(*sgd, amount, -(wide(rate) * wide(g)),
                 "The update is minus the learning rate times the gradient.");
    }
    const float old = step_.before.at(weight_->value)[at(element_)];
    const ValueId next = last->outputs[0];
    const float sum = old + amount;
    const FloatFormat& storage = graph_.value(next).format;
    Station& weight = add("new weight", "New weight", StationPart::update, storage);
    weight.previous = wide(old);
    set(weight, wide(old) + wide(amount), wide(step_.after.at(next)[at(element_)]),
        rounded(next, sum, element_, last_random()),
        fmt::format("{:.6g} is added to the old weight, {:.8g}, and the sum is stored in {}.",
                    amount, old, format_name(storage)));
    if (amount != 0.0f && weight.stored == wide(old)) {
      weight.loss = StationLoss::swamped;
      weight.text += " The update is lost: the weight did not change.";
    }
  }

  /// The update draws its random words with the last rank's step.
  const RandomSource& last_random() const { return step_.ranks.back().random; }

  void add_update(const Node& node, float amount, double exact, std::string text) {
    Station& station = add("update", "Update", StationPart::update, kFp32);
    set(station, exact, wide(step_.after.at(node.outputs[1])[at(element_)]), wide(amount),
        std::move(text));
  }

  float adam_stations(const Node& moments, const Node& node, float g) {
    const Executable& exe = *step_.executable;
    const auto attribute = [](const Node& of, const char* name, double usual) {
      return real_attribute(of, name, usual);
    };
    const double b1 = attribute(moments, "beta1", 0.9), b2 = attribute(moments, "beta2", 0.999);
    const float beta1 = static_cast<float>(b1), beta2 = static_cast<float>(b2);
    const float other1 = static_cast<float>(1.0 - b1), other2 = static_cast<float>(1.0 - b2);
    const auto moved = [&](const char* key, const char* name, size_t state, float value,
                           double exact, std::string text) {
      const ValueId next = moments.outputs[state];
      Station& station = add(key, name, StationPart::update, graph_.value(next).format);
      station.previous = wide(step_.before.at(moments.inputs[4 + state])[at(element_)]);
      set(station, exact, wide(step_.after.at(next)[at(element_)]),
          rounded(next, value, element_, last_random()), std::move(text));
      return static_cast<float>(station.recomputed);
    };
    const float old_m = step_.before.at(moments.inputs[4])[at(element_)];
    const float old_v = step_.before.at(moments.inputs[5])[at(element_)];
    const float kept_m = beta1 * old_m, new_m = other1 * g;
    const float kept_v = beta2 * old_v, new_v = other2 * (g * g);
    const float m =
        moved("m", "Adam m", 0, kept_m + new_m, wide(beta1) * wide(old_m) + wide(other1) * wide(g),
              fmt::format("The running mean of the gradient was {:.4g}: {:g} of it "
                          "stays, and {:g} of the new gradient is added.",
                          old_m, b1, wide(other1)));
    const float v = moved("v", "Adam v", 1, kept_v + new_v,
                          wide(beta2) * wide(old_v) + wide(other2) * (wide(g) * wide(g)),
                          fmt::format("The running mean of the squared gradient was {:.4g}. "
                                      "Squares are tiny: this is the first to underflow.",
                                      old_v));
    const double rate = wide(static_cast<float>(scalar(exe.learning_rate)));
    const float step_size =
        static_cast<float>(rate / wide(static_cast<float>(scalar(node.inputs[4]))));
    const float root_2 =
        static_cast<float>(std::sqrt(wide(static_cast<float>(scalar(node.inputs[5])))));
    const float eps = static_cast<float>(attribute(node, "eps", 0.0));
    const float denominator = std::sqrt(v) / root_2 + eps;
    const float amount = -(step_size * (m / denominator));
    const double exact =
        -(wide(step_size) * (wide(m) / (std::sqrt(wide(v)) / wide(root_2) + wide(eps))));
    add_update(node, amount, exact,
               "Adam divides m by the root of v and multiplies by the learning rate. Both are "
               "first corrected for their start at 0.");
    return amount;
  }

  void skipped() {
    const double old = wide(step_.before.at(weight_->value)[at(element_)]);
    Station& weight =
        add("new weight", "New weight", StationPart::update, graph_.value(weight_->value).format);
    weight.by_engine = false;
    weight.rounds = false;
    weight.previous = old;
    int64_t broken = 0, total = 0;
    for (const Node& node : graph_.nodes()) {
      if (node.path != "metrics/gradient_norm") continue;
      for (const ValueId input : node.inputs) {
        const auto found = step_.after.find(input);
        const std::vector<float>& values = found != step_.after.end() ? found->second : own(input);
        total += static_cast<int64_t>(values.size());
        broken += std::count_if(values.begin(), values.end(),
                                [](float value) { return !std::isfinite(value); });
      }
    }
    set(weight, old, old, old,
        fmt::format("The step is skipped: {} of {} gradients are infinite or NaN. No weight "
                    "changes, and a dynamic loss scale becomes smaller.",
                    broken, total));
    weight.loss = StationLoss::skipped;
  }

  std::vector<Station> stations_;
};

}  // namespace

std::vector<Station> lane_stations(const WatchedStep& step, const MicroscopePlace& place,
                                   int64_t sample) {
  return LaneStations(step, place, sample).stations();
}

int64_t largest_sample(const WatchedStep& step, const MicroscopePlace& place) {
  int64_t best = 0;
  double share = -1.0;
  for (int64_t sample = 0; sample < kSmallBatch; ++sample) {
    const double each = LaneReader(step, place, sample).share();
    if (each > share) {
      share = each;
      best = sample;
    }
  }
  return best;
}

SampleRow sample_row(const WatchedStep& step, const MicroscopePlace& place, int64_t sample) {
  return LaneReader(step, place, sample).row();
}

}  // namespace halfscope::lab
