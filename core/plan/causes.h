// SPDX-License-Identifier: MIT
// Mechanism and FixKind: what goes wrong, and what kind of change helps, each as one enumeration
// for contracts, rules, the zoo, reports and exports. causes.inc has the words.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace halfscope {

enum class Mechanism : uint8_t {
#define HALFSCOPE_MECHANISM(name, sentence) name,
#include "core/plan/causes.inc"
};

/// Cheapest first, which is the order in which they are tried.
enum class FixKind : uint8_t {
#define HALFSCOPE_FIX(name, sentence) name,
#include "core/plan/causes.inc"
};

const char* mechanism_name(Mechanism mechanism) noexcept;  // "forward_overflow"
/// What goes wrong, in half a sentence.
const char* mechanism_text(Mechanism mechanism) noexcept;
std::optional<Mechanism> parse_mechanism(std::string_view name) noexcept;
std::span<const Mechanism> all_mechanisms() noexcept;

const char* fix_name(FixKind kind) noexcept;  // "store_fp32"
/// What to do, in half a sentence.
const char* fix_text(FixKind kind) noexcept;
std::optional<FixKind> parse_fix(std::string_view name) noexcept;
std::span<const FixKind> all_fixes() noexcept;

}  // namespace halfscope
