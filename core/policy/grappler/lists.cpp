// SPDX-License-Identifier: MIT
#include "core/policy/grappler/lists.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "core/error.h"

namespace halfscope::grappler {
namespace {

using Ops = std::set<std::string, std::less<>>;

constexpr const char* kPrefix = "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_";
constexpr std::array<AmpList, 4> kAllLists{AmpList::allow, AmpList::infer, AmpList::deny,
                                           AmpList::clear};

struct ListNames {
  const char *now, *before;
};

ListNames names_of(AmpList list) {
  switch (list) {
    case AmpList::allow:
      return {"ALLOWLIST", "WHITELIST"};
    case AmpList::infer:
      return {"INFERLIST", "GRAYLIST"};
    case AmpList::deny:
      return {"DENYLIST", "BLACKLIST"};
    case AmpList::clear:
      break;
  }
  return {"CLEARLIST", nullptr};
}

void add(Ops& ops, std::initializer_list<const char*> names) {
  for (const char* name : names) ops.insert(name);
}

Ops allow_list(const AmpOptions& options) {
  Ops ops{"Conv2D", "Conv2DBackpropFilter", "Conv2DBackpropInput", "Einsum", "MatMul"};
  if (options.mode == AmpMode::cpu_bfloat16) {
    add(ops,
        {"BatchMatMul", "BatchMatMulV2", "Conv3D", "Conv3DBackpropFilterV2",
         "Conv3DBackpropInputV2", "DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropFilter",
         "DepthwiseConv2dNativeBackpropInput", "FusedPadConv2D"});
    return ops;
  }
  const bool cuda = options.on_gpu();
  if (cuda) {
    add(ops, {"BlockLSTM",
              "BlockLSTMGrad",
              "BlockLSTMGradV2",
              "BlockLSTMV2",
              "CudnnRNN",
              "CudnnRNNBackprop",
              "CudnnRNNBackpropV2",
              "CudnnRNNBackpropV3",
              "CudnnRNNV2",
              "CudnnRNNV3",
              "FastUnsortedSegmentMax",
              "FusedConv2DBiasActivation",
              "FusedSparseConvGpuV2",
              "GRUBlockCell",
              "GRUBlockCellGrad",
              "LSTMBlockCell",
              "LSTMBlockCellGrad",
              "Mha",
              "MhaV2",
              "Pmlp",
              "Tmlp",
              "TmlpV2",
              "TmlpV3",
              "VoxelMax"});
  }
  if (!cuda || options.cuda_version >= 9010) add(ops, {"BatchMatMul", "BatchMatMulV2"});
  if (!cuda || options.cudnn_version >= 7602) {
    add(ops, {"Conv3D", "Conv3DBackpropFilter", "Conv3DBackpropFilterV2", "Conv3DBackpropInput",
              "Conv3DBackpropInputV2"});
  }
  if (!cuda || options.cudnn_version >= 8000) {
    add(ops, {"DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropFilter",
              "DepthwiseConv2dNativeBackpropInput"});
  }
  return ops;
}

Ops infer_list(const AmpOptions& options) {
  Ops ops{"Add",
          "AddN",
          "AddV2",
          "AvgPool",
          "AvgPool3D",
          "AvgPool3DGrad",
          "AvgPoolGrad",
          "BiasAdd",
          "BiasAddGrad",
          "BiasAddV1",
          "Elu",
          "EluGrad",
          "Erf",
          "Erfc",
          "FloorDiv",
          "FusedBatchNormGradV2",
          "FusedBatchNormGradV3",
          "FusedBatchNormV2",
          "FusedBatchNormV3",
          "Inv",
          "LeakyRelu",
          "LeakyReluGrad",
          "Log",
          "Log1p",
          "LogSoftmax",
          "Mul",
          "Prod",
          "RealDiv",
          "Reciprocal",
          "Selu",
          "SeluGrad",
          "Sigmoid",
          "SigmoidGrad",
          "Softmax",
          "Softplus",
          "SoftplusGrad",
          "Softsign",
          "SoftsignGrad",
          "Sqrt",
          "Sub",
          "Tanh",
          "TanhGrad",
          "_FusedBatchNormEx"};
  if (!options.on_gpu()) add(ops, {"Rsqrt", "Square", "SquaredDifference"});
  if (options.mode == AmpMode::cpu_bfloat16) add(ops, {"Mean", "Sum"});
  return ops;
}

Ops deny_list(const AmpOptions& options) {
  Ops ops{"Exp",
          "Expm1",
          "L2Loss",
          "Pow",
          "SaveV2",
          "SoftmaxCrossEntropyWithLogits",
          "SparseSoftmaxCrossEntropyWithLogits"};
  if (options.mode != AmpMode::cpu_bfloat16) add(ops, {"Mean", "Sum"});
  return ops;
}

Ops clear_list(const AmpOptions& options) {
  Ops ops{"Abs",
          "ArgMax",
          "ArgMin",
          "BatchToSpace",
          "BatchToSpaceND",
          "BroadcastTo",
          "Ceil",
          "CheckNumerics",
          "ClipByValue",
          "Concat",
          "ConcatV2",
          "DepthToSpace",
          "DynamicPartition",
          "DynamicStitch",
          "EnsureShape",
          "Enter",
          "Equal",
          "Exit",
          "ExpandDims",
          "Fill",
          "Floor",
          "Gather",
          "GatherNd",
          "GatherV2",
          "Greater",
          "GreaterEqual",
          "Identity",
          "IdentityN",
          "IsFinite",
          "IsInf",
          "IsNan",
          "Less",
          "LessEqual",
          "Max",
          "MaxPool",
          "MaxPool3D",
          "MaxPool3DGrad",
          "MaxPoolGrad",
          "MaxPoolGradGrad",
          "MaxPoolGradGradV2",
          "MaxPoolGradV2",
          "MaxPoolV2",
          "Maximum",
          "Merge",
          "Min",
          "Minimum",
          "MirrorPad",
          "MirrorPadGrad",
          "Neg",
          "NextIteration",
          "NotEqual",
          "OnesLike",
          "Pack",
          "Pad",
          "PadV2",
          "PreventGradient",
          "Rank",
          "Relu",
          "Relu6",
          "Relu6Grad",
          "ReluGrad",
          "Reshape",
          "ResizeNearestNeighbor",
          "ResizeNearestNeighborGrad",
          "Reverse",
          "ReverseSequence",
          "ReverseV2",
          "Round",
          "Select",
          "SelectV2",
          "Shape",
          "ShapeN",
          "Sign",
          "Slice",
          "Snapshot",
          "SpaceToBatch",
          "SpaceToBatchND",
          "SpaceToDepth",
          "Split",
          "SplitV",
          "Squeeze",
          "StopGradient",
          "StridedSlice",
          "StridedSliceGrad",
          "Switch",
          "TensorListConcat",
          "TensorListConcatLists",
          "TensorListConcatV2",
          "TensorListFromTensor",
          "TensorListGather",
          "TensorListGetItem",
          "TensorListPopBack",
          "TensorListPushBack",
          "TensorListPushBackBatch",
          "TensorListScatter",
          "TensorListScatterIntoExistingList",
          "TensorListScatterV2",
          "TensorListSetItem",
          "TensorListSplit",
          "TensorListStack",
          "Tile",
          "TopK",
          "TopKV2",
          "Transpose",
          "Unpack",
          "Where",
          "ZerosLike"};
  if (options.mode == AmpMode::cpu_bfloat16) {
    add(ops, {"ResizeBilinear", "ScatterNd", "StatelessWhile", "While"});
  } else {
    add(ops, {"MaxPool3DGradGrad", "OneHot", "Size"});
  }
  return ops;
}

/// Splits as TensorFlow does: blanks stay, and so do empty names between commas.
std::vector<std::string> names_in(const std::string& text) {
  std::vector<std::string> names;
  if (text.empty()) return names;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find(',', start), text.size());
    names.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return names;
}

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

Ops& ops_of(AmpLists& lists, AmpList list) {
  switch (list) {
    case AmpList::allow:
      return lists.allow;
    case AmpList::infer:
      return lists.infer;
    case AmpList::deny:
      return lists.deny;
    case AmpList::clear:
      break;
  }
  return lists.clear;
}

}  // namespace

