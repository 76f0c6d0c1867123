// SPDX-License-Identifier: MIT
// Plans of PyTorch's autocast against PyTorch: tests/oracle/torch_dtypes.py exported networks and
// recorded the dtype of every operator's result and gradient under autocast on the CPU and on CUDA.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/graph/op_def.h"
#include "core/lower/lower.h"
#include "core/policy/torch.h"
#include "core/policy/torch_lists.h"
#include "tests/policy/torch_archive.h"

namespace halfscope {
namespace {

using test::archive;
using test::Json;

const std::map<std::string, std::string>& preset_of_policy() {
  static const std::map<std::string, std::string> names{{"cuda-fp16", "torch-autocast-fp16"},
                                                        {"cuda-bf16", "torch-autocast-bf16"},
                                                        {"cpu-bf16", "torch-autocast-cpu-bf16"},
                                                        {"cpu-fp16", "torch-autocast-cpu-fp16"}};
  return names;
}

/// Counts over all cases.
struct Counts {
  int nodes = 0, gradients = 0, variables = 0, not_found = 0;
};

/// The formats of one network under one plan, by names of the file.
class Formats {
 public:
  Formats(const Model& model, const Plan& plan) : executable_(lower(model, plan, {})) {
    for (const Node& node : executable_.graph.nodes()) {
      if (node.phase == Phase::forward) nodes_.try_emplace(node.path, &node);
    }
    for (const Node& node : model.graph.nodes()) {
      paths_[node.alias.empty() ? node.path : node.alias] = node.path;
    }
    for (const Tap& tap : executable_.taps) {
      if (tap.site.role == Role::activation_grad && tap.site.tensor == "activation_grad") {
        gradients_[tap.site.path] = tap.value;
      } else if (tap.site.role == Role::weight_grad && tap.site.phase == Phase::backward) {
        gradients_[tap.site.name()] = tap.value;
      }
    }
  }

  const Node* node(const std::string& name) const {
    const auto path = paths_.find(name);
    if (path == paths_.end()) return nullptr;
    for (const char* part : {"", "/mix"}) {
      if (const auto found = nodes_.find(path->second + part); found != nodes_.end())
        return found->second;
    }
    return nullptr;
  }
  FloatFormat format(const Node& node) const {
    return executable_.graph.value(node.outputs[0]).format;
  }
  /// Returns the formats of a gradient: as it is stored, and as it is used: that of the values in
  /// it, as moving them does not widen them, and at most `read`, the format in which the backward
  /// pass reads it. A container that is wider than its values shows in one program and not in the
  /// other.
  std::vector<FloatFormat> gradient(const std::string& name, const FloatFormat& read) const {
    const auto found = gradients_.find(name);
    if (found == gradients_.end()) return {};
    const FloatFormat values = values_of(found->second);
    return {values.contains(read) ? read : values, executable_.graph.value(found->second).format};
  }

 private:
  FloatFormat values_of(ValueId value) const {
    const Graph& graph = executable_.graph;
    const FloatFormat format = graph.value(value).format;
    const NodeId producer = graph.value(value).producer;
    if (producer == kNone) return format;
    const Node& node = graph.node(producer);
    const OpDef& def = find_op(node.op);
    // The networks gather every row once.
    const bool moves = def.view || def.movement != nullptr || def.selects ||
                       node.op == "GatherGrad" || node.op == "SliceGrad";
    if (!moves) return format;
    const FloatFormat moved = values_of(node.inputs[0]);
    return format.contains(moved) ? moved : format;
  }

