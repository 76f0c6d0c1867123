// SPDX-License-Identifier: MIT
#include "cli/tasks/run_input.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "analysis/rules/text.h"
#include "core/error.h"
#include "core/numeric/formats/rng.h"
#include "core/ops/ops.h"

namespace halfscope {
namespace {

struct InputText {
  std::string name, file;  ///< no name: the only input, or those of the .npz
};

InputText split_text(const std::string& text) {
  const size_t equals = text.find('=');
  // A name has no slash. An existing file of this name wins.
  const bool named = equals != std::string::npos && equals > 0 && !std::filesystem::exists(text) &&
                     text.find('/') > equals;
  return named ? InputText{text.substr(0, equals), text.substr(equals + 1)} : InputText{"", text};
}

/// Returns the number of rows that this value indexes, or 2 if no node uses it as an index.
int64_t rows_picked(const Graph& graph, ValueId index) {
  int64_t rows = 0;
  for (const Node& node : graph.nodes()) {
    if (find_op(node.op).picks != Picks::rows || node.inputs[1] != index) continue;
    const Shape& from = graph.value(node.inputs[0]).shape;
    const int64_t axis = takes_labels(node) ? 1 : axis_attribute(node, from.size(), 0);
    const int64_t size = from.at(static_cast<size_t>(axis));
    rows = rows == 0 ? size : std::min(rows, size);
  }
  return rows == 0 ? 2 : rows;
}

/// Throws Error if `samples` of `each` numbers do not fit in this machine's memory.
void check_memory(int64_t samples, int64_t each) {
  const double wanted = static_cast<double>(samples) * static_cast<double>(each) * sizeof(float);
  const double memory =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  if (wanted <= memory) return;
  throw Error("out of memory: " + std::to_string(samples) + " samples take " +
                  bytes_text(static_cast<int64_t>(std::min(wanted, 1e18))) + ", this machine has " +
                  bytes_text(static_cast<int64_t>(memory)),
              "use a smaller --limit");
}

}  // namespace

Dataset read_inputs(const std::vector<std::string>& texts) {
  Dataset data;
  for (const std::string& text : texts) {
    const InputText input = split_text(text);
    const std::filesystem::path file(input.file);
    if (file.extension() != ".npy" && file.extension() != ".npz" &&
        file.extension() != ".safetensors") {
      throw usage_error("--input '" + text + "': not a .npy, .npz or .safetensors file",
                        "write --input x.npy, --input arrays.npz or --input NAME=x.npy");
    }
    std::vector<SampleArray> arrays = read_sample_arrays(file, ArrayValues::any);
    if (!input.name.empty()) {
      if (arrays.size() != 1) {
        throw usage_error("--input '" + text + "': the file contains " +
                              std::to_string(arrays.size()) + " arrays, but the name is for one",
                          "name a .npy file, or leave the name out");
      }
      arrays[0].name = input.name;
    }
    for (SampleArray& array : arrays) {
      for (const SampleArray& other : data.test.arrays) {
        if (other.name != array.name) continue;
        throw usage_error("--input '" + text + "': a second array for " +
                              (array.name.empty() ? "the only input" : "\"" + array.name + "\""),
                          "write --input NAME=x.npy for every input of the network");
      }
      data.test.arrays.push_back(std::move(array));
    }
    data.name += (data.name.empty() ? "" : ",") + text;
  }
  check_sample_counts(data.test.arrays, "--input " + data.name);
  return data;
}

std::vector<std::string> input_array_files(const std::vector<std::string>& texts) {
  std::vector<std::string> files;
  for (const std::string& text : texts) files.push_back(split_text(text).file);
  return files;
}

Dataset random_inputs(const Model& network, int64_t batch, int64_t samples, uint64_t seed) {
  Dataset data{
      .name = "random:" + std::to_string(seed), .sample_shape = {}, .train = {}, .test = {}};
  uint64_t index = 0;
  for (const Input& input : network.graph.inputs()) {
    if (input.value == network.labels) continue;
    const Value& value = network.graph.value(input.value);
    SampleArray array{.name = input.name, .sample_shape = value.shape, .samples = samples};
    if (batch > 0 && !value.shape.empty() && value.shape[0] == batch) {
      array.sample_shape.erase(array.sample_shape.begin());
    }
    check_memory(samples, element_count(array.sample_shape));
    const int64_t count = samples * element_count(array.sample_shape);
    const int64_t rows =
        value.type == ElementType::index ? rows_picked(network.graph, input.value) : 0;
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t word = splitmix64(splitmix64(seed) + (index << 40) + static_cast<uint64_t>(i));
      if (rows > 0) {
        array.integers.push_back(static_cast<int32_t>(word % static_cast<uint64_t>(rows)));
      } else {
        array.reals.push_back(static_cast<float>(word >> 40) * 0x1p-23f - 1.0f);
      }
    }
    data.test.arrays.push_back(std::move(array));
    ++index;
  }
  return data;
}

SampleLabels read_labels(const std::string& file) {
  std::vector<SampleArray> arrays = read_sample_arrays(file);
  const auto named = std::find_if(arrays.begin(), arrays.end(), [](const SampleArray& array) {
    return array.name == "labels" || array.name == "y";
  });
  if (arrays.size() > 1 && named == arrays.end()) {
    throw usage_error("labels " + file + ": none of its arrays is named labels",
                      "name a .npy, or a .npz with an array \"labels\"");
  }
  SampleArray& array = named == arrays.end() ? arrays[0] : *named;
  if (array.integers.empty()) {
    throw usage_error("labels " + file + ": not whole numbers",
                      "labels are classes, counted from 0");
  }
  return {.values = std::move(array.integers), .shape = array.sample_shape};
}

SampleLabels labels_of(const Split& split) {
  for (const SampleArray& array : split.arrays) {
    if ((array.name == "labels" || array.name == "y") && !array.integers.empty()) {
      return {.values = array.integers, .shape = array.sample_shape};
    }
  }
  return {.values = split.labels};
}

void keep_first(Split& split, const Dataset& data, int64_t count) {
  if (count >= split.size()) return;
  const auto cut = [count](auto& values, int64_t each) {
    if (!values.empty()) values.resize(static_cast<size_t>(count * each));
  };
  for (SampleArray& array : split.arrays) {
    cut(array.reals, element_count(array.sample_shape));
    cut(array.integers, element_count(array.sample_shape));
    array.samples = count;
  }
  cut(split.pixels, element_count(data.sample_shape));
  cut(split.labels, 1);
}

}  // namespace halfscope
