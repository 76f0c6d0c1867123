// SPDX-License-Identifier: MIT
#include "cli/tasks/quantize.h"

#include <fmt/format.h>
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "analysis/cost/cost.h"
#include "analysis/rules/text.h"
#include "cli/args/backends.h"
#include "cli/args/lanes.h"
#include "cli/tasks/forward.h"
#include "cli/tasks/run_input.h"
#include "cli/tasks/training.h"
#include "cli/terminal/lane_summary.h"
#include "cli/terminal/output.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/stop.h"
#include "core/error.h"
#include "core/policy/policy.h"
#include "core/train/lane_setup.h"
#include "emulation/backends.h"

namespace halfscope {
namespace {

/// Samples on which products are quantized one at a time, at most.
constexpr int64_t kAloneSamples = 256;
constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();

struct PlanResult {
  std::string name;
  PlanScore score;
  int64_t weight_bytes = 0;
  std::vector<double> seconds;  ///< estimated, of a batch, by device
};

struct ProductResult {
  const ProductRanges* ranges = nullptr;
  double error = kNotMeasured;  ///< of its result under the plan
  PlanScore alone;              ///< only this product quantized
  bool kept_anyway = false;
  const KeptProduct* kept = nullptr;  ///< by the search
};

struct Study {
  int64_t samples = 0, batch = 0, calibration = 0;
  int64_t alone = 0;  ///< samples
  bool of_training_part = false;
  QuantizationSpec spec;
  std::vector<ProductRanges> ranges;
  PlanScore alone_reference;
  std::vector<PlanResult> plans;  ///< float32, mixed_float16, all quantized, and the plan
  std::vector<ProductResult> products;
  KeptSearch search;
  Plan plan;
  std::string note;  ///< for standard error

  /// Returns whether the plan was found and quantizes some layer.
  bool quantizes() const {
    return search.found && std::any_of(products.begin(), products.end(), [](const auto& each) {
             return !each.kept_anyway && each.kept == nullptr;
           });
  }
};

/// The name of what measures how good plans are; "" if only outputs can be compared.
std::string measure_of(const Study& study) {
  const PlanScore& reference = study.plans.front().score;
  return reference.mean_iou     ? "mIoU"
         : reference.scored > 0 ? "accuracy"
         : reference.precision  ? "mAP50"
                                : "";
}

/// Redraws what is being done on the terminal.
class Doing {
 public:
  explicit Doing(bool quiet) : width_(quiet ? 0 : terminal_width()) {}
  ~Doing() { show(""); }
  Doing(const Doing&) = delete;
  Doing& operator=(const Doing&) = delete;

  void show(const std::string& text) const {
    if (width_ > 0) fmt::print(stderr, "\r\x1b[K{}", text.substr(0, width_ - 1));
  }

 private:
  size_t width_;
};

void check_stop(const std::atomic<bool>& stop) {
  if (stop) throw Error("stopped before a plan was found", "nothing was written; run it again");
}

/// The samples to calibrate with, as a test part.
Dataset calibration_data(const Dataset& data, int64_t samples) {
  Dataset chosen = data;
  if (chosen.train.size() > 0) chosen.test = std::move(chosen.train);
  chosen.train = {};
  if (samples < chosen.test.size()) keep_first(chosen.test, chosen, samples);
  return chosen;
}

PlanResult plan_result(const std::string& name, const Model& network, const Plan& plan,
                       const PlanScore& score, const std::vector<Device>& devices) {
  PlanResult result{.name = name, .score = score, .seconds = {}};
  const PlanCost cost(name, lower_inference(network, plan));
  result.weight_bytes = kept_weight_bytes(cost.executable);
  for (const Device& device : devices) result.seconds.push_back(step_time(cost, device).seconds);
  return result;
}

std::set<ProductKey> kept_by(const std::vector<std::string>& globs,
                             const std::vector<ProductRanges>& products) {
  std::set<ProductKey> kept;
  for (const std::string& glob : globs) {
    const size_t before = kept.size();
    for (const ProductRanges& each : products) {
      if (glob_match(glob, each.path)) kept.insert(key_of(each));
    }
    if (kept.size() > before) continue;
    throw usage_error("--keep '" + glob + "' matches no layer with products",
                      "list the layers with: halfscope inspect NETWORK");
  }
  return kept;
}

std::set<ProductKey> all_but(const ProductKey& one, const std::vector<ProductRanges>& products) {
  std::set<ProductKey> others;
  for (const ProductRanges& each : products) {
    if (key_of(each) != one) others.insert(key_of(each));
  }
  return others;
}

class Quantizer {
 public:
  Quantizer(const Settings& settings, const QuantizeOptions& options)
      : settings_(settings),
        options_(options),
        backend_(emulation_backend()),
        stop_(catch_stop_signals()),
        doing_(settings.quiet || settings.json) {}

