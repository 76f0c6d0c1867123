// SPDX-License-Identifier: MIT
#include "analysis/export/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <ostream>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "analysis/export/csv_field.h"

namespace halfscope {
namespace {

/// Builds one row at a time and hands it to the stream.
class CsvWriter {
 public:
  explicit CsvWriter(std::ostream& out) : out_(out) {}

  CsvWriter& text(std::string_view value) {
    separate();
    line_.append(csv_field(value));
    return *this;
  }

  CsvWriter& number(int64_t value) {
    separate();
    fmt::format_to(std::back_inserter(line_), "{}", value);
    return *this;
  }

  /// fmt's "{}" is the shortest text that reads back to the same double. A NaN's sign says
  /// nothing, so it is always the word "nan".
  CsvWriter& number(double value) {
    separate();
    if (std::isnan(value)) {
      line_.append(std::string_view("nan"));
    } else {
      fmt::format_to(std::back_inserter(line_), "{}", value);
    }
    return *this;
  }

  /// Writes a value that may be missing: NaN means missing.
  CsvWriter& number_or_empty(double value) { return std::isnan(value) ? empty() : number(value); }

  /// Writes a counter or index that may be missing: negative means missing.
  CsvWriter& count_or_empty(int64_t value) { return value < 0 ? empty() : number(value); }

  CsvWriter& empty() {
    separate();
    return *this;
  }

  void end_row() {
    line_.push_back('\n');
    out_.write(line_.data(), static_cast<std::streamsize>(line_.size()));
    line_.clear();
    first_ = true;
  }

 private:
  void separate() {
    if (!first_) line_.push_back(',');
    first_ = false;
  }

