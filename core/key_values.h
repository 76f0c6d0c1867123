// SPDX-License-Identifier: MIT
// Options of a setting, written as NAME:KEY=VALUE,KEY=VALUE; for example "adam:lr=0.01,beta1=0.8".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace halfscope {

struct KeyValue {
  std::string key, value;
  std::string text;  ///< "KEY=VALUE", for messages
};

/// Returns the options after the first colon of `setting`, or nothing if it has no colon. `what`
/// ("optimizer") begins the error messages. Throws Error (usage, with `hint`) for an item without
/// "=" and for a key given twice.
std::vector<KeyValue> key_values(std::string_view setting, const std::string& what,
                                 const std::string& hint);

}  // namespace halfscope
