// SPDX-License-Identifier: MIT
// Composites that exporters write out in primitives (a layer normalization as ReduceMean, Sub, Pow,
// ...) become one node again, so that plans and reports treat them as one.
#pragma once

#include <functional>

#include "core/lower/lower.h"

namespace halfscope::onnx_files {

/// Replaces Layer-, RMS- and GroupNormalization, Gelu (both forms), Swish, HardSwish, LogSigmoid,
/// Attention and softmaxes that give 0 where everything is masked. A group is replaced only if no
/// other node reads its intermediate values. The new node has the path of the group's last one.
/// Ones and zeros that only such a group reads are no longer variables, and scale and bias of
/// channels get the shape [channels]. Each composite keeps the primitives that it replaces
/// (Node::written), with their paths as aliases. `type_of` returns the format in which the file
/// computes a node. `own_squares`: PyTorch wrote the file. It writes the squares of its own
/// normalizations as Pow(x, 2), and of a variance as a product of differences of its own. So a
/// normalization with Mul(x, x) is one that the network computes itself, in which autocast rounds
/// every step: it stays as it is. `call_of` returns the call of PyTorch that a node was written
/// for, or "": nodes of several calls are the network's own code, of which every step rounds, too.
/// An RMS normalization may have several, because PyTorch takes it apart before it is exported.
Model recognise_composites(Model model, const std::function<FloatFormat(const Node&)>& type_of,
                           bool own_squares,
                           const std::function<std::string(const Node&)>& call_of);

/// Marks the steps of PyTorch operators that the file has as primitives: standard deviations
/// and variances. They stay separate nodes, which fused plans do not round. Also notes
/// the function of PyTorch (kTorchFunction) of nodes whose form shows it.
void mark_steps(Model& model, const std::function<FloatFormat(const Node&)>& type_of);

/// Returns whether PyTorch computes this function in one kernel, which exporters write as several
/// nodes.
bool is_one_kernel(const std::string& function);

/// Marks the intermediate results of such functions. `call_of` returns the call that a node was
/// written for; "" for nodes of other functions.
void mark_kernels(const std::function<std::string(const Node&)>& call_of, Graph& graph);

}  // namespace halfscope::onnx_files
