// SPDX-License-Identifier: MIT
// Rows of layers for a limited height: layers fold into the groups that their paths name, and a
// long list of layers or groups folds into stretches of neighbours.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace halfscope {

struct LayerRow {
  std::string name{};         ///< path of the layer or the group; "conv1 to conv9" for a stretch
  std::vector<int> layers{};  ///< indices into the paths, ascending
  bool folded = false;        ///< stands for a group or stretch that can be opened
  std::vector<std::string> groups{};  ///< opened groups and stretches around it, outermost first
};

/// Folds layers into at most `most` rows where it can. Path segments end at '/' and '.'. Opens
/// groups level by level as long as all rows fit. Groups named in `opened` are open, and those in
/// `closed` are not, whatever fits; their rows may exceed `most`.
std::vector<LayerRow> fold_layers(std::span<const std::string> paths, size_t most,
                                  std::span<const std::string> opened,
                                  std::span<const std::string> closed);

}  // namespace halfscope
