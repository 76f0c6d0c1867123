// SPDX-License-Identifier: MIT
// Prints numbers that must be the same on every platform: hashes of texts, roundings, functions and
// sums, and the losses of trainings. scripts/web compares the output of this program on the
// processor with that of WebAssembly. Prints its times to standard error.
#include <algorithm>
#include <atomic>
#include <bit>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "core/data/dataset.h"
#include "core/error.h"
#include "core/models/zoo/zoo.h"
#include "core/number_text.h"
#include "core/numeric/elementary/elementary.h"
#include "core/numeric/formats/float_format.h"
#include "core/numeric/formats/rng.h"
#include "core/numeric/formats/round.h"
#include "core/numeric/sums/accumulation.h"
#include "core/numeric/types/float_text.h"
#include "core/policy/policy.h"
#include "core/train/trainer.h"
#include "emulation/backends.h"
#include "emulation/gemm/gemm.h"
#include "emulation/measure/measure.h"

namespace halfscope {
namespace {

/// A hash of everything it was given, in order.
class Hash {
 public:
  void add(uint64_t word) { state_ = splitmix64(state_ ^ word); }
  void add(std::string_view text) {
    for (const char c : text) add(static_cast<uint64_t>(static_cast<unsigned char>(c)));
  }
  /// All NaNs count as the same number: processors differ in the sign of those that they make.
  void add(double x) { add(std::isnan(x) ? 1 : std::bit_cast<uint64_t>(x)); }
  void add(float x) { add(uint64_t{std::isnan(x) ? 1 : std::bit_cast<uint32_t>(x)}); }
  void print(const std::string& name) const {
    std::printf("%s %016llx\n", name.c_str(), static_cast<unsigned long long>(state_));
  }

 private:
  uint64_t state_ = 0;
};

class Clock {
 public:
  ~Clock() {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start_;
    std::fprintf(stderr, "%-12s %7.3f s\n", name_, spent.count());
  }
  explicit Clock(const char* name) : name_(name) {}

