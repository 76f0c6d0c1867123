// SPDX-License-Identifier: MIT
// Names as in PyTorch's named_modules(): nodes and variables of an imported network are called by
// the module that they belong to, where the file says it.
#pragma once

#include <map>
#include <string>

#include "core/graph/model.h"

namespace halfscope::onnx_files {

/// Module of each node of the file, by the path that its nodes have so far.
using ModuleOfPath = std::map<std::string, std::string>;

/// Renames nodes and variables. The node that stands for a module without modules in it has the
/// module's path ("layer1.0.conv1"): the one that computes a product or normalizes, else the last.
/// Others stand below it by their operator ("layer1.0:add", "blocks.0.attn:attention"), a second
/// one with a number (":add_2"). Nodes whose module is not known keep their names. The name in the
/// file stays as Node::alias.
void name_by_module(Model& model, const ModuleOfPath& modules);

}  // namespace halfscope::onnx_files
