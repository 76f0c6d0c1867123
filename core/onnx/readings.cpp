// SPDX-License-Identifier: MIT
#include "core/onnx/readings.h"

#include <algorithm>
#include <array>
#include <functional>
#include <sstream>
#include <string_view>

#include "core/error.h"
#include "core/onnx/node_order.h"
#include "core/onnx/reading_work.h"
#include "core/onnx/tensorflow_file.h"
#include "core/onnx/values.h"
#include "core/plan/plan.h"

namespace halfscope::onnx_files {
namespace {

/// Statistics of batch normalizations: buffers that the forward pass moves on.
bool is_statistic(const std::string& op, int input) {
  return op == "BatchNormalization" && (input == 3 || input == 4);
}

bool matches(const std::vector<std::string>& globs, const std::vector<std::string>& names) {
  return std::any_of(globs.begin(), globs.end(), [&](const std::string& glob) {
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return !name.empty() && glob_match(glob, name);
    });
  });
}

/// Applies the user's options, which override all guesses and resolve doubts.
class Wishes {
 public:
  Wishes(ReadingWork& work, const ImportOptions& options) : work_(work), options_(options) {}

  void apply() {
    for (size_t i = 0; i < work_.uses.size(); ++i) apply(work_.uses[i], std::to_string(i));
    for (const auto* globs : {&options_.trainable, &options_.frozen, &options_.untied}) {
      for (const std::string& glob : *globs) {
        if (met_.contains(glob)) continue;
        throw usage_error("no weight matches '" + glob + "'",
                          "list the weights of the file with `halfscope inspect`");
      }
    }
  }

 private:
  void apply(Use& use, const std::string& number) {
    Reading& reading = use.reading;
    const std::string below = use.origin->known ? module_name(use, role_of(use)) : "";
    const std::vector<std::string> names{reading.name, printable(use.copy), printable(use.stored),
                                         below};
    if (wanted(options_.untied, names)) {
      reading.identity += " at " + number;
      if (reading.transposed || reading.spread) reading.stored = use.stored;
      reading.transposed = reading.spread = false;
      reading.name = below;
      settle(names);
    }
    if (wanted(options_.trainable, names)) {
      reading.padding_row = -1;
      if (!use.trains()) {
        reading.trains = Trains::yes;
        reading.identity = "trained " + use.copy;
        reading.name = is_numbered(use.copy) ? below : names[1];
        std::erase_if(work_.result.constants, [&](const ImportConstant& each) {
          return std::find(names.begin(), names.end(), each.name) != names.end();
        });
      }
      settle(names);
    }
    if (wanted(options_.frozen, names)) {
      work_.hold(use, "--frozen");
      settle(names);
    }
  }

  bool wanted(const std::vector<std::string>& globs, const std::vector<std::string>& names) {
    bool any = false;
    for (const std::string& glob : globs) {
      if (!matches({glob}, names)) continue;
      met_.insert(glob);
      any = true;
    }
    return any;
  }

  void settle(const std::vector<std::string>& names) {
    std::erase_if(work_.result.doubts, [&](const ImportDoubt& doubt) {
      return std::find(names.begin(), names.end(), doubt.name) != names.end();
    });
  }

  ReadingWork& work_;
  const ImportOptions& options_;
  std::set<std::string> met_;
};

}  // namespace

bool is_weight_input(const std::string& op, int input) {
  struct Row {
    std::string_view op;
    int first, last;
  };
  constexpr std::array kRows{
      Row{"Conv", 1, 2},
      Row{"ConvTranspose", 1, 2},
      Row{"Gemm", 1, 2},
      Row{"MatMul", 0, 1},
      Row{"BatchNormalization", 1, 2},
      Row{"LayerNormalization", 1, 2},
      Row{"RMSNormalization", 1, 2},
      Row{"SimplifiedLayerNormalization", 1, 2},
      Row{"InstanceNormalization", 1, 2},
      Row{"GroupNormalization", 1, 2},
      Row{"PRelu", 1, 1},
      Row{"Gather", 0, 0},
      Row{"LSTM", 1, 3},
      Row{"GRU", 1, 3},
      Row{"RNN", 1, 3},
  };
  return std::any_of(kRows.begin(), kRows.end(), [&](const Row& row) {
    return row.op == op && row.first <= input && input <= row.last;
  });
}

