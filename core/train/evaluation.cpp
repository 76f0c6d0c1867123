// SPDX-License-Identifier: MIT
#include "core/train/evaluation.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "core/data/shapes.h"
#include "core/numeric/statistics/auc.h"
#include "core/train/label_layout.h"

namespace halfscope {
namespace {

/// The processes that evaluate together; one if there is no exchange.
class Shares {
 public:
  explicit Shares(Exchange* exchange) : exchange_(exchange) {}

  int64_t count() const { return exchange_ != nullptr ? exchange_->size() : 1; }
  bool owns(int64_t batch) const {
    return exchange_ == nullptr || batch % count() == exchange_->rank();
  }
  /// Replaces each batch's values by those of the process that owns it.
  template <class T>
  void complete(std::vector<T>& values, size_t per_batch) const {
    if (exchange_ == nullptr) return;
    const std::vector<T> all = all_gather(*exchange_, std::span<const T>(values));
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t owner = i / per_batch % static_cast<size_t>(count());
      values[i] = all[owner * values.size() + i];
    }
  }
  /// Adds the counts of all processes.
  void total(ClassCounts& counts) const {
    if (exchange_ == nullptr) return;
    const size_t size = counts.values().size();
    const std::vector<int64_t> all = all_gather(*exchange_, counts.values());
    for (int64_t rank = 0; rank < count(); ++rank) {
      if (rank == exchange_->rank()) continue;
      counts.add(std::span(all).subspan(static_cast<size_t>(rank) * size, size));
    }
  }

 private:
  Exchange* exchange_;
};

bool is_of_pixels(const Shape& labels) {
  return std::count_if(labels.begin(), labels.end(), [](int64_t extent) { return extent > 1; }) > 1;
}

/// Compares class scores with labels: the area under the ROC curve if a sample has one label, the
/// intersection over union if it has one for each pixel. Tokens have neither.
class Classified {
 public:
  Classified(const Executable& executable, const Feed& feed, int64_t samples) {
    if (executable.eval_logits == kNone) return;
    const Shape labels = feed.label_shape(executable);
    const Shape& scores = executable.graph.value(executable.eval_logits).shape;
    const std::optional<LabelLayout> layout = label_layout(scores, feed.batch(), labels);
    if (!layout || layout->classes < 2) return;
    layout_ = *layout;
    batch_ = feed.batch();
    if (layout_.per_sample == 1) {
      scores_.resize(static_cast<size_t>(samples * layout_.classes));
      labels_.resize(static_cast<size_t>(samples));
    } else if (is_of_pixels(labels)) {
      counts_.emplace(layout_.classes);
    }
  }

  bool measures() const { return !labels_.empty() || counts_; }

  /// `first`: the index of the batch's first sample.
  void add(const Tensor& scores, std::span<const int32_t> labels, int64_t first) {
    if (counts_) {
      count_labels(scores.data, labels, layout_, 0.0f, &*counts_);
      return;
    }
    const auto values = static_cast<int64_t>(labels.size()) * layout_.classes;
    std::copy_n(scores.data.begin(), values, scores_.begin() + first * layout_.classes);
    std::copy(labels.begin(), labels.end(), labels_.begin() + first);
  }

  void finish(const Shares& shares, EvalRow& row) {
    if (counts_) {
      shares.total(*counts_);
      row.mean_iou = counts_->mean_iou();
    } else if (!labels_.empty()) {
      shares.complete(scores_, static_cast<size_t>(batch_ * layout_.classes));
      shares.complete(labels_, static_cast<size_t>(batch_));
      row.auc = area();
    }
  }

 private:
  /// The area over the samples whose labels count.
  double area() {
    size_t counted = 0;
    const auto classes = static_cast<size_t>(layout_.classes);
    for (size_t i = 0; i < labels_.size(); ++i) {
      if (labels_[i] < 0) continue;
      labels_[counted] = labels_[i];
      const auto from = scores_.begin() + static_cast<int64_t>(i * classes);
      std::copy_n(from, classes, scores_.begin() + static_cast<int64_t>(counted * classes));
      ++counted;
    }
    return mean_area_under_curve(std::span(scores_).first(counted * classes), layout_.classes,
                                 std::span(labels_).first(counted));
  }

  LabelLayout layout_;
  int64_t batch_ = 0;
  std::vector<float> scores_;    ///< [samples, classes]
  std::vector<int32_t> labels_;  ///< by sample; -1 does not count
  std::optional<ClassCounts> counts_;
};

void append(const Lane& lane, NamedTensors& outputs) {
  for (const NamedValue& output : lane.executable.outputs) {
    const Tensor values = lane.program->read(output.value);
    Tensor& all = outputs[output.name];
    if (all.shape.empty()) all.shape = values.shape;
    if (!all.data.empty()) all.shape[0] += values.shape[0];
    all.data.insert(all.data.end(), values.data.begin(), values.data.end());
  }
}

}  // namespace

bool has_label_scores(const Model& model, const Dataset& data, int64_t batch) {
  if (model.logits == kNone || model.labels == kNone) return false;
  const int64_t per_sample = element_count(model.graph.value(model.labels).shape) / batch;
  return per_sample == 1 || std::any_of(data.test.arrays.begin(), data.test.arrays.end(),
                                        [&](const SampleArray& each) {
                                          return is_of_pixels(each.sample_shape) &&
                                                 element_count(each.sample_shape) == per_sample;
                                        });
}

EvalRow Evaluation::run(const Lane& lane, int64_t step) const {
  EvalRow row{.step = step};
  const Executable& executable = lane.executable;
  const ValueId accuracy = executable.eval_accuracy;
  const bool detects = has_detection_score(data_, executable.output_shapes());
  const Shares shares(detects ? nullptr : exchange_);
  Classified classified(executable, feed_, samples_);
  NamedTensors outputs;
  std::vector<int64_t> indices;
  std::vector<double> terms;  // of loss and accuracy of each batch, 0 for other processes' batches
  lane.program->keep_values(false);
  for (int64_t first = 0; first < samples_; first += feed_.batch()) {
    terms.insert(terms.end(), {0.0, 0.0});
    if (!shares.owns(first / feed_.batch())) continue;
    indices.resize(static_cast<size_t>(std::min(feed_.batch(), samples_ - first)));
    std::iota(indices.begin(), indices.end(), first);
    feed_.write(executable, *lane.program, data_.test, indices);
    lane.program->run(Entry::eval, {});
    const double weight = static_cast<double>(indices.size()) / static_cast<double>(samples_);
    terms.end()[-2] = weight * lane.program->read_scalar(executable.eval_loss);
    if (accuracy != kNone) terms.back() = weight * lane.program->read_scalar(accuracy);
    if (classified.measures()) {
      classified.add(lane.program->read(executable.eval_logits),
                     feed_.labels(executable, data_.test, indices), first);
    }
    if (detects) append(lane, outputs);
  }
  lane.program->keep_values(true);
  shares.complete(terms, 2);
  for (size_t i = 0; i < terms.size(); i += 2) {
    row.loss += terms[i];
    row.accuracy += terms[i + 1];
  }
  classified.finish(shares, row);
  if (accuracy == kNone) row.accuracy = std::numeric_limits<double>::quiet_NaN();
  if (detects && samples_ > 0) row.accuracy = detection_score(data_, outputs).value().half;
  return row;
}

}  // namespace halfscope
