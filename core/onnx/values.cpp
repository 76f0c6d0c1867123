// SPDX-License-Identifier: MIT
#include "core/onnx/values.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <map>
#include <string_view>

#include "core/numeric/elementary/elementary.h"

namespace halfscope::onnx_files {
namespace {

constexpr int64_t kFewestOfFormula = 4;
/// A table that was gathered from repeats its rows at least this much.
constexpr double kMostDistinct = 0.75;
constexpr int64_t kFewestRows = 8;
constexpr int64_t kFewestRowsOfTable = 3;

/// Elements of a tensor as [outer, size, inner] around an axis.
struct AxisView {
  const KnownTensor& tensor;
  int64_t outer = 1, size = 1, inner = 1;

  AxisView(const KnownTensor& of, size_t axis) : tensor(of), size(of.shape[axis]) {
    for (size_t d = 0; d < of.shape.size(); ++d) {
      if (d != axis) (d < axis ? outer : inner) *= of.shape[d];
    }
  }
  float at(int64_t o, int64_t k, int64_t i) const {
    return tensor.reals[static_cast<size_t>((o * size + k) * inner + i)];
  }
};

/// x[k + 1] + x[k - 1] = c x[k] with one |c| <= 2: a sine, or (c = 2) an arithmetic sequence.
bool is_sine(const std::vector<double>& x) {
  double largest = 0.0, up = 0.0, down = 0.0;
  for (size_t k = 1; k + 1 < x.size(); ++k) {
    largest = std::max(largest, std::fabs(x[k]));
    up += (x[k + 1] + x[k - 1]) * x[k];
    down += x[k] * x[k];
  }
  largest = std::max({largest, std::fabs(x.front()), std::fabs(x.back())});
  if (down == 0.0) return std::fabs(x.front()) + std::fabs(x.back()) == 0.0;
  const double c = std::clamp(up / down, -2.0, 2.0);
  const double tolerance = 1e-5 * largest;
  for (size_t k = 1; k + 1 < x.size(); ++k) {
    if (std::fabs(x[k + 1] + x[k - 1] - c * x[k]) > tolerance) return false;
  }
  return true;
}

bool is_arithmetic(const std::vector<double>& x) {
  const double step = (x.back() - x.front()) / static_cast<double>(x.size() - 1);
  const double tolerance = 1e-5 * (std::fabs(x.front()) + std::fabs(x.back()));
  for (size_t k = 0; k < x.size(); ++k) {
    if (std::fabs(x[k] - x.front() - step * static_cast<double>(k)) > tolerance) return false;
  }
  return true;
}

bool is_geometric(const std::vector<double>& x) {
  for (size_t k = 1; k + 1 < x.size(); ++k) {
    const double square = x[k] * x[k], product = x[k - 1] * x[k + 1];
    if (square == 0.0 || std::fabs(square - product) > 1e-5 * square) return false;
  }
  return x.front() != 0.0;
}

bool is_constant(const std::vector<double>& x) {
  return std::adjacent_find(x.begin(), x.end(), std::not_equal_to<>()) == x.end();
}

/// Whether all slices across the axis are alike.
bool repeats_along(const KnownTensor& tensor, size_t axis) {
  const AxisView view(tensor, axis);
  for (int64_t o = 0; o < view.outer; ++o) {
    for (int64_t k = 1; k < view.size; ++k) {
      for (int64_t i = 0; i < view.inner; ++i) {
        if (view.at(o, k, i) != view.at(o, 0, i)) return false;
      }
    }
  }
  return true;
}

KnownTensor first_along(const KnownTensor& tensor, size_t axis) {
  const AxisView view(tensor, axis);
  KnownTensor first{.type = tensor.type, .shape = tensor.shape};
  first.shape[axis] = 1;
  for (int64_t o = 0; o < view.outer; ++o) {
    for (int64_t i = 0; i < view.inner; ++i) first.reals.push_back(view.at(o, 0, i));
  }
  return first;
}

/// The vectors along the axis, each kept once.
Repeats rows_along(const KnownTensor& tensor, size_t axis) {
  const AxisView view(tensor, axis);
  Repeats repeats;
  repeats.axis = axis;
  repeats.source.type = tensor.type;
  std::map<std::vector<uint32_t>, int64_t> known;
  for (int64_t o = 0; o < view.outer; ++o) {
    for (int64_t i = 0; i < view.inner; ++i) {
      std::vector<uint32_t> bits;
      for (int64_t k = 0; k < view.size; ++k)
        bits.push_back(std::bit_cast<uint32_t>(view.at(o, k, i)));
      const auto next = static_cast<int64_t>(known.size());
      const auto [found, added] = known.try_emplace(std::move(bits), next);
      repeats.rows.push_back(found->second);
      if (!added) continue;
      for (int64_t k = 0; k < view.size; ++k) repeats.source.reals.push_back(view.at(o, k, i));
    }
  }
  repeats.source.shape = {static_cast<int64_t>(known.size()), view.size};
  return repeats;
}

}  // namespace

bool is_one_number(const KnownTensor& tensor) {
  const std::vector<float>& x = tensor.reals;
  return std::adjacent_find(x.begin(), x.end(), std::not_equal_to<>()) == x.end();
}

/// Whether some row has several elements that are not zero: a permutation or an identity has not,
/// and weights may start as one.
static bool has_full_row(const KnownTensor& tensor) {
  const int64_t columns = tensor.shape.empty() ? 1 : tensor.shape.back();
  for (int64_t begin = 0; columns > 0 && begin < tensor.count(); begin += columns) {
    const auto row = tensor.reals.begin() + begin;
    if (std::count(row, row + columns, 0.0f) + 1 < columns) return true;
  }
  return false;
}

bool is_mask(const KnownTensor& tensor) {
  bool zero = false, other = false;
  float second = 0.0f;
  for (float value : tensor.reals) {
    if (value == 0.0f) {
      zero = true;
    } else if (value == 1.0f || value <= -1e4f) {
      if (other && (value == 1.0f) != (second == 1.0f)) return false;
      other = true;
      second = value;
    } else if (value <= -10.0f && (!other || value == second)) {
      other = true;
      second = value;
    } else {
      return false;
    }
  }
  if (second == 1.0f) return zero && tensor.shape.size() >= 2 && has_full_row(tensor);
  return other && (zero || second <= -1e4f);
}

bool follows_formula(const KnownTensor& tensor) {
  if (!tensor.real() || is_one_number(tensor)) return false;
  for (size_t axis = 0; axis < tensor.shape.size(); ++axis) {
    if (tensor.shape[axis] < kFewestOfFormula) continue;
    const AxisView view(tensor, axis);
    bool all = true, varies = false;
    std::vector<double> line(static_cast<size_t>(view.size));
    for (int64_t o = 0; o < view.outer && all; ++o) {
      for (int64_t i = 0; i < view.inner && all; ++i) {
        for (int64_t k = 0; k < view.size; ++k)
          line[static_cast<size_t>(k)] = static_cast<double>(view.at(o, k, i));
        if (is_constant(line)) continue;
        varies = true;
        all = is_arithmetic(line) || is_geometric(line) || is_sine(line);
      }
    }
    if (all && varies) return true;
  }
  return false;
}

bool same_values(const KnownTensor& a, const KnownTensor& b) {
  return a.shape == b.shape && a.reals == b.reals && a.ints == b.ints;
}

bool is_transpose(const KnownTensor& a, const KnownTensor& b) {
  if (a.shape.size() != 2 || b.shape != Shape{a.shape[1], a.shape[0]} || !a.real() || !b.real())
    return false;
  const auto rows = static_cast<size_t>(a.shape[0]), columns = static_cast<size_t>(a.shape[1]);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) {
      if (a.reals[r * columns + c] != b.reals[c * rows + r]) return false;
    }
  }
  return true;
}

