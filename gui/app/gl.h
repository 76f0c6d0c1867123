// SPDX-License-Identifier: MIT
// What the viewer asks of OpenGL 3.3 beyond Dear ImGui's own renderer: pictures, and a frame
// drawn without a window.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gui/widgets/textures.h"

namespace halfscope::gui {

/// Needs a current OpenGL context for all it does.
class GlTextures final : public Textures {
 public:
  ~GlTextures() override;
  ImTextureID update(std::string_view name, int width, int height,
                     std::span<const ImU32> rgba) override;

 private:
  struct Texture {
    unsigned id = 0;
    int width = 0, height = 0;
  };
  std::map<std::string, Texture, std::less<>> textures_;
};

/// What the current frame buffer holds, as PNG. Throws Error if the file cannot be written.
void save_frame(const std::string& file, int width, int height);

/// A context without display and window (EGL, surfaceless) and a picture to draw into. Throws
/// Error that says what is missing.
class Offscreen {
 public:
  Offscreen(int width, int height);
  ~Offscreen();
  Offscreen(const Offscreen&) = delete;
  Offscreen& operator=(const Offscreen&) = delete;

  /// Everything drawn from now on goes into the picture.
  void begin(ImU32 ground);
  /// Throws Error if the file cannot be written.
  void save_png(const std::string& file) const;

 private:
  struct Handles;
  std::unique_ptr<Handles> handles_;
  int width_, height_;
};

}  // namespace halfscope::gui
