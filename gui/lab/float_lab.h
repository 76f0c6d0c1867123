#pragma once
#include <string_view>
#include "gui/widgets/theme.h"
namespace halfscope::gui { struct FloatLab { bool open(std::string_view) { return true; } };
void draw_float_lab(FloatLab&, const Theme&, const Fonts&, float); }