std::optional<Repeats> find_repeats(const KnownTensor& tensor, int64_t batch) {
  if (!tensor.real() || tensor.count() < 2) return std::nullopt;
  const bool constant = is_one_number(tensor);
  if (constant) {
    if (batch < 2 || tensor.shape.size() < 2 || tensor.shape[0] != batch) return std::nullopt;
    return Repeats{first_along(tensor, 0), tensor.shape};
  }
  KnownTensor source = tensor;
  for (size_t axis = 0; axis < tensor.shape.size(); ++axis) {
    if (source.shape[axis] > 1 && repeats_along(source, axis)) source = first_along(source, axis);
  }
  if (source.shape != tensor.shape) return Repeats{std::move(source), tensor.shape};
  std::optional<Repeats> best;
  for (size_t axis = 0; axis < tensor.shape.size(); ++axis) {
    const int64_t rows = tensor.count() / std::max<int64_t>(1, tensor.shape[axis]);
    if (tensor.shape[axis] < 2 || rows < kFewestRows) continue;
    Repeats found = rows_along(tensor, axis);
    if (static_cast<double>(found.source.shape[0]) > kMostDistinct * static_cast<double>(rows))
      continue;
    if (!best || found.source.count() < best->source.count()) best = std::move(found);
  }
  return best;
}

