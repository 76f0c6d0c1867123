// SPDX-License-Identifier: MIT
#include "python/src/run_file.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "analysis/report/report.h"
#include "analysis/run_view.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace halfscope::python {
namespace {

template <class Number>
nb::object numpy_of(std::vector<Number> numbers, std::vector<size_t> shape) {
  auto owned = std::make_unique<std::vector<Number>>(std::move(numbers));
  Number* data = owned->data();
  const nb::capsule owner(owned.release(),
                          [](void* p) noexcept { delete static_cast<std::vector<Number>*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, Number>(data, shape.size(), shape.data(), owner));
}

template <class Number>
nb::object numpy_of(std::vector<Number> numbers) {
  const size_t n = numbers.size();
  return numpy_of(std::move(numbers), {n});
}

/// Returns a member of all rows; booleans become 0 and 1.
template <class Row, class Number>
nb::object column(std::span<const Row> rows, Number Row::*member) {
  using Stored = std::conditional_t<std::is_same_v<Number, bool>, uint8_t, Number>;
  std::vector<Stored> numbers;
  for (const Row& row : rows) numbers.push_back(static_cast<Stored>(row.*member));
  return numpy_of(std::move(numbers));
}

class RunFile {
 public:
  explicit RunFile(const std::string& file) : view_(RunView::open(file)) {}

  std::string status() const { return status_name(view_.status()); }

  std::vector<std::string> lanes() const {
    std::vector<std::string> names;
    for (const LaneInfo& lane : view_.info().lanes) names.push_back(lane.name);
    return names;
  }

  nb::list sites(int lane) const {
    nb::list all;
    for (const SiteInfo& site : view_.lane(lane).sites) {
      nb::dict row;
      row["name"] = site.name();
      row["path"] = site.path;
      row["tensor"] = site.tensor;
      row["role"] = role_name(site.role);
      row["phase"] = phase_name(site.phase);
      row["op"] = site.op;
      row["format"] = format_name(site.format);
      row["shape"] = std::vector<int64_t>(site.shape.begin(), site.shape.end());
      all.append(row);
    }
    return all;
  }

  nb::list layers(int lane) const {
    nb::list all;
    for (const LayerInfo& layer : view_.lane(lane).layers) {
      nb::dict row;
      row["path"] = layer.path;
      row["op"] = layer.op;
      row["inputs"] = layer.inputs;
      row["read"] = format_name(layer.read);
      row["write"] = format_name(layer.write);
      row["parameters"] = layer.parameters;
      all.append(row);
    }
    return all;
  }

  nb::dict steps(int lane) const {
    const std::span<const StepRow> rows = view_.steps(lane);
    nb::dict all;
    all["step"] = column(rows, &StepRow::step);
    all["loss"] = column(rows, &StepRow::loss);
    all["loss_scale"] = column(rows, &StepRow::loss_scale);
    all["learning_rate"] = column(rows, &StepRow::learning_rate);
    all["grad_norm"] = column(rows, &StepRow::grad_norm);
    all["accuracy"] = column(rows, &StepRow::accuracy);
    all["ms"] = column(rows, &StepRow::ms);
    all["skipped"] = column(rows, &StepRow::skipped);
    return all;
  }

  nb::dict evals(int lane) const {
    const std::span<const EvalRow> rows = view_.evals(lane);
    nb::dict all;
    all["step"] = column(rows, &EvalRow::step);
    all["loss"] = column(rows, &EvalRow::loss);
    all["accuracy"] = column(rows, &EvalRow::accuracy);
    all["auc"] = column(rows, &EvalRow::auc);
    all["mean_iou"] = column(rows, &EvalRow::mean_iou);
    return all;
  }

  nb::dict stats(int lane, int site) const {
    if (site < 0 || static_cast<size_t>(site) >= view_.lane(lane).sites.size()) {
      throw nb::index_error("the lane has no such site");
    }
    std::vector<int64_t> step, step_count, exponents;
    std::vector<std::vector<int64_t>> counters(kCounters.size());
    std::vector<double> max_abs, min_abs, sum, sum_sq;
    for (const PackedWindow& packed : view_.windows(lane, site)) {
      const TensorStats stats = packed.stats();
      step.push_back(packed.step);
      step_count.push_back(packed.step_count);
      for (size_t i = 0; i < kCounters.size(); ++i) {
        counters[i].push_back(stats.*kCounters[i].second);
      }
      max_abs.push_back(stats.max_abs);
      min_abs.push_back(stats.min_abs);
      sum.push_back(stats.sum);
      sum_sq.push_back(stats.sum_sq);
      exponents.insert(exponents.end(), stats.exponents.begin(), stats.exponents.end());
    }
    const size_t windows = step.size();
    nb::dict all;
    all["step"] = numpy_of(std::move(step));
    all["step_count"] = numpy_of(std::move(step_count));
    for (size_t i = 0; i < kCounters.size(); ++i) {
      all[kCounters[i].first] = numpy_of(std::move(counters[i]));
    }
    all["max_abs"] = numpy_of(std::move(max_abs));
    all["min_abs"] = numpy_of(std::move(min_abs));
    all["sum"] = numpy_of(std::move(sum));
    all["sum_sq"] = numpy_of(std::move(sum_sq));
    all["exponents"] =
        numpy_of(std::move(exponents), {windows, static_cast<size_t>(kExponentBins)});
    return all;
  }

  std::string report() const { return report_json(make_report(view_)); }

 private:
  static constexpr std::array<std::pair<const char*, int64_t TensorStats::*>, 9> kCounters{
      {{"n", &TensorStats::n},
       {"zero", &TensorStats::zero},
       {"pos_inf", &TensorStats::pos_inf},
       {"neg_inf", &TensorStats::neg_inf},
       {"nan", &TensorStats::nan},
       {"overflow", &TensorStats::overflow},
       {"underflow", &TensorStats::underflow},
       {"subnormal", &TensorStats::subnormal},
       {"lost", &TensorStats::lost}}};

  RunView view_;
};

}  // namespace

void bind_run_file(nb::module_& module) {
  nb::class_<RunFile>(module, "RunFile", "A snapshot of a run file, also of a growing one.")
      .def(nb::init<const std::string&>(), "file"_a, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("status", &RunFile::status)
      .def_prop_ro("lanes", &RunFile::lanes)
      .def("sites", &RunFile::sites, "lane"_a)
      .def("layers", &RunFile::layers, "lane"_a)
      .def("steps", &RunFile::steps, "lane"_a, "Returns the rows of all steps as arrays.")
      .def("evals", &RunFile::evals, "lane"_a, "Returns the rows of all evaluations as arrays.")
      .def("stats", &RunFile::stats, "lane"_a, "site"_a,
           "Returns the statistics of a site as arrays, one entry for each recorded window.")
      .def("report", &RunFile::report, nb::call_guard<nb::gil_scoped_release>(),
           "Returns the report as JSON (halfscope.report/1).");
}

}  // namespace halfscope::python
