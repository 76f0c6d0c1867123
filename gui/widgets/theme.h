// SPDX-License-Identifier: MIT
// Colours and sizes. Blue means in range, orange lost, red broken; no state depends on colour
// alone. The hues stay distinct under the common kinds of colour blindness (based on Okabe and
// Ito's set), and text has a contrast of at least 4.5 to 1 (WCAG 2.1, 1.4.3).
#pragma once

#include <imgui.h>

#include <array>
#include <cstdint>

#include "analysis/finding.h"
#include "analysis/report/report.h"

namespace halfscope::gui {

struct Theme {
  bool dark = true;
  ImU32 ground, card, card_line, ink, soft, faint;  ///< backgrounds, lines, texts
  ImU32 plot, grid, axis;                           ///< inside of plots
  ImU32 accent, accent_soft, selection, cursor;
  ImU32 good, good_soft, warn, warn_soft, bad, bad_soft;
  ImU32 in_range, subnormal, lost, outline;  ///< bars of histograms
  ImU32 zone_subnormal, zone_lost;           ///< grounds of histograms and magnitudes
  std::array<ImU32, 10> lines;               ///< series of line plots, lanes
  /// fp32 and more, tf32, bf16, fp16, 8 bits, fewer: apart for all kinds of colour blindness, too.
  std::array<ImU32, 6> formats;

  ImU32 severity(Severity severity) const noexcept;
  ImU32 verdict(Verdict::State state) const noexcept;
  ImU32 verdict_soft(Verdict::State state) const noexcept;
};

const Theme& dark_theme() noexcept;
const Theme& light_theme() noexcept;

/// Sets colours and metrics of Dear ImGui's own widgets, with sizes times `scale`.
void apply_style(const Theme& theme, float scale);

/// The fonts of the user interface, at one display scale.
struct Fonts {
  ImFont* text = nullptr;
  ImFont* bold = nullptr;
  ImFont* mono = nullptr;
  ImFont* small = nullptr;
  ImFont* large = nullptr;
  bool unicode = false;  ///< false: Dear ImGui's built-in font, which has only Latin-1
};
/// Loads DejaVu Sans into the current context's atlas if it is installed.
Fonts load_fonts(float scale);

/// Returns the heatmap's colour of `level` (0 to 1): black, violet, orange, pale yellow, in even
/// steps of lightness (after matplotlib's "inferno", CC0). Zero is the plot's background.
ImU32 heat_color(double level) noexcept;

/// Draws a shape per severity, so that it does not depend on colour alone.
void draw_severity(ImDrawList& draw, ImVec2 center, float size, Severity severity, ImU32 color);

/// Mixes `share` of `b` into `a`; opaque.
ImU32 mix(ImU32 a, ImU32 b, double share) noexcept;
ImU32 with_alpha(ImU32 color, float alpha) noexcept;
ImVec4 vec(ImU32 color) noexcept;

}  // namespace halfscope::gui
