// SPDX-License-Identifier: MIT
// cuDNN 9 through its backend interface. A convolution is an operation graph of one node;
// heuristics list engines with their knobs, best first. The first suitable one becomes an execution
// plan, which is kept. An engine is suitable if it is deterministic, already compiled (not at run
// time), does not transform operands or sums (Winograd, FFT), and narrows none. In fast mode it
// only has to work.
#include <cuda_runtime_api.h>
#include <cudnn_backend.h>
#include <cudnn_graph.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/backend/backend.h"
#include "gpu/libraries/cuda_error.cuh"
#include "gpu/libraries/cudnn_descriptor.cuh"
#include "gpu/libraries/libraries.h"

#if CUDNN_VERSION >= 90800
#define HALFSCOPE_CUDNN_DESCRIBES_DEVICES  // CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR
#endif

namespace halfscope::gpu {
namespace {

using cudnn::Descriptor;
using cudnn::functions;
using cudnn::NotDone;
using cudnn::require;
using cudnn::words_of;

constexpr int64_t kWorkspaceBytes = int64_t{256} << 20;

cudnnDataType_t type_of(Storage storage) {
  switch (storage) {
    case Storage::fp16:
      return CUDNN_DATA_HALF;
    case Storage::bf16:
      return CUDNN_DATA_BFLOAT16;
    case Storage::e4m3fn:
      return CUDNN_DATA_FP8_E4M3;
    case Storage::e5m2:
      return CUDNN_DATA_FP8_E5M2;
    case Storage::fp32:
    case Storage::tf32:
      break;
  }
  return CUDNN_DATA_FLOAT;
}

constexpr int64_t kX = 1, kW = 2, kY = 3;  ///< unique ids of the tensors

Descriptor tensor(int64_t name, const TensorPlan& plan) {
  Descriptor descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const cudnnDataType_t type = type_of(plan.storage);
  const int64_t alignment = 16;
  descriptor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, &name);
  descriptor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, &type);
  descriptor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, &alignment);
  descriptor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, plan.size.data(), 4);
  descriptor.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, plan.stride.data(), 4);
  descriptor.finalize("tensor");
  return descriptor;
}

Descriptor window(const ConvPlan& plan) {
  Descriptor descriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const int64_t dimensions = 2;
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  descriptor.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, &dimensions);
  descriptor.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, &compute);
  descriptor.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, &mode);
  descriptor.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, plan.pad_before.data(), 2);
  descriptor.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, plan.pad_after.data(), 2);
  descriptor.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, plan.dilations.data(), 2);
  descriptor.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, plan.strides.data(), 2);
  descriptor.finalize("convolution");
  return descriptor;
}

/// The three operations' constants for their common parts.
struct OperationNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t x, w, y, window, alpha, beta;
};

