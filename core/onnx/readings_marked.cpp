// SPDX-License-Identifier: MIT
// Readings of files with dynamo's metadata: each node says for which call of the network it was
// made, and the call which parameters it reads.
#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "core/onnx/dynamo_calls.h"
#include "core/onnx/node_order.h"
#include "core/onnx/reading_work.h"
#include "core/onnx/values.h"

namespace halfscope::onnx_files {
namespace {

bool is_recurrent(const Use& use) {
  const std::string& op = use.node->op_type();
  return op == "LSTM" || op == "GRU" || op == "RNN";
}

/// An argument of a call that ONNX's operator lacks: exporters leave it out without a word.
struct LostArgument {
  std::string_view call;
  size_t position;
  std::string_view usual, name;
};
constexpr std::array kLostArguments{LostArgument{"cross_entropy_loss", 5, "0.0", "label_smoothing"},
                                    LostArgument{"avg_pool2d", 6, "None", "divisor_override"},
                                    LostArgument{"avg_pool3d", 6, "None", "divisor_override"},
                                    LostArgument{"embedding", 3, "False", "scale_grad_by_freq"}};

class Marked {
 public:
  Marked(ReadingWork& work, const Signature& signature) : work_(work), signature_(signature) {}

  void run() {
    std::map<std::string, std::vector<Use*>> calls;
    for (Use& use : work_.uses) {
      if (use.origin->call.empty()) {
        by_own_name(use);
      } else {
        calls[use.origin->call].push_back(&use);
      }
    }
    for (const auto& [call, uses] : calls) decide_call(uses);
    note_read();
    for (const auto& [call, uses] : calls) part_merged(uses);
    join_forms();
    note_read();
    restore_biases();
    hold_undeclared();
    doubt_detached();
    doubt_regions();
    doubt_lost_arguments();
    report_lost();
  }

 private:
  /// Parameters that the values of an initializer come from.
  std::vector<std::string> sources_of(const std::string& stored) const {
    if (signature_.is_parameter(stored)) return {stored};
    std::vector<std::string> sources;
    const auto found = signature_.folded_from.find(stored);
    if (found == signature_.folded_from.end()) return sources;
    std::copy_if(found->second.begin(), found->second.end(), std::back_inserter(sources),
                 [&](const std::string& name) { return signature_.is_parameter(name); });
    return sources;
  }

  bool is_folded(const Use& use) const {
    return !signature_.is_parameter(use.stored) && signature_.folded_from.contains(use.stored);
  }

  /// Parameters among the arguments of a node's call, in order.
  std::vector<std::string> arguments_of(const NodeOrigin& origin) const {
    std::vector<std::string> parameters;
    for (const std::string& argument : origin.arguments) {
      const auto found = signature_.arguments.find(argument);
      if (found != signature_.arguments.end() && found->second.kind == TensorKind::parameter)
        parameters.push_back(found->second.name);
    }
    return parameters;
  }

  /// Whether the initializer may stand for a tensor of this call that only has the same values:
  /// then another call reads it, too, and the call does not read a result of its name.
  bool is_shared(const Use& use) const {
    const std::vector<std::string>& read = use.origin->arguments;
    if (std::find(read.begin(), read.end(), use.stored) != read.end()) return false;
    return std::any_of(work_.uses.begin(), work_.uses.end(), [&](const Use& other) {
      return other.stored == use.stored && other.origin->call != use.origin->call;
    });
  }

  const Use& first_of(const std::string& stored) const {
    return *std::find_if(work_.uses.begin(), work_.uses.end(),
                         [&](const Use& use) { return use.stored == stored; });
  }

  /// A layer that took in the batch normalization after it: it has the normalization's call.
  static bool is_fused(const Use& use) {
    return use.origin->rewritten && use.origin->what.find("norm") != std::string::npos &&
           use.node->op_type().find("Norm") == std::string::npos &&
           is_weight_input(use.node->op_type(), use.input);
  }

