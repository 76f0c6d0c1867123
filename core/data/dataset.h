// SPDX-License-Identifier: MIT
// Labelled image sets, kept as bytes; a pixel's value in the network is (byte / 255 - mean) /
// deviation of its channel, by default byte / 255.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace halfscope {

struct Split {
  std::vector<uint8_t> pixels;  ///< samples x element_count(sample_shape)
  std::vector<int32_t> labels;  ///< samples, each in [0, classes)

  int64_t size() const noexcept { return static_cast<int64_t>(labels.size()); }
};

struct Dataset {
  std::string name;    ///< "digits", "mnist"
  Shape sample_shape;  ///< [channels, height, width]
  int64_t classes = 0;
  std::vector<double> mean{}, deviation{};  ///< per channel; empty for 0 and 1
  Split train, test;
};

/// "digits" (embedded, always there), "mnist:DIR" (the four IDX files, gzipped or not) or
/// "cifar10:DIR" (the binary version).
/// Throws Error that names the file and what is wrong with it.
Dataset load_dataset(const std::string& spec);

/// 12,000 training and 2,000 test images of 28x28 drawn by a procedure; the same bytes on every
/// machine and in every version.
Dataset make_digits();

/// Reads the four MNIST files of a folder.
Dataset load_mnist(const std::filesystem::path& folder);

/// Reads CIFAR-10's binary version: every data_batch*.bin of the folder in order of name, and
/// test_batch*.bin. Records of one label byte and 3 x 32 x 32 pixels. Channels are normalised as by
/// He et al. 2016 as commonly reproduced, with ImageNet's means and deviations.
Dataset load_cifar10(const std::filesystem::path& folder);

}  // namespace halfscope
