// SPDX-License-Identifier: MIT
#include "core/exchange/rank_means.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/exchange/exchange_plan.h"
#include "core/numeric/formats/codes.h"
#include "core/numeric/formats/round.h"

namespace halfscope {
namespace {

/// Writes numbers, or their codes if `width` is shorter, to a message.
template <class T>
void write_numbers(std::span<const T> values, const FloatFormat& format, int64_t width,
                   std::byte* out) {
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
void read_numbers(std::span<T> values, const FloatFormat& format, int64_t width,
                  const std::byte* in) {
  if (width == sizeof(T)) {
    std::memcpy(values.data(), in, values.size_bytes());
    return;
  }
  const FloatFormat plain = format.without_options();
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t code = static_cast<uint16_t>(in[i * static_cast<size_t>(width)]);
    if (width == 2) std::memcpy(&code, in + 2 * i, 2);
    values[i] = static_cast<T>(decode(code, plain));
  }
}

void round_row(std::span<float> row, const FloatFormat& format) {
  if (format == kFp32) return;
  for (float& x : row) x = round_to_format(x, format).value;
}
void round_row(std::span<double>, const FloatFormat&) {}

template <class T>
class HostNumbers final : public RankNumbers {
 public:
  HostNumbers(Exchange& exchange, const ExchangePlan& plan, std::span<const RankTensor<T>> tensors)
      : exchange_(exchange),
        plan_(plan),
        tensors_(tensors),
        divisor_(static_cast<T>(plan.ranks)),
        mailbox_(static_cast<size_t>(plan.mailbox)) {}

  void prepare() override {
    for (const RankTensor<T>& each : tensors_) {
      round_row(each.own, each.format);
      if (plan_.after) continue;
      for (T& x : each.own) x /= divisor_;
      round_row(each.own, each.format);
    }
  }

  void pack(const ExchangeStage& stage) override {
    for (const MailedPart& part : stage.packed) {
      const std::span<const T> values = stage.sends_means ? mean(part) : own(part);
      write_numbers(values, format(part), part.width, mailbox_.data() + part.at);
    }
  }

  void transfer(const ExchangeStage& stage) override {
    std::vector<Exchange::Send> sends;
    std::vector<Exchange::Receive> receives;
    for (const Mail& mail : stage.sends) sends.push_back({mail.other, bytes(mail)});
    for (const Mail& mail : stage.receives) receives.push_back({mail.other, bytes(mail)});
    exchange_.transfer(sends, receives);
  }

  void receive(const ExchangeStage& stage) override {
    for (const MailedPart& part : stage.received) {
      switch (stage.then) {
        case ExchangeStage::Then::add:
          add(part, stage.stores);
          break;
        case ExchangeStage::Then::sum:
          sum(part, stage.stride);
          break;
        case ExchangeStage::Then::take:
          read_numbers(mean(part), format(part), part.width, mailbox_.data() + part.at);
      }
    }
  }

  void finish() override {
    for (const MailedPart& part : plan_.owned) {
      const std::span<T> sum = own(part), out = mean(part);
      for (size_t i = 0; i < sum.size(); ++i) out[i] = plan_.after ? sum[i] / divisor_ : sum[i];
      if (tensors_[part.tensor].rounded) round_row(out, format(part));
    }
  }

 private:
  std::span<T> own(const MailedPart& part) const { return of(part, tensors_[part.tensor].own); }
  std::span<T> mean(const MailedPart& part) const { return of(part, tensors_[part.tensor].mean); }
  static std::span<T> of(const MailedPart& part, std::span<T> values) {
    return values.subspan(static_cast<size_t>(part.begin), static_cast<size_t>(part.count));
  }
  const FloatFormat& format(const MailedPart& part) const { return tensors_[part.tensor].format; }
  std::span<std::byte> bytes(const Mail& mail) {
    return std::span(mailbox_).subspan(static_cast<size_t>(mail.at),
                                       static_cast<size_t>(mail.bytes));
  }
  std::span<const T> arrived(const MailedPart& part, int64_t at) {
    arrived_.resize(static_cast<size_t>(part.count));
    read_numbers(std::span(arrived_), format(part), part.width, mailbox_.data() + at);
    return arrived_;
  }

  void add(const MailedPart& part, bool stores) {
    const std::span<T> to = own(part);
    const std::span<const T> sent = arrived(part, part.at);
    for (size_t i = 0; i < to.size(); ++i) to[i] += sent[i];
    if (stores) round_row(to, format(part));
  }

  void sum(const MailedPart& part, int64_t stride) {
    const std::span<T> to = own(part);
    std::vector<T> sum(to.size());
    int64_t at = part.at;
    for (int from = 0; from < plan_.ranks; ++from) {
      std::span<const T> row = to;
      if (from != plan_.rank) {
        row = arrived(part, at);
        at += stride;
      }
      for (size_t i = 0; i < sum.size(); ++i) sum[i] = from == 0 ? row[i] : sum[i] + row[i];
    }
    std::copy(sum.begin(), sum.end(), to.begin());
  }

  Exchange& exchange_;
  const ExchangePlan& plan_;
  std::span<const RankTensor<T>> tensors_;
  const T divisor_;
  std::vector<std::byte> mailbox_;
  std::vector<T> arrived_;
};

}  // namespace

template <class T>
void exchange_means(Exchange& exchange, const Reduction& how,
                    std::span<const RankTensor<T>> tensors) {
  std::vector<SharedTensor> shared;
  for (const RankTensor<T>& each : tensors) {
    shared.push_back({static_cast<int64_t>(each.own.size()), each.format, each.rounded});
  }
  const ExchangePlan plan =
      plan_exchange(how, exchange.rank(), exchange.size(), shared, int64_t{sizeof(T)});
  HostNumbers<T> numbers(exchange, plan, tensors);
  run_exchange(plan, numbers);
}

template void exchange_means(Exchange&, const Reduction&, std::span<const RankTensor<float>>);
template void exchange_means(Exchange&, const Reduction&, std::span<const RankTensor<double>>);

}  // namespace halfscope
