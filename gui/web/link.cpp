// SPDX-License-Identifier: MIT
#include "gui/web/link.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "gui/panels/float_lab.h"

namespace halfscope::gui {
namespace {

constexpr std::string_view kTabKey = "tab=";

std::string unescaped(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned code = 0;
    const char* const digits = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(digits, digits + 2, code, 16).ptr == digits + 2) {
      result += static_cast<char>(code);
      i += 2;
    } else {
      result += text[i];
    }
  }
  return result;
}

std::string escaped(std::string_view text) {
  constexpr std::string_view kPlain = "-._~+:/";
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string result;
  for (const char c : text) {
    const bool word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (word || kPlain.find(c) != std::string_view::npos) {
      result += c;
    } else {
      const auto code = static_cast<unsigned char>(c);
      result += '%';
      result += kDigits[code >> 4];
      result += kDigits[code & 15];
    }
  }
  return result;
}

/// Returns a text that opens the number: the typed one while it is the one shown, else its code.
std::string number_of(const FloatLab& lab) {
  const bool typed = lab.entry_problem().empty() && !lab.entry.empty();
  return typed ? lab.entry : code_text(lab.code, lab.shown());
}

}  // namespace

bool open_link(FloatLab& lab, std::string_view link) {
  if (link.starts_with('#')) link.remove_prefix(1);
  bool good = true;
  std::optional<LabTab> tab;
  while (!link.empty()) {
    const size_t end = std::min(link.find('&'), link.size());
    const std::string part = unescaped(link.substr(0, end));
    link.remove_prefix(std::min(end + 1, link.size()));
    if (part.starts_with(kTabKey)) {
      tab = parse_lab_tab(std::string_view(part).substr(kTabKey.size()));
      good = good && tab.has_value();
    } else if (!part.empty()) {
      good = lab.open(part) && good;
    }
  }
  if (tab) lab.show(*tab);  // last, because a number opens the tab of bits
  return good;
}

std::string link_of(const FloatLab& lab) {
  const std::string format = format_name(lab.shown());
  std::string link = escaped(format + " " + number_of(lab));
  if (lab.tab != LabTab::bits)
    link += "&" + std::string(kTabKey) + std::string(lab_tab_name(lab.tab));
  return link;
}

std::string page_title(const FloatLab& lab) {
  std::string title = format_name(lab.shown()) + " " + number_of(lab);
  const std::string value = exact_text(lab.number());
  if (value.size() <= 40) title += " = " + value;
  return title + " - HalfScope float lab";
}

}  // namespace halfscope::gui
