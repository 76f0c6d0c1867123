// SPDX-License-Identifier: MIT
#include "core/key_values.h"

#include <algorithm>

#include "core/error.h"

namespace halfscope {

std::vector<KeyValue> key_values(std::string_view setting, const std::string& what,
                                 const std::string& hint) {
  std::vector<KeyValue> items;
  for (size_t next = setting.find(':'); next != std::string_view::npos;) {
    const size_t end = setting.find(',', next + 1);
    const std::string item(setting.substr(next + 1, end - next - 1));
    next = end;
    const size_t equals = item.find('=');
    if (equals == std::string::npos) {
      throw usage_error(what + ": '" + item + "' is not KEY=VALUE", hint);
    }
    const std::string key = item.substr(0, equals);
    const bool again = std::any_of(items.begin(), items.end(),
                                   [&](const KeyValue& each) { return each.key == key; });
    if (again) throw usage_error(what + ": " + key + " is given twice", "remove one of them");
    items.push_back({key, item.substr(equals + 1), item});
  }
  return items;
}

}  // namespace halfscope
