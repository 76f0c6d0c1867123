// SPDX-License-Identifier: MIT
#include "cli/tasks/rank_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <regex>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "analysis/recorder.h"
#include "analysis/rules/text.h"
#include "analysis/run_view.h"
#include "cli/terminal/output.h"
#include "core/error.h"

namespace halfscope {
namespace {

namespace fs = std::filesystem;

/// Returns what is before and after the number of a rank in a file's name.
std::optional<std::pair<std::string, std::string>> rank_name_parts(const std::string& name) {
  static const std::regex pattern(R"(^((?:.*/)?[^/]*\.rank)[0-9]+(\.[^./]+)$)");
  std::smatch found;
  if (!std::regex_match(name, found, pattern)) return std::nullopt;
  return std::pair{found[1].str(), found[2].str()};
}

/// Returns the files of ranks 0, 1, 2 and so on.
std::vector<std::string> rank_files(const std::string& name) {
  const auto [before, after] = *rank_name_parts(name);
  std::vector<std::string> files;
  std::error_code ignored;
  for (;;) {
    std::string file = fmt::format("{}{}{}", before, files.size(), after);
    if (!fs::exists(file, ignored)) break;
    files.push_back(std::move(file));
  }
  const std::string missing = fmt::format("{}{}{}", before, files.size(), after);
  if (std::find(files.begin(), files.end(), name) == files.end() || files.size() < 2) {
    throw usage_error(
        fmt::format("'{}' is not the file of one of several ranks: '{}' is missing", name, missing),
        "put the files of all ranks into one folder");
  }
  return files;
}

std::string rank_name(size_t rank) { return fmt::format("rank{}", rank); }

/// Describes the ranks' runs as one.
RunInfo joined_run(const std::vector<RunView>& ranks, const std::vector<std::string>& files) {
  RunInfo run = ranks[0].info();
  run.lanes.clear();
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const RunInfo& own = ranks[rank].info();
    if (own.lanes.size() != 1 || !is_capture(own.lanes[0].backend)) {
      throw usage_error(fmt::format("'{}' was not recorded in PyTorch or Keras", files[rank]),
                        "name files that hs.watch() wrote in a training with several processes");
    }
    if (own.optimizer != run.optimizer || own.every != run.every ||
        own.lanes[0].backend != ranks[0].lane(0).backend) {
      throw usage_error(
          fmt::format("'{}' and '{}' are of different trainings", files[0], files[rank]),
          "put only files of one training into the folder");
    }
    if (ranks[rank].status() == RunStatus::running) {
      throw usage_error(fmt::format("'{}' is still being written", files[rank]),
                        "wait until the training has ended");
    }
    run.lanes.push_back(own.lanes[0]);
    run.lanes.back().name = rank_name(rank);
  }
  run.batch *= static_cast<int64_t>(ranks.size());
  return run;
}

/// Returns the statistics of all sites of a rank whose window begins at this step; empty without
/// any. A skipped step has no updates.
std::vector<TensorStats> stats_at(const RunView& rank, int64_t step) {
  std::vector<TensorStats> all(rank.lane(0).sites.size());
  bool any = false;
  for (size_t site = 0; site < all.size(); ++site) {
    const auto window = rank.windows(0, static_cast<int>(site)).find(step);
    if (!window || window->step != step) continue;
    all[site] = window->stats();
    any = true;
  }
  return any ? all : std::vector<TensorStats>{};
}

/// Writes the steps of all ranks. A rank whose file ends early is a failed lane from then on.
int64_t write_ranks(Recorder& recorder, const std::vector<RunView>& ranks,
                    const std::vector<std::string>& files) {
  int64_t steps = 0;
  for (const RunView& rank : ranks) {
    steps = std::max(steps, static_cast<int64_t>(rank.steps(0).size()));
  }
  std::vector<bool> ended(ranks.size(), false);
  for (int64_t step = 0; step < steps; ++step) {
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      const std::span<const StepRow> rows = ranks[rank].steps(0);
      if (step < static_cast<int64_t>(rows.size()) || ended[rank]) continue;
      ended[rank] = true;
      recorder.lost(static_cast<int>(rank), step, fmt::format("'{}' ends here", files[rank]));
    }
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      if (ended[rank]) continue;
      const StepRow& row = ranks[rank].steps(0)[static_cast<size_t>(step)];
      recorder.step(static_cast<int>(rank), row, stats_at(ranks[rank], row.step));
    }
  }
  return steps;
}

/// A site by name, and its number in each rank; -1 where a rank does not have it.
using SharedSites = std::vector<std::pair<std::string, std::vector<int>>>;

SharedSites shared_sites(const std::vector<RunView>& ranks) {
  SharedSites sites;
  std::map<std::string, size_t> places;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const SiteInfo& site : ranks[rank].lane(0).sites) {
      const auto [place, fresh] = places.emplace(site.name(), sites.size());
      if (fresh) sites.emplace_back(site.name(), std::vector<int>(ranks.size(), -1));
      sites[place->second].second[rank] = site.order;
    }
  }
  return sites;
}

/// The first tensor of a rank that is not finite.
struct FirstBadRank {
  int64_t step = 0;
  int site = 0;
  size_t rank = 0;
};

/// Returns the earliest of all ranks; in the same step, the earliest in the order of execution.
std::optional<FirstBadRank> find_first_bad(const std::vector<RunView>& ranks) {
  std::optional<FirstBadRank> first;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const StepRow& row : ranks[rank].steps(0)) {
      if (row.first_bad < 0) continue;
      if (!first || std::tie(row.step, row.first_bad) < std::tie(first->step, first->site)) {
        first = FirstBadRank{row.step, row.first_bad, rank};
      }
      break;
    }
  }
  return first;
}

