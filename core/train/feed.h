// SPDX-License-Identifier: MIT
// Feed: copies samples of a data set to the inputs of a network. Inputs and arrays are paired by
// name; if one input and one array are left over, labels aside, they are paired too. Images go to
// the main input, their labels to the labels.
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
  /// Pairs inputs with arrays for `executable` and all others built from the same model. An input
  /// takes samples along its first dimension, or one sample if it has the shape of a sample. Images
  /// are converted to channels last if the input is; images and labels fit any shape with the same
  /// number of elements. Throws Error (usage) naming the input if its array is missing or does not
  /// fit.
  Feed(const Executable& executable, const Dataset& data);

  /// Returns the number of samples that the network takes at once.
  int64_t batch() const noexcept { return batch_; }
  /// Returns whether the main input has a dimension for samples.
  bool has_batch_axis() const noexcept { return has_batch_axis_; }

  /// Writes these samples, at most batch(), to all inputs. A batch that is not full is padded with
  /// zeros, its labels with -1. Labels that do not count become -1, too.
  void write(const Executable& executable, Program& program, const Split& split,
             std::span<const int64_t> indices);

  /// Returns the labels of these samples for an input of the executable, one after another; -1 for
  /// those that do not count.
  std::vector<int32_t> labels(const Executable& executable, ValueId input, const Split& split,
                              std::span<const int64_t> indices) const;
  /// Returns the shape of a sample's labels; [] for one label.
  Shape label_shape(const Executable& executable, ValueId input) const;
  /// Returns whether every label of the split for that input is 0 or 1.
  bool are_binary(const Executable& executable, ValueId input, const Split& split) const;

  /// Throws Error naming the first label of the split that is not in 0 .. classes - 1 and counts.
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

  const Source& source_of(const Executable& executable, ValueId input) const;
  void match(const Executable& executable);
  void fit(const Executable& executable);
  void check_values(const NamedValue& input, const Source& source, bool index) const;
  template <class T>
  void gather(const Source& source, const Split& split, std::span<const int64_t> indices,
              std::vector<T>& out) const;
  void gather_pixels(const Source& source, const Split& split, std::span<const int64_t> indices);

  const Dataset& data_;
  const std::vector<SampleArray>& arrays_;  ///< of the train or the test part, for names and shapes
  std::vector<Source> sources_;             ///< by input
  int64_t batch_ = 0;
  bool has_batch_axis_ = true;
  std::vector<std::array<float, 256>> pixel_values_;  // by channel
  std::vector<float> reals_;
  std::vector<int32_t> integers_;
};

}  // namespace halfscope
