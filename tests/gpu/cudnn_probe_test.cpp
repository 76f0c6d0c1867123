// SPDX-License-Identifier: MIT
// The engines that cuDNN proposes for the convolutions of the built-in networks on this device, and
// the one that a program uses. One line each on standard output:
//   cudnn <TAB> MODEL <TAB> PLAN <TAB> BACKEND <TAB> NODE OPERATOR <TAB> N proposed <TAB>
//   KERNEL OF THE PROGRAM <TAB> ENGINES, BEST FIRST
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "core/models/models.h"
#include "core/policy/policy.h"
#include "gpu/backends.h"
#include "gpu/device_info.h"
#include "gpu/engine/product_steps.h"
#include "gpu/libraries/libraries.h"

namespace halfscope {
namespace {

using gpu::ConvPlan;
using gpu::ConvProduct;
using gpu::Storage;

/// Returns the plans that gpu/engine/library_steps.h gives to the library until it takes one; none
/// for other nodes.
std::vector<ConvPlan> conv_plans(const Graph& graph, const Node& node, bool fast) {
  const auto shape = [&](ValueId value) { return graph.value(value).shape; };
  const auto stored_narrow = [&](ValueId value) {
    const std::optional<Storage> storage = gpu::storage_of(graph.value(value).format);
    return storage && gpu::bytes_of(*storage) < 4;
  };
  const auto plans = [&](ConvProduct product, ValueId x, ValueId w, ValueId y) {
    const FloatFormat& written = graph.value(node.outputs[0]).format;
    const Storage read = gpu::storage_of(sum_spec_of(graph, node).read).value();
    const bool narrow = fast && gpu::bytes_of(read) == 2 && written == gpu::format_of(read);
    return gpu::plans_of_convolution(
        product, gpu::conv_geometry(node, shape(x), shape(w), shape(y)), read,
        narrow ? read : Storage::fp32,
        stored_narrow(node.inputs[0]) || stored_narrow(node.inputs[1]));
  };
  if (node.op == "Conv") {
    // A bias is added to sums in fp32.
    const bool has_bias = node.inputs.size() > 2 && node.inputs[2] != kNone;
    fast = fast && !has_bias;
    return plans(ConvProduct::forward, node.inputs[0], node.inputs[1], node.outputs[0]);
  }
  if (node.op == "ConvGradInput") {
    return plans(ConvProduct::grad_input, node.outputs[0], node.inputs[1], node.inputs[0]);
  }
  if (node.op == "ConvGradWeight") {
    return plans(ConvProduct::grad_weight, node.inputs[1], node.outputs[0], node.inputs[0]);
  }
  return {};
}

/// Returns cuDNN's engines for the first plan for which it has a suitable one. Asks once for each:
/// cuDNN may compile the engine.
std::optional<gpu::CudnnEngines> engines_of(const std::vector<ConvPlan>& plans, bool fast) {
  static std::vector<std::tuple<ConvPlan, bool, std::optional<gpu::CudnnEngines>>> known;
  std::optional<gpu::CudnnEngines> engines;
  for (const ConvPlan& plan : plans) {
    const auto same = [&](const auto& each) {
      return std::get<0>(each) == plan && std::get<1>(each) == fast;
    };
    auto at = std::find_if(known.begin(), known.end(), same);
    if (at == known.end()) {
      known.emplace_back(plan, fast, gpu::cudnn_engines(plan, fast));
      at = std::prev(known.end());
    }
    engines = std::get<2>(*at);
    if (!engines || !engines->chosen.empty()) break;
  }
  return engines;
}

TEST(CudnnProbe, TellsTheEngineOfEveryConvolution) {
  if (!cuda_is_ready()) GTEST_SKIP() << "no GPU here: cuDNN was not asked";
  const bool simulated = query_gpus().devices.at(0).name == "simulated device";
  const int64_t batch = simulated ? 2 : 128;
  int64_t convolutions = 0;
  for (const char* name : {"lenet", "resnet20"}) {
    const Shape images = std::string(name) == "lenet" ? Shape{1, 28, 28} : Shape{3, 32, 32};
    const Model model = build_model(name, batch, images, 10);
    for (const char* plan : {"float32", "mixed_float16"}) {
      const Executable lane = lower(model, preset_plan(plan).value(), {});
      std::map<NodeId, bool> has_engine;
      for (const GpuProducts products : {GpuProducts::library, GpuProducts::fast}) {
        const bool fast = products == GpuProducts::fast;
        const std::unique_ptr<Program> program = cuda_backend(products).compile(lane);
        for (const NodeId id : lane.entry(Entry::grad)) {
          const Node& node = lane.graph.node(id);
          const std::vector<ConvPlan> convolution = conv_plans(lane.graph, node, fast);
          if (convolution.empty()) continue;
          const std::optional<gpu::CudnnEngines> engines = engines_of(convolution, fast);
          if (!engines) GTEST_SKIP() << "cuDNN is not installed";
          std::string kernel = program->kernel_of(id), proposed;
          if (engines->chosen.empty() || !kernel.starts_with(engines->chosen)) {
            kernel += "; cuDNN: " + (engines->chosen.empty() ? engines->why_none : engines->chosen);
            EXPECT_FALSE(simulated) << node.path << " " << node.op << ": " << kernel;
          }
          for (const std::string& engine : engines->proposed) {
            proposed += (proposed.empty() ? "" : ", ") + engine;
          }
          std::printf("cudnn\t%s\t%s\t%s\t%s %s\t%d proposed\t%s\t%s\n", name, plan,
                      gpu_backend_name(products), node.path.c_str(), node.op.c_str(),
                      static_cast<int>(engines->proposed.size()), kernel.c_str(), proposed.c_str());
          has_engine[id] = has_engine[id] || !engines->chosen.empty();
          ++convolutions;
        }
        std::fflush(stdout);
      }
      for (const auto& [id, found] : has_engine) {
        EXPECT_TRUE(found) << name << " " << plan << ": cuDNN has no engine for "
                           << lane.graph.node(id).path << " " << lane.graph.node(id).op;
      }
    }
  }
  EXPECT_GT(convolutions, 200);
}

}  // namespace
}  // namespace halfscope
