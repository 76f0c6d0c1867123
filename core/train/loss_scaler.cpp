// SPDX-License-Identifier: MIT
#include "core/train/loss_scaler.h"

#include <charconv>
#include <cmath>

#include "core/error.h"

namespace halfscope {

LossScalerConfig parse_loss_scale(std::string_view text) {
  constexpr float kTorchInitialScale = 65536.0f;
  LossScalerConfig config;
  if (text == "none") return config;
  const size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  const bool dynamic = kind == "dynamic";
  if ((!dynamic && kind != "static") || (!dynamic && colon == std::string_view::npos)) {
    throw usage_error("unknown loss scale " + std::string(text),
                      "use dynamic, dynamic:INIT, static:X or none");
  }
  config.kind = dynamic ? LossScalerConfig::Kind::dynamic : LossScalerConfig::Kind::constant;
  config.initial = kTorchInitialScale;
  if (colon != std::string_view::npos) {
    const std::string_view number = text.substr(colon + 1);
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), config.initial);
    if (error != std::errc() || end != number.data() + number.size() || !(config.initial > 0.0f) ||
        !std::isfinite(config.initial) || !std::isfinite(1.0f / config.initial)) {
      throw usage_error("loss scale " + std::string(text) + ": \"" + std::string(number) +
                        "\" is not a positive number with a finite inverse");
    }
  }
  return config;
}

}  // namespace halfscope
