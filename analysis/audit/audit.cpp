// SPDX-License-Identifier: MIT
#include "analysis/audit/audit.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "analysis/audit/rows.h"
#include "core/numeric/formats/round.h"

namespace halfscope {
namespace audit {

double in_format(double x, const FloatFormat& format) noexcept {
  return round_to_format(x, format).value;
}

double relative_error(double value, double becomes) noexcept {
  if (value == becomes || std::isnan(value)) return 0.0;
  return std::fabs(becomes - value) / std::fabs(value);
}

double least_number(const FloatFormat& format) noexcept {
  return format.flush_out || format.flush_in ? format.min_normal() : format.min_subnormal();
}

AuditedConstant number(AuditedConstant::Of of, std::string name, double value,
                       const FloatFormat& format) {
  AuditedConstant row{.of = of, .name = std::move(name), .value = value, .format = format};
  row.becomes = in_format(value, format);
  row.zeros = row.becomes == 0.0 && value != 0.0;
  row.infinities = std::isinf(row.becomes) && std::isfinite(value);
  row.relative_error = relative_error(value, row.becomes);
  return row;
}

namespace {

TrainingSpec spec_of(const TrainConfig& training) {
  TrainingSpec spec{training.optimizer,    training.micro_batches, training.sum_format,
                    training.state_format, training.average,       training.clip_norm > 0.0};
  spec.ranks = training.ranks;
  spec.reduction = training.reduction;
  return spec;
}

nlohmann::ordered_json real(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0.0 ? "inf" : "-inf";
}

nlohmann::ordered_json text_or_null(const std::string& text) {
  return text.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(text);
}

}  // namespace
}  // namespace audit

const char* audited_name(AuditedConstant::Of of) noexcept {
  switch (of) {
    case AuditedConstant::Of::network:
      return "network";
    case AuditedConstant::Of::weights:
      return "weights";
    case AuditedConstant::Of::optimizer:
      return "optimizer";
    case AuditedConstant::Of::schedule:
      return "schedule";
    case AuditedConstant::Of::average:
      return "average";
    case AuditedConstant::Of::clipping:
      return "clipping";
  }
  return "";
}

std::vector<AuditedConstant> audit_constants(const Model& model, const Plan& plan,
                                             const TrainConfig* training,
                                             const NamedTensors& init) {
  const auto lowered = [&](const Plan& which) {
    return training == nullptr ? lower_inference(model, which)
                               : lower(model, which, audit::spec_of(*training));
  };
  const Executable exe = lowered(plan), whole = lowered(Plan{});
  std::vector<AuditedConstant> rows;
  audit::add_network(exe, whole.graph, rows);
  if (training == nullptr) {
    NamedTensors weights = model.initial;
    for (const auto& [path, tensor] : init) weights[path] = tensor;
    audit::add_weights(exe, weights, rows);
  } else {
    audit::add_training(exe, model, plan, *training, rows);
  }
  return rows;
}

std::string audit_json(const std::vector<AuditedConstant>& constants) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  const auto number = [](const std::optional<double>& value) {
    return value ? audit::real(*value) : nlohmann::ordered_json(nullptr);
  };
  for (const AuditedConstant& each : constants) {
    json.push_back({{"of", audited_name(each.of)},
                    {"name", each.name},
                    {"path", audit::text_or_null(each.path)},
                    {"op", audit::text_or_null(each.op)},
                    {"count", each.count},
                    {"value", audit::real(each.value)},
                    {"format", format_name(each.format)},
                    {"becomes", audit::real(each.becomes)},
                    {"zeros", each.zeros},
                    {"infinities", each.infinities},
                    {"relative_error", audit::real(each.relative_error)},
                    {"harmful", each.is_harmful()},
                    {"severity", severity_name(each.severity)},
                    {"text", audit::text_or_null(each.text)},
                    {"safe", number(each.safe)},
                    {"safe_for_gradients", number(each.safe_for_gradients)},
                    {"advice", audit::text_or_null(each.advice)}});
  }
  return json.dump();
}

}  // namespace halfscope
