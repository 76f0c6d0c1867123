// SPDX-License-Identifier: MIT
// Clues in the values of a tensor about its origin.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/onnx/known_tensor.h"

namespace halfscope::onnx_files {

/// Returns whether all elements are equal, as in tensors of ones or zeros, which may match by
/// chance.
bool is_one_number(const KnownTensor& tensor);

/// Returns whether a tensor has two values, 0 and either 1 or at most -10: a mask that hides or
/// selects positions.
bool is_mask(const KnownTensor& tensor);

/// Returns whether, along some axis of at least four elements, all lines are arithmetic or
/// geometric sequences or samples of a sine, and not all are constant: positions, frequencies,
/// their sines.
bool follows_formula(const KnownTensor& tensor);

/// Returns whether `b` has two dimensions and is the transpose of `a`, bit for bit.
bool is_transpose(const KnownTensor& a, const KnownTensor& b);
bool same_values(const KnownTensor& a, const KnownTensor& b);

/// A tensor whose elements repeat: `source` has each group of them once, and result element i is
/// source element index[i].
struct Repeats {
  KnownTensor source;
  Shape kept{};                 ///< if not empty: source expanded to this shape gives the tensor
  std::vector<int64_t> rows{};  ///< else: rows of source, in order
  size_t axis = 0;              ///< axis of the tensor along which a row runs
};
/// Finds repeats: dimensions along which all slices are equal become 1; vectors that repeat (a
/// table of positions that was gathered from) are kept once. Returns nothing for tensors that do
/// not repeat. A tensor of one number repeats along its first axis only, if that has `batch`
/// elements.
std::optional<Repeats> find_repeats(const KnownTensor& tensor, int64_t batch);

/// Returns the tensor from which these operators, one after the other, compute this one; null if
/// one of them is unknown or its inverse loses digits.
std::shared_ptr<const KnownTensor> undo(const KnownTensor& tensor,
                                        const std::vector<std::string>& operators);

/// Returns the only row of a table that is zero; -1 if there is none or more than one.
int64_t find_zero_row(const KnownTensor& table);

/// Returns whether each slice along the first axis has a mean of zero, up to rounding, as in
/// weights that were normalized. Slices of fewer than four elements say nothing.
bool has_centred_rows(const KnownTensor& tensor);

/// Returns whether the tensor only repeats the other one along its leading dimensions.
bool is_spread(const KnownTensor& tensor, const KnownTensor& of);

}  // namespace halfscope::onnx_files