/// A layer in which the ranks' shares of NaN, infinities and overflow differ.
struct WorstRank {
  double most = 0.0, least = 1.0;
  size_t rank = 0;
  std::string tensor{};
};

/// Compares a site in all ranks; returns the largest and the smallest share.
WorstRank compare_ranks(const std::vector<RunView>& ranks, const std::vector<int>& sites) {
  WorstRank worst;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (sites[rank] < 0) continue;
    const TensorStats& total = ranks[rank].total(0, sites[rank]);
    if (total.n == 0) continue;
    const double share =
        static_cast<double>(total.non_finite() + total.overflow) / static_cast<double>(total.n);
    if (share > worst.most) {
      worst.rank = rank;
      worst.tensor = ranks[rank].lane(0).sites[static_cast<size_t>(sites[rank])].tensor;
    }
    worst.most = std::max(worst.most, share);
    worst.least = std::min(worst.least, share);
  }
  return worst;
}

/// Returns a line for each layer in which the ranks differ, by the tensor that differs most.
std::string lines_of_layers(const std::vector<RunView>& ranks, const SharedSites& sites) {
  std::vector<std::pair<std::string, WorstRank>> layers;
  for (const auto& [name, numbers] : sites) {
    const WorstRank worst = compare_ranks(ranks, numbers);
    if (!(worst.most > worst.least)) continue;
    const std::string path = name.substr(0, name.size() - worst.tensor.size() - 1);
    const auto found = std::find_if(layers.begin(), layers.end(),
                                    [&](const auto& each) { return each.first == path; });
    if (found == layers.end()) {
      layers.emplace_back(path, worst);
    } else if (worst.most - worst.least > found->second.most - found->second.least) {
      found->second = worst;
    }
  }
  std::string text;
  for (const auto& [path, worst] : layers) {
    text += fmt::format(
        "  {}: rank {} is worst: {} of {} is NaN, infinite or overflows, {} in the "
        "best rank\n",
        path, worst.rank, percent(worst.most), worst.tensor, percent(worst.least));
  }
  return text;
}

/// The first step before which a weight differs between ranks.
struct WeightDrift {
  int64_t step = 0;
  std::string site;
  size_t rank = 0;
};

/// Returns where weights that all ranks should share begin to differ.
std::optional<WeightDrift> find_drift(const std::vector<RunView>& ranks, const SharedSites& sites) {
  std::optional<WeightDrift> first;
  for (const auto& [name, numbers] : sites) {
    if (std::find(numbers.begin(), numbers.end(), -1) != numbers.end()) continue;
    if (ranks[0].lane(0).sites[static_cast<size_t>(numbers[0])].role != Role::weight) continue;
    for (const StatsWindow window : ranks[0].windows(0, numbers[0])) {
      if (first && window.step >= first->step) break;
      for (size_t rank = 1; rank < ranks.size(); ++rank) {
        const auto other = ranks[rank].windows(0, numbers[rank]).find(window.step);
        if (!other || other->step != window.step || other->step_count != window.step_count)
          continue;
        const TensorStats theirs = other->stats();
        const auto key = [](const TensorStats& s) {
          return std::tuple{s.sum, s.sum_sq, s.max_abs, s.non_finite(), s.zero};
        };
        if (theirs.n == 0 || window.stats.n == 0 || key(theirs) == key(window.stats)) continue;
        first = WeightDrift{window.step, name, rank};
        break;
      }
    }
  }
  return first;
}

}  // namespace

bool is_rank_file(const std::string& name) { return rank_name_parts(name).has_value(); }

std::string merge_rank_runs(const std::string& name, const std::string& out, bool force) {
  const std::vector<std::string> files = rank_files(name);
  check_files({.read = files, .written = {out}}, force);
  std::vector<RunView> ranks;
  for (const std::string& file : files) ranks.push_back(RunView::open(file));
  const RunInfo run = joined_run(ranks, files);
  Recorder recorder(out, {.force = force});
  recorder.begin(run);
  const int64_t steps = write_ranks(recorder, ranks, files);
  const bool complete = std::all_of(ranks.begin(), ranks.end(), [](const RunView& rank) {
    return rank.status() == RunStatus::complete;
  });
  recorder.end(complete ? RunEnd::complete : RunEnd::interrupted);

  const SharedSites sites = shared_sites(ranks);
  std::string text =
      fmt::format("{}: {}, {}\n", out, counted(static_cast<int64_t>(ranks.size()), "rank"),
                  counted(steps, "step"));
  if (const auto bad = find_first_bad(ranks)) {
    const SiteInfo& site = ranks[bad->rank].lane(0).sites[static_cast<size_t>(bad->site)];
    text += fmt::format("  first NaN, infinity or overflow: rank {}, {}, step {}\n", bad->rank,
                        site.name(), bad->step);
  }
  text += lines_of_layers(ranks, sites);
  // Ranks that share out the weights name their part in the name of the model.
  const bool shared = std::all_of(ranks.begin(), ranks.end(), [&](const RunView& rank) {
    return rank.info().model == ranks[0].info().model;
  });
  if (!shared) return text + "  weights: each rank recorded its own part\n";
  if (const auto drift = find_drift(ranks, sites)) {
    return text +
           fmt::format("  weights: differ from step {} on, first in {} (rank {} and rank 0)\n",
                       drift->step, drift->site, drift->rank);
  }
  return text + "  weights: the same in all ranks, in every recorded step\n";
}

}  // namespace halfscope
