// SPDX-License-Identifier: MIT
// Data sets: labelled images, stored as bytes (a pixel's value in the network is
// (byte / 255 - mean) / deviation of its channel, by default byte / 255), or arrays by the name of
// the network's input.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace halfscope {

/// Samples of one array: integers if all its values are integers of 32 bits, else floats.
struct SampleArray {
  std::string name;    ///< of the network's input; "" fits the only input
  Shape sample_shape;  ///< [] for one number per sample
  std::vector<float> reals{};
  std::vector<int32_t> integers{};
  int64_t samples = 0;
};

struct Split {
  std::vector<uint8_t> pixels;  ///< samples x element_count(sample_shape)
  std::vector<int32_t> labels;  ///< samples, each in [0, classes)
  /// Used instead of images and labels; all have the same number of samples.
  std::vector<SampleArray> arrays{};

  int64_t size() const noexcept {
    return arrays.empty() ? static_cast<int64_t>(labels.size()) : arrays.front().samples;
  }
};

struct Dataset {
  std::string name;     ///< "digits", "mnist"
  Shape sample_shape;   ///< of images: [channels, height, width]
  int64_t classes = 0;  ///< of images and texts; labels in arrays are only limited by the network
  std::vector<double> mean{}, deviation{};  ///< per channel; empty for 0 and 1
  Split train, test;
};

/// Loads "digits" or "shapes" (embedded), "mnist:DIR" (the four IDX files, gzipped or not),
/// "cifar10:DIR" (the binary version), "text:FILE[,sequence=N]" (its bytes) or
/// "FILE.npz[,test=FILE.npz]" (arrays by name of the input). Throws Error that names the file and
/// what is wrong with it.
Dataset load_dataset(const std::string& spec);

/// Returns the files of arrays or text that load_dataset() reads; none for folders and "digits".
std::vector<std::string> dataset_files(const std::string& spec);

/// Returns all files that load_dataset() reads, including the files in a folder. They need not
/// exist.
std::vector<std::string> dataset_inputs(const std::string& spec);

/// Draws 12,000 training and 2,000 test images of 28x28; the same bytes on every machine and in
/// every version.
Dataset make_digits();

/// Reads the four MNIST files of a folder.
Dataset load_mnist(const std::filesystem::path& folder);

/// Reads CIFAR-10's binary version: every data_batch*.bin of the folder in order of name, and
/// test_batch*.bin. Records have one label byte and 3 x 32 x 32 pixels. Channels are normalized
/// with ImageNet's means and deviations, as in common reproductions of He et al. 2016.
Dataset load_cifar10(const std::filesystem::path& folder);

/// Cuts a text into samples of `sequence` tokens, one after another. A token is a byte, counted
/// among the different bytes of the file in ascending order (as nanoGPT's data/shakespeare_char);
/// the label of a token is the next token. The last tenth of the samples is the test part. Throws
/// Error that names the file if it has too few bytes for a sample of each part.
Dataset load_text(const std::filesystem::path& file, int64_t sequence);
inline constexpr int64_t kUsualSequence = 128;

/// Values that an array may contain: inference may read infinities, such as those of a mask, but
/// training may not.
enum class ArrayValues : uint8_t { finite, any };

/// Returns an array whose first dimension counts samples. Throws Error (usage) naming `file` if it
/// has no samples, a number outside the range of fp32, or an infinity or NaN while `values_allowed`
/// is finite.
SampleArray sample_array(const std::string& name, const DoubleTensor& values,
                         const std::string& file, ArrayValues values_allowed = ArrayValues::finite);

/// Reads all arrays of a .npz, or the one of a .npy under the name "". Throws Error, also if arrays
/// differ in their number of samples.
std::vector<SampleArray> read_sample_arrays(const std::filesystem::path& file,
                                            ArrayValues values_allowed = ArrayValues::finite);

/// Throws Error (usage) naming `file` if arrays differ in their number of samples.
void check_sample_counts(const std::vector<SampleArray>& arrays, const std::string& file);

/// Replaces the data set's normalization of bytes: "unit" (byte / 255), "raw" (0 to 255) or
/// "MEAN/DEVIATION", one number each or one per channel, separated by commas. Throws Error (usage)
/// for other text and for data without images.
void normalize_images(Dataset& data, const std::string& rule);

}  // namespace halfscope
