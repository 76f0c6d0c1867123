// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <fmt/format.h>
#include <chrono>
#include "core/lab/microscope.h"
#include "emulation/backends.h"
#include "emulation/threads.h"
namespace halfscope::lab {
TEST(Microscope, Dump) {
  for (int i = 0; i < 2; ++i) {
  const OneThread one;
  const auto t = std::chrono::steady_clock::now();
  SmallTraining s; MicroscopePlace p;
  if (getenv("W")) s.loss_weight = atoi(getenv("W"));
  if (getenv("SC")) s.scaler = parse_loss_scale(getenv("SC"));
  if (getenv("F")) s.format = parse_format(getenv("F")).value();
  if (getenv("LR")) s.learning_rate = atof(getenv("LR"));
  if (getenv("STEPS")) s.steps = atoi(getenv("STEPS"));
  if (getenv("NOMASTER")) s.master_weights = false;
  if (getenv("SGD")) s.adam = false;
  if (getenv("SR")) s.rounding = RoundingMode::stochastic;
  if (getenv("RANKS")) s.ranks = atoi(getenv("RANKS"));
  if (getenv("RED")) s.reduction = parse_reduction(getenv("RED"));
  if (getenv("B")) s.blocks = parse_block_format(getenv("B"));
  if (getenv("ACC")) s.accumulation = parse_accumulation(getenv("ACC")).value();
  if (getenv("STEP")) p.step = atoi(getenv("STEP"));
  if (getenv("LAYER")) p.layer = atoi(getenv("LAYER"));
  if (getenv("ROW")) p.row = atoi(getenv("ROW"));
  if (getenv("COL")) p.column = atoi(getenv("COL"));
  const Microscope m = look(s, p, emulation_backend());
  fmt::print("{} ms problem '{}'\n", std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - t).count(), m.problem);
  if (i == 0) continue;
  for (size_t k = 0; k < m.lane.size(); k += 10) fmt::print("{}: {:.4f}{} {:.4f}  ", k, m.lane[k].loss, m.lane[k].skipped ? "*" : "", m.twin[k].loss);
  fmt::print("\nsample {} rank {} label {}\n", m.sample, m.rank, m.label);
  for (const Station& st : m.stations) fmt::print("{:18} {:22} {:7} exact {:.9g} stored {:.9g} {} below {:.7g} above {:.7g} {}|{} {} twin {:.7g}\n   {}\n", st.key, st.name, format_name(st.format), st.exact, st.stored, st.stored == st.recomputed ? "ok" : "DIFFERS", st.below, st.above, st.kept, st.dropped, station_loss_name(st.loss), st.twin, st.text);
  }
}
}
