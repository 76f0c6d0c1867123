// SPDX-License-Identifier: MIT
// The plan of an exchange that computes the mean of the ranks' gradients, for one rank: which
// numbers it packs into which messages, and what it does with those that arrive. Numbers on the
// host (rank_means.h) and on a device (gpu/engine/device_means.h) follow the same plan.
//
//   own numbers --prepare--> rounded, divided --a stage per addition: packed, sent, added-->
//     sums --finish--> means of the parts that this rank has --stages--> all means
//
// The mean has the bits of the simulation in one process (core/numeric/sums/reduction.h): the same
// additions in the same order, each rounded where it is computed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/numeric/formats/float_format.h"
#include "core/numeric/sums/reduction.h"

namespace halfscope {

/// Elements [begin, begin + count) of a tensor, which are summed in one order.
struct RankPart {
  size_t tensor = 0;
  int64_t begin = 0, count = 0;
  int owner = 0;  ///< the rank that gets the sum
  std::vector<RankAddition> additions{};
};

/// Returns the parts of tensors of these sizes, each with its additions. A ring has `ranks` parts.
/// Halving has a part for each rank that takes part in the exchanges, so that each of them keeps
/// its share of the elements: the partners of an exchange add the same two numbers, and the order
/// of two operands does not matter. A tree has one part. In all-to-all, part r belongs to rank r,
/// and `additions` is empty.
std::vector<RankPart> rank_parts(Reduction::Algorithm algorithm, int64_t ranks,
                                 std::span<const int64_t> sizes);

/// A tensor that the ranks reduce.
struct SharedTensor {
  int64_t n = 0;
  FloatFormat format;  ///< of numbers that are sent and stored; ignored for doubles
  /// Whether the mean may be rounded to the format already. Then it is sent in the format's codes.
  bool rounded = false;
};

/// Elements [begin, begin + count) of a tensor in a message. Each is `width` bytes there: the
/// number itself, or its code if it is shorter.
struct MailedPart {
  size_t tensor = 0;
  int64_t begin = 0, count = 0;
  int64_t at = 0;  ///< first byte in the mailbox, a multiple of `width`
  int64_t width = 0;
};

/// Bytes [at, at + bytes) of the mailbox, to or from another rank.
struct Mail {
  int other = 0;
  int64_t at = 0, bytes = 0;
};

/// Messages that are under way together.
struct ExchangeStage {
  enum class Then : uint8_t {
    add,   ///< adds what arrives to the own numbers
    sum,   ///< sums all ranks' numbers in the order of ranks, without rounding between them
    take,  ///< means have arrived
  };
  bool sends_means = false;  ///< packs means instead of own numbers
  std::vector<MailedPart> packed{};
  std::vector<Mail> sends{}, receives{};
  Then then = Then::add;
  std::vector<MailedPart> received{};
  bool stores = false;  ///< add: the sums are rounded to their formats
  /// sum: bytes from one sender's message to the next one's. `received` is where the first is.
  int64_t stride = 0;
};

struct ExchangePlan {
  int rank = 0, ranks = 1;
  bool after = false;  ///< divides by the number of ranks after the additions
  std::vector<SharedTensor> tensors{};
  std::vector<ExchangeStage> sums{};    ///< until each sum is at its owner
  std::vector<MailedPart> owned{};      ///< parts whose sums this rank has then; `at` is unused
  std::vector<ExchangeStage> spread{};  ///< until all means are at all ranks
  int64_t mailbox = 0;                  ///< bytes that the largest stage needs
};

/// Returns the plan of a rank. `number_bytes`: 4 for floats, 8 for doubles, which are sent as they
/// are. Every rank passes the same sizes and formats.
ExchangePlan plan_exchange(const Reduction& how, int rank, int ranks,
                           std::span<const SharedTensor> tensors, int64_t number_bytes);

/// The numbers of one rank, and the work on them.
class RankNumbers {
 public:
  virtual ~RankNumbers() = default;

  /// Rounds the own numbers and, unless the plan divides after the additions, divides them by the
  /// number of ranks and rounds again.
  virtual void prepare() = 0;
  /// Writes the numbers of `stage.packed` into the mailbox.
  virtual void pack(const ExchangeStage& stage) = 0;
  virtual void transfer(const ExchangeStage& stage) = 0;
  /// Does what `stage.then` says with the numbers of `stage.received`.
  virtual void receive(const ExchangeStage& stage) = 0;
  /// Makes the means of the parts that this rank owns, and rounds them if the tensor says so.
  virtual void finish() = 0;
};

/// Runs a plan.
void run_exchange(const ExchangePlan& plan, RankNumbers& numbers);

}  // namespace halfscope
