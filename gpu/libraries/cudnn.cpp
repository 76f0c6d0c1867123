// SPDX-License-Identifier: MIT
// cuDNN 9 through its backend interface. A convolution is an operation graph; heuristics list
// engines with their knobs, best first. The first suitable one becomes an execution plan, which is
// kept. An engine is suitable if it is deterministic, does not transform operands or sums
// (Winograd, FFT; cudnn_sums.cuh), and narrows none. It may be compiled when it is chosen: the same
// library makes the same kernel, which gives the same bits in every run. In fast mode an engine
// only has to work.
#include <cuda_runtime_api.h>
#include <cudnn_backend.h>
#include <cudnn_graph.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>
#include <vector>

#include "core/backend/backend.h"
#include "gpu/libraries/cuda_error.cuh"
#include "gpu/libraries/cudnn_descriptor.cuh"
#include "gpu/libraries/cudnn_engines.cuh"
#include "gpu/libraries/cudnn_graph.cuh"
#include "gpu/libraries/cudnn_sums.cuh"
#include "gpu/libraries/cudnn_workspace.cuh"
#include "gpu/libraries/libraries.h"

namespace halfscope::gpu {
namespace {

using cudnn::Candidate;
using cudnn::Choice;
using cudnn::Descriptor;
using cudnn::functions;
using cudnn::Nodes;
using cudnn::NotDone;
using cudnn::require;
using cudnn::Target;
using cudnn::words_of;
using cudnn::Workspace;

const TensorPlan& operand_of(const ConvPlan& plan) {
  return plan.product == ConvProduct::forward ? plan.x : plan.y;
}

/// Returns whether products of 16 bits are summed and written in fp32.
bool widens(const ConvPlan& plan) {
  return bytes_of(operand_of(plan).storage) == 2 && plan.made().storage == Storage::fp32;
}

std::string shape_of(const ConvPlan& plan) {
  constexpr const char* kNames[] = {"forward", "input gradient", "weight gradient"};
  const std::string groups =
      plan.groups() > 1 ? fmt::format(" in {} groups", plan.groups()) : std::string();
  return fmt::format("{} of [{}] with [{}]{} in {}{}", kNames[static_cast<int>(plan.product)],
                     fmt::join(plan.x.size, "x"), fmt::join(plan.w.size, "x"), groups,
                     name_of(operand_of(plan).storage),
                     plan.channels_last ? ", channels last" : "");
}

/// The library's handle, and the memory that all products share.
struct Context {
  cudnnHandle_t handle = nullptr;
  cudaStream_t stream = nullptr;  ///< in which the handle's products run
  Workspace workspace;
  std::string version;

  template <class... Limit>
  explicit Context(Limit... limit) : workspace(limit...) {
    const size_t number = functions().version();
    version = fmt::format("{}.{}.{}", number / 10000, number % 10000 / 100, number % 100);
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() {
    if (handle != nullptr) static_cast<void>(functions().destroy(handle));
  }
};

/// A stream for the checks of engines that no program runs.
struct OwnStream {
  cudaStream_t stream = nullptr;

  OwnStream() { check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream"); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  ~OwnStream() { static_cast<void>(cudaStreamDestroy(stream)); }
};

class Convolution final : public LibraryProduct {
 public:
  Convolution(std::shared_ptr<Context> context, const ConvPlan& plan,
              const Descriptor* device = nullptr)
      : context_(std::move(context)), target_{context_->handle, device}, plan_(plan) {
    add_graph(false);
    if (widens(plan)) add_graph(true);
  }

  /// Returns the engines that heuristics list, in the order in which they are tried. `reason`: why
  /// a list is empty.
  std::vector<Candidate> proposals(std::string& reason) const {
    std::vector<Candidate> all;
    for (size_t graph = 0; graph < graphs_.size(); ++graph) {
      for (const bool fallback : {false, true}) {
        try {
          for (Descriptor& config : cudnn::configurations(
                   graphs_[graph], fallback ? CUDNN_HEUR_MODE_FALLBACK : CUDNN_HEUR_MODE_A,
                   target_)) {
            Choice choice = cudnn::look_at(config);
            all.push_back({std::move(config), std::move(choice), graph, fallback});
          }
        } catch (const NotDone& failure) {
          reason = failure.why;
        }
      }
    }
    cudnn::sort(all, plan_);
    return all;
  }

  /// Returns the proposals in words, with the reasons why reproducible mode rejects them.
  std::vector<std::string> described_proposals() const {
    std::string reason;
    std::vector<std::string> words;
    for (const Candidate& each : proposals(reason)) {
      words.push_back(fmt::format("engine {}", each.choice.engine));
      if (!each.choice.against.empty()) {
        words.back() += fmt::format(" ({})", fmt::join(each.choice.against, ", "));
      }
    }
    return words;
  }

