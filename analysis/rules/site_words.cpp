// SPDX-License-Identifier: MIT
#include "analysis/rules/site_words.h"

#include <fmt/format.h>

#include "analysis/format_limits.h"
#include "analysis/rules/text.h"
#include "analysis/run_rates.h"

namespace halfscope {
namespace {

/// Returns the layer that reads what a function gives: "fc1" of "fc1/input_2".
std::string reader_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

/// Returns whether weights are in fp32, so that a narrow format in PyTorch comes from autocast.
bool keeps_fp32_weights(const LaneFacts& lane) {
  return full_precision(storage_format(lane.info()).value_or(kFp32));
}

}  // namespace

Subject subject_of(const SiteInfo& site) {
  if (site.role == Role::activation && site.op == site.path) {
    return {"the code of " + site.path + ".forward", "results"};
  }
  if (site.op == kFunctionOp) return {"the code before " + reader_of(site.path), "results"};
  if (site.role == Role::activation) return {site.path, "outputs"};
  if (site.role != Role::input) return {site.name(), "values"};
  if (site.path == "input") {
    return {site.tensor == "input" ? "the input" : "the input " + site.tensor, "values"};
  }
  const bool constant = site.tensor.starts_with("constant");
  return {(constant ? "a constant of " : "an operand of ") + site.path, "values"};
}

std::string code_words(const LaneFacts& lane, int node) {
  constexpr size_t kFew = 3;
  const ForwardNode& own = lane.nodes()[static_cast<size_t>(node)];
  if (lane.is_whole_model(node)) return "the code of " + own.path + ".forward";
  if (!lane.is_function(node)) return own.path;
  const std::string reader = reader_of(own.path);
  std::vector<std::string> sources;
  for (const int input : own.inputs) {
    const ForwardNode& source = lane.nodes()[static_cast<size_t>(input)];
    if (source.layer >= 0) sources.push_back(source.path);
  }
  if (sources.empty() || sources.size() > kFew) return "the code before " + reader;
  return sources.size() == 1 ? fmt::format("the code between {} and {}", sources[0], reader)
                             : fmt::format("the code from {} to {}", name_list(sources), reader);
}

std::string cast_call(const LaneInfo& lane) {
  if (lane.backend == "keras") return "keras.ops.cast()";
  const FloatFormat format = default_format(lane).value_or(kFp32);
  if (format == kFp16) return ".half()";
  return format == *parse_format("bf16") ? ".bfloat16()" : ".to(dtype)";
}

std::string loss_advice(const LaneFacts& lane) {
  if (lane.full_precision()) return "";
  return keeps_fp32_weights(lane)
             ? "Compute the loss in fp32: call .float() on the outputs of the model, and leave "
               "autocast before the loss function."
             : "Compute the loss in fp32: call .float() on the outputs of the model.";
}

std::string scaling_advice(const LaneFacts& lane) {
  return keeps_fp32_weights(lane) ? "Use dynamic loss scaling."
                                  : "Keep the weights in fp32, compute under autocast, and use "
                                    "dynamic loss scaling.";
}

std::string code_advice(const LaneFacts& lane, int node) {
  const std::string code = code_words(lane, node), cast = cast_call(lane.info());
  if (keeps_fp32_weights(lane)) {
    return fmt::format(
        "Compute {} in fp32: put it under torch.autocast(device_type, enabled=False), and call "
        ".float() on what it reads. Also remove casts such as {} inside it.",
        code, cast);
  }
  // The model itself is in a narrow format, without autocast: its modules read nothing else.
  if (lane.is_whole_model(node)) {
    return fmt::format(
        "Compute {} in fp32: call .float() on what it reads. Also remove casts inside it.", code);
  }
  return fmt::format(
      "Compute {} in fp32: call .float() on what it reads, and {} on its result. Also remove other "
      "casts inside it.",
      code, cast);
}

std::string overflow_text(const LaneFacts& lane, const SiteInfo& site) {
  const Subject subject = subject_of(site);
  return fmt::format("{} overflows {}: {} of its {} are larger than {}", subject.name,
                     format_name(site.format),
                     percent(run_rates(lane.run(), lane.lane(), site.order).overflow),
                     subject.values, short_number(site.format.max_finite()));
}

}  // namespace halfscope
