// SPDX-License-Identifier: MIT
#include "core/numeric/sums/reduction.h"

#include "core/error.h"
#include "core/key_values.h"
#include "core/near_miss.h"

namespace halfscope {
namespace {

constexpr const char* kReductionOptions =
    "options: format=FORMAT, average=before|after, vote=all|one";

/// Returns whether the option's value is the first of two words; throws for any other than these.
bool is_first(const KeyValue& option, const char* first, const char* second) {
  if (option.value == first) return true;
  if (option.value == second) return false;
  throw usage_error("reduction: unknown option '" + option.text + "'",
                    "use " + option.key + "=" + first + " or " + option.key + "=" + second);
}

/// Adds neighbours first: MPICH's binomial tree.
std::vector<RankAddition> tree_additions(int32_t ranks) {
  std::vector<RankAddition> additions;
  for (int64_t distance = 1; distance < ranks; distance *= 2) {
    for (int64_t to = 0; to + distance < ranks; to += 2 * distance) {
      additions.push_back({static_cast<int32_t>(to), static_cast<int32_t>(to + distance)});
    }
  }
  return additions;
}

/// MPICH's recursive halving. With more ranks than the largest power of two, the first ones send
/// their data to a neighbour and wait. Partners of an exchange add the same two numbers, each for
/// the half of the elements that it keeps, so one order is valid for all elements.
std::vector<RankAddition> halving_additions(int32_t ranks) {
  int32_t power = 1;
  while (2 * power <= ranks) power *= 2;
  const int32_t rest = ranks - power;
  std::vector<RankAddition> additions;
  for (int32_t i = 0; i < rest; ++i) additions.push_back({2 * i + 1, 2 * i});
  const auto rank_at = [rest](int32_t place) {
    return place < rest ? 2 * place + 1 : place + rest;
  };
  for (int32_t distance = power / 2; distance > 0; distance /= 2) {
    for (int32_t place = 0; place < distance; ++place) {
      additions.push_back({rank_at(place), rank_at(place + distance)});
    }
  }
  return additions;
}

}  // namespace

std::span<const std::string> reduction_names() {
  static const std::vector<std::string> names{"ring", "tree", "halving", "all-to-all"};
  return names;
}

Reduction parse_reduction(std::string_view text) {
  const std::span<const std::string> names = reduction_names();
  const std::string name(text.substr(0, text.find(':')));
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) {
    throw usage_error("unknown reduction '" + name + "'",
                      did_you_mean(name, names, "use one of: " + comma_list(names)));
  }
  Reduction reduction;
  reduction.algorithm = static_cast<Reduction::Algorithm>(found - names.begin());
  for (const KeyValue& option : key_values(text, "reduction", kReductionOptions)) {
    if (option.key == "format") {
      reduction.format = parse_format(option.value);
      if (!reduction.format) {
        const std::vector<std::string> formats = format_names();
        throw usage_error("reduction: unknown format '" + option.value + "'",
                          did_you_mean(option.value, formats, "formats: " + comma_list(formats)));
      }
      if (reduction.format->flush_in && !reduction.format->flush_out) {
        throw usage_error("reduction: " + option.value + " only flushes operands",
                          "use :ftz or :ftz-out, which flush gradients when they are stored");
      }
    } else if (option.key == "average") {
      const bool before = is_first(option, "before", "after");
      reduction.average = before ? Reduction::Average::before : Reduction::Average::after;
    } else if (option.key == "vote") {
      const bool all = is_first(option, "all", "one");
      reduction.vote = all ? Reduction::Vote::all : Reduction::Vote::one;
    } else {
      throw usage_error("reduction: unknown option '" + option.text + "'", kReductionOptions);
    }
  }
  return reduction;
}

std::string reduction_text(const Reduction& reduction) {
  std::string text = reduction_names()[static_cast<size_t>(reduction.algorithm)];
  char separator = ':';
  const auto add = [&](const std::string& option) {
    text += separator + option;
    separator = ',';
  };
  if (reduction.format) add("format=" + format_name(*reduction.format));
  if (reduction.average == Reduction::Average::after) add("average=after");
  if (reduction.vote == Reduction::Vote::one) add("vote=one");
  return text;
}

int64_t reduction_chunks(Reduction::Algorithm algorithm, int64_t ranks) {
  return algorithm == Reduction::Algorithm::ring ? ranks : 1;
}

int64_t chunk_begin(int64_t n, int64_t chunks, int64_t chunk) {
  return std::min(n, (n + chunks - 1) / chunks * chunk);
}

std::vector<RankAddition> rank_additions(Reduction::Algorithm algorithm, int64_t ranks,
                                         int64_t chunk) {
  const int32_t count = static_cast<int32_t>(ranks);
  std::vector<RankAddition> additions;
  switch (algorithm) {
    case Reduction::Algorithm::ring:
      for (int32_t hop = 1; hop < count; ++hop) {
        const int32_t from = static_cast<int32_t>((chunk + hop) % ranks);
        additions.push_back({(from + 1) % count, from});
      }
      return additions;
    case Reduction::Algorithm::tree:
      return tree_additions(count);
    case Reduction::Algorithm::halving:
      return halving_additions(count);
    case Reduction::Algorithm::all_to_all:
      for (int32_t from = 1; from < count; ++from) additions.push_back({0, from});
      return additions;
  }
  return additions;
}

}  // namespace halfscope
