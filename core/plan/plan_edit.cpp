// SPDX-License-Identifier: MIT
#include "core/plan/plan_edit.h"

#include <algorithm>

namespace halfscope {

bool PlanEdit::keeps(const std::string& layer) const noexcept {
  return std::find(fp32_layers.begin(), fp32_layers.end(), layer) != fp32_layers.end();
}

void PlanEdit::keep(const std::string& layer, bool in_fp32) {
  std::erase(fp32_layers, layer);
  if (in_fp32) fp32_layers.push_back(layer);
}

void PlanEdit::add(const PlanEdit& other) {
  for (const std::string& layer : other.fp32_layers) {
    if (!keeps(layer)) fp32_layers.push_back(layer);
  }
  fp32_storage = fp32_storage || other.fp32_storage;
  buffers_on_step = buffers_on_step || other.buffers_on_step;
  if (!loss_scale) loss_scale = other.loss_scale;
  if (!reduction) reduction = other.reduction;
}

Plan PlanEdit::apply(Plan plan) const {
  if (fp32_storage) plan.storage = kFp32;
  if (buffers_on_step) plan.buffers = BufferCommit::on_step;
  if (reduction) plan.reduction = reduction;
  for (const std::string& layer : fp32_layers) keep_fp32(plan, exact_glob(layer));
  return plan;
}

std::vector<PlanEdit> PlanEdit::members() const {
  std::vector<PlanEdit> members;
  for (const std::string& layer : fp32_layers) members.push_back({.fp32_layers = {layer}});
  if (fp32_storage) members.push_back({.fp32_storage = true});
  if (reduction) members.push_back({.reduction = reduction});
  if (loss_scale) members.push_back({.loss_scale = loss_scale});
  return members;
}

PlanEdit PlanEdit::without(const PlanEdit& member) const {
  PlanEdit rest = *this;
  for (const std::string& layer : member.fp32_layers) rest.keep(layer, false);
  if (member.fp32_storage) rest.fp32_storage = false;
  if (member.buffers_on_step) rest.buffers_on_step = false;
  if (member.loss_scale) rest.loss_scale.reset();
  if (member.reduction) rest.reduction.reset();
  return rest;
}

std::string PlanEdit::member_name() const {
  if (!fp32_layers.empty()) return fp32_layers.front();
  if (fp32_storage) return "variables.storage";
  return reduction ? "variables.reduce" : "loss_scale";
}

}  // namespace halfscope
