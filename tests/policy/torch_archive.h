// SPDX-License-Identifier: MIT
// Networks that PyTorch exported, and their dtypes under its autocast: the output of
// tests/oracle/torch_dtypes.py. HALFSCOPE_TORCH_DTYPES names a folder with fresh files; by default
// the committed ones are read.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/data/npz.h"
#include "core/models/loss.h"
#include "core/onnx/import.h"
#include "tests/onnx/zip_members.h"

namespace halfscope::test {

using Json = nlohmann::json;

struct Archive {
  std::map<std::string, std::vector<uint8_t>> members;
  Json dtypes;
};

inline const Archive& archive() {
  static const Archive all = [] {
    Archive result;
    if (const char* folder = std::getenv("HALFSCOPE_TORCH_DTYPES")) {
      for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        result.members[entry.path().filename().string()] = read_file(entry.path().string());
      }
    } else {
      const std::string file = HALFSCOPE_SOURCE_DIR "/tests/policy/files/torch_dtypes.zip";
      result.members = zip_members(file);
    }
    result.dtypes = Json::parse(result.members.at("dtypes.json"));
    return result;
  }();
  return all;
}

/// Returns a network of the archive, by the name of its case, with its loss.
inline Model network_of(const std::string& name) {
  Model model = parse_onnx(archive().members.at(name + ".onnx"), name, ".").model;
  add_loss(model, parse_loss(archive().dtypes["cases"][name].at("loss").get<std::string>()));
  return model;
}

}  // namespace halfscope::test
