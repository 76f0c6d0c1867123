// SPDX-License-Identifier: MIT
// Runs a network forward under one plan after another and compares it with fp32; finds the products
// that must keep more precision.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "analysis/quantization/quantized_plan.h"
#include "core/train/label_layout.h"

namespace halfscope {

/// How a plan did on the samples.
struct PlanScore {
  int64_t right = 0, scored = 0;  ///< labels; 0 without any
  /// Mean intersection over union of the classes, with labels of pixels or positions.
  std::optional<double> mean_iou{};
  /// Mean average precision of boxes with an IoU of at least 0.5; nothing unless it is a detector.
  std::optional<double> precision{};
  /// ||y - y32|| / ||y32|| over all outputs; infinite if an output is not finite where fp32's is.
  double error = 0.0;

  /// NaN without labels.
  double accuracy() const noexcept;
  /// Returns the mean IoU, the accuracy or the precision, from 0 to 1; NaN if there is none.
  double quality() const noexcept;
};

/// Returns the ratio of signal to noise in dB, -20 log10(error); infinite for no error.
double decibels(double error);

/// The loss that is allowed.
struct Tolerance {
  double quality = 0.01;
  double error = 0.1;  ///< of the outputs, where there is no quality
};

class PlanTrials {
 public:
  /// Runs the reference in fp32. `data` outlives this. Throws Error.
  PlanTrials(Model network, NamedTensors weights, const Dataset& data, SampleLabels labels,
             const Backend& backend, const std::atomic<bool>& stop);

  const PlanScore& reference() const noexcept { return reference_; }
  int64_t batch() const noexcept { return batch_; }  ///< samples that the network takes at once
  PlanScore score(const Plan& plan) const;
  bool passes(const PlanScore& score, const Tolerance& tolerance) const;
  /// Returns the error of each product's result under the plan, on the first batch, in the order of
  /// `products`; NaN where a product is not found.
  std::vector<double> errors_of(const Plan& plan, std::span<const ProductRanges> products) const;

 private:
  PlanScore run(const Plan& plan, NamedTensors* outputs, int64_t* batch) const;

  Model network_;
  NamedTensors weights_;
  const Dataset& data_;
  SampleLabels labels_;
  const Backend& backend_;
  const std::atomic<bool>& stop_;
  NamedTensors outputs_;  ///< of the reference
  int64_t batch_ = 0;
  PlanScore reference_;
};

/// A product that keeps the base plan's precision.
struct KeptProduct {
  ProductKey key;
  PlanScore without;  ///< all other kept ones are kept, this one is quantized
};

struct KeptSearch {
  bool found = false;  ///< the plan passes with these
  std::vector<KeptProduct> kept;
  PlanScore score;  ///< with all of them kept
  PlanScore all;    ///< with none of them kept
  int64_t trials = 0;
};

/// Finds a small set of products that must not be quantized. It keeps the worst ones first, as many
/// as are needed, and then quantizes each of them that is not needed after all. `worst_first` are
/// products that may be kept; `kept_anyway` are never quantized. Stops early if `stop` became true,
/// with found = false.
KeptSearch find_kept(const PlanTrials& trials, const QuantizationSpec& spec,
                     std::span<const ProductRanges> products,
                     const std::vector<ProductKey>& worst_first,
                     const std::set<ProductKey>& kept_anyway, const Tolerance& tolerance,
                     const std::atomic<bool>& stop);

}  // namespace halfscope
