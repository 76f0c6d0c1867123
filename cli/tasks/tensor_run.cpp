// SPDX-License-Identifier: MIT
#include "cli/tasks/tensor_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "analysis/recorder.h"
#include "analysis/rules/text.h"
#include "cli/args/config_file.h"
#include "cli/terminal/output.h"
#include "core/data/tensor_file.h"
#include "core/error.h"
#include "core/numeric/formats/round.h"
#include "core/plan/plan.h"
#include "emulation/measure/measure.h"

namespace halfscope {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAbout = "run.json";
constexpr const char* kTensorsSchema = "halfscope.tensors/1";
constexpr int64_t kLastStep = 1'000'000'000;

/// A kind of tensor in names of files, and what the run file calls it.
struct NamedRole {
  const char* name;
  const char* tensor;
  Role role;
  Phase phase;
};
constexpr std::array kRoles{
    NamedRole{"weight", "weight", Role::weight, Phase::forward},
    NamedRole{"activation", "activation", Role::activation, Phase::forward},
    NamedRole{"activation_gradient", "activation_grad", Role::activation_grad, Phase::backward},
    NamedRole{"gradient", "weight_grad", Role::weight_grad, Phase::backward},
    NamedRole{"update", "weight_update", Role::update, Phase::update}};

/// Where the values of a tensor are.
struct TensorPlace {
  size_t file = 0, array = 0;
};

/// Module and index in kRoles.
using Key = std::pair<std::string, size_t>;

struct FolderLayer {
  std::string op = "Unknown";
  std::vector<std::string> inputs{};
};

/// A file of the folder. It is open only while it is read: there may be more files than a program
/// may have open.
struct FolderFile {
  fs::path path;
  std::vector<StoredArray> arrays;
};

struct TensorFolder {
  std::string name;
  std::vector<FolderFile> files{};
  std::map<int64_t, std::map<Key, TensorPlace>> steps{};
  std::vector<std::string> modules{};  // in the order of the network
  std::map<std::string, FolderLayer> layers{};
  std::map<int64_t, StepRow> rows{};
  std::string model = "model", framework = "pytorch";
  int64_t others = 0;
};

Error folder_error(const TensorFolder& folder, const std::string& what) {
  return Error(fmt::format("folder '{}': {}", folder.name, what),
               "tensors are named STEP.MODULE.ROLE, for example 0.fc1.activation.npy; see the page "
               "about folders of tensors");
}

FloatFormat stored_format(const TensorFolder& folder, const StoredArray& array,
                          const std::string& name) {
  switch (array.type) {
    case StoredType::f64:
    case StoredType::f32:
      return kFp32;
    case StoredType::f16:
      return kFp16;
    case StoredType::bf16:
      return kBf16;
    case StoredType::e4m3:
      return kE4m3fn;
    case StoredType::e5m2:
      return kE5m2;
    default:
      throw folder_error(folder, fmt::format("'{}' has type {}, which is not a floating-point type",
                                             visible_name(name), stored_name(array.type)));
  }
}

/// Adds a tensor under its name "STEP.MODULE.ROLE".
void add_tensor(TensorFolder& folder, const std::string& name, TensorPlace place) {
  const std::string shown = visible_name(name);
  const auto bad = [&](const char* why) {
    return folder_error(folder, fmt::format("'{}' {}", shown, why));
  };
  const size_t first = name.find('.'), last = name.rfind('.');
  if (first == std::string::npos || last <= first + 1) throw bad("is not STEP.MODULE.ROLE");
  int64_t step = -1;
  const char* const end = name.data() + first;
  const auto [stop, failed] = std::from_chars(name.data(), end, step);
  if (failed != std::errc() || stop != end || step < 0 || step > kLastStep) {
    throw bad("does not begin with the number of a step");
  }
  const std::string module = name.substr(first + 1, last - first - 1);
  if (visible_name(module) != module) throw bad("has a module whose name cannot be printed");
  const std::string role = name.substr(last + 1);
  const auto found = std::find_if(kRoles.begin(), kRoles.end(),
                                  [&](const NamedRole& each) { return role == each.name; });
  if (found == kRoles.end()) {
    throw bad("does not end with activation, weight, gradient, activation_gradient or update");
  }
  const Key key{module, static_cast<size_t>(found - kRoles.begin())};
  if (!folder.steps[step].emplace(key, place).second) throw bad("is there twice");
}

/// Throws Error if a link leads out of the folder: its target may be anything.
void check_link(const TensorFolder& folder, const fs::path& root, const fs::path& file) {
  std::error_code failed;
  const fs::path target = fs::canonical(file, failed);
  const auto [in_root, unused] =
      std::mismatch(root.begin(), root.end(), target.begin(), target.end());
  if (failed || in_root != root.end()) {
    throw folder_error(folder, fmt::format("'{}' is a link to something outside the folder",
                                           visible_name(file.filename().string())));
  }
}

void read_files(TensorFolder& folder) {
  std::error_code failed;
  const fs::path root = fs::canonical(folder.name, failed);
  std::vector<fs::path> files;
  fs::directory_iterator at(folder.name, failed);
  for (; !failed && at != fs::directory_iterator(); at.increment(failed)) {
    files.push_back(at->path());
  }
  if (failed) throw folder_error(folder, "cannot read it: " + failed.message());
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) {
    const std::string extension = file.extension().string();
    if (file.filename() == kAbout) continue;
    const bool named = extension == ".npy" || extension == ".safetensors";
    if (named) check_link(folder, root, file);
    if (!named || !fs::is_regular_file(file, failed)) {  // a pipe would never end
      ++folder.others;
      continue;
    }
    const TensorFile tensors(file);
    if (!tensors.is_plain()) {
      throw folder_error(folder,
                         fmt::format("'{}' is an archive", visible_name(file.filename().string())));
    }
    folder.files.push_back({file, tensors.arrays()});
    for (size_t i = 0; i < tensors.arrays().size(); ++i) {
      const std::string name =
          extension == ".npy" ? file.stem().string() : tensors.arrays()[i].name;
      add_tensor(folder, name, {folder.files.size() - 1, i});
    }
  }
  if (folder.steps.empty()) throw folder_error(folder, "it has no .npy or .safetensors files");
}

