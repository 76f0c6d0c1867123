// SPDX-License-Identifier: MIT
// Values that panels compute and keep from frame to frame: one of each type. The drawer of the
// panels owns them, so that two views of a run never share one.
#pragma once

#include <memory>
#include <typeindex>
#include <unordered_map>

namespace halfscope::gui {

class PanelCaches {
 public:
  /// Returns the value of that type, created at first use.
  template <typename T>
  T& get() {
    std::shared_ptr<void>& value = values_[std::type_index(typeid(T))];
    if (!value) value = std::make_shared<T>();
    return *static_cast<T*>(value.get());
  }

 private:
  std::unordered_map<std::type_index, std::shared_ptr<void>> values_;
};

/// Heights that the histogram and the distances to another lane share. Measured in one frame, used
/// in the next.
struct ValuesRoom {
  float bars = 0.0f;    ///< height of the histogram's bars
  float others = 0.0f;  ///< of everything else down to the end of the distances; 0 without them
};

}  // namespace halfscope::gui