  /// The exporter gives a convolution without a bias one of zeros, with the shape of its weight.
  static bool is_zero_bias(const Use& use) {
    const std::vector<float>& values = use.tensor->reals;
    return use.input == 2 && is_weight_input(use.node->op_type(), 2) && !values.empty() &&
           values.front() == 0.0f && is_one_number(*use.tensor);
  }

  /// The root of an attention's scale, which exporters compute from the shape of the queries.
  static bool is_scale_of_attention(const Use& use) {
    const std::string& op = use.node->op_type();
    return use.origin->what == "scaled_dot_product_attention" && use.tensor->count() == 1 &&
           (op == "Mul" || op == "CastLike");
  }

  /// All readings that one call of the network became.
  void decide_call(const std::vector<Use*>& uses) {
    std::vector<std::string> open = arguments_of(*uses.front()->origin);  // that nobody reads yet
    const auto take = [&](const std::string& name) {
      const auto found = std::find(open.begin(), open.end(), name);
      if (found == open.end()) return false;
      open.erase(found);
      return true;
    };
    std::vector<Use*> left;
    std::map<std::string, std::string> taken;
    for (Use* use : uses) {
      const std::vector<std::string> sources = sources_of(use->stored);
      if (is_fused(*use) && sources.size() == 1) {
        train(*use, sources[0]);
      } else if (is_scale_of_attention(*use)) {
        work_.hold(*use, "scale of an attention");
      } else if (work_.is_of_groups(*use)) {
        work_.hold(*use, "scale or bias of a group normalization");
      } else if (sources.size() > 1) {
        for (const std::string& source : sources) take(source);
        by_own_name(*use);
      } else if (!sources.empty() && take(sources[0])) {
        taken[use->stored] = sources[0];
        train(*use, sources[0]);
      } else if (open.empty() && is_zero_bias(*use)) {
        work_.hold(*use, "zeros in place of a bias");
      } else if (!sources.empty() && !is_shared(*use)) {
        by_own_name(*use);  // computed before the call
      } else {
        left.push_back(use);
      }
    }
    // The remaining tensors were merged with a tensor of another call that has the same values.
    std::vector<std::string> buffers;
    for (const std::string& argument : uses.front()->origin->arguments) {
      const auto found = signature_.arguments.find(argument);
      if (found != signature_.arguments.end() && found->second.kind != TensorKind::parameter)
        buffers.push_back(found->second.name);
    }
    for (Use* use : left) {
      const bool may_be =
          is_weight_input(use->node->op_type(), use->input) || !sources_of(use->stored).empty();
      if (const auto again = taken.find(use->stored); again != taken.end()) {
        train(*use, again->second);
      } else if (!open.empty() && may_be) {
        taken[use->stored] = open.front();
        train(*use, open.front());
        open.erase(open.begin());
      } else if (!buffers.empty() && signature_.is_parameter(use->stored)) {
        work_.hold(*use, "a buffer with the same values as " + printable(use->stored));
        use->reading.identity = "buffer " + buffers.front();
        buffers.erase(buffers.begin());
      } else {
        by_own_name(*use);
      }
    }
  }

  void note_read() {
    for (const Use& use : work_.uses) {
      if (!use.trains()) continue;
      read_.insert(use.reading.identity);
      const std::vector<std::string> sources = sources_of(use.stored);
      if (sources.size() > 1) read_.insert(sources.begin(), sources.end());
    }
  }

