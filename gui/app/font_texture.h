// SPDX-License-Identifier: MIT
#pragma once

#include <backends/imgui_impl_opengl3.h>

namespace halfscope::gui {

/// The font atlas was built anew. Up to Dear ImGui 1.91 its texture has to be made again; later
/// renderers see that by themselves.
inline void renew_font_texture() {
#if IMGUI_VERSION_NUM < 19200
  ImGui_ImplOpenGL3_DestroyFontsTexture();
  ImGui_ImplOpenGL3_CreateFontsTexture();
#endif
}

}  // namespace halfscope::gui
