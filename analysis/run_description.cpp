// SPDX-License-Identifier: MIT
#include "analysis/run_description.h"

#include <cstddef>

#include "analysis/run_schema.h"
#include "analysis/run_view.h"

namespace halfscope {

using sqlite::Database;
using sqlite::Statement;

namespace {

/// Returns the nodes that have another name in the network's file.
nlohmann::json node_names(const RunInfo& run) {
  nlohmann::json names = nlohmann::json::object();
  for (const LaneInfo& lane : run.lanes) {
    for (const LayerInfo& layer : lane.layers) {
      if (!layer.alias.empty()) names[layer.path] = layer.alias;
    }
  }
  return names;
}

}  // namespace

std::string to_text(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void write_lane(Database& database, int64_t index, const LaneInfo& lane) {
  Statement insert_lane(database, "INSERT INTO lanes VALUES(?1,?2,?3,?4,?5)");
  insert_lane.bind(1, index);
  insert_lane.bind(2, lane.name);
  insert_lane.bind(3, lane.backend);
  insert_lane.bind(4, lane.plan_json);
  insert_lane.bind(5, lane.loss_scale);
  insert_lane.run();

  Statement insert_layer(database, "INSERT INTO layers VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9)");
  for (size_t i = 0; i < lane.layers.size(); ++i) {
    const LayerInfo& layer = lane.layers[i];
    insert_layer.bind(1, index);
    insert_layer.bind(2, static_cast<int64_t>(i));
    insert_layer.bind(3, layer.path);
    insert_layer.bind(4, layer.op);
    insert_layer.bind(5, to_text(layer.inputs));
    insert_layer.bind(6, format_name(layer.read));
    insert_layer.bind(7, format_name(layer.write));
    insert_layer.bind(8, static_cast<int64_t>(layer.follows));
    insert_layer.bind(9, layer.parameters);
    insert_layer.run();
  }

  Statement insert_site(database, "INSERT INTO sites VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10)");
  for (const SiteInfo& site : lane.sites) {
    insert_site.bind(1, index);
    insert_site.bind(2, static_cast<int64_t>(site.order));
    insert_site.bind(3, site.path);
    insert_site.bind(4, site.tensor);
    insert_site.bind(5, role_name(site.role));
    insert_site.bind(6, phase_name(site.phase));
    insert_site.bind(7, site.op);
    insert_site.bind(8, format_name(site.format));
    insert_site.bind(9, to_text(site.shape));
    insert_site.bind(10, site.scale);
    insert_site.run();
  }
}

void write_meta(Database& database, const RunInfo& run) {
  Statement insert(database, "INSERT INTO meta VALUES(?1,?2)");
  const auto put = [&insert](const char* key, const std::string& value) {
    insert.bind(1, key);
    insert.bind(2, value);
    insert.run();
  };
  put("status", status_name(RunStatus::running));
  if (run.inference) put("kind", "inference");
  if (run.evaluates_averages) put("evaluated", kEvaluatedAverages);
  if (run.detects) put("accuracy", kAccuracyIsPrecision);
  if (!run.observed.empty()) put("observed", to_text(run.observed));
  put("model", run.model);
  put("data", run.data);
  put("optimizer", run.optimizer);
  put("command", run.command);
  put("settings", to_text(run.settings));
  put("lane_settings", to_text(run.lane_settings));
  put("batch", std::to_string(run.batch));
  put("steps_planned", std::to_string(run.steps_planned));
  put("classes", std::to_string(run.classes));
  put("train_samples", std::to_string(run.train_samples));
  put("test_samples", std::to_string(run.test_samples));
  put("seed", std::to_string(run.seed));
  put("threads", std::to_string(run.threads));
  put("every", std::to_string(run.every));
  put("isa", run.isa);
  put("version", run.version);
  const nlohmann::json names = node_names(run);
  if (!names.empty()) put("node_names", to_text(names));
}

}  // namespace halfscope