constexpr OperationNames names_of(ConvProduct product) {
  switch (product) {
    case ConvProduct::grad_input:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case ConvProduct::grad_weight:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
    case ConvProduct::forward:
      break;
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
}

std::string shape_of(const ConvPlan& plan) {
  constexpr const char* kNames[] = {"forward", "input gradient", "weight gradient"};
  return fmt::format(
      "{} of [{}] with [{}] in {}", kNames[static_cast<int>(plan.product)],
      fmt::join(plan.x.size, "x"), fmt::join(plan.w.size, "x"),
      name_of(plan.product == ConvProduct::forward ? plan.x.storage : plan.y.storage));
}

/// The library's handle, and working memory that all products use, one after another.
struct Context {
  cudnnHandle_t handle = nullptr;
  void* workspace = nullptr;
  std::string version;

  Context() {
    const size_t number = functions().version();
    version = fmt::format("{}.{}.{}", number / 10000, number % 10000 / 100, number % 100);
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() {
    if (handle != nullptr) static_cast<void>(functions().destroy(handle));
    static_cast<void>(cudaFree(workspace));
  }
};

/// An engine and its knobs.
struct Choice {
  int64_t engine = -1;
  std::vector<std::string> knobs, against;  ///< against: why reproducible mode rejects it
  bool tensor_cores = false;
};

Choice look_at(const Descriptor& config) {
  Choice choice;
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  config.get(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
  for (const int64_t index :
       engine.get<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1)) {
    choice.engine = index;
  }
  for (const cudnnBackendNumericalNote_t note : engine.get<cudnnBackendNumericalNote_t>(
           CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
           CUDNN_NUMERICAL_NOTE_TYPE_COUNT)) {
    if (note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
      choice.against.push_back("not deterministic");
    if (note == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)
      choice.against.push_back("narrows operands");
    if (note == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) {
      choice.against.push_back("sums in less than fp32");
    }
    if (note == CUDNN_NUMERICAL_NOTE_FFT) choice.against.push_back("FFT");
    if (note == CUDNN_NUMERICAL_NOTE_WINOGRAD) choice.against.push_back("Winograd");
  }
  for (const cudnnBackendBehaviorNote_t note : engine.get<cudnnBackendBehaviorNote_t>(
           CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
           CUDNN_BEHAVIOR_NOTE_TYPE_COUNT)) {
    if (note == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) {
      choice.against.push_back("compiled at run time");
    }
  }
  return choice;
}

/// Reads a configuration's knobs as "type=value". Knobs that split sums are allowed if the parts
/// are added in a fixed order; otherwise the engine is marked as not deterministic.
void look_at_knobs(const Descriptor& config, Choice& choice) {
  std::vector<Descriptor> knobs;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int i = 0; i < CUDNN_KNOB_TYPE_COUNTS; ++i) {
    knobs.emplace_back(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    raw.push_back(knobs.back().raw());
  }
  int64_t count = 0;
  const cudnnStatus_t status = functions().get_attribute(
      config.raw(), CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
      CUDNN_KNOB_TYPE_COUNTS, &count, raw.data());
  if (status != CUDNN_STATUS_SUCCESS) return;
  for (size_t i = 0; i < knobs.size() && static_cast<int64_t>(i) < count; ++i) {
    const auto type = knobs[i].get<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
                                                           CUDNN_TYPE_KNOB_TYPE, 1);
    const auto value =
        knobs[i].get<int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1);
    if (type.empty() || value.empty()) continue;
    choice.knobs.push_back(fmt::format("{}={}", static_cast<int>(type[0]), value[0]));
  }
}

/// The device for which engines are chosen: that of a handle, or one that is described.
struct Target {
  cudnnHandle_t handle = nullptr;
  const Descriptor* device = nullptr;  ///< null: the handle's
};

std::vector<Descriptor> configurations(const Descriptor& graph, cudnnBackendHeurMode_t mode,
                                       const Target& target) {
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, &mode);
#ifdef HALFSCOPE_CUDNN_DESCRIBES_DEVICES
  if (target.device != nullptr) {
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.device);
  }
#endif
  heuristics.finalize("heuristics");
  int64_t count = 0;
  require(functions().get_attribute(heuristics.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
          "heuristics");
  std::vector<Descriptor> found;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < count; ++i) {
    found.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    raw.push_back(found.back().raw());
  }
  if (count == 0) return found;
  int64_t written = 0;
  require(functions().get_attribute(heuristics.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &written, raw.data()),
          "heuristics");
  while (static_cast<int64_t>(found.size()) > std::max<int64_t>(written, 0)) found.pop_back();
  return found;
}

/// An operation and its tensors; cuDNN checks all of it without a device.
struct Operation {
  Descriptor x, w, y, conv, operation;

  explicit Operation(const ConvPlan& plan)
      : x(tensor(kX, plan.x)),
        w(tensor(kW, plan.w)),
        y(tensor(kY, plan.y)),
        conv(window(plan)),
        operation(names_of(plan.product).type) {
    const OperationNames names = names_of(plan.product);
    const float one = 1.0f, zero = 0.0f;
    operation.set(names.x, x);
    operation.set(names.w, w);
    operation.set(names.y, y);
    operation.set(names.window, conv);
    operation.set(names.alpha, CUDNN_TYPE_FLOAT, &one);
    operation.set(names.beta, CUDNN_TYPE_FLOAT, &zero);
    operation.finalize("operation");
  }
};

