// SPDX-License-Identifier: MIT
// Names as in PyTorch's named_modules(): nodes and variables of an imported network are named by
// their module, if the file contains it.
#pragma once

#include <map>
#include <string>

#include "core/graph/model.h"

namespace halfscope::onnx_files {

/// Module of each node of the file, by the current path of its nodes.
using ModuleOfPath = std::map<std::string, std::string>;

/// Renames nodes and variables. The main node of a module without submodules gets the module's path
/// ("layer1.0.conv1"): the node that computes a product or normalizes, else the last. Other nodes
/// add their operator ("layer1.0:add", "blocks.0.attn:attention"), further ones a number
/// (":add_2"). Nodes of an unknown module keep their names. Node::alias keeps the name in the file.
void name_by_module(Model& model, const ModuleOfPath& modules);

}  // namespace halfscope::onnx_files