  Executable executable_;
  std::map<std::string, const Node*> nodes_;
  std::map<std::string, std::string> paths_;  ///< by the file's names
  std::map<std::string, ValueId> gradients_;
};

/// Returns what differs from PyTorch, one line each.
std::vector<std::string> differences(const std::string& name, const std::string& policy,
                                     Counts& counts) {
  const Json& given = archive().dtypes["cases"][name];
  const Json& expected = given["policies"][policy];
  std::vector<std::string> lines;
  const Model model = test::network_of(name);
  const TorchAutocast autocast = torch_autocast(preset_of_policy().at(policy)).value();
  const Formats formats(model, torch_autocast_plan(autocast, model));
  for (const auto& [node_name, dtypes] : expected["nodes"].items()) {
    const Node* node = formats.node(node_name);
    if (node == nullptr) {
      ++counts.not_found;
      continue;
    }
    const std::string call = given["calls"][node_name];
    const auto check = [&](const char* what, const Json& theirs,
                           const std::vector<FloatFormat>& ours) {
      const bool same = std::any_of(ours.begin(), ours.end(), [&](const FloatFormat& format) {
        return theirs == format_name(format);
      });
      if (same) return;
      lines.push_back(fmt::format("{} {}: {} of {} ({}; {} here): PyTorch {}, plan {}", name,
                                  policy, what, node->path, call, node->op,
                                  theirs.get<std::string>(), format_name(ours[0])));
    };
    ++counts.nodes;
    check("result", dtypes[0], {formats.format(*node)});
    const std::vector<FloatFormat> gradient = formats.gradient(node->path, formats.format(*node));
    if (dtypes[1].is_null() || gradient.empty()) continue;
    ++counts.gradients;
    check("gradient", dtypes[1], gradient);
  }
  for (const auto& [variable, dtype] : expected["gradients"].items()) {
    const std::vector<FloatFormat> gradient = formats.gradient(variable + "_grad", kFp32);
    if (gradient.empty()) continue;
    ++counts.variables;
    if (dtype != format_name(gradient[0]) && dtype != format_name(gradient[1])) {
      lines.push_back(fmt::format("{} {}: gradient of {}: PyTorch {}, plan {}", name, policy,
                                  variable, dtype.get<std::string>(), format_name(gradient[0])));
    }
  }
  return lines;
}

/// EXPECTED TO DIFFER: TorchScript writes functions as networks may write them themselves, and
/// PyTorch computes those in other dtypes. An entry that no longer differs fails the test until it
/// is taken off this list.
struct Known {
  const char* file;    ///< beginning of its name
  const char* device;  ///< "cuda", "cpu" or "" for both
  const char* what;    ///< part of the line
  const char* why;
};
constexpr Known kKnown[] = {
    {"f_mish.script", "cuda", "mish", "written as x * tanh(softplus(x))"},
    {"mlp_activations.script", "cuda", "mish", "the same"},
    {"loss_of_mean.script", "cuda", "", "square is written as x * x"},
};

/// Removes the lines that are known, and adds one for every entry that has none.
std::string unknown(const std::vector<std::string>& lines, const std::string& policy) {
  std::string text;
  std::set<const Known*> seen;
  for (const std::string& line : lines) {
    bool known = false;
    for (const Known& each : kKnown) {
      const bool fits = line.starts_with(each.file) && policy.starts_with(each.device) &&
                        line.find(each.what) != std::string::npos;
      if (fits) seen.insert(&each);
      known = known || fits;
    }
    if (!known) text += line + "\n";
  }
  for (const Known& each : kKnown) {
    if (policy.starts_with(each.device) && !seen.contains(&each))
      text += std::string(each.file) + " " + policy + " does not differ any more\n";
  }
  return text;
}

class TorchDtypes : public testing::TestWithParam<std::string> {};

TEST_P(TorchDtypes, AreThoseOfThePlan) {
  const std::string policy = GetParam();
  Counts counts;
  int networks = 0;
  std::vector<std::string> lines;
  for (const auto& [name, given] : archive().dtypes["cases"].items()) {
    if (given["policies"][policy].contains("error")) continue;  // PyTorch refuses the network
    ++networks;
    try {
      for (std::string& line : differences(name, policy, counts)) lines.push_back(std::move(line));
    } catch (const Error& error) {
      lines.push_back(name + ": " + error.what());
    }
  }
  fmt::print(
      "{}: {} files, {} results, {} gradients of results, {} of weights; {} nodes of files are "
      "parts "
      "of others here; {} lines differ\n",
      policy, networks, counts.nodes, counts.gradients, counts.variables, counts.not_found,
      lines.size());
  EXPECT_EQ(unknown(lines, policy), "");
  EXPECT_GE(networks, 40);
  EXPECT_GE(counts.nodes, 20 * counts.not_found);
}

/// Functions of the dispatcher's lists that torch_lists() leaves out on purpose.
bool left_out(const std::string& name) {
  static const std::set<std::string> inner{"_cudnn_rnn",
                                           "_lu_with_info",
                                           "cudnn_convolution",
                                           "cudnn_convolution_transpose",
                                           "fake_quantize_per_tensor_affine",
                                           "multilabel_margin_loss_forward"};
  return inner.contains(name) || name.starts_with("linalg_") || name.starts_with("fft_");
}

TEST(TorchLists, HaveTheNamesOfTheDispatcher) {
  for (const bool cuda : {true, false}) {
    const std::set<std::string> theirs =
        archive().dtypes["lists"][cuda ? "cuda" : "cpu"].get<std::set<std::string>>();
    for (const TorchListed& row : torch_lists()) {
      const bool listed = (cuda ? row.cuda : row.cpu) != TorchList::none;
      // Not a kernel of its own on CUDA, see the table.
      if (cuda && std::string(row.name) == "cross_entropy_loss") continue;
      EXPECT_EQ(listed, theirs.contains(row.name)) << row.name << (cuda ? " CUDA" : " CPU");
    }
    for (const std::string& name : theirs) {
      EXPECT_TRUE(left_out(name) || find_torch_listed(name) != nullptr) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, TorchDtypes,
                         testing::Values("cuda-fp16", "cuda-bf16", "cpu-bf16", "cpu-fp16"),
                         [](const auto& info) {
                           std::string name = info.param;
                           name[name.find('-')] = '_';
                           return name;
                         });

}  // namespace
}  // namespace halfscope
