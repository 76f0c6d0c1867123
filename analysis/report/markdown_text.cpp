// SPDX-License-Identifier: MIT
#include "analysis/report/markdown_text.h"

namespace halfscope::markdown {
namespace {

bool is_control(char c) { return (c >= 0 && c < ' ') || c == 0x7f; }

}  // namespace

std::string plain(const std::string& text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '|':
      case '*':
      case '_':
      case '`':
      case '[':
      case ']':
      case '\\':
      case '#':
      case '~':
        out += '\\';
        out += c;
        break;
      default:
        out += is_control(c) ? ' ' : c;
    }
  }
  return out;
}

std::string code(const std::string& text) {
  std::string out = "`";
  for (char c : text) {
    if (c == '`')
      out += '\'';
    else if (c == '|')
      out += "\\|";  // a table splits cells before it reads code spans
    else if (is_control(c))
      out += ' ';
    else
      out += c;
  }
  return out + "`";
}

}  // namespace halfscope::markdown
