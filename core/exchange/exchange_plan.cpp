// SPDX-License-Identifier: MIT
#include "core/exchange/exchange_plan.h"

#include <algorithm>
#include <map>
#include <utility>

namespace halfscope {
namespace {

/// Messages begin at multiples of this: whole transactions of a device's memory.
constexpr int64_t kMessageAlignment = 256;

int64_t round_up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

/// The messages of one stage, by the other rank, in the order in which parts are added.
class Messages {
 public:
  /// Adds a part to the message to or from `other`.
  void add(int other, MailedPart part) {
    int64_t& end = bytes_[other];
    part.at = round_up(end, part.width);
    end = part.at + part.count * part.width;
    parts_.emplace_back(other, part);
  }
  /// Lays the messages out from byte `begin` of the mailbox on, and moves `begin` behind them.
  void lay_out(int64_t& begin, std::vector<MailedPart>& parts, std::vector<Mail>& mails) {
    std::map<int, int64_t> first;
    for (const auto& [other, bytes] : bytes_) {
      first[other] = begin;
      mails.push_back({other, begin, bytes});
      begin += round_up(bytes, kMessageAlignment);
    }
    for (const auto& [other, part] : parts_) {
      parts.push_back(part);
      parts.back().at += first[other];
    }
  }

 private:
  std::map<int, int64_t> bytes_;
  std::vector<std::pair<int, MailedPart>> parts_;
};

class Planner {
 public:
  Planner(ExchangePlan& plan, Reduction::Algorithm algorithm, int64_t number_bytes)
      : plan_(plan), number_bytes_(number_bytes) {
    std::vector<int64_t> sizes;
    for (const SharedTensor& each : plan.tensors) sizes.push_back(each.n);
    parts_ = rank_parts(algorithm, plan.ranks, sizes);
    for (const RankPart& part : parts_) {
      if (part.owner == plan.rank) plan.owned.push_back(mailed(part, true));
    }
  }

  /// Addition k of every part belongs to stage k.
  void hop() {
    size_t stages = 0;
    for (const RankPart& part : parts_) stages = std::max(stages, part.additions.size());
    for (size_t k = 0; k < stages; ++k) {
      ExchangeStage stage{.then = ExchangeStage::Then::add,
                          .stores = plan_.after || k + 1 < stages};
      Messages out, in;
      for (const RankPart& part : parts_) {
        if (k >= part.additions.size()) continue;
        const RankAddition& addition = part.additions[k];
        if (addition.from == plan_.rank) out.add(addition.to, mailed(part, true));
        if (addition.to == plan_.rank) in.add(addition.from, mailed(part, true));
      }
      add_stage(std::move(stage), out, in, plan_.sums);
    }
  }

  /// Every part goes to its owner, which adds it in the order of ranks and rounds once, at the end.
  void sum_all() {
    ExchangeStage stage{.then = ExchangeStage::Then::sum};
    Messages out, in;
    for (const RankPart& part : parts_) {
      if (part.owner != plan_.rank) {
        out.add(part.owner, mailed(part, true));
        continue;
      }
      for (int from = 0; from < plan_.ranks; ++from) {
        if (from != plan_.rank) in.add(from, mailed(part, true));
      }
    }
    add_stage(std::move(stage), out, in, plan_.sums);
    if (plan_.sums.empty() || plan_.sums[0].receives.empty()) return;
    // All senders' messages are alike.
    ExchangeStage& only = plan_.sums[0];
    const int64_t first = only.receives[0].at;
    only.stride = round_up(only.receives[0].bytes, kMessageAlignment);
    std::erase_if(only.received,
                  [&](const MailedPart& part) { return part.at >= first + only.stride; });
  }

  /// Every rank gets every part of the means from the rank that has it: along a tree if one rank
  /// has everything, else from each directly.
  void spread() {
    if (parts_.empty() || plan_.ranks == 1) return;
    const auto elsewhere = [&](const RankPart& part) { return part.owner != parts_.front().owner; };
    if (std::none_of(parts_.begin(), parts_.end(), elsewhere)) {
      spread_from(parts_.front().owner);
      return;
    }
    ExchangeStage stage{.sends_means = true, .then = ExchangeStage::Then::take};
    Messages own, in;
    for (const RankPart& part : parts_) {
      const MailedPart means = mailed(part, plan_.tensors[part.tensor].rounded);
      (part.owner == plan_.rank ? own : in).add(part.owner, means);
    }
    add_stage(std::move(stage), own, in, plan_.spread);
    // The same bytes go to all others.
    for (ExchangeStage& each : plan_.spread) {
      if (each.sends.empty()) continue;
      const Mail same = each.sends[0];
      each.sends.clear();
      for (int to = 0; to < plan_.ranks; ++to) {
        if (to != plan_.rank) each.sends.push_back({to, same.at, same.bytes});
      }
    }
  }

