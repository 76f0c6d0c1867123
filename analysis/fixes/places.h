// SPDX-License-Identifier: MIT
// Where the nodes of an edit are in a user's model: in a module of its own, or in a line of a
// module's forward. Names say it (docs/onnx.md, "Names"). For the sources of this folder.
#pragma once

#include <string>
#include <vector>

#include "core/observe/recording.h"
#include "core/plan/plan_edit.h"

namespace halfscope::fixes {

struct ModulePlace {
  std::string path;    ///< the node's, "layer1.0:add_2"
  std::string op;      ///< its operator, "Add"; "" if the lane does not know the node
  std::string module;  ///< "layer1.0"; "" for the model itself
  std::string call;    ///< of a line in the module's forward: what it calls, "add"; else ""
  int which = 1;       ///< the second such call ...
  std::string part;    ///< of one operator of the file that is several nodes here: "softmax"
  bool may_be_module = false;  ///< at the top of a model calls and modules look the same

  bool is_module() const { return call.empty(); }
};

ModulePlace place_of(const std::string& path, const LaneInfo& lane);

/// The nodes that changes of these kinds name, each once.
std::vector<ModulePlace> places_of(const PlanEdit& edit, const LaneInfo& lane,
                                   std::vector<FixKind> kinds);

/// Their modules, each once.
std::vector<std::string> modules_of(const std::vector<ModulePlace>& places);

/// A string literal of Python.
std::string python_string(const std::string& text);
/// "NAME = [  # comment", a line each, "]".
std::string python_list(const std::string& name, const std::vector<std::string>& items,
                        const std::string& comment);
/// Lines of comment that are at most 100 columns wide.
std::string comment(const std::string& text);

/// "x.float() ..." that computes the operator in fp32.
std::string expression_in_fp32(const ModulePlace& place);
/// "the 2nd add in the forward of layer1.0".
std::string where_text(const ModulePlace& place);

}  // namespace halfscope::fixes
