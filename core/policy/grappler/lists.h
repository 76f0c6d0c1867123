// SPDX-License-Identifier: MIT
// The settings and the four lists of operators of TensorFlow's automatic mixed precision
// (tensorflow/core/grappler/optimizers/auto_mixed_precision_lists.h of TensorFlow 2.21).
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/policy/grappler/tf_graph.h"

namespace halfscope::grappler {

/// The optimizers auto_mixed_precision, auto_mixed_precision_onednn_bfloat16 and
/// auto_mixed_precision_onednn_float16.
enum class AmpMode : uint8_t { cuda_float16, cpu_bfloat16, cpu_float16 };

/// TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_LEVEL.
enum class AmpLevel : uint8_t { usual, tensor_cores_only, unsafe_force_all, treat_infer_as_deny };

enum class AmpList : uint8_t { allow, infer, deny, clear };
const char* amp_list_name(AmpList list) noexcept;  // "allow"

/// Adds an operator to a list or removes it, as the environment variables do.
struct AmpListEdit {
  AmpList list = AmpList::deny;
  bool add = true;
  std::string op;
  bool old = false;  ///< of the variable with the name before 2.4

  friend bool operator==(const AmpListEdit&, const AmpListEdit&) = default;
  /// Returns the variable with its value: "TF_..._DENYLIST_ADD=Relu".
  std::string variable() const;
};

/// Returns the environment variables that make these edits after those that are `set` already:
/// "TF_..._INFERLIST_REMOVE=Relu,Softmax TF_..._DENYLIST_ADD=Softmax". Those that do not change are
/// left out.
std::string variables_after(std::vector<AmpListEdit> set, const std::vector<AmpListEdit>& edits);

/// Returns the edits that move `op` to one list, or to none, from wherever `lists` has it.
struct AmpLists;
std::vector<AmpListEdit> moved_to(const AmpLists& lists, const std::string& op,
                                  std::optional<AmpList> to);

struct AmpOptions {
  AmpMode mode = AmpMode::cuda_float16;
  AmpLevel level = AmpLevel::usual;
  bool ignore_performance = false;
  /// Compute capability times ten of all GPUs; 0: there is no GPU. Those below 70 are left out.
  int compute_capability = 80;
  /// As TensorFlow writes versions: 11050 is CUDA 11.5, 8302 is cuDNN 8.3.2.
  int cuda_version = 11050, cudnn_version = 8302;
  /// Infer operators that read something painted are painted, as since TensorFlow 2.21; before,
  /// only for bfloat16.
  bool followers = true;
  std::vector<AmpListEdit> edits{};  ///< additions to a list go before its removals
  /// Nodes that must not change: feeds, fetches, initializers ...
  std::set<std::string, std::less<>> preserve{};

  TfType target() const noexcept { return mode == AmpMode::cpu_bfloat16 ? kTfBfloat16 : kTfHalf; }
  bool on_gpu() const noexcept { return mode == AmpMode::cuda_float16; }
  /// Returns "float16" or "bfloat16".
  std::string target_name() const { return target() == kTfHalf ? "float16" : "bfloat16"; }
};

/// Applies TensorFlow's environment variables, also under their names before 2.4 (WHITELIST,
/// GRAYLIST, BLACKLIST). `value` returns the value of a variable, or nothing. Throws Error (usage)
/// for IGNORE_PERFORMANCE that is not a truth value.
void read_environment(AmpOptions& options,
                      const std::function<std::optional<std::string>(const std::string&)>& value);

struct AmpLists {
  std::set<std::string, std::less<>> allow, infer, deny, clear;
  bool infer_is_denied = false;  ///< TREAT_INFER_AS_DENY: `deny` has the infer list, too

  std::optional<AmpList> list_of(std::string_view op) const;
};

/// Returns the lists under these options. Throws Error (usage) if an operator is on two of them.
AmpLists amp_lists(const AmpOptions& options);

}  // namespace halfscope::grappler
