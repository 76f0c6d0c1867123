// SPDX-License-Identifier: MIT
// Sums whose running total has as few bits as their terms.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "bench/validation/networks.h"
#include "bench/validation/rows.h"
#include "core/models/zoo/net.h"
#include "core/numeric/elementary/elementary.h"
#include "core/numeric/formats/round.h"
#include "core/numeric/sums/accumulate.h"

namespace halfscope::validation {
namespace {

using zoo::Net;

double sum_in(const FloatFormat& format, std::span<const float> terms) {
  const SumSpec spec{.accumulation = Accumulation::format, .write = format, .read = format};
  return sum_of_values(spec, terms);
}

std::string sum_of_ones(const FloatFormat& format, size_t count) {
  return long_number(sum_in(format, std::vector<float>(count, 1.0f)));
}

void add_ones(std::vector<Row>& rows) {
  rows.push_back(in_zoo("F20", exact("1-norm of 5120 ones in bf16", issue("pytorch/pytorch", 92164),
                                     "256", sum_of_ones(kBf16, 5120))));
  rows.push_back(in_zoo("F20", exact("sum of 4096 ones in fp16", pull("huggingface/candle", 3718),
                                     "2048", sum_of_ones(kFp16, 4096))));
  rows.push_back(exact("sum of 8192 ones in fp16", pull("sonos/tract", 2587), "2048",
                       sum_of_ones(kFp16, 8192)));
}

/// A softmax over equal logits: the cases F8 and F8h of the zoo.
struct Softmax {
  double probability = 0.0, sum = 0.0;
};

Softmax softmax_of_equals(const std::string& id, const std::string& plan, size_t count) {
  const std::vector<float> p = output_of(zoo::find_case(id).make(), plan);
  Softmax result{.probability = static_cast<double>(p[0])};
  for (size_t i = 0; i < count; ++i) result.sum += static_cast<double>(p[i]);
  return result;
}

void add_softmax(std::vector<Row>& rows) {
  const auto share = [](const Softmax& softmax) { return long_number(1.0 / softmax.probability); };
  rows.push_back(in_zoo(
      "F8", exact("each probability of a softmax over 512 equal logits, summed in bf16",
                  pull("pytorch/executorch", 20090), "1/256 instead of 1/512",
                  fmt::format("1/{} instead of 1/{}",
                              share(softmax_of_equals("F8", "naive_bfloat16", 512)),
                              share(softmax_of_equals("F8", "bfloat16", 512))),
                  "Case F8 of the [zoo](zoo.md); `bfloat16` sums in fp32 and gives 1/512.")));
  const Softmax half = softmax_of_equals("F8h", "naive_float16", 4096);
  rows.push_back(in_zoo(
      "F8",
      exact("each probability of a softmax over 4096 equal logits, summed in fp16, and "
            "the sum of the row",
            pull("huggingface/candle", 3717), "1/2048, 2",
            fmt::format("1/{}, {}", share(half), long_number(half.sum)), "Case F8h of the zoo.")));
}

/// A global average over one image of `height` x `width` pixels.
double average_pool(int64_t height, int64_t width, const std::vector<float>& pixels,
                    const std::string& plan) {
  Net n(9);
  const ValueId x = n.in({1, 1, height, width}, pixels);
  return static_cast<double>(output_of(n.infer(n.op("GlobalAveragePool", {x})), plan)[0]);
}

void add_pooling(std::vector<Row>& rows) {
  rows.push_back(in_zoo(
      "F9", exact("global average of 64 x 64 ones in fp16", pull("huggingface/candle", 3719), "0.5",
                  long_number(
                      average_pool(64, 64, std::vector<float>(64 * 64, 1.0f), "naive_float16")))));
  struct Image {
    int64_t height, width;
  };
  std::string text, right;
  zoo::Draw draw(2109);
  for (const Image& image : {Image{255, 255}, Image{255, 63}, Image{128, 64}}) {
    const std::vector<float> pixels = draw.uniforms(image.height * image.width, 0.0, 1.0);
    const double sum = average_pool(image.height, image.width, pixels, "naive_float16");
    text += fmt::format("{}{:.6g}", text.empty() ? "" : ", ", sum);
    right += fmt::format("{}{:.3f}", right.empty() ? "" : ", ",
                         average_pool(image.height, image.width, pixels, "float16"));
  }
  rows.push_back(in_zoo(
      "F9",
      exact("average of 255 x 255, 255 x 63 and 128 x 64 numbers in [0, 1), in fp16",
            issue("ROCm/MIOpen", 2109), "0.0314941, 0.127441, 0.25", text,
            fmt::format(
                "All three sums stop at 2048, whatever the numbers are. The right averages are "
                "about 0.5: {} with a sum in fp32.",
                right))));
}

/// The thread's example: 100,000 indices below 8, and the gradient of 0.01 times their rows.
void add_embedding(std::vector<Row>& rows) {
  const auto gradients = [](const std::string& plan) {
    Net n(17703);
    std::vector<int32_t> indices;
    for (int i = 0; i < 100000; ++i) indices.push_back(n.draw.below(8));
    const ValueId table = n.variable({8, 1}, std::vector<float>(8, 0.0f));
    const ValueId picked = n.op("Gather", {table, n.index_in({100, 1000}, indices)});
    const ValueId scaled = n.mul(picked, n.constant(0.01));
    const Training training =
        train(n.train_loss(n.sum(scaled, {0, 1, 2}, false), "sgd:lr=1", 1), plan);
    std::vector<float> moved = training.end.begin()->second.data;
    for (float& x : moved) x = -x;  // the step is minus the gradient
    return moved;
  };
  const std::vector<float> half = gradients("scatter_float16 scale=none");
  const std::vector<float> full = gradients("float32");
  std::string text;
  for (const float x : half) {
    text += fmt::format("{}{}", text.empty() ? "" : " ", static_cast<double>(x));
  }
  rows.push_back(
      in_zoo("F21", exact("gradient of an embedding of 8 rows and 100,000 indices in fp16",
                          issue("apache/mxnet", 17703), "32 32 32 32 32 32 32 32", text)));
  const auto [low, high] = std::minmax_element(full.begin(), full.end());
  Row row{
      .what = "the same in fp32: smallest and largest",
      .source = issue("apache/mxnet", 17703),
      .published = "124.7, 127.5",
      .ours = fmt::format("{:.1f}, {:.1f}", static_cast<double>(*low), static_cast<double>(*high)),
      .accepted = "122 to 128",
      .pass = *low >= 122.0f && *high <= 128.0f,
      .note =
          "Other indices. The thread's gradients start at 1, ours at 0, so it expects about "
          "126 and we expect 125.",
      .zoo = "F21"};
  rows.push_back(row);
}

/// Mean relative error of the fp16 sum of a softmax over normal logits.
double softmax_sum_error(size_t length, double deviation, zoo::Draw& draw) {
  constexpr int kRows = 64;
  const SumSpec wide{.accumulation = Accumulation::fp32};
  double mean = 0.0;
  for (int row = 0; row < kRows; ++row) {
    std::vector<float> x = draw.normals(static_cast<int64_t>(length), deviation);
    for (float& value : x) value = round_to_format(value, kFp16).value;
    const float top = *std::max_element(x.begin(), x.end());
    for (float& value : x) {
      const double shifted = round_to_format(static_cast<double>(value - top), kFp16).value;
      value = static_cast<float>(round_to_format(elementary::exp(shifted), kFp16).value);
    }
    const double right = sum_of_values(wide, x);
    mean += std::fabs(sum_in(kFp16, x) - right) / right / kRows;
  }
  return mean;
}

void add_logits(std::vector<Row>& rows) {
  struct Published {
    size_t length;
    std::array<double, 3> errors;  ///< at deviations 0.5, 1, 2
  };
  const Published table[] = {{1024, {0.002, 0.012, 0.020}},
                             {2048, {0.021, 0.038, 0.046}},
                             {4096, {0.154, 0.101, 0.090}},
                             {8192, {0.382, 0.283, 0.142}}};
  zoo::Draw draw(2586);
  for (const Published& each : table) {
    Row row{.what = fmt::format("error of the fp16 sum of a softmax over {} normal logits of "
                                "deviation 0.5, 1, 2",
                                each.length),
            .source = pull("sonos/tract", 2586),
            .published = "",
            .ours = "",
            .accepted = "0.5 to 2 times",
            .pass = true};
    size_t i = 0;
    for (const double deviation : {0.5, 1.0, 2.0}) {
      const double published = each.errors[i++];
      const double ours = softmax_sum_error(each.length, deviation, draw);
      row.published +=
          (row.published.empty() ? "" : ", ") + fmt::format("{:.1f}%", 100 * published);
      row.ours += (row.ours.empty() ? "" : ", ") + fmt::format("{:.1f}%", 100 * ours);
      row.pass = row.pass && ours >= 0.5 * published && ours <= 2.0 * published;
    }
    rows.push_back(row);
  }
}

}  // namespace

Table sums() {
  Table table{.letter = 'B',
              .title = "Sums in few bits",
              .introduction =
                  "Sums that add term by term and round to 16 bits each time. They "
                  "stop growing long before the last term."};
  add_ones(table.rows);
  add_softmax(table.rows);
  add_pooling(table.rows);
  add_embedding(table.rows);
  add_logits(table.rows);
  return table;
}

}  // namespace halfscope::validation