bool is_right_factor(const Use& use) {
  return use.node->op_type() == "MatMul" && use.input == 1 && use.tensor->shape.size() == 2;
}

std::string owner_of(const std::string& parameter) {
  const size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? "" : parameter.substr(0, dot);
}

bool is_within(const std::string& module, const std::string& outer) {
  return outer.empty() || module == outer || module.starts_with(outer + ".");
}

std::string joined(const std::vector<std::string>& names) {
  constexpr size_t kMost = 3;
  std::string text;
  for (size_t i = 0; i < std::min(kMost, names.size()); ++i)
    text += (i == 0 ? "" : ", ") + printable(names[i]);
  if (names.size() > kMost) text += " and " + std::to_string(names.size() - kMost) + " more";
  return text;
}

std::string role_of(const Use& use) {
  const std::string& op = use.node->op_type();
  if (op == "Add" || op == "Sub") return "bias";
  if (op == "LSTM" || op == "GRU" || op == "RNN")
    return use.input == 1 ? "weight_ih" : use.input == 2 ? "weight_hh" : "bias";
  return use.input == 2 && is_weight_input(op, 2) ? "bias" : "weight";
}

std::string module_name(const Use& use, const std::string& last) {
  // Names without a module would say nothing: "weight".
  if (!use.origin->known || use.origin->module.empty()) return printable(use.copy);
  return use.origin->module + "." + printable(last);
}

ReadingWork::ReadingWork(const ::onnx::ModelProto& model, const Initializers& tensors,
                         const Origins& node_origins)
    : file(model),
      initializers(tensors),
      origins(node_origins),
      from_torch(model.producer_name() == "pytorch"),
      from_tensorflow(is_from_tensorflow(model)) {
  collect();
  find_evidence();
  for (const ::onnx::StringStringEntryProto& entry : file.metadata_props()) {
    if (entry.key() != kParameterList) continue;
    declared.emplace();
    std::istringstream lines(entry.value());
    for (std::string line; std::getline(lines, line);) {
      if (!line.empty()) declared->insert(line);
    }
  }
}

void ReadingWork::collect() {
  const std::map<std::string, std::string> copies = copied_initializers(file.graph());
  has_copies = !copies.empty();
  for (const ::onnx::NodeProto* node : in_order(file.graph().node())) {
    for (const std::string& output : node->output()) maker_[output] = node;
    if (node->output_size() == 1 && copies.contains(node->output(0))) continue;
    for (int i = 0; i < node->input_size(); ++i) {
      const auto copied = copies.find(node->input(i));
      const auto tensor =
          initializers.find(copied != copies.end() ? copied->second : node->input(i));
      if (tensor == initializers.end() || !tensor->second->real() ||
          is_statistic(node->op_type(), i)) {
        continue;
      }
      uses.push_back(
          {node, i, &origins.at(node), tensor->first, node->input(i), tensor->second.get()});
    }
  }
}

void ReadingWork::find_evidence() {
  std::map<std::pair<Shape, size_t>, std::vector<const KnownTensor*>> alike;
  std::set<std::string> seen;
  for (const Use& use : uses) {
    if (use.tensor->count() < 2 || !seen.insert(use.stored).second) continue;
    size_t hash = 0;  // of a few numbers, so that few tensors are compared in full
    for (size_t i = 0; i < std::min<size_t>(16, use.tensor->reals.size()); ++i)
      hash = hash * 31 + std::hash<float>{}(use.tensor->reals[i]);
    std::vector<const KnownTensor*>& list = alike[{use.tensor->shape, hash}];
    stores_equal_apart =
        stores_equal_apart || std::any_of(list.begin(), list.end(), [&](const KnownTensor* other) {
          return same_values(*other, *use.tensor);
        });
    list.push_back(use.tensor);
  }
}

const ::onnx::NodeProto* ReadingWork::maker(const std::string& name) const {
  const auto found = maker_.find(name);
  return found == maker_.end() ? nullptr : found->second;
}

bool ReadingWork::is_of_groups(const Use& use) const {
  if (use.node->op_type() != "InstanceNormalization" || !is_one_number(*use.tensor)) return false;
  const ::onnx::NodeProto* before = maker(use.node->input(0));
  return before != nullptr && before->op_type() == "Reshape" &&
         origins.at(before).module == use.origin->module &&
         origins.at(before).call == use.origin->call;
}

