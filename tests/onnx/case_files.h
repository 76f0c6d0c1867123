// SPDX-License-Identifier: MIT
// Archives of small models with what other programs compute from them: NAME.onnx, NAME.in0.npy,
// NAME.out0.npy and so on.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/data/npz.h"
#include "core/data/zip.h"

namespace halfscope::test {

struct NodeCase {
  bool comes_back = false;  ///< from an export as the same nodes
  std::vector<uint8_t> model;
  std::map<std::string, Tensor> arrays;  ///< "in0", "out0" ...

  std::vector<Tensor> list(const std::string& what) const {
    std::vector<Tensor> tensors;
    for (size_t i = 0; arrays.contains(what + std::to_string(i)); ++i)
      tensors.push_back(arrays.at(what + std::to_string(i)));
    return tensors;
  }
};

/// Returns the cases of an archive in tests/onnx/files, by name.
inline std::map<std::string, NodeCase> read_cases(const std::string& archive_name) {
  std::map<std::string, NodeCase> result;
  const std::string file = HALFSCOPE_SOURCE_DIR "/tests/onnx/files/" + archive_name;
  const ZipReader archive(read_file(file), file);
  for (const ZipMember& member : archive.members()) {
    const std::string name = member.name.substr(0, member.name.find('.'));
    std::vector<uint8_t> bytes(member.size);
    archive.open(member)->read(bytes);
    if (member.name.ends_with(".onnx")) {
      result[name].model = std::move(bytes);
    } else {
      MemorySource source(bytes);
      const std::string key = member.name.substr(name.size() + 1);
      result[name].arrays[key.substr(0, key.find('.'))] = read_npy_array(source, member.name);
    }
  }
  return result;
}

}  // namespace halfscope::test
