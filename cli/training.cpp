// SPDX-License-Identifier: MIT
#include "cli/training.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

#include "core/data/npz.h"
#include "core/error.h"

namespace halfscope {
namespace {

/// "[3,5]" for the element of that index.
std::string position_text(const Shape& shape, size_t index) {
  std::string text;
  for (size_t d = shape.size(); d-- > 0;) {
    const size_t size = static_cast<size_t>(shape[d]);
    text = std::to_string(index % size) + (text.empty() ? "" : ",") + text;
    index /= size;
  }
  return "[" + text + "]";
}

}  // namespace

NamedTensors read_initial_weights(const std::string& file) {
  NamedTensors weights = read_npz(file);
  for (const auto& [path, tensor] : weights) {
    for (size_t i = 0; i < tensor.data.size(); ++i) {
      if (std::isfinite(tensor.data[i])) continue;
      throw usage_error(fmt::format("initial weights {}: {}{} is {}", file, path,
                                    position_text(tensor.shape, i), tensor.data[i]),
                        "initial weights must be finite");
    }
  }
  return weights;
}

std::unique_ptr<Trainer> make_trainer(const TrainConfig& config, const Dataset& data,
                                      const std::string& init) {
  try {
    return std::make_unique<Trainer>(config, data);
  } catch (const Error& e) {
    const std::string start = "initial weights: ", what = e.what();
    if (init.empty() || !what.starts_with(start)) throw;
    throw Error(fmt::format("initial weights {}: {}", init, what.substr(start.size())), e.hint(),
                e.kind());
  }
}

}  // namespace halfscope
