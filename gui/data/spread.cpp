// SPDX-License-Identifier: MIT
#include "gui/data/spread.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>

namespace halfscope::gui {
namespace {

/// The sites of one path, by their part in the layer.
struct PathSites {
  std::vector<int> operands;  ///< activations and data as this layer reads them
  std::vector<int> weights;
  std::vector<int> outputs;  ///< activations; of data, which have no layer, the data
  std::vector<int> output_grads, weight_grads;
  std::vector<std::string> inputs, readers;  ///< paths
  bool layer = false;
};

using Paths = std::unordered_map<std::string, PathSites>;

Paths sites_by_path(const LaneInfo& lane) {
  Paths paths;
  for (const LayerInfo& layer : lane.layers) {
    PathSites& own = paths[layer.path];
    own.layer = true;
    own.inputs = layer.inputs;
    for (const std::string& input : layer.inputs) paths[input].readers.push_back(layer.path);
  }
  for (const SiteInfo& site : lane.sites) {
    PathSites& own = paths[site.path];
    switch (site.role) {
      case Role::input:
        (own.layer ? own.operands : own.outputs).push_back(site.order);
        break;
      case Role::activation:
        own.outputs.push_back(site.order);
        break;
      case Role::weight:
        own.weights.push_back(site.order);
        break;
      case Role::activation_grad:
        own.output_grads.push_back(site.order);
        break;
      case Role::weight_grad:
        own.weight_grads.push_back(site.order);
        break;
      case Role::update:
      case Role::state:
        break;
    }
  }
  return paths;
}

class Readings {
 public:
  Readings(const Paths& paths, const SiteInfo& site) : paths_(paths), site_(site) {}

  std::vector<int> collect() {
    const PathSites& own = paths_.at(site_.path);
    switch (site_.role) {
      case Role::weight:  // a variable's value is from earlier steps
        break;
      case Role::input:
        if (own.layer) add_outputs(own.inputs);
        break;
      case Role::activation:
        add_outputs(own.inputs);
        add(own.operands);
        add(own.weights);
        break;
      case Role::activation_grad:
        add(own.outputs);
        for (const std::string& reader : own.readers) {
          add(paths_.at(reader).output_grads);
          add(paths_.at(reader).outputs);
          add(paths_.at(reader).operands);
          add(paths_.at(reader).weights);
        }
        add(own.output_grads);
        break;
      case Role::weight_grad:
        add(own.output_grads);
        add(own.outputs);
        add(own.operands);
        add_outputs(own.inputs);
        add(own.weight_grads);
        // Other paths process the gradients of all layers ("clipping").
        if (site_.phase == Phase::update && !own.layer) add_all_gradients();
        break;
      case Role::update:
        add(own.weight_grads);
        add(own.weights);
        break;
      case Role::state:
        if (site_.phase == Phase::forward) {
          add_outputs(own.inputs);
        } else {
          add(own.weight_grads);
          add(own.weights);
        }
        break;
    }
    std::sort(sites_.begin(), sites_.end());
    sites_.erase(std::unique(sites_.begin(), sites_.end()), sites_.end());
    return std::move(sites_);
  }

 private:
  /// Removes sites that come later in the step, since they cannot have been read.
  void add(const std::vector<int>& sites) {
    for (const int site : sites) {
      if (site < site_.order) sites_.push_back(site);
    }
  }
  void add_outputs(const std::vector<std::string>& layers) {
    for (const std::string& path : layers) add(paths_.at(path).outputs);
  }
  void add_all_gradients() {
    for (const auto& [path, own] : paths_) add(own.weight_grads);
  }

  const Paths& paths_;
  const SiteInfo& site_;
  std::vector<int> sites_{};
};

}  // namespace

std::vector<std::vector<int>> sites_read(const LaneInfo& lane) {
  const Paths paths = sites_by_path(lane);
  std::vector<std::vector<int>> read;
  read.reserve(lane.sites.size());
  for (const SiteInfo& site : lane.sites) read.push_back(Readings(paths, site).collect());
  return read;
}

}  // namespace halfscope::gui
