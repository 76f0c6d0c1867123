// SPDX-License-Identifier: MIT
// Bindings of the recording and of functions of one array. Python hands over lists of tensors, so
// that a step is a few calls. Arrays are borrowed with the GIL held and measured without it.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/numeric/formats/round.h"
#include "core/numeric/formats/rounding.h"
#include "emulation/isa.h"
#include "emulation/measure/measure.h"
#include "python/src/arrays.h"
#include "python/src/measuring.h"
#include "python/src/recording.h"
#include "python/src/run_file.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace halfscope::python {
namespace {

template <class Enum>
Enum named(const std::string& name, std::initializer_list<Enum> all,
           const char* (*name_of)(Enum) noexcept) {
  for (const Enum each : all) {
    if (name == name_of(each)) return each;
  }
  throw nb::value_error(("unknown name '" + name + "'").c_str());
}

Role role_from(const std::string& name) {
  return named(name,
               {Role::input, Role::activation, Role::weight, Role::activation_grad,
                Role::weight_grad, Role::update, Role::state},
               role_name);
}

Phase phase_from(const std::string& name) {
  return named(name, {Phase::forward, Phase::backward, Phase::update}, phase_name);
}

/// step, loss, loss scale, learning rate, skipped, gradient norm, milliseconds
using Row = std::tuple<int64_t, double, double, double, bool, double, double>;

StepRow row_from(const Row& row) {
  StepRow result;
  std::tie(result.step, result.loss, result.loss_scale, result.learning_rate, result.skipped,
           result.grad_norm, result.ms) = row;
  return result;
}

/// path, operator, inputs, read format, write format, parameters
using Layer = std::tuple<std::string, std::string, std::vector<std::string>, std::string,
                         std::string, int64_t>;

RunInfo run_from(const std::map<std::string, std::string>& texts,
                 const std::map<std::string, int64_t>& numbers, const std::vector<Layer>& layers) {
  const auto text = [&](const char* key) {
    const auto found = texts.find(key);
    return found == texts.end() ? std::string() : found->second;
  };
  const auto number = [&](const char* key) {
    const auto found = numbers.find(key);
    return found == numbers.end() ? int64_t{0} : found->second;
  };
  RunInfo run;
  run.model = text("model");
  run.data = text("data");
  run.optimizer = text("optimizer");
  run.command = text("command");
  run.batch = number("batch");
  run.steps_planned = number("steps_planned");
  run.seed = static_cast<uint64_t>(number("seed"));
  run.threads = static_cast<int>(number("threads"));
  run.every = static_cast<int>(number("every"));
  run.isa = isa_name(active_isa());
  run.version = HALFSCOPE_VERSION;
  LaneInfo lane;
  lane.name = text("lane");
  lane.backend = text("backend");
  lane.plan_json = text("plan");
  lane.loss_scale = text("loss_scale");
  for (const auto& [path, op, inputs, read, write, parameters] : layers) {
    LayerInfo layer;
    layer.path = path;
    layer.op = op;
    layer.inputs = inputs;
    layer.read = format_from(read);
    layer.write = format_from(write);
    layer.parameters = parameters;
    lane.layers.push_back(std::move(layer));
  }
  run.lanes.push_back(std::move(lane));
  return run;
}

nb::dict dict_of(const TensorStats& stats) {
  nb::dict all;
  all["n"] = stats.n;
  all["zero"] = stats.zero;
  all["pos_inf"] = stats.pos_inf;
  all["neg_inf"] = stats.neg_inf;
  all["nan"] = stats.nan;
  all["overflow"] = stats.overflow;
  all["underflow"] = stats.underflow;
  all["subnormal"] = stats.subnormal;
  all["lost"] = stats.lost;
  all["max_abs"] = static_cast<double>(stats.max_abs);
  all["min_abs"] = static_cast<double>(stats.min_abs);
  all["sum"] = stats.sum;
  all["sum_sq"] = stats.sum_sq;
  all["exponents"] = std::vector<int64_t>(stats.exponents.begin(), stats.exponents.end());
  return all;
}

/// site, tensor
using TensorPair = std::tuple<int, nb::object>;
/// site of the update, site of the weight, the weight, its gradient or None
using UpdateTensors = std::tuple<int, int, nb::object, nb::object>;
/// site, tensor, and for means of squares the mean of gradients
using StateTensors = std::tuple<int, nb::object, nb::object>;

/// Tensors that Python handed over, and what each of them is.
class TensorList {
 public:
  explicit TensorList(const std::vector<TensorPair>& tensors) {
    for (const auto& [site, tensor] : tensors) add(site, tensor, nb::none(), -1);
  }
  TensorList() = default;

