// SPDX-License-Identifier: MIT
// Mechanism and FixKind: what goes wrong, and what kind of change helps. Contracts, rules, the zoo,
// reports and exports share these enumerations; causes.inc has their names and texts.
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

/// Kinds of fixes. Cheapest first, which is the order in which they are tried.
enum class FixKind : uint8_t {
#define HALFSCOPE_FIX(name, sentence) name,
#include "core/plan/causes.inc"
};

const char* mechanism_name(Mechanism mechanism) noexcept;  // "forward_overflow"
/// Returns what goes wrong, as half a sentence.
const char* mechanism_text(Mechanism mechanism) noexcept;
std::optional<Mechanism> parse_mechanism(std::string_view name) noexcept;
std::span<const Mechanism> all_mechanisms() noexcept;

const char* fix_name(FixKind kind) noexcept;  // "store_fp32"
/// Returns what to do, as half a sentence.
const char* fix_text(FixKind kind) noexcept;
std::optional<FixKind> parse_fix(std::string_view name) noexcept;
std::span<const FixKind> all_fixes() noexcept;

}  // namespace halfscope
