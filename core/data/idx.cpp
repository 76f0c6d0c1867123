// SPDX-License-Identifier: MIT
// IDX reader on zlib's gz functions, which also read plain files, and the MNIST loader built on it.
// Memory grows only as bytes arrive, because the sizes in a header may be wrong.
#include "core/data/idx.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <system_error>
#include <utility>

#include "core/data/dataset.h"
#include "core/data/gz_input.h"
#include "core/error.h"

namespace halfscope {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kUnsignedByteMagic = 0x0800;  // + number of dimensions
constexpr uint64_t kMaxBytes = uint64_t{1} << 40;
constexpr const char* kGetAgain = GzInput::kGetAgain;

std::string hex(uint32_t value) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%08x", value);
  return text;
}

std::string in_bytes(uint64_t count) {
  return std::to_string(count) + (count == 1 ? " byte" : " bytes");
}

uint32_t big_endian(const uint8_t* bytes) noexcept {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

/// Returns the first existing file among the usual spellings of its name.
fs::path find_file(const fs::path& folder, const std::string& stem, const std::string& rank) {
  std::string looked_for;
  for (const std::string& name : {stem + "-" + rank, stem + "-" + rank + ".gz", stem + "." + rank,
                                  stem + "." + rank + ".gz"}) {
    std::error_code ignored;
    if (fs::exists(folder / name, ignored)) return folder / name;
    looked_for += (looked_for.empty() ? "" : ", ") + name;
  }
  throw Error(
      "folder '" + folder.string() + "' has no " + stem + " file of MNIST; looked for " +
          looked_for,
      "put the four MNIST files train-images, train-labels, t10k-images and t10k-labels into the "
      "folder, gzipped or not");
}

Split load_split(const fs::path& folder, const std::string& name, Shape& image_shape) {
  const fs::path images_file = find_file(folder, name + "-images", "idx3-ubyte");
  const fs::path labels_file = find_file(folder, name + "-labels", "idx1-ubyte");
  IdxArray images = read_idx(images_file, 3);
  const IdxArray labels = read_idx(labels_file, 1);
  if (images.shape[0] != labels.shape[0]) {
    throw Error("'" + images_file.string() + "' has " + std::to_string(images.shape[0]) +
                    " images, but '" + labels_file.string() + "' has " +
                    std::to_string(labels.shape[0]) + " labels",
                "use two files of the same data set");
  }
  const Shape shape = {1, images.shape[1], images.shape[2]};
  if (!image_shape.empty() && shape != image_shape) {
    throw Error("'" + images_file.string() + "' has images of shape " + to_string(shape) +
                    ", but the training images have shape " + to_string(image_shape),
                "use four files of the same data set");
  }
  image_shape = shape;
  const auto bad = std::find_if(labels.bytes.begin(), labels.bytes.end(),
                                [](uint8_t label) { return label > 9; });
  if (bad != labels.bytes.end()) {
    throw Error(labels_file.string() + ": label " + std::to_string(bad - labels.bytes.begin()) +
                    " is " + std::to_string(*bad) + ", expected 0 to 9",
                "use a data set with ten classes");
  }
  return {.pixels = std::move(images.bytes),
          .labels = std::vector<int32_t>(labels.bytes.begin(), labels.bytes.end())};
}

}  // namespace

IdxArray read_idx(const fs::path& file, int dimensions) {
  const std::string name = file.string();
  std::error_code ignored;
  if (fs::is_directory(file, ignored)) {
    throw Error("cannot read '" + name + "': it is a folder", "name the IDX file itself");
  }
  GzInput input(file);

  std::vector<uint8_t> header(4 + 4 * static_cast<size_t>(dimensions));
  const size_t header_read = input.read(header.data(), header.size());
  const uint32_t expected_magic = kUnsignedByteMagic + static_cast<uint32_t>(dimensions);
  if (header_read >= 4 && big_endian(header.data()) != expected_magic) {
    throw usage_error(name + ": magic number " + hex(big_endian(header.data())) + ", expected " +
                          hex(expected_magic) + " (IDX, unsigned bytes, " +
                          std::to_string(dimensions) +
                          (dimensions == 1 ? " dimension)" : " dimensions)"),
                      "check that this is an IDX file and that no files are swapped: images have 3 "
                      "dimensions, labels 1");
  }
  if (header_read < header.size()) {
    throw Error(name + ": truncated: the file has " + in_bytes(header_read) +
                    ", but its header alone needs " + std::to_string(header.size()),
                kGetAgain);
  }

  IdxArray array;
  uint64_t size = 1;
  for (int i = 0; i < dimensions; ++i) {
    const uint32_t extent = big_endian(header.data() + 4 + 4 * i);
    array.shape.push_back(extent);
    // Divide before multiplying: 2^40 * 2^32 does not fit in 64 bits.
    size = extent != 0 && size > kMaxBytes / extent ? kMaxBytes + 1 : size * extent;
    if (extent == 0 || size > kMaxBytes) {
      throw Error(name + ": in the header, dimension " + std::to_string(i + 1) + " of " +
                      std::to_string(dimensions) + " is " + std::to_string(extent) +
                      ", expected at least 1 and at most 2^40 values in total",
                  kGetAgain);
    }
  }

  constexpr uint64_t kChunk = uint64_t{1} << 20;
  while (array.bytes.size() < size) {
    const size_t before = array.bytes.size();
    const size_t wanted = static_cast<size_t>(std::min(size - before, kChunk));
    array.bytes.resize(before + wanted);
    const size_t got = input.read(array.bytes.data() + before, wanted);
    if (got < wanted) {
      throw Error(name + ": truncated: " + in_bytes(before + got) + " of data, but the header " +
                      to_string(array.shape) + " declares " + std::to_string(size),
                  kGetAgain);
    }
  }
  uint8_t extra = 0;  // reading past the end also makes zlib check the gzip checksum
  if (input.read(&extra, 1) != 0) {
    throw Error(name + ": more data than the " + in_bytes(size) + " that the header " +
                    to_string(array.shape) + " declares",
                kGetAgain);
  }
  return array;
}

Dataset load_mnist(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) {
    throw Error((fs::exists(folder, ignored) ? "'" + folder.string() + "' is not a folder"
                                             : "folder not found: '" + folder.string() + "'") +
                    "; it should contain train-images-idx3-ubyte(.gz), "
                    "train-labels-idx1-ubyte(.gz), t10k-images-idx3-ubyte(.gz) and "
                    "t10k-labels-idx1-ubyte(.gz)",
                "use the folder with the four MNIST files, or the embedded data set 'digits'");
  }
  Dataset dataset{.name = "mnist", .sample_shape = {}, .classes = 10, .train = {}, .test = {}};
  dataset.train = load_split(folder, "train", dataset.sample_shape);
  dataset.test = load_split(folder, "t10k", dataset.sample_shape);
  return dataset;
}

}  // namespace halfscope