  Study run() {
    study_.spec = {
        .format = options_.format,
        .method = options_.method,
        .by_channel = options_.by_channel,
        .base = settings_.plans.empty() ? Plan{} : plan_of(settings_.plans[0], settings_)};
    if (study_.spec.base.double_precision) {
      throw usage_error("--plan: the rest of the network cannot run in double precision",
                        "use float32, or a plan of narrower formats");
    }
    work_ = read_work(settings_, TrainPart::keep);
    calibrate();
    score_plans();
    score_products();
    search();
    return std::move(study_);
  }

 private:
  void calibrate() {
    Dataset& data = work_.samples.data;
    study_.of_training_part = data.train.size() > 0;
    const Dataset calibration = calibration_data(data, options_.calibration);
    data.train = {};
    study_.calibration = calibration.test.size();
    study_.samples = data.test.size();
    study_.note = random_weights_note(settings_, work_.network);
    weights_ =
        take_starting_weights(work_.network, settings_.seed, read_initial_weights(settings_));
    doing_.show(fmt::format("calibrating on {} samples", study_.calibration));
    study_.ranges =
        measure_products(work_.network, weights_, calibration, study_.calibration, backend_, stop_);
    check_stop(stop_);
    if (study_.ranges.empty()) {
      throw usage_error(settings_.model + " has no matrix products or convolutions to quantize");
    }
    kept_anyway_ = kept_by(options_.kept, study_.ranges);
  }

  void score_plans() {
    doing_.show("running float32");
    trials_.emplace(work_.network, weights_, work_.samples.data, work_.samples.labels, backend_,
                    stop_);
    check_stop(stop_);
    study_.batch = trials_->batch();
    add_plan("float32", Plan{}, trials_->reference());
    doing_.show("running mixed_float16");
    const Plan half = preset_plan("mixed_float16").value();
    add_plan("mixed_float16", half, trials_->score(half));
    check_stop(stop_);
  }

  void add_plan(const std::string& name, const Plan& plan, const PlanScore& score) {
    study_.plans.push_back(plan_result(name, work_.network, plan, score, options_.devices));
  }

  /// Quantizes one product at a time, on the first samples.
  void score_products() {
    Dataset few = work_.samples.data;
    SampleLabels labels = work_.samples.labels;
    // Whole batches, because some networks take no others.
    const int64_t most = std::max<int64_t>(kAloneSamples / study_.batch, 1) * study_.batch;
    if (few.test.size() > most) keep_first(few.test, few, most);
    study_.alone = few.test.size();
    const int64_t per_sample = element_count(labels.shape);
    if (!labels.values.empty()) {
      labels.values.resize(static_cast<size_t>(study_.alone * per_sample));
    }
    const PlanTrials trials(work_.network, weights_, few, labels, backend_, stop_);
    study_.alone_reference = trials.reference();
    for (size_t i = 0; i < study_.ranges.size(); ++i) {
      const ProductRanges& ranges = study_.ranges[i];
      ProductResult result{.ranges = &ranges, .alone = {}};
      result.kept_anyway = kept_anyway_.contains(key_of(ranges));
      if (!result.kept_anyway) {
        doing_.show(fmt::format("layer {} of {}: {}", i + 1, study_.ranges.size(), ranges.path));
        result.alone = trials.score(
            quantized_plan(study_.spec, study_.ranges, all_but(key_of(ranges), study_.ranges)));
      }
      check_stop(stop_);
      study_.products.push_back(result);
    }
  }

