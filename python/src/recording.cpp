// SPDX-License-Identifier: MIT
#include "python/src/recording.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "python/src/measuring.h"

namespace halfscope::python {

Recording::Recording(const std::filesystem::path& file, bool force, int threads)
    : threads_(threads),
      recorder_(std::make_unique<Recorder>(file, Recorder::Options{.force = force})) {}

int Recording::add_site(SiteInfo site) {
  if (begun_) throw Error("the run file has begun, so no site can be added");
  sites_.push_back(std::move(site));
  stats_.emplace_back();
  before_.emplace_back();
  return site_count() - 1;
}

void Recording::set_format(int site, const FloatFormat& format) {
  if (begun_) throw Error("the run file has begun, so formats cannot change");
  sites_.at(static_cast<size_t>(site)).format = format;
}

void Recording::measure(std::span<const SiteTensor> tensors, bool merge) {
  std::vector<Measured> list;
  list.reserve(tensors.size());
  for (const SiteTensor& each : tensors) {
    list.push_back(
        {.elements = each.elements, .format = sites_.at(static_cast<size_t>(each.site)).format});
  }
  const std::vector<TensorStats> all = measure_list(list, threads_);
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < tensors.size(); ++i) {
    TensorStats& kept = stats_[static_cast<size_t>(tensors[i].site)];
    if (merge && kept.n > 0) {
      kept.merge(all[i]);
    } else {
      kept = all[i];
    }
  }
}

void Recording::before_update(std::span<const SiteTensor> weights) {
  std::vector<Measured> list;
  list.reserve(weights.size());
  for (const SiteTensor& each : weights) {
    const size_t at = static_cast<size_t>(each.site);
    const Elements& weight = *each.elements;
    const int64_t bytes = weight.size() * element_size(weight.kind());
    Before& before = before_.at(at);
    if (before.size != bytes) {
      before.bytes = std::make_unique_for_overwrite<uint8_t[]>(static_cast<size_t>(bytes));
      before.size = bytes;
    }
    before.valid = true;
    list.push_back({.elements = &weight, .format = sites_[at].format, .copy = before.bytes.get()});
  }
  const std::vector<TensorStats> all = measure_list(list, threads_);
  for (size_t i = 0; i < weights.size(); ++i) {
    stats_[static_cast<size_t>(weights[i].site)] = all[i];
  }
}

void Recording::after_update(std::span<const SiteTensor> tensors) {
  std::vector<Measured> list;
  std::vector<size_t> sites;
  for (const SiteTensor& each : tensors) {
    const size_t at = static_cast<size_t>(each.site);
    Measured one{.elements = each.elements, .format = sites_.at(at).format, .beside = each.beside};
    if (each.weight >= 0) {
      Before& before = before_.at(static_cast<size_t>(each.weight));
      if (!before.valid) continue;  // it was not seen before the step
      one.meaning = Meaning::update;
      one.before = before.bytes.get();
      before.valid = false;
    } else if (each.beside != nullptr) {
      one.meaning = Meaning::squares;
    }
    list.push_back(one);
    sites.push_back(at);
  }
  const std::vector<TensorStats> all = measure_list(list, threads_);
  for (size_t i = 0; i < sites.size(); ++i) stats_[sites[i]] = all[i];
}

double Recording::norm(const std::vector<int>& sites) const {
  double sum = 0.0;
  bool nan = false, infinite = false;
  for (const int site : sites) {
    const TensorStats& each = stats(site);
    sum += each.sum_sq;
    nan = nan || each.nan > 0;
    infinite = infinite || each.non_finite() > 0;
  }
  return nan ? std::nan("") : infinite ? INFINITY : std::sqrt(sum);
}

void Recording::begin(RunInfo run, const std::vector<int>& order) {
  if (begun_) throw Error("the run file has already begun");
  std::vector<bool> seen(sites_.size(), false);
  for (const int site : order) {
    if (seen.at(static_cast<size_t>(site))) throw Error("a site comes twice in the order");
    seen[static_cast<size_t>(site)] = true;
  }
  order_ = order;
  for (const int site : order_) {
    SiteInfo info = sites_[static_cast<size_t>(site)];
    info.order = static_cast<int>(run.lanes.at(0).sites.size());
    run.lanes[0].sites.push_back(std::move(info));
  }
  in_order_.resize(order_.size());
  run.observed = observed_;
  begun_ = true;
  recorder_->begin(run);
  for (const Waiting& each : waiting_) write(each);
  waiting_.clear();
  waiting_.shrink_to_fit();
}

void Recording::write(const Waiting& step) {
  StepRow row = step.row;
  if (!step.recorded) {
    recorder_->step(0, row, {});
    return;
  }
  for (size_t i = 0; i < order_.size(); ++i) {
    const size_t site = static_cast<size_t>(order_[i]);
    in_order_[i] = site < step.stats.size() ? step.stats[site] : TensorStats{};
    const bool bad = in_order_[i].overflow + in_order_[i].non_finite() > 0;
    if (bad && row.first_bad < 0 && sites_[site].role != Role::state) {
      row.first_bad = static_cast<int>(i);
    }
  }
  recorder_->step(0, row, in_order_);
}

void Recording::step(const StepRow& row, bool recorded) {
  if (begun_) {
    background_.wait();
    last_.row = row;
    last_.recorded = recorded;
    if (recorded) last_.stats.swap(stats_);
    stats_.resize(sites_.size());
    background_.start([this] { write(last_); });
  } else {
    waiting_.push_back({row, recorded, recorded ? stats_ : std::vector<TensorStats>{}});
  }
  drop_step();
}

void Recording::rows(const std::vector<StepRow>& rows) {
  if (begun_) {
    background_.wait();
    recorder_->rows(rows);
  } else {
    for (const StepRow& row : rows) waiting_.push_back({row, false, {}});
  }
}

void Recording::eval(const EvalRow& row) {
  if (!begun_) return;
  background_.wait();
  recorder_->eval(0, row);
}

void Recording::observe(const std::string& fact) {
  if (std::find(observed_.begin(), observed_.end(), fact) != observed_.end()) return;
  observed_.push_back(fact);
  if (!begun_) return;
  background_.wait();
  recorder_->observed(observed_);
}

void Recording::drop_step() {
  for (TensorStats& each : stats_) each = TensorStats{};
  for (Before& each : before_) each.valid = false;
}

void Recording::release() noexcept {
  for (Before& each : before_) each = {};
}

void Recording::end(RunEnd how) {
  if (recorder_ == nullptr) return;
  try {
    background_.wait();
  } catch (...) {
    recorder_.reset();  // marks the run as interrupted
    throw;
  }
  if (begun_) recorder_->end(how);
  recorder_.reset();
}

}  // namespace halfscope::python
