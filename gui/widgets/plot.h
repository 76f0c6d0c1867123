// SPDX-License-Identifier: MIT
// Plot: a rectangle with axes, drawing calls and mouse input. It reports zoom and pan; the caller
// decides what they do.
//
//   Plot plot(look, {.path = "steps/loss", .min = min, .max = max, .x = x, .y = y});
//   plot.line(reduce(x, n, point_at), color);
//   if (plot.wheel() != 0) ...
//
// Drawing calls go in paint order, between the constructor, which draws ground, grid and labels
// and takes the input, and the destructor, which draws the frame. One plot at a time.
#pragma once

#include <imgui.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gui/widgets/canvas.h"
#include "gui/widgets/plot_math.h"
#include "gui/widgets/theme.h"

namespace halfscope::gui {

/// Theme, fonts and scale of a plot.
struct PlotLook {
  const Theme& theme;
  const Fonts& fonts;
  float scale = 1.0f;
  PictureTarget* picture = nullptr;  ///< null: on the screen alone
  float px(float size) const noexcept { return std::round(size * scale); }
};

/// Columns of numbers with a common first column, as text for copying and exporting.
class PlotTable {
 public:
  explicit PlotTable(std::string x_name) : names_{std::move(x_name)} {}
  /// Returns the table. Numbers have the shortest form that reads back; NaN is left empty.
  template <class PointAt>
  void add(std::string name, size_t count, PointAt point_at) {
    names_.push_back(std::move(name));
    for (size_t i = 0; i < count; ++i) {
      const PlotPoint point = point_at(i);
      put(point.x, point.y);
    }
  }
  bool empty() const noexcept { return rows_.empty(); }
  std::string text(char separator) const;

 private:
  void put(double x, double y);
  std::vector<std::string> names_;
  std::map<double, std::vector<double>> rows_;
};

enum class PlotMark : uint8_t { triangle_down, diamond, cross, dot, flag };
/// Draws a mark of radius `r` around `at`. Shapes differ, so that none depends on colour alone.
void draw_mark(Canvas& canvas, PlotMark mark, ImVec2 at, float r, ImU32 color);

enum class PlotSide : uint8_t { left, right };
enum class PlotAction : uint8_t { none, copy, export_csv, export_svg, fit };

struct PlotSpec {
  std::string_view path{};
  ImVec2 min{}, max{};  ///< inside of the axes, in pixels of the screen
  Axis x{}, y{};        ///< their pixels are set by the plot
  std::optional<Axis> right{};
  bool x_labels = true, y_labels = true, x_grid = true, y_grid = true;
  bool menu = true, fits = true;  ///< right click; whether the menu offers to show everything
  std::string_view text{};        ///< for the tracker
};

class Plot {
 public:
  Plot(const PlotLook& look, const PlotSpec& spec);
  ~Plot();
  Plot(const Plot&) = delete;
  Plot& operator=(const Plot&) = delete;

  const Axis& x() const noexcept { return x_; }
  const Axis& y(PlotSide side = PlotSide::left) const noexcept {
    return side == PlotSide::left ? y_ : right_;
  }
  ImVec2 min() const noexcept { return min_; }
  ImVec2 max() const noexcept { return max_; }
  Canvas& canvas() noexcept { return canvas_; }

  // --- Drawing. Values without a place on the axes are left out.
  void band(double low, double high, ImU32 color);
  /// Draws the label of a band on its own background, above lines.
  void band_label(double low, double high, ImU32 ink, std::string_view label);
  void span(double first, double last, ImU32 color);  ///< between two values of x
  void line(const Trace& trace, ImU32 color, float width = 1.0f, PlotSide side = PlotSide::left);
  /// Draws stairs: every value is valid until the next point, the last one until `end`.
  void stairs(const Trace& trace, double end, ImU32 color, float width = 1.0f,
              PlotSide side = PlotSide::left);
  /// Draws marks in a row; `y` is in pixels from the top.
  void mark_at_top(PlotMark mark, double x, float y, ImU32 color, float size = 4.0f);
  void mark(PlotMark mark, double x, double y, ImU32 color, float size = 4.0f,
            PlotSide side = PlotSide::left);
  /// Draws a bar from `base` to `value` over [first, last) of x, with a thin gap between
  /// neighbours.
  void bar(double first, double last, double base, double value, ImU32 color);
  void outline(double first, double last, double base, double value, ImU32 color);
  void v_line(double x, ImU32 color, float width = 1.0f);
  void h_line(double y, ImU32 color, float width = 1.0f, PlotSide side = PlotSide::left);
  /// Draw lines that the mouse can move; return true while it does. `path` is tracked.
  bool drag_v_line(std::string_view path, double* x, ImU32 color, std::string_view label = {});
  bool drag_h_line(std::string_view path, double* y, ImU32 color, std::string_view label = {});
  /// Draws small text with its top left corner at a point on the screen.
  void text(ImVec2 place, ImU32 color, std::string_view text);
  /// Draws text on a background that separates it from lines, moved inside the plot.
  void tag(ImVec2 place, ImU32 ink, std::string_view text);
  /// Draws a message in the middle of an empty plot.
  void message(std::string_view text);
  /// Draws the texture of that name.
  void image(std::string_view name, ImTextureID texture, ImVec2 min, ImVec2 max);
  /// Names everything drawn until the next name in an SVG.
  void name(std::string_view name, PlotSide side = PlotSide::left);

