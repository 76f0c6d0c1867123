// SPDX-License-Identifier: MIT
// KernelChecker on lanes of the GPU backend's program: our own kernels have the emulator's bits, a
// library's sums are explained by the order they were taken in, and what no order explains is
// counted. The library is interpreted, so that a test chooses the order.
#include "core/observe/kernel_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/models/models.h"
#include "core/numeric/sums/tensor_core.h"
#include "core/policy/policy.h"
#include "core/train/runner.h"
#include "gpu/backends.h"
#include "tests/gpu/distinct_presets.h"
#include "tests/gpu/interpreted_library.h"
#include "tests/train/faulty_backend.h"
#include "tests/train/small_training.h"

namespace halfscope {
namespace {

using namespace test;  // NOLINT: trainings of these tests

struct NamedCheck {
  std::string site;
  bool product;
  KernelCheck check;
};

/// Checks of one step of a lane.
std::vector<NamedCheck> checks_of(const Plan& plan, const Backend& backend,
                                  const std::string& model = "lenet",
                                  const Dataset& dataset = data(), int64_t micro_batches = 1) {
  TrainConfig setup = config(model, "float32", "none");
  setup.lanes = {{plan, parse_loss_scale("static:256"), &backend}};
  setup.steps = 2;
  setup.micro_batches = micro_batches;
  setup.errors = {.enabled = true, .every = 2, .emulator = &emulation_backend()};
  Trainer trainer(setup, dataset);
  const RunInfo info = trainer.describe();
  Collector seen;
  const std::atomic<bool> never{false};
  trainer.run(&seen, {}, never);
  std::vector<NamedCheck> checks;
  for (const auto& [lane, check] : seen.checks) {
    EXPECT_EQ(lane, 0);
    EXPECT_EQ(check.step, 0) << "the second step is not sampled";
    const SiteInfo& site = info.lanes[0].sites[static_cast<size_t>(check.site)];
    checks.push_back({site.name(), check.beyond >= 0, check});
  }
  EXPECT_GT(checks.size(), 10u);
  return checks;
}

Plan preset(const std::string& name) { return preset_plan(name).value(); }

/// Returns the checks of one forward pass of lenet, whose tensors are all small.
std::vector<NamedCheck> forward_checks(const Plan& plan, const Backend& backend) {
  constexpr int64_t kBatch = 4, kSide = 16;
  const Model model = build_lenet(kBatch, {1, kSide, kSide}, 10, false);
  RunnerConfig setup;
  setup.lanes = {{plan, parse_loss_scale("none"), &backend}};
  setup.errors = {.enabled = true, .every = 100, .emulator = &emulation_backend()};
  Runner runner(model, setup, data());
  const RunInfo info = runner.describe();
  Collector seen;
  const std::atomic<bool> never{false};
  runner.run(&seen, {}, never);
  std::vector<NamedCheck> checks;
  for (const auto& [lane, check] : seen.checks) {
    const SiteInfo& site = info.lanes[0].sites[static_cast<size_t>(check.site)];
    checks.push_back({site.name(), check.beyond >= 0, check});
  }
  EXPECT_GE(checks.size(), 8u);
  return checks;
}

TEST(KernelCheck, OurKernelsHaveTheBitsOfTheEmulator) {
  const Model lenet = build_lenet(8, data().sample_shape, data().classes, false);
  for (const auto& [name, plan] : distinct_presets(lenet)) {
    for (const auto& [site, product, check] : checks_of(plan, host_executor_backend())) {
      EXPECT_EQ(check.differing, 0) << name << " " << site;
      EXPECT_EQ(check.worst, -1);
      EXPECT_EQ(check.kernel, "");
    }
  }
}

// Random words depend on the step, the micro-batch and the value.
TEST(KernelCheck, KnowsTheRandomWordsOfTheLane) {
  Plan plan = preset("bfloat16");
  plan.defaults.rounding.mode = RoundingMode::stochastic;
  accumulate_in(plan, parse_accumulation("format:rounding=stochastic").value());
  for (const int64_t parts : {1, 2}) {
    for (const auto& [site, product, check] :
         checks_of(plan, host_executor_backend(), "lenet", data(), parts)) {
      EXPECT_EQ(check.differing, 0) << site;
    }
  }
}

TEST(KernelCheck, BatchNormalizationsAndResidualsAreChecked) {
  const auto checks =
      checks_of(preset("mixed_float16"), host_executor_backend(), "resnet20", small_images());
  for (const auto& [site, product, check] : checks) EXPECT_EQ(check.differing, 0) << site;
}

TEST(KernelCheck, ALibraryInTheSameOrderHasTheSameBits) {
  const LibraryBackend backend({});
  int64_t by_library = 0;
  for (const auto& [site, product, check] : checks_of(preset("mixed_float16"), backend)) {
    EXPECT_EQ(check.differing, 0) << site;
    by_library += check.kernel.empty() ? 0 : 1;
  }
  EXPECT_GE(by_library, 10) << "five layers, forward and backward";
}

// A library on tensor cores: the fp32 chain of the plan does not explain it, the hardware does.
TEST(KernelCheck, TheKnownTensorCoresExplainALibrary) {
  const TensorCoreProfile core = tensor_core_profile("h100", kFp16).value();
  InterpretedOptions options;
  options.sum = [core](std::span<const float> a, std::span<const float> b) {
    return tensor_core_dot(core, a, b, 0.0f);
  };
  options.known_orders = {parse_accumulation("tensor-core:a100").value(),
                          parse_accumulation("tensor-core:h100").value()};
  int64_t explained = 0;
  for (const auto& [site, product, check] :
       checks_of(preset("mixed_float16"), LibraryBackend(options))) {
    EXPECT_TRUE(product || check.differing == 0) << site;
    if (check.differing == 0) continue;
    EXPECT_EQ(check.beyond, 0) << site;
    EXPECT_GE(check.max_ulps, 1.0) << site;
    EXPECT_GT(check.sampled, 0) << site;
    EXPECT_LE(check.sampled, check.n) << site;
    EXPECT_EQ(check.unexplained, "") << site;
    // Gradients of inputs walk (row, column, channel) in the emulator and here.
    EXPECT_EQ(check.explained, check.sampled) << site << " " << check.order;
    explained += check.order == "tensor-core:h100" ? 1 : 0;
  }
  EXPECT_GE(explained, 3);
}

// A library without a kernel for 16 bits multiplies them as tf32, in different blocks.
TEST(KernelCheck, OperandsMayBeMultipliedAsTf32) {
  const TensorCoreProfile core = tensor_core_profile("a100", kTf32).value();
  InterpretedOptions options;
  options.sum = [core](std::span<const float> a, std::span<const float> b) {
    return tensor_core_dot(core, a, b, 0.0f);
  };
  options.known_orders = {parse_accumulation("tensor-core:a100").value()};
  std::set<std::string> orders;
  for (const auto& [site, product, check] :
       checks_of(preset("mixed_float16"), LibraryBackend(options))) {
    EXPECT_LE(check.beyond, 0) << site;
    EXPECT_EQ(check.explained, check.sampled) << site << " " << check.order;
    orders.insert(check.order);
  }
  EXPECT_TRUE(orders.contains("tensor-core:a100 on tf32"));
}

float descending_chain(std::span<const float> a, std::span<const float> b) {
  float sum = 0.0f;
  for (size_t k = a.size(); k-- > 0;) sum = std::fma(a[k], b[k], sum);
  return sum;
}

// None of our accumulations sums in this order, so FPRev has to find it from the kernel.
TEST(KernelCheck, AnUnknownOrderIsFoundInTheKernel) {
  for (const char* plan : {"float32", "mixed_float16"}) {
    InterpretedOptions options;
    options.sum = descending_chain;
    options.channels_inside = true;
    int64_t trees = 0;
    for (const auto& [site, product, check] :
         forward_checks(preset(plan), LibraryBackend(options))) {
      EXPECT_LE(check.beyond, 0) << site;
      if (check.differing == 0) continue;
      ASSERT_TRUE(product) << site;
      EXPECT_EQ(check.explained, check.sampled) << site << ": " << check.order << check.unexplained;
      EXPECT_FALSE(check.order.starts_with("fp32")) << check.order;
      ++trees;
    }
    EXPECT_GE(trees, 3) << plan;
  }
}

/// Keeps orders in memory.
class KeptOrders final : public SumOrderCache {
 public:
  std::optional<ProbedOrder> find(const std::string& key) override {
    const auto found = orders.find(key);
    return found == orders.end() ? std::nullopt : std::optional(found->second);
  }
  void store(const std::string& key, const ProbedOrder& order) override { orders[key] = order; }