  std::ostream& out_;
  fmt::memory_buffer line_;
  bool first_ = true;
};

void write_header(CsvWriter& csv, std::initializer_list<const char*> columns) {
  for (const char* column : columns) csv.text(column);
  csv.end_row();
}

/// One row of a table with its sort keys.
template <typename Row>
struct OrderedRow {
  int64_t step;
  int lane;
  int site;
  Row row;
};

/// Sorts by step, then lane, then execution order.
template <typename Row>
void sort_entries(std::vector<OrderedRow<Row>>& entries) {
  std::sort(entries.begin(), entries.end(), [](const OrderedRow<Row>& a, const OrderedRow<Row>& b) {
    return std::tie(a.step, a.lane, a.site) < std::tie(b.step, b.lane, b.site);
  });
}

/// Returns "-3:12 -2:7": exponent and count of the non-empty bins.
std::string exponents_text(const TensorStats& stats) {
  std::string text;
  for (int bin = 0; bin < kExponentBins; ++bin) {
    const int64_t count = stats.exponents[static_cast<size_t>(bin)];
    if (count == 0) continue;
    if (!text.empty()) text += ' ';
    fmt::format_to(std::back_inserter(text), "{}:{}", bin + kMinExponentBin, count);
  }
  return text;
}

void write_stats(CsvWriter& csv, const TensorStats& stats) {
  for (const int64_t counter : {stats.n, stats.zero, stats.pos_inf, stats.neg_inf, stats.nan,
                                stats.overflow, stats.underflow, stats.subnormal, stats.lost}) {
    csv.number(counter);
  }
  const int64_t finite = stats.n - stats.non_finite();
  if (finite > 0) {
    csv.number(static_cast<double>(stats.max_abs));
  } else {
    csv.empty();
  }
  if (std::isinf(stats.min_abs)) {
    csv.empty();
  } else {
    csv.number(static_cast<double>(stats.min_abs));
  }
  if (finite > 0) {
    csv.number(stats.sum / static_cast<double>(finite));
    csv.number(std::sqrt(stats.sum_sq / static_cast<double>(finite)));
  } else {
    csv.empty().empty();
  }
  csv.text(exponents_text(stats));
}

}  // namespace

void write_steps_csv(const RunView& run, std::ostream& out) {
  CsvWriter csv(out);
  write_header(csv, {"step", "lane", "loss", "loss_scale", "skipped", "grad_norm", "accuracy", "ms",
                     "first_bad"});
  std::vector<OrderedRow<const StepRow*>> entries;
  for (int lane = 0; lane < run.lane_count(); ++lane) {
    for (const StepRow& row : run.steps(lane)) entries.push_back({row.step, lane, 0, &row});
  }
  sort_entries(entries);
  for (const auto& [step, lane_index, site, row] : entries) {
    const LaneInfo& lane = run.lane(lane_index);
    // In training a NaN loss or norm was computed; inference has none. An accuracy or a time can
    // only be missing.
    const bool trains = !run.info().inference;
    csv.number(step).text(lane.name);
    (trains ? csv.number(row->loss) : csv.empty()).number(row->loss_scale);
    csv.number(static_cast<int64_t>(row->skipped));
    if (trains) {
      csv.number(row->grad_norm);
    } else {
      csv.empty();
    }
    csv.number_or_empty(row->accuracy).number_or_empty(row->ms);
    if (row->first_bad < 0) {
      csv.empty();
    } else {
      csv.text(lane.sites.at(static_cast<size_t>(row->first_bad)).name());
    }
    csv.end_row();
  }
}

void write_sums_csv(const RunView& run, std::ostream& out) {
  CsvWriter csv(out);
  write_header(csv, {"step", "lane", "site", "path", "tensor", "phase", "op", "format", "layer",
                     "accumulation", "sums", "products", "swamped", "largest", "overflowed",
                     "first_overflow"});
  std::vector<OrderedRow<const SiteSums*>> entries;
  for (int lane = 0; lane < run.lane_count(); ++lane) {
    for (const SiteSums& row : run.sums(lane)) entries.push_back({row.step, lane, row.site, &row});
  }
  sort_entries(entries);
  for (const auto& [step, lane_index, site_index, row] : entries) {
    const LaneInfo& lane = run.lane(lane_index);
    const SiteInfo& site = lane.sites.at(static_cast<size_t>(site_index));
    csv.number(step).text(lane.name).text(site.name()).text(site.path).text(site.tensor);
    csv.text(phase_name(site.phase)).text(site.op).text(format_name(site.format));
    csv.text(row->layer).text(accumulation_name(row->accumulation));
    csv.number(row->counts.sums).number(row->counts.products).number(row->counts.swamped);
    csv.number(row->counts.largest).number(row->counts.overflowed);
    csv.count_or_empty(row->counts.first_overflow);
    csv.end_row();
  }
}

void write_kernels_csv(const RunView& run, std::ostream& out) {
  CsvWriter csv(out);
  write_header(csv, {"step", "lane", "site", "path", "tensor", "phase", "op", "format", "n",
                     "differing", "max_ulps", "worst", "beyond", "kernel", "order", "sampled",
                     "explained", "unexplained"});
  std::vector<OrderedRow<const KernelCheck*>> entries;
  for (int lane = 0; lane < run.lane_count(); ++lane) {
    for (const KernelCheck& row : run.kernels(lane)) {
      entries.push_back({row.step, lane, row.site, &row});
    }
  }
  sort_entries(entries);
  for (const auto& [step, lane_index, site_index, row] : entries) {
    const LaneInfo& lane = run.lane(lane_index);
    const SiteInfo& site = lane.sites.at(static_cast<size_t>(site_index));
    csv.number(step).text(lane.name).text(site.name()).text(site.path).text(site.tensor);
    csv.text(phase_name(site.phase)).text(site.op).text(format_name(site.format));
    csv.number(row->n).number(row->differing).number(row->max_ulps);
    csv.count_or_empty(row->worst).count_or_empty(row->beyond);
    csv.text(row->kernel).text(row->order).number(row->sampled).number(row->explained);
    csv.text(row->unexplained);
    csv.end_row();
  }
}

void write_stats_csv(const RunView& run, std::ostream& out) {
  CsvWriter csv(out);
  write_header(csv, {"step",    "step_count", "lane",    "site",     "path",      "tensor",
                     "role",    "phase",      "op",      "format",   "n",         "zero",
                     "pos_inf", "neg_inf",    "nan",     "overflow", "underflow", "subnormal",
                     "lost",    "max_abs",    "min_abs", "mean",     "rms",       "exponents"});
  std::vector<OrderedRow<PackedWindow>> entries;
  for (int lane = 0; lane < run.lane_count(); ++lane) {
    for (const SiteInfo& site : run.lane(lane).sites) {
      for (const PackedWindow& window : run.windows(lane, site.order)) {
        entries.push_back({window.step, lane, site.order, window});
      }
    }
  }
  sort_entries(entries);
  for (const auto& [step, lane_index, site_index, window] : entries) {
    const LaneInfo& lane = run.lane(lane_index);
    const SiteInfo& site = lane.sites[static_cast<size_t>(site_index)];
    csv.number(step).number(window.step_count).text(lane.name).text(site.name());
    csv.text(site.path).text(site.tensor).text(role_name(site.role)).text(phase_name(site.phase));
    csv.text(site.op).text(format_name(site.format));
    write_stats(csv, window.stats());
    csv.end_row();
  }
}

}  // namespace halfscope