  /// Separates parameters that were transformed before the call and came out equal because they
  /// start as one number: the call names tensors that the file lacks, and no node reads those
  /// parameters.
  void part_merged(const std::vector<Use*>& uses) {
    const NodeOrigin& origin = *uses.front()->origin;
    std::vector<Use*> merged;
    for (Use* use : uses) {
      if (use->trains() && is_folded(*use) && is_one_number(*use->tensor) &&
          sources_of(use->stored).size() == 1) {
        merged.push_back(use);
      }
    }
    std::vector<std::string> open;  // parameters that these readings may be
    for (const auto& [name, kind] : signature_.kinds) {
      if (kind == TensorKind::parameter && !read_.contains(name) &&
          owner_of(name) == origin.module) {
        open.push_back(name);
      }
    }
    std::vector<std::string> lost;  // arguments that the file lacks
    for (const std::string& argument : origin.arguments) {
      const bool there =
          work_.initializers.contains(argument) || work_.maker(argument) != nullptr ||
          signature_.arguments.contains(argument) ||
          std::any_of(work_.file.graph().input().begin(), work_.file.graph().input().end(),
                      [&](const auto& input) { return input.name() == argument; });
      if (!there) lost.push_back(argument);
    }
    for (const Use* use : merged) {
      const std::vector<std::string>& read = origin.arguments;
      const std::string own = sources_of(use->stored)[0];
      const bool at_home = std::find(read.begin(), read.end(), use->stored) != read.end();
      if (at_home && std::find(open.begin(), open.end(), own) == open.end()) {
        open.push_back(own);
        lost.push_back(use->stored);
      }
    }
    if (open.empty() || open.size() != merged.size() || lost.size() != merged.size()) return;
    // All start equal, so the assignment only matters for names: use the parameters' names.
    for (Use* use : merged) {
      auto name = std::find_if(open.begin(), open.end(), [&](const std::string& each) {
        return each.ends_with("." + role_of(*use)) || each == role_of(*use);
      });
      if (name == open.end()) name = open.begin();
      work_.train(*use, *name);
      read_.insert(*name);
      open.erase(name);
    }
  }

  /// Decides by the initializer's own name and kind, if the call does not name the parameter.
  void by_own_name(Use& use) {
    const std::vector<std::string> sources = sources_of(use.stored);
    const auto kind = signature_.kinds.find(use.stored);
    const bool folded = is_folded(use);
    if (folded && is_one_of(kFills, without_number(use.stored))) {
      work_.hold(use, "filled with a number");  // it has no more than the shape of a parameter
    } else if (kind != signature_.kinds.end() && kind->second != TensorKind::parameter) {
      work_.hold(use, kind->second == TensorKind::buffer ? "buffer" : "constant");
      use.reading.name = printable(use.stored);
    } else if (sources.size() == 1 && !folded && !use.origin->call.empty() &&
               !is_within(use.origin->module, owner_of(sources[0]))) {
      // The initializer has the parameter's name, but this tensor is not the parameter.
      const std::string copy = std::exchange(use.copy, describe(*use.node));
      work_.hold(use, "a constant with the same values as " + printable(sources[0]));
      use.copy = copy;
    } else if (sources.size() == 1) {
      train(use, sources[0]);
    } else if (const std::string same = spread_source(use, sources); !same.empty()) {
      // A product with zeros, such as the first state of a loop, reduced to this tensor.
      work_.train(use, same);
      use.reading.spread = true;
      use.reading.stored = same;
    } else if (sources.size() > 1) {
      // Several nodes may read it, and they share it unless it is equal by chance.
      const bool apart = is_shared(use) && is_one_number(*use.tensor);
      const Use& named = apart ? use : first_of(use.stored);
      const std::string own =
          is_recurrent(named) ? of_layer(named) : module_name(named, named.stored);
      work_.train(use, own);
      use.reading.computed = true;
      if (!is_recurrent(use)) work_.doubt(own, "the exporter computed it from " + joined(sources));
    } else {
      work_.hold(use, folded ? "computed by the exporter" : "constant");
    }
  }

  /// Returns the name of a tensor that a recurrent operator reads. Modules of several layers have
  /// an operator for each: "rnn.bias", "rnn.bias_l1" and so on.
  std::string of_layer(const Use& use) {
    const std::string name = module_name(use, role_of(use));
    std::map<std::string, size_t>& layers = layers_[name];
    const size_t layer = layers.emplace(use.stored, layers.size()).first->second;
    return layer == 0 ? name : name + "_l" + std::to_string(layer);
  }

