// SPDX-License-Identifier: MIT
#include "cli/tasks/inspect_tensors.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <tuple>

#include "analysis/export/csv_field.h"
#include "analysis/what_if.h"
#include "cli/tasks/tensor_verdict.h"
#include "cli/terminal/lane_summary.h"
#include "cli/terminal/output.h"
#include "core/data/tensor_file.h"
#include "core/error.h"
#include "core/numeric/statistics/rates.h"
#include "emulation/measure/format_losses.h"

namespace halfscope {
namespace {

namespace fs = std::filesystem;

/// The largest shift of a scale that is considered, in either direction.
constexpr int kMostShift = 126;

std::vector<TargetFormat> parse_targets(const std::string& text) {
  std::vector<TargetFormat> targets;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string name = text.substr(begin, end - begin);
    begin = end + 1;
    TargetFormat target{.name = name};
    if (const auto format = parse_format(name)) {
      target.format = *format;
    } else {
      target.blocks = parse_block_format(name == "mxfp8" ? "mxfp8_e4m3" : name);
      if (!target.blocks) {
        throw usage_error("--format '" + name + "': " + format_problem(name),
                          "write for example --format fp16,bf16,e4m3fn,mxfp8_e4m3");
      }
      target.format = target.blocks->element;
    }
    for (const TargetFormat& other : targets) {
      if (other.name == name) throw usage_error("--format names " + name + " twice");
    }
    targets.push_back(std::move(target));
  }
  return targets;
}

struct Found {
  std::vector<fs::path> files;
  int64_t others = 0, outside = 0;  ///< files of folders that are not read
};

/// Adds the files of tensors below a folder. Links are followed only to files inside of it.
void add_folder(const fs::path& folder, Found& found) {
  std::error_code code;
  const fs::path root = fs::canonical(folder, code);
  fs::recursive_directory_iterator at(folder, code);
  std::vector<fs::path> files;
  for (; !code && at != fs::recursive_directory_iterator(); at.increment(code)) {
    std::error_code unreadable;
    if (at->is_symlink(unreadable)) {
      const fs::path target = fs::canonical(at->path(), unreadable);
      const auto [in_root, in_target] =
          std::mismatch(root.begin(), root.end(), target.begin(), target.end());
      if (unreadable || in_root != root.end()) {
        ++found.outside;
        continue;
      }
    }
    if (!at->is_regular_file(unreadable)) continue;
    const fs::path extension = at->path().extension();
    const std::optional<TensorFileKind> kind = tensor_file_kind(at->path());
    // Many other files are ZIP archives, too.
    if (!kind || (*kind == TensorFileKind::npz && extension != ".npz" && extension != ".npy")) {
      ++found.others;
      continue;
    }
    files.push_back(at->path());
  }
  if (code) {
    throw Error("cannot read the folder '" + folder.string() + "': " + code.message(),
                "check the path and its permissions");
  }
  std::sort(files.begin(), files.end());
  found.files.insert(found.files.end(), files.begin(), files.end());
}

std::string percent_of(int64_t part, int64_t whole) {
  if (part == 0) return "0%";
  const double share = 100.0 * share_of(part, whole);
  return share < 0.01 ? "<0.01%" : fmt::format("{:.3g}%", share);
}

double sqnr_db(const FormatLoss& loss) {
  return 10.0 * std::log10(loss.signal / loss.error);  // infinite without an error
}

Json details_of(const TensorLosses& tensor, const std::vector<TargetFormat>& targets,
                const ArrayLosses& losses, const FloatFormat& base) {
  Json json{{"file", tensor.file},
            {"name", tensor.name},
            {"dtype", tensor.type},
            {"shape", tensor.shape},
            {"values", tensor.n},
            {"zeros", losses.stats.zero},
            {"nan", losses.stats.nan},
            {"pos_inf", losses.stats.pos_inf},
            {"neg_inf", losses.stats.neg_inf},
            {"smallest", std::isfinite(losses.smallest) ? Json(losses.smallest) : Json()},
            {"largest", losses.largest},
            {"distinct", losses.distinct ? Json(*losses.distinct) : Json()}};
  Json formats = Json::array();
  for (size_t t = 0; t < targets.size(); ++t) {
    const FormatLoss& loss = losses.formats[t];
    Json each{{"format", targets[t].name}};
    const Json sqnr = loss.signal > 0 ? json_number(sqnr_db(loss)) : Json();
    if (targets[t].blocks) {
      each.update({{"clipped", loss.overflow},
                   {"clipped_share", share_of(loss.overflow, tensor.n)},
                   {"underflow", loss.underflow},
                   {"nan_blocks", loss.nan_blocks},
                   {"sqnr_db", sqnr}});
    } else {
      each.update({{"overflow", loss.overflow},
                   {"underflow", loss.underflow},
                   {"subnormal", loss.subnormal},
                   {"sqnr_db", sqnr}});
      const bool any = losses.stats.max_abs > 0;
      each["best_scale_log2"] =
          any ? Json(fitting_shift(losses.stats, base, targets[t].format, kMostShift)) : Json();
    }
    formats.push_back(std::move(each));
  }
  json["formats"] = std::move(formats);
  Json bins = Json::object();
  for (int i = 0; i < kExponentBins; ++i) {
    const int64_t count = losses.stats.exponents[static_cast<size_t>(i)];
    if (count > 0) bins[std::to_string(i + kMinExponentBin)] = count;
  }
  json["histogram"] = std::move(bins);
  return json;
}

TensorLosses summary_of(const std::string& file, const StoredArray& array,
                        const ArrayLosses& losses, const std::vector<TargetFormat>& targets,
                        const TargetFormat* main, const FloatFormat& base) {
  TensorLosses tensor{.file = file,
                      .name = array.name,
                      .type = stored_name(array.type),
                      .shape = array.shape,
                      .integer = is_integer(array.type),
                      .n = losses.stats.n,
                      .zero = losses.stats.zero,
                      .nan = losses.stats.nan,
                      .infinite = losses.stats.pos_inf + losses.stats.neg_inf,
                      .smallest = losses.smallest,
                      .largest = losses.largest,
                      .formats = losses.formats};
  tensor.non_zero = non_zero_values(losses.stats);
  const auto at_most = [&](const WhatIf& what) {
    const int64_t underflow = what.underflow.high + what.ties;
    return ValueLoss{what.overflow.high, underflow, flushed_energy(losses.stats, underflow)};
  };
  if (main != nullptr && tensor.non_zero > 0) {
    const auto at = static_cast<size_t>(main - targets.data());
    tensor.main = losses.formats[at];
    const ValueLoss loss{tensor.main.overflow, tensor.main.underflow,
                         flushed_energy(losses.stats, tensor.main.underflow)};
    tensor.lossy = loss.matters(main->format, tensor.non_zero);
    tensor.shift = fitting_shift(losses.stats, base, main->format, kMostShift);
    tensor.scaled = at_most(what_if(losses.stats, base, main->format, tensor.shift));
    tensor.bf16 = at_most(what_if(losses.stats, base, kBf16, 0));
  }
  return tensor;
}

std::string table_of(const std::vector<TensorLosses>& tensors,
                     const std::vector<TargetFormat>& targets, size_t top, bool files) {
  std::vector<std::vector<std::string>> rows{{"tensor", "type", "shape", "range", "zeros"}};
  std::vector<bool> to_the_right{false, false, false, false, true};
  for (const TargetFormat& target : targets) {
    rows[0].insert(rows[0].end(), {target.name + (target.blocks ? " clip" : " over"), "under"});
    to_the_right.insert(to_the_right.end(), 2, true);
    if (target.blocks) continue;
    rows[0].push_back("subn");
    to_the_right.push_back(true);
  }
  rows[0].push_back("NaN/inf");
  to_the_right.push_back(true);
  for (size_t i = 0; i < std::min(top, tensors.size()); ++i) {
    const TensorLosses& tensor = tensors[i];
    std::vector<std::string> row{
        tensor.shown(files), tensor.type, to_string(tensor.shape),
        tensor.n == 0          ? "empty"
        : tensor.non_zero == 0 ? "-"
                               : fmt::format("{:.3g} to {:.3g}", tensor.smallest, tensor.largest),
        percent_of(tensor.zero, tensor.n)};
    for (size_t t = 0; t < targets.size(); ++t) {
      const FormatLoss& loss = tensor.formats[t];
      row.push_back(percent_of(loss.overflow, tensor.n));
      row.push_back(percent_of(loss.underflow, tensor.non_zero));
      if (!targets[t].blocks) row.push_back(percent_of(loss.subnormal, tensor.non_zero));
    }
    row.push_back(std::to_string(tensor.nan + tensor.infinite));
    rows.push_back(std::move(row));
  }
  std::string text = aligned(rows, to_the_right, output_width());
  if (top < tensors.size()) text += fmt::format("... and {} more\n", tensors.size() - top);
  return text;
}

std::string csv_of(const std::vector<TensorLosses>& tensors,
                   const std::vector<TargetFormat>& targets) {
  std::string text =
      "file,tensor,dtype,shape,values,zeros,nan,inf,smallest,largest,format,overflow,underflow,"
      "subnormal,nan_blocks\r\n";
  for (const TensorLosses& tensor : tensors) {
    for (size_t t = 0; t < targets.size(); ++t) {
      const FormatLoss& loss = tensor.formats[t];
      text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\r\n",
                          csv_field(tensor.file), csv_field(visible_name(tensor.name)), tensor.type,
                          csv_field(to_string(tensor.shape)), tensor.n, tensor.zero, tensor.nan,
                          tensor.infinite,
                          std::isfinite(tensor.smallest) ? fmt::format("{}", tensor.smallest) : "",
                          tensor.largest, csv_field(targets[t].name), loss.overflow, loss.underflow,
                          loss.subnormal, loss.nan_blocks);
    }
  }
  return text;
}

}  // namespace

