// SPDX-License-Identifier: MIT
// Calls in files with dynamo's metadata, by what they do to a parameter.
#pragma once

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <string_view>

namespace halfscope::onnx_files {

/// "view" of "view_3", as calls are numbered.
inline std::string without_number(std::string name) {
  const size_t under = name.rfind('_');
  const bool numbered =
      under != std::string::npos && under > 0 && under + 1 < name.size() &&
      std::all_of(name.begin() + static_cast<std::ptrdiff_t>(under) + 1, name.end(),
                  [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; });
  if (numbered) name.resize(under);
  return name;
}

template <size_t N>
bool is_one_of(const std::array<std::string_view, N>& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

/// Calls that take elements of a parameter, perhaps several times.
inline constexpr std::array<std::string_view, 4> kPicks{"index", "embedding", "gather",
                                                        "index_select"};
/// Calls that take a part of a parameter or repeat it, which values that are all equal do not show.
inline constexpr std::array<std::string_view, 7> kParts{"expand", "repeat", "select", "slice",
                                                        "split",  "chunk",  "unbind"};
/// Calls whose results repeat elements, beside kPicks.
inline constexpr std::array<std::string_view, 7> kRepeats{
    "expand", "expand_as",    "repeat",          "repeat_interleave",
    "tile",   "broadcast_to", "broadcast_in_dim"};
/// Others after which a parameter trains as before: they move its elements or add a constant.
inline constexpr std::array<std::string_view, 26> kHarmless{
    "transpose", "permute", "view",  "reshape", "unsqueeze", "squeeze",    "expand",
    "clone",     "slice",   "t",     "flatten", "split",     "getitem",    "repeat",
    "to",        "arange",  "alias", "detach",  "_to_copy",  "contiguous", "select",
    "add",       "sub",     "cat",   "shape",   "expand_as"};

/// The operators among them that commute with functions of single elements.
inline constexpr std::array<std::string_view, 17> kMoves{
    "transpose", "permute", "view",       "reshape",   "unsqueeze", "squeeze",
    "expand",    "clone",   "t",          "flatten",   "alias",     "detach",
    "_to_copy",  "to",      "contiguous", "expand_as", "slice"};

/// Calls that read nothing but a shape.
inline constexpr std::array<std::string_view, 8> kFills{"zeros_like", "ones_like", "full_like",
                                                        "empty_like", "new_zeros", "new_ones",
                                                        "new_full",   "new_empty"};

/// Functions of single elements that have an inverse, by what dynamo calls them. The numbers of
/// others, such as the beta of softplus, are not in the file.
struct FunctionCall {
  std::string_view call, op, then;
};
inline constexpr std::array kFunctions{
    FunctionCall{"exp", "Exp", ""},         FunctionCall{"log", "Log", ""},
    FunctionCall{"sigmoid", "Sigmoid", ""}, FunctionCall{"tanh", "Tanh", ""},
    FunctionCall{"neg", "Neg", ""},         FunctionCall{"reciprocal", "Reciprocal", ""},
    FunctionCall{"sqrt", "Sqrt", ""},       FunctionCall{"rsqrt", "Sqrt", "Reciprocal"}};
inline const FunctionCall* function_of(const std::string& call) {
  const auto* found = std::find_if(kFunctions.begin(), kFunctions.end(),
                                   [&](const FunctionCall& each) { return each.call == call; });
  return found == kFunctions.end() ? nullptr : found;
}

}  // namespace halfscope::onnx_files
