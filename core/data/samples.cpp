// SPDX-License-Identifier: MIT
// Turns arrays into samples, and the bytes of images into numbers.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>

#include "core/data/dataset.h"
#include "core/data/npz.h"
#include "core/data/tensor_file.h"
#include "core/error.h"

namespace halfscope {
namespace {

std::string quoted_array(const std::string& name) {
  return name.empty() ? "the array" : "array '" + name + "'";
}

/// Parses one number, or one per channel separated by commas.
std::vector<double> parse_numbers(std::string_view text, size_t channels, const std::string& rule) {
  std::vector<double> numbers;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    double number = 0.0;
    const auto [stop, code] =
        std::from_chars(text.data() + begin, text.data() + end, number, std::chars_format::general);
    if (code != std::errc() || stop != text.data() + end || !std::isfinite(number)) break;
    numbers.push_back(number);
    begin = end + 1;
    if (begin > text.size()) {
      if (numbers.size() == 1) numbers.resize(channels, numbers[0]);
      if (numbers.size() == channels) return numbers;
      break;
    }
  }
  throw usage_error("normalize '" + rule + "' does not fit images with " +
                        std::to_string(channels) + (channels == 1 ? " channel" : " channels"),
                    "write unit, raw, or MEAN/DEVIATION with one number each or one per channel, "
                    "for example 0.49,0.48,0.45/0.25,0.24,0.26");
}

}  // namespace

SampleArray sample_array(const std::string& name, const DoubleTensor& values,
                         const std::string& file, ArrayValues values_allowed) {
  const std::string what = file + ": " + quoted_array(name);
  if (values.shape.empty() || values.data.empty()) {
    throw usage_error(what + " of shape " + to_string(values.shape) + " contains no samples",
                      "make its first dimension the number of samples");
  }
  bool whole = true;
  for (size_t i = 0; i < values.data.size(); ++i) {
    const double value = values.data[i];
    const bool allowed = values_allowed == ArrayValues::any && !std::isfinite(value);
    if (!allowed && !std::isfinite(static_cast<float>(value))) {
      throw usage_error(
          what + position_text(values.shape, i) + " is " +
              (std::isfinite(value) ? "outside the range of fp32" : std::to_string(value)),
          "replace values that are not finite in fp32");
    }
    whole = whole && value == std::trunc(value) && std::fabs(value) <= 2147483647.0 &&
            !(value == 0.0 && std::signbit(value));
  }
  SampleArray array{.name = name, .sample_shape = {}, .samples = values.shape[0]};
  array.sample_shape.assign(values.shape.begin() + 1, values.shape.end());
  if (whole) {
    array.integers.assign(values.data.begin(), values.data.end());
  } else {
    array.reals.assign(values.data.begin(), values.data.end());
  }
  return array;
}

void check_sample_counts(const std::vector<SampleArray>& arrays, const std::string& file) {
  for (const SampleArray& array : arrays) {
    if (array.samples == arrays[0].samples) continue;
    throw usage_error(file + ": " + quoted_array(array.name) + " has " +
                          std::to_string(array.samples) + " samples, but " +
                          quoted_array(arrays[0].name) + " has " +
                          std::to_string(arrays[0].samples),
                      "make the first dimension, the number of samples, equal in all arrays");
  }
}

std::vector<SampleArray> read_sample_arrays(const std::filesystem::path& file,
                                            ArrayValues values_allowed) {
  std::vector<SampleArray> arrays;
  if (file.extension() == ".npy") {
    arrays.push_back(sample_array("", read_npy_double(file), file.string(), values_allowed));
    return arrays;
  }
  for (const auto& [name, values] : read_tensors_double(file)) {
    arrays.push_back(sample_array(name, values, file.string(), values_allowed));
  }
  if (arrays.empty()) throw usage_error("'" + file.string() + "' contains no arrays");
  check_sample_counts(arrays, file.string());
  return arrays;
}

void normalize_images(Dataset& data, const std::string& rule) {
  if (data.sample_shape.empty()) {
    throw usage_error(
        "normalize '" + rule + "' is for images, but '" + data.name + "' contains arrays",
        "store the arrays as the network should see them");
  }
  const size_t channels = static_cast<size_t>(data.sample_shape[0]);
  if (rule == "unit") {
    data.mean.clear();
    data.deviation.clear();
    return;
  }
  if (rule == "raw") {
    data.mean.assign(channels, 0.0);
    data.deviation.assign(channels, 1.0 / 255.0);
    return;
  }
  const size_t slash = std::min(rule.find('/'), rule.size());
  data.mean = parse_numbers(std::string_view(rule).substr(0, slash), channels, rule);
  data.deviation = parse_numbers(
      slash < rule.size() ? std::string_view(rule).substr(slash + 1) : "", channels, rule);
  if (std::any_of(data.deviation.begin(), data.deviation.end(),
                  [](double d) { return d <= 0.0; })) {
    throw usage_error("normalize '" + rule + "' has a deviation that is not positive");
  }
}

}  // namespace halfscope
