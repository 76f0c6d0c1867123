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
  const std::string near = closest(id, ids), all = "cases: " + comma_list(ids);
  throw usage_error("the zoo has no case \"" + std::string(id) + "\"",
                    near.empty() ? all : "did you mean " + near + "? " + all)
      .about({"model", "network", "data"});
}

std::vector<StandIn> stand_ins() {
  return {
      {"F24", "the loss of a training; what an evaluation with such statistics says is not judged"},
      {"F26",
       "the loss scaler follows current PyTorch, where growth ends at the largest finite number: a "
       "control"},
      {"F36", "only products read scaled operands: the weights are the diagonal of one"},
      {"F38",
       "scales of the fp8 plans are guarded against zeros: the network quantizes itself, and "
       "fp16 flushes its floor of 1e-12"},
      {"F41",
       "a network has one backward pass, made from its forward pass: both products stand in "
       "the forward pass"},
      {"F46", "partial sums are always fp32; HalfScope cannot store them in bf16"},
  };
}

std::vector<Absence> absences() {
  return {
      {"F32", "no backend has a kernel that returns NaN"},
      {"F47",
       "no setting unscales what was not scaled, and lanes share the settings of their training"},
      {"F51", "no backend has a kernel that returns zeros"},
      {"F52", "it was reported, but never explained"},
  };
}

}  // namespace halfscope::zoo
