// SPDX-License-Identifier: MIT
// libFuzzer target: text as a gate, which is then checked against a small run. Results are written
// in every form.
#include <cstdint>
#include <string_view>

#include "analysis/gate/gate.h"
#include "core/error.h"
#include "tests/analysis/sample_run.h"

namespace {

/// Returns a run with every kind of row that a gate looks at.
const halfscope::RunView& run() {
  using namespace halfscope;
  static const RunView view = [] {
    const RunInfo info = test::sample_info();
    RunView made(info, RunStatus::complete);
    for (int lane = 0; lane < 2; ++lane) {
      for (int64_t step = 0; step < 3; ++step) {
        made.add_step(lane, test::sample_step(lane, step));
        for (const SiteInfo& site : info.lanes[static_cast<size_t>(lane)].sites) {
          made.add_window(lane, site.order, {step, 1, test::sample_stats(lane, step, site.order)});
          if (test::has_errors(lane, step, site.order)) {
            made.add_error(lane, test::sample_error(lane, step, site.order));
          }
        }
      }
    }
    return made;
  }();
  return view;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace halfscope;
  try {
    const Gate gate = parse_gate({reinterpret_cast<const char*>(data), size}, "gate.json");
    GateResult result = check_gate(gate, run(), {});
    compare_with_baseline(result, run(), {});
    gate_text(result);
    gate_junit(result);
    gate_sarif(result);
    with_gate("{}", result);
  } catch (const Error&) {  // refused, as it may be
  }
  return 0;
}
