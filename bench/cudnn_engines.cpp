// SPDX-License-Identifier: MIT
// The engine that cuDNN would run for each convolution of ResNet-50 (batch 256) and ResNet-20
// (batch 128) on a described GPU, as Markdown. Needs no GPU, but a driver or a stand-in for one
// (tests/gpu/described_driver.cpp), without which cuDNN hides engines:
//   LD_LIBRARY_PATH=build/described_driver build/bin/cudnn_engines > docs/gpu/cudnn-engines.md
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "bench/cudnn_layers.h"
#include "gpu/libraries/libraries.h"

namespace halfscope {
namespace {

using gpu::ConvPlan;
using gpu::ConvProduct;
using gpu::CudnnChoice;
using gpu::Storage;

/// A convolution as a plan reads it, on one of the backends.
struct Way {
  const char* name;
  Storage operands, result;
  bool copied, fast;
};
constexpr Way kWays[] = {
    {"`cuda`, fp16", Storage::fp16, Storage::fp32, true, false},
    {"`cuda`, tf32", Storage::tf32, Storage::fp32, false, false},
    {"`cuda`, fp32", Storage::fp32, Storage::fp32, false, false},
    {"`cuda-fast`, fp16", Storage::fp16, Storage::fp16, true, true},
};

struct Count {
  int products = 0, on_cores = 0, compiled = 0, as_16_bits = 0, none = 0;
  int64_t workspace = 0;
};

std::string memory(int64_t bytes) {
  constexpr double kMebi = 1024.0 * 1024.0;
  if (bytes == 0) return "0";
  const double mebibytes = static_cast<double>(bytes) / kMebi;
  return mebibytes < 1.0 ? "< 1 MiB" : fmt::format("{:.0f} MiB", mebibytes);
}

std::string cell(const ConvPlan& plan, const CudnnChoice& choice) {
  const Storage operands = plan.product == ConvProduct::forward ? plan.x.storage : plan.y.storage;
  return fmt::format("{} {}{}{}{}, {}", gpu::name_of(operands), choice.engine,
                     choice.tensor_cores ? "T" : "", choice.compiled_now ? "R" : "",
                     choice.sums_copied ? "2" : "", memory(choice.workspace_bytes));
}

std::string ask(const Way& way, ConvProduct product, const gpu::ConvGeometry& s,
                const std::string& device, Count& count) {
  ++count.products;
  for (const ConvPlan& plan :
       gpu::plans_of_convolution(product, s, way.operands, way.result, way.copied)) {
    const std::optional<CudnnChoice> choice = gpu::cudnn_choice(plan, way.fast, device);
    if (!choice || choice->text.empty()) continue;
    count.on_cores += choice->tensor_cores ? 1 : 0;
    count.compiled += choice->compiled_now ? 1 : 0;
    count.as_16_bits +=
        gpu::bytes_of(product == ConvProduct::forward ? plan.x.storage : plan.y.storage) == 2 ? 1
                                                                                              : 0;
    count.workspace = std::max(count.workspace, choice->workspace_bytes);
    return cell(plan, *choice);
  }
  ++count.none;
  return "none";
}

void print_network(const char* network, const std::vector<ConvLayer>& layers, int64_t batch,
                   const DescribedGpu& gpu) {
  std::printf("\n## %s, batch %d, on %s\n", network, static_cast<int>(batch), gpu.name.c_str());
  std::printf("| convolution | product |");
  for (const Way& way : kWays) std::printf(" %s |", way.name);
  std::printf("\n| --- | --- |");
  for (size_t i = 0; i < std::size(kWays); ++i) std::printf(" --- |");
  std::printf("\n");
  Count counts[std::size(kWays)];
  constexpr const char* kProducts[] = {"forward", "input gradient", "weight gradient"};
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    const ConvLayer& each = layers[layer];
    for (const ConvProduct product :
         {ConvProduct::forward, ConvProduct::grad_input, ConvProduct::grad_weight}) {
      if (layer == 0 && product == ConvProduct::grad_input) continue;  // nothing wants it
      std::printf("| %s | %s |",
                  fmt::format("{}x{}, {} to {}, side {}, stride {}", each.kernel, each.kernel,
                              each.in, each.out, each.side, each.stride)
                      .c_str(),
                  kProducts[static_cast<int>(product)]);
      for (size_t way = 0; way < std::size(kWays); ++way) {
        std::printf(" %s |",
                    ask(kWays[way], product, each.geometry(batch), gpu.json, counts[way]).c_str());
      }
      std::printf("\n");
      std::fflush(stdout);
    }
  }
  std::printf("\n");
  for (size_t way = 0; way < std::size(kWays); ++way) {
    const Count& count = counts[way];
    std::printf("- %s: %d of %d on tensor cores, %d read 16 bits, %d compiled at run time%s; %s\n",
                kWays[way].name, count.on_cores, count.products, count.as_16_bits, count.compiled,
                count.none > 0 ? fmt::format(", {} without an engine", count.none).c_str() : "",
                memory(count.workspace).c_str());
  }
}

}  // namespace
}  // namespace halfscope

int main() {
  using namespace halfscope;  // NOLINT: this program's own
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY);
  const gpu::ConvGeometry probe = ConvLayer{64, 8, 64, 3, 1, 1}.geometry(8);
  const std::optional<CudnnChoice> choice = gpu::cudnn_choice(
      plan_convolution(ConvProduct::forward, probe, Storage::tf32, Storage::fp32, true), false,
      described_h100().json);
  if (driver == nullptr || !choice || choice->text.empty()) {
    std::fprintf(stderr, "cudnn_engines: %s\n",
                 driver == nullptr ? "no driver and no stand-in for one (libcuda.so.1) was found"
                 : !choice         ? "cuDNN was not found, or is too old"
                                   : choice->why_none.c_str());
    return 3;
  }
  const std::string version = choice->text.substr(0, choice->text.find(','));
  std::printf(R"(# cuDNN's engines
The engine of cuDNN that runs each convolution. Made by `cudnn_engines` (%s) for described GPUs, with a stand-in
for a driver and without a GPU. With a real driver cuDNN also offers engines that use thread block clusters, so a GPU
may run others, above all for weight gradients on an H100. `halfscope train --kernels` shows them.

Each cell: format of the operands, number of the engine, workspace. T: on tensor cores. R: compiled at run time.
2: a graph of two nodes, the second of which writes the sums in fp32. The columns are the backend and the format
that the plan reads; see [GPU](../reference/gpu.md). The lines below a table count its engines and give the largest
workspace.
)",
              version.c_str());
  for (const DescribedGpu& gpu : {described_h100(), described_a100()}) {
    print_network("ResNet-50", resnet50_layers(), 256, gpu);
    print_network("ResNet-20", resnet20_layers(), 128, gpu);
  }
  return 0;
}
