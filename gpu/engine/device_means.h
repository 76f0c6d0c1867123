// SPDX-License-Identifier: MIT
// The mean of the ranks' gradients, where the gradients are on a device. Every addition is a kernel
// of ours, on numbers that other ranks have sent:
//
//   stack (gradient) --kernel--> own --kernel--> mailbox --link--> mailbox of another device
//   mailbox --kernel: decoded, added, rounded--> own     ... a stage per addition
//   own --kernel--> mean --kernel--> mailbox --link--> mailboxes --kernel--> means
//
// All of this is on the program's stream, between its entries `accumulate` and `norm`, and in no
// CUDA graph. The host waits for nothing, unless there is no link: then messages go through the
// host's memory and its Exchange. The stack stays as it is, because it is measured later.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/exchange/exchange.h"
#include "core/exchange/exchange_plan.h"
#include "gpu/bodies/rank_messages.h"
#include "gpu/engine/group_steps.h"
#include "gpu/engine/program_memory.h"
#include "gpu/libraries/device_link.h"

namespace halfscope::gpu {

template <class X>
class DeviceMeans {
 public:
  /// All arguments passed by reference must outlive this object. `link` may be null.
  DeviceMeans(X& executor, const Executable& executable, const ProgramMemory<X>& memory,
              Exchange& exchange, std::unique_ptr<DeviceLink> link)
      : executor_(executor),
        executable_(executable),
        memory_(memory),
        exchange_(exchange),
        link_(std::move(link)) {
    for (const ReducedGradient& each : executable.reduced) {
      own_.push_back(memory.template allocate<float>(count_of(each.reduced)));
    }
  }

  const Exchange& exchange() const { return exchange_; }

  /// Puts an exchange on the stream. `measured`: means are not rounded yet.
  void run(bool measured) {
    std::unique_ptr<Numbers>& numbers = numbers_[measured ? 1 : 0];
    if (numbers == nullptr) numbers = std::make_unique<Numbers>(*this, measured);
    run_exchange(numbers->plan, *numbers);
  }

 private:
  int64_t count_of(ValueId value) const { return element_count(memory_.description(value).shape); }

  ExchangePlan plan(bool measured) const {
    std::vector<SharedTensor> tensors;
    for (const ReducedGradient& each : executable_.reduced) {
      tensors.push_back(
          {count_of(each.reduced), memory_.description(each.reduced).format, !measured});
    }
    return plan_exchange(executable_.reduction, exchange_.rank(), exchange_.size(), tensors,
                         sizeof(float));
  }

  /// Returns the mailbox of all plans, with room for this one.
  std::byte* mailbox_for(const ExchangePlan& plan) {
    if (mailbox_ == nullptr || plan.mailbox > mailbox_bytes_) {
      mailbox_bytes_ = plan.mailbox;
      mailbox_ = memory_.template allocate<std::byte>(mailbox_bytes_);
    }
    return mailbox_;
  }

  /// The launches of one plan, made once.
  struct Numbers final : RankNumbers {
    Numbers(DeviceMeans& of, bool measured)
        : plan(of.plan(measured)), all(of), mailbox(of.mailbox_for(plan)) {
      std::vector<OwnNumbers> own;
      const float divisor = static_cast<float>(plan.ranks);
      for (size_t i = 0; i < plan.tensors.size(); ++i) {
        own.push_back({all.memory_.real(all.executable_.reduced[i].stack), all.own_[i],
                       plan.tensors[i].n, plan.tensors[i].format, plan.after ? 0.0f : divisor});
      }
      prepared = launch(own);
      std::vector<MeanNumbers> means;
      for (const MailedPart& part : plan.owned) {
        const SharedTensor& tensor = plan.tensors[part.tensor];
        means.push_back({own_of(part), mean_of(part), part.count,
                         tensor.rounded ? tensor.format : kFp32, plan.after ? divisor : 0.0f});
      }
      finished = launch(means);
      for (const std::vector<ExchangeStage>* stages : {&plan.sums, &plan.spread}) {
        for (const ExchangeStage& stage : *stages) launches[&stage] = launches_of(stage);
      }
    }

    void prepare() override { prepared(); }
    void pack(const ExchangeStage& stage) override { launches.at(&stage).pack(); }
    void transfer(const ExchangeStage& stage) override {
      if (all.link_ != nullptr) {
        all.executor_.enqueue([&] { all.link_->transfer(stage.sends, stage.receives, mailbox); });
      } else {
        through_host(stage);
      }
    }
    void receive(const ExchangeStage& stage) override { launches.at(&stage).receive(); }
    void finish() override { finished(); }

