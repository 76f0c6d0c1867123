// SPDX-License-Identifier: MIT
// Writes and reads ONNX files for tests of commands.
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

inline ::onnx::GraphProto read_network(const Bench& bench, const std::string& name) {
  std::ifstream file(bench / name, std::ios::binary);
  ::onnx::ModelProto model;
  EXPECT_TRUE(model.ParseFromIstream(&file)) << name;
  return model.graph();
}

}  // namespace halfscope::test
