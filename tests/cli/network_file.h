// SPDX-License-Identifier: MIT
// Writes ONNX files for tests of commands.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "tests/cli/program.h"
#include "tests/onnx/network_support.h"

namespace halfscope::test {

inline void write_network(const Bench& bench, const std::string& name, const FileBuilder& builder) {
  const std::vector<uint8_t> bytes = builder.bytes();
  std::ofstream(bench / name, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

}  // namespace halfscope::test