const char* amp_list_name(AmpList list) noexcept {
  switch (list) {
    case AmpList::allow:
      return "allow";
    case AmpList::infer:
      return "infer";
    case AmpList::deny:
      return "deny";
    case AmpList::clear:
      break;
  }
  return "clear";
}

std::string AmpListEdit::variable() const {
  const ListNames names = names_of(list);
  return std::string(kPrefix) + (old ? names.before : names.now) + (add ? "_ADD=" : "_REMOVE=") +
         op;
}

std::string variables_after(std::vector<AmpListEdit> set, const std::vector<AmpListEdit>& edits) {
  std::vector<AmpListEdit> touched;  // one edit of each variable that changes, without its operator
  const auto touch = [&](AmpListEdit edit) {
    edit.op.clear();
    if (std::find(touched.begin(), touched.end(), edit) == touched.end()) touched.push_back(edit);
  };
  for (const AmpListEdit& edit : edits) {
    // TensorFlow reads the variables of a list one after another, so only one may name the
    // operator.
    const auto undoes = [&](const AmpListEdit& each) {
      return each.list == edit.list && each.op == edit.op && each != edit;
    };
    for (const AmpListEdit& each : set) {
      if (undoes(each)) touch(each);
    }
    std::erase_if(set, undoes);
    if (std::find(set.begin(), set.end(), edit) == set.end()) set.push_back(edit);
    touch(edit);
  }
  std::string text;
  for (const AmpListEdit& variable : touched) {
    std::string names;
    for (const AmpListEdit& each : set) {
      if (each.list != variable.list || each.add != variable.add || each.old != variable.old)
        continue;
      names += (names.empty() ? "" : ",") + each.op;
    }
    text += (text.empty() ? "" : " ") + variable.variable() + names;
  }
  return text;
}

