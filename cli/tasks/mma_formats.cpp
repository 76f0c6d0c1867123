// SPDX-License-Identifier: MIT
#include "cli/tasks/mma_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "core/error.h"
#include "core/near_miss.h"

namespace halfscope {

FloatFormat mma_format(const std::string& where, const std::string& text) {
  std::string name;
  for (const char c : text) name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (name.starts_with("fp8-")) name.erase(0, 4);
  if (name == "e4m3") return kE4m3fn;  // the only e4m3 that tensor cores have
  if (const std::optional<FloatFormat> format = parse_format(name)) return *format;
  throw usage_error(fmt::format("{}: unknown format '{}'", where, text),
                    did_you_mean(name, mma_input_names(),
                                 "formats: " + comma_list(mma_input_names()) + ", fp32"));
}

const TensorCoreArch& mma_arch(const std::string& where, const std::string& name) {
  const TensorCoreArch* const arch = find_tensor_core_arch(name);
  if (arch != nullptr) return *arch;
  std::vector<std::string> known = mma_arch_names();
  for (const TensorCoreArch& each : tensor_core_archs()) {
    known.insert(known.end(), each.aliases.begin(), each.aliases.end());
  }
  throw usage_error(fmt::format("{}: unknown tensor core '{}'", where, name),
                    did_you_mean(name, known, "--arch: " + comma_list(mma_arch_names())));
}

TensorCoreProfile mma_profile(const std::string& where, const TensorCoreArch& arch,
                              const FloatFormat& input, const FloatFormat& accumulator) {
  if (const auto profile = tensor_core_profile(arch.name, input, accumulator)) return *profile;
  std::vector<std::string> able;
  for (const TensorCoreArch& each : tensor_core_archs()) {
    if (tensor_core_profile(each.name, input, accumulator)) able.emplace_back(each.name);
  }
  throw usage_error(
      fmt::format("{}: {} has no tensor-core instruction with {} operands and {} results", where,
                  arch.name, format_name(input), format_name(accumulator)),
      able.empty() ? "results are fp32, or fp16 with fp16 and narrower operands"
                   : "these have: " + comma_list(able));
}

std::vector<std::string> mma_arch_names() {
  std::vector<std::string> names;
  for (const TensorCoreArch& arch : tensor_core_archs()) names.emplace_back(arch.name);
  return names;
}

std::vector<std::string> mma_input_names() {
  std::vector<std::string> names;
  for (const NamedFormat& each : named_formats()) {
    const auto reads = [&](const TensorCoreArch& arch) {
      return tensor_core_profile(arch.name, each.format, kFp32).has_value();
    };
    const auto archs = tensor_core_archs();
    if (std::any_of(archs.begin(), archs.end(), reads)) names.emplace_back(each.name);
  }
  return names;
}

}  // namespace halfscope
