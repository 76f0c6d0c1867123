// SPDX-License-Identifier: MIT
#include "tests/report/html_fault.h"

#include <set>
#include <vector>

namespace halfscope::test {

std::string html_fault(const std::string& page, std::string_view files) {
  const std::set<std::string> empty_tags{"meta", "br", "!DOCTYPE"};
  std::vector<std::string> open;
  int heading = 0;
  std::set<std::string> ids;
  std::vector<std::string> links;
  const auto attribute = [](const std::string& tag, const std::string& name) -> std::string {
    const size_t at = tag.find(" " + name + "=\"");
    if (at == std::string::npos) return "";
    const size_t begin = at + name.size() + 3;
    return tag.substr(begin, tag.find('"', begin) - begin);
  };
  for (size_t at = 0; (at = page.find('<', at)) != std::string::npos;) {
    const size_t end = page.find('>', at);
    if (end == std::string::npos) return "unfinished tag";
    const std::string tag = page.substr(at + 1, end - at - 1);
    at = end + 1;
    if (tag.find('<') != std::string::npos) return "stray <: " + tag;
    if (tag[0] == '/') {
      if (open.empty() || open.back() != tag.substr(1)) return "closes " + tag;
      open.pop_back();
      continue;
    }
    const std::string id = attribute(tag, "id"), link = attribute(tag, "href");
    if (!id.empty() && !ids.insert(id).second) return "id twice: " + id;
    if (!link.empty()) links.push_back(link);
    const std::string name = tag.substr(0, tag.find_first_of(" /\n"));
    if (name == "style" || name == "script") at = page.find("</" + name + ">", at);
    if (name.size() == 2 && name[0] == 'h' && name[1] >= '1' && name[1] <= '6') {
      if (name[1] - '0' > heading + 1) return "heading skips a level: " + tag;
      heading = name[1] - '0';
    }
    const bool drawn = attribute(tag, "role") == "img" || !attribute(tag, "aria-hidden").empty();
    if (name == "svg" && !drawn) return "drawing without a name: " + tag;
    if (attribute(tag, "role") == "img" && page.compare(at, 7, "<title>") != 0) {
      return "drawing without a title: " + tag;
    }
    if (name == "table" && page.compare(at, 8, "<caption") != 0) return "no caption: " + tag;
    if (name == "th" && attribute(tag, "scope").empty()) return "no scope: " + tag;
    if (tag.back() != '/' && !empty_tags.contains(name)) open.push_back(name);
  }
  if (!open.empty()) return "not closed: " + open.back();
  for (const std::string& link : links) {
    if (!files.empty() && link.starts_with(files)) continue;
    if (link[0] != '#' || !ids.contains(link.substr(1))) return "dead link: " + link;
  }
  return "";
}

}  // namespace halfscope::test
