// SPDX-License-Identifier: MIT
// Lines of the layer list: layers, and heads of the groups that their paths name. Keys go through
// the same lines.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "gui/panels/panel.h"

namespace halfscope::gui {

struct LayerLine {
  std::string group{};        ///< path of the group that this line is the head of; "" of a layer
  std::vector<int> layers{};  ///< indices into LaneModel::layers: one, or all of the group
  int depth = 0;              ///< number of groups around it
  bool open = false;          ///< of a head: its layers follow
  size_t prefix = 0;          ///< letters of the path that the group around it already says
  // The worst of its layers, so that folding hides nothing.
  std::optional<Severity> severity{};
  int worst = -1;           ///< layer with the highest rate of the most severe ones
  double share = 0.0;       ///< highest rate in the whole run
  bool non_finite = false;  ///< a tensor has NaN or infinities

  bool is_head() const noexcept { return !group.empty(); }
  /// Returns whether this line stands for the layer: its own line, or a folded group around it.
  bool stands_for(int layer) const;
};

/// Returns the lines of the list from top to bottom. Groups are in execution order only. Kept until
/// something in them changes.
const std::vector<LayerLine>& layer_lines(const Frame& frame);

/// Returns the layer that is `by` lines below `layer`: a folded group is one stop, at its worst
/// layer. Stops at both ends; -1 without lines.
int layer_after(const std::vector<LayerLine>& lines, int layer, int by);

/// Folds the innermost open group around the layer, or opens the folded one that it is in.
void fold_around_layer(const Frame& frame, int layer);
void open_around_layer(const Frame& frame, int layer);

}  // namespace halfscope::gui
