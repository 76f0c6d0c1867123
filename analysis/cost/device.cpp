// SPDX-License-Identifier: MIT
#include "analysis/cost/device.h"

#include <algorithm>

#include "core/error.h"
#include "core/near_miss.h"

namespace halfscope {

std::optional<double> Device::rate(std::string_view format) const {
  const auto found = std::find_if(rates.begin(), rates.end(),
                                  [&](const ProductRate& each) { return each.format == format; });
  if (found == rates.end()) return std::nullopt;
  return found->tera;
}

std::span<const Device> devices() {
  static const std::vector<ProductRate> hopper{{"fp32", 66.9},  {"tf32", 494.7}, {"fp16", 989.4},
                                               {"bf16", 989.4}, {"fp8", 1978.9}, {"int8", 1978.9}};
  static const std::vector<Device> all{
      {.name = "v100",
       .title = "NVIDIA V100 SXM2 32 GB",
       .memory_gb = 32,
       .bandwidth = 900,
       .processors = 80,
       .rates = {{"fp32", 15.7}, {"fp16", 125}},
       .source = "NVIDIA V100 datasheet, January 2020"},
      {.name = "t4",
       .title = "NVIDIA T4",
       .memory_gb = 16,
       .bandwidth = 320,
       .processors = 40,
       .rates = {{"fp32", 8.1}, {"fp16", 65}, {"int8", 130}, {"int4", 260}},
       .source = "NVIDIA T4 datasheet, March 2019"},
      {.name = "rtx2080ti",
       .title = "NVIDIA GeForce RTX 2080 Ti",
       .memory_gb = 11,
       .bandwidth = 616,
       .processors = 68,
       .rates = {{"fp32", 13.4}, {"fp16", 53.8}, {"int8", 215.2}, {"int4", 430.3}},
       .source =
           "NVIDIA Turing GPU Architecture whitepaper (WP-09183-001), table 1; fp16 with fp32 "
           "sums runs at half the rate of fp16 sums"},
      {.name = "a100",
       .title = "NVIDIA A100 SXM 80 GB",
       .memory_gb = 80,
       .bandwidth = 2039,
       .processors = 108,
       .rates = {{"fp32", 19.5},
                 {"tf32", 156},
                 {"fp16", 312},
                 {"bf16", 312},
                 {"int8", 624},
                 {"int4", 1248}},
       .source = "NVIDIA A100 datasheet, June 2021; int4: NVIDIA A100 Tensor Core GPU Architecture "
                 "whitepaper"},
      {.name = "h100",
       .title = "NVIDIA H100 SXM",
       .memory_gb = 80,
       .bandwidth = 3350,
       .processors = 132,
       .rates = hopper,
       .source = "NVIDIA H100 Tensor Core GPU Architecture whitepaper, table 2, without sparsity"},
      {.name = "h200",
       .title = "NVIDIA H200 SXM",
       .memory_gb = 141,
       .bandwidth = 4800,
       .processors = 132,
       .rates = hopper,
       .source = "NVIDIA H200 datasheet; same units as H100"},
      {.name = "jetson-nano",
       .title = "NVIDIA Jetson Nano",
       .memory_gb = 4,
       .bandwidth = 25.6,
       .processors = 1,
       .rates = {{"fp32", 0.236}, {"fp16", 0.472}},
       .source = "NVIDIA Jetson Nano datasheet (DA-09366); 128 Maxwell cores, no tensor cores"},
      {.name = "jetson-xavier",
       .title = "NVIDIA Jetson AGX Xavier 32 GB",
       .memory_gb = 32,
       .bandwidth = 136.5,
       .processors = 8,
       .rates = {{"fp32", 1.4}, {"fp16", 11}, {"int8", 22}},
       .source = "NVIDIA Jetson AGX Xavier datasheet (DA-09358)"},
      {.name = "tpu-v4",
       .title = "Google TPU v4 chip",
       .memory_gb = 32,
       .bandwidth = 1228,
       .rates = {{"bf16", 275}, {"int8", 275}},
       .rows = 8,
       .columns = 128,
       .source = "Google Cloud documentation, TPU v4; tiles of 8x128 from its performance guide"},
  };
  return all;
}

const Device& find_device(const std::string& name) {
  std::vector<std::string> names;
  for (const Device& device : devices()) {
    if (device.name == name) return device;
    names.emplace_back(device.name);
  }
  throw usage_error("unknown device '" + name + "'",
                    did_you_mean(name, names, "devices: " + comma_list(names)));
}

}  // namespace halfscope