std::vector<AmpListEdit> moved_to(const AmpLists& lists, const std::string& op,
                                  std::optional<AmpList> to) {
  std::vector<AmpListEdit> edits;
  const std::optional<AmpList> from = lists.list_of(op);
  if (from == to) return edits;
  if (from == AmpList::deny && lists.infer_is_denied)
    edits.push_back({AmpList::infer, false, op, false});
  if (from) edits.push_back({*from, false, op, false});
  if (to) edits.push_back({*to, true, op, false});
  return edits;
}

std::optional<AmpList> AmpLists::list_of(std::string_view op) const {
  if (allow.contains(op)) return AmpList::allow;
  if (infer.contains(op)) return AmpList::infer;
  if (deny.contains(op)) return AmpList::deny;
  if (clear.contains(op)) return AmpList::clear;
  return std::nullopt;
}

void read_environment(AmpOptions& options,
                      const std::function<std::optional<std::string>(const std::string&)>& value) {
  const std::string level = upper(value(std::string(kPrefix) + "LEVEL").value_or(""));
  // TensorFlow ignores other levels.
  if (level == "TENSOR_CORES_ONLY") options.level = AmpLevel::tensor_cores_only;
  if (level == "UNSAFE_FORCE_ALL") options.level = AmpLevel::unsafe_force_all;
  if (level == "TREAT_INFER_AS_DENY") options.level = AmpLevel::treat_infer_as_deny;
  const std::string ignore = std::string(kPrefix) + "IGNORE_PERFORMANCE";
  if (const std::optional<std::string> text = value(ignore); text && !text->empty()) {
    const std::string word = upper(*text);
    if (word == "1" || word == "TRUE") {
      options.ignore_performance = true;
    } else if (word == "0" || word == "FALSE") {
      options.ignore_performance = false;
    } else {
      throw usage_error(fmt::format("{} is '{}', not a truth value", ignore, *text),
                        "set it to 1, 0, true or false");
    }
  }
  for (const AmpList list : kAllLists) {
    const ListNames names = names_of(list);
    for (const char* name : {names.now, names.before}) {
      if (name == nullptr) continue;
      for (const bool adds : {true, false}) {
        const std::string variable = std::string(kPrefix) + name + (adds ? "_ADD" : "_REMOVE");
        for (std::string& op : names_in(value(variable).value_or("")))
          options.edits.push_back({list, adds, std::move(op), name != names.now});
      }
    }
  }
}

AmpLists amp_lists(const AmpOptions& options) {
  if (options.level == AmpLevel::unsafe_force_all && !options.on_gpu()) {
    throw usage_error("the level UNSAFE_FORCE_ALL exists only for GPUs",
                      "choose another level, or the mode for GPUs");
  }
  AmpLists lists{allow_list(options), infer_list(options), deny_list(options), clear_list(options)};
  for (const AmpListEdit& edit : options.edits) {
    if (edit.add) {
      ops_of(lists, edit.list).insert(edit.op);
    } else {
      ops_of(lists, edit.list).erase(edit.op);
    }
  }
  // This level also drops what the variables add to these lists.
  if (options.level == AmpLevel::tensor_cores_only && options.on_gpu()) {
    lists.infer.clear();
    lists.deny.clear();
    lists.clear.clear();
  }
  if (options.level == AmpLevel::treat_infer_as_deny) {
    lists.deny.merge(std::exchange(lists.infer, {}));
    lists.infer_is_denied = true;
  }
  for (size_t i = 0; i < kAllLists.size(); ++i) {
    for (size_t j = i + 1; j < kAllLists.size(); ++j) {
      for (const std::string& op : ops_of(lists, kAllLists[i])) {
        if (!ops_of(lists, kAllLists[j]).contains(op)) continue;
        const std::string first = amp_list_name(kAllLists[i]), other = amp_list_name(kAllLists[j]);
        throw usage_error(
            fmt::format("operator '{}' is on the {} list and on the {} list", op, first, other),
            fmt::format("remove it from one of them, for example with {}",
                        AmpListEdit{kAllLists[i], false, op, false}.variable()));
      }
    }
  }
  return lists;
}

}  // namespace halfscope::grappler
