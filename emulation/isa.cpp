// SPDX-License-Identifier: MIT
#include "emulation/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "core/error.h"

namespace halfscope {
namespace {

#if defined(__x86_64__)
/// Clang 14's __builtin_cpu_supports() does not know this feature.
bool has_f16c() noexcept {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

std::optional<Isa>& chosen() {
  static std::optional<Isa> isa;
  return isa;
}

}  // namespace

const char* isa_name(Isa isa) noexcept {
  switch (isa) {
    case Isa::baseline:
      return "baseline";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
  }
  return "unknown";
}

std::vector<Isa> supported_isas() {
  std::vector<Isa> isas{Isa::baseline};
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c()) {
    isas.push_back(Isa::avx2);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
      isas.push_back(Isa::avx512);
    }
  }
#endif
  return isas;
}

Isa active_isa() {
  if (chosen()) return *chosen();
  const std::vector<Isa> supported = supported_isas();
  Isa isa = supported.back();
  if (const char* wanted = std::getenv("HALFSCOPE_ISA"); wanted != nullptr && *wanted != '\0') {
    const auto found = std::find_if(supported.begin(), supported.end(), [&](Isa candidate) {
      return std::string_view(isa_name(candidate)) == wanted;
    });
    if (found == supported.end()) {
      std::string names;
      for (Isa candidate : supported)
        names += std::string(names.empty() ? "" : ", ") + isa_name(candidate);
      throw usage_error(
          "HALFSCOPE_ISA=" + std::string(wanted) + " is not supported on this processor",
          "use one of: " + names);
    }
    isa = *found;
  }
  chosen() = isa;
  return isa;
}

void set_active_isa(Isa isa) { chosen() = isa; }

}  // namespace halfscope