  std::map<std::string, ProbedOrder> orders;
};

/// A library that counts for how many programs it is asked.
class CountingBackend final : public Backend {
 public:
  CountingBackend(InterpretedOptions options, std::string identity)
      : library_(std::move(options)), identity_(std::move(identity)) {}
  const char* name() const noexcept override { return library_.name(); }
  std::string kernel_identity() const override { return identity_; }
  std::unique_ptr<Program> compile(const Executable& executable) const override {
    ++compiled;
    return library_.compile(executable);
  }

  mutable int64_t compiled = 0;

 private:
  LibraryBackend library_;
  std::string identity_;
};

/// The note about the kernels, and how often one was analysed.
struct Looked {
  std::vector<std::string> orders;
  int64_t probed;
};

/// Runs one forward pass of three layers.
Looked look(const InterpretedOptions& options, const std::string& identity, SumOrderCache* kept) {
  constexpr int64_t kBatch = 4, kInputs = 48;
  Dataset vectors{.name = "vectors", .sample_shape = {}, .train = {}, .test = {}};
  SampleArray array{.name = "input", .sample_shape = {kInputs}, .samples = kBatch};
  for (uint64_t i = 0; i < kBatch * kInputs; ++i) {
    array.reals.push_back(static_cast<float>(splitmix64(i) >> 40) * 0x1p-23f - 1.0f);
  }
  vectors.test.arrays.push_back(std::move(array));
  const CountingBackend backend(options, identity);
  RunnerConfig setup;
  setup.lanes = {{preset("float32"), parse_loss_scale("none"), &backend}};
  setup.errors = {.enabled = true, .every = 1, .emulator = &emulation_backend(), .orders = kept};
  Runner runner(build_network("mlp:48-40-32-24", kBatch, {kInputs}, 24), setup, vectors);
  Collector seen;
  runner.run(&seen, {}, std::atomic<bool>{false});
  Looked result{{}, backend.compiled - 1};
  for (const auto& [lane, check] : seen.checks) {
    result.orders.push_back(check.order + " " + std::to_string(check.explained) + "/" +
                            std::to_string(check.sampled) + check.unexplained);
  }
  return result;
}

TEST(KernelCheck, OrdersThatWereFoundAreKept) {
  InterpretedOptions options;
  options.sum = descending_chain;
  options.channels_inside = true;
  KeptOrders kept;
  const Looked first = look(options, "device A", &kept);
  EXPECT_EQ(first.probed, 3);
  EXPECT_EQ(kept.orders.size(), static_cast<size_t>(first.probed));
  const Looked second = look(options, "device A", &kept);
  EXPECT_EQ(second.probed, 0);
  EXPECT_EQ(second.orders, first.orders);

  const Looked other = look(options, "device B", &kept);
  EXPECT_EQ(other.probed, first.probed) << "another machine";
  EXPECT_EQ(kept.orders.size(), static_cast<size_t>(2 * first.probed));
  const Looked unknown = look(options, "", &kept);
  EXPECT_EQ(unknown.probed, first.probed) << "nobody knows which machine";
  EXPECT_EQ(kept.orders.size(), static_cast<size_t>(2 * first.probed));
  EXPECT_EQ(look(options, "device A", nullptr).probed, first.probed);

  // A tree over another number of summands cannot belong to this kernel.
  for (auto& [key, order] : kept.orders) order.tree->leaves = 1;
  const Looked again = look(options, "device A", &kept);
  EXPECT_EQ(again.probed, first.probed);
  EXPECT_EQ(again.orders, first.orders);
}

// "No tree" is stored only if the kernel gives the same answer twice.
TEST(KernelCheck, OnlyWhatRepeatsItselfIsKept) {
  InterpretedOptions options;
  options.sum = [](std::span<const float> a, std::span<const float> b) {
    return chain_of_products(a, b) + 0.5f;
  };
  KeptOrders kept;
  const Looked first = look(options, "device", &kept);
  EXPECT_EQ(first.probed, 6) << "each twice";
  EXPECT_EQ(kept.orders.size(), static_cast<size_t>(first.probed / 2));
  for (const auto& [key, order] : kept.orders) {
    EXPECT_FALSE(order.tree);
    EXPECT_TRUE(order.why.starts_with("not a summation tree")) << order.why;
  }
  const Looked second = look(options, "device", &kept);
  EXPECT_EQ(second.probed, 0);
  EXPECT_EQ(second.orders, first.orders);

  auto calls = std::make_shared<int64_t>(0);
  options.sum = [calls](std::span<const float> a, std::span<const float> b) {
    return chain_of_products(a, b) + static_cast<float>(++*calls);
  };
  KeptOrders none;
  EXPECT_EQ(look(options, "device", &none).probed, 6);
  EXPECT_TRUE(none.orders.empty());
}

// Blocks of a tensor core in two halves of k: the tree shows both.
TEST(KernelCheck, BlocksInAnUnknownOrderAreFoundToo) {
  const TensorCoreProfile core = tensor_core_profile("a100", kFp16).value();
  InterpretedOptions options;
  options.sum = [core](std::span<const float> a, std::span<const float> b) {
    return tensor_core_dot(core, a, b, 0.0f, {.slices = 2, .tile = 8});
  };
  options.known_orders = {parse_accumulation("tensor-core:a100").value()};
  int64_t trees = 0;
  for (const auto& [site, product, check] :
       checks_of(preset("mixed_float16"), LibraryBackend(options), kMlp)) {
    if (check.differing == 0) continue;
    EXPECT_EQ(check.beyond, 0) << site;
    EXPECT_EQ(check.explained, check.sampled) << site << ": " << check.order << check.unexplained;
    trees += check.order.starts_with("tensor-core") ? 0 : 1;
  }
  EXPECT_GE(trees, 1);
}

// Sums that depend on more than their terms follow no tree; their distance is reported
// nevertheless.
TEST(KernelCheck, SaysWhyNoOrderWasFound) {
  InterpretedOptions options;
  auto calls = std::make_shared<int64_t>(0);
  options.sum = [calls](std::span<const float> a, std::span<const float> b) {
    const float sum = ++*calls % 3 == 0 ? descending_chain(a, b) : chain_of_products(a, b);
    return *calls % 5 == 0 ? std::nextafter(sum, INFINITY) : sum;
  };
  int64_t unexplained = 0;
  for (const auto& [site, product, check] :
       forward_checks(preset("float32"), LibraryBackend(options))) {
    EXPECT_LE(check.beyond, 0) << site << ": an ulp is no garbage";
    if (check.differing == 0) continue;
    EXPECT_LT(check.explained, check.sampled) << site;
    EXPECT_GT(check.explained, 0) << site;
    EXPECT_NE(check.unexplained, "") << site;
    ++unexplained;
  }
  EXPECT_GE(unexplained, 3);
}

// Wrong outputs that are finite: a sum without a quarter of its terms, and a tile that was not
// written.
TEST(KernelCheck, WhatNoOrderExplainsIsCounted) {
  const auto lost = [](std::span<const float> a, std::span<const float> b) {
    const size_t kept = a.size() - a.size() / 4;
    return chain_of_products(a.first(kept), b.first(kept));
  };
  const auto unwritten = [](std::span<const float> a, std::span<const float> b) {
    const float sum = chain_of_products(a, b);
    return std::fabs(sum) < 0.125f ? 1000.0f : sum;
  };
  const auto infinite = [](std::span<const float> a, std::span<const float> b) {
    const float sum = chain_of_products(a, b);
    return sum > 0.125f ? INFINITY : sum;
  };
  for (const SumProducts& sum :
       {SumProducts(lost), SumProducts(unwritten), SumProducts(infinite)}) {
    InterpretedOptions options;
    options.sum = sum;
    const auto checks = forward_checks(preset("mixed_float16"), LibraryBackend(options));
    const NamedCheck& first = *std::find_if(checks.begin(), checks.end(), [](const auto& each) {
      return each.site == "conv1.activation";
    });
    EXPECT_TRUE(first.product);
    EXPECT_GT(first.check.beyond, 0);
    EXPECT_LE(first.check.beyond, first.check.differing);
    EXPECT_GE(first.check.worst, 0);
    for (const auto& [site, product, check] : checks) {
      EXPECT_TRUE(product || check.differing == 0) << site << ": judged on its own operands";
    }
  }
}

TEST(KernelCheck, OneWrongElementOfAnyOperatorIsFound) {
  const auto checks = checks_of(preset("mixed_float16"), FaultyBackend("relu1"));
  int64_t wrong = 0;
  for (const auto& [site, product, check] : checks) {
    if (site == "relu1.activation") {
      EXPECT_EQ(check.differing, 1);
      EXPECT_EQ(check.worst, 3);
      EXPECT_EQ(check.beyond, -1);
      EXPECT_TRUE(std::isinf(check.max_ulps)) << "finite in one of the two only";
      ++wrong;
    }
  }
  EXPECT_EQ(wrong, 1);
}

TEST(KernelCheck, IsOfLanesWithKernelsOfTheirOwnOnly) {
  TrainConfig setup = config("lenet", "mixed_float16", "none");
  setup.errors = {.enabled = true, .emulator = &emulation_backend()};
  EXPECT_TRUE(train(setup).seen.checks.empty());
  setup.lanes[0].backend = &host_executor_backend();
  EXPECT_FALSE(train(setup).seen.checks.empty());
  setup.errors.emulator = nullptr;
  EXPECT_TRUE(train(setup).seen.checks.empty());
}

TEST(KernelCheck, ChangesNoResult) {
  InterpretedOptions options;
  options.sum = descending_chain;
  const LibraryBackend backend(options);
  TrainConfig setup = config(kMlp, "mixed_float16", "dynamic");
  setup.lanes[0].backend = &backend;
  const Result plain = train(setup);
  setup.errors = {.enabled = true, .emulator = &emulation_backend()};
  const Result checked = train(setup);
  EXPECT_FALSE(checked.seen.checks.empty());
  expect_same_weights(plain.weights, checked.weights);
  expect_same_steps(plain.seen, checked.seen);
}

// Behaviour of a device's libraries, printed for the report of scripts/gpu-check.
TEST(LibrariesOnDevice, KernelsDoWhatTheEmulatorDoes) {
  if (!cuda_is_ready()) GTEST_SKIP() << "no GPU here: no kernel was checked";
  for (const char* plan : {"float32", "mixed_float16", "mixed_bfloat16", "fp8_current"}) {
    for (const GpuProducts products : {GpuProducts::own, GpuProducts::library, GpuProducts::fast}) {
      int64_t sampled = 0, explained = 0, by_library = 0;
      for (const auto& [site, product, check] : checks_of(preset(plan), cuda_backend(products))) {
        by_library += check.kernel.empty() ? 0 : 1;
        SCOPED_TRACE(std::string(plan) + " " + gpu_backend_name(products) + " " + site);
        EXPECT_TRUE(!check.kernel.empty() || check.differing == 0) << check.max_ulps << " ulps";
        EXPECT_LE(check.beyond, 0) << check.kernel;
        sampled += check.sampled;
        explained += check.explained;
        if (check.differing > 0) {
          std::cout << plan << " " << gpu_backend_name(products) << " " << site << ": "
                    << check.differing << " of " << check.n << " differ, " << check.explained
                    << " of " << check.sampled << " explained by " << check.order << " "
                    << check.unexplained << "\n";
        }
      }
      EXPECT_EQ(by_library > 0, products != GpuProducts::own) << "are the libraries there?";
      std::cout << plan << " " << gpu_backend_name(products) << ": " << explained << " of "
                << sampled << " sampled elements explained\n";
    }
  }
}

}  // namespace
}  // namespace halfscope
