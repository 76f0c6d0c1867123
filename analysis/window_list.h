// SPDX-License-Identifier: MIT
// WindowList: decides which steps share a window of statistics, so that the size of a run file is
// bounded (docs/reference/files.md). It keeps only the bounds; the recorder applies the
// changes that add() returns to its rows. Every recorded step writes one row and merges at most
// two, so it never stalls.
#pragma once

#include <cstdint>
#include <list>
#include <optional>

namespace halfscope {

class WindowList {
 public:
  struct Limits {
    int windows = 2048;      ///< ordinary windows
    int first_events = 512;  ///< the first events, which always keep their own window
    int last_events = 512;   ///< the newest events
  };

  struct Window {
    int64_t step = 0;      ///< first recorded step in it
    int64_t last = 0;      ///< last one
    int64_t recorded = 0;  ///< number of recorded steps
    bool event = false;    ///< is not merged

    int64_t step_count() const noexcept { return last - step + 1; }
  };

  /// Two neighbours become one row.
  struct Merge {
    int64_t step = 0;        ///< of the first, which stays
    int64_t step_count = 0;  ///< of both together
    int64_t removed = 0;     ///< step of the second
  };

  struct Change {
    bool grows = false;          ///< the step joins the last window; otherwise it starts one
    Window window;               ///< the window with the step in it
    std::optional<Merge> merge;  ///< neither of the two is `window`
  };

  explicit WindowList(const Limits& limits) : limits_(limits), cursor_(windows_.end()) {}

  /// Adds a recorded step after all others.
  Change add(int64_t step, bool event);

  const std::list<Window>& windows() const noexcept { return windows_; }

 private:
  using Place = std::list<Window>::iterator;

  void keep_event(Place window);
  std::optional<Merge> merge_one();
  Place next_pair(Place end);
  Place find_pair(Place from, Place to, int64_t& smallest) const;

  Limits limits_;
  std::list<Window> windows_;
  std::list<Place> last_events_;
  int64_t first_events_ = 0;
  int64_t ordinary_ = 0;   // windows that are no event
  int64_t full_size_ = 1;  // recorded steps of a new window
  Place cursor_;           // where the search for the next pair continues
};

}  // namespace halfscope