  // --- Mouse input in this frame.
  bool hovered() const noexcept { return hovered_; }
  double pointer_x() const noexcept;
  double pointer_y(PlotSide side = PlotSide::left) const noexcept;
  float wheel() const noexcept { return wheel_; }                ///< notches, upwards positive
  float wheel_sideways() const noexcept { return wheel_side_; }  ///< touch pads
  bool clicked() const noexcept { return clicked_; }             ///< pressed and let go in place
  bool double_clicked() const noexcept { return double_clicked_; }
  ImVec2 pan() const noexcept { return pan_; }  ///< pixels dragged since last frame
  bool panning() const noexcept { return panning_; }
  /// Returns the range of a Shift+drag, as two ascending values of x, when the button is released.
  std::optional<std::pair<double, double>> brushed() const noexcept { return brushed_; }
  PlotAction action() const noexcept { return action_; }  ///< chosen from the menu

 private:
  enum class Drag : int { none, pan, brush, line, ignored };
  void take_input(const PlotSpec& spec);
  void draw_axes(const PlotSpec& spec);
  void draw_menu(const PlotSpec& spec);
  /// Returns the pixel of a band's edge `value`; `otherwise` for infinities.
  float edge(double value, float otherwise) const;
  void stroke(const std::vector<ImVec2>& points, ImU32 color, float width);
  void end_name();
  bool drag_line(std::string_view path, double* value, bool vertical, ImU32 color,
                 std::string_view label);

  PlotLook look_;
  Canvas canvas_;
  ImVec2 min_, max_;
  Axis x_, y_, right_;
  ImGuiID id_ = 0;
  bool in_group_ = false;
  bool hovered_ = false, clicked_ = false, double_clicked_ = false, panning_ = false;
  bool pressed_ = false;
  float wheel_ = 0.0f, wheel_side_ = 0.0f;
  ImVec2 pan_{};
  std::optional<std::pair<double, double>> brushed_{};
  PlotAction action_ = PlotAction::none;
};

/// A tooltip with a title and named values, tracked as text under `path`: "title\nname value".
class PlotTip {
 public:
  explicit PlotTip(std::string title) : title_(std::move(title)) {}
  /// Adds a row, with a swatch of `color` unless that is 0.
  void row(std::string name, std::string value, ImU32 color = 0);
  void note(std::string text);     ///< a separate line
  void heading(std::string text);  ///< above rows, which are indented from the first one on
  void show(const PlotLook& look, std::string_view path) const;

 private:
  struct Row {
    std::string name, value;
    ImU32 color = 0;
    bool heading = false;
  };
  std::string title_;
  std::vector<Row> rows_;
};

/// An entry of a legend. A click shows or hides the series, a double-click or Alt+click shows it
/// alone. `hidden` lists the paths of hidden series, `all` the paths of the whole legend.
struct LegendEntry {
  std::string path, label;
  ImU32 color = 0;
  std::optional<PlotMark> mark{};  ///< instead of a stroke
  const char* meaning = nullptr;   ///< tooltip
};
/// Draws the legend on the current line, right-aligned to `right` (x on the screen); omits entries
/// that do not fit.
void draw_legend(const PlotLook& look, const std::vector<LegendEntry>& entries, float right,
                 std::vector<std::string>& hidden);
bool is_hidden(const std::vector<std::string>& hidden, std::string_view path) noexcept;

/// Draws the menu for copying and exporting a plot's data; call between BeginPopup and EndPopup.
PlotAction draw_data_menu(std::string_view path);

/// Returns the text, or its beginning and end with "..." between, in at most `width` pixels.
std::string elided(ImFont& font, std::string_view text, float width);

}  // namespace halfscope::gui
