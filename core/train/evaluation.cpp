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
  /// Takes the values of each batch from the process that evaluated it.
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

/// Compares scores with labels: the area under the ROC curve if a sample has one label or targets
/// of 0 and 1, the intersection over union if it has one for each pixel. Tokens have neither.
class Classified {
 public:
  Classified(const Executable& executable, const Feed& feed, const Split& split, int64_t samples)
      : executable_(executable),
        binary_(executable.eval_targets != kNone),
        input_(binary_ ? executable.eval_targets : executable.labels) {
    if (executable.eval_logits == kNone || samples == 0) return;
    if (binary_ && !feed.are_binary(executable, input_, split)) return;
    const Shape labels = feed.label_shape(executable, input_);
    const Shape& scores = executable.graph.value(executable.eval_logits).shape;
    const std::optional<LabelLayout> layout =
        binary_ ? LabelLayout{.per_sample = element_count(scores) / feed.batch(), .classes = 1}
                : label_layout(scores, feed.batch(), labels);
    if (!layout || (!binary_ && layout->classes < 2)) return;
    layout_ = *layout;
    batch_ = feed.batch();
    pixels_ = is_of_pixels(labels);
    if (pixels_ || binary_) counts_.emplace(layout_.labels());
    if (!pixels_ && (binary_ || layout_.per_sample == 1)) {
      scores_.resize(static_cast<size_t>(samples * layout_.per_sample * layout_.classes));
      // Batches without a label that counts are not evaluated.
      labels_.assign(static_cast<size_t>(samples * layout_.per_sample), -1);
    }
  }

  bool measures() const { return counts_ || !labels_.empty(); }

  /// Takes the batch that the lane has just evaluated. `indices` follow one another.
  void add(const Program& program, const Feed& feed, const Split& split,
           std::span<const int64_t> indices) {
    const Tensor scores = program.read(executable_.eval_logits);
    const std::vector<int32_t> labels = feed.labels(executable_, input_, split, indices);
    if (counts_) count_labels(scores.data, labels, layout_, 0.0f, &*counts_);
    if (labels_.empty()) return;
    const int64_t place = indices.front() * layout_.per_sample;
    std::copy_n(scores.data.begin(), static_cast<int64_t>(labels.size()) * layout_.classes,
                scores_.begin() + place * layout_.classes);
    std::copy(labels.begin(), labels.end(), labels_.begin() + place);
  }

  void finish(const Shares& shares, EvalRow& row) {
    if (counts_) {
      shares.total(*counts_);
      if (binary_) row.accuracy = counts_->accuracy();
      if (pixels_) row.mean_iou = counts_->mean_iou();
    }
    if (labels_.empty()) return;
    const int64_t places = batch_ * layout_.per_sample;
    shares.complete(scores_, static_cast<size_t>(places * layout_.classes));
    shares.complete(labels_, static_cast<size_t>(places));
    row.auc = binary_ ? mean_area_of_outputs(scores_, layout_.per_sample, labels_)
                      : mean_area_under_curve(scores_, layout_.classes, labels_, ScoreKind::logits);
  }

 private:
  const Executable& executable_;
  bool binary_;  ///< targets of a binary cross-entropy, instead of labels of classes
  ValueId input_;
  LabelLayout layout_;
  bool pixels_ = false;
  int64_t batch_ = 0;
  std::vector<float> scores_;    ///< [samples, per_sample, classes]
  std::vector<int32_t> labels_;  ///< [samples, per_sample]; -1 does not count
  std::optional<ClassCounts> counts_;
};

/// Returns how many labels count.
int64_t count_of(const std::vector<int32_t>& labels) {
  return std::count_if(labels.begin(), labels.end(), [](int32_t label) { return label >= 0; });
}

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
  if (model.binary_scores != kNone) return true;
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
  Classified classified(executable, feed_, data_.test, samples_);
  NamedTensors outputs;
  std::vector<int64_t> indices;
  std::vector<double> terms;  // of loss and accuracy of each batch, 0 for other processes' batches
  lane.program->keep_values(false);
  int64_t all = 0;
  for (int64_t first = 0; first < samples_; first += feed_.batch()) {
    indices.resize(static_cast<size_t>(std::min(feed_.batch(), samples_ - first)));
    std::iota(indices.begin(), indices.end(), first);
    terms.insert(terms.end(), {0.0, 0.0});
    // Metrics of a batch are means over its labels that count.
    const int64_t counted =
        executable.labels == kNone
            ? static_cast<int64_t>(indices.size())
            : count_of(feed_.labels(executable, executable.labels, data_.test, indices));
    all += counted;
    if (counted == 0 || !shares.owns(first / feed_.batch())) continue;
    feed_.write(executable, *lane.program, data_.test, indices);
    lane.program->run(Entry::eval, {});
    const auto weight = static_cast<double>(counted);
    terms.end()[-2] = weight * lane.program->read_scalar(executable.eval_loss);
    if (accuracy != kNone) terms.back() = weight * lane.program->read_scalar(accuracy);
    if (classified.measures()) classified.add(*lane.program, feed_, data_.test, indices);
    if (detects) append(lane, outputs);
  }
  lane.program->keep_values(true);
  shares.complete(terms, 2);
  for (size_t i = 0; i < terms.size(); i += 2) {
    row.loss += terms[i];
    row.accuracy += terms[i + 1];
  }
  row.loss /= static_cast<double>(all);
  row.accuracy /= static_cast<double>(all);
  if (accuracy == kNone) row.accuracy = std::numeric_limits<double>::quiet_NaN();
  classified.finish(shares, row);
  if (detects && samples_ > 0) row.accuracy = detection_score(data_, outputs).value().half;
  return row;
}

}  // namespace halfscope
