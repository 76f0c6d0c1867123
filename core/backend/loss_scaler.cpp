// SPDX-License-Identifier: MIT
#include "core/backend/loss_scaler.h"

#include <charconv>
#include <cmath>
#include <vector>

#include "core/error.h"
#include "core/near_miss.h"
#include "core/number_text.h"

namespace halfscope {

LossScalerConfig parse_loss_scale(std::string_view text) {
  constexpr float kTorchInitialScale = 65536.0f;
  LossScalerConfig config;
  if (text == "none") return config;
  const size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  const bool dynamic = kind == "dynamic";
  if ((!dynamic && kind != "static") || (!dynamic && colon == std::string_view::npos)) {
    static const std::vector<std::string> kKinds{"dynamic", "static", "none"};
    const std::string near = closest(kind, kKinds);
    const char* forms = "use dynamic, dynamic:INIT, static:X or none";
    throw usage_error("unknown loss scale '" + std::string(text) + "'",
                      near.empty() || near == kind ? forms : did_you_mean(kind, kKinds));
  }
  config.kind = dynamic ? LossScalerConfig::Kind::dynamic : LossScalerConfig::Kind::constant;
  config.initial = kTorchInitialScale;
  if (colon != std::string_view::npos) {
    const std::string_view number = text.substr(colon + 1);
    const auto [end, error] =
        std::from_chars(number.data(), number.data() + number.size(), config.initial);
    if (error != std::errc() || end != number.data() + number.size() || !(config.initial > 0.0f) ||
        !std::isfinite(config.initial) || !std::isfinite(1.0f / config.initial)) {
      throw usage_error("loss scale '" + std::string(text) + "': " + std::string(number) +
                            " is not a positive number in range",
                        "use a number from 2^-126 to 2^127, such as 1024");
    }
  }
  return config;
}

std::string loss_scale_text(const LossScalerConfig& config) {
  if (config.kind == LossScalerConfig::Kind::none) return "none";
  const bool dynamic = config.kind == LossScalerConfig::Kind::dynamic;
  return (dynamic ? "dynamic:" : "static:") + number_text(config.initial);
}

}  // namespace halfscope
