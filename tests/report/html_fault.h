// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

namespace halfscope::test {

/// Returns what is wrong with a page, or "": every tag closed in order, every link with a target,
/// every id once, no heading level skipped, every table with a caption and scopes, every drawing
/// named or hidden. Links that begin with `files` need no target; "": there are none.
std::string html_fault(const std::string& page, std::string_view files = {});

}  // namespace halfscope::test
