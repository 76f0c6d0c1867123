// SPDX-License-Identifier: MIT
// The plan as panels paint it: colours and tags of formats, and why each layer has its own.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "gui/panels/panel.h"

namespace halfscope::gui {

/// Returns the colour of a format, by its kind: fp32 and more, tf32, bf16, fp16, 8 bits, fewer.
ImU32 format_color(const Theme& theme, const FloatFormat& format) noexcept;

/// Returns at most four characters: "fp16", "e4m3", "16*" for a format with a long name; with
/// `brief` "16", "b16", "8".
std::string format_tag(const FloatFormat& format, bool brief = false);

/// Returns the decision about a layer of the selected lane; null for layers without one, such as
/// "input".
const NodeDecision* decision_of(const Frame& frame, const LayerModel& layer);

/// Returns "Reads fp16, writes fp32. Weights are stored in fp32.\nWhy: ...\nTo change it: ...".
std::string decision_text(const NodeDecision& decision);

/// Returns the other selected lane's decision about the layer if its formats differ; else null. The
/// other lane is the one that ViewState::other_lane names.
const NodeDecision* differing_decision(const Frame& frame, const LayerModel& layer);

/// Returns "In lane half it reads fp16 and writes fp16.", for a layer that differs.
std::string difference_text(const Frame& frame, const NodeDecision& other);

/// Draws the tag of formats in a box that ends at `right`, and returns where it begins. Without
/// room for text (`brief`) it is only coloured.
float draw_format_chip(const Frame& frame, const FloatFormat& read, const FloatFormat& write,
                       float right, float middle, bool brief);
float format_chip_width(const Frame& frame, bool brief) noexcept;

/// Draws a colour bar beside a row of a plot: the left half for `read`, the right one for `write`.
void draw_format_bar(const Frame& frame, const FloatFormat& read, const FloatFormat& write,
                     ImVec2 min, ImVec2 max);

/// Draws how many of these layers have which formats, as a key to the chips.
void draw_format_key(const Frame& frame, std::span<const int> layers);

}  // namespace halfscope::gui
