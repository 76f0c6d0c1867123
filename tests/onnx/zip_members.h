// SPDX-License-Identifier: MIT
// Committed archives of networks and what frameworks said of them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/data/npy.h"
#include "core/data/zip.h"

namespace halfscope::test {

/// Returns the members of an archive, by name. Throws Error if it is damaged.
inline std::map<std::string, std::vector<uint8_t>> zip_members(const std::string& file) {
  std::map<std::string, std::vector<uint8_t>> members;
  const ZipReader reader(read_file(file), file);
  for (const ZipMember& member : reader.members()) {
    std::vector<uint8_t>& bytes = members[member.name];
    bytes.resize(member.size);
    reader.open(member)->read(bytes);
  }
  return members;
}

}  // namespace halfscope::test
