// SPDX-License-Identifier: MIT
#include "core/plan/causes.h"

#include <array>

namespace halfscope {
namespace {

struct Words {
  const char* name;
  const char* text;
};

constexpr auto kMechanisms = std::to_array<Words>({
#define HALFSCOPE_MECHANISM(name, sentence) {#name, sentence},
#include "core/plan/causes.inc"
});
constexpr auto kFixes = std::to_array<Words>({
#define HALFSCOPE_FIX(name, sentence) {#name, sentence},
#include "core/plan/causes.inc"
});

template <class Word, size_t kCount>
constexpr std::array<Word, kCount> all_of() {
  std::array<Word, kCount> all{};
  for (size_t i = 0; i < kCount; ++i) all[i] = static_cast<Word>(i);
  return all;
}
constexpr auto kAllMechanisms = all_of<Mechanism, kMechanisms.size()>();
constexpr auto kAllFixes = all_of<FixKind, kFixes.size()>();

template <class Word, class List>
std::optional<Word> find_word(const List& list, std::string_view name) noexcept {
  for (size_t i = 0; i < list.size(); ++i) {
    if (name == list[i].name) return static_cast<Word>(i);
  }
  return std::nullopt;
}

}  // namespace

const char* mechanism_name(Mechanism mechanism) noexcept {
  return kMechanisms[static_cast<size_t>(mechanism)].name;
}
const char* mechanism_text(Mechanism mechanism) noexcept {
  return kMechanisms[static_cast<size_t>(mechanism)].text;
}
std::optional<Mechanism> parse_mechanism(std::string_view name) noexcept {
  return find_word<Mechanism>(kMechanisms, name);
}
std::span<const Mechanism> all_mechanisms() noexcept { return kAllMechanisms; }

const char* fix_name(FixKind kind) noexcept { return kFixes[static_cast<size_t>(kind)].name; }
const char* fix_text(FixKind kind) noexcept { return kFixes[static_cast<size_t>(kind)].text; }
std::optional<FixKind> parse_fix(std::string_view name) noexcept {
  return find_word<FixKind>(kFixes, name);
}
std::span<const FixKind> all_fixes() noexcept { return kAllFixes; }

}  // namespace halfscope
