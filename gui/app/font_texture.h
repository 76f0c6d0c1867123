// SPDX-License-Identifier: MIT
#pragma once

#include <backends/imgui_impl_opengl3.h>

namespace halfscope::gui {

/// Uploads a rebuilt font atlas. Needed up to Dear ImGui 1.91; later renderers notice it
/// themselves.
inline void renew_font_texture() {
#if IMGUI_VERSION_NUM < 19200
  ImGui_ImplOpenGL3_DestroyFontsTexture();
  ImGui_ImplOpenGL3_CreateFontsTexture();
#endif
}

}  // namespace halfscope::gui
