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

/// Every node, variable and input gets another name, but for the loss and what it is computed from.
Case renamed(const Case& which, Names names);

/// Nodes in another order that can be executed; inputs, variables and their arrays in another one.
Case permuted(const Case& which, uint64_t seed);

enum class End : uint8_t { front, back };
/// Layers that change nothing (+ 0, * 1 and, where it is small, a product with the identity) behind
/// every input of real numbers, or between each output and who reads it.
Case deepened(const Case& which, End end);
/// The layers that deepened() has added to a network.
std::vector<std::string> added_layers(const Model& model);

/// Twice as many samples at once, each twice. Throws std::invalid_argument where the network
/// fixes their number in a way that this does not see.
Case widened(const Case& which);

/// Other random numbers.
Case reseeded(const Case& which, uint64_t seed);

/// The data times a power of two, but for labels and targets.
Case rescaled(const Case& which, int exponent);

/// bf16 in place of fp16 and the other way round; "" if there is no such plan.
std::string in_other_format(const Case& which, const std::string& plan);

}  // namespace halfscope::zoo
