#include "gui/lab/float_lab.h"
#include "gui/panels/panel.h"
namespace halfscope::gui {
void draw_loss(const Frame&) {}
void draw_heatmap(const Frame&) {}
void draw_magnitudes(const Frame&) {}
void draw_histogram(const Frame&) {}
void draw_lanes(const Frame&) {}
void draw_float_lab(FloatLab&, const Theme&, const Fonts&, float) {}
}  // namespace halfscope::gui
