// SPDX-License-Identifier: MIT
#include "core/exchange/rank_means.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "core/numeric/formats/codes.h"
#include "core/numeric/formats/round.h"

namespace halfscope {
namespace {

/// Bytes of an element in a message: the format's codes if they are shorter than fp32.
template <class T>
size_t sent_bytes(const FloatFormat& format, bool codes) {
  if (!codes || !std::is_same_v<T, float> || format.bits() > 16) return sizeof(T);
  return format.bits() > 8 ? 2 : 1;
}

/// One message: numbers of several parts, one after the other.
class Packet {
 public:
  template <class T>
  void add(std::span<const T> values, const FloatFormat& format, bool codes) {
    const size_t width = sent_bytes<T>(format, codes), start = bytes_.size();
    bytes_.resize(start + values.size() * width);
    std::byte* out = bytes_.data() + start;
    if (width == sizeof(T)) {
      std::memcpy(out, values.data(), values.size_bytes());
      return;
    }
    const FloatFormat plain = format.without_options();
    for (size_t i = 0; i < values.size(); ++i) {
      const uint32_t code = encode(static_cast<float>(values[i]), plain);
      if (width == 2) {
        const uint16_t half = static_cast<uint16_t>(code);
        std::memcpy(out + 2 * i, &half, 2);
      } else {
        out[i] = static_cast<std::byte>(code);
      }
    }
  }
  template <class T>
  void take(std::span<T> values, const FloatFormat& format, bool codes) {
    const size_t width = sent_bytes<T>(format, codes);
    const std::byte* in = bytes_.data() + read_;
    read_ += values.size() * width;
    if (width == sizeof(T)) {
      std::memcpy(values.data(), in, values.size_bytes());
      return;
    }
    const FloatFormat plain = format.without_options();
    for (size_t i = 0; i < values.size(); ++i) {
      uint16_t code = static_cast<uint16_t>(in[i * width]);
      if (width == 2) std::memcpy(&code, in + 2 * i, 2);
      values[i] = static_cast<T>(decode(code, plain));
    }
  }
  void reserve(size_t bytes) { bytes_.resize(bytes_.size() + bytes); }
  std::span<std::byte> bytes() { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
  size_t read_ = 0;
};

/// The packets of one round of messages, by the other rank.
struct Round {
  std::map<int, Packet> out, in;

  void run(Exchange& exchange) {
    std::vector<Exchange::Send> sends;
    std::vector<Exchange::Receive> receives;
    for (auto& [to, packet] : out) sends.push_back({to, packet.bytes()});
    for (auto& [from, packet] : in) receives.push_back({from, packet.bytes()});
    if (!sends.empty() || !receives.empty()) exchange.transfer(sends, receives);
  }
};

void round_row(std::span<float> row, const FloatFormat& format) {
  if (format == kFp32) return;
  for (float& x : row) x = round_to_format(x, format).value;
}
void round_row(std::span<double>, const FloatFormat&) {}

/// The exchange of one call, on one rank.
template <class T>
class Means {
 public:
  Means(Exchange& exchange, const Reduction& how, std::span<const RankTensor<T>> tensors)
      : exchange_(exchange),
        how_(how),
        tensors_(tensors),
        rank_(exchange.rank()),
        ranks_(exchange.size()),
        after_(how.average == Reduction::Average::after) {
    std::vector<int64_t> sizes;
    for (const RankTensor<T>& each : tensors) {
      sizes.push_back(static_cast<int64_t>(each.own.size()));
    }
    parts_ = rank_parts(how.algorithm, ranks_, sizes);
  }

  void run() {
    for (const RankTensor<T>& each : tensors_) {
      round_row(each.own, each.format);
      if (after_) continue;
      for (T& x : each.own) x /= static_cast<T>(ranks_);
      round_row(each.own, each.format);
    }
    if (how_.algorithm == Reduction::Algorithm::all_to_all) {
      sum_all();
    } else {
      hop();
    }
    distribute();
  }

