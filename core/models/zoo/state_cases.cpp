// SPDX-License-Identifier: MIT
// Failures of the state that training keeps: weights, optimizer state, moving averages.
#include "core/models/zoo/net.h"

namespace halfscope::zoo {
namespace {

/// Linear regression of `samples` rows; the columns from `live` on are zero.
struct Regression {
  ValueId prediction, weight;
  std::vector<float> targets;
};

Regression regression(Net& n, int64_t samples, int64_t batch, int64_t inputs, int64_t live,
                      std::vector<float> weights) {
  const int64_t out = static_cast<int64_t>(weights.size()) / inputs;
  std::vector<float> rows = n.draw.normals(samples * inputs);
  const std::vector<float> wanted = n.draw.normals(inputs * out);
  Regression r;
  for (int64_t i = 0; i < samples; ++i) {
    for (int64_t j = live; j < inputs; ++j) rows[static_cast<size_t>(i * inputs + j)] = 0.0f;
    for (int64_t o = 0; o < out; ++o) {
      double sum = 0.01 * n.draw.normal();
      for (int64_t j = 0; j < inputs; ++j) {
        sum += static_cast<double>(rows[static_cast<size_t>(i * inputs + j)]) *
               static_cast<double>(wanted[static_cast<size_t>(o * inputs + j)]);
      }
      r.targets.push_back(static_cast<float>(sum));
    }
  }
  r.prediction = n.linear(n.in({batch, inputs}, rows), out, std::move(weights));
  r.weight = n.made_by(r.prediction).inputs[1];
  return r;
}

/// Adam with an input that is always zero: the weight's gradient and optimizer state are 0, and in
/// fp16 so is epsilon.
Setup f15() {
  Net n(15);
  Regression r = regression(n, 128, 32, 8, 7, n.draw.normals(32, 0.5));
  n.symptom(r.weight);
  n.decoy(r.prediction);
  n.fix(FixKind::update_fp32);
  return n.train_squares(r.prediction, r.targets, "adam:lr=0.01", 60);
}

/// Weights of 1 with updates of 6e-4, which is less than half an ulp of bf16.
Setup f16(double rate) {
  Net n(16);
  const ValueId x = n.in({4, 4}, std::vector<float>(16, 1.0f));
  const ValueId w = n.variable({4, 1}, {1.0f, 1.0f, 1.0f, 1.0f}), y = n.op("MatMul", {x, w});
  const ValueId loss = n.mean_of_all(y);
  n.root(w);
  n.symptom(w);
  n.decoy(loss);
  n.fix(FixKind::weights_fp32);
  Setup setup = n.train_loss(loss, "sgd", 100);
  setup.train.optimizer.learning_rate = rate;
  return setup;
}

/// Decoupled weight decay of 1e-3 per step, for weights of 1 whose inputs are zero.
Setup f17() {
  Net n(17);
  std::vector<float> weights = n.draw.normals(16, 0.01);
  for (size_t i = 8; i < 16; ++i) weights[i] = 1.0f;
  Regression r = regression(n, 64, 16, 16, 8, weights);
  n.root(r.weight);
  n.symptom(r.weight);
  n.fix(FixKind::weights_fp32);
  return n.train_squares(r.prediction, r.targets, "adamw:lr=1e-3,weight_decay=1", 300);
}

/// Averages of changing weights, with a decay of 0.999.
Setup f18(WeightAverage::Form form) {
  Net n(18);
  Regression r = regression(n, 128, 32, 8, 8, n.draw.normals(32));
  n.symptom(average_path(n.path_of(r.weight)));
  n.decoy(r.prediction);
  n.fix(FixKind::average_fp32);
  Setup setup = n.train_squares(r.prediction, r.targets, "sgd:lr=0.02", 200);
  setup.train.average = WeightAverage{.decay = 0.999, .form = form};
  return setup;
}

/// A learning rate that rises from 2e-17 to 0.2 and falls to 9e-4. In fp16 the first rate and the
/// divisor that gives the last rate are both 0, so rates become NaN once they fall.
Setup f34() {
  Net n(34);
  Regression r = regression(n, 128, 32, 8, 8, n.draw.normals(32));
  n.symptom(r.weight);
  n.decoy(r.prediction);
  n.fix(FixKind::schedule_fp32);
  Setup setup = n.train_squares(r.prediction, r.targets, "sgd:lr=0.199375", 60);
  setup.train.schedule =
      parse_schedule("onecycle:div=1e16,final_div=2.1926e-14,start=0.23,anneal=linear");
  return setup;
}

/// One gradient of 10, then gradients of 0.01, so the second moment must decay.
Setup f42() {
  Net n(42);
  std::vector<float> rows(2000, 0.01f);
  rows[0] = 10.0f;
  const ValueId x = n.in({1, 1}, rows);
  const ValueId w = n.variable({1, 1}, {1.0f}), y = n.op("MatMul", {x, w});
  n.symptom(w);
  n.decoy(y);
  n.fix(FixKind::state_fp32);
  Setup setup = n.train_loss(n.mean_of_all(y), "adam:lr=1e-3", 2000);
  setup.train.shuffle = false;
  return setup;
}

}  // namespace

std::vector<Case> state_cases() {
  const auto f18a = [] { return f18(WeightAverage::Form::average); };
  const auto f18l = [] { return f18(WeightAverage::Form::lerp); };
  return {
      {"F15",
       "Adam's epsilon and state become 0 in fp16",
       true,
       f15,
       {"float16_stagewise compute=fp16"},
       {"float16", "float16_stagewise", "float16 compute=fp16"},
       Measure::weights},
      {"F16",
       "updates smaller than half an ulp of the weight are lost",
       true,
       [] { return f16(2.4e-3); },
       {"bfloat16_stagewise"},
       {"mixed_bfloat16", "bfloat16", "bfloat16_stagewise"},
       Measure::weights},
      {"F16h",
       "updates smaller than half an ulp of the weight are lost",
       true,
       [] { return f16(4e-4); },
       {"float16_stagewise"},
       {"mixed_float16", "float16", "float16_stagewise"},
       Measure::weights},
      {"F17",
       "weight decay has no effect: 1 - lr * wd rounds to 1",
       true,
       f17,
       {"bfloat16_stagewise compute=bf16"},
       {"mixed_bfloat16", "bfloat16", "bfloat16_stagewise"},
       Measure::weights},
      {"F18",
       "a moving average in bf16 stops changing",
       true,
       f18a,
       {"mixed_bfloat16 average=bf16"},
       {"mixed_bfloat16", "mixed_bfloat16 average=bf16"},
       Measure::averages},
      {"F18l",
       "a moving average in bf16, written as a lerp, stops changing",
       true,
       f18l,
       {"mixed_bfloat16 average=bf16"},
       {"mixed_bfloat16", "mixed_bfloat16 average=bf16"},
       Measure::averages},
      {"F34",
       "a learning rate computed in fp16 becomes NaN",
       true,
       f34,
       {"mixed_float16 schedule=fp16"},
       {"mixed_float16", "mixed_float16 schedule=fp16"},
       Measure::weights},
      {"F42",
       "Adam's second moment in bf16 cannot decay",
       true,
       f42,
       {"mixed_bfloat16 state=bf16"},
       {"mixed_bfloat16", "mixed_bfloat16 state=bf16"},
       Measure::weights},
  };
}

}  // namespace halfscope::zoo
