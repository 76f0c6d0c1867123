// SPDX-License-Identifier: MIT
// OpenGL 3.3 beyond Dear ImGui's own renderer: textures, and frames drawn without a window.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gui/widgets/textures.h"

namespace halfscope::gui {

/// Textures in OpenGL. All members need a current context.
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

/// Saves the current frame buffer as PNG. Throws Error if the file cannot be written.
void save_frame(const std::string& file, int width, int height);

/// A context without display or window (surfaceless EGL) and a picture to draw into. The
/// constructor throws an Error that names what is missing.
class Offscreen {
 public:
  Offscreen(int width, int height);
  ~Offscreen();
  Offscreen(const Offscreen&) = delete;
  Offscreen& operator=(const Offscreen&) = delete;

  /// Directs drawing into the picture from now on.
  void begin(ImU32 ground);
  /// Throws Error if the file cannot be written.
  void save_png(const std::string& file) const;

 private:
  struct Handles;
  std::unique_ptr<Handles> handles_;
  int width_, height_;
};

}  // namespace halfscope::gui
