// SPDX-License-Identifier: MIT
#include "cli/tasks/twin_repeat.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "analysis/memory_sink.h"
#include "analysis/proof/twins.h"
#include "analysis/rules/text.h"
#include "cli/args/backends.h"
#include "cli/tasks/training.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/stop.h"
#include "core/error.h"
#include "core/numeric/sums/accumulation.h"
#include "core/ops/dropout.h"
#include "core/plan/plan.h"
#include "core/policy/policy.h"
#include "core/train/trainer.h"

namespace halfscope {
namespace {

/// Trainings moved by one ulp show how sensitive the twin is. PyTorch sums in another order, which
/// is a few such errors in every operation.
constexpr double kFew = 8.0;
/// Difference of a module's outputs, or of a gradient, that is not rounding: fp32 sums of one pass
/// are a hundred times closer.
constexpr double kFirstGap = 1e-3;
/// Difference that is rounding in any training: 16 fp32 ulps of the loss.
constexpr double kFloor = 0x1p-20;
/// Moved trainings before a difference is called another training. A few may miss what rounding
/// does: two scores that are almost equal change places in some trainings only.
constexpr int kMoreTwins = 4;
/// With fewer steps, nothing shows how the optimizer goes on: momentum begins in the second update.
constexpr int64_t kLeastCompared = 3;

double finite_or_infinity(double gap) {
  return std::isfinite(gap) ? std::fabs(gap) : std::numeric_limits<double>::infinity();
}

/// How far rounding moves the loss up to a step: HalfScope's in its moved trainings, and PyTorch's
/// in its own. Kernels differ in which sums they round, so one may be sensitive where the other is
/// not.
std::vector<double> spreads_of(const Twins& twins, const TwinFolder& twin, size_t steps) {
  std::vector<double> spreads;
  double most = 0.0;
  for (size_t i = 0; i < steps; ++i) {
    const auto add = [&](double gap) { most = std::max(most, finite_or_infinity(gap)); };
    for (const std::vector<StepRow>& rows : twins.moved) {
      if (i < rows.size() && i < twins.reference.size())
        add(rows[i].loss - twins.reference[i].loss);
    }
    for (const std::vector<double>& losses : twin.moved_losses) add(losses[i] - twin.losses[i]);
    spreads.push_back(most);
  }
  return spreads;
}

/// A loss that rounding does not explain.
struct Unlike {
  int64_t step = 0;
  double got = 0.0, wanted = 0.0, allowed = 0.0;
};

/// Compares the losses and fills in `match`. Returns the first step that rounding does not explain.
std::optional<Unlike> compare(TwinMatch& match, const Twins& twins, const TwinFolder& twin) {
  const size_t steps = static_cast<size_t>(match.steps);
  const std::vector<double> spreads = spreads_of(twins, twin, steps);
  match.bitwise = true;
  match.largest = match.allowed = 0.0;
  match.compared = match.steps;
  bool explains_all = false;
  for (size_t i = 0; i < steps; ++i) {
    const double wanted = twin.losses[i];
    const double got = i < twins.reference.size() ? twins.reference[i].loss : std::nan("");
    const double size = std::max({std::fabs(wanted), std::fabs(twin.losses[0]), 1e-30});
    if (!explains_all && kFew * spreads[i] > kMostRounding * size) {
      explains_all = true;
      match.compared = static_cast<int64_t>(i);
    }
    if (static_cast<float>(got) == static_cast<float>(wanted)) continue;
    match.bitwise = false;
    // Rounding grows at different times in two trainings, so it is known only how far it goes.
    const double allowed = kFew * (explains_all ? spreads.back() : spreads[i]) + kFloor * size;
    const double gap = finite_or_infinity(got - wanted);
    if (gap > allowed) return Unlike{static_cast<int64_t>(i), got, wanted, allowed};
    if (explains_all) continue;
    match.largest = std::max(match.largest, gap / size);
    match.allowed = std::max(match.allowed, allowed / size);
  }
  if (match.bitwise) match.compared = match.steps;
  return std::nullopt;
}

bool differs(double own, double theirs, double moved = 0.0) {
  return !(std::fabs(own - theirs) <= kFirstGap * std::fabs(theirs) + kFew * moved);
}

Plan float32_in_pairs() {
  Plan plan = *preset_plan("float32");
  accumulate_in(plan, Accumulation::pairwise);
  return plan;
}

/// The first step of float32, recorded, also with sums in another order: they differ by rounding.
class FirstStep {
 public:
  FirstStep(const TwinFolder& twin, TrainConfig config, const Dataset& data, const Backend* backend)
      : twin_(twin) {
    config.steps = 1;
    config.every = 1;
    config.evaluate = false;
    config.errors.enabled = false;
    config.lanes = {{.plan = *preset_plan("float32"), .scaler = {}, .backend = backend},
                    {.plan = float32_in_pairs(), .scaler = {}, .backend = backend}};
    Trainer trainer(config, data);
    sink_.begin(trainer.describe());
    trainer.run(&sink_, {}, catch_stop_signals());
  }

