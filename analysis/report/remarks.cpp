// SPDX-License-Identifier: MIT
#include "analysis/report/remarks.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "analysis/rules/text.h"

namespace halfscope::report {

void Remarks::add(const std::string& lane, const std::string& text) {
  if (text.empty()) return;
  const auto known =
      std::find_if(all_.begin(), all_.end(), [&](const Remark& each) { return each.text == text; });
  if (known == all_.end()) {
    all_.push_back({{lane}, text});
  } else {
    known->lanes.push_back(lane);
  }
}

std::string Remarks::text() const {
  std::string text;
  for (const Remark& each : all_) {
    if (!text.empty()) text += ' ';
    text += each.lanes.front() + ": " + each.text;
    if (each.lanes.size() > 1) text += ' ' + same_for_others(each.lanes);
  }
  return text;
}

std::string same_for_others(const std::vector<std::string>& lanes) {
  if (lanes.size() < 2) return "";
  return fmt::format("The same for {}.", name_list(std::span(lanes).subspan(1)));
}

std::string shared_sentences(const std::string& a, const std::string& b) {
  const std::string& shorter = a.size() < b.size() ? a : b;
  const std::string& longer = a.size() < b.size() ? b : a;
  const auto apart = std::mismatch(shorter.begin(), shorter.end(), longer.begin());
  const auto same = static_cast<size_t>(apart.first - shorter.begin());
  if (same == shorter.size() && (same == longer.size() || longer[same] == ' ')) return shorter;
  const size_t end = shorter.substr(0, same).rfind(". ");
  return end == std::string::npos ? "" : shorter.substr(0, end + 1);
}

}  // namespace halfscope::report
