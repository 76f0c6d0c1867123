// SPDX-License-Identifier: MIT
// TensorFlow graphs from files: a GraphDef (".pb") or the first meta graph of a SavedModel
// ("saved_model.pb"). Only what painting needs is kept.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "core/policy/grappler/tf_graph.h"

namespace halfscope::grappler {

/// Reads a file, or "saved_model.pb" in a folder. Throws Error if it cannot be read or is neither.
TfGraph read_tf_graph(const std::filesystem::path& file);

/// Parses a file in memory; errors call it `name`.
TfGraph parse_tf_graph(std::span<const uint8_t> bytes, const std::string& name);

}  // namespace halfscope::grappler
