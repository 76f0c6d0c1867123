// SPDX-License-Identifier: MIT
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/models/builders.h"
#include "core/numeric/elementary/elementary.h"

namespace halfscope {
namespace {

class Gpt {
 public:
  Gpt(const NetworkSize& size, const GptShape& shape)
      : net_(size), shape_(shape), sequence_(size.sample.at(0)), head_(shape.width / shape.heads) {}

  Model build() {
    const int64_t rows = net_.size().batch * sequence_;
    const ValueId tokens = net_.tokens();
    const ValueId table = net_.graph().add_variable(
        "wte.weight", {net_.size().classes, shape_.width}, {bound_of_deviation(kDeviation)});
    ValueId x = kNone;
    if (shape_.rotary) {
      x = net_.op("Gather", "wte", {table, tokens});
      add_turns();
    } else {
      const ValueId places = net_.graph().add_variable("wpe.weight", {sequence_, shape_.width},
                                                       {bound_of_deviation(kDeviation)});
      x = net_.add("embed", net_.op("Gather", "wte", {table, tokens}), places);
    }
    add_mask();
    x = dropped("drop", net_.reshape("rows", x, {rows, shape_.width}));
    for (int64_t i = 0; i < shape_.layers; ++i) x = block("h/" + std::to_string(i) + "/", x);
    x = net_.layer_norm("ln_f", x);
    return net_.finish(net_.op("Gemm", "lm_head", {x, table}, {{"transB", int64_t{1}}}));
  }

 private:
  static constexpr double kDeviation = 0.02;  // of GPT-2's weights

  /// 1 where a position may see another one: the same or an earlier one.
  void add_mask() {
    std::vector<int32_t> seen(static_cast<size_t>(sequence_ * sequence_), 0);
    for (int64_t i = 0; i < sequence_; ++i) {
      for (int64_t j = 0; j <= i; ++j) seen[static_cast<size_t>(i * sequence_ + j)] = 1;
    }
    mask_ = net_.graph().add_index_constant({sequence_, sequence_}, std::move(seen));
    fill_ = net_.graph().add_constant(-std::numeric_limits<float>::infinity());
  }

  /// Cosines and sines of position * 10000^(-2 i / d), for elements i and i + d / 2 of a head.
  void add_turns() {
    Tensor cosines{{sequence_, head_}, {}}, sines{{sequence_, head_}, {}};
    for (int64_t position = 0; position < sequence_; ++position) {
      for (int64_t i = 0; i < head_; ++i) {
        const double exponent =
            static_cast<double>(2 * (i % (head_ / 2))) / static_cast<double>(head_);
        const double angle = static_cast<double>(position) * elementary::pow(10000.0, -exponent);
        cosines.data.push_back(static_cast<float>(elementary::cos(angle)));
        sines.data.push_back(static_cast<float>(elementary::sin(angle)));
      }
    }
    cosines_ = net_.graph().add_constant(std::move(cosines));
    sines_ = net_.graph().add_constant(std::move(sines));
  }

  /// Turns each head of x [batch, heads, sequence, d] by its position.
  ValueId turned(const std::string& path, ValueId x) {
    const std::vector<ValueId> halves =
        net_.graph().add("Split", path + "/split", {x},
                         {{"axis", int64_t{3}}, {"split", std::vector<int64_t>(2, head_ / 2)}});
    const ValueId negative = net_.op("Neg", path + "/neg", {halves[1]});
    const ValueId swapped =
        net_.op("Concat", path + "/swap", {negative, halves[0]}, {{"axis", int64_t{3}}});
    return net_.add(path + "/add", net_.op("Mul", path + "/cos", {x, cosines_}),
                    net_.op("Mul", path + "/sin", {swapped, sines_}));
  }

  ValueId layer(const std::string& path, ValueId x, int64_t out, double deviation = kDeviation) {
    return net_.linear(path, x, out, {bound_of_deviation(deviation)}, {});
  }

  /// A layer whose results are added to the residual stream; its weights are smaller, so that the
  /// stream keeps its size over all layers.
  ValueId residual_layer(const std::string& path, ValueId x) {
    const double layers = static_cast<double>(2 * shape_.layers);
    return layer(path, x, shape_.width, kDeviation / std::sqrt(layers));
  }

  /// Dropout, if the network has any.
  ValueId dropped(const std::string& path, ValueId x) {
    if (shape_.dropout == 0.0) return x;
    return net_.op("Dropout", path, {x},
                   {{"ratio", shape_.dropout}, {"training_mode", int64_t{1}}});
  }

  ValueId heads(const std::string& path, ValueId part) {
    return net_.reshape(path + "/heads", part, {net_.size().batch, sequence_, shape_.heads, head_});
  }

