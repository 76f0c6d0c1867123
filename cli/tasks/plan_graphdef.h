// SPDX-License-Identifier: MIT
// `halfscope plan show|explain tf-amp --model graph.pb`: what TensorFlow's automatic mixed
// precision does to a TensorFlow graph (docs/reference/tf-amp.md).
#pragma once

#include <string>

namespace halfscope {

/// Returns whether a network's name is the file of a TensorFlow graph: it ends with ".pb", or is a
/// folder with a saved_model.pb.
bool is_tf_graph_file(const std::string& model);

/// Prints the painting of the graph under "tf-amp" or "tf-amp-bf16": operators, casts and counts.
/// `json`: as halfscope.tf-amp/1, with every node. TensorFlow's own environment variables edit the
/// lists. Throws Error (usage) for other plans, Error for a bad file.
int plan_graphdef(const std::string& plan, const std::string& file, bool json);

/// Prints why the nodes that `glob` selects, by name or operator, get their types, and what would
/// change that. Throws Error (usage) if it selects none.
int explain_graphdef(const std::string& plan, const std::string& glob, const std::string& file,
                     bool json);

}  // namespace halfscope
