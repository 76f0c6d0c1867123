// SPDX-License-Identifier: MIT
// Feed: brings samples of a data set to the inputs of a network. Inputs and arrays are paired by
// name; what is left over on both sides is paired too if it is one of each, labels aside. Images go
// to the main input, their labels to the labels.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/data/dataset.h"

namespace halfscope {

class Feed {
 public:
  /// For `executable` and all others made of the same model. An input takes samples along its first
  /// dimension, or one sample if it has the shape of a sample. Images are put channels last where
  /// the input is, and take any shape of as many elements; so do labels. Throws Error (usage)
  /// naming the input where arrays are missing or do not fit.
  Feed(const Executable& executable, const Dataset& data);

  /// Samples that the network takes at once.
  int64_t batch() const noexcept { return batch_; }
  /// Whether the main input has a dimension for them.
  bool has_batch_axis() const noexcept { return has_batch_axis_; }

  /// Writes these samples, at most batch(), to all inputs. What is missing of a batch is zeros, and
  /// -1 of the labels.
  void write(const Executable& executable, Program& program, const Split& split,
             std::span<const int64_t> indices);

  /// Throws Error naming the first label of the split that is not in 0 .. classes - 1.
  void check_labels(const Executable& executable, const Split& split, int64_t classes,
                    const std::string& data) const;

 private:
  struct Source {
    enum class Kind : uint8_t { pixels, labels, array };
    Kind kind = Kind::array;
    size_t array = 0;            ///< which of the split's
    bool channels_last = false;  ///< of images
    int64_t sample = 0;          ///< elements of a sample
  };

  void match(const Executable& executable);
  void fit(const Executable& executable);
  void check_values(const NamedValue& input, const Source& source, bool index) const;
  template <class T>
  void gather(const Source& source, const Split& split, std::span<const int64_t> indices,
              std::vector<T>& out) const;
  void gather_pixels(const Source& source, const Split& split, std::span<const int64_t> indices);

  const Dataset& data_;
  const std::vector<SampleArray>& arrays_;  ///< names and shapes: of the part that has any
  std::vector<Source> sources_;             ///< by input
  int64_t batch_ = 0;
  bool has_batch_axis_ = true;
  std::vector<std::array<float, 256>> pixel_values_;  // by channel
  std::vector<float> reals_;
  std::vector<int32_t> integers_;
};

}  // namespace halfscope