std::string text_in(const TensorFolder& folder, const Json& json, const char* key,
                    const std::string& usual) {
  if (!json.contains(key)) return usual;
  if (!json[key].is_string() || visible_name(json[key].get<std::string>()) != json[key]) {
    throw folder_error(folder, fmt::format("{}: \"{}\" is not a text", kAbout, key));
  }
  return json[key].get<std::string>();
}

double number_in(const TensorFolder& folder, const Json& json, const char* key, double usual) {
  if (!json.contains(key)) return usual;
  const std::string word = json[key].is_string() ? json[key].get<std::string>() : "";
  if (word == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (word == "inf" || word == "-inf") return word == "inf" ? INFINITY : -INFINITY;
  if (!json[key].is_number()) {
    throw folder_error(folder, fmt::format("{}: \"{}\" is not a number", kAbout, key));
  }
  return json[key].get<double>();
}

void read_layer(TensorFolder& folder, const Json& json) {
  const std::string path = text_in(folder, json, "path", "");
  if (path.empty()) throw folder_error(folder, fmt::format("{}: a layer has no path", kAbout));
  FolderLayer layer{.op = text_in(folder, json, "operator", "Unknown")};
  const Json inputs = json.contains("inputs") ? json["inputs"] : Json::array();
  if (!inputs.is_array()) {
    throw folder_error(folder, fmt::format("{}: \"inputs\" is not a list", kAbout));
  }
  for (const Json& each : inputs) {
    if (!each.is_string()) {
      throw folder_error(folder, fmt::format("{}: \"inputs\" is not a list of texts", kAbout));
    }
    layer.inputs.push_back(each.get<std::string>());
  }
  if (!folder.layers.emplace(path, std::move(layer)).second) {
    throw folder_error(folder, fmt::format("{}: layer '{}' is there twice", kAbout, path));
  }
  folder.modules.push_back(path);
}

void read_step(TensorFolder& folder, const Json& json) {
  const double step = number_in(folder, json, "step", -1.0);
  if (!(step >= 0.0 && step <= static_cast<double>(kLastStep)) || step != std::floor(step)) {
    throw folder_error(folder, fmt::format("{}: a step has no number", kAbout));
  }
  const double none = std::numeric_limits<double>::quiet_NaN();
  StepRow row{.step = static_cast<int64_t>(step), .loss = none, .grad_norm = none};
  row.loss = number_in(folder, json, "loss", none);
  row.loss_scale = number_in(folder, json, "loss_scale", 1.0);
  row.learning_rate = number_in(folder, json, "learning_rate", none);
  row.skipped = json.contains("skipped") && json["skipped"] == true;
  if (!folder.rows.emplace(row.step, row).second) {
    throw folder_error(folder, fmt::format("{}: step {} is there twice", kAbout, row.step));
  }
}

/// Reads run.json, which is optional.
void read_about(TensorFolder& folder) {
  const fs::path file = fs::path(folder.name) / kAbout;
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(file, ignored))) return;
  check_link(folder, fs::canonical(folder.name, ignored), file);
  const Json json = read_json(file.string());
  if (!json.is_object() || !json.contains("schema") || json["schema"] != kTensorsSchema) {
    throw folder_error(folder,
                       fmt::format("{} does not say \"schema\": \"{}\"", kAbout, kTensorsSchema));
  }
  folder.model = text_in(folder, json, "model", folder.model);
  folder.framework = text_in(folder, json, "framework", folder.framework);
  if (folder.framework != "pytorch" && folder.framework != "keras") {
    throw folder_error(folder, fmt::format("{}: \"framework\" is not pytorch or keras", kAbout));
  }
  for (const auto& [key, read] : {std::pair{"layers", &read_layer}, {"steps", &read_step}}) {
    if (!json.contains(key)) continue;
    if (!json[key].is_array()) {
      throw folder_error(folder, fmt::format("{}: \"{}\" is not a list", kAbout, key));
    }
    for (const Json& each : json[key]) {
      if (!each.is_object()) {
        throw folder_error(folder, fmt::format("{}: \"{}\" is not a list of objects", kAbout, key));
      }
      read(folder, each);
    }
  }
}

