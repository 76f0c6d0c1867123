// SPDX-License-Identifier: MIT
// What the values of a tensor tell about where it comes from.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/onnx/known_tensor.h"

namespace halfscope::onnx_files {

/// All elements are equal: tensors such as ones and zeros, which are equal by chance.
bool is_one_number(const KnownTensor& tensor);

/// Two values, of which one is 0 and the other is 1 or at most -10: it hides or selects positions.
bool is_mask(const KnownTensor& tensor);

/// Along some axis of at least four elements all lines are arithmetic or geometric sequences or
/// samples of a sine, and not all are constant: positions, frequencies, their sines.
bool follows_formula(const KnownTensor& tensor);

/// `b` has two dimensions and is the transpose of `a`, bit for bit.
bool is_transpose(const KnownTensor& a, const KnownTensor& b);
bool same_values(const KnownTensor& a, const KnownTensor& b);

/// A tensor whose elements repeat: `source` has each group of them once, and result element i is
/// source element index[i].
struct Repeats {
  KnownTensor source;
  Shape kept{};                 ///< source expanded to the tensor's shape gives it, if not empty
  std::vector<int64_t> rows{};  ///< else: rows of source, in order
  size_t axis = 0;              ///< along which a row lies in the tensor
};
/// Dimensions along which all slices are alike become 1; vectors that repeat (a table of positions
/// that was gathered from) are kept once. Nothing for tensors that do not repeat. A tensor of one
/// number repeats along its first axis only, if that has `batch` elements.
std::optional<Repeats> find_repeats(const KnownTensor& tensor, int64_t batch);

/// The tensor of which these operators, one after the other, make this one; null if one of them is
/// not known, or if its inverse loses digits.
std::shared_ptr<const KnownTensor> undo(const KnownTensor& tensor,
                                        const std::vector<std::string>& operators);

/// The only row of a table that is zero; -1 if there is none.
int64_t find_zero_row(const KnownTensor& table);

/// Whether the tensor only repeats the other one along the dimensions in front of it.
bool is_spread(const KnownTensor& tensor, const KnownTensor& of);

}  // namespace halfscope::onnx_files
