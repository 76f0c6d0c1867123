#include "gui/lab/float_lab.h"
namespace halfscope::gui { void draw_float_lab(FloatLab&, const Theme&, const Fonts&, float){} }
