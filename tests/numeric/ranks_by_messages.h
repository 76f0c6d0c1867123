// SPDX-License-Identifier: MIT
// All-reduces as ranks perform them: each rank has a separate buffer and knows only what it sends
// and receives. Written from the descriptions of the algorithms, without any order of additions.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace halfscope::test {

using RankBuffers = std::vector<std::vector<float>>;
/// Brings a number to the format that is stored and sent.
using Store = std::function<float(float)>;

/// The final value of an element is read from the rank that owns it.
struct MessagePassing {
  RankBuffers ranks;  ///< buffers as they are sent
  Store store;

  int size() const { return static_cast<int>(ranks.size()); }
  int64_t count() const { return static_cast<int64_t>(ranks[0].size()); }
  int64_t chunk_at(int64_t chunk) const {
    const int64_t length = (count() + size() - 1) / size();
    return std::min(count(), chunk * length);
  }
  void add(int rank, int64_t i, float received) {
    float& own = ranks[static_cast<size_t>(rank)][static_cast<size_t>(i)];
    own = store(own + received);
  }
  float at(int rank, int64_t i) const {
    return ranks[static_cast<size_t>(rank)][static_cast<size_t>(i)];
  }

  /// Reduce-scatter around a ring: in each round every rank sends one chunk to its neighbour.
  std::vector<float> ring() {
    const int n = size();
    for (int round = 0; round + 1 < n; ++round) {
      const RankBuffers sent = ranks;  // messages leave before any arrives
      for (int rank = 0; rank < n; ++rank) {
        const int chunk = ((rank - 1 - round) % n + n) % n, to = (rank + 1) % n;
        for (int64_t i = chunk_at(chunk); i < chunk_at(chunk + 1); ++i) {
          add(to, i, sent[static_cast<size_t>(rank)][static_cast<size_t>(i)]);
        }
      }
    }
    std::vector<float> result;
    for (int chunk = 0; chunk < n; ++chunk) {
      for (int64_t i = chunk_at(chunk); i < chunk_at(chunk + 1); ++i) {
        result.push_back(at(chunk, i));
      }
    }
    return result;
  }

  /// Ranks whose number ends in 1 (binary) send to the one before and leave; again without that
  /// last digit.
  std::vector<float> tree() {
    std::vector<int> left;
    for (int rank = 0; rank < size(); ++rank) left.push_back(rank);
    while (left.size() > 1) {
      std::vector<int> stay;
      for (size_t place = 0; place < left.size(); ++place) {
        if (place % 2 == 0) {
          stay.push_back(left[place]);
          continue;
        }
        for (int64_t i = 0; i < count(); ++i) add(left[place - 1], i, at(left[place], i));
      }
      left = stay;
    }
    return ranks[0];
  }

  /// Every rank keeps a segment; partners split theirs, and each sends the half that it gives up.
  std::vector<float> halving() {
    int power = 1;
    while (power * 2 <= size()) power *= 2;
    const int extra = size() - power;
    std::vector<int> members;
    for (int rank = 0; rank < size(); ++rank) {
      if (rank >= 2 * extra) {
        members.push_back(rank);
      } else if (rank % 2 == 1) {
        for (int64_t i = 0; i < count(); ++i) add(rank, i, at(rank - 1, i));
        members.push_back(rank);
      }
    }
    struct Segment {
      int64_t begin, end;
    };
    std::vector<Segment> segments(static_cast<size_t>(power), {0, count()});
    for (int mask = power / 2; mask > 0; mask /= 2) {
      const RankBuffers sent = ranks;
      for (int place = 0; place < power; ++place) {
        Segment& mine = segments[static_cast<size_t>(place)];
        const int64_t middle = (mine.begin + mine.end) / 2;
        mine = (place & mask) == 0 ? Segment{mine.begin, middle} : Segment{middle, mine.end};
        const int partner = members[static_cast<size_t>(place ^ mask)];
        for (int64_t i = mine.begin; i < mine.end; ++i) {
          add(members[static_cast<size_t>(place)], i,
              sent[static_cast<size_t>(partner)][static_cast<size_t>(i)]);
        }
      }
    }
    std::vector<float> result(static_cast<size_t>(count()));
    for (int place = 0; place < power; ++place) {
      const Segment& mine = segments[static_cast<size_t>(place)];
      for (int64_t i = mine.begin; i < mine.end; ++i) {
        result[static_cast<size_t>(i)] = at(members[static_cast<size_t>(place)], i);
      }
    }
    return result;
  }

  /// Sums in fp32, not stored.
  std::vector<float> all_to_all() const {
    std::vector<float> result;
    for (int64_t i = 0; i < count(); ++i) {
      float sum = at(0, i);
      for (int rank = 1; rank < size(); ++rank) sum += at(rank, i);
      result.push_back(sum);
    }
    return result;
  }
};

}  // namespace halfscope::test
