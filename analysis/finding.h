// SPDX-License-Identifier: MIT
// Finding: what a rule says about a run, with its evidence and what to do. Rules read values and
// structure from a RunView, never names.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "analysis/run_view.h"

namespace halfscope {

enum class Severity : uint8_t { info, warning, error };
const char* severity_name(Severity severity) noexcept;

/// An edit of the plan or of the training set-up.
struct Action {
  enum class Kind : uint8_t { none, keep_fp32, loss_scale, format };
  Kind kind = Kind::none;
  std::vector<std::string> layers{};  ///< keep_fp32, format: node paths, in execution order
  double loss_scale = 0.0;            ///< the advised static value; 0 if none is advised
  std::string text{};                 ///< the same in words
};
const char* action_name(Action::Kind kind) noexcept;  // "keep_fp32"

using Evidence = std::map<std::string, std::variant<double, std::string>>;

struct Finding {
  std::string rule{};  ///< "forward_overflow"
  int lane = 0;
  Severity severity = Severity::info;
  std::string site{};       ///< "conv2.activation"; "" if the finding is about the whole lane
  std::string layer{};      ///< "conv2"
  int64_t step = -1;        ///< first step it shows at; -1 if it has none
  std::string mechanism{};  ///< one line: what happens, in numbers' terms
  Evidence evidence{};
  std::string text{};  ///< the sentences a user reads
  Action action{};

  /// Stable across runs of the same set-up: "forward_overflow:mixed_float16:conv2.activation".
  std::string id(const RunView& run) const;
};

}  // namespace halfscope