  /// Returns the parameter, of several, that a computed tensor repeats; "" if there is none.
  std::string spread_source(const Use& use, const std::vector<std::string>& sources) const {
    if (sources.size() < 2 || is_one_number(*use.tensor)) return "";
    for (const std::string& source : sources) {
      const auto stored = work_.initializers.find(source);
      if (stored != work_.initializers.end() && is_spread(*use.tensor, *stored->second))
        return source;
    }
    return "";
  }

  void train(Use& use, const std::string& name) {
    work_.train(use, name);
    if (!is_folded(use)) return;
    // A linear layer multiplies by the transpose of its weight.
    use.reading.turned =
        use.origin->what == "linear" && is_right_factor(use) && sources_of(use.stored).size() == 1;
    // Weights of two dimensions are at most transposed. Others may start with equal rows, too.
    use.reading.computed =
        (!is_weight_input(use.node->op_type(), use.input) || use.tensor->shape.size() > 2) &&
        may_repeat(use.stored);
    if (!undo_functions(use, name)) check_fold(use, name);
  }

  bool may_repeat(const std::string& stored) const {
    std::vector<std::string> steps = signature_.folded_from.at(stored);
    steps.push_back(stored);
    return std::any_of(steps.begin(), steps.end(), [](const std::string& step) {
      const std::string call = without_number(step);
      return is_one_of(kPicks, call) || is_one_of(kRepeats, call);
    });
  }

  /// Recovers a parameter from a function of it, by its values.
  bool undo_functions(Use& use, const std::string& source) {
    std::vector<std::string> steps = signature_.folded_from.at(use.stored), functions;
    steps.push_back(use.stored);
    size_t calls = 0;
    for (const std::string& step : steps) {
      if (is_numbered(step) || signature_.kinds.contains(step)) continue;
      const std::string call = without_number(step);
      if (const FunctionCall* function = function_of(call)) {
        ++calls;
        functions.emplace_back(function->op);
        if (!function->then.empty()) functions.emplace_back(function->then);
      } else if (!is_one_of(kMoves, call)) {
        return false;
      }
    }
    // If there are two functions, the file only says which is the last.
    const bool last = function_of(without_number(use.stored)) != nullptr;
    if (calls == 0 || calls > (last ? 2u : 1u)) return false;
    use.reading.undone = undo(*use.tensor, functions);
    if (use.reading.undone == nullptr) return false;
    use.reading.functions = functions;
    work_.doubt(printable(source), "the exporter computed " + printable(use.stored) +
                                       " from it; HalfScope recovered its values from that tensor");
    return true;
  }

  /// Returns whether a row was repeated for each sample, such as a class token.
  bool is_for_samples(const Use& use) const {
    const auto& inputs = work_.file.graph().input();
    if (inputs.empty() || use.tensor->shape.size() < 2) return false;
    const auto& shape = inputs[0].type().tensor_type().shape();
    return shape.dim_size() > 0 && shape.dim(0).dim_value() == use.tensor->shape[0];
  }

  /// Adds a doubt if a tensor that the exporter computed may not train like its parameter.
  void check_fold(const Use& use, const std::string& source) {
    std::vector<std::string> steps = signature_.folded_from.at(use.stored);
    steps.push_back(use.stored);
    if (has_centred_rows(*use.tensor)) {
      work_.doubt(printable(source), "the exporter normalized it to " + printable(use.stored) +
                                         ", and that tensor trains in its place");
      return;
    }
    bool picks = false;
    for (const std::string& step : steps) {
      if (is_numbered(step) || signature_.kinds.contains(step)) continue;
      const std::string call = without_number(step);
      picks = picks || is_one_of(kPicks, call) || (is_one_of(kParts, call) && !is_for_samples(use));
      if (is_one_of(kHarmless, call) || is_one_of(kPicks, call)) continue;
      if (is_recurrent(use) && call == "zeros") continue;  // for the size of the first state
      work_.doubt(printable(source), "the exporter computed " + printable(use.stored) +
                                         " from it (" + printable(call) +
                                         "), and that tensor trains in its place");
      return;
    }
    if (picks && is_one_number(*use.tensor)) {
      work_.doubt(printable(source), "the exporter picked " + printable(use.stored) +
                                         " from it, and the file does not show which elements it "
                                         "picked twice");
    }
  }

