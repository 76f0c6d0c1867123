// SPDX-License-Identifier: MIT
#include "cli/tasks/diff_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/rules/text.h"
#include "cli/terminal/lane_summary.h"
#include "cli/terminal/output.h"
#include "core/data/npz.h"
#include "core/data/safetensors.h"
#include "core/data/stored_array.h"
#include "core/numeric/formats/round.h"
#include "core/numeric/statistics/ulp.h"

namespace halfscope {
namespace {

/// The files of tensors that can be read, by the end of their names. Another kind is a row here.
struct TensorFile {
  std::string_view ending;
  NamedDoubleTensors (*read)(const std::string& file);
};
constexpr TensorFile kTensorFiles[] = {
    {".safetensors", [](const std::string& file) { return read_safetensors_double(file); }},
    {".npz", [](const std::string& file) { return read_npz_double(file); }},
    {".npy", [](const std::string& file) {
       return NamedDoubleTensors{{"", read_npy_double(file)}};
     }}};

const TensorFile* kind_of(std::string_view file) noexcept {
  for (const TensorFile& kind : kTensorFiles) {
    if (file.ends_with(kind.ending)) return &kind;
  }
  return nullptr;
}

/// Returns the distance of two different values in ulps of the format: steps between its values, or
/// a fraction of one step for doubles that round to the same value. The last binade goes on beyond
/// the largest value. An infinity is infinitely far away, as for UlpNear: an overflow is not a
/// rounding error.
double ulps_between(double a, double b, const FloatFormat& format) {
  if (!std::isfinite(a) || !std::isfinite(b)) return std::numeric_limits<double>::infinity();
  const double largest = std::fmax(std::fabs(a), std::fabs(b));
  if (largest <= format.max_finite()) {
    const auto narrow = [](double x) {
      return static_cast<float>(round_to_format(x, kFp32).value);
    };
    const int64_t steps = ulp_distance(narrow(a), narrow(b), format);
    if (steps > 0) return static_cast<double>(steps);
  }
  return std::fabs(a - b) / ulp_size(largest, format);
}

TensorDiff diff_tensor(const std::string& name, const DoubleTensor& a, const DoubleTensor& b,
                       const FloatFormat& format, bool rounds, double tolerance) {
  TensorDiff diff{.name = name, .shape_a = a.shape, .shape_b = b.shape};
  if (a.shape != b.shape) return diff;
  diff.n = static_cast<int64_t>(a.data.size());
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  long double difference = 0.0L, size = 0.0L;  // squares of doubles can overflow a double
  for (size_t i = 0; i < a.data.size(); ++i) {
    ElementDiff element{.index = i, .a = a.data[i], .b = b.data[i]};
    if (rounds) {
      // Rounded from double at once: by way of fp32, ties could go the wrong way.
      element.a = round_to_format(element.a, format).value;
      element.b = round_to_format(element.b, format).value;
    }
    const bool finite = std::isfinite(element.a) && std::isfinite(element.b);
    if (finite) {
      const long double apart = static_cast<long double>(element.a) - element.b;
      difference += apart * apart;
      size += static_cast<long double>(element.b) * element.b;
    }
    const bool both_nan = std::isnan(element.a) && std::isnan(element.b);
    if (element.a == element.b || both_nan) continue;
    if (!finite) difference = kInfinity;
    element.ulps = ulps_between(element.a, element.b, format);
    if (element.ulps <= tolerance) continue;
    if (diff.differing++ == 0) diff.first = diff.worst = element;
    if (element.ulps > diff.worst.ulps) diff.worst = element;
  }
  if (difference > 0.0L) {
    diff.error = size > 0.0L ? static_cast<double>(std::sqrt(difference / size)) : kInfinity;
  }
  return diff;
}

std::string element_text(const TensorDiff& diff, const ElementDiff& element) {
  return fmt::format("{}: {} -> {}", position_text(diff.shape_a, element.index),
                     shortest(element.a), shortest(element.b));
}

Json element_json(const ElementDiff& element) {
  return {{"index", element.index},
          {"a", json_number(element.a)},
          {"b", json_number(element.b)},
          {"ulps", json_number(element.ulps)}};
}

}  // namespace

bool names_tensors(std::string_view file) noexcept { return kind_of(file) != nullptr; }

NamedDoubleTensors read_tensors(const std::string& file) { return kind_of(file)->read(file); }

bool TensorsDiff::same() const noexcept {
  return only_a.empty() && only_b.empty() &&
         std::all_of(tensors.begin(), tensors.end(),
                     [](const TensorDiff& each) { return each.same(); });
}

TensorsDiff diff_tensors(const NamedDoubleTensors& a, const NamedDoubleTensors& b,
                         const std::optional<FloatFormat>& format, double tolerance) {
  TensorsDiff diff{
      .ulps_of = format.value_or(kFp32), .tolerance = tolerance, .rounded = format.has_value()};
  const auto compare = [&](const std::string& name, const DoubleTensor& x, const DoubleTensor& y) {
    diff.tensors.push_back(diff_tensor(name, x, y, diff.ulps_of, diff.rounded, tolerance));
  };
  if (a.size() == 1 && b.size() == 1) {
    const std::string& name = a.begin()->first;
    compare(name.empty() ? b.begin()->first : name, a.begin()->second, b.begin()->second);
    return diff;
  }
  for (const auto& [name, tensor] : a) {
    const auto other = b.find(name);
    if (other == b.end()) {
      diff.only_a.push_back(name);
    } else {
      compare(name, tensor, other->second);
    }
  }
  for (const auto& [name, tensor] : b) {
    if (!a.contains(name)) diff.only_b.push_back(name);
  }
  return diff;
}

std::string tensors_diff_text(const TensorsDiff& diff, size_t limit) {
  std::vector<const TensorDiff*> differing;
  for (const TensorDiff& each : diff.tensors) {
    if (!each.same()) differing.push_back(&each);
  }
  // Different shapes first, then by distance.
  std::stable_sort(
      differing.begin(), differing.end(), [](const TensorDiff* x, const TensorDiff* y) {
        const bool shape_x = x->shape_a != x->shape_b, shape_y = y->shape_a != y->shape_b;
        return shape_x != shape_y ? shape_x : x->worst.ulps > y->worst.ulps;
      });
  std::string text;
  for (const auto& [which, names] : {std::pair{"first", diff.only_a}, {"second", diff.only_b}}) {
    std::vector<std::string> shown;
    for (const std::string& name : names) shown.push_back(printable_name(name));
    if (!names.empty()) text += fmt::format("only in the {}: {}\n", which, name_list(shown));
  }
  const std::string format = format_name(diff.ulps_of);
  const std::string compared = counted(static_cast<int64_t>(diff.tensors.size()), "tensor");
  const std::string as = diff.rounded ? " as " + format : "";
  const std::string allowed =
      diff.tolerance > 0.0
          ? fmt::format("{} ulp{}", shortest(diff.tolerance), diff.tolerance == 1.0 ? "" : "s")
          : "";
  if (differing.empty()) {
    return text + fmt::format("the same in {}{}{}\n", compared, as,
                              allowed.empty() ? "" : ", within " + allowed + " of " + format);
  }
  text += fmt::format("{} of {} differ{}{}; ulps of {}\n", differing.size(), compared, as,
                      allowed.empty() ? "" : " by more than " + allowed, format);
  std::vector<std::vector<std::string>> rows{
      {"tensor", "differ", "of", "most ulps", "error", "first", "worst"}};
  for (size_t i = 0; i < std::min(limit, differing.size()); ++i) {
    const TensorDiff& each = *differing[i];
    const std::string name = each.name.empty() ? "-" : printable_name(each.name);
    if (each.shape_a != each.shape_b) {
      rows.push_back({name, "-", "-", "-", "-",
                      "shapes " + to_string(each.shape_a) + " and " + to_string(each.shape_b), ""});
      continue;
    }
    rows.push_back({name, std::to_string(each.differing), std::to_string(each.n),
                    table_number(each.worst.ulps), table_number(each.error),
                    element_text(each, each.first), element_text(each, each.worst)});
  }
  text += aligned(rows, {false, true, true, true, true, false, false});
  if (differing.size() > limit) text += fmt::format("... {} more\n", differing.size() - limit);
  return text;
}

Json tensors_diff_json(const TensorsDiff& diff) {
  Json json;
  json["same"] = diff.same();
  json["format"] = format_name(diff.ulps_of);
  json["rounded"] = diff.rounded;
  json["tolerance"] = json_number(diff.tolerance);
  json["only"] = Json::array({diff.only_a, diff.only_b});
  json["tensors"] = Json::array();
  for (const TensorDiff& each : diff.tensors) {
    const bool differs = each.differing > 0;
    json["tensors"].push_back({{"name", each.name},
                               {"same", each.same()},
                               {"shapes", Json::array({each.shape_a, each.shape_b})},
                               {"n", each.n},
                               {"differing", each.differing},
                               {"error", json_number(each.error)},
                               {"first", differs ? element_json(each.first) : Json(nullptr)},
                               {"worst", differs ? element_json(each.worst) : Json(nullptr)}});
  }
  return json;
}

}  // namespace halfscope