 private:
  const char* name_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Any double; half of them are of moderate size.
double any_double(uint64_t index) {
  const uint64_t bits = random_word(7, index);
  if (index % 2 == 0) return std::bit_cast<double>(bits);
  const double unit = static_cast<double>(bits >> 11) * 0x1p-53 - 0.5;
  return std::ldexp(unit, static_cast<int>(bits % 64) - 32);
}

void print_texts() {
  const Clock clock("texts");
  Hash shortest, narrow, decimals;
  int64_t wrong = 0;
  for (uint64_t i = 0; i < 30000; ++i) {
    double x = any_double(i);
    if (i < 2046) x = std::ldexp(1.0, static_cast<int>(i) - 1022);  // uneven neighbors
    if (i % 16 == 3) x = std::round(x);
    const std::string text = number_text(x);
    shortest.add(text);
    double read = 0.0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), read);
    if (!std::isnan(x) && (error != std::errc() || end != text.data() + text.size() || read != x)) {
      ++wrong;
    }
    narrow.add(number_text(static_cast<float>(x)));
    if (std::isfinite(x) && std::fabs(x) < 1e60) {
      char digits[1200];
      const char* stop = std::to_chars(digits, digits + sizeof digits, x, std::chars_format::fixed,
                                       static_cast<int>(i % 40))
                             .ptr;
      decimals.add(std::string_view(digits, static_cast<size_t>(stop - digits)));
    }
  }
  for (const char* text : {"1e400", "-1e400", "1e-400",   "inf",      "-Infinity",
                           "nan",   "",       "-",        ".",        "1.",
                           ".5",    "1e",     "1e+",      "1e5x",     "+1",
                           " 1",    "0x10",   "4.9e-324", "2.4e-324", "1.7976931348623159e308",
                           "0e999"}) {
    double read = 0.25;
    const auto [end, error] = std::from_chars(text, text + std::string_view(text).size(), read);
    shortest.add(static_cast<uint64_t>(end - text));
    shortest.add(uint64_t{error == std::errc()                   ? 0u
                          : error == std::errc::invalid_argument ? 1u
                                                                 : 2u});
    if (error == std::errc()) shortest.add(read);
  }
  shortest.print("texts/double");
  narrow.print("texts/float");
  decimals.print("texts/decimals");
  std::printf("texts/unread %lld\n", static_cast<long long>(wrong));
}

void print_roundings(int64_t count) {
  const Clock clock("roundings");
  std::vector<double> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = any_double(i);
  for (const NamedFormat& each : named_formats()) {
    Hash hash;
    for (size_t i = 0; i < values.size(); ++i) {
      Rounding how;
      how.mode = kAllRoundingModes[i % std::size(kAllRoundingModes)];
      how.random = random_word(3, i);
      const Rounded<double> rounded = round_to_format(values[i], each.format, how);
      hash.add(rounded.value);
      hash.add(uint64_t{rounded.flags});
    }
    hash.print("round/" + std::string(each.name));
  }
  std::vector<float> narrow(values.size());
  std::transform(values.begin(), values.end(), narrow.begin(),
                 [](double x) { return static_cast<float>(round_to_format(x, kFp32).value); });
  std::vector<float> rounded(narrow.size());
  for (const NamedFormat& each : named_formats()) {
    Hash hash;
    const TensorStats stats =
        measure_tensor(narrow.data(), rounded.data(), count, each.format, TensorRounding{});
    for (const float x : rounded) hash.add(x);
    hash.add(stats.sum);
    hash.add(stats.sum_sq);
    hash.add(static_cast<uint64_t>(stats.overflow + 3 * stats.underflow + 7 * stats.subnormal));
    hash.print("measure/" + std::string(each.name));
  }
}

void print_functions() {
  const Clock clock("functions");
  struct Function {
    const char* name;
    double (*f)(double);
  };
  const Function functions[] = {{"exp", elementary::exp},
                                {"expm1", elementary::expm1},
                                {"log", elementary::log},
                                {"log1p", elementary::log1p},
                                {"tanh", elementary::tanh},
                                {"sin", elementary::sin},
                                {"cos", elementary::cos},
                                {"erf", elementary::erf},
                                {"erfc", elementary::erfc},
                                {"pow", [](double x) { return elementary::pow(std::fabs(x), 0.37); }}};
  for (const Function& each : functions) {
    Hash hash;
    for (uint64_t i = 0; i < 100000; ++i) hash.add(each.f(any_double(i)));
    hash.print("function/" + std::string(each.name));
  }
}

void print_sums() {
  const Clock clock("sums");
  constexpr int64_t kM = 19, kN = 23, kK = 301;
  for (const FloatFormat& format : {kFp16, kBf16, kE4m3fn}) {
    const auto draw = [&](uint64_t key, int64_t size) {
      std::vector<float> values(static_cast<size_t>(size));
      for (size_t i = 0; i < values.size(); ++i) {
        const double unit = static_cast<double>(random_word(key, i) >> 11) * 0x1p-52 - 1.0;
        values[i] = round_to_format(static_cast<float>(unit * 4.0), format).value;
      }
      return values;
    };
    const std::vector<float> a = draw(1, kM * kK), b = draw(2, kK * kN);
    std::vector<float> c(static_cast<size_t>(kM * kN));
    for (const std::string& name : accumulation_names()) {
      for (const char* options : {"", ",promote=64", ",split-k=3"}) {
        const bool first = name.find(':') == std::string::npos;
        std::string text = name + options;
        if (first && *options != '\0') text = name + ":" + (options + 1);
        const std::optional<Accumulation> accumulation = parse_accumulation(text);
        if (!accumulation) continue;
        SumSpec spec;
        spec.accumulation = *accumulation;
        spec.write = spec.read = format;
        spec.key = 11;
        try {
          gemm(kM, kN, kK, {a.data(), kK, 1}, {b.data(), kN, 1}, nullptr, c.data(), spec);
        } catch (const Error&) {
          continue;  // this tensor core does not read the format
        }
        Hash hash;
        for (const float x : c) hash.add(x);
        hash.print("sum/" + format_name(format) + "/" + text);
      }
    }
  }
}

void print_training(const std::string& name, const TrainConfig& config, const Dataset& data,
                    bool show) {
  const std::atomic<bool> no_stop{false};
  Trainer trainer(config, data);
  Hash hash;
  trainer.run(
      nullptr,
      [&](const std::vector<StepRow>& rows) {
        for (const StepRow& row : rows) {
          hash.add(row.loss);
          const std::string loss = std::isnan(row.loss) ? "nan" : number_text(row.loss);
          if (show) {
            std::printf("%s/%lld %s %.17g\n", name.c_str(), static_cast<long long>(row.step),
                        loss.c_str(), std::isnan(row.loss) ? 0.0 : row.loss);
          }
        }
      },
      no_stop);
  for (size_t lane = 0; lane < config.lanes.size(); ++lane) {
    for (const auto& [path, tensor] : trainer.weights(static_cast<int>(lane))) {
      hash.add(path);
      for (const float x : tensor.data) hash.add(x);
    }
  }
  hash.print(name + "/weights");
}

LaneConfig lane(const Plan& plan, const LossScalerConfig& scaler, const Backend& backend) {
  return {.plan = plan, .scaler = scaler, .backend = &backend};
}

/// Networks are built in the same order everywhere; nodes are named by their numbers.
void print_networks() {
  const Clock clock("networks");
  for (const zoo::Case& each : zoo::all_cases()) {
    const zoo::Setup setup = each.make();
    Hash hash;
    for (const Node& node : setup.model.graph.nodes()) {
      hash.add(node.op);
      hash.add(node.path);
    }
    for (const Split* part : {&setup.data.train, &setup.data.test}) {
      for (const SampleArray& array : part->arrays) {
        for (const float x : array.reals) hash.add(x);
        for (const int32_t x : array.integers) hash.add(static_cast<uint64_t>(x));
      }
    }
    for (const auto& [path, tensor] : setup.model.initial) {
      hash.add(path);
      for (const float x : tensor.data) hash.add(x);
    }
    hash.print("network/" + each.id);
  }
}

void print_trainings() {
  {
    const Clock clock("lenet");
    const Dataset digits = load_dataset("digits");
    TrainConfig config;
    config.model = "lenet";
    config.batch = 8;
    config.steps = 5;
    config.optimizer = parse_optimizer("adam:lr=0.001");
    config.evaluate = false;
    config.lanes = {
        lane(*preset_plan("mixed_float16"),
             {.kind = LossScalerConfig::Kind::dynamic, .initial = 65536.0}, emulation_backend()),
        lane(*preset_plan("mixed_bfloat16"), {}, emulation_backend()),
        lane(*preset_plan("float64"), {}, float64_backend())};
    print_training("train/lenet", config, digits, true);
  }
  const Clock clock("zoo");
  for (const zoo::Case& each : zoo::all_cases()) {
    if (!each.trains() || each.right.empty()) continue;
    const zoo::Setup setup = each.make();
    const zoo::LaneChoice choice = each.lane(each.right.front());
    TrainConfig config = setup.train;
    config.build = [&](int64_t) { return setup.model; };
    config.sum_format = choice.sum_format;
    config.state_format = choice.state_format;
    config.every = 0;
    config.evaluate = false;
    config.steps = std::min<int64_t>(config.steps, 25);
    config.lanes = {lane(choice.plan, choice.scaler, emulation_backend())};
    print_training("train/" + each.id, config, setup.data, false);
  }
}

}  // namespace
}  // namespace halfscope

int main(int argc, char** argv) {
  try {
    // The roundings take most of the time; a test asks for fewer.
    halfscope::print_texts();
    halfscope::print_roundings(argc > 1 ? std::atoll(argv[1]) : 1000000);
    halfscope::print_functions();
    halfscope::print_sums();
    halfscope::print_networks();
    halfscope::print_trainings();
  } catch (const halfscope::Error& error) {
    std::fprintf(stderr, "%s\n%s\n", error.what(), error.hint().c_str());
    return 3;
  }
  return 0;
}
