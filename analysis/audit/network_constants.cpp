// SPDX-License-Identifier: MIT
// Constants and weights of networks.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "analysis/audit/roles.h"
#include "analysis/audit/rows.h"
#include "analysis/rules/text.h"
#include "core/lower/narrow.h"

namespace halfscope::audit {
namespace {

using Of = AuditedConstant::Of;

/// A read of a constant: its format, and the format in which its own value may be written.
struct Reading {
  FloatFormat read = kFp32, written = kFp32;
};

double rounded(double x, const Reading& reading) {
  return in_format(in_format(x, reading.read), reading.written);
}

/// Fills in value, becomes, counts and error of a tensor; returns the tensor as it is then.
Tensor measure(const Tensor& tensor, const Reading& reading, AuditedConstant& row) {
  Tensor result = tensor;
  row.count = static_cast<int64_t>(tensor.data.size());
  int worst = -1;  // 0: kept, 1: becomes 0, 2: becomes infinite
  for (size_t i = 0; i < tensor.data.size(); ++i) {
    const double x = static_cast<double>(tensor.data[i]), y = rounded(x, reading);
    result.data[i] = static_cast<float>(y);
    const bool zero = y == 0.0 && x != 0.0, infinite = std::isinf(y) && std::isfinite(x);
    row.zeros += zero;
    row.infinities += infinite;
    const int rank = infinite ? 2 : zero ? 1 : 0;
    if (rank < worst || (rank == worst && !(std::fabs(x) > std::fabs(row.value)))) continue;
    worst = rank;
    row.value = x;
    row.becomes = y;
  }
  row.relative_error = relative_error(row.value, row.becomes);
  row.format =
      rounded(row.value, {.read = reading.read}) == row.becomes ? reading.read : reading.written;
  return result;
}

/// Returns the 2-norm of the elements that become 0 over the 2-norm of all elements.
double lost_share(const Tensor& before, const Tensor& after) {
  double lost = 0.0, all = 0.0;
  for (size_t i = 0; i < before.data.size(); ++i) {
    const double x = static_cast<double>(before.data[i]);
    if (!std::isfinite(x)) continue;
    all += x * x;
    if (after.data[i] == 0.0f) lost += x * x;
  }
  return all > 0.0 ? std::sqrt(lost / all) : 0.0;
}

/// Returns whether the loss is larger than rounding explains.
bool matters(double share, const FloatFormat& format) {
  return share > std::ldexp(1.0, -format.mantissa_bits - 1);
}

std::string place(const AuditedConstant& row) {
  return row.op.empty() ? row.path : fmt::format("{} ({})", row.path, row.op);
}

/// Judges a guard against division by 0: a guard that is 0 no longer guards.
void judge_guard(const Graph& graph, const Singular& singular, AuditedConstant& row) {
  const Node& node = graph.node(singular.node);
  row.severity = Severity::error;
  row.text = fmt::format("{} reads {}, which is 0 in {}, so it no longer keeps {} ({}) from {} 0",
                         place(row), short_number(row.value), format_name(row.format), node.path,
                         node.op, singular.divides ? "dividing by" : "taking the logarithm of");
  row.safe = least_number(row.format);
  // 1 / c^power must stay finite, and c^power a normal number: c^power = min_normal does both.
  const double normal = row.format.min_normal();
  row.safe_for_gradients = std::pow(normal, 1.0 / std::max(singular.power, 1.0));
  row.advice = fmt::format("use at least {}; the gradient needs {}", short_number(*row.safe),
                           short_number(*row.safe_for_gradients));
  if (singular.power > 1.0) {
    row.advice +=
        fmt::format(", because it divides by the value to the power of {}", singular.power);
  }
}

void judge_zeros(const Graph& graph, NodeId id, size_t operand, double share,
                 AuditedConstant& row) {
  const Node& node = graph.node(id);
  if (may_be_result(node)) {
    // Any other sum changes by less than half of the smallest number.
    const std::optional<Singular> singular = singular_behind(graph, node.outputs[0]);
    if (singular) judge_guard(graph, *singular, row);
    return;
  }
  const bool whole = row.zeros == row.count;
  if (!whole && !matters(share, row.format)) return;
  const std::string numbers =
      row.count == 1 ? short_number(row.value) : percent(share) + " of a constant";
  const bool divisor = node.op == "Div" && operand == 1;
  const bool known = divisor || node.op == "Mul" || node.op == "Div" || node.op == "Pow";
  row.severity = known && whole ? Severity::error : Severity::warning;
  row.text =
      fmt::format("{} reads {}, which is 0 in {}: {}", place(row), numbers, format_name(row.format),
                  !whole    ? "these elements have no effect"
                  : divisor ? "it divides by 0"
                  : known   ? "its output no longer depends on the other operand"
                            : "it has no effect");
  row.safe = std::copysign(least_number(row.format), row.value);
  row.advice = fmt::format("use at least {}, or scale the other operand",
                           short_number(std::fabs(*row.safe)));
}

void judge_infinities(const Graph& graph, NodeId id, size_t operand, const Tensor& after,
                      AuditedConstant& row) {
  const Masking masking = masking_of(graph, id, operand, after);
  const double most = row.format.max_finite();
  const std::string what =
      fmt::format("{} reads {}, which is {}infinity in {}", place(row), short_number(row.value),
                  row.becomes < 0.0 ? "-" : "", format_name(row.format));
  if (masking == Masking::guarded) {
    row.text =
        what + ". Every row of the softmax keeps a finite value, so the mask works as before";
    return;
  }
  row.severity = masking == Masking::unknown ? Severity::warning : Severity::error;
  row.text =
      what + (masking == Masking::none ? "" : ", so a fully masked row becomes NaN in the softmax");
  // Half of the largest number leaves as much room for what is added to it.
  const bool sums = may_be_result(graph.node(id));
  row.safe = std::copysign(sums ? most / 2.0 : most, row.value);
  row.advice = sums ? fmt::format("use {}, which leaves room to add values up to {}",
                                  short_number(*row.safe), short_number(most / 2.0))
                    : fmt::format("use at most {}", short_number(most));
}

class NetworkAudit {
 public:
  NetworkAudit(const Executable& exe, const Graph& whole, std::vector<AuditedConstant>& rows)
      : exe_(exe), whole_(whole), rows_(rows) {
    for (const Constant& constant : exe.graph.constants()) {
      const bool real = exe.graph.value(constant.value).type == ElementType::real;
      if (real && !constant.tensor.data.empty()) constants_[constant.value] = &constant.tensor;
    }
    for (size_t id = 0; id < whole.nodes().size(); ++id) {
      whole_nodes_.emplace(whole.nodes()[id].path, static_cast<NodeId>(id));
    }
  }

