// SPDX-License-Identifier: MIT
#include "core/models/zoo/zoo.h"

#include <algorithm>
#include <charconv>

#include "core/error.h"
#include "core/near_miss.h"

namespace halfscope::zoo {
namespace {

std::vector<Case> make_all() {
  std::vector<Case> all;
  for (const auto& part : {range_cases(), loss_cases(), sum_cases(), rank_cases(), state_cases(),
                           rounding_cases(), scaled_cases()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  std::stable_sort(all.begin(), all.end(), [](const Case& a, const Case& b) {
    return failure_number(a.id) < failure_number(b.id);
  });
  for (Case& each : all) each.about = about_failure(each.id);
  for (Case& each : controls()) all.push_back(std::move(each));
  return all;
}

}  // namespace

int failure_number(std::string_view id) {
  int number = 0;
  if (id.starts_with("F")) std::from_chars(id.data() + 1, id.data() + id.size(), number);
  return number;
}

const std::vector<Case>& all_cases() {
  static const std::vector<Case> all = make_all();
  return all;
}

const Case& find_case(std::string_view id) {
  std::vector<std::string> ids;
  for (const Case& each : all_cases()) {
    if (each.id == id) return each;
    ids.push_back(each.id);
  }
  const std::string near = closest(id, ids), all = "list the cases with `halfscope zoo list`";
  throw usage_error("unknown zoo case '" + std::string(id) + "'",
                    near.empty() ? all : "did you mean " + near + "? Otherwise " + all)
      .about({"model", "network", "data"});
}

std::vector<StandIn> stand_ins() {
  return {
      {"F24",
       "judged by the training loss; an evaluation with the infinite statistics is not judged"},
      {"F26",
       "a control only: the loss scaler follows current PyTorch, which stops growing the scale at "
       "the largest finite number"},
      {"F36",
       "only matrix products read scaled operands, so the weights are the diagonal of a matrix"},
      {"F38",
       "HalfScope's fp8 scales are guarded against zeros, so the network quantizes its own values, "
       "and fp16 flushes its floor of 1e-12 to zero"},
      {"F41",
       "HalfScope derives the backward pass from the forward pass, so both products are in the "
       "forward pass"},
      {"F46", "a control only: HalfScope always keeps partial sums in fp32, never in bf16"},
  };
}

std::vector<Absence> absences() {
  return {
      {"F32", "no backend has a faulty kernel that returns NaN"},
      {"F47",
       "train --unscale-only shows it in any network, but all lanes share that setting, the healthy "
       "one too"},
      {"F51", "no backend has a faulty kernel that returns zeros"},
      {"F52", "it was reported but never explained"},
  };
}

}  // namespace halfscope::zoo