  void add(int site, nb::handle tensor, nb::handle beside, int weight) {
    const Borrowed& own = borrowed_.emplace_back(tensor);
    const Elements* other =
        beside.is_none() ? nullptr : &borrowed_.emplace_back(beside, &own).elements();
    tensors_.push_back({site, &own.elements(), other, weight});
  }

  std::span<const SiteTensor> tensors() const noexcept { return tensors_; }

 private:
  std::deque<Borrowed> borrowed_;  // stay where they are
  std::vector<SiteTensor> tensors_;
};

void measure_one(Recording& recording, int site, nb::handle tensor, bool merge) {
  const Borrowed borrowed(tensor);
  const SiteTensor one{.site = site, .elements = &borrowed.elements()};
  const nb::gil_scoped_release unlocked;
  recording.measure({&one, 1}, merge);
}

void measure_all(Recording& recording, const std::vector<TensorPair>& tensors, bool merge) {
  const TensorList list(tensors);
  const nb::gil_scoped_release unlocked;
  recording.measure(list.tensors(), merge);
}

void before_update(Recording& recording, const std::vector<TensorPair>& weights) {
  const TensorList list(weights);
  const nb::gil_scoped_release unlocked;
  recording.before_update(list.tensors());
}

void after_update(Recording& recording, const std::vector<UpdateTensors>& updates,
                  const std::vector<StateTensors>& states) {
  TensorList list;
  for (const auto& [site, weight, after, gradient] : updates) {
    list.add(site, after, gradient, weight);
  }
  for (const auto& [site, tensor, mean] : states) list.add(site, tensor, mean, -1);
  const nb::gil_scoped_release unlocked;
  recording.after_update(list.tensors());
}

nb::object round_array(const Array& array, const std::string& format_name,
                       const std::string& mode_name) {
  const FloatFormat format = format_from(format_name);
  const std::optional<RoundingMode> mode = parse_rounding_mode(mode_name);
  if (!mode || *mode == RoundingMode::stochastic) {
    throw nb::value_error(("'" + mode_name + "' is not a rounding mode of this function").c_str());
  }
  const Elements elements = row_major_elements_of(array);
  const size_t n = static_cast<size_t>(elements.size());
  std::vector<size_t> shape;
  for (size_t i = 0; i < array.ndim(); ++i) shape.push_back(array.shape(i));
  const bool wide = elements.kind() == ElementKind::f64;
  if (wide) {
    auto out = std::make_unique<double[]>(n);
    elements.load_doubles(0, elements.size(), out.get());
    for (size_t i = 0; i < n; ++i) {
      out[i] = round_to_format(out[i], format, Rounding{.mode = *mode}).value;
    }
    double* data = out.get();
    const nb::capsule owner(out.release(),
                            [](void* p) noexcept { delete[] static_cast<double*>(p); });
    return nb::cast(nb::ndarray<nb::numpy, double>(data, shape.size(), shape.data(), owner));
  }
  auto out = std::make_unique<float[]>(n);
  elements.load(0, elements.size(), out.get());
  round_tensor(out.get(), out.get(), elements.size(), format, {.mode = *mode});
  float* data = out.get();
  const nb::capsule owner(out.release(), [](void* p) noexcept { delete[] static_cast<float*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, float>(data, shape.size(), shape.data(), owner));
}

TensorStats stats_of_array(nb::handle array, const std::optional<std::string>& format_name) {
  const Borrowed borrowed(array);
  const Elements& elements = borrowed.elements();
  const FloatFormat format = format_name ? format_from(*format_name) : format_of(elements.kind());
  const nb::gil_scoped_release unlocked;
  return measure_elements(elements, format);
}

RunEnd end_from(const std::string& how) {
  if (how == "complete") return RunEnd::complete;
  if (how == "interrupted") return RunEnd::interrupted;
  throw nb::value_error("a run ends 'complete' or 'interrupted'");
}

}  // namespace

void bind_recording(nb::module_& module) {
  nb::class_<Recording>(module, "Recording", "A run that is being recorded.")
      .def(
          "__init__",
          [](Recording* self, const std::string& file, bool force, int threads) {
            new (self) Recording(file, force, threads);
          },
          "file"_a, "force"_a, "threads"_a = 0)
      .def(
          "add_site",
          [](Recording& self, std::string path, std::string tensor, const std::string& role,
             const std::string& phase, std::string op, const std::string& format,
             const std::vector<int64_t>& shape) {
            SiteInfo site;
            site.path = std::move(path);
            site.tensor = std::move(tensor);
            site.role = role_from(role);
            site.phase = phase_from(phase);
            site.op = std::move(op);
            site.format = format_from(format);
            site.shape = Shape(shape.begin(), shape.end());
            return self.add_site(std::move(site));
          },
          "path"_a, "tensor"_a, "role"_a, "phase"_a, "op"_a, "format"_a, "shape"_a,
          "Adds a tensor to record and returns its number.")
      .def(
          "set_format",
          [](Recording& self, int site, const std::string& format) {
            self.set_format(site, format_from(format));
          },
          "site"_a, "format"_a)
      .def_prop_ro("begun", &Recording::begun)
      .def("measure", &measure_one, "site"_a, "tensor"_a, "merge"_a,
           "Measures a tensor of the open step. With merge, what the site has is kept.")
      .def("measure_all", &measure_all, "tensors"_a, "merge"_a,
           "Measures (site, tensor) pairs of the open step.")
      .def("before_update", &before_update, "weights"_a,
           "Measures (site, weight) pairs and keeps the weights until after_update().")
      .def("after_update", &after_update, "updates"_a, "states"_a,
           "Measures (site, weight site, weight, gradient) and (site, state, mean) tuples.")
      .def("norm", &Recording::norm, "sites"_a)
      .def(
          "begin",
          [](Recording& self, const std::map<std::string, std::string>& texts,
             const std::map<std::string, int64_t>& numbers, const std::vector<Layer>& layers,
             const std::vector<int>& order) {
            self.begin(run_from(texts, numbers, layers), order);
          },
          "texts"_a, "numbers"_a, "layers"_a, "order"_a)
      .def(
          "step",
          [](Recording& self, const Row& row, bool recorded) {
            const nb::gil_scoped_release unlocked;
            self.step(row_from(row), recorded);
          },
          "row"_a, "recorded"_a, "Ends the open step.")
      .def(
          "rows",
          [](Recording& self, const std::vector<Row>& rows) {
            const nb::gil_scoped_release unlocked;
            std::vector<StepRow> all;
            for (const Row& row : rows) all.push_back(row_from(row));
            self.rows(all);
          },
          "rows"_a, "Writes rows of steps without statistics.")
      .def(
          "eval",
          [](Recording& self, int64_t step, double loss, double accuracy, double auc,
             double mean_iou) {
            self.eval({.step = step,
                       .loss = loss,
                       .accuracy = accuracy,
                       .auc = auc,
                       .mean_iou = mean_iou});
          },
          "step"_a, "loss"_a, "accuracy"_a, "auc"_a = std::numeric_limits<double>::quiet_NaN(),
          "mean_iou"_a = std::numeric_limits<double>::quiet_NaN())
      .def("observe", &Recording::observe, "fact"_a,
           "Adds a fact about the training script, such as 'loss', to the run.")
      .def("drop_step", &Recording::drop_step)
      .def("release", &Recording::release, "Gives back memory that only recorded steps need.")
      .def(
          "end", [](Recording& self, const std::string& how) { self.end(end_from(how)); }, "how"_a,
          "Closes the file.");
  module.def("round", &round_array, "array"_a, "format"_a, "mode"_a,
             "Returns the array rounded to a format, as float32 (float64 for float64).");
  module.def(
      "stats",
      [](nb::handle array, const std::optional<std::string>& format) {
        return dict_of(stats_of_array(array, format));
      },
      "array"_a, "format"_a.none(), "Returns the statistics of an array.");
  module.def(
      "format_limits",
      [](const std::string& name) {
        const FloatFormat format = format_from(name);
        return std::make_tuple(halfscope::format_name(format), format.max_finite(),
                               format.min_normal(), format.min_subnormal());
      },
      "format"_a, "Returns name, largest, smallest normal and smallest value of a format.");
  module.attr("kMinExponent") = kMinExponentBin;
}

}  // namespace halfscope::python