  ValueId attention(const std::string& path, ValueId x) {
    const int64_t width = shape_.width;
    const ValueId all = layer(path + "c_attn", x, 3 * width);
    const std::vector<ValueId> parts =
        net_.graph().add("Split", path + "split", {all},
                         {{"axis", int64_t{1}}, {"split", std::vector<int64_t>(3, width)}});
    const std::vector<int64_t> by_head{0, 2, 1, 3}, columns_by_head{0, 2, 3, 1};
    ValueId q = net_.transpose(path + "q", heads(path + "q", parts[0]), by_head);
    ValueId k = heads(path + "k", parts[1]);
    if (shape_.rotary) {
      q = turned(path + "q_rope", q);
      k = turned(path + "k_rope", net_.transpose(path + "k_by_head", k, by_head));
      k = net_.transpose(path + "k", k, {0, 1, 3, 2});
    } else {
      k = net_.transpose(path + "k", k, columns_by_head);
    }
    const ValueId v = net_.transpose(path + "v", heads(path + "v", parts[2]), by_head);
    Attributes how{{"scale", fan_in_bound(head_)}};
    if (shape_.dropout > 0.0) {
      how["dropout"] = shape_.dropout;
      how["training_mode"] = int64_t{1};
    }
    const ValueId y =
        net_.op("Attention", path + "attention", {q, k, v, mask_, fill_}, std::move(how));
    const ValueId joined = net_.transpose(path + "join", y, by_head);
    const ValueId rows =
        net_.reshape(path + "joined", joined, {net_.size().batch * sequence_, width});
    return dropped(path + "drop", residual_layer(path + "c_proj", rows));
  }

  ValueId block(const std::string& path, ValueId x) {
    x = net_.add(path + "add1", x, attention(path + "attn/", net_.layer_norm(path + "ln_1", x)));
    ValueId y = layer(path + "mlp/c_fc", net_.layer_norm(path + "ln_2", x), 4 * shape_.width);
    y = net_.op("Gelu", path + "mlp/gelu", {y}, {{"tanh", int64_t{1}}});
    y = residual_layer(path + "mlp/c_proj", y);
    return net_.add(path + "add2", x, dropped(path + "mlp/drop", y));
  }

  Layers net_;
  GptShape shape_;
  int64_t sequence_, head_;
  ValueId mask_ = kNone, fill_ = kNone, cosines_ = kNone, sines_ = kNone;
};

constexpr const char* kExample =
    "write, for example, gpt:4x128x4, gpt:4x128x4:rope for rotary positions, or "
    "gpt:4x128x4:dropout=0.1";

/// Reads "rope" or "dropout=P".
void read_option(const std::string& name, std::string_view option, GptShape& shape) {
  constexpr std::string_view kDropout = "dropout=";
  if (option == "rope" && !shape.rotary) {
    shape.rotary = true;
    return;
  }
  if (option.starts_with(kDropout) && shape.dropout == 0.0) {
    option.remove_prefix(kDropout.size());
    const char* const last = option.data() + option.size();
    const auto [end, error] = std::from_chars(option.data(), last, shape.dropout);
    if (error == std::errc() && end == last && shape.dropout > 0.0 && shape.dropout < 1.0) return;
    throw usage_error("model '" + name + "': the dropout is not above 0 and below 1", kExample);
  }
  throw usage_error("model '" + name + "' has no option '" + std::string(option) + "'", kExample);
}

}  // namespace

GptShape parse_gpt(const std::string& name) {
  GptShape shape;
  std::string_view sizes = std::string_view(name).substr(name.find(':') + 1);
  std::string_view options;
  if (const size_t colon = sizes.find(':'); colon != std::string_view::npos) {
    options = sizes.substr(colon + 1);
    sizes = sizes.substr(0, colon);
    while (true) {
      const size_t next = std::min(options.find(':'), options.size());
      read_option(name, options.substr(0, next), shape);
      if (next == options.size()) break;
      options.remove_prefix(next + 1);
    }
  }
  std::vector<int64_t> numbers;
  for (const std::string_view item : split_sizes(sizes, 'x')) numbers.push_back(size_in(item));
  if (numbers.size() != 3 || std::count(numbers.begin(), numbers.end(), 0) > 0) {
    throw usage_error("model '" + name + "' is not gpt:LAYERSxWIDTHxHEADS", kExample);
  }
  shape.layers = numbers[0];
  shape.width = numbers[1];
  shape.heads = numbers[2];
  const int64_t multiple = shape.rotary ? 2 * shape.heads : shape.heads;
  if (shape.width % multiple != 0) {
    throw usage_error("model '" + name + "': the width is not a multiple of " +
                          std::to_string(multiple) + ", " +
                          (shape.rotary ? "twice the number of heads" : "the number of heads"),
                      "write, for example, gpt:4x128x4");
  }
  return shape;
}

Model make_gpt(const NetworkSize& size, const GptShape& shape) {
  if (size.sample.size() != 1) {
    throw usage_error("model '" + size.name + "' needs sequences of tokens",
                      "use, for example, --data text:FILE");
  }
  return Gpt(size, shape).build();
}

}  // namespace halfscope
