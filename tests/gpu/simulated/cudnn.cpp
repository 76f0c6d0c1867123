// SPDX-License-Identifier: MIT
// cuDNN 9 on the simulated device, through its backend interface. Descriptors store what they are
// given; a graph is a convolution, perhaps with a copy of its sums. The engines that it proposes
// include those that a careful caller rejects, before the good one: each does something wrong, in
// the way that its notes say. As in the real library, hardly any engine computes fp32 from 16-bit
// operands in one node. Calls that the library rejects as a caller's mistake end the program.
#include <cuda_runtime_api.h>
#include <cudnn_graph.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/gpu/simulated/cudnn_convolution.h"
#include "tests/gpu/simulated/device.h"

using namespace halfscope::simulated;  // NOLINT: the library's functions are in no namespace

namespace {

struct Engine {
  int64_t index;
  bool tensor_cores;
  bool compiled_now = false;
  int64_t workspace = 0;
  Flaw flaw = Flaw::none;
  std::vector<cudnnBackendNumericalNote_t> notes{};
};

constexpr int64_t kTooMuch = int64_t{1} << 40;
constexpr auto kNondeterministic = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
constexpr auto kWinograd = CUDNN_NUMERICAL_NOTE_WINOGRAD;
constexpr auto kFft = CUDNN_NUMERICAL_NOTE_FFT;
constexpr auto kNarrows = CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
constexpr auto kNarrowSums = CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION;

/// All engines. Those of two nodes are compiled at run time.
std::vector<Engine> engines_of(const Work& work, bool fallback) {
  const Convolution& conv = work.conv;
  const cudaDataType_t read = conv.operand().type, written = work.written.type;
  const bool half = read == CUDA_R_16F || read == CUDA_R_16BF;
  if (!half && read != CUDA_R_32F) return {};
  if (half && !conv.operand().channels_last()) return {};
  if (work.copied) {
    // Lines of channels that are no multiple of 16 bytes have none, and neither have groups.
    const bool whole = conv.x.size[1] % 8 == 0 && conv.y.size[1] % 8 == 0;
    if (!half || written != CUDA_R_32F || !whole || conv.groups > 1 || fallback) return {};
    return {{21, true, true, 0, Flaw::every_second_run, {kNondeterministic}},
            {22, true, true, 0, Flaw::one_ulp, {kWinograd}},
            {23, true, true, 0, Flaw::narrow_sums, {kNarrowSums}},
            {24, true, true, kTooMuch, Flaw::one_ulp},
            {25, false, true, 0, Flaw::one_ulp},
            {27, true, true, 512}};
  }
  if (half && written == CUDA_R_32F) {
    if (!fallback || conv.groups > 1 || &conv.made() != &conv.y) return {};
    return {{71, true, true, 0}};
  }
  if (read != written) return {};
  if (fallback) return {{10, false, false, 0}};
  if (conv.groups > 1) return {{5, false, true, 128}};
  std::vector<Engine> engines{{1, true, false, 0, Flaw::every_second_run, {kNondeterministic}},
                              {2, true, false, 0, Flaw::one_ulp, {kWinograd}},
                              {3, false, false, 0, Flaw::one_ulp, {kFft}},
                              {4, true, false, 0, Flaw::narrow_operands, {kNarrows}},
                              {6, true, false, kTooMuch, Flaw::one_ulp},
                              {8, true, true, 0, Flaw::one_ulp},
                              {11, true, false, 0, Flaw::narrow_sums, {kNarrowSums}}};
  // Transforms, but does not say so, as engine 17 of the real library.
  if (conv.w.size[3] > 1) engines.push_back({12, false, false, 64, Flaw::transformed});
  engines.push_back({9, false, false, 256});
  engines.push_back({7, true, false, 4096});
  return engines;
}

Engine engine_of(const Descriptor& config) {
  const Descriptor& engine = config.other(CUDNN_ATTR_ENGINECFG_ENGINE);
  const auto index = engine.one<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
  const Work work = work_of(engine.other(CUDNN_ATTR_ENGINE_OPERATION_GRAPH));
  for (const bool fallback : {false, true}) {
    for (const Engine& each : engines_of(work, fallback)) {
      if (each.index == index) return each;
    }
  }
  violated("cuDNN: an engine that does not exist");
}

cudaStream_t stream_of(cudnnHandle_t handle) { return *reinterpret_cast<cudaStream_t*>(handle); }

/// Descriptors are stored as copies that are never destroyed, because the library also keeps its
/// own.
template <class T>
void keep(Descriptor& descriptor, int name, cudnnBackendAttributeType_t type,
          const std::vector<T>& values) {
  Value kept{type, static_cast<int64_t>(values.size()),
             std::vector<std::byte>(sizeof(T) * values.size())};
  if (!values.empty()) std::memcpy(kept.bytes.data(), values.data(), kept.bytes.size());
  descriptor.values[name] = std::move(kept);
}
void keep_copies(Descriptor& descriptor, int name, const std::vector<const Descriptor*>& others) {
  std::vector<cudnnBackendDescriptor_t> copies;
  for (const Descriptor* const other : others) copies.push_back(new Descriptor(*other));
  keep(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, copies);
}

/// Fills a configuration as heuristics do.
void configure(Descriptor& config, const Engine& from, const Descriptor& graph) {
  Descriptor engine{CUDNN_BACKEND_ENGINE_DESCRIPTOR, true};
  std::vector<cudnnBackendNumericalNote_t> notes = from.notes;
  if (from.tensor_cores) notes.push_back(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  std::vector<cudnnBackendBehaviorNote_t> behavior;
  if (from.compiled_now) behavior.push_back(CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION);
  keep_copies(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, {&graph});
  keep(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, std::vector{from.index});
  keep(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, notes);
  keep(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, behavior);
  keep_copies(config, CUDNN_ATTR_ENGINECFG_ENGINE, {&engine});
  config.final = true;
}

}  // namespace

extern "C" {

size_t cudnnGetVersion() { return CUDNN_VERSION; }
const char* cudnnGetErrorString(cudnnStatus_t status) {
  return status == CUDNN_STATUS_SUCCESS ? "CUDNN_STATUS_SUCCESS" : "CUDNN_STATUS_SIMULATED";
}
void cudnnGetLastErrorString(char* message, size_t most) {
  if (most > 0) message[0] = '\0';
}
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = reinterpret_cast<cudnnHandle_t>(new cudaStream_t{});
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete reinterpret_cast<cudaStream_t*>(handle);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  *reinterpret_cast<cudaStream_t*>(handle) = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  *descriptor = new Descriptor{type};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  delete static_cast<Descriptor*>(descriptor);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void* values) {
  require(!of(descriptor).final, "a descriptor is changed after it is final");
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    std::vector<const Descriptor*> others;
    for (int64_t i = 0; i < count; ++i) {
      others.push_back(&of(static_cast<const cudnnBackendDescriptor_t*>(values)[i]));
      require(others.back()->final, "a descriptor that is not final is used");
    }
    keep_copies(of(descriptor), name, others);
    return CUDNN_STATUS_SUCCESS;
  }
  const auto* const begin = static_cast<const std::byte*>(values);
  const size_t bytes = static_cast<size_t>(count) * size_of(type);
  of(descriptor).values[name] = {type, count, std::vector<std::byte>(begin, begin + bytes)};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  Descriptor& one = of(descriptor);
  require(!one.final, "a descriptor is made final twice");
  switch (one.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      static_cast<void>(tensor_of(one));
      break;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      static_cast<void>(convolution_of(one));
      break;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      require(one.has(CUDNN_ATTR_OPERATIONGRAPH_HANDLE), "a graph without a handle");
      static_cast<void>(work_of(one));
      break;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      require(one.has(CUDNN_ATTR_EXECUTION_PLAN_HANDLE), "a plan without a handle");
      keep(one, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
           std::vector{engine_of(one.other(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)).workspace});
      break;
    default:
      break;
  }
  one.final = true;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t most,
                                       int64_t* count, void* values) {
  const Descriptor& one = of(descriptor);
  require(one.final, "a descriptor that is not final is read");
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
    const Descriptor& graph = one.other(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    const bool fallback =
        one.one<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE) == CUDNN_HEUR_MODE_FALLBACK;
    const std::vector<Engine> engines = engines_of(work_of(graph), fallback);
    *count = static_cast<int64_t>(engines.size());
    if (most == 0) return CUDNN_STATUS_SUCCESS;
    *count = std::min(*count, most);
    for (size_t i = 0; i < static_cast<size_t>(*count); ++i) {
      configure(of(static_cast<cudnnBackendDescriptor_t*>(values)[i]), engines[i], graph);
    }
    return CUDNN_STATUS_SUCCESS;
  }
  const auto found = one.values.find(name);
  *count = found == one.values.end() ? 0 : found->second.count;
  if (*count == 0 || most == 0) return CUDNN_STATUS_SUCCESS;
  require(found->second.type == type && *count <= most, "an attribute is read as what it is not");
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    of(*static_cast<cudnnBackendDescriptor_t*>(values)) = one.other(name);
  } else {
    std::memcpy(values, found->second.bytes.data(), found->second.bytes.size());
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
  require(of(plan).final && of(pack).final, "what is executed is not final");
  const Descriptor& config = of(plan).other(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  const Engine engine = engine_of(config);
  const Work work =
      work_of(config.other(CUDNN_ATTR_ENGINECFG_ENGINE).other(CUDNN_ATTR_ENGINE_OPERATION_GRAPH));
  const auto names = of(pack).all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = of(pack).all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  const auto needed = static_cast<size_t>(engine.workspace);
  void* const workspace = of(pack).one<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  require(needed == 0 || on_device(workspace, needed), "the workspace is too small");
  require(reinterpret_cast<uintptr_t>(workspace) % 16 == 0, "the workspace is not aligned");
  const auto pointer = [&](const Tensor& tensor) {
    const auto at = std::find(names.begin(), names.end(), tensor.name) - names.begin();
    require(static_cast<size_t>(at) < pointers.size(), "a tensor has no memory");
    void* const data = pointers[static_cast<size_t>(at)];
    const auto bytes = static_cast<size_t>(tensor.elements() * format_of(tensor.type)->bits() / 8);
    require(on_device(data, bytes), "a tensor reaches over its memory");
    require(reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(tensor.alignment) == 0,
            "a tensor does not begin where its descriptor says");
    return data;
  };
  const Convolution& conv = work.conv;
  const Tensor* const made = &conv.made();
  void* const result = pointer(work.written);
  void* const x = made == &conv.x ? nullptr : pointer(conv.x);
  void* const w = made == &conv.w ? nullptr : pointer(conv.w);
  void* const y = made == &conv.y ? nullptr : pointer(conv.y);
  require(result != x && result != w && result != y, "a result replaces an operand");
  const cudaError_t error = enqueue(stream_of(handle), [=] {
    // Nobody may have anything there.
    if (needed > 0) std::memset(workspace, 0xff, needed);
    compute(work, engine.tensor_cores, engine.flaw, x, w, y, result);
  });
  return error == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
