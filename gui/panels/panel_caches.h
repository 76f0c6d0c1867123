// SPDX-License-Identifier: MIT
// What panels have worked out and keep from frame to frame: one value of each type they ask for.
// Whoever draws the panels owns it, so that two views of a run never share one.
#pragma once

#include <memory>
#include <typeindex>
#include <unordered_map>

namespace halfscope::gui {

class PanelCaches {
 public:
  /// The value of that type; made when it is asked for first.
  template <typename T>
  T& get() {
    std::shared_ptr<void>& value = values_[std::type_index(typeid(T))];
    if (!value) value = std::make_shared<T>();
    return *static_cast<T*>(value.get());
  }

 private:
  std::unordered_map<std::type_index, std::shared_ptr<void>> values_;
};

}  // namespace halfscope::gui