/// Returns all modules in the order of run.json; those that it does not name follow by name.
void order_modules(TensorFolder& folder) {
  std::set<std::string> rest;
  for (const auto& [step, tensors] : folder.steps) {
    for (const auto& [key, place] : tensors) {
      if (!folder.layers.contains(key.first)) rest.insert(key.first);
    }
  }
  for (const std::string& path : rest) {
    folder.layers[path];
    folder.modules.push_back(path);
  }
}

const StoredArray& array_at(const TensorFolder& folder, TensorPlace place) {
  return folder.files[place.file].arrays[place.array];
}

/// Reads the values of a folder's tensors. The last file stays open, because a file may have many.
class FolderReader {
 public:
  explicit FolderReader(const TensorFolder& folder) : folder_(folder) {}

  std::vector<float> values(TensorPlace place) {
    if (!open_ || place.file != file_) {
      open_ = std::make_unique<TensorFile>(folder_.files[place.file].path);
      file_ = place.file;
    }
    const StoredArray& array = array_at(folder_, place);
    raw_.resize(array.bytes());
    open_->read(array, 0, raw_);
    std::vector<float> values(static_cast<size_t>(array.count));
    decode_values(raw_, array.type, array.big_endian, values.data());
    return values;
  }

 private:
  const TensorFolder& folder_;
  std::unique_ptr<TensorFile> open_;
  size_t file_ = 0;
  std::vector<uint8_t> raw_;
};