 private:
  std::span<T> own(const RankPart& part) const { return of(part, tensors_[part.tensor].own); }
  std::span<T> mean(const RankPart& part) const { return of(part, tensors_[part.tensor].mean); }
  static std::span<T> of(const RankPart& part, std::span<T> values) {
    return values.subspan(static_cast<size_t>(part.begin), static_cast<size_t>(part.count));
  }
  const FloatFormat& format(const RankPart& part) const { return tensors_[part.tensor].format; }
  size_t bytes(const RankPart& part, bool codes) const {
    return static_cast<size_t>(part.count) * sent_bytes<T>(format(part), codes);
  }
  /// Addition k of every part is computed in the same round of messages.
  void hop() {
    size_t rounds = 0;
    for (const RankPart& part : parts_) rounds = std::max(rounds, part.additions.size());
    for (size_t k = 0; k < rounds; ++k) {
      Round round;
      for (const RankPart& part : parts_) {
        if (k >= part.additions.size()) continue;
        const RankAddition& addition = part.additions[k];
        if (addition.from == rank_) {
          round.out[addition.to].add(std::span<const T>(own(part)), format(part), true);
        }
        if (addition.to == rank_) round.in[addition.from].reserve(bytes(part, true));
      }
      round.run(exchange_);
      for (const RankPart& part : parts_) {
        if (k >= part.additions.size() || part.additions[k].to != rank_) continue;
        const std::span<T> to = own(part);
        received_.resize(to.size());
        round.in.at(part.additions[k].from).take(std::span(received_), format(part), true);
        for (size_t i = 0; i < to.size(); ++i) to[i] += received_[i];
        if (after_ || k + 1 < part.additions.size()) round_row(to, format(part));
      }
    }
  }

  /// Every part goes to its rank, which adds it in the order of ranks and rounds once, at the end.
  void sum_all() {
    Round round;
    for (const RankPart& part : parts_) {
      if (part.owner != rank_) {
        round.out[part.owner].add(std::span<const T>(own(part)), format(part), true);
        continue;
      }
      for (int from = 0; from < ranks_; ++from) {
        if (from != rank_) round.in[from].reserve(bytes(part, true));
      }
    }
    round.run(exchange_);
    for (const RankPart& part : parts_) {
      if (part.owner != rank_) continue;
      const std::span<T> to = own(part);
      std::vector<T> sum(to.size());
      received_.resize(to.size());
      for (int from = 0; from < ranks_; ++from) {
        std::span<const T> row = to;
        if (from != rank_) {
          round.in.at(from).take(std::span(received_), format(part), true);
          row = received_;
        }
        for (size_t i = 0; i < sum.size(); ++i) sum[i] = from == 0 ? row[i] : sum[i] + row[i];
      }
      std::copy(sum.begin(), sum.end(), to.begin());
    }
  }

  /// Every rank gets every part of the means from the rank that has it: along a tree if one rank
  /// has everything, else from each directly.
  void distribute() {
    bool single = true;
    for (const RankPart& part : parts_) {
      single = single && part.owner == parts_.front().owner;
      if (part.owner != rank_) continue;
      const std::span<T> sum = own(part), out = mean(part);
      for (size_t i = 0; i < sum.size(); ++i) {
        out[i] = after_ ? sum[i] / static_cast<T>(ranks_) : sum[i];
      }
      if (tensors_[part.tensor].rounded) round_row(out, format(part));
    }
    if (parts_.empty() || ranks_ == 1) return;
    const auto codes = [&](const RankPart& part) { return tensors_[part.tensor].rounded; };
    Packet all;  // the parts of this rank
    for (const RankPart& part : parts_) {
      if (single && part.owner != rank_) all.reserve(bytes(part, codes(part)));
      if (part.owner == rank_) all.add(std::span<const T>(mean(part)), format(part), codes(part));
    }
    if (single) {
      const int from = parts_.front().owner;
      broadcast_bytes(exchange_, from, all.bytes());
      if (from == rank_) return;
      for (const RankPart& part : parts_) all.take(mean(part), format(part), codes(part));
      return;
    }
    std::vector<Exchange::Send> sends;
    std::vector<Exchange::Receive> receives;
    std::map<int, Packet> in;
    for (const RankPart& part : parts_) {
      if (part.owner != rank_) in[part.owner].reserve(bytes(part, codes(part)));
    }
    for (int to = 0; to < ranks_ && !all.bytes().empty(); ++to) {
      if (to != rank_) sends.push_back({to, all.bytes()});
    }
    for (auto& [from, packet] : in) {
      if (!packet.bytes().empty()) receives.push_back({from, packet.bytes()});
    }
    exchange_.transfer(sends, receives);
    for (const RankPart& part : parts_) {
      if (part.owner != rank_) in.at(part.owner).take(mean(part), format(part), codes(part));
    }
  }

  Exchange& exchange_;
  const Reduction& how_;
  std::span<const RankTensor<T>> tensors_;
  const int rank_, ranks_;
  const bool after_;
  std::vector<RankPart> parts_;
  std::vector<T> received_;
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

template <class T>
void exchange_means(Exchange& exchange, const Reduction& how,
                    std::span<const RankTensor<T>> tensors) {
  Means<T>(exchange, how, tensors).run();
}

template void exchange_means(Exchange&, const Reduction&, std::span<const RankTensor<float>>);
template void exchange_means(Exchange&, const Reduction&, std::span<const RankTensor<double>>);

}  // namespace halfscope
