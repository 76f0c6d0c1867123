// SPDX-License-Identifier: MIT
#include "analysis/export/tensorboard.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <map>
#include <set>
#include <system_error>

#include "analysis/export/event_file.h"
#include "core/data/stored_array.h"
#include "core/error.h"
#include "core/numeric/statistics/rates.h"

namespace halfscope {
namespace {

namespace fs = std::filesystem;

constexpr std::array kRoles{
    Role::input,       Role::activation, Role::weight, Role::activation_grad,
    Role::weight_grad, Role::update,     Role::state};

void add_counts(const TensorCounts& more, TensorCounts& sum) noexcept {
  sum.n += more.n;
  sum.zero += more.zero;
  sum.pos_inf += more.pos_inf;
  sum.neg_inf += more.neg_inf;
  sum.nan += more.nan;
  sum.overflow += more.overflow;
  sum.underflow += more.underflow;
  sum.subnormal += more.subnormal;
  sum.lost += more.lost;
}

/// Counters of several tensors together, by first step of the window.
using Series = std::map<int64_t, TensorCounts>;

class LaneWriter {
 public:
  LaneWriter(const RunView& run, int lane, const std::string& file)
      : run_(run), lane_(lane), info_(run.lane(lane)), file_(file) {
    double seconds = 0.0;
    for (const StepRow& row : run.steps(lane)) {
      seconds += std::isnan(row.ms) ? 0.0 : row.ms / 1000.0;
      clock_[row.step] = seconds;
    }
  }

  void write(const std::string& findings) {
    write_steps();
    write_evals();
    for (const Role role : kRoles) write_role(role);
    for (const SiteInfo& site : info_.sites) write_histograms(site);
    const int64_t last = run_.steps(lane_).empty() ? 0 : run_.steps(lane_).back().step;
    file_.text(time_of(last), last, "findings", findings);
    file_.close();
  }

 private:
  /// Returns the time from the start of the lane to the end of a step; 0 if it was not measured.
  double time_of(int64_t step) const {
    const auto after = clock_.upper_bound(step);
    return after == clock_.begin() ? 0.0 : std::prev(after)->second;
  }

  void point(int64_t step, std::string_view tag, double value) {
    file_.scalar(time_of(step), step, tag, value);
  }

  void write_steps() {
    const bool trains = !run_.info().inference;
    for (const StepRow& row : run_.steps(lane_)) {
      if (trains) {
        point(row.step, "loss", row.loss);
        point(row.step, "loss_scale", row.loss_scale);
        point(row.step, "grad_norm", row.grad_norm);
        point(row.step, "skipped", row.skipped ? 1.0 : 0.0);
      }
      if (!std::isnan(row.learning_rate)) point(row.step, "learning_rate", row.learning_rate);
      if (!std::isnan(row.accuracy)) point(row.step, "accuracy", row.accuracy);
    }
  }

  void write_evals() {
    for (const EvalRow& row : run_.evals(lane_)) {
      // row.step counts the steps done, and points are numbered from 0.
      const int64_t step = std::max<int64_t>(row.step - 1, 0);
      if (!run_.info().inference) point(step, "test/loss", row.loss);
      const auto score = [&](const char* name, double value) {
        if (!std::isnan(value)) point(step, std::string("test/") + name, value);
      };
      score(quality_name(run_.info()), row.accuracy);
      score("AUC", row.auc);
      score("mIoU", row.mean_iou);
    }
  }

  /// Writes the shares of all tensors with a role, and of each layer's that lose something.
  void write_role(Role role) {
    Series all;
    std::map<std::string, Series> layers;
    for (const SiteInfo& site : info_.sites) {
      if (site.role != role) continue;
      Series& layer = layers[site.path];
      for (const PackedWindow& window : run_.windows(lane_, site.order)) {
        const TensorCounts counts = window.counts();
        if (counts.n == 0) continue;
        add_counts(counts, all[window.step]);
        add_counts(counts, layer[window.step]);
      }
    }
    write_shares(role, "", all);
    for (const auto& [path, series] : layers) write_shares(role, "/" + visible_name(path), series);
  }

