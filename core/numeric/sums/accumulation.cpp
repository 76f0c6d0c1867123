// SPDX-License-Identifier: MIT
#include "core/numeric/sums/accumulation.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "core/numeric/sums/tensor_core.h"

namespace halfscope {
namespace {

using Kind = Accumulation::Kind;

struct NamedKind {
  Kind kind;
  std::string_view name;
};

constexpr NamedKind kKinds[] = {
    {Kind::fp32, "fp32"},
    {Kind::fp64, "fp64"},
    {Kind::pairwise, "pairwise"},
    {Kind::interleaved16, "interleaved16"},
    {Kind::kahan, "kahan"},
    {Kind::format, "format"},
    {Kind::format_mul_add, "format-mul-add"},
    {Kind::fma32_then_round, "fma32-then-round"},
    {Kind::tensor_core, "tensor-core"},
};

std::string_view kind_name(Kind kind) {
  for (const NamedKind& each : kKinds) {
    if (each.kind == kind) return each.name;
  }
  return "unknown";
}

std::optional<int64_t> parse_count(std::string_view text, int64_t least) {
  constexpr int64_t kMost = int64_t{1} << 40;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (value < least || value > kMost) return std::nullopt;
  return value;
}

/// Sets one option that was not set before.
bool set_option(Accumulation& accumulation, std::string_view option) {
  const bool core = accumulation.kind == Kind::tensor_core;
  const size_t equals = std::min(option.find('='), option.size());
  const std::string_view key = option.substr(0, equals);
  const std::string_view value = option.substr(std::min(equals + 1, option.size()));
  if (key == "promote" && accumulation.promote == 0) {
    const std::optional<int64_t> terms = parse_count(value, 1);
    accumulation.promote = terms.value_or(0);
    return terms.has_value();
  }
  if (key == "split-k" && accumulation.split_k == 1) {
    const std::optional<int64_t> parts = parse_count(value, 2);
    accumulation.split_k = parts.value_or(1);
    return parts.has_value();
  }
  if (key == "rounding" && !accumulation.rounds_otherwise()) {
    const bool knows =
        accumulation.kind == Kind::format || accumulation.kind == Kind::format_mul_add;
    const std::optional<RoundingChoice> rounding = parse_rounding(value);
    accumulation.rounding = rounding.value_or(RoundingChoice{});
    return knows && rounding.has_value();
  }
  if (key == "acc" && core && !accumulation.half_accumulator) {
    accumulation.half_accumulator = value == "fp16";
    return value == "fp16";
  }
  if (equals != option.size() || !core || !accumulation.arch.empty()) return false;
  const TensorCoreArch* arch = find_tensor_core_arch(option);
  if (arch != nullptr) accumulation.arch = arch->name;
  return arch != nullptr;
}

}  // namespace

std::string accumulation_name(const Accumulation& accumulation) {
  std::string name(kind_name(accumulation.kind));
  char separator = ':';
  const auto option = [&](const std::string& text) {
    name += separator + text;
    separator = ',';
  };
  if (accumulation.kind == Kind::tensor_core) option(accumulation.arch);
  if (accumulation.half_accumulator) option("acc=fp16");
  if (accumulation.rounds_otherwise()) option("rounding=" + rounding_name(accumulation.rounding));
  if (accumulation.promote > 0) option("promote=" + std::to_string(accumulation.promote));
  if (accumulation.split_k > 1) option("split-k=" + std::to_string(accumulation.split_k));
  return name;
}

std::optional<Accumulation> parse_accumulation(std::string_view text) {
  const size_t colon = text.find(':');
  for (const NamedKind& each : kKinds) {
    if (text.substr(0, colon) != each.name) continue;
    Accumulation accumulation(each.kind);
    for (size_t next = colon; next != std::string_view::npos;) {
      const size_t end = text.find(',', next + 1);
      if (!set_option(accumulation, text.substr(next + 1, end - next - 1))) return std::nullopt;
      next = end;
    }
    if (each.kind == Kind::tensor_core && accumulation.arch.empty()) return std::nullopt;
    return accumulation;
  }
  return std::nullopt;
}

std::span<const std::string> accumulation_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const NamedKind& each : kKinds) {
      if (each.kind != Kind::tensor_core) all.emplace_back(each.name);
    }
    for (const TensorCoreArch& arch : tensor_core_archs()) {
      all.push_back("tensor-core:" + std::string(arch.name));
    }
    return all;
  }();
  return names;
}

}  // namespace halfscope
