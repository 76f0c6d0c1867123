// SPDX-License-Identifier: MIT
// zoo_cure: what HalfScope finds to be the cause and the cure of every documented failure.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "analysis/rules/text.h"
#include "core/policy/policy.h"
#include "tests/zoo/cure.h"
#include "tests/zoo/files.h"

int main(int argc, char** argv) {
  using namespace halfscope;
  using namespace halfscope::zoo;
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("zoo_cure_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::vector<Case> cases = all_cases();
  const char* files = std::getenv("ZOO_FILES");
  if (files != nullptr) cases = file_cases(files);
  double seconds = 0;
  for (const Case& each : cases) {
    bool wanted = argc < 2;
    for (int i = 1; i < argc; ++i) wanted = wanted || each.id == argv[i];
    if (!each.fails || !wanted) continue;
    for (const std::string& plan : each.right) {
      const Cure cure = find_cure(each, plan, folder, {.trials = 200});
      seconds += cure.seconds;
      std::printf("%-5s %-34s %5.1f s ", each.id.c_str(), plan.c_str(), cure.seconds);
      if (!cure.proof) {
        std::printf("nothing: %s\n", cure.why_not.c_str());
        continue;
      }
      std::printf("%2zu trials %s: ", cure.proof->tried.size(),
                  cure.proof->holds ? "CURED" : "not cured");
      for (const Change& change : cure.proof->edit.changes)
        std::printf("[%s] ", change.name().c_str());
      if (!cure.proof->alternatives.empty()) std::printf(" | or ");
      for (const PlanEdit& edit : cure.proof->alternatives) {
        for (const Change& change : edit.changes) std::printf("[%s] ", change.name().c_str());
      }
      for (const Cause& c : cure.proof->causes)
        std::printf("\n        %s %.2f %s: %s", c.layer.c_str(), c.weight,
                    mechanism_name(c.mechanism), c.text.c_str());
      if (!cure.proof->holds) std::printf("\n        %s", cure.proof->text.c_str());
      std::printf("\n");
      std::fflush(stdout);
    }
  }
  std::printf("%.1f s\n", seconds);
}
