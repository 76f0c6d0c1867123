// SPDX-License-Identifier: MIT
// The stations of one lane of the microscope, without a comparison with its twin.
#pragma once

#include <vector>

#include "core/lab/microscope.h"

namespace halfscope::lab {

/// Returns the station's bin, bits and kind of loss, from its exact and its stored value.
void describe_rounding(Station& station);

/// Returns the stations; the step must have been watched. `sample` counts within the batch.
std::vector<Station> lane_stations(const WatchedStep& step, const MicroscopePlace& place,
                                   int64_t sample);

/// Returns the sample whose product is the largest in the weight's gradient.
int64_t largest_sample(const WatchedStep& step, const MicroscopePlace& place);

/// Returns one row of a value of the batch, as that sample's rank computed it.
struct SampleRow {
  int64_t rank = 0;
  std::vector<float> pixels{}, inputs{}, weights{};
};
SampleRow sample_row(const WatchedStep& step, const MicroscopePlace& place, int64_t sample);

}  // namespace halfscope::lab
