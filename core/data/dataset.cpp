// SPDX-License-Identifier: MIT
// The list of data sets that --data SPEC accepts. To add one, write a loader and add a row here.
#include "core/data/dataset.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "core/data/shapes.h"
#include "core/error.h"
#include "core/near_miss.h"

namespace halfscope {
namespace {

struct FolderSet {
  const char* name;
  const char* what;
  const char* part;  ///< in the names of its files, and of no others there
  Dataset (*load)(const std::filesystem::path&);
};

constexpr FolderSet kFolderSets[] = {
    {"mnist", "a folder with the four MNIST files", "ubyte", load_mnist},
    {"cifar10", "a folder with CIFAR-10's binary files", "_batch", load_cifar10},
};

std::string known_specs() {
  std::string text = "data sets: 'digits' and 'shapes' (embedded)";
  for (const FolderSet& set : kFolderSets)
    text += std::string(", '") + set.name + ":DIR' (" + set.what + ")";
  return text + ", 'text:FILE' (its bytes as tokens), 'FILE.npz' (arrays by name)";
}

constexpr std::string_view kText = "text:", kSequence = ",sequence=";

struct TextSpec {
  std::string file;
  int64_t sequence = kUsualSequence;
};

/// Parses "text:FILE[,sequence=N]"; nothing for other data.
std::optional<TextSpec> text_spec(const std::string& spec) {
  if (!spec.starts_with(kText)) return std::nullopt;
  const size_t option = std::min(spec.rfind(kSequence), spec.size());
  TextSpec text{.file = spec.substr(kText.size(), option - kText.size())};
  constexpr int64_t kLongest = 1 << 20;
  if (option < spec.size()) {
    const std::string number = spec.substr(option + kSequence.size());
    const auto [end, error] =
        std::from_chars(number.data(), number.data() + number.size(), text.sequence);
    if (error != std::errc() || end != number.data() + number.size() || text.sequence < 1 ||
        text.sequence > kLongest) {
      throw usage_error("data set '" + spec + "': '" + number + "' is not a length of a sequence",
                        "write, for example, text:input.txt,sequence=128");
    }
  }
  if (text.file.empty()) {
    throw usage_error("data set '" + spec + "' needs a file",
                      "write, for example, text:input.txt,sequence=128");
  }
  return text;
}

}  // namespace

std::vector<std::string> dataset_files(const std::string& spec) {
  for (const FolderSet& set : kFolderSets) {
    if (spec.starts_with(set.name + std::string(":"))) return {};
  }
  if (const std::optional<TextSpec> text = text_spec(spec)) return {text->file};
  constexpr std::string_view kTest = ",test=";
  const size_t test = spec.rfind(kTest);
  const std::string train = spec.substr(0, test);
  if (!train.ends_with(".npz") && !train.ends_with(".safetensors")) return {};
  std::vector<std::string> files{train};
  if (test != std::string::npos) files.push_back(spec.substr(test + kTest.size()));
  return files;
}

std::vector<std::string> dataset_inputs(const std::string& spec) {
  for (const FolderSet& set : kFolderSets) {
    const std::string start = set.name + std::string(":");
    if (!spec.starts_with(start)) continue;
    std::vector<std::string> files;
    std::error_code error;
    for (std::filesystem::directory_iterator at(spec.substr(start.size()), error), end;
         !error && at != end; at.increment(error)) {
      if (at->path().filename().string().find(set.part) == std::string::npos) continue;
      files.push_back(at->path().string());
    }
    return files;
  }
  return dataset_files(spec);
}

Dataset load_dataset(const std::string& spec) {
  if (spec == "digits") return make_digits();
  if (spec == "shapes") return make_shapes();
  if (const std::optional<TextSpec> text = text_spec(spec)) {
    return load_text(text->file, text->sequence);
  }
  if (const std::vector<std::string> files = dataset_files(spec); !files.empty()) {
    Dataset data{.name = spec, .sample_shape = {}, .train = {}, .test = {}};
    data.train.arrays = read_sample_arrays(files[0]);
    if (files.size() > 1) {
      data.test.arrays = read_sample_arrays(files[1]);
      const auto same = [](const SampleArray& a, const SampleArray& b) {
        return a.name == b.name && a.sample_shape == b.sample_shape;
      };
      if (!std::equal(data.train.arrays.begin(), data.train.arrays.end(), data.test.arrays.begin(),
                      data.test.arrays.end(), same)) {
        throw usage_error(
            "'" + files[1] + "' does not contain the same arrays as '" + files[0] + "'",
            "use the same array names and the same sample shapes in both files");
      }
    }
    return data;
  }
  const size_t colon = std::min(spec.find(':'), spec.size());
  const std::string name = spec.substr(0, colon);
  std::vector<std::string> names{"digits", "shapes", "text"};
  for (const FolderSet& set : kFolderSets) {
    names.push_back(set.name);
    if (name != set.name) continue;
    if (colon + 1 >= spec.size())
      throw usage_error("data set '" + spec + "' needs a folder", known_specs());
    return set.load(spec.substr(colon + 1));
  }
  const std::string near = did_you_mean(name, names);
  std::error_code ignored;
  if (std::filesystem::is_regular_file(spec, ignored)) {
    throw usage_error(
        "'" + spec + "' is not a data file",
        "save arrays x and y with numpy.savez('data.npz', x=x, y=y), and use data.npz");
  }
  throw usage_error("unknown data set '" + spec + "'",
                    near + (near.empty() ? "" : " ") + known_specs());
}

}  // namespace halfscope