  void write_shares(Role role, const std::string& layer, const Series& series) {
    struct Measure {
      const char* name;
      int64_t TensorCounts::*count;
      double Rates::*rate;
      bool of_updates;
    };
    static constexpr Measure kMeasures[] = {
        {"overflow", &TensorCounts::overflow, &Rates::overflow, false},
        {"underflow", &TensorCounts::underflow, &Rates::underflow, false},
        {"lost_updates", &TensorCounts::lost, &Rates::lost, true}};
    for (const Measure& measure : kMeasures) {
      if (measure.of_updates && role != Role::update) continue;
      const bool none = std::all_of(series.begin(), series.end(), [&](const auto& each) {
        return each.second.*measure.count == 0;
      });
      // Thousands of empty plots would hide the others. A backend that rounds before it measures
      // counts nothing, which is not zero.
      const bool hidden = measures_after_rounding(info_.backend) && role != Role::update;
      if (none && (!layer.empty() || hidden)) continue;
      const std::string tag = measure.of_updates
                                  ? std::string(measure.name) + layer
                                  : fmt::format("{}/{}{}", measure.name, role_name(role), layer);
      for (const auto& [step, counts] : series) {
        // These rates do not depend on the format.
        point(step, tag, rates_of(counts, kFp32).*measure.rate);
      }
    }
  }

  void write_histograms(const SiteInfo& site) {
    const std::string tag = "exponents/" + visible_name(site.name());
    const WindowRange windows = run_.windows(lane_, site.order);
    const size_t each = (windows.size() + kMostHistograms - 1) / kMostHistograms;
    for (size_t begin = 0; begin < windows.size(); begin += each) {
      TensorStats merged;
      for (size_t i = begin; i < std::min(begin + each, windows.size()); ++i) {
        merged.merge(windows[i].stats());
      }
      const auto& bins = merged.exponents;
      const auto filled = [](int64_t count) { return count > 0; };
      const auto first = std::find_if(bins.begin(), bins.end(), filled);
      if (first == bins.end()) continue;
      const auto last = std::find_if(bins.rbegin(), bins.rend(), filled).base();
      const int64_t step = windows[begin].step;
      file_.histogram(time_of(step), step, tag,
                      {.first = kMinExponentBin + static_cast<int>(first - bins.begin()),
                       .counts = {first, last}});
    }
  }

  const RunView& run_;
  int lane_;
  const LaneInfo& info_;
  EventFile file_;
  std::map<int64_t, double> clock_;  ///< seconds at the end of each step
};

}  // namespace

std::vector<std::string> tensorboard_folders(const RunView& run) {
  std::vector<std::string> folders;
  std::set<std::string> taken;
  for (int lane = 0; lane < run.lane_count(); ++lane) {
    std::string name = run.lane(lane).name;
    for (char& c : name) {
      const bool kept = std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                        std::string_view("._+=,-").find(c) != std::string_view::npos;
      if (!kept) c = '_';
    }
    constexpr size_t kLongest = 100;
    name.resize(std::min(name.size(), kLongest));
    if (name.empty() || name[0] == '.') name.insert(0, "_");  // "..", and hidden folders
    std::string free = name;
    for (int i = 2; !taken.insert(free).second; ++i) free = fmt::format("{}-{}", name, i);
    folders.push_back(std::move(free));
  }
  return folders;
}

void check_tensorboard_folder(const fs::path& folder, bool force) {
  std::error_code ignored;
  const fs::file_status status = fs::status(folder, ignored);
  if (fs::exists(status) && !fs::is_directory(status)) {
    throw usage_error(fmt::format("'{}' is not a folder", folder.string()),
                      "TensorBoard reads a folder: name a new one");
  }
  if (fs::is_directory(status) && !fs::is_empty(folder, ignored) && !force) {
    throw usage_error(fmt::format("folder '{}' is not empty", folder.string()),
                      "choose another name, or use --force to replace event files in it");
  }
  const fs::path parent = fs::absolute(folder, ignored).lexically_normal().parent_path();
  if (!fs::exists(status) && !fs::is_directory(parent, ignored)) {
    throw usage_error(
        fmt::format("cannot write '{}': folder '{}' not found", folder.string(), parent.string()),
        "create the folder first");
  }
}

void write_tensorboard(const RunView& run, std::span<const std::string> findings,
                       const fs::path& folder) {
  const std::vector<std::string> folders = tensorboard_folders(run);
  for (int lane = 0; lane < run.lane_count(); ++lane) {
    const auto index = static_cast<size_t>(lane);
    const fs::path inside = folder / folders[index];
    std::error_code failed;
    fs::create_directories(inside, failed);
    if (failed) {
      throw Error(
          fmt::format("cannot create the folder '{}': {}", inside.string(), failed.message()),
          "check the permissions of its folder");
    }
    LaneWriter(run, lane, (inside / kEventFileName).string()).write(findings[index]);
  }
}

}  // namespace halfscope
