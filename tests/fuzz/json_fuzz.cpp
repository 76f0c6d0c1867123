// SPDX-License-Identifier: MIT
// libFuzzer target: JSON that users write. The first byte chooses a plan, the edit of a plan, or a
// configuration file of `train` or `run`. It is read or refused with an Error; what was read is
// written and gives the same again.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "cli/args/config_file.h"
#include "cli/args/setting.h"
#include "core/error.h"
#include "core/policy/policy.h"
#include "tests/fuzz/scratch.h"

namespace {

using namespace halfscope;  // NOLINT: one target

void require_same(const std::string& first, const std::string& second) {
  if (first == second) return;
  std::fprintf(stderr, "%s\nbecame\n%s\n", first.c_str(), second.c_str());
  std::abort();
}

void read_plan(std::string_view text) {
  const std::string written = plan_to_json(plan_from_json(text));
  require_same(written, plan_to_json(plan_from_json(written)));
}

void read_edit(std::string_view text) {
  if (const auto edit = edit_from_json(text)) {
    const std::string written = edit_to_json(*edit);
    const auto again = edit_from_json(written);
    if (!again) std::abort();
    require_same(written, edit_to_json(*again));
  }
}

void read_configuration(Commands command, std::span<const uint8_t> bytes) {
  Settings settings;
  settings.command = command;
  settings.config = fuzz::scratch_file("config.json", bytes).string();
  config_command(settings.config);
  read_config(settings, {});
  if (settings.plans.empty()) config_json(settings).dump();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    switch (data[0] % 4) {
      case 0:
        read_plan(text);
        break;
      case 1:
        read_edit(text);
        break;
      case 2:
        read_configuration(kTrain, {data + 1, size - 1});
        break;
      default:
        read_configuration(kRun, {data + 1, size - 1});
        break;
    }
  } catch (const Error&) {  // refused, as it may be
  }
  return 0;
}
