// SPDX-License-Identifier: MIT
// Remarks about lanes, each said once. Lanes often differ in their sums or weights alone, and then
// most of what a report says about one of them is true of the others, too.
#pragma once

#include <string>
#include <vector>

namespace halfscope::report {

class Remarks {
 public:
  struct Remark {
    std::vector<std::string> lanes;
    std::string text;
  };

  /// Adds a remark about a lane; "" adds nothing.
  void add(const std::string& lane, const std::string& text);
  /// Returns the remarks in the order in which they were first made.
  const std::vector<Remark>& all() const noexcept { return all_; }
  /// Returns "a: Its loss varies too much. The same for b and c."
  std::string text() const;

 private:
  std::vector<Remark> all_;
};

/// Returns "The same for b and c." of all lanes but the first; "" if there is only one.
std::string same_for_others(const std::vector<std::string>& lanes);

/// Returns the sentences with which both texts begin, without the space behind the last one.
std::string shared_sentences(const std::string& a, const std::string& b);

}  // namespace halfscope::report