  /// Joins two stored forms of a parameter, of which one is the transpose or a function of the
  /// other.
  void join_forms() {
    std::map<std::string, std::vector<Use*>> forms;
    for (Use& use : work_.uses) {
      if (use.trains()) forms[use.reading.identity].push_back(&use);
    }
    for (const auto& [identity, uses] : forms) {
      const std::string name = identity;
      const auto own = std::find_if(uses.begin(), uses.end(),
                                    [&](const Use* use) { return use->stored == name; });
      const Use& home = own != uses.end() ? **own : *uses.front();
      for (Use* use : uses) {
        if (use->stored == home.stored || use->reading.spread ||
            (use->reading.functions == home.reading.functions &&
             same_values(*home.tensor, *use->tensor))) {
          continue;
        }
        if (is_function_of(*use, home)) {
          use->reading.undone = work_.initializers.at(home.stored);
          use->reading.computed = false;
          continue;
        }
        if (use->reading.functions.empty() && home.reading.functions.empty() &&
            is_transpose(*home.tensor, *use->tensor)) {
          use->reading.transposed = true;
          use->reading.stored = home.stored;
          continue;
        }
        use->reading.identity += " as " + use->stored;
        work_.doubt(printable(name), "the exporter stored it as " + printable(home.stored) +
                                         " and as " + printable(use->stored) +
                                         "; the two train separately");
      }
    }
  }

  /// Returns whether the tensor was computed from one that is also in the file.
  static bool is_function_of(const Use& use, const Use& home) {
    if (use.reading.functions.empty() || !home.reading.functions.empty() ||
        use.reading.undone->shape != home.tensor->shape) {
      return false;
    }
    const std::vector<float>&own = use.reading.undone->reals, &other = home.tensor->reals;
    return std::equal(own.begin(), own.end(), other.begin(), [](float a, float b) {
      return std::fabs(a - b) <= 1e-5f * std::max(1.0f, std::fabs(b));
    });
  }

  /// Adds doubts for detach(), which exporters leave out, so that gradients flow through.
  void doubt_detached() {
    for (const ::onnx::NodeProto& node : work_.file.graph().node()) {
      const NodeOrigin& origin = work_.origins.at(&node);
      const bool detached =
          std::any_of(origin.arguments.begin(), origin.arguments.end(),
                      [](const std::string& name) { return without_number(name) == "detach"; });
      if (!detached) continue;
      work_.doubt(origin.module.empty() ? describe(node) : origin.module,
                  "it reads a detached value, but ONNX files cannot express detach(), so gradients "
                  "flow through it");
    }
  }

  /// Keeps the parameters constant that the user's list leaves out: the metadata does not say which
  /// ones require a gradient.
  void hold_undeclared() {
    if (!work_.declared) return;
    for (Use& use : work_.uses) {
      const std::string name = use.reading.identity;
      if (use.trains() && signature_.is_parameter(name) && !work_.declared->contains(name))
        work_.hold(use, "not in the file's list of parameters");
    }
  }

  /// Adds doubts for parameters in a region that dynamo traced apart. The file does not say why.
  void doubt_regions() {
    for (const Use& use : work_.uses) {
      if (!use.trains() || !use.origin->in_region) continue;
      work_.doubt(use.reading.name,
                  "it is read under torch.no_grad() or torch.autocast(), and ONNX files do not say "
                  "which; if it does not train, use --frozen " +
                      use.reading.name);
    }
  }