/// Returns the sites in execution order, with the format and shape of their first tensor.
std::vector<std::pair<Key, SiteInfo>> sites_of(const TensorFolder& folder) {
  std::map<Key, SiteInfo> found;
  for (const auto& [step, tensors] : folder.steps) {
    for (const auto& [key, place] : tensors) {
      const NamedRole& role = kRoles[key.second];
      const std::string name = fmt::format("{}.{}.{}", step, key.first, role.name);
      const StoredArray& array = array_at(folder, place);
      const FloatFormat format = stored_format(folder, array, name);
      SiteInfo site{.path = key.first,
                    .tensor = role.tensor,
                    .role = role.role,
                    .phase = role.phase,
                    .op = folder.layers.at(key.first).op,
                    .format = format,
                    .shape = array.shape};
      const auto [at, fresh] = found.emplace(key, std::move(site));
      if (!fresh && !(at->second.format == format)) {
        throw folder_error(folder,
                           fmt::format("'{}' is {}, but in an earlier step it is {}", name,
                                       format_name(format), format_name(at->second.format)));
      }
    }
  }
  // Forward in the network's order, then backward against it, then updates.
  std::map<std::string, int64_t> rank;
  for (const std::string& path : folder.modules)
    rank.emplace(path, static_cast<int64_t>(rank.size()));
  std::vector<std::pair<Key, SiteInfo>> sites(found.begin(), found.end());
  std::stable_sort(sites.begin(), sites.end(), [&](const auto& a, const auto& b) {
    const auto key = [&](const auto& each) {
      const int64_t at = rank.at(each.first.first);
      return std::tuple{each.second.phase, each.second.phase == Phase::backward ? -at : at,
                        each.first.second};
    };
    return key(a) < key(b);
  });
  for (size_t i = 0; i < sites.size(); ++i) sites[i].second.order = static_cast<int>(i);
  return sites;
}

/// Returns the format of a module's outputs: of its activations, else of its weights.
FloatFormat format_of_layer(const std::vector<std::pair<Key, SiteInfo>>& sites,
                            const std::string& path) {
  for (const Role role : {Role::activation, Role::weight}) {
    for (const auto& [key, site] : sites) {
      if (site.path == path && site.role == role) return site.format;
    }
  }
  return kFp32;
}

std::string escaped_path(const std::string& path) {
  std::string text = "\\";
  for (const char each : path) {
    if (each == '*' || each == '?' || each == '\\') text += '\\';
    text += each;
  }
  return text;
}

/// Returns the lane: its layers, its sites and the plan that their formats amount to.
LaneInfo lane_of(const TensorFolder& folder, const std::vector<std::pair<Key, SiteInfo>>& sites) {
  LaneInfo lane;
  lane.name = "float32";
  lane.backend = folder.framework;
  lane.loss_scale = "none";
  std::string narrow;
  Json rules = Json::array();
  for (const std::string& path : folder.modules) {
    const FloatFormat format = format_of_layer(sites, path);
    const FolderLayer& layer = folder.layers.at(path);
    lane.layers.push_back(
        {.path = path, .op = layer.op, .inputs = layer.inputs, .read = format, .write = format});
    if (format == kFp32) continue;
    if (narrow.empty()) narrow = format_name(format);
    rules.push_back({{"path", escaped_path(path)}, {"format", format_name(format)}});
  }
  std::string storage = "fp32";
  for (const auto& [key, site] : sites) {
    if (site.role == Role::weight) storage = format_name(site.format);
    lane.sites.push_back(site);
  }
  if (!narrow.empty()) lane.name = storage == "fp32" ? "mixed_" + narrow : narrow;
  const Json plan{
      {"schema", "halfscope.plan/1"},
      {"name", lane.name},
      {"default", {{"read", "fp32"}, {"write", "fp32"}, {"accumulate", "fp32"}, {"mode", "fused"}}},
      {"variables", {{"storage", storage}}},
      {"rules", rules}};
  lane.plan_json = plan.dump();
  return lane;
}

