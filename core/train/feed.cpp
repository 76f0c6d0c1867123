// SPDX-License-Identifier: MIT
#include "core/train/feed.h"

#include <algorithm>
#include <optional>

#include "core/error.h"
#include "core/near_miss.h"

namespace halfscope {
namespace {

/// Usual label of pixels that do not count (PASCAL VOC).
constexpr int32_t kVoidLabel = 255;

/// (byte / 255 - mean) / deviation, per channel.
std::vector<std::array<float, 256>> pixel_tables(const Dataset& data) {
  std::vector<std::array<float, 256>> tables(data.mean.empty() ? 1 : data.mean.size());
  for (size_t channel = 0; channel < tables.size(); ++channel) {
    for (size_t i = 0; i < 256; ++i) {
      tables[channel][i] = static_cast<float>(i) / 255.0f;
      if (data.mean.empty()) continue;
      const double value =
          (static_cast<double>(i) / 255.0 - data.mean[channel]) / data.deviation[channel];
      tables[channel][i] = static_cast<float>(value);
    }
  }
  return tables;
}

bool has_batch_of(const Shape& input, const Shape& sample) {
  return input.size() == sample.size() + 1 && std::equal(sample.begin(), sample.end(), &input[1]);
}

/// Returns whether an array contains the expected answers, not an input of the network.
bool is_answer(const std::string& name) {
  return name == "labels" || name == "targets" || name == "y";
}

bool is_channels_last(const Shape& input, const Shape& image) {
  return input.size() == 4 && image.size() == 3 && input[1] == image[1] && input[2] == image[2] &&
         input[3] == image[0];
}

}  // namespace

Feed::Feed(const Executable& executable, const Dataset& data)
    : data_(data),
      arrays_(data.train.arrays.empty() ? data.test.arrays : data.train.arrays),
      pixel_values_(pixel_tables(data)) {
  match(executable);
  fit(executable);
}

/// Pairs arrays with inputs.
void Feed::match(const Executable& executable) {
  const std::vector<NamedValue>& inputs = executable.inputs;
  std::vector<std::optional<Source>> found(inputs.size());
  std::vector<bool> taken(arrays_.size(), false);
  const auto take = [&](size_t input, const std::string& name) {
    for (size_t i = 0; i < arrays_.size() && !found[input]; ++i) {
      if (taken[i] || arrays_[i].name != name) continue;
      found[input] = Source{.kind = Source::Kind::array, .array = i};
      taken[i] = true;
    }
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    take(i, inputs[i].name);
    if (!arrays_.empty()) continue;
    if (inputs[i].value == executable.labels) found[i] = Source{.kind = Source::Kind::labels};
    if (inputs[i].value == executable.input) found[i] = Source{.kind = Source::Kind::pixels};
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].value == executable.labels || inputs[i].name == "targets") take(i, "y");
  }
  const auto missing = std::find(found.begin(), found.end(), std::nullopt);
  if (missing != found.end()) {
    const NamedValue& input = inputs[static_cast<size_t>(missing - found.begin())];
    const bool answer = input.value == executable.labels || input.name == "targets";
    std::vector<size_t> left;
    for (size_t i = 0; i < arrays_.size(); ++i) {
      if (!taken[i] && (answer || !is_answer(arrays_[i].name))) left.push_back(i);
    }
    if (std::count(found.begin(), found.end(), std::nullopt) != 1 || left.size() != 1) {
      std::vector<std::string> wanted, names;
      for (const NamedValue& each : inputs) wanted.push_back(each.name);
      for (const SampleArray& array : arrays_) names.push_back(array.name);
      const std::string there = arrays_.empty() ? "images and labels" : comma_list(names);
      throw usage_error("the data has no array for the network's input '" + input.name + "'",
                        "name the arrays like the inputs; inputs: " + comma_list(wanted) +
                            "; the data has: " + there)
          .about({"model", "network", "loss", "data", "input"});
    }
    *missing = Source{.kind = Source::Kind::array, .array = left.front()};
  }
  for (const std::optional<Source>& source : found) sources_.push_back(*source);
}

/// Finds how many samples each input takes, and in what form.
void Feed::fit(const Executable& executable) {
  for (size_t i = 0; i < sources_.size(); ++i) {
    Source& source = sources_[i];
    const NamedValue& input = executable.inputs[i];
    const Value& value = executable.graph.value(input.value);
    const bool is_labels = input.value == executable.labels;
    const bool pixels = source.kind == Source::Kind::pixels;
    const Shape sample = pixels                               ? data_.sample_shape
                         : source.kind == Source::Kind::array ? arrays_[source.array].sample_shape
                                                              : Shape{};
    source.sample = element_count(sample);
    const bool by_axis = has_batch_of(value.shape, sample);
    source.channels_last = pixels && !by_axis && is_channels_last(value.shape, sample);
    const bool counts = (pixels || is_labels) && source.sample > 0 &&
                        element_count(value.shape) % source.sample == 0;
    const bool fits = source.sample > 0 && (by_axis || value.shape == sample || counts);
    if (!fits) {
      throw usage_error("the data does not fit the network: input '" + input.name + "' has shape " +
                            to_string(value.shape) + ", but a sample has shape " +
                            to_string(sample),
                        "give samples the shape of the input without its first dimension, which "
                        "counts samples")
          .about({"model", "network", "data", "input"});
    }
    const int64_t batch = element_count(value.shape) / source.sample;
    if (batch_ != 0 && batch != batch_) {
      throw usage_error("input '" + input.name + "' takes " + std::to_string(batch) +
                            " samples at once, but input '" + executable.inputs[0].name +
                            "' takes " + std::to_string(batch_),
                        "make all inputs of the network take the same number of samples");
    }
    batch_ = batch;
    if (input.value == executable.input || executable.input == kNone) {
      has_batch_axis_ = !value.shape.empty() && value.shape != sample && value.shape[0] == batch;
    }
    check_values(input, source, value.type == ElementType::index);
  }
  if (sources_.empty()) throw usage_error("the network has no inputs");
}

