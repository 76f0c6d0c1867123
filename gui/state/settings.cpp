// SPDX-License-Identifier: MIT
#include "gui/state/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "analysis/output_file.h"
#include "core/policy/policy.h"

namespace halfscope::gui {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr size_t kRecent = 12;
constexpr size_t kMostBookmarks = 1000, kMostNotes = 1000;

Json read_json(const fs::path& file) {
  std::ifstream stream(file);
  Json json = Json::parse(stream, nullptr, false);
  return json.is_object() ? json : Json::object();
}

void write_json(const fs::path& file, const Json& json) {
  try {
    std::error_code error;
    fs::create_directories(file.parent_path(), error);
    write_output_file(file, json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n", true);
  } catch (const std::exception&) {
    // Saving is optional: a full disk must not stop the viewer.
  }
}

/// Reads the member if it exists and has the right type; otherwise leaves `value` unchanged.
template <typename T>
void take(const Json& json, const char* key, T& value) {
  const auto found = json.find(key);
  if (found == json.end()) return;
  try {
    value = found->get<T>();
  } catch (const std::exception&) {
    return;  // of another version
  }
}

/// Reads an enum value by its name.
template <typename Enum, size_t N>
void take_named(const Json& json, const char* key, const std::array<Enum, N>& values,
                const char* (*name_of)(Enum) noexcept, Enum& value) {
  std::string name;
  take(json, key, name);
  const auto found =
      std::find_if(values.begin(), values.end(), [&](Enum each) { return name == name_of(each); });
  if (found != values.end()) value = *found;
}

void take_size(const Json& json, const char* key, float& value) {
  float size = value;
  take(json, key, size);
  if (size >= 40.0f && size <= 4000.0f) value = size;  // false for NaN, too
}

void take_place(const Json& json, Place& place) {
  take(json, "lane", place.lane);
  take(json, "other_lane", place.other_lane);
  take(json, "layer", place.layer);
  take(json, "site", place.site);
  take_named(json, "role", kRoleViews, role_view_name, place.role);
  take_named(json, "metric", kMetrics, metric_name, place.metric);
  take(json, "cursor", place.cursor);
  take(json, "first_step", place.range.first);
  take(json, "last_step", place.range.last);
  take_named(json, "tab", kTabs, tab_name, place.tab);
  take_named(json, "screen", kScreens, screen_name, place.screen);
}

Json json_of(const Place& place) {
  return {{"lane", place.lane},
          {"other_lane", place.other_lane},
          {"layer", place.layer},
          {"site", place.site},
          {"role", role_view_name(place.role)},
          {"metric", metric_name(place.metric)},
          {"cursor", place.cursor},
          {"first_step", place.range.first},
          {"last_step", place.range.last},
          {"tab", tab_name(place.tab)},
          {"screen", screen_name(place.screen)}};
}

/// FNV-1a, 64 bits: a name for a file, not a secret.
uint64_t hash_of(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const unsigned char c : text) hash = (hash ^ c) * 0x100000001b3u;
  return hash;
}

}  // namespace

void Settings::add_recent(const std::string& file) {
  std::error_code error;
  const fs::path absolute = fs::absolute(file, error);
  const std::string path = error ? file : absolute.lexically_normal().string();
  std::erase(recent, path);
  recent.insert(recent.begin(), path);
  if (recent.size() > kRecent) recent.resize(kRecent);
}

fs::path state_folder() {
  if (const char* folder = std::getenv("XDG_STATE_HOME"); folder && *folder) {
    return fs::path(folder) / "halfscope";
  }
  if (const char* home = std::getenv("HOME"); home && *home) {
    return fs::path(home) / ".local/state/halfscope";
  }
  return {};
}

Settings SettingsFile::load() const {
  Settings settings;
  if (folder_.empty()) return settings;
  const Json json = read_json(folder_ / "viewer.json");
  take(json, "dark", settings.dark);
  float scale = 1.0f;
  take(json, "ui_scale", scale);
  if (scale >= 0.75f && scale <= 3.0f) settings.ui_scale = scale;
  take_size(json, "left", settings.layout.left);
  take_size(json, "right", settings.layout.right);
  take_size(json, "bottom", settings.layout.bottom);
  take_size(json, "loss", settings.layout.loss);
  take_size(json, "magnitudes", settings.layout.magnitudes);
  float width = 1440, height = 900;
  take_size(json, "width", width);
  take_size(json, "height", height);
  settings.width = std::max(480, static_cast<int>(width));
  settings.height = std::max(320, static_cast<int>(height));
  take(json, "recent", settings.recent);
  if (settings.recent.size() > kRecent) settings.recent.resize(kRecent);
  return settings;
}

