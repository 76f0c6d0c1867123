// SPDX-License-Identifier: MIT
// "did you mean ...?": near words are found, far ones are not suggested.
#include "core/near_miss.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace halfscope {
namespace {

using Words = std::vector<std::string>;

/// Optimal string alignment by its recursive definition.
size_t slow_distance(std::string_view a, std::string_view b) {
  if (a.empty() || b.empty()) return a.size() + b.size();
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c + 0; };
  const std::string_view a1 = a.substr(1), b1 = b.substr(1);
  const size_t kept = slow_distance(a1, b1) + (lower(a[0]) == lower(b[0]) ? 0 : 1);
  size_t best = std::min({slow_distance(a1, b) + 1, slow_distance(a, b1) + 1, kept});
  if (a.size() > 1 && b.size() > 1 && lower(a[0]) == lower(b[1]) && lower(a[1]) == lower(b[0])) {
    best = std::min(best, slow_distance(a.substr(2), b.substr(2)) + 1);
  }
  return best;
}

TEST(NearMiss, DistanceIsTheRecursiveDefinition) {
  const std::array<std::string, 9> words{"",    "a",     "ab",    "ba",   "abc",
                                         "CAb", "steps", "stpes", "sptes"};
  for (const std::string& a : words) {
    for (const std::string& b : words) {
      EXPECT_EQ(edit_distance(a, b), slow_distance(a, b)) << a << " " << b;
    }
  }
  EXPECT_EQ(edit_distance("ca", "abc"), 3u) << "no place is edited twice";
}

TEST(NearMiss, FindsWhatWasMeant) {
  const Words plans{"float32", "float64", "mixed_float16", "mixed_bfloat16", "float16", "bfloat16"};
  const struct {
    const char *word, *meant;
  } table[] = {
      {"mixed_fp16", "mixed_float16"},
      {"Mixed_Float16", "mixed_float16"},
      {"mixed_flaot16", "mixed_float16"},
      {"mixedfloat16", "mixed_float16"},
      {"bfloat_16", "bfloat16"},
      {"flot32", "float32"},
      {"float8", "float32"},
      {"mixed_bf16", "mixed_bfloat16"},
      {"plan.json", ""},
      {"int8", ""},
      {"", ""},
      {"x", ""},
  };
  for (const auto& each : table) EXPECT_EQ(closest(each.word, plans), each.meant) << each.word;
  EXPECT_EQ(closest("--stpes", Words{"--seed", "--steps"}), "--steps");
  EXPECT_EQ(closest("ab", Words{"cd", "xb"}), "xb");
  EXPECT_EQ(closest("a", Words{"b"}), "") << "they share nothing";
  EXPECT_EQ(closest(std::string(100000, 'a'), Words{"aa"}), "");
}

TEST(NearMiss, Hints) {
  const Words words{"sgd", "adam"};
  EXPECT_EQ(did_you_mean("sdg", words), "did you mean sgd?");
  EXPECT_EQ(did_you_mean("lion", words), "");
  EXPECT_EQ(did_you_mean("lion", words, "use " + comma_list(words)), "use sgd, adam");
  EXPECT_EQ(comma_list(Words{}), "");
}

}  // namespace
}  // namespace halfscope