    using Launch = std::function<void()>;
    struct StageLaunches {
      Launch pack, receive;
    };

    /// Returns the launch of all bodies, whose table stays on the device.
    template <class Body>
    Launch launch(const std::vector<Body>& bodies) {
      if (bodies.empty()) return [] {};
      X& executor = all.executor_;
      const auto group = group_of<ItemGroup>(bodies, [&]<class U>(const std::vector<U>& table) {
        U* const copy = all.memory_.template allocate<U>(static_cast<int64_t>(table.size()));
        executor.upload(copy, table.data(), table.size() * sizeof(U));
        return copy;
      });
      return [&executor, group] { executor.blocks(group); };
    }

    StageLaunches launches_of(const ExchangeStage& stage) {
      StageLaunches made;
      std::vector<PackNumbers> packs;
      for (const MailedPart& part : stage.packed) {
        packs.push_back({stage.sends_means ? mean_of(part) : own_of(part),
                         {mailbox + part.at, part.width, format_of(part)},
                         part.count});
      }
      made.pack = launch(packs);
      std::vector<AddNumbers> adds;
      std::vector<SumNumbers> sums;
      std::vector<TakeNumbers> takes;
      for (const MailedPart& part : stage.received) {
        const InMessage sent{mailbox + part.at, part.width, format_of(part)};
        const FloatFormat& format = plan.tensors[part.tensor].format;
        switch (stage.then) {
          case ExchangeStage::Then::add:
            adds.push_back({own_of(part), sent, part.count, stage.stores ? format : kFp32});
            break;
          case ExchangeStage::Then::sum:
            sums.push_back({own_of(part), sent, part.count, stage.stride, plan.rank, plan.ranks});
            break;
          case ExchangeStage::Then::take:
            takes.push_back({sent, mean_of(part), part.count});
        }
      }
      made.receive = !adds.empty() ? launch(adds) : !sums.empty() ? launch(sums) : launch(takes);
      return made;
    }

    float* own_of(const MailedPart& part) const { return all.own_[part.tensor] + part.begin; }
    float* mean_of(const MailedPart& part) const {
      const ValueId mean = all.executable_.reduced[part.tensor].mean;
      return static_cast<float*>(all.memory_.destination(mean).memory) + part.begin;
    }
    FloatFormat format_of(const MailedPart& part) const {
      return plan.tensors[part.tensor].format.without_options();
    }

    /// Without a link: every message through the host.
    void through_host(const ExchangeStage& stage) {
      size_t bytes = 0;
      for (const std::vector<Mail>* mails : {&stage.sends, &stage.receives}) {
        for (const Mail& mail : *mails) bytes += static_cast<size_t>(mail.bytes);
      }
      std::vector<std::byte> staging(bytes);
      std::span<std::byte> rest(staging);
      const auto take = [&](const Mail& mail) {
        const auto part = rest.first(static_cast<size_t>(mail.bytes));
        rest = rest.subspan(part.size());
        return part;
      };
      std::vector<Exchange::Send> sends;
      std::vector<Exchange::Receive> receives;
      for (const Mail& mail : stage.sends) {
        const std::span<std::byte> part = take(mail);
        all.executor_.download(part.data(), mailbox + mail.at, part.size());
        sends.push_back({mail.other, part});
      }
      for (const Mail& mail : stage.receives) receives.push_back({mail.other, take(mail)});
      all.exchange_.transfer(sends, receives);
      for (size_t i = 0; i < receives.size(); ++i) {
        all.executor_.upload(mailbox + stage.receives[i].at, receives[i].bytes.data(),
                             receives[i].bytes.size());
      }
    }

    const ExchangePlan plan;
    DeviceMeans& all;
    std::byte* const mailbox;
    Launch prepared, finished;
    std::map<const ExchangeStage*, StageLaunches> launches;  ///< by stage of the plan
  };

  X& executor_;
  const Executable& executable_;
  const ProgramMemory<X>& memory_;
  Exchange& exchange_;
  std::unique_ptr<DeviceLink> link_;
  std::vector<float*> own_;  ///< by reduced gradient: its sum on the way
  std::byte* mailbox_ = nullptr;
  int64_t mailbox_bytes_ = 0;
  std::array<std::unique_ptr<Numbers>, 2> numbers_;  ///< of plain and of measured steps
};

}  // namespace halfscope::gpu
