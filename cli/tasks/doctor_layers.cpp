// SPDX-License-Identifier: MIT
// Text and JSON of `halfscope doctor --model` about a network's layers.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/tasks/doctor.h"
#include "cli/terminal/lane_summary.h"
#include "gpu/backends.h"

namespace halfscope {
namespace {

/// "100 x 10 x 256", of products side by side "24 of 64 x 64 x 32".
std::string size_text(const TensorCoreFit& fit) {
  const std::string sizes =
      fmt::format("{} x {} x {}", fit.sizes[0].size, fit.sizes[1].size, fit.sizes[2].size);
  return fit.products == 1 ? sizes : fmt::format("{} of {}", fit.products, sizes);
}

std::string verdict(const TensorCoreFit& fit) {
  if (!fit.input) return fmt::format("{}: no tensor cores", format_name(fit.read));
  if (fit.fits_best()) return fmt::format("multiples of {}", fit.input->best);
  if (fit.fits()) return fmt::format("multiples of {}", fit.input->multiple);
  return fmt::format("{}", fmt::join(fit.advice(), "; "));
}

/// Returns each format that layers read, once.
std::vector<TensorCoreInput> inputs_of(std::span<const TensorCoreFit> layers) {
  std::vector<TensorCoreInput> inputs;
  for (const TensorCoreFit& fit : layers) {
    if (fit.input && std::find(inputs.begin(), inputs.end(), *fit.input) == inputs.end()) {
      inputs.push_back(*fit.input);
    }
  }
  return inputs;
}

}  // namespace

std::string backends_text(const GpuReport& gpus) {
  if (gpus.state != GpuState::ready) {
    return "lanes run on the processor, where GPU formats are emulated (--backend emulated)";
  }
  return fmt::format(
      "lanes run on it with --backend {} (products by cuBLASLt and cuDNN), {} (our "
      "own kernels, the emulator's bits) or {} (the libraries choose freely)",
      gpu_backend_name(GpuProducts::library), gpu_backend_name(GpuProducts::own),
      gpu_backend_name(GpuProducts::fast));
}

std::string layers_text(const DoctorNetwork& network, std::span<const GpuDevice> devices) {
  std::string text = fmt::format("Layers of {} under {}", network.model, network.plan);
  if (network.batch > 0) {
    text += fmt::format(", {} sample{} at once", network.batch, network.batch == 1 ? "" : "s");
  }
  text += "\n";
  if (network.layers.empty()) return text + "  no layer multiplies matrices\n";
  std::vector<std::vector<std::string>> rows{
      {"  layer", "operator", "read", "M x N x K", "for tensor cores"}};
  bool convolves = false, odd_rows = false, odd_columns = false;
  int64_t fitting = 0;
  for (const TensorCoreFit& fit : network.layers) {
    rows.push_back({"  " + fit.path, fit.op, format_name(fit.read), size_text(fit), verdict(fit)});
    const ProductSize& m = fit.sizes[0];
    convolves = convolves || !m.matters;
    const auto is_odd = [&](const ProductSize& size) {
      return fit.input && size.matters && size.size % fit.input->multiple != 0;
    };
    odd_rows = odd_rows || (m.name == "row" && is_odd(m));
    odd_columns = odd_columns || (m.name == "output" && is_odd(fit.sizes[1]));
    fitting += fit.fits() ? 1 : 0;
  }
  text += aligned(rows, std::vector<bool>(rows[0].size(), false));
  text += fmt::format("  {} of {} layers fit tensor cores\n", fitting, network.layers.size());
  for (const TensorCoreInput& input : inputs_of(network.layers)) {
    text +=
        fmt::format("  {}: multiples of {} fit, of {} are best; others {}\n", input.name,
                    input.multiple, input.best, input.padded ? "have to be padded" : "are slower");
    for (size_t i = 0; i < devices.size(); ++i) {
      text += fmt::format("    device {} has {}tensor cores for {}\n", i,
                          has_tensor_cores(devices[i], input.name) ? "" : "no ", input.name);
    }
  }
  // Only if the batch is not fixed.
  odd_rows = odd_rows && network.batch > 0;
  odd_columns = odd_columns && network.batch > 0;
  for (const char* samples : {odd_rows ? "rows" : "", odd_columns ? "columns" : ""}) {
    if (*samples == '\0') continue;
    text += fmt::format(
        "  {} are samples, times positions where there are any: choose the batch so\n", samples);
  }
  if (convolves) {
    text +=
        "  convolutions: M = samples x pixels, which may be any number; N, K = channels out, in\n";
  }
  return text;
}

nlohmann::ordered_json layers_json(std::span<const TensorCoreFit> layers) {
  using Json = nlohmann::ordered_json;
  Json list = Json::array();
  for (const TensorCoreFit& fit : layers) {
    Json layer{
        {"path", fit.path},         {"op", fit.op},           {"read", format_name(fit.read)},
        {"products", fit.products}, {"m", fit.sizes[0].size}, {"n", fit.sizes[1].size},
        {"k", fit.sizes[2].size}};
    layer["tensor_cores"] = fit.input ? Json(fit.input->name) : Json(nullptr);
    layer["multiple"] = fit.input ? Json(fit.input->multiple) : Json(nullptr);
    layer["best_multiple"] = fit.input ? Json(fit.input->best) : Json(nullptr);
    layer["fits"] = fit.fits();
    layer["fits_best"] = fit.fits_best();
    layer["advice"] = fit.advice();
    list.push_back(std::move(layer));
  }
  return list;
}

}  // namespace halfscope
