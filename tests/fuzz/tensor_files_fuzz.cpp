// SPDX-License-Identifier: MIT
// libFuzzer target: .npy, .npz and .safetensors readers accept a file or throw Error, whatever the
// bytes are. The first bytes choose the reader, as they do in the program.
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/data/npy.h"
#include "core/data/npz.h"
#include "core/data/safetensors.h"
#include "core/error.h"

namespace halfscope {
namespace {

void check(bool holds) {
  if (!holds) throw std::logic_error("a reader broke its promise");
}

void read(std::span<const uint8_t> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("\x93NUMPY")) {
    MemorySource source(bytes);
    const Tensor tensor = read_npy_array(source, "fuzz");
    check(element_count(tensor.shape) == static_cast<int64_t>(tensor.data.size()));
  } else if (text.starts_with("PK")) {
    for (const auto& [name, tensor] : parse_npz({bytes.begin(), bytes.end()}, "fuzz")) {
      check(element_count(tensor.shape) == static_cast<int64_t>(tensor.data.size()));
    }
  } else {
    uint64_t covered = 0;
    MemorySource source(bytes);
    for (const StoredArray& array : safetensors_arrays(source, "fuzz")) {
      check(array.offset <= bytes.size() && array.bytes() <= bytes.size() - array.offset);
      check(static_cast<uint64_t>(element_count(array.shape)) == array.count);
      std::vector<double> values(array.count);
      decode_values(bytes.subspan(array.offset, array.bytes()), array.type, false, values.data());
      covered += array.bytes();
      check(visible_name(array.name).size() >= array.name.size());
    }
    check(covered <= bytes.size());
  }
}

}  // namespace
}  // namespace halfscope

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    halfscope::read({data, size});
  } catch (const halfscope::Error&) {  // refused, as it may be
  }
  return 0;
}