/// Checks that inputs of integers, such as token ids, get whole numbers.
void Feed::check_values(const NamedValue& input, const Source& source, bool index) const {
  if (!index) return;
  if (source.kind == Source::Kind::labels) return;
  for (const Split* split : {&data_.train, &data_.test}) {
    if (source.kind == Source::Kind::array &&
        (split->arrays.empty() || split->arrays[source.array].reals.empty())) {
      continue;
    }
    throw usage_error("input '" + input.name + "' takes integers, but its data has fractions",
                      "store integers in its array");
  }
}

void Feed::check_labels(const Executable& executable, const Split& split, int64_t classes,
                        const std::string& data) const {
  for (size_t i = 0; i < sources_.size(); ++i) {
    if (executable.inputs[i].value != executable.labels) continue;
    const bool array = sources_[i].kind == Source::Kind::array;
    if (array && split.arrays.empty()) continue;
    for (const int32_t label : array ? split.arrays[sources_[i].array].integers : split.labels) {
      if ((label >= 0 && label < classes) || label == executable.ignored_label) continue;
      const std::string number = std::to_string(label);
      const std::string hint =
          classes == 1 ? "the network has one score per sample; use --loss bce with targets of 0 "
                         "and 1, or give it a score for each class"
          : label < 0 || label == kVoidLabel
              ? "use --loss cross-entropy,ignore=" + number + " if such labels do not count"
              : "the network has scores for " + std::to_string(classes) +
                    " classes, and labels count from 0";
      throw Error("label " + number + " in the data set '" + data + "' is not in 0.." +
                      std::to_string(classes - 1),
                  hint);
    }
  }
}

Shape Feed::label_shape(const Executable& executable, ValueId input) const {
  const Source& source = source_of(executable, input);
  return source.kind == Source::Kind::array ? arrays_[source.array].sample_shape : Shape{};
}

std::vector<int32_t> Feed::labels(const Executable& executable, ValueId input, const Split& split,
                                  std::span<const int64_t> indices) const {
  const Source& source = source_of(executable, input);
  std::vector<int32_t> labels(indices.size() * static_cast<size_t>(source.sample));
  gather(source, split, indices, labels);
  std::replace(labels.begin(), labels.end(), executable.ignored_label, -1);
  return labels;
}

bool Feed::are_binary(const Executable& executable, ValueId input, const Split& split) const {
  const Source& source = source_of(executable, input);
  const auto all = [](const auto& labels) {
    return std::all_of(labels.begin(), labels.end(), [](auto x) { return x == 0 || x == 1; });
  };
  if (source.kind != Source::Kind::array) return all(split.labels);
  const SampleArray& array = split.arrays[source.array];
  return all(array.reals) && all(array.integers);
}

const Feed::Source& Feed::source_of(const Executable& executable, ValueId input) const {
  size_t index = 0;
  while (executable.inputs[index].value != input) ++index;
  return sources_[index];
}

template <class T>
void Feed::gather(const Source& source, const Split& split, std::span<const int64_t> indices,
                  std::vector<T>& out) const {
  const auto copy = [&](const auto& from) {
    for (size_t i = 0; i < indices.size(); ++i) {
      const auto begin = from.begin() + indices[i] * source.sample;
      std::transform(begin, begin + source.sample,
                     out.begin() + static_cast<int64_t>(i) * source.sample,
                     [](auto value) { return static_cast<T>(value); });
    }
  };
  if (source.kind == Source::Kind::labels) {
    copy(split.labels);
  } else if (const SampleArray& array = split.arrays[source.array]; array.reals.empty()) {
    copy(array.integers);
  } else {
    copy(array.reals);
  }
}

void Feed::gather_pixels(const Source& source, const Split& split,
                         std::span<const int64_t> indices) {
  const int64_t channels = data_.sample_shape[0], plane = source.sample / channels;
  for (size_t i = 0; i < indices.size(); ++i) {
    const uint8_t* from = split.pixels.data() + indices[i] * source.sample;
    float* const target = reals_.data() + static_cast<int64_t>(i) * source.sample;
    for (int64_t c = 0; c < channels; ++c) {
      const std::array<float, 256>& values =
          pixel_values_[pixel_values_.size() > 1 ? static_cast<size_t>(c) : 0];
      const int64_t step = source.channels_last ? channels : 1;
      float* to = source.channels_last ? target + c : target + c * plane;
      for (int64_t p = 0; p < plane; ++p, to += step) *to = values[*from++];
    }
  }
}

void Feed::write(const Executable& executable, Program& program, const Split& split,
                 std::span<const int64_t> indices) {
  for (size_t i = 0; i < sources_.size(); ++i) {
    const Source& source = sources_[i];
    const ValueId value = executable.inputs[i].value;
    const size_t count = static_cast<size_t>(batch_ * source.sample);
    if (executable.graph.value(value).type == ElementType::index) {
      integers_.assign(count, value == executable.labels ? -1 : 0);
      gather(source, split, indices, integers_);
      // Losses and accuracies do not count negative labels.
      if (value == executable.labels)
        std::replace(integers_.begin(), integers_.end(), executable.ignored_label, -1);
      program.write(value, integers_);
      continue;
    }
    reals_.assign(count, 0.0f);
    if (source.kind == Source::Kind::pixels) {
      gather_pixels(source, split, indices);
    } else {
      gather(source, split, indices, reals_);
    }
    program.write(value, reals_);
  }
}

}  // namespace halfscope