  /// Chooses an engine. Throws NotDone if none is suitable.
  void choose(bool fast) {
    std::string reason = "its heuristics propose none";
    for (Candidate& each : proposals(reason)) {
      if (!try_one(each, fast, reason)) continue;
      if (fast || sums_its_products()) return;
      reason = fmt::format("engine {}: transforms its operands", choice_.engine);
      execution_.clear();
    }
    throw NotDone{"no engine: " + reason};
  }

  void run(const void* a, const void* b, void* result) override {
    execute(a, b, result, context_->workspace.use());
  }

  std::string text() const override {
    return fmt::format(
        "cuDNN {}, {}: engine {}{}{}{}, knobs {}, workspace {}, writes {}", context_->version,
        shape_of(plan_), choice_.engine, choice_.tensor_cores ? " on tensor cores" : "",
        choice_.compiled_now ? ", compiled at run time" : "", two_nodes_ ? ", sums copied" : "",
        fmt::join(choice_.knobs, " "), workspace_bytes_, name_of(plan_.made().storage));
  }

  CudnnChoice choice() const {
    return {.text = text(),
            .engine = choice_.engine,
            .tensor_cores = choice_.tensor_cores,
            .compiled_now = choice_.compiled_now,
            .sums_copied = two_nodes_,
            .workspace_bytes = workspace_bytes_};
  }

 private:
  void execute(const void* a, const void* b, void* result, void* const* workspace) const {
    const void *x = nullptr, *w = nullptr, *y = nullptr;
    switch (plan_.product) {
      case ConvProduct::forward:
        x = a, w = b, y = result;
        break;
      case ConvProduct::grad_input:
        y = a, w = b, x = result;
        break;
      case ConvProduct::grad_weight:
        y = a, x = b, w = result;
        break;
    }
    const int64_t names[] = {cudnn::kX, cudnn::kW, cudnn::kY};
    const void* const pointers[] = {x, w, y};
    try {
      Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
      pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, names, 3);
      pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers, 3);
      pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
      pack.finalize("variant pack");
      require(functions().execute(context_->handle, execution_.at(0).raw(), pack.raw()), "execute");
    } catch (const NotDone& failure) {
      throw Error("cuDNN: " + shape_of(plan_) + ": " + failure.why,
                  "train the lane as cuda-own:PLAN, which needs no library; check the device with "
                  "nvidia-smi");
    }
  }
  /// Returns whether the chosen engine sums products; true for devices that are only described.
  bool sums_its_products() const {
    if (target_.device != nullptr) return true;
    const std::optional<cudnn::NeighbourCheck> check = cudnn::neighbour_check(plan_);
    return !check || cudnn::sums_products(plan_, *check, context_->stream,
                                          [&](const void* a, const void* b, void* result) {
                                            execute(a, b, result, context_->workspace.now());
                                          });
  }

  void add_graph(bool two_nodes) {
    nodes_.emplace_back(plan_, two_nodes);
    graphs_.push_back(nodes_.back().graph(target_.device == nullptr ? target_.handle : nullptr));
  }

  /// Returns why the engine is not suitable, or "".
  std::string objection(const Choice& choice, bool fast) const {
    std::vector<std::string> against;
    if (!fast) against = choice.against;
    const bool fp32 = plan_.x.storage == Storage::fp32 && plan_.w.storage == Storage::fp32 &&
                      plan_.y.storage == Storage::fp32;
    if (fp32 && choice.tensor_cores) against.push_back("multiplies fp32 on tensor cores");
    // tf32 on tensor cores is faster then, and there are engines for it.
    if (widens(plan_) && !choice.tensor_cores && plan_.groups() == 1) {
      against.push_back("no tensor cores");
    }
    return fmt::format("{}", fmt::join(against, ", "));
  }

