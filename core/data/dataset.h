// SPDX-License-Identifier: MIT
// What networks are trained on and asked about: labelled image sets, kept as bytes (a pixel's value
// in the network is (byte / 255 - mean) / deviation of its channel, by default byte / 255), or
// arrays by the name of the network's input.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace halfscope {

/// The samples of one array: integers where all its values are such and fit, else floats.
struct SampleArray {
  std::string name;    ///< of the network's input; "" fits the only one there is
  Shape sample_shape;  ///< [] for one number per sample
  std::vector<float> reals{};
  std::vector<int32_t> integers{};
  int64_t samples = 0;
};

struct Split {
  std::vector<uint8_t> pixels;  ///< samples x element_count(sample_shape)
  std::vector<int32_t> labels;  ///< samples, each in [0, classes)
  /// In place of both; all of as many samples.
  std::vector<SampleArray> arrays{};

  int64_t size() const noexcept {
    return arrays.empty() ? static_cast<int64_t>(labels.size()) : arrays.front().samples;
  }
};

struct Dataset {
  std::string name;     ///< "digits", "mnist"
  Shape sample_shape;   ///< of images: [channels, height, width]
  int64_t classes = 0;  ///< of images; labels in arrays are limited by the network alone
  std::vector<double> mean{}, deviation{};  ///< per channel; empty for 0 and 1
  Split train, test;
};

/// "digits" (embedded, always there), "mnist:DIR" (the four IDX files, gzipped or not),
/// "cifar10:DIR" (the binary version) or "FILE.npz[,test=FILE.npz]" (arrays by name of the input).
/// Throws Error that names the file and what is wrong with it.
Dataset load_dataset(const std::string& spec);

/// The files that load_dataset() reads for arrays; none for the other kinds.
std::vector<std::string> dataset_files(const std::string& spec);

/// 12,000 training and 2,000 test images of 28x28 drawn by a procedure; the same bytes on every
/// machine and in every version.
Dataset make_digits();

/// Reads the four MNIST files of a folder.
Dataset load_mnist(const std::filesystem::path& folder);

/// Reads CIFAR-10's binary version: every data_batch*.bin of the folder in order of name, and
/// test_batch*.bin. Records of one label byte and 3 x 32 x 32 pixels. Channels are normalised as by
/// He et al. 2016 as commonly reproduced, with ImageNet's means and deviations.
Dataset load_cifar10(const std::filesystem::path& folder);

/// What an array may hold: a network may read infinities in inference, such as those of a mask, but
/// nothing trains on them.
enum class ArrayValues : uint8_t { finite, any };

/// An array whose first dimension counts samples. Throws Error (usage) naming `file` for one
/// without samples, with a number beyond fp32, or with an infinity or NaN where `values_allowed` is
/// finite.
SampleArray sample_array(const std::string& name, const DoubleTensor& values,
                         const std::string& file, ArrayValues values_allowed = ArrayValues::finite);

/// Every array of a .npz, or the one of a .npy under the name "". Throws Error, also for arrays
/// that differ in their number of samples.
std::vector<SampleArray> read_sample_arrays(const std::filesystem::path& file,
                                            ArrayValues values_allowed = ArrayValues::finite);

/// Throws Error (usage) naming `file` if arrays differ in their number of samples.
void check_sample_counts(const std::vector<SampleArray>& arrays, const std::string& file);

/// How bytes become numbers in place of the data set's own way: "unit" (byte / 255), "raw" (0 to
/// 255) or "MEAN/DEVIATION", one number each or one per channel, separated by commas. Throws Error
/// (usage) for another text, and for data without images.
void normalize_images(Dataset& data, const std::string& rule);

}  // namespace halfscope