  void search() {
    std::vector<const ProductResult*> order;
    for (const ProductResult& each : study_.products) {
      if (!each.kept_anyway) order.push_back(&each);
    }
    std::stable_sort(order.begin(), order.end(),
                     [](const auto* a, const auto* b) { return a->alone.error > b->alone.error; });
    std::vector<ProductKey> worst_first;
    for (const ProductResult* each : order) worst_first.push_back(key_of(*each->ranges));
    doing_.show("looking for layers that must keep more precision");
    study_.search = find_kept(*trials_, study_.spec, study_.ranges, worst_first, kept_anyway_,
                              options_.tolerance, stop_);
    check_stop(stop_);
    std::set<ProductKey> kept = kept_anyway_;
    for (const KeptProduct& each : study_.search.kept) kept.insert(each.key);
    study_.plan = quantized_plan(study_.spec, study_.ranges, kept);
    if (!study_.search.kept.empty()) {
      const Plan all = quantized_plan(study_.spec, study_.ranges, kept_anyway_);
      add_plan(all.name + ", all layers", all, study_.search.all);
    }
    add_plan(study_.plan.name, study_.plan, study_.search.score);
    const std::vector<double> errors = trials_->errors_of(study_.plan, study_.ranges);
    for (size_t i = 0; i < study_.products.size(); ++i) {
      ProductResult& product = study_.products[i];
      product.error = errors[i];
      for (const KeptProduct& each : study_.search.kept) {
        if (each.key == key_of(*product.ranges)) product.kept = &each;
      }
    }
  }