  bool try_one(Candidate& each, bool fast, std::string& reason) {
    const std::string against = objection(each.choice, fast);
    if (!against.empty()) {
      reason = fmt::format("engine {}: {}", each.choice.engine, against);
      return false;
    }
    try {
      cudnn::look_at_knobs(each.config, each.choice);
      Descriptor execution(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
#ifdef HALFSCOPE_CUDNN_DESCRIBES_DEVICES
      if (target_.device != nullptr) {
        execution.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target_.device);
      }
#endif
      if (target_.device == nullptr) {
        execution.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, &target_.handle);
      }
      execution.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, each.config);
      execution.finalize("execution plan");
      const auto bytes =
          execution.get<int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1);
      workspace_bytes_ = bytes.empty() ? 0 : bytes[0];
      if (!context_->workspace.reserve(workspace_bytes_)) {
        reason = fmt::format("engine {} needs {} bytes of workspace", each.choice.engine,
                             workspace_bytes_);
        return false;
      }
      choice_ = std::move(each.choice);
      two_nodes_ = each.graph == 1;
      execution_.push_back(std::move(execution));
      return true;
    } catch (const NotDone& failure) {
      reason = failure.why;
      return false;
    }
  }

  std::shared_ptr<Context> context_;
  const Target target_;
  const ConvPlan plan_;
  std::vector<Nodes> nodes_;
  std::vector<Descriptor> graphs_;
  Choice choice_;
  bool two_nodes_ = false;
  int64_t workspace_bytes_ = 0;
  std::vector<Descriptor> execution_;  ///< one element, once chosen
};

class Cudnn final : public ProductLibrary {
 public:
  Cudnn(std::shared_ptr<Context> context, bool fast) : context_(std::move(context)), fast_(fast) {}

  std::unique_ptr<LibraryProduct> matrix(const MatrixPlan&, std::string& why) override {
    why = "matrix products are computed by cuBLASLt";
    return nullptr;
  }
  std::unique_ptr<LibraryProduct> convolution(const ConvPlan& plan, std::string& why) override {
    try {
      auto product = std::make_unique<Convolution>(context_, plan);
      product->choose(fast_);
      return product;
    } catch (const NotDone& failure) {
      why = "cuDNN: " + failure.why;
      return nullptr;
    }
  }
  bool fast() const override { return fast_; }
  int64_t device_bytes() const override { return context_->workspace.bytes(); }

 private:
  std::shared_ptr<Context> context_;
  bool fast_;
};

}  // namespace

std::optional<std::string> cudnn_objection(const ConvPlan& plan) {
  if (!functions().library.missing().empty()) return std::nullopt;
  try {
    const Nodes nodes(plan, widens(plan));
    return "";
  } catch (const NotDone& failure) {
    return failure.why;
  }
}

std::optional<CudnnChoice> cudnn_choice(const ConvPlan& plan, bool fast,
                                        const std::string& device_json) {
#ifdef HALFSCOPE_CUDNN_DESCRIBES_DEVICES
  if (!functions().library.missing().empty()) return std::nullopt;
  try {
    Descriptor device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    device.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, device_json.data(),
               static_cast<int64_t>(device_json.size()));
    device.finalize("description of a device");
    Convolution product(std::make_shared<Context>(cudnn::kMostWorkspaceBytes), plan, &device);
    product.choose(fast);
    return product.choice();
  } catch (const NotDone& failure) {
    return CudnnChoice{.text = "", .why_none = failure.why};
  }
#else
  static_cast<void>(plan), static_cast<void>(fast), static_cast<void>(device_json);
  return std::nullopt;
#endif
}

std::optional<CudnnEngines> cudnn_engines(const ConvPlan& plan, bool fast) {
  if (!functions().library.missing().empty()) return std::nullopt;
  CudnnEngines engines;
  const OwnStream stream;
  try {
    auto context = std::make_shared<Context>();
    context->stream = stream.stream;
    require(functions().create(&context->handle), "create");
    require(functions().set_stream(context->handle, context->stream), "stream");
    Convolution product(context, plan);
    engines.proposed = product.described_proposals();
    product.choose(fast);
    engines.chosen = product.text();
  } catch (const NotDone& failure) {
    engines.why_none = failure.why;
  }
  return engines;
}

std::unique_ptr<ProductLibrary> open_cudnn(StreamPointer stream, bool fast, std::string& why) {
  if (!functions().library.missing().empty()) {
    why = "cannot use cuDNN: " + functions().library.missing();
    return nullptr;
  }
  auto context = std::make_shared<Context>();
  context->stream = static_cast<cudaStream_t>(stream);
  cudnnStatus_t status = functions().create(&context->handle);
  if (status == CUDNN_STATUS_SUCCESS) {
    status = functions().set_stream(context->handle, context->stream);
  }
  if (status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
      status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED) {
    throw DeviceError("cannot start cuDNN: out of memory", "train fewer lanes on the device");
  }
  if (status != CUDNN_STATUS_SUCCESS) {
    why = "cannot start cuDNN: " + words_of(status);
    return nullptr;
  }
  return std::make_unique<Cudnn>(std::move(context), fast);
}

}  // namespace halfscope::gpu