  void doubt_lost_arguments() {
    for (const ::onnx::NodeProto& node : work_.file.graph().node()) {
      const NodeOrigin& origin = work_.origins.at(&node);
      for (const LostArgument& lost : kLostArguments) {
        if (origin.what != lost.call || origin.written.size() <= lost.position ||
            origin.written[lost.position] == lost.usual) {
          continue;
        }
        const std::string argument =
            std::string(lost.name) + "=" + printable(origin.written[lost.position]);
        work_.doubt(origin.module.empty() ? describe(node) : origin.module,
                    "the network calls " + origin.what + " with " + argument +
                        ", which ONNX cannot express, so the file computes without it");
      }
    }
  }

  /// Restores biases of zeros that rewriters dropped, because they would not train.
  void restore_biases() {
    for (const ::onnx::NodeProto& node : work_.file.graph().node()) {
      const NodeOrigin& origin = work_.origins.at(&node);
      const std::string& op = node.op_type();
      if ((op != "Conv" && op != "ConvTranspose" && op != "Gemm") ||
          (node.input_size() > 2 && !node.input(2).empty()) ||
          origin.what.find("norm") != std::string::npos) {
        continue;
      }
      std::vector<std::string> lost = arguments_of(origin);
      std::erase_if(lost, [&](const std::string& name) { return read_.contains(name); });
      if (lost.size() != 1) continue;
      work_.result.removed_biases[&node] = lost[0];
      restored_.insert(lost[0]);
    }
  }

  void report_lost() {
    std::set<std::string> normalizing;
    std::vector<std::string> folded;
    for (const ::onnx::NodeProto& node : work_.file.graph().node()) {
      const NodeOrigin& origin = work_.origins.at(&node);
      if (origin.what.find("batch_norm") == std::string::npos ||
          node.op_type() == "BatchNormalization") {
        continue;
      }
      std::vector<std::string> read = arguments_of(origin);
      // Without parameters, nothing is lost but the normalization itself.
      if (read.empty() && origin.rewritten && is_weight_input(node.op_type(), 1))
        folded.push_back(origin.module.empty() ? describe(node) : origin.module);
      for (std::string& name : read) normalizing.insert(std::move(name));
    }
    for (const auto& [name, kind] : signature_.kinds) {
      if (kind != TensorKind::parameter || read_.contains(name) || restored_.contains(name))
        continue;
      if (normalizing.contains(name)) {
        folded.push_back(name);
      } else if (const Use* other = read_in_place_of(name)) {
        work_.result.notes.push_back(printable(name) + " is tied to " + other->reading.name);
      } else {
        work_.doubt(
            printable(name),
            "no node reads this parameter; either the network does not use it, or the exporter "
            "replaced it by a constant");
      }
    }
    if (!folded.empty()) work_.batch_norms_folded(folded);
  }

  /// Returns the reading of a parameter of another module in place of a lost one: the two are tied.
  const Use* read_in_place_of(const std::string& name) const {
    const std::string owner = owner_of(name);
    const auto found = std::find_if(work_.uses.begin(), work_.uses.end(), [&](const Use& use) {
      return use.trains() && use.origin->module == owner &&
             signature_.is_parameter(use.reading.identity) &&
             !is_within(owner_of(use.reading.identity), owner);
    });
    return found == work_.uses.end() ? nullptr : &*found;
  }

  ReadingWork& work_;
  const Signature& signature_;
  std::set<std::string> read_, restored_;                        ///< parameters
  std::map<std::string, std::map<std::string, size_t>> layers_;  ///< of_layer: tensors by name
};

}  // namespace

void decide_marked(ReadingWork& work, const Signature& signature) { Marked(work, signature).run(); }

}  // namespace halfscope::onnx_files