void ReadingWork::train(Use& use, const std::string& name) {
  use.reading.trains = Trains::yes;
  use.reading.name = printable(name);
  use.reading.identity = name;
}

void ReadingWork::hold(Use& use, const std::string& why) {
  use.reading.trains = Trains::no;
  use.reading.identity = "constant " + use.stored;
  use.reading.stored = use.stored;
  use.reading.transposed = use.reading.spread = false;
  use.reading.functions.clear();
  use.reading.padding_row = -1;
  if (use.tensor->count() < 2 || !held_.insert(use.copy).second) return;
  const std::string shown =
      is_numbered(use.copy) ? module_name(use, use.copy) : printable(use.copy);
  result.constants.push_back({shown, use.tensor->shape, why});
}

void ReadingWork::doubt(const std::string& name, const std::string& why) {
  const bool known = std::any_of(result.doubts.begin(), result.doubts.end(),
                                 [&](const ImportDoubt& each) { return each.name == name; });
  if (!known) result.doubts.push_back({name, why});
}

void ReadingWork::batch_norms_folded(const std::vector<std::string>& names) {
  doubt("batch normalization", "the exporter folded batch normalizations into other layers (" +
                                   joined(names) + "), so this file trains without them");
}

/// Finds padding rows of embeddings, which do not train where they are looked up. Dynamo's metadata
/// names the row; otherwise it is the row that PyTorch set to zeros.
static void find_padding_rows(ReadingWork& work) {
  if (!work.from_torch) return;
  for (Use& use : work.uses) {
    if (!use.trains() || use.node->op_type() != "Gather" || use.input != 0 ||
        use.tensor->shape.size() != 2 || use.reading.computed) {
      continue;
    }
    const auto axis = std::find_if(use.node->attribute().begin(), use.node->attribute().end(),
                                   [](const auto& each) { return each.name() == "axis"; });
    if (axis != use.node->attribute().end() && axis->i() != 0) continue;
    const bool said = !use.origin->call.empty();
    const int64_t row = said ? use.origin->padding_row.value_or(-1) : find_zero_row(*use.tensor);
    if (row < 0 || row >= use.tensor->shape[0]) continue;
    use.reading.padding_row = row;
  }
}

static void note_padding_rows(ReadingWork& work) {
  std::vector<std::string>& notes = work.result.notes;
  for (const Use& use : work.uses) {
    if (use.reading.padding_row < 0) continue;
    const bool said = !use.origin->call.empty();
    const std::string name = use.reading.name.empty() ? printable(use.copy) : use.reading.name;
    const std::string row = "row " + std::to_string(use.reading.padding_row) + " of " + name;
    const std::string note = row +
                             (said ? " is the padding row and does not train"
                                   : " contains only zeros, so it counts as padding and does not "
                                     "train") +
                             " where " + name + " is looked up; --trainable " + name + " trains it";
    if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(note);
  }
}

/// Notes normalizations that several nodes share: here each node keeps its own statistics.
static void note_shared_statistics(ReadingWork& work) {
  std::map<std::string, std::vector<const ::onnx::NodeProto*>> readers;
  for (const ::onnx::NodeProto& node : work.file.graph().node()) {
    if (node.op_type() == "BatchNormalization" && node.input_size() > 3)
      readers[node.input(3)].push_back(&node);
  }
  for (const auto& [name, nodes] : readers) {
    if (nodes.size() < 2 || !work.initializers.contains(name)) continue;
    const std::string& module = work.origins.at(nodes.front()).module;
    work.result.notes.push_back(
        (module.empty() ? describe(*nodes.front()) : module) + " is called " +
        std::to_string(nodes.size()) +
        " times; each call keeps its own running statistics, which evaluations use");
  }
}

Readings find_readings(const ::onnx::ModelProto& file, const Initializers& initializers,
                       const Origins& origins, const ImportOptions& options) {
  ReadingWork work(file, initializers, origins);
  const Signature signature = signature_of(file.graph());
  if (signature.empty()) {
    decide_unmarked(work);
  } else {
    decide_marked(work, signature);
  }
  find_padding_rows(work);
  Wishes(work, options).apply();
  note_padding_rows(work);
  note_shared_statistics(work);
  for (Use& use : work.uses) {
    if (use.reading.stored.empty()) use.reading.stored = use.stored;
    work.result.readings[{use.node, use.input}] = use.reading;
  }
  return std::move(work.result);
}

}  // namespace halfscope::onnx_files
