// SPDX-License-Identifier: MIT
// Files that are wrong in every way the tests of error messages need, in the folder of a Bench.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/data/npz.h"
#include "tests/cli/program.h"
#include "tests/support/text_file.h"

namespace halfscope::test {

using Words = std::vector<std::string>;

/// An IDX file of `sizes`; every byte is `value`.
inline std::string idx_text(const std::vector<uint32_t>& sizes, size_t bytes, char value = 1) {
  std::string text{'\0', '\0', '\b', static_cast<char>(sizes.size())};
  for (const uint32_t size : sizes) {
    for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(size >> shift);
  }
  return text + std::string(bytes, value);
}

/// A small data set in MNIST's form; `which` file has `text` instead, or is left out if "-".
inline void write_mnist(const std::filesystem::path& folder, const std::string& which = "",
                        const std::string& text = "") {
  std::filesystem::create_directories(folder);
  const std::map<std::string, std::string> files{
      {"train-images-idx3-ubyte", idx_text({20, 28, 28}, 20 * 784)},
      {"train-labels-idx1-ubyte", idx_text({20}, 20)},
      {"t10k-images-idx3-ubyte", idx_text({10, 28, 28}, 10 * 784)},
      {"t10k-labels-idx1-ubyte", idx_text({10}, 10)}};
  for (const auto& [name, good] : files) {
    const bool changed = name == which;
    if (changed && text == "-") continue;
    write_text(folder / name, changed ? text : good);
  }
}

/// Plans, runs, weights and data sets, each named after what is wrong with it. run.hscope and
/// w.npz are right.
inline void write_bad_inputs(const Bench& bench) {
  ASSERT_EQ(bench.run(small_training({"--save-weights", "w.npz"})).code, 0);
  const std::string run = text_of(bench / "run.hscope");
  write_text(bench / "cut.hscope", run.substr(0, run.size() / 2));
  write_text(bench / "tiny.hscope", "too small");
  write_text(bench / "text.hscope", std::string(4000, 'x'));
  write_text(bench / "empty.hscope", "");
  std::filesystem::create_directories(bench / "folder");

  const std::string head = R"({"schema": "halfscope.plan/1", "name": "p")";
  const std::map<std::string, std::string> plans{
      {"empty", ""},
      {"comma", "{\n  \"schema\": \"halfscope.plan/1\",\n  \"name\": \"p\",\n}\n"},
      {"open", head},
      {"array", "[]"},
      {"binary", std::string("\x89PNG\0\0\0", 7)},
      {"noname", R"({"schema": "halfscope.plan/1"})"},
      {"schema", R"({"schema": "halfscope.plan/9", "name": "p"})"},
      {"format", head + R"(, "default": {"format": "fp8"}})"},
      {"key", head + R"(, "ruels": []})"},
      {"rulekey", head + R"(, "rules": [{"path": "fc1", "formt": "fp32"}]})"},
      {"op", head + R"(, "rules": [{"op": "Gem", "format": "fp32"}]})"},
      {"path", head + R"(, "rules": [{"path": "fc9", "format": "fp32"}]})"},
      {"nothing", head + R"(, "rules": [{"format": "fp32"}]})"},
      {"mode", head + R"(, "default": {"mode": "fast"}})"},
      {"accumulate", head + R"(, "default": {"accumulate": "fp16"}})"},
      {"type", head + R"(, "rules": {}})"},
      {"number", head + R"(, "default": 1e999})"}};
  for (const auto& [name, text] : plans) write_text(bench / (name + ".json"), text);

  const Tensor good{{10, 784}, std::vector<float>(7840, 0.5f)};
  Tensor nan = good, infinite = good;
  nan.data[784 * 3 + 5] = std::nanf("");
  infinite.data[0] = -HUGE_VALF;
  write_npz(bench / "nan.npz", {{"fc1.weight", nan}});
  write_npz(bench / "inf.npz", {{"fc1.weight", infinite}});
  write_npz(bench / "shape.npz", {{"fc1.weight", {{784, 10}, good.data}}});
  write_npz(bench / "unknown.npz", {{"fc1.wieght", good}});
  const std::string npz = text_of(bench / "nan.npz");
  write_text(bench / "cut.npz", npz.substr(0, npz.size() / 2));

  // For the network of the one-step trainings in these tests: mlp:784-10.
  ASSERT_EQ(
      bench
          .run({"train", "--quiet", "--no-eval", "--no-record", "--model", "mlp:784-10", "--batch",
                "10", "--steps", "1", "--checkpoint", "c.npz", "--out", "c.hscope"})
          .code,
      0);
  const std::string checkpoint = text_of(bench / "c.npz");
  write_text(bench / "cutc.npz", checkpoint.substr(0, checkpoint.size() / 2));

  const std::string image = std::string(1, '\1') + std::string(3072, '\x7f');
  const auto write_cifar10 = [&](const std::string& name, const std::string& last) {
    std::filesystem::create_directories(bench / name);
    write_text(bench / name / "data_batch_1.bin", image + image + last);
    write_text(bench / name / "test_batch.bin", image);
  };
  write_cifar10("cifar10", image);
  write_cifar10("cifar10short", image.substr(1));
  write_cifar10("cifar10label", '\n' + image.substr(1));  // 10 in ASCII
  write_cifar10("cifar10test", image);
  std::filesystem::remove(bench / "cifar10test" / "test_batch.bin");

  write_mnist(bench / "mnist");
  const std::string images = idx_text({20, 28, 28}, 20 * 784);
  const char* const kImages = "train-images-idx3-ubyte";
  write_mnist(bench / "magic", kImages, idx_text({20}, 20));
  write_mnist(bench / "short", kImages, images.substr(0, 1000));
  write_mnist(bench / "long", kImages, images + "x");
  write_mnist(bench / "gone", kImages, "-");
  write_mnist(bench / "gzip", kImages, std::string("\x1f\x8b\x08\0\0\0\0\0\0\3garbage", 17));
  write_mnist(bench / "label", "train-labels-idx1-ubyte", idx_text({20}, 20, 11));
  write_mnist(bench / "counts", "train-labels-idx1-ubyte", idx_text({19}, 19));
  write_mnist(bench / "sizes", "t10k-images-idx3-ubyte", idx_text({10, 14, 14}, 10 * 196));
}

/// Returns every file below the folder with its content, except those that the Bench writes.
inline std::map<std::string, std::string> contents(const Bench& bench) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(bench / "")) {
    const std::string name = entry.path().string();
    if (name.ends_with("stdout.txt") || name.ends_with("stderr.txt")) continue;
    files[name] = entry.is_regular_file() ? text_of(entry.path()) : "folder";
  }
  return files;
}

}  // namespace halfscope::test
