// SPDX-License-Identifier: MIT
// Finds the nodes of an edit in a user's model: a module, or a line of a module's forward. Their
// names show it (docs/onnx.md, "Names"). For the sources of this folder.
#pragma once

#include <string>
#include <vector>

#include "core/observe/recording.h"
#include "core/plan/plan_edit.h"

namespace halfscope::fixes {

struct ModulePlace {
  std::string path;            ///< of the node: "layer1.0:add_2"
  std::string op;              ///< its operator, "Add"; "" if the lane does not know the node
  std::string module;          ///< "layer1.0"; "" for the model itself
  std::string call;            ///< the function that a line of forward calls: "add"; else ""
  int which = 1;               ///< the second such call ...
  std::string part;            ///< one of several nodes of an operator of the file: "softmax"
  bool may_be_module = false;  ///< at the top of a model calls and modules look the same

  bool is_module() const { return call.empty(); }
};

ModulePlace place_of(const std::string& path, const LaneInfo& lane);

/// Returns the nodes that changes of these kinds name, without duplicates.
std::vector<ModulePlace> places_of(const PlanEdit& edit, const LaneInfo& lane,
                                   std::vector<FixKind> kinds);

/// Returns their modules, without duplicates.
std::vector<std::string> modules_of(const std::vector<ModulePlace>& places);

/// Returns a string literal of Python.
std::string python_string(const std::string& text);
/// Returns "NAME = [  # comment", one line for each item, and "]".
std::string python_list(const std::string& name, const std::vector<std::string>& items,
                        const std::string& comment);
/// Returns the text as Python comments of at most 100 columns.
std::string comment(const std::string& text);

/// Returns an expression ("x.float() ...") that computes the operator in fp32.
std::string expression_in_fp32(const ModulePlace& place);
/// Returns "the 2nd add in the forward of layer1.0".
std::string where_text(const ModulePlace& place);

}  // namespace halfscope::fixes
