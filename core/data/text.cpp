// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>

#include "core/data/dataset.h"
#include "core/data/file_bytes.h"
#include "core/error.h"

namespace halfscope {
namespace {

/// The number of each byte that occurs in the text, and -1 for all others.
std::array<int32_t, 256> tokens_of(const std::vector<uint8_t>& text) {
  std::array<int32_t, 256> tokens{};
  tokens.fill(-1);
  for (const uint8_t byte : text) tokens[byte] = 0;
  int32_t next = 0;
  for (int32_t& token : tokens) {
    if (token == 0) token = next++;
  }
  return tokens;
}

std::vector<uint8_t> read_text(const std::filesystem::path& file) {
  constexpr uint64_t kMost = uint64_t{1} << 30;
  const FileBytes bytes(file);
  if (bytes.size() > kMost) {
    throw Error("text '" + file.string() + "' is larger than 1 GiB", "use a part of it");
  }
  std::vector<uint8_t> text(bytes.size());
  bytes.read(0, text);
  return text;
}

SampleArray tokens_from(const std::vector<int32_t>& all, const char* name, size_t offset,
                        int64_t first, int64_t samples, int64_t sequence) {
  SampleArray array{.name = name, .sample_shape = {sequence}, .samples = samples};
  const auto begin = all.begin() + first * sequence + static_cast<int64_t>(offset);
  array.integers.assign(begin, begin + samples * sequence);
  return array;
}

}  // namespace

Dataset load_text(const std::filesystem::path& file, int64_t sequence) {
  const std::vector<uint8_t> text = read_text(file);
  // The last token of a sample needs a next one.
  const int64_t samples = (static_cast<int64_t>(text.size()) - 1) / sequence;
  if (samples < 2) {
    throw Error("text '" + file.string() + "' has " + std::to_string(text.size()) +
                    " bytes, which are too few for two sequences of " + std::to_string(sequence),
                "use a longer text, or a shorter sequence: text:" + file.string() + ",sequence=16");
  }
  const std::array<int32_t, 256> numbers = tokens_of(text);
  std::vector<int32_t> tokens(text.size());
  std::transform(text.begin(), text.end(), tokens.begin(),
                 [&](uint8_t byte) { return numbers[byte]; });
  Dataset data{
      .name = "text " + file.filename().string(), .sample_shape = {}, .train = {}, .test = {}};
  data.classes = 1 + *std::max_element(numbers.begin(), numbers.end());
  const int64_t tests = std::max<int64_t>(1, samples / 10);
  const auto part = [&](int64_t first, int64_t count) {
    return std::vector<SampleArray>{tokens_from(tokens, "tokens", 0, first, count, sequence),
                                    tokens_from(tokens, "labels", 1, first, count, sequence)};
  };
  data.train.arrays = part(0, samples - tests);
  data.test.arrays = part(samples - tests, tests);
  return data;
}

}  // namespace halfscope