  void run() {
    for (const Entry entry : {Entry::grad, Entry::eval}) {
      for (const NodeId id : exe_.entry(entry)) visit(id);
    }
  }

 private:
  void visit(NodeId id) {
    const Node& node = exe_.graph.node(id);
    const bool narrows = node.op == "Cast" || node.op == "Quantize" || node.op == "Dequantize";
    if (node.phase != Phase::forward || narrows || node.path.starts_with("metrics/")) return;
    if (!seen_.insert(node.path).second) return;  // inference has the nodes of training again
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNone) continue;
      const auto found = constants_.find(before_narrowing(exe_.graph, node.inputs[i]));
      if (found != constants_.end()) add(id, i, *found->second);
    }
    for (const auto& [name, attribute] : node.attributes) {
      const double* real = std::get_if<double>(&attribute);
      if (real == nullptr) continue;
      // Kernels compute in fp32 inside.
      AuditedConstant row = number(Of::network, name, *real, kFp32);
      row.path = node.path;
      row.op = node.op;
      rows_.push_back(std::move(row));
    }
  }

  void add(NodeId id, size_t operand, const Tensor& tensor) {
    const Graph& graph = exe_.graph;
    const Node& node = graph.node(id);
    const ValueId read = node.inputs[operand];
    const NodeId producer = graph.value(read).producer;
    // Scaled operands have no format of their own.
    if (producer != kNone && graph.node(producer).op != "Cast") return;
    Reading reading{.read = producer == kNone ? kFp32 : graph.value(read).format};
    if (may_be_result(node)) reading.written = graph.value(node.outputs[0]).format;
    AuditedConstant row{.of = Of::network, .name = "constant", .path = node.path, .op = node.op};
    const Tensor after = measure(tensor, reading, row);
    // A composite that is known as a whole says more than its parts.
    const auto found = whole_nodes_.find(node.path);
    const bool whole = found != whole_nodes_.end() && whole_.node(found->second).op == node.op;
    const Graph& structure = whole ? whole_ : graph;
    const NodeId place = whole ? found->second : id;
    if (row.infinities > 0) {
      judge_infinities(structure, place, operand, after, row);
    } else if (row.zeros > 0) {
      judge_zeros(structure, place, operand, lost_share(tensor, after), row);
    }
    rows_.push_back(std::move(row));
  }

  const Executable& exe_;
  const Graph& whole_;
  std::vector<AuditedConstant>& rows_;
  std::map<ValueId, const Tensor*> constants_;
  std::map<std::string, NodeId> whole_nodes_;
  std::set<std::string> seen_;
};

/// Returns the formats that a variable is stored and read in, the stored one first.
std::vector<FloatFormat> formats_of(const Graph& graph, ValueId variable) {
  std::vector<FloatFormat> formats{graph.value(variable).format};
  for (const Node& node : graph.nodes()) {
    if (node.op != "Cast" || node.inputs[0] != variable) continue;
    const FloatFormat& format = graph.value(node.outputs[0]).format;
    if (std::find(formats.begin(), formats.end(), format) == formats.end()) {
      formats.push_back(format);
    }
  }
  return formats;
}

}  // namespace

void add_network(const Executable& exe, const Graph& whole, std::vector<AuditedConstant>& rows) {
  NetworkAudit(exe, whole, rows).run();
}

void add_weights(const Executable& exe, const NamedTensors& weights,
                 std::vector<AuditedConstant>& rows) {
  for (const Variable& variable : exe.graph.variables()) {
    const auto found = weights.find(variable.path);
    if (found == weights.end() || found->second.data.empty()) continue;
    for (const FloatFormat& format : formats_of(exe.graph, variable.value)) {
      AuditedConstant row{.of = Of::weights, .name = "weight", .path = variable.path};
      const Tensor after = measure(found->second, {.read = format}, row);
      const double share = lost_share(found->second, after);
      if (row.infinities > 0) {
        row.severity = Severity::error;
        row.text = fmt::format("{} of the {} values of {} are infinite in {}", row.infinities,
                               row.count, row.path, format_name(format));
        row.safe = std::copysign(format.max_finite(), row.value);
        row.advice = "use a format with more exponent bits, or scale the layer";
      } else if (row.zeros > 0 && matters(share, format)) {
        row.severity = Severity::warning;
        row.text = fmt::format("{} of the {} values of {} are 0 in {}; they carry {} of its norm",
                               row.zeros, row.count, row.path, format_name(format), percent(share));
        row.safe = std::copysign(least_number(format), row.value);
        row.advice = "use a format with more exponent bits, or scale the layer";
      }
      rows.push_back(std::move(row));
    }
  }
}

}  // namespace halfscope::audit
