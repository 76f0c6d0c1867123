// SPDX-License-Identifier: MIT
#include "core/lower/weight_average.h"

#include <charconv>
#include <vector>

#include "core/error.h"
#include "core/key_values.h"
#include "core/number_text.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

constexpr const char* kHint =
    "write 0.999 or 0.999:OPTION,...; options: form=lerp or form=average, format=F, compute=F";

FloatFormat format_of(const KeyValue& item) {
  const std::optional<FloatFormat> format = parse_format(item.value);
  if (!format) {
    throw usage_error("average: " + item.text + ": unknown format", format_hint(item.value));
  }
  if (format->flush_in && !format->flush_out) {
    throw usage_error("average: " + item.text + " only flushes operands",
                      "use :ftz or :ftz-out, which flush tensors when they are written");
  }
  return *format;
}

}  // namespace

WeightAverage parse_weight_average(std::string_view text) {
  WeightAverage average;
  const std::string_view number = text.substr(0, text.find(':'));
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), average.decay);
  if (error != std::errc() || end != number.data() + number.size() || !(average.decay > 0.0) ||
      !(average.decay < 1.0)) {
    throw usage_error("average: decay " + std::string(number) + " is not between 0 and 1", kHint);
  }
  for (const KeyValue& item : key_values(text, "average", kHint)) {
    if (item.text == "form=lerp") {
      average.form = WeightAverage::Form::lerp;
    } else if (item.text == "form=average") {
      average.form = WeightAverage::Form::average;
    } else if (item.key == "format") {
      average.format = format_of(item);
    } else if (item.key == "compute") {
      average.compute = format_of(item);
    } else {
      throw usage_error("average: unknown option '" + item.text + "'", kHint);
    }
  }
  return average;
}

std::string weight_average_text(const WeightAverage& average) {
  std::vector<std::string> options;
  if (average.form == WeightAverage::Form::average) options.emplace_back("form=average");
  if (average.format) options.push_back("format=" + format_name(*average.format));
  if (average.compute) options.push_back("compute=" + format_name(*average.compute));
  std::string text = number_text(average.decay);
  for (size_t i = 0; i < options.size(); ++i) text += (i == 0 ? ":" : ",") + options[i];
  return text;
}

std::string average_path(const std::string& variable) { return variable + ".ema"; }

AverageValues add_weight_average(Graph& graph, size_t variable, const WeightAverage& average,
                                 const FloatFormat& format, const FloatFormat& compute) {
  const Variable target = graph.variables()[variable];
  AverageValues values;
  values.average =
      graph.add_variable(average_path(target.path), graph.value(target.value).shape, {});
  const size_t index = graph.variables().size() - 1;
  const std::vector<ValueId> outputs = graph.add(
      "WeightAverage", target.path.substr(0, target.path.rfind('.')), {values.average, target.next},
      {{"decay", average.decay},
       {"lerp", int64_t{average.form == WeightAverage::Form::lerp ? 1 : 0}}});
  Node& node = graph.node(graph.value(outputs[0]).producer);
  node.phase = Phase::update;
  node.plan.write = compute;
  for (const ValueId value : {values.average, outputs[0], outputs[1]}) {
    graph.value(value).format = format;
  }
  graph.variables()[index].next = values.next = outputs[0];
  values.update = outputs[1];
  return values;
}

}  // namespace halfscope
