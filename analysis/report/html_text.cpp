// SPDX-License-Identifier: MIT
// Text made safe and readable for HTML, and the small parts every section uses.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/report/html_parts.h"
#include "analysis/rules/text.h"
#include "core/utf8.h"

namespace halfscope::html {

std::string escape(std::string_view text) { return markup_text(text); }

std::string prose(std::string_view text) {
  std::string out;
  const std::string safe = escape(text);
  const auto digit = [&](size_t i) { return i < safe.size() && safe[i] >= '0' && safe[i] <= '9'; };
  constexpr std::string_view kArrow = "-&gt;";
  for (size_t i = 0; i < safe.size(); ++i) {
    if (safe.compare(i, kArrow.size(), kArrow) == 0) {
      out += "&rarr;";
      i += kArrow.size() - 1;
      continue;
    }
    size_t end = i + 1;
    if (safe[i] == '^' && i > 0 && safe[i - 1] == '2') {
      if (end < safe.size() && safe[end] == '-') ++end;
      while (digit(end) || (end < safe.size() && safe[end] == '.' && digit(end + 1))) ++end;
    }
    if (end > i + 1 && digit(end - 1)) {
      std::string power = safe.substr(i + 1, end - i - 1);
      if (power[0] == '-') power = "&minus;" + power.substr(1);
      out += "<sup>" + power + "</sup>";
      i = end - 1;
    } else {
      out += safe[i];
    }
  }
  return out;
}

std::string anchor(std::string_view text) {
  std::string out;
  for (char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '/' || c == ':';
    out += plain ? std::string(1, c) : fmt::format("_{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

std::string layer_anchor(const Report& report, int lane, const std::string& path) {
  if (lane == report.focus) return "layer-" + anchor(path);
  return "layer-" + anchor(report.lanes[static_cast<size_t>(lane)].name) + "-" + anchor(path);
}

std::string layer_link(const Report& report, int lane, const std::string& path,
                       const std::string& text) {
  if (!has_line(report, lane, path)) return escape(text);
  return fmt::format("<a href=\"#{}\">{}</a>", layer_anchor(report, lane, path), escape(text));
}

std::string tag(const std::string& kind, const std::string& word) {
  // A disc for fine, a triangle for attention, a cross for broken.
  const char* shape = "<circle cx=\"5\" cy=\"5\" r=\"4.5\"/>";
  if (kind == "healthy" || kind == "cured" || kind == "high") {
    shape = "<path d=\"M1 5.6L2.5 4l1.8 1.7L7.8 1.6 9.3 3l-5 5.8z\"/>";
  }
  if (kind == "warning" || kind == "attention" || kind == "medium") {
    shape = "<path d=\"M5 .5l5 9H0z\"/>";
  }
  if (kind == "error" || kind == "broken" || kind == "low") {
    shape = "<path d=\"M2 .3l3 3 3-3L9.7 2l-3 3 3 3L8 9.7l-3-3-3 3L.3 8l3-3-3-3z\"/>";
  }
  return fmt::format(
      "<span class=\"tag {}\"><svg viewBox=\"0 0 10 10\" aria-hidden=\"true\">{}</svg>{}</span>",
      kind, shape, escape(word));
}

std::string value_text(const std::optional<double>& value) {
  if (!value) return "&ndash;";
  if (std::isnan(*value)) return "NaN";
  return fmt::format("{:.4g}", *value);
}

std::string scroll_begin(const std::string& label) {
  return fmt::format("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\">",
                     escape(label));
}

std::string copy_block(const std::string& summary, const std::string& text, bool open) {
  return fmt::format(
      "<details class=\"ready\"{}><summary>{}</summary><pre class=\"copy\" "
      "tabindex=\"0\">{}</pre></details>\n",
      open ? " open" : "", escape(summary), escape(text));
}

std::string definition(std::string_view name, const std::string& value) {
  return fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", escape(name), value);
}

std::string page_begin(const std::string& title, std::string_view more_style) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
      "<title>{}</title>\n<style>{}{}</style>\n</head>\n<body>\n<main>\n",
      escape(title), kStyle, more_style);
}

std::string page_end() {
  return fmt::format("</main>\n<script>{}</script>\n</body>\n</html>\n", kScript);
}

std::string contents(std::span<const std::pair<const char*, const char*>> sections,
                     const std::string& body) {
  std::string links;
  for (const auto& [id, text] : sections) {
    if (body.find(fmt::format(" id=\"{}\"", id)) == std::string::npos) continue;
    links += fmt::format("<a href=\"#{}\">{}</a>\n", id, text);
  }
  return "<nav aria-label=\"Contents\">\n" + links + "</nav>\n";
}

}  // namespace halfscope::html
