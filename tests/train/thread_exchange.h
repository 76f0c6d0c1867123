// SPDX-License-Identifier: MIT
// An Exchange between threads of one process, so that tests need no MPI.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/exchange/exchange.h"

namespace halfscope::test {

/// The messages between the threads.
struct Post {
  explicit Post(int ranks) : size(ranks), sent(static_cast<size_t>(ranks), 0) {}
  const int size;
  std::mutex mutex{};
  std::condition_variable arrived{};
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> mail{};  ///< by (from, to)
  std::vector<uint64_t> sent;                                                ///< bytes, by rank
};

class ThreadExchange final : public Exchange {
 public:
  ThreadExchange(Post& post, int rank) : post_(post), rank_(rank) {}
  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return post_.size; }
  void transfer(std::span<const Send> sends, std::span<const Receive> receives) override {
    std::unique_lock lock(post_.mutex);
    for (const Send& send : sends) {
      post_.mail[{rank_, send.to}].emplace_back(send.bytes.begin(), send.bytes.end());
      post_.sent[static_cast<size_t>(rank_)] += send.bytes.size();
    }
    post_.arrived.notify_all();
    for (const Receive& receive : receives) {
      auto& box = post_.mail[{receive.from, rank_}];
      post_.arrived.wait(lock, [&] { return !box.empty(); });
      if (box.front().size() != receive.bytes.size()) std::abort();  // as MPI would
      std::copy(box.front().begin(), box.front().end(), receive.bytes.begin());
      box.pop_front();
    }
  }

 private:
  Post& post_;
  int rank_;
};

/// Runs `work` for each rank on a thread, and returns the number of bytes that each rank has sent.
inline std::vector<uint64_t> on_ranks(int ranks, const std::function<void(Exchange&)>& work) {
  Post post(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadExchange exchange(post, rank);
      work(exchange);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return post.sent;
}

}  // namespace halfscope::test