class Convolution final : public LibraryProduct {
 public:
  Convolution(std::shared_ptr<Context> context, const ConvPlan& plan,
              const Descriptor* device = nullptr)
      : context_(std::move(context)),
        target_{context_->handle, device},
        plan_(plan),
        operation_(plan),
        graph_(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) {
    if (device == nullptr) {
      graph_.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, &context_->handle);
    }
    graph_.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation_.operation);
    graph_.finalize("operation graph");
  }

  /// Returns the engines that heuristics list, best first; the fallback's are last. `reason`: why
  /// one of the two lists none.
  std::vector<Descriptor> proposals(std::string& reason) const {
    std::vector<Descriptor> configs;
    for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
      try {
        for (Descriptor& each : configurations(graph_, mode, target_)) {
          configs.push_back(std::move(each));
        }
      } catch (const NotDone& failure) {
        reason = failure.why;
      }
    }
    return configs;
  }

  /// Returns the proposals in words, with the reasons why reproducible mode rejects them.
  std::vector<std::string> described_proposals() const {
    std::string reason;
    std::vector<std::string> words;
    for (const Descriptor& config : proposals(reason)) {
      const Choice choice = look_at(config);
      words.push_back(fmt::format("engine {}", choice.engine));
      if (!choice.against.empty()) {
        words.back() += fmt::format(" ({})", fmt::join(choice.against, ", "));
      }
    }
    return words;
  }

  /// Chooses an engine. Throws NotDone if none is suitable.
  void choose(bool fast) {
    std::string reason = "its heuristics propose none";
    const std::vector<Descriptor> configs = proposals(reason);
    // Operands in tf32 could also be multiplied as fp32, but that would not be as fast as tf32
    // should be.
    if (plan_.w.storage == Storage::tf32) {
      for (const Descriptor& config : configs) {
        if (uses_tensor_cores(config) && try_one(config, fast, reason)) return;
      }
    }
    for (const Descriptor& config : configs) {
      if (try_one(config, fast, reason)) return;
    }
    throw NotDone{"no engine: " + reason};
  }

  void run(const void* a, const void* b, void* result) override {
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
    const int64_t names[] = {kX, kW, kY};
    const void* const pointers[] = {x, w, y};
    try {
      Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
      pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, names, 3);
      pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers, 3);
      pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, &context_->workspace);
      pack.finalize("variant pack");
      require(functions().execute(context_->handle, execution_.at(0).raw(), pack.raw()), "execute");
    } catch (const NotDone& failure) {
      throw Error("cuDNN: " + shape_of(plan_) + ": " + failure.why,
                  "train the lane as cuda-own:PLAN, which needs no library; check the device with "
                  "nvidia-smi");
    }
  }

  std::string text() const override {
    return fmt::format("cuDNN {}, {}: engine {}{}, knobs {}, workspace {}, writes {}",
                       context_->version, shape_of(plan_), choice_.engine,
                       choice_.tensor_cores ? " on tensor cores" : "",
                       fmt::join(choice_.knobs, " "), workspace_bytes_, name_of(made()));
  }

 private:
  Storage made() const {
    return plan_.product == ConvProduct::forward      ? plan_.y.storage
           : plan_.product == ConvProduct::grad_input ? plan_.x.storage
                                                      : plan_.w.storage;
  }

  bool try_one(const Descriptor& config, bool fast, std::string& reason) {
    try {
      Choice choice = look_at(config);
      const bool fp32 = made() == Storage::fp32 && plan_.w.storage == Storage::fp32 &&
                        plan_.x.storage == Storage::fp32 && plan_.y.storage == Storage::fp32;
      choice.tensor_cores = uses_tensor_cores(config);
      const bool narrows = fp32 && choice.tensor_cores;
      if (narrows) choice.against.push_back("multiplies fp32 on tensor cores");
      if ((!choice.against.empty() && !fast) || narrows) {
        reason = fmt::format("engine {}: {}", choice.engine, fmt::join(choice.against, ", "));
        return false;
      }
      look_at_knobs(config, choice);
      Descriptor execution(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
#ifdef HALFSCOPE_CUDNN_DESCRIBES_DEVICES
      if (target_.device != nullptr) {
        execution.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target_.device);
      }
#endif
      if (target_.device == nullptr) {
        execution.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, &target_.handle);
      }
      execution.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
      execution.finalize("execution plan");
      const auto bytes =
          execution.get<int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1);
      workspace_bytes_ = bytes.empty() ? 0 : bytes[0];
      if (workspace_bytes_ > kWorkspaceBytes) {
        reason =
            fmt::format("engine {} needs {} bytes of workspace", choice.engine, workspace_bytes_);
        return false;
      }
      choice_ = std::move(choice);
      execution_.push_back(std::move(execution));
      return true;
    } catch (const NotDone& failure) {
      reason = failure.why;
      return false;
    }
  }

  static bool uses_tensor_cores(const Descriptor& config) {
    Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    config.get(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
    const auto notes = engine.get<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                                               CUDNN_TYPE_NUMERICAL_NOTE,
                                                               CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
    return std::find(notes.begin(), notes.end(), CUDNN_NUMERICAL_NOTE_TENSOR_CORE) != notes.end();
  }

  std::shared_ptr<Context> context_;
  const Target target_;
  const ConvPlan plan_;
  Operation operation_;
  Descriptor graph_;
  Choice choice_;
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
  int64_t device_bytes() const override { return kWorkspaceBytes; }

 private:
  std::shared_ptr<Context> context_;
  bool fast_;
};

}  // namespace

