// SPDX-License-Identifier: MIT
// Variants: a case of the zoo with other names, in another order, with more layers or samples, with
// other numbers. Its labels and its plans go along.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/models/zoo/zoo.h"

namespace halfscope::zoo {

enum class Names : uint8_t {
  random,
  /// Roots are called "harmless_relu1" and the like, decoys "overflow1_root".
  misleading,
};

/// Gives every node, variable and input another name, except the loss and its operands.
Case renamed(const Case& which, Names names);

/// Nodes in another order that can be executed; inputs, variables and their arrays in another one.
Case permuted(const Case& which, uint64_t seed);

enum class End : uint8_t { front, back };
/// Adds layers that change nothing (+ 0, * 1 and, if small, a product with the identity) after
/// every input of real numbers, or between each output and its readers.
Case deepened(const Case& which, End end);
/// The layers that deepened() has added to a network.
std::vector<std::string> added_layers(const Model& model);

/// Doubles the batch; every sample appears twice. Throws std::invalid_argument if the network fixes
/// the number of samples in a way that this does not see.
Case widened(const Case& which);

/// Other random numbers.
Case reseeded(const Case& which, uint64_t seed);

/// Multiplies the data by a power of two, except for labels and targets.
Case rescaled(const Case& which, int exponent);

/// Returns the plan with bf16 in place of fp16 or vice versa, or "" if there is none.
std::string in_other_format(const Case& which, const std::string& plan);

}  // namespace halfscope::zoo