 private:
  /// Along a binomial tree, as broadcast_bytes() does. Every rank has all means in one message.
  void spread_from(int owner) {
    std::vector<MailedPart> parts;
    std::vector<Mail> all;
    Messages message;
    for (const RankPart& part : parts_) {
      message.add(owner, mailed(part, plan_.tensors[part.tensor].rounded));
    }
    int64_t end = 0;
    message.lay_out(end, parts, all);
    plan_.mailbox = std::max(plan_.mailbox, end);
    const int place = (plan_.rank - owner + plan_.ranks) % plan_.ranks;
    const auto at = [&](int other) { return (other + owner) % plan_.ranks; };
    for (int have = 1; have < plan_.ranks; have *= 2) {
      ExchangeStage stage{.sends_means = true, .then = ExchangeStage::Then::take};
      if (place < have && place + have < plan_.ranks) {
        if (place == 0 && have == 1) stage.packed = parts;
        stage.sends.push_back({at(place + have), all[0].at, all[0].bytes});
      } else if (place >= have && place < 2 * have) {
        stage.receives.push_back({at(place - have), all[0].at, all[0].bytes});
        stage.received = parts;
      } else {
        continue;
      }
      plan_.spread.push_back(std::move(stage));
    }
  }

  MailedPart mailed(const RankPart& part, bool codes) const {
    const int bits = plan_.tensors[part.tensor].format.bits();
    const bool shorter = codes && number_bytes_ == sizeof(float) && bits <= 16;
    return {part.tensor, part.begin, part.count, 0, !shorter ? number_bytes_ : bits > 8 ? 2 : 1};
  }

  void add_stage(ExchangeStage&& stage, Messages& out, Messages& in,
                 std::vector<ExchangeStage>& to) {
    int64_t end = 0;
    out.lay_out(end, stage.packed, stage.sends);
    in.lay_out(end, stage.received, stage.receives);
    if (stage.packed.empty() && stage.received.empty()) return;
    plan_.mailbox = std::max(plan_.mailbox, end);
    to.push_back(std::move(stage));
  }

  ExchangePlan& plan_;
  const int64_t number_bytes_;
  std::vector<RankPart> parts_;
};

/// Returns the largest power of two that is at most `ranks`.
int64_t power_in(int64_t ranks) {
  int64_t power = 1;
  while (2 * power <= ranks) power *= 2;
  return power;
}

/// Returns the additions of halving for the part that place `share` keeps: place p does what place
/// p XOR `share` does for the first part.
std::vector<RankAddition> halving_share(int64_t ranks, int64_t share) {
  const int64_t rest = ranks - power_in(ranks);
  const auto rank_at = [rest](int64_t place) {
    return static_cast<int32_t>(place < rest ? 2 * place + 1 : place + rest);
  };
  const auto place_of = [rest](int64_t rank) {
    return rank < 2 * rest ? (rank - 1) / 2 : rank - rest;
  };
  std::vector<RankAddition> additions = rank_additions(Reduction::Algorithm::halving, ranks, 0);
  for (size_t k = static_cast<size_t>(rest); k < additions.size(); ++k) {
    additions[k].to = rank_at(place_of(additions[k].to) ^ share);
    additions[k].from = rank_at(place_of(additions[k].from) ^ share);
  }
  return additions;
}

}  // namespace

std::vector<RankPart> rank_parts(Reduction::Algorithm algorithm, int64_t ranks,
                                 std::span<const int64_t> sizes) {
  const bool halves = algorithm == Reduction::Algorithm::halving;
  const bool all = algorithm == Reduction::Algorithm::all_to_all;
  const int64_t count = halves ? power_in(ranks) : all ? ranks : reduction_chunks(algorithm, ranks);
  std::vector<RankPart> parts;
  for (size_t tensor = 0; tensor < sizes.size(); ++tensor) {
    for (int64_t part = 0; part < count; ++part) {
      const int64_t begin = chunk_begin(sizes[tensor], count, part);
      const int64_t end = chunk_begin(sizes[tensor], count, part + 1);
      if (begin == end) continue;
      RankPart next{.tensor = tensor, .begin = begin, .count = end - begin};
      if (all) {
        next.owner = static_cast<int>(part);
      } else {
        next.additions =
            halves ? halving_share(ranks, part) : rank_additions(algorithm, ranks, part);
        if (!next.additions.empty()) next.owner = next.additions.back().to;
      }
      parts.push_back(std::move(next));
    }
  }
  return parts;
}

ExchangePlan plan_exchange(const Reduction& how, int rank, int ranks,
                           std::span<const SharedTensor> tensors, int64_t number_bytes) {
  ExchangePlan plan{.rank = rank,
                    .ranks = ranks,
                    .after = how.average == Reduction::Average::after,
                    .tensors = {tensors.begin(), tensors.end()}};
  Planner planner(plan, how.algorithm, number_bytes);
  if (how.algorithm == Reduction::Algorithm::all_to_all) {
    planner.sum_all();
  } else {
    planner.hop();
  }
  planner.spread();
  return plan;
}

void run_exchange(const ExchangePlan& plan, RankNumbers& numbers) {
  const auto run = [&](const ExchangeStage& stage) {
    if (!stage.packed.empty()) numbers.pack(stage);
    if (!stage.sends.empty() || !stage.receives.empty()) numbers.transfer(stage);
    if (!stage.received.empty()) numbers.receive(stage);
  };
  numbers.prepare();
  for (const ExchangeStage& stage : plan.sums) run(stage);
  numbers.finish();
  for (const ExchangeStage& stage : plan.spread) run(stage);
}

}  // namespace halfscope
