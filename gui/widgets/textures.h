// SPDX-License-Identifier: MIT
// Textures for heatmaps. A window uploads them to the graphics card; without a window they stay in
// memory, where tests read them.
#pragma once

#include <imgui.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace halfscope::gui {

class Textures {
 public:
  virtual ~Textures() = default;
  /// Creates or replaces the texture of that name. `rgba` has width * height pixels (ImU32), row by
  /// row from the top. Sampled without smoothing.
  virtual ImTextureID update(std::string_view name, int width, int height,
                             std::span<const ImU32> rgba) = 0;
};

class MemoryTextures final : public Textures {
 public:
  struct Picture {
    int width = 0, height = 0;
    std::vector<ImU32> rgba;
    ImTextureID id{};
  };
  ImTextureID update(std::string_view name, int width, int height,
                     std::span<const ImU32> rgba) override;
  const Picture* find(std::string_view name) const;

 private:
  std::map<std::string, Picture, std::less<>> pictures_;
};

}  // namespace halfscope::gui