bool is_tensor_path(const std::string& path) {
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  if (fs::is_directory(status)) return true;
  // A missing file is known by the end of its name.
  const bool readable = fs::is_regular_file(status) || !fs::exists(status);
  return readable && tensor_file_kind(path).has_value();
}

int inspect_tensors(const std::vector<std::string>& paths, const InspectOptions& options,
                    bool json) {
  const std::vector<TargetFormat> targets = parse_targets(options.formats);
  if (json && options.csv == kStandardOutput) {
    throw usage_error("--json and --csv - both write to standard output", "use a file for --csv");
  }
  if (options.threads > 0) omp_set_num_threads(options.threads);
  const auto plain = std::find_if(targets.begin(), targets.end(),
                                  [](const TargetFormat& each) { return !each.blocks; });
  const TargetFormat* const main = plain == targets.end() ? nullptr : &*plain;
  const FloatFormat base = main != nullptr ? main->format : kFp32;
  Found found;
  for (const std::string& path : paths) {
    std::error_code code;
    if (fs::is_directory(path, code)) {
      add_folder(path, found);
    } else {
      found.files.emplace_back(path);
    }
  }
  if (found.files.empty()) {
    throw usage_error("no .npy, .npz or .safetensors file in '" + paths[0] + "'",
                      "name a file or a folder that contains such files");
  }
  CommandFiles files{.written = {options.csv}};
  for (const fs::path& path : found.files) files.read.push_back(path.string());
  check_files(files, options.force);

  std::vector<TensorLosses> tensors;
  Json list = Json::array();
  for (const fs::path& path : found.files) {
    measure_losses(
        TensorFile(path), targets, json, [&](const StoredArray& array, const ArrayLosses& losses) {
          tensors.push_back(summary_of(path.string(), array, losses, targets, main, base));
          if (json) list.push_back(details_of(tensors.back(), targets, losses, base));
        });
  }
  judge_floats_first(tensors);
  std::vector<size_t> order(tensors.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return tensors[a].badness() > tensors[b].badness(); });
  std::vector<TensorLosses> sorted;
  Json worst_first = Json::array();
  for (const size_t i : order) {
    if (json) {
      list[i]["judged"] = tensors[i].judged;
      worst_first.push_back(std::move(list[i]));
    }
    sorted.push_back(std::move(tensors[i]));
  }
  const size_t top = options.top ? static_cast<size_t>(*options.top) : sorted.size();
  if (!options.csv.empty()) write_result(options.csv, csv_of(sorted, targets), options.force);
  const bool several = found.files.size() > 1;
  const std::vector<std::string> verdict = tensor_verdict(sorted, main, several);
  if (json) {
    if (top < worst_first.size()) {
      worst_first.erase(worst_first.begin() + static_cast<std::ptrdiff_t>(top), worst_first.end());
    }
    write_json(Json{{"schema", "halfscope.tensor-losses/1"},
                    {"version", HALFSCOPE_VERSION},
                    {"files", found.files.size()},
                    {"tensors", worst_first},
                    {"verdict", verdict}});
    return 0;
  }
  std::string text = sorted.empty() ? "" : table_of(sorted, targets, top, several) + "\n";
  for (const std::string& line : verdict) text += paragraph(line, text_style(1), 0, 0);
  if (found.others > 0) {
    text += fmt::format("{} other file{} skipped.\n", found.others, found.others > 1 ? "s" : "");
  }
  if (found.outside > 0) {
    text += fmt::format("{} link{} out of the folder skipped.\n", found.outside,
                        found.outside > 1 ? "s" : "");
  }
  write_message(text, options.csv == kStandardOutput);
  return 0;
}

}  // namespace halfscope
