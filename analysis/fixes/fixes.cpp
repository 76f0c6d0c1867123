// SPDX-License-Identifier: MIT
#include "analysis/fixes/fixes.h"

#include <array>

#include "analysis/fixes/targets.h"
#include "core/error.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

constexpr std::array kTargets{
    FixTarget::pytorch, FixTarget::torchao,    FixTarget::transformer_engine,
    FixTarget::keras,   FixTarget::tensorflow, FixTarget::plan};

/// Returns float32 for plans of other versions that this one cannot read.
FloatFormat storage_of(const LaneInfo& lane) {
  try {
    return plan_from_json(lane.plan_json).storage;
  } catch (const Error&) {
    return kFp32;
  }
}

}  // namespace

std::span<const FixTarget> all_fix_targets() noexcept { return kTargets; }

const char* fix_target_name(FixTarget target) noexcept {
  switch (target) {
    case FixTarget::pytorch:
      return "pytorch";
    case FixTarget::torchao:
      return "torchao";
    case FixTarget::transformer_engine:
      return "transformer-engine";
    case FixTarget::keras:
      return "keras";
    case FixTarget::tensorflow:
      return "tensorflow";
    case FixTarget::plan:
      return "plan";
  }
  return "";
}

std::optional<FixTarget> parse_fix_target(std::string_view name) noexcept {
  for (FixTarget target : kTargets) {
    if (name == fix_target_name(target)) return target;
  }
  return std::nullopt;
}

std::string fix_as(FixTarget target, const LaneInfo& lane, const PlanEdit& edit) {
  switch (target) {
    case FixTarget::pytorch:
      return fixes::pytorch_text(lane, storage_of(lane), edit);
    case FixTarget::torchao:
      return fixes::torchao_text(lane, edit);
    case FixTarget::transformer_engine:
      return fixes::transformer_engine_text(lane, edit);
    case FixTarget::keras:
      return fixes::keras_text(lane, edit);
    case FixTarget::tensorflow:
      return fixes::tensorflow_text(lane, edit);
    case FixTarget::plan:
      return plan_to_json(edit.apply(plan_from_json(lane.plan_json))) + "\n";
  }
  return "";
}

}  // namespace halfscope