void SettingsFile::save(const Settings& settings) const {
  if (folder_.empty()) return;
  write_json(folder_ / "viewer.json", Json{{"schema", "halfscope.viewer/1"},
                                           {"dark", settings.dark},
                                           {"ui_scale", settings.ui_scale},
                                           {"left", settings.layout.left},
                                           {"right", settings.layout.right},
                                           {"bottom", settings.layout.bottom},
                                           {"loss", settings.layout.loss},
                                           {"magnitudes", settings.layout.magnitudes},
                                           {"width", settings.width},
                                           {"height", settings.height},
                                           {"recent", settings.recent}});
}

fs::path SettingsFile::view_file(const std::string& run_file) const {
  std::error_code error;
  const fs::path absolute = fs::absolute(run_file, error);
  return folder_ / "views" /
         fmt::format("{:016x}.json",
                     hash_of(error ? run_file : absolute.lexically_normal().string()));
}

ViewState SettingsFile::load_view(const std::string& run_file) const {
  ViewState view;
  if (folder_.empty()) return view;
  const Json json = read_json(view_file(run_file));
  take_place(json, view);
  take(json, "tensor_rows", view.tensor_rows);
  take_named(json, "order", kLayerOrders, layer_order_name, view.order);
  take(json, "lens", view.lens);
  std::vector<std::string> layers;
  bool storage = false;
  take(json, "fp32_layers", layers);
  take(json, "fp32_storage", storage);
  view.edits = PlanEdit::in_fp32(std::move(layers));
  view.edits.set(FixKind::weights_fp32, storage);
  const auto changes = json.find("changes");
  take(json, "whole_run", view.whole_run);
  take(json, "log_counts", view.log_counts);
  HeatRange heat;
  take(json, "heat_low", heat.low);
  take(json, "heat_high", heat.high);
  if (heat.low >= 0.0 && heat.low < heat.high && heat.high <= 1.0) view.heat = heat;
  take(json, "window", view.window);
  take(json, "merge_steps", view.merge_steps);
  take(json, "opened_groups", view.opened);
  take(json, "closed_groups", view.closed);
  double scale = 0.0;
  take(json, "loss_scale", scale);
  if (scale > 0.0) view.edits.set_loss_scale(scale);
  // Earlier versions wrote the members above.
  if (changes != json.end()) {
    if (std::optional<PlanEdit> edits = edit_from_json(changes->dump())) view.edits = *edits;
  }
  double smoothing = 0.0;
  take(json, "smoothing", smoothing);
  if (smoothing >= 0.0 && smoothing < 1.0) view.smoothing = smoothing;
  if (const auto notes = json.find("notes"); notes != json.end() && notes->is_array()) {
    for (const Json& each : *notes) {
      if (!each.is_object() || view.notes.size() == kMostNotes) continue;
      Note note{.step = -1};
      take(each, "step", note.step);
      take(each, "text", note.text);
      if (note.step >= 0) set_note(view, note.step, note.text);
    }
  }
  const auto bookmarks = json.find("bookmarks");
  if (bookmarks == json.end() || !bookmarks->is_array()) return view;
  for (const Json& each : *bookmarks) {
    if (!each.is_object() || view.bookmarks.size() == kMostBookmarks) continue;
    Bookmark& bookmark = view.bookmarks.emplace_back();
    take(each, "name", bookmark.name);
    take_place(each, bookmark.place);
  }
  return view;
}

void SettingsFile::save_view(const std::string& run_file, const ViewState& view) const {
  if (folder_.empty()) return;
  Json json{{"schema", "halfscope.view/1"}, {"run", run_file}};
  json.update(json_of(static_cast<const Place&>(view)));
  json.update({{"tensor_rows", view.tensor_rows},
               {"order", layer_order_name(view.order)},
               {"lens", view.lens},
               {"changes", Json::parse(edit_to_json(view.edits))},
               {"whole_run", view.whole_run},
               {"log_counts", view.log_counts},
               {"heat_low", view.heat.low},
               {"heat_high", view.heat.high},
               {"window", view.window},
               {"merge_steps", view.merge_steps},
               {"opened_groups", view.opened},
               {"closed_groups", view.closed}});
  Json bookmarks = Json::array();
  for (const Bookmark& each : view.bookmarks) {
    Json one{{"name", each.name}};
    one.update(json_of(each.place));
    bookmarks.push_back(std::move(one));
  }
  json["bookmarks"] = std::move(bookmarks);
  json["smoothing"] = view.smoothing;
  Json notes = Json::array();
  for (const Note& note : view.notes) notes.push_back({{"step", note.step}, {"text", note.text}});
  json["notes"] = std::move(notes);
  write_json(view_file(run_file), json);
}

}  // namespace halfscope::gui
