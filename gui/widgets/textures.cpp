// SPDX-License-Identifier: MIT
#include "gui/widgets/textures.h"

#include <bit>

namespace halfscope::gui {

ImTextureID MemoryTextures::update(std::string_view name, int width, int height,
                                   std::span<const ImU32> rgba) {
  auto [place, is_new] = pictures_.try_emplace(std::string(name));
  Picture& picture = place->second;
  picture.width = width;
  picture.height = height;
  picture.rgba.assign(rgba.begin(), rgba.end());
  if (is_new)
    picture.id = (ImTextureID)(intptr_t)(pictures_.size() + 1);  // an integer or a pointer
  return picture.id;
}

const MemoryTextures::Picture* MemoryTextures::find(std::string_view name) const {
  const auto found = pictures_.find(name);
  return found == pictures_.end() ? nullptr : &found->second;
}

}  // namespace halfscope::gui