  /// Returns a sentence about the first module whose outputs differ from PyTorch's, or else about
  /// the gradient nearest to the loss that does; nothing if all agree.
  std::optional<std::string> difference() {
    if (std::optional<std::string> found = different_output()) return found;
    return different_gradient();
  }

  /// Returns what agrees, such as "the outputs of 3 modules and 6 gradients"; "" if the twin does
  /// not say what they were. Call it after difference().
  std::string agreement() const {
    std::string text;
    if (outputs_ > 0) text = "the outputs of " + counted(outputs_, "module");
    if (gradients_ > 0) text += (text.empty() ? "" : " and ") + counted(gradients_, "gradient");
    return text;
  }
  bool has_gradients() const { return gradients_ > 0; }

 private:
  const LaneInfo& lane() const { return sink_.view().lane(0); }

  static double norm_of(const TensorStats& stats) {
    return stats.non_finite() > 0 ? std::nan("") : std::sqrt(stats.sum_sq);
  }

  /// Returns the same tensor with other rounding.
  const TensorStats& in_pairs(const SiteInfo& site) const {
    return sink_.view().total(1, sink_.view().find_site(1, site.name()).value());
  }

  std::optional<std::string> different_output() {
    std::map<std::string, int> sites;  // by path, and by the name in the network's file
    for (const SiteInfo& site : lane().sites) {
      if (site.role == Role::activation && site.phase == Phase::forward) {
        sites.emplace(site.path, site.order);
      }
    }
    for (const LayerInfo& layer : lane().layers) {
      const auto found = sites.find(layer.path);
      if (!layer.alias.empty() && found != sites.end()) sites.emplace(layer.alias, found->second);
    }
    for (const TwinOutput& theirs : twin_.outputs) {
      // A module that is one node in the file gives the node its name.
      const auto by_node = sites.find(theirs.node);
      const auto found = by_node != sites.end() ? by_node : sites.find(theirs.module);
      if (found == sites.end()) continue;
      const TensorStats& own = sink_.view().total(0, found->second);
      const TensorStats& other = in_pairs(lane().sites[static_cast<size_t>(found->second)]);
      const double norm = norm_of(own);
      const double largest = static_cast<double>(own.max_abs);
      ++outputs_;
      // Batch normalization of two samples whose difference is rounding writes 1 or -1.
      if (own.n == theirs.n && !differs(norm, theirs.norm, std::fabs(norm - norm_of(other))) &&
          !differs(largest, theirs.max_abs,
                   std::fabs(largest - static_cast<double>(other.max_abs)))) {
        continue;
      }
      return fmt::format(
          "The first module that differs is '{}' (node '{}'): in step 0 its outputs have the "
          "2-norm {:.6g}, and PyTorch's had {:.6g}",
          theirs.module, theirs.node, norm, theirs.norm);
    }
    return std::nullopt;
  }