/// Returns the statistics of a tensor. Elements of an update that are 0 although their gradient is
/// not are lost updates.
TensorStats measured_tensor(const TensorFolder& folder, FolderReader& reader,
                            const std::map<Key, TensorPlace>& tensors, const Key& key,
                            const FloatFormat& format) {
  const auto found = tensors.find(key);
  if (found == tensors.end()) return {};
  const std::vector<float> values = reader.values(found->second);
  TensorStats stats =
      measure_tensor(values.data(), nullptr, static_cast<int64_t>(values.size()), format);
  if (kRoles[key.second].role != Role::update) return stats;
  for (size_t i = 0; i < kRoles.size(); ++i) {
    const auto gradient = tensors.find({key.first, i});
    if (kRoles[i].role != Role::weight_grad || gradient == tensors.end()) continue;
    if (array_at(folder, gradient->second).shape != array_at(folder, found->second).shape) continue;
    const std::vector<float> other = reader.values(gradient->second);
    for (size_t e = 0; e < values.size(); ++e) {
      stats.lost += values[e] == 0.0f && other[e] != 0.0f && !std::isnan(other[e]);
    }
    stats.zero -= stats.lost;
  }
  return stats;
}

/// Returns a row with the norm of the gradients and the first site that is not finite.
StepRow folder_row(const TensorFolder& folder, int64_t step, const LaneInfo& lane,
                   const std::vector<TensorStats>& stats) {
  const double none = std::numeric_limits<double>::quiet_NaN();
  StepRow row{.step = step, .loss = none, .grad_norm = none};
  if (const auto given = folder.rows.find(step); given != folder.rows.end()) row = given->second;
  double squares = 0.0;
  bool any = false, finite = true;
  for (size_t i = 0; i < stats.size(); ++i) {
    if (row.first_bad < 0 && stats[i].overflow + stats[i].non_finite() > 0) {
      row.first_bad = static_cast<int>(i);
    }
    if (lane.sites[i].role != Role::weight_grad || stats[i].n == 0) continue;
    any = true;
    finite = finite && stats[i].non_finite() == 0;
    squares += stats[i].sum_sq;
  }
  if (any) row.grad_norm = finite ? std::sqrt(squares) / row.loss_scale : none;
  return row;
}

}  // namespace

std::string record_tensor_folder(const std::string& name, const std::string& out, bool force) {
  TensorFolder folder{.name = name};
  read_files(folder);
  CommandFiles files{.read = {(fs::path(name) / kAbout).string()}, .written = {out}};
  for (const FolderFile& file : folder.files) files.read.push_back(file.path.string());
  check_files(files, force);
  read_about(folder);
  order_modules(folder);
  const std::vector<std::pair<Key, SiteInfo>> sites = sites_of(folder);
  RunInfo run;
  run.model = folder.model;
  run.data = visible_name(name);
  run.command = "halfscope convert " + run.data;
  run.version = HALFSCOPE_VERSION;
  run.lanes.push_back(lane_of(folder, sites));
  const LaneInfo& lane = run.lanes.front();
  std::set<int64_t> steps;
  for (const auto& [step, unused] : folder.steps) steps.insert(step);
  for (const auto& [step, unused] : folder.rows) steps.insert(step);
  run.steps_planned = static_cast<int64_t>(steps.size());

  Recorder recorder(out, {.force = force});
  recorder.begin(run);
  int64_t tensors = 0;
  FolderReader reader(folder);
  for (const int64_t step : steps) {
    const auto found = folder.steps.find(step);
    std::vector<TensorStats> stats;
    if (found != folder.steps.end()) {
      for (const auto& [key, site] : sites) {
        stats.push_back(measured_tensor(folder, reader, found->second, key, site.format));
      }
      tensors += static_cast<int64_t>(found->second.size());
    }
    recorder.step(0, folder_row(folder, step, lane, stats), stats);
  }
  recorder.end(RunEnd::complete);
  const std::string others =
      folder.others == 0 ? "" : fmt::format("; {} not read", counted(folder.others, "other file"));
  return fmt::format("{}: {} of {} in {}{}\n", out, counted(tensors, "tensor"),
                     counted(static_cast<int64_t>(folder.modules.size()), "module"),
                     counted(static_cast<int64_t>(steps.size()), "step"), others);
}

}  // namespace halfscope
