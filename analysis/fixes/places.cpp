// SPDX-License-Identifier: MIT
#include "analysis/fixes/places.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <string_view>

namespace halfscope::fixes {
namespace {

/// Returns whether layers are named as in PyTorch, where a slash begins a part of a node. Elsewhere
/// it separates scopes.
bool has_module_names(const LaneInfo& lane) {
  return std::any_of(lane.layers.begin(), lane.layers.end(), [](const LayerInfo& layer) {
    return layer.path.find_first_of(".:") != std::string::npos;
  });
}

/// Removes "_2" from the end of a name and returns the number; 1 if there is none.
int take_number(std::string& name) {
  const size_t last = name.rfind('_');
  if (last == std::string::npos || last == 0 || last + 1 == name.size()) return 1;
  const std::string digits = name.substr(last + 1);
  const bool number = digits.size() < 6 && std::all_of(digits.begin(), digits.end(),
                                                       [](char c) { return c >= '0' && c <= '9'; });
  if (!number) return 1;
  name.resize(last);
  return std::stoi(digits);
}

/// Returns "AveragePool" and "average_pool" in the same form.
std::string plain_word(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c != '_') out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

const LayerInfo* layer_at(const LaneInfo& lane, const std::string& path) {
  const auto found = std::find_if(lane.layers.begin(), lane.layers.end(),
                                  [&](const LayerInfo& layer) { return layer.path == path; });
  return found == lane.layers.end() ? nullptr : &*found;
}

bool has_modules_in_it(const LaneInfo& lane, const std::string& module) {
  return std::any_of(lane.layers.begin(), lane.layers.end(),
                     [&](const LayerInfo& layer) { return layer.path.starts_with(module + "."); });
}

std::string ordinal(int number) {
  const int last = number % 10, tens = number / 10 % 10;
  const char* ending = tens == 1   ? "th"
                       : last == 1 ? "st"
                       : last == 2 ? "nd"
                       : last == 3 ? "rd"
                                   : "th";
  return fmt::format("{}{}", number, ending);
}

}  // namespace

ModulePlace place_of(const std::string& path, const LaneInfo& lane) {
  ModulePlace place{.path = path, .op = "", .module = path, .call = "", .part = ""};
  const LayerInfo* layer = layer_at(lane, path);
  if (layer != nullptr) place.op = layer->op;
  if (!has_module_names(lane)) {
    std::replace(place.module.begin(), place.module.end(), '/', '.');
  } else if (const size_t slash = path.find('/'); slash != std::string::npos) {
    place.part = path.substr(slash + 1);
    place.module.resize(slash);
  }
  if (const size_t colon = place.module.find(':'); colon != std::string::npos) {
    std::string call = place.module.substr(colon + 1);
    place.module.resize(colon);
    const int which = take_number(call);
    // A module without modules in it computes nothing else: "fc1:bias", "shared:call_2".
    if (call != "call" && has_modules_in_it(lane, place.module)) {
      place.call = call;
      place.which = which;
    }
    return place;
  }
  // At the top, calls have no colon, but nodes with weights are modules.
  if (place.module.find('.') != std::string::npos || layer == nullptr || layer->parameters > 0)
    return place;
  std::string call = place.module;
  const int which = take_number(call);
  if (plain_word(call) != plain_word(place.op)) return place;
  place.may_be_module = true;
  place.call = call;
  place.which = which;
  place.module.clear();
  return place;
}

std::vector<ModulePlace> places_of(const PlanEdit& edit, const LaneInfo& lane,
                                   std::vector<FixKind> kinds) {
  std::vector<ModulePlace> places;
  for (const Change& change : edit.changes) {
    const bool wanted = std::find(kinds.begin(), kinds.end(), change.kind) != kinds.end();
    const bool is_there = std::any_of(places.begin(), places.end(), [&](const ModulePlace& place) {
      return place.path == change.path;
    });
    if (wanted && !is_there && !change.path.empty()) places.push_back(place_of(change.path, lane));
  }
  return places;
}

std::vector<std::string> modules_of(const std::vector<ModulePlace>& places) {
  std::vector<std::string> modules;
  for (const ModulePlace& place : places) {
    const bool is_there = std::find(modules.begin(), modules.end(), place.module) != modules.end();
    if (place.is_module() && !is_there) modules.push_back(place.module);
  }
  return modules;
}

std::string python_string(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  }
  return out + "\"";
}

std::string python_list(const std::string& name, const std::vector<std::string>& items,
                        const std::string& comment) {
  std::string text = name + " = [  # " + comment + "\n";
  for (const std::string& item : items) text += "    " + python_string(item) + ",\n";
  return text + "]\n";
}

std::string comment(const std::string& text) {
  constexpr size_t kWidth = 98;
  std::string out, line;
  const auto end_line = [&] {
    if (!line.empty()) out += "# " + line + "\n";
    line.clear();
  };
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find_first_of(" \n", begin), text.size());
    std::string word = text.substr(begin, end - begin);
    std::replace_if(
        word.begin(), word.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, '?');
    if (!line.empty() && line.size() + 1 + word.size() > kWidth) end_line();
    if (!word.empty()) line += (line.empty() ? "" : " ") + word;
    if (end < text.size() && text[end] == '\n') end_line();
    begin = end + 1;
  }
  end_line();
  return out;
}

std::string expression_in_fp32(const ModulePlace& place) {
  static const std::map<std::string, std::string, std::less<>> kExpressions{
      {"Add", "a.float() + b.float()"},
      {"Attention", "F.scaled_dot_product_attention(q.float(), k.float(), v.float())"},
      {"Conv", "F.conv2d(x.float(), weight.float())"},
      {"CumSum", "x.float().cumsum(dim)"},
      {"Div", "a.float() / b.float()"},
      {"Exp", "x.float().exp()"},
      {"Gelu", "F.gelu(x.float())"},
      {"Gemm", "F.linear(x.float(), weight.float())"},
      {"Log", "x.float().log()"},
      {"LogSoftmax", "x.float().log_softmax(dim)"},
      {"MatMul", "a.float() @ b.float()"},
      {"Mul", "a.float() * b.float()"},
      {"Pow", "x.float() ** y"},
      {"ReduceMean", "x.float().mean(dim)"},
      {"ReduceSum", "x.float().sum(dim)"},
      {"Softmax", "x.float().softmax(dim)"},
      {"Sqrt", "x.float().sqrt()"},
      {"Sub", "a.float() - b.float()"},
  };
  const auto found = kExpressions.find(place.op);
  if (found != kExpressions.end()) return found->second;
  const bool is_name =
      !place.call.empty() && std::all_of(place.call.begin(), place.call.end(), [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '_';
      });
  return fmt::format("{}(x.float())", is_name ? place.call : "f");
}

std::string where_text(const ModulePlace& place) {
  const std::string what = place.which > 1
                               ? fmt::format("the {} {}", ordinal(place.which), place.call)
                               : "the " + place.call;
  return what + " in the forward of " + (place.module.empty() ? "the model" : place.module);
}

}  // namespace halfscope::fixes