  std::optional<std::string> different_gradient() {
    std::map<std::string, int> sites;  // by the parameter's name in PyTorch
    for (const SiteInfo& site : lane().sites) {
      if (site.role != Role::weight_grad || !site.tensor.ends_with("_grad")) continue;
      const std::string tensor = site.tensor.substr(0, site.tensor.size() - 5);
      sites.emplace(site.path + "." + tensor, site.order);
      if (tensor == "weight") sites.emplace(site.path, site.order);  // a parameter without a module
    }
    for (auto theirs = twin_.gradients.rbegin(); theirs != twin_.gradients.rend(); ++theirs) {
      const auto found = sites.find(theirs->parameter);
      if (found == sites.end()) continue;
      const double norm = norm_of(sink_.view().total(0, found->second));
      ++gradients_;
      if (!differs(norm, theirs->norm, theirs->moved)) continue;
      return fmt::format(
          "{} in step 0, but the gradient of '{}' does not: its 2-norm is {:.6g}, and PyTorch's "
          "was {:.6g}",
          outputs_ > 0 ? "The outputs of " + counted(outputs_, "module") + " agree"
                       : std::string("The loss agrees"),
          theirs->parameter, norm, theirs->norm);
    }
    return std::nullopt;
  }

  const TwinFolder& twin_;
  MemorySink sink_;
  int64_t outputs_ = 0, gradients_ = 0;  ///< number that were compared
};

/// Returns a sentence that says where to look for the cause.
std::string cause(FirstStep& first) {
  if (const std::optional<std::string> found = first.difference()) return ". " + *found;
  const std::string agreed = first.agreement();
  if (agreed.empty()) return "";
  return fmt::format(". In step 0, {} agree, so the cause is in {}", agreed,
                     first.has_gradients()
                         ? "the optimizer, or in something that the forward pass changes"
                         : "the loss, the gradients or the optimizer");
}

/// Trains the twin again in more ways, for differences that a few moved trainings do not explain.
std::optional<Twins> train_more(TwinRequest request, const std::string& backend,
                                const Dataset& data, const ProofProgress& progress) {
  request.first_seed += static_cast<uint64_t>(request.twins);
  request.twins = kMoreTwins;
  const auto add = [&](Plan plan, const char* name) {
    const Backend& used = backend_for(plan, backend);
    request.others.push_back(
        {.plan = std::move(plan), .scaler = {}, .backend = &used, .own_name = name});
  };
  add(float32_in_pairs(), "float32 in pairs");
  add(*preset_plan("float64"), "float64");
  return train_twins(request, data, progress, catch_stop_signals());
}

std::string hint_of(const TwinFolder& twin, const Unlike& unlike) {
  std::string hint = "this is another training, so plans are not judged on it. ";
  if (twin.moved_losses.empty()) {
    return hint +
           "Write the folder again with save_twin(): now it also records how far rounding moves "
           "PyTorch's losses";
  }
  hint += "If no file was changed, compare halfscope inspect of the network with your model";
  if (unlike.step >= kLeastCompared) {
    hint += fmt::format(", or judge the steps before with --steps {}", unlike.step);
  }
  return hint;
}

/// Returns up to three paths of modules as text.
std::string modules_text(std::vector<std::string> paths) {
  std::replace(paths.begin(), paths.end(), std::string(), std::string("the model's forward"));
  return name_list(paths, 3);
}

}  // namespace

std::string TwinMatch::text() const {
  const std::string all =
      fmt::format("PyTorch's {} fp32 losses{}", steps, dropouts > 0 ? " without dropout" : "");
  std::string text = "twin: ";
  if (compared == 0) {
    text += fmt::format("none of {} can be compared", all);
  } else {
    const std::string part =
        compared == 1 ? "the first of " : fmt::format("the first {} of ", compared);
    text += fmt::format("HalfScope repeats {}{} ", compared < steps ? part : "", all);
    text += largest > 0.0 ? fmt::format(
                                "within rounding: they differ by at most {:.2g} of the "
                                "loss, and {:.2g} is allowed",
                                largest, allowed)
                          : "bit for bit";
  }
  if (compared < steps) {
    text += fmt::format(". From step {} on, rounding alone may move the loss by more than {}",
                        compared, percent(kMostRounding));
    text += compared < kLeastCompared
                ? ", so this may be another training, and the verdict may not hold for PyTorch"
                : ", so later losses are not compared";
    if (!first_step.empty()) text += ". " + first_step;
  }
  if (dropouts > 0) text += ". Plans are judged with dropout";
  if (!lost_casts.empty()) {
    text += fmt::format(
        ". The twin does not have casts such as .to(x.dtype) or .float() in {}, so plans do not "
        "cast "
        "there",
        modules_text(lost_casts));
  }
  if (!autocast_off.empty()) {
    text += fmt::format(
        ". The twin does not have torch.autocast(enabled=False) in {}: plans may compute there in "
        "reduced precision, unless a rule keeps it in fp32",
        modules_text(autocast_off));
  }
  return text;
}

Json TwinMatch::json() const {
  return Json{{"repeats", bitwise ? "bitwise" : "rounding"},
              {"steps", steps},
              {"compared_steps", compared},
              {"largest_difference", largest},
              {"allowed_difference", allowed},
              {"dropouts", dropouts},
              {"lost_casts", lost_casts},
              {"autocast_off", autocast_off}};
}

TwinMatch repeat_twin(const TwinFolder& twin, int64_t steps, bool quiet) {
  const Settings settings = own_settings(twin, steps);
  TrainConfig config = train_config(settings);
  const Dataset data = load_training_data(settings);
  attach_network(config, settings, data);
  TwinMatch match{
      .steps = settings.steps, .lost_casts = twin.lost_casts, .autocast_off = twin.autocast_off};
  config.build = [build = config.build, &match](int64_t batch) {
    Model network = build(batch);
    match.dropouts = switch_dropout_off(network.graph);
    return network;
  };
  TwinRequest request{.training = config, .plan = *preset_plan("float32")};
  request.backend = &backend_for(request.plan, settings.backend);
  RunInfo shown;
  shown.lanes.emplace_back().name = "repeating PyTorch's losses";
  std::optional<ProgressLine> line(std::in_place, settings.steps, shown, quiet);
  const auto progress = [&](const std::string&, int, const StepRow& row) { (*line)({row}); };
  const Error stopped("stopped before the twin was repeated");
  std::optional<Twins> twins = train_twins(request, data, progress, catch_stop_signals());
  if (!twins) throw stopped;
  std::optional<Unlike> unlike = compare(match, *twins, twin);
  if (unlike) {
    std::optional<Twins> more = train_more(request, settings.backend, data, progress);
    if (!more) throw stopped;
    add_twins(*twins, std::move(*more));
    unlike = compare(match, *twins, twin);
  }
  line.reset();
  if (!unlike && match.compared >= std::min(match.steps, kLeastCompared)) return match;
  FirstStep first(twin, config, data, request.backend);
  if (unlike) {
    throw Error(fmt::format("twin '{}': at step {} the fp32 loss is {:.9g}, but PyTorch's was "
                            "{:.9g}; rounding explains a difference of {:.2g}{}",
                            twin.folder, unlike->step, unlike->got, unlike->wanted, unlike->allowed,
                            cause(first)),
                hint_of(twin, *unlike));
  }
  if (const std::optional<std::string> found = first.difference()) {
    throw Error(fmt::format("twin '{}': rounding hides a difference of the losses from step {} on, "
                            "but not of the first step. {}",
                            twin.folder, match.compared, *found),
                hint_of(twin, {}));
  }
  if (const std::string agreed = first.agreement(); !agreed.empty()) {
    match.first_step = fmt::format("In step 0, {} agree", agreed);
  }
  return match;
}

}  // namespace halfscope
