// SPDX-License-Identifier: MIT
// libFuzzer target: an IDX file, gzipped or not, is read or refused with an Error. The first byte
// chooses the number of dimensions.
#include <cstdint>
#include <cstdlib>

#include "core/data/idx.h"
#include "core/error.h"
#include "tests/fuzz/scratch.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace halfscope;
  if (size == 0) return 0;
  try {
    const IdxArray array =
        read_idx(fuzz::scratch_file("fuzz.idx", {data + 1, size - 1}), data[0] % 4 + 1);
    if (element_count(array.shape) != static_cast<int64_t>(array.bytes.size())) std::abort();
  } catch (const Error&) {  // refused, as it may be
  }
  return 0;
}
