// SPDX-License-Identifier: MIT
// libFuzzer target: text as the twin.json of a folder with the files of a twin. What is accepted
// names only files in the folder.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "cli/tasks/twin_folder.h"
#include "core/error.h"
#include "tests/fuzz/scratch.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace halfscope;
  namespace fs = std::filesystem;
  fuzz::scratch_file("twin.json", {data, size});
  static const fs::path files[] = {fuzz::scratch_file("model.onnx", {}),
                                   fuzz::scratch_file("data.npz", {})};
  try {
    const TwinFolder twin = read_twin(fuzz::scratch_folder().string());
    for (const auto& [flag, value] : twin.settings) {
      if (flag != "--model" && flag != "--data") continue;
      if (fs::canonical(value).parent_path() != fs::canonical(fuzz::scratch_folder())) std::abort();
    }
  } catch (const Error&) {  // refused, as it may be
  }
  return 0;
}
