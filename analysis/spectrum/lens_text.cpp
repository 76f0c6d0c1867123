// SPDX-License-Identifier: MIT
#include "analysis/spectrum/lens_text.h"

#include <fmt/format.h>

#include "analysis/rules/text.h"
#include "core/numeric/scaling/block_format.h"

namespace halfscope {
namespace {

LossCount all_losses(const Spectrum& spectrum, std::span<const SpectrumChart> charts,
                     const Lens& lens) {
  LossCount all;
  for (const SpectrumChart chart : charts) all.add(total_loss(spectrum, chart, lens, 0.0));
  return all;
}

/// Returns the name of the block format with these elements and blocks.
std::string block_name(const Lens& lens) {
  for (const BlockFormat& each : {kMxfp8E4m3, kMxfp8E5m2, kMxfp6E3m2, kMxfp6E2m3, kMxfp4, kNvfp4}) {
    if (each.element == *lens.format && each.block_size == lens.block_size)
      return block_format_name(each);
  }
  return fmt::format("{} with a scale per {} values", format_name(*lens.format), lens.block_size);
}

}  // namespace

std::string lens_name(const Lens& lens) {
  if (!lens.format) return "as recorded";
  const std::string format = format_name(*lens.format);
  switch (lens.scale) {
    case LensScale::none:
      break;
    case LensScale::tensor:
      return format + " with a scale per tensor";
    case LensScale::block:
      return block_name(lens);
  }
  return format;
}

std::string lens_answer(const Spectrum& spectrum, std::span<const SpectrumChart> charts,
                        const Lens& lens) {
  const LossCount all = all_losses(spectrum, charts, lens);
  if (all.values == 0) return "No value was recorded here.";
  const WorstTensor worst = worst_tensor(spectrum, charts, lens, 0.0);
  if (!lens.format) {
    if (worst.layer < 0) return "No value shown here was lost in the formats of this run.";
    return fmt::format("{} of all non-zero values were lost in this run. {} lost most: {}.",
                       percent(all.share()), worst.name, percent(worst.lost.share()));
  }
  const std::string name = lens_name(lens);
  if (worst.layer < 0) return fmt::format("{} can represent every value of this run.", name);
  std::string text =
      fmt::format("{} would lose {} of all non-zero values. {} would lose most: {}.", name,
                  percent(all.share()), worst.name, percent(worst.lost.share()));
  if (lens.scale == LensScale::none) {
    const Lens scaled{.format = lens.format, .scale = LensScale::tensor};
    const WorstTensor rest = worst_tensor(spectrum, charts, scaled, 0.0);
    text += rest.layer < 0
                ? " A scale per tensor would save all of them."
                : fmt::format(" With a scale per tensor: {}, and at most {} in a tensor.",
                              percent(all_losses(spectrum, charts, scaled).share()),
                              percent(rest.lost.share()));
  }
  return text;
}

}  // namespace halfscope
