// SPDX-License-Identifier: MIT
#include "core/exchange/exchange.h"

#include <algorithm>

namespace halfscope {

std::vector<std::byte> all_gather_bytes(Exchange& exchange, std::span<const std::byte> own) {
  const size_t ranks = static_cast<size_t>(exchange.size()), n = own.size();
  const size_t rank = static_cast<size_t>(exchange.rank());
  // Blocks of ranks rank, rank + 1 ...; their number doubles in each round.
  std::vector<std::byte> blocks(ranks * n);
  std::copy(own.begin(), own.end(), blocks.begin());
  for (size_t have = 1; have < ranks; have *= 2) {
    const size_t count = std::min(have, ranks - have);
    const int to = static_cast<int>((rank + ranks - have) % ranks);
    const int from = static_cast<int>((rank + have) % ranks);
    const Exchange::Send send{to, std::span(blocks).first(count * n)};
    const Exchange::Receive receive{from, std::span(blocks).subspan(have * n, count * n)};
    exchange.transfer({&send, 1}, {&receive, 1});
  }
  std::rotate(blocks.begin(),
              blocks.begin() + static_cast<std::ptrdiff_t>((ranks - rank) % ranks * n),
              blocks.end());
  return blocks;
}

void broadcast_bytes(Exchange& exchange, int from, std::span<std::byte> bytes) {
  const int ranks = exchange.size();
  const int place = (exchange.rank() - from + ranks) % ranks;  // 0 has the bytes
  const auto at = [&](int other) { return (other + from) % ranks; };
  for (int have = 1; have < ranks; have *= 2) {
    if (place < have && place + have < ranks) {
      const Exchange::Send send{at(place + have), bytes};
      exchange.transfer({&send, 1}, {});
    } else if (place >= have && place < 2 * have) {
      const Exchange::Receive receive{at(place - have), bytes};
      exchange.transfer({}, {&receive, 1});
    }
  }
}

std::vector<std::string> all_gather_texts(Exchange& exchange, const std::string& own) {
  const uint64_t size = own.size();
  const std::vector<uint64_t> sizes = all_gather(exchange, std::span(&size, 1));
  std::string padded = own;
  padded.resize(*std::max_element(sizes.begin(), sizes.end()));
  const std::vector<char> all = all_gather(exchange, std::span<const char>(padded));
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    texts.emplace_back(all.data() + rank * padded.size(), sizes[rank]);
  }
  return texts;
}

bool any_rank(Exchange& exchange, bool own) {
  const uint8_t flag = own ? 1 : 0;
  const std::vector<uint8_t> all = all_gather(exchange, std::span(&flag, 1));
  return std::find(all.begin(), all.end(), 1) != all.end();
}

}  // namespace halfscope
