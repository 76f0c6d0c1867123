// SPDX-License-Identifier: MIT
// Exchange: messages between the processes of a data-parallel training, one process per rank. Only
// point-to-point messages are needed, so that every addition happens in our code, in an order that
// we choose. MPI_Allreduce leaves its order open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace halfscope {

class Exchange {
 public:
  struct Send {
    int to;
    std::span<const std::byte> bytes;
  };
  struct Receive {
    int from;
    std::span<std::byte> bytes;  ///< as many as the sender sends
  };
  virtual ~Exchange() = default;

  /// Returns the rank of this process, in [0, size()).
  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  /// Starts all of these messages and returns when all are done. Messages from one rank to another
  /// arrive in the order in which they are sent. Throws Error if a process is gone.
  virtual void transfer(std::span<const Send> sends, std::span<const Receive> receives) = 0;

  /// Returns whether this process records the run and prints. It is the last rank, because
  /// comparisons look at the last micro-batch of a step.
  bool records() const noexcept { return rank() + 1 == size(); }
};

/// Gathers `own` of every rank on every rank, in the order of ranks. All have the same size. Takes
/// ceil(log2 size) rounds (Bruck et al. 1997).
std::vector<std::byte> all_gather_bytes(Exchange& exchange, std::span<const std::byte> own);
/// Sends the bytes of rank `from` to all others, along a binomial tree.
void broadcast_bytes(Exchange& exchange, int from, std::span<std::byte> bytes);
/// Returns the texts of all ranks, in the order of ranks.
std::vector<std::string> all_gather_texts(Exchange& exchange, const std::string& own);

template <class T>
std::vector<T> all_gather(Exchange& exchange, std::span<const T> own) {
  static_assert(std::is_trivially_copyable_v<T>);
  const std::vector<std::byte> bytes = all_gather_bytes(exchange, std::as_bytes(own));
  std::vector<T> all(bytes.size() / sizeof(T));
  const std::span<std::byte> into = std::as_writable_bytes(std::span(all));
  std::copy(bytes.begin(), bytes.end(), into.begin());
  return all;
}

template <class T>
void broadcast(Exchange& exchange, int from, std::span<T> values) {
  static_assert(std::is_trivially_copyable_v<T>);
  broadcast_bytes(exchange, from, std::as_writable_bytes(values));
}

/// Returns the value of the rank that records.
template <class T>
T recorded_value(Exchange& exchange, T own) {
  broadcast(exchange, exchange.size() - 1, std::span(&own, 1));
  return own;
}

/// Returns whether it is true on any rank.
bool any_rank(Exchange& exchange, bool own);

}  // namespace halfscope