std::optional<std::string> cudnn_objection(const ConvPlan& plan) {
  if (!functions().library.missing().empty()) return std::nullopt;
  try {
    const Operation operation(plan);
    return "";
  } catch (const NotDone& failure) {
    return failure.why;
  }
}

std::optional<std::string> cudnn_choice(const ConvPlan& plan, bool fast,
                                        const std::string& device_json) {
#ifdef HALFSCOPE_CUDNN_DESCRIBES_DEVICES
  if (!functions().library.missing().empty()) return std::nullopt;
  try {
    Descriptor device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    device.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, device_json.data(),
               static_cast<int64_t>(device_json.size()));
    device.finalize("description of a device");
    Convolution product(std::make_shared<Context>(), plan, &device);
    product.choose(fast);
    return product.text();
  } catch (const NotDone& failure) {
    return "none: " + failure.why;
  }
#else
  static_cast<void>(plan), static_cast<void>(fast), static_cast<void>(device_json);
  return std::nullopt;
#endif
}

std::optional<CudnnEngines> cudnn_engines(const ConvPlan& plan, bool fast) {
  if (!functions().library.missing().empty()) return std::nullopt;
  CudnnEngines engines;
  try {
    auto context = std::make_shared<Context>();
    require(functions().create(&context->handle), "create");
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
  cudnnStatus_t status = functions().create(&context->handle);
  if (status == CUDNN_STATUS_SUCCESS) {
    status = functions().set_stream(context->handle, static_cast<cudaStream_t>(stream));
  }
  if (status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
      status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED) {
    throw DeviceError("cannot start cuDNN: out of memory", "train fewer lanes on the device");
  }
  if (status != CUDNN_STATUS_SUCCESS) {
    why = "cannot start cuDNN: " + words_of(status);
    return nullptr;
  }
  check_cuda(cudaMalloc(&context->workspace, static_cast<size_t>(kWorkspaceBytes)),
             "workspace allocation (cuDNN)", static_cast<size_t>(kWorkspaceBytes));
  return std::make_unique<Cudnn>(std::move(context), fast);
}

}  // namespace halfscope::gpu