  const Settings& settings_;
  const QuantizeOptions& options_;
  const Backend& backend_;
  const std::atomic<bool>& stop_;
  Doing doing_;
  Work work_;
  NamedTensors weights_;
  std::set<ProductKey> kept_anyway_;
  std::optional<PlanTrials> trials_;
  Study study_;
};

std::string decibel_text(double error) {
  if (std::isnan(error)) return "-";
  const double db = decibels(error);
  if (db == std::numeric_limits<double>::infinity()) return "exact";
  return std::isinf(db) ? "not finite" : fmt::format("{:.1f} dB", db);
}

std::string share_text(double share) {
  return share == 0.0 ? "0" : share < 1e-5 ? "<0.001%" : fmt::format("{:.3g}%", 100.0 * share);
}

/// "fp32", the format that a product reads if it is kept.
std::string kept_format(const Study& study, const ProductKey& key) {
  const NodePlan plan = resolve(study.spec.base, key.first, key.second);
  return plan.follows ? "its inputs' format" : format_name(plan.read);
}

std::string heading(const Settings& settings, const Study& study) {
  return fmt::format(
      "{}: {} samples in batches of {}; ranges from {} samples of {}\n"
      "{}: activations have static scales ({}), weights one scale per {}\n\n",
      settings.model, study.samples, study.batch, study.calibration,
      study.of_training_part ? "the training part" : "the same data",
      format_name(study.spec.format), range_method_name(study.spec.method),
      study.spec.by_channel ? "output channel" : "tensor");
}

void drop_column(std::vector<std::vector<std::string>>& rows, std::vector<bool>& right,
                 int64_t column) {
  for (std::vector<std::string>& row : rows) row.erase(row.begin() + column);
  right.erase(right.begin() + column);
}

std::string plans_text(const Study& study, const QuantizeOptions& options) {
  std::vector<std::vector<std::string>> rows{{"plan", measure_of(study), "output SQNR", "weights"}};
  for (const Device& device : options.devices) {
    rows.front().push_back(fmt::format("{}, estimated", device.name));
  }
  for (const PlanResult& each : study.plans) {
    std::vector<std::string> row{each.name, percentage(each.score.quality()),
                                 decibel_text(each.score.error), bytes_text(each.weight_bytes)};
    for (const double seconds : each.seconds)
      row.push_back(fmt::format("{:.3g} ms", 1e3 * seconds));
    rows.push_back(row);
  }
  std::vector<bool> right(rows.front().size(), true);
  right.front() = false;
  if (measure_of(study).empty()) drop_column(rows, right, 1);
  return aligned(rows, right) + "\n";
}

std::string products_text(const Study& study, size_t width) {
  std::vector<std::vector<std::string>> rows{
      {"layer", "operator", "range", "clipped", "SQNR", "alone: output", measure_of(study), ""}};
  for (const ProductResult& each : study.products) {
    std::string range, clipped;
    for (size_t i = 0; i < 2; ++i) {
      if (each.ranges->known[i]) continue;
      const float chosen = range_of(*each.ranges, i, study.spec);
      range += fmt::format("{}{:.3g}", range.empty() ? "" : ", ", chosen);
      clipped +=
          (clipped.empty() ? "" : ", ") + share_text(each.ranges->seen[i].share_above(chosen));
    }
    const bool scored = !each.kept_anyway;
    rows.push_back({each.ranges->path, each.ranges->op, range, clipped, decibel_text(each.error),
                    scored ? decibel_text(each.alone.error) : "-",
                    scored ? percentage(each.alone.quality()) : "-",
                    each.kept_anyway || each.kept != nullptr
                        ? "kept in " + kept_format(study, key_of(*each.ranges))
                        : ""});
  }
  std::vector<bool> right{false, false, true, true, true, true, true, false};
  if (measure_of(study).empty()) drop_column(rows, right, 6);
  return aligned(rows, right, width) +
         fmt::format(
             "range: of the activations it reads. SQNR: of its result under the plan. alone: only "
             "this layer quantized, {} samples",
             study.alone) +
         (measure_of(study).empty()
              ? ""
              : fmt::format(", where fp32 has {}", percentage(study.alone_reference.quality()))) +
         ".\n\n";
}

/// "accuracy is 91.20%"
std::string result_text(const Study& study, const PlanScore& score) {
  const std::string name = measure_of(study);
  return name.empty() ? "the outputs differ from fp32's by " + share_text(score.error)
                      : name + " is " + percentage(score.quality());
}

/// "accuracy is 91.20%, in fp32 91.50%"
std::string compared_text(const Study& study, const PlanScore& score) {
  const std::string text = result_text(study, score);
  if (measure_of(study).empty()) return text;
  return text + ", in fp32 " + percentage(study.plans.front().score.quality());
}

std::string conclusion(const Settings& settings, const Study& study) {
  const std::string format = format_name(study.spec.format);
  std::string text;
  if (!study.search.found) {
    return fmt::format(
        "No layer can be quantized within the tolerance: even with all of them kept, {}. The plan "
        "for the rest of the network costs too much.\n",
        compared_text(study, study.search.score));
  }
  if (study.search.kept.empty()) {
    const auto count = std::count_if(study.products.begin(), study.products.end(),
                                     [](const auto& each) { return !each.kept_anyway; });
    text = fmt::format("Quantize {}: {}.\n", counted(count, "layer"),
                       compared_text(study, study.search.score));
  } else {
    if (!study.quantizes()) text = "Nothing is left to quantize. ";
    std::string names;
    for (const KeptProduct& each : study.search.kept) {
      names += (names.empty() ? "" : ", ") + each.key.first;
    }
    text += fmt::format("Keep {} in {}: then {}.\n", names,
                        kept_format(study, study.search.kept.front().key),
                        compared_text(study, study.search.score));
    for (const KeptProduct& each : study.search.kept) {
      text += fmt::format("  With {} in {}, too, {}.\n", each.key.first, format,
                          result_text(study, each.without));
    }
  }
  if (!study.quantizes())
    return text + "No plan was written, because it would quantize no layer.\n";
  if (settings.out.empty()) return text + "Write the plan with --out plan.json.\n";
  std::string command = "halfscope convert " + shell_quoted(settings.model);
  if (!settings.init.empty()) command += " --init " + shell_quoted(settings.init);
  if (!is_network_file(settings.model) && !settings.data.empty()) {
    command += " --data " + shell_quoted(settings.data);
  }
  return text + fmt::format("\nwrote {}; next:\n  {} --plan {} --out quantized.onnx\n",
                            settings.out, command, shell_quoted(settings.out));
}

Json score_json(const PlanScore& score) {
  Json json;
  json["accuracy"] = score.scored > 0 ? json_number(score.accuracy()) : Json(nullptr);
  json["mean_iou"] = score.mean_iou ? json_number(*score.mean_iou) : Json(nullptr);
  json["map50"] = score.precision ? json_number(*score.precision) : Json(nullptr);
  json["output_error"] = json_number(score.error);
  json["output_sqnr_db"] = json_number(decibels(score.error));
  return json;
}

Json json_of(const Settings& settings, const Study& study, const QuantizeOptions& options) {
  Json json;
  json["schema"] = "halfscope.quantize/1";
  json["version"] = HALFSCOPE_VERSION;
  json["network"] = settings.model;
  json["samples"] = study.samples;
  json["batch"] = study.batch;
  json["calibration"] = {{"samples", study.calibration},
                         {"part", study.of_training_part ? "train" : "same"}};
  json["format"] = format_name(study.spec.format);
  json["method"] = range_method_name(study.spec.method);
  json["scales"] = study.spec.by_channel ? "channel" : "tensor";
  json["tolerance"] =
      json_number(!measure_of(study).empty() ? options.tolerance.quality : options.tolerance.error);
  json["within_tolerance"] = study.search.found;
  json["plans"] = Json::array();
  for (const PlanResult& each : study.plans) {
    Json row = score_json(each.score);
    row["name"] = each.name;
    row["weight_bytes"] = each.weight_bytes;
    row["estimated_seconds"] = Json::object();
    for (size_t i = 0; i < options.devices.size(); ++i) {
      row["estimated_seconds"][std::string(options.devices[i].name)] = json_number(each.seconds[i]);
    }
    json["plans"].push_back(std::move(row));
  }
  json["alone_samples"] = study.alone;
  json["layers"] = Json::array();
  for (const ProductResult& each : study.products) {
    Json row{{"path", each.ranges->path}, {"operator", each.ranges->op}};
    row["operands"] = Json::array();
    for (size_t i = 0; i < 2; ++i) {
      const float range = range_of(*each.ranges, i, study.spec);
      const MagnitudeHistogram& seen = each.ranges->seen[i];
      row["operands"].push_back({{"known", each.ranges->known[i]},
                                 {"largest", json_number(static_cast<double>(seen.largest()))},
                                 {"range", json_number(static_cast<double>(range))},
                                 {"clipped", json_number(seen.share_above(range))}});
    }
    row["sqnr_db"] = std::isnan(each.error) ? Json(nullptr) : json_number(decibels(each.error));
    row["alone"] = each.kept_anyway ? Json(nullptr) : score_json(each.alone);
    row["kept"] = each.kept_anyway || each.kept != nullptr;
    row["without_keeping"] = each.kept == nullptr ? Json(nullptr) : score_json(each.kept->without);
    json["layers"].push_back(std::move(row));
  }
  json["trials"] = study.search.trials;
  json["plan"] = study.search.found ? Json::parse(plan_to_json(study.plan)) : Json(nullptr);
  return json;
}

void check_source(const Settings& settings) {
  if (settings.inputs.empty() == settings.data.empty()) {
    throw usage_error(settings.inputs.empty() ? "quantize needs samples"
                                              : "--input and --data exclude each other",
                      settings.inputs.empty() ? "add --data or --input" : "keep one of them")
        .about({"input", "data"});
  }
}

}  // namespace

int quantize_network(const Settings& settings, const QuantizeOptions& options) {
  check_source(settings);
  check_files({.read = input_files(settings), .written = {settings.out}}, settings.force);
  if (settings.threads > 0) omp_set_num_threads(settings.threads);
  const Study study = Quantizer(settings, options).run();
  fmt::print(stderr, "{}", study.note);
  if (!settings.out.empty() && study.quantizes()) {
    write_result(settings.out, plan_to_json(study.plan) + "\n", settings.force);
  }
  if (settings.json) {
    write_json(json_of(settings, study, options));
  } else if (!settings.quiet) {
    const size_t width = output_width();
    write_message(heading(settings, study) + plans_text(study, options) +
                      products_text(study, width) + conclusion(settings, study),
                  settings.out == kStandardOutput);
  }
  return study.quantizes() ? 0 : 1;
}

}  // namespace halfscope
