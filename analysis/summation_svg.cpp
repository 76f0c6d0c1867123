// SPDX-License-Identifier: MIT
// A summation tree as SVG: summands along the bottom, every node above what it adds. Additions
// are circles, blocks squares, so that colour is not needed to tell them apart.
#include "analysis/summation_svg.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "core/numeric/summation_shape.h"

namespace halfscope {
namespace {

constexpr double kMargin = 24.0, kTitle = 44.0, kMaxWidth = 2400.0, kMaxHeight = 1200.0;

std::string number(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", x);
  return text;
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

}  // namespace

std::string draw_svg(const SummationTree& tree, const std::string& title) {
  if (tree.leaves == 0) return "";
  const SummationShape shape(tree);
  const int n = tree.leaves, levels = std::max(shape.height(tree.root), 1);
  const double column = std::clamp((kMaxWidth - 2 * kMargin) / n, 1.5, 22.0);
  const double row = std::clamp((kMaxHeight - kTitle) / levels, 2.0, 36.0);
  const double width = std::max(2 * kMargin + column * n, 480.0);
  const double bottom = kTitle + row * levels + 12.0, height = bottom + 56.0;
  const double radius = std::clamp(std::min(column, row) * 0.22, 0.8, 4.0);

  std::vector<double> x(tree.children.size()), y(tree.children.size());
  const std::vector<int>& order = shape.order();
  for (size_t k = order.size(); k-- > 0;) {
    const auto node = static_cast<size_t>(order[k]);
    y[node] = bottom - row * shape.height(order[k]);
    if (shape.is_leaf(order[k])) {
      x[node] = kMargin + column * (order[k] + 0.5);
      continue;
    }
    x[node] = 0.0;
    for (const int child : shape.children(order[k])) x[node] += x[static_cast<size_t>(child)];
    x[node] /= static_cast<double>(shape.children(order[k]).size());
  }

  std::string lines, additions, blocks, leaves;
  for (const int node : order) {
    const auto at = static_cast<size_t>(node);
    if (shape.is_leaf(node)) {
      leaves += "M" + number(x[at]) + " " + number(y[at]) + "v4";
      continue;
    }
    for (const int child : shape.children(node)) {
      const auto below = static_cast<size_t>(child);
      lines += "M" + number(x[at]) + " " + number(y[at]) + "L" + number(x[below]) + " " +
               number(y[below]);
    }
    if (shape.children(node).size() == 2) {
      additions += "<circle cx=\"" + number(x[at]) + "\" cy=\"" + number(y[at]) + "\" r=\"" +
                   number(radius) + "\"/>";
    } else {
      const double side = 2.4 * radius;
      blocks += "<rect x=\"" + number(x[at] - side / 2) + "\" y=\"" + number(y[at] - side / 2) +
                "\" width=\"" + number(side) + "\" height=\"" + number(side) + "\"/>";
    }
  }
  // Labels as far apart as text is wide.
  int every = 1;
  for (const int next : {2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000}) {
    if (column * every < 26.0) every = next;
  }
  std::string labels;
  for (int k = 0; k < n; k += every) {
    labels += "<text x=\"" + number(x[static_cast<size_t>(k)]) + "\" y=\"" + number(bottom + 20.0) +
              "\">" + std::to_string(k) + "</text>\n";
  }
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + number(width) + " " +
         number(height) + "\" width=\"" + number(width) + "\" height=\"" + number(height) +
         "\" font-family=\"sans-serif\" font-size=\"11\">\n<title>" + escaped(title) +
         "</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n<text x=\"" +
         number(kMargin) + "\" y=\"24\" font-size=\"14\">" + escaped(title) +
         "</text>\n<path fill=\"none\" stroke=\"#7a8794\" stroke-width=\"" +
         number(std::clamp(column / 12.0, 0.3, 1.2)) + "\" d=\"" + lines +
         "\"/>\n<path fill=\"none\" stroke=\"#1b2733\" d=\"" + leaves +
         "\"/>\n<g fill=\"#1f6feb\">" + additions + "</g>\n<g fill=\"#b34700\">" + blocks +
         "</g>\n<g text-anchor=\"middle\" fill=\"#1b2733\">\n" + labels + "</g>\n<text x=\"" +
         number(kMargin) + "\" y=\"" + number(bottom + 42.0) +
         "\" fill=\"#1b2733\">circle: addition of two; square: more summed at once; numbers: "
         "summands</text>\n</svg>\n";
}

}  // namespace halfscope
