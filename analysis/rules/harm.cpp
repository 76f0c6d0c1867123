// SPDX-License-Identifier: MIT
// harm: a result of the lane is too far from its reference's. If no other rule knows the cause, it
// says where the error grows.
#include "analysis/rules/harm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/rules/error_source.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/text.h"

namespace halfscope {
namespace {

bool is_loss(HarmItem::Of of) {
  return of == HarmItem::Of::loss || of == HarmItem::Of::training || of == HarmItem::Of::test_loss;
}

/// Returns whether another item already says the same: that a loss is not finite, or that nothing
/// was learned.
bool is_implied(std::span<const HarmItem> items, size_t i) {
  const HarmItem& item = items[i];
  const auto before = items.first(i);
  if (is_loss(item.of) && std::isinf(item.error)) {
    return std::any_of(before.begin(), before.end(), [](const HarmItem& each) {
      return is_loss(each.of) && std::isinf(each.error);
    });
  }
  if (item.of != HarmItem::Of::weight && item.of != HarmItem::Of::average) return false;
  return std::any_of(items.begin(), items.end(),
                     [](const HarmItem& each) { return each.of == HarmItem::Of::steps; });
}

Finding finding_of(const LaneFacts& lane, const Harm& harm) {
  const HarmItem& worst = harm.items.front();
  Finding finding;
  finding.rule = "harm";
  finding.lane = lane.lane();
  finding.severity = worst.severe ? Severity::error : Severity::warning;
  finding.step = worst.step;
  finding.mechanism = worst.text;
  finding.evidence = {{"result", std::string(harm_name(worst.of))},
                      {"name", worst.name},
                      {"error", worst.error},
                      {"tolerance", worst.tolerance}};
  const bool possessive = worst.text.starts_with("its ");
  finding.text =
      lane.info().name + (possessive ? "'s " + worst.text.substr(4) : ": " + worst.text) + ".";
  for (size_t i = 1; i < harm.items.size(); ++i) {
    if (is_implied(harm.items, i)) continue;
    std::string text = harm.items[i].text;
    text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
    finding.text += " " + text + ".";
  }
  return finding;
}

/// Returns where the error grows, as far as comparisons show it; "" if they do not.
std::string where_it_grows(const LaneFacts& lane, const Harm& harm) {
  const std::optional<ErrorSource> source = grows_error(lane, harm);
  if (!source) return "";
  const auto size = [](double error) {
    return error > 1.0 ? std::string("more than 100%") : percent(error);
  };
  return fmt::format(" The error grows at {}, from {} to {}.", lane.site(source->site).name(),
                     size(source->before), size(source->after));
}

/// Returns a sentence about a batch whose tensors are missing although all should be recorded: the
/// last one, if it is smaller than the others. "" if there is none.
std::string batch_without_tensors(const LaneFacts& lane) {
  if (!lane.inference() || lane.steps().empty() || lane.recorded().empty()) return "";
  const int64_t last = lane.steps().back().step;
  const RecordedStep& end = lane.recorded().back();
  if (lane.run().info().every != 1 || end.step + end.step_count > last) return "";
  return fmt::format(
      " The tensors of batch {} were not recorded, because it is smaller than the others. Choose a "
      "--batch that divides the number of samples.",
      last);
}

void find_harm(const LaneFacts& lane, std::vector<Finding>& findings) {
  const Harm harm = harm_of(lane);
  if (harm.items.empty()) return;
  Finding finding = finding_of(lane, harm);
  if (!cause_is_known(lane, harm, findings)) {
    const std::string unknown = "The recording alone does not show the cause." +
                                where_it_grows(lane, harm) + batch_without_tensors(lane);
    finding.evidence["unknown_cause"] = unknown;
    finding.text += " " + unknown;
  }
  findings.push_back(std::move(finding));
}

}  // namespace

const char* harm_name(HarmItem::Of of) noexcept {
  switch (of) {
    case HarmItem::Of::output:
      return "output";
    case HarmItem::Of::loss:
      return "loss";
    case HarmItem::Of::gradient:
      return "gradient";
    case HarmItem::Of::weight:
      return "weight";
    case HarmItem::Of::average:
      return "average";
    case HarmItem::Of::buffer:
      return "buffer";
    case HarmItem::Of::training:
      return "training";
    case HarmItem::Of::test_loss:
      return "test_loss";
    case HarmItem::Of::accuracy:
      return "accuracy";
    case HarmItem::Of::steps:
      return "steps";
  }
  return "unknown";
}

bool of_batch(const HarmItem& item) noexcept {
  return item.of == HarmItem::Of::output || item.of == HarmItem::Of::loss ||
         item.of == HarmItem::Of::gradient;
}

bool Harm::in_batches() const noexcept {
  return !probed || std::any_of(items.begin(), items.end(), of_batch);
}

const Rule rule::harm{.id = "harm", .run = find_harm};

}  // namespace halfscope