namespace {

struct Inverse {
  std::string_view op;
  double (*forward)(double);
  double (*back)(double);
};
constexpr std::array kInverses{
    Inverse{"Exp", [](double x) { return elementary::exp(x); },
            [](double y) { return elementary::log(y); }},
    Inverse{"Log", [](double x) { return elementary::log(x); },
            [](double y) { return elementary::exp(y); }},
    Inverse{"Sigmoid", [](double x) { return 1.0 / (1.0 + elementary::exp(-x)); },
            [](double y) { return elementary::log(y / (1.0 - y)); }},
    Inverse{"Tanh", [](double x) { return elementary::tanh(x); },
            [](double y) { return 0.5 * (elementary::log1p(y) - elementary::log1p(-y)); }},
    Inverse{"Neg", [](double x) { return -x; }, [](double y) { return -y; }},
    Inverse{"Reciprocal", [](double x) { return 1.0 / x; }, [](double y) { return 1.0 / y; }},
    Inverse{"Sqrt", [](double x) { return std::sqrt(x); }, [](double y) { return y * y; }},
};

/// x of y = f(x); NaN where a float of y does not say it to five digits.
double undone(const Inverse& inverse, double y) {
  constexpr double kUlp = 1.2e-7;
  const double x = inverse.back(y);
  const double rounded = static_cast<double>(static_cast<float>(x));
  const double again = inverse.forward(rounded), neighbour = inverse.back(y * (1.0 - kUlp));
  const bool exact = std::isfinite(x) && std::fabs(again - y) <= 1e-6 * std::fabs(y) &&
                     std::fabs(neighbour - x) <= 1e-5 * std::max(1.0, std::fabs(x));
  return exact ? x : std::nan("");
}

}  // namespace

std::shared_ptr<const KnownTensor> undo(const KnownTensor& tensor,
                                        const std::vector<std::string>& operators) {
  if (tensor.type != DataType::float32 && tensor.type != DataType::float64) return nullptr;
  auto result = std::make_shared<KnownTensor>(tensor);
  for (size_t i = 0; i < tensor.reals.size(); ++i) {
    auto value = static_cast<double>(tensor.reals[i]);
    for (auto op = operators.rbegin(); op != operators.rend(); ++op) {
      const auto found = std::find_if(kInverses.begin(), kInverses.end(),
                                      [&](const Inverse& inverse) { return inverse.op == *op; });
      if (found == kInverses.end()) return nullptr;
      value = undone(*found, value);
    }
    if (!std::isfinite(value)) return nullptr;
    result->reals[i] = static_cast<float>(value);
  }
  return result;
}

bool has_centred_rows(const KnownTensor& tensor) {
  constexpr int64_t kFewest = 4;
  constexpr double kRounding = 1e-5;  // of the mean magnitude
  if (!tensor.real() || tensor.shape.size() < 2 || tensor.shape[0] < 2) return false;
  const int64_t length = tensor.count() / tensor.shape[0];
  if (length < kFewest) return false;
  for (int64_t row = 0; row < tensor.shape[0]; ++row) {
    double sum = 0.0, size = 0.0;
    for (int64_t i = 0; i < length; ++i) {
      const double x = tensor.reals[static_cast<size_t>(row * length + i)];
      sum += x;
      size += std::fabs(x);
    }
    if (!(size > 0.0) || std::fabs(sum) > kRounding * size) return false;
  }
  return true;
}

int64_t find_zero_row(const KnownTensor& table) {
  if (!table.real() || table.shape.size() != 2 || table.shape[0] < kFewestRowsOfTable) return -1;
  const int64_t size = table.shape[1];
  int64_t found = -1;
  for (int64_t row = 0; row < table.shape[0]; ++row) {
    const auto begin = table.reals.begin() + row * size;
    if (std::any_of(begin, begin + size, [](float x) { return x != 0.0f; })) continue;
    if (found >= 0) return -1;
    found = row;
  }
  return found;
}

bool is_spread(const KnownTensor& tensor, const KnownTensor& of) {
  const size_t rank = of.shape.size(), count = of.reals.size();
  if (!tensor.real() || !of.real() || count == 0 || rank > tensor.shape.size() ||
      !std::equal(of.shape.rbegin(), of.shape.rend(), tensor.shape.rbegin())) {
    return false;
  }
  for (size_t i = 0; i < tensor.reals.size(); ++i) {
    if (tensor.reals[i] != of.reals[i % count]) return false;
  }
  return true;
}

}  // namespace halfscope::onnx_files
