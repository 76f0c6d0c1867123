// SPDX-License-Identifier: MIT
// Hints for mistyped formats, scales and accumulations.
#include <map>
#include <string>
#include <vector>

#include "core/near_miss.h"
#include "core/numeric/sums/tensor_core.h"
#include "core/policy/policy.h"

namespace halfscope {

std::string accumulation_hint(const std::string& text) {
  const std::string kind = text.substr(0, text.find(':'));
  const std::optional<Accumulation> known = parse_accumulation(kind);
  if (known && kind != text) {
    const bool rounds =
        known->kind == Accumulation::format || known->kind == Accumulation::format_mul_add;
    if (!rounds && text.find("rounding=") != std::string::npos) {
      return "only format and format-mul-add have a rounding; " + kind + " rounds to nearest even";
    }
    return "options of " + kind + ": promote=N (1 or more), " +
           (rounds ? "split-k=N (2 or more) and rounding=MODE (as in plans)"
                   : "and split-k=N (2 or more)") +
           ", each at most once";
  }
  if (kind == "tensor-core") {
    std::vector<std::string> names;
    for (const TensorCoreArch& arch : tensor_core_archs()) names.emplace_back(arch.name);
    return "write tensor-core:ARCH with one of " + comma_list(names) +
           ", then options: acc=fp16, promote=N, split-k=N";
  }
  std::vector<std::string> kinds;
  for (const std::string& name : accumulation_names()) {
    if (name.find(':') == std::string::npos) kinds.push_back(name);
  }
  kinds.emplace_back("tensor-core:ARCH");
  return did_you_mean(kind, kinds, "use one of " + comma_list(kinds));
}

std::string plan_hint(const std::string& text) {
  // Formats and other words that people use for a way to train.
  static const std::map<std::string, std::string> kWords{
      {"fp16", "fp16 is a format: use mixed_float16 for autocast, or float16 for model.half()"},
      {"bf16",
       "bf16 is a format: use mixed_bfloat16 for autocast, or bfloat16 for model.bfloat16()"},
      {"fp32", "did you mean float32?"},
      {"fp64", "did you mean float64?"},
      {"fp8", "use fp8_current, fp8_delayed, fp8_block or mxfp8"},
      {"int8", "halfscope quantize makes a plan for int8"},
      {"amp", "did you mean mixed_float16?"},
      {"autocast", "did you mean mixed_float16?"},
      {"mixed", "use mixed_float16 or mixed_bfloat16"}};
  static const std::map<std::string, std::string> kSame{
      {"half", "fp16"},   {"f16", "fp16"},   {"bfloat", "bf16"}, {"bf", "bf16"},
      {"f32", "fp32"},    {"float", "fp32"}, {"single", "fp32"}, {"f64", "fp64"},
      {"double", "fp64"}, {"float8", "fp8"}, {"e4m3", "fp8"},    {"e4m3fn", "fp8"}};
  const auto same = kSame.find(text);
  const auto word = kWords.find(same != kSame.end() ? same->second : text);
  if (word != kWords.end()) return word->second;
  if (text.size() == 2 && text[0] == 'O' && text[1] >= '0' && text[1] <= '3') {
    return "did you mean apex-" + text + "?";
  }
  std::vector<std::string> known;
  for (const PresetInfo& preset : presets()) known.push_back(preset.name);
  return did_you_mean(text, known, "list them with: halfscope plan list");
}

std::string scale_hint(const std::string& text) {
  const std::string kind = text.substr(0, text.find(':'));
  static const std::map<std::string, std::string> kOptions{
      {"none", "none has no options"},
      {"static", "write static:X with a positive normal fp32 number X"},
      {"divide", "write divide:X with a positive normal fp32 number X"},
      {"channel", "channel has no options"},
      {"current", "options of current: power-of-two, unguarded, amax-floor=X"},
      {"delayed",
       "options of delayed: history=N (1 to 65536), margin=N (0 to 64), amax=max or amax=recent"},
      {"mx", "options of mx: up, weights=square, amax-floor=X"},
      {"block",
       "write block:N with N from 1 to 1048576, then options: weights=square, scales=fp32, "
       "amax-floor=X, and with scales=fp32 unguarded"},
      {"nvfp4", "nvfp4 has one option: weights=square"}};
  if (const auto known = kOptions.find(kind); known != kOptions.end()) return known->second;
  std::vector<std::string> kinds;
  for (const auto& [name, unused] : kOptions) kinds.push_back(name);
  return did_you_mean(kind, kinds, "use one of " + comma_list(kinds));
}

std::string format_hint(const std::string& text) {
  std::vector<std::string> names = format_names();
  for (const NamedFormat& each : named_formats()) {
    for (const std::string_view other : each.elsewhere) {
      if (!text.empty() && text == other) return "did you mean " + std::string(each.name) + "?";
    }
  }
  // Text of the form eXmY, or with options, is not a misspelling of a named format.
  if (text == "fp8" || text == "float8") {
    return "use e4m3fn, for activations and weights, or e5m2, for gradients";
  }
  if (text.starts_with("e") || text.find(':') != std::string::npos) return format_problem(text);
  const std::string usage = "formats: " + comma_list(names) +
                            ", eXmY with X from 1 to 8 and Y from 0 to 23, each with :sat or :ftz";
  names.emplace_back("follow");
  return did_you_mean(text, names, usage);
}

}  // namespace halfscope
