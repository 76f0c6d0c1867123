// SPDX-License-Identifier: MIT
// The IDX reader and the MNIST loader: every fault in a file has a specific message, and the real
// data set, if available, is read as documented.
#include "core/data/idx.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "core/data/dataset.h"
#include "test_files.h"

namespace halfscope {
namespace {

using test::Bytes;
using test::expect_error;
using test::TemporaryFolder;
using test::write_bytes;

/// An IDX file of the given sizes, values 0, 1, 2 ... modulo 10.
Bytes idx(const std::vector<uint32_t>& sizes, size_t values) {
  Bytes bytes = {0, 0, 8, static_cast<uint8_t>(sizes.size())};
  for (const uint32_t size : sizes) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(uint8_t(size >> shift));
  }
  for (size_t i = 0; i < values; ++i) bytes.push_back(static_cast<uint8_t>(i % 10));
  return bytes;
}

Bytes gzipped(const Bytes& bytes) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY);
  Bytes packed(deflateBound(&stream, bytes.size()));
  stream.next_in = const_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = packed.data();
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

Bytes first(const Bytes& bytes, size_t count) {
  return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count)};
}

/// Four small files that fit together: 3 training and 2 test images of 2x2 pixels.
void write_mnist(const TemporaryFolder& folder) {
  write_bytes(folder / "train-images-idx3-ubyte", idx({3, 2, 2}, 12));
  write_bytes(folder / "train-labels-idx1-ubyte.gz", gzipped(idx({3}, 3)));
  write_bytes(folder / "t10k-images-idx3-ubyte.gz", gzipped(idx({2, 2, 2}, 8)));
  write_bytes(folder / "t10k-labels.idx1-ubyte", idx({2}, 2));
}

class IdxFile : public testing::Test {
 protected:
  void expect(const Bytes& bytes, ErrorKind kind, std::initializer_list<std::string_view> parts,
              int dimensions = 3) {
    write_bytes(file_, bytes);
    expect_error([&] { read_idx(file_, dimensions); }, kind, {file_.string()});
    expect_error([&] { read_idx(file_, dimensions); }, kind, parts);
  }

  TemporaryFolder folder_;
  std::filesystem::path file_ = folder_ / "images";
};

TEST_F(IdxFile, PlainAndGzippedAreTheSame) {
  for (const Bytes& bytes : {idx({2, 2, 3}, 12), gzipped(idx({2, 2, 3}, 12))}) {
    write_bytes(file_, bytes);
    const IdxArray array = read_idx(file_, 3);
    EXPECT_EQ(array.shape, (Shape{2, 2, 3}));
    EXPECT_EQ(array.bytes, (Bytes{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1}));
  }
}

TEST_F(IdxFile, LargerThanOneReadIsComplete) {
  write_bytes(file_, gzipped(idx({40'000, 30, 30}, 36'000'000)));
  const IdxArray array = read_idx(file_, 3);
  ASSERT_EQ(array.bytes.size(), 36'000'000u);
  EXPECT_EQ(array.bytes.back(), 9);
}

TEST_F(IdxFile, WrongMagic) {
  expect(idx({4}, 4), ErrorKind::usage, {"0x00000801", "expected 0x00000803"});
  expect(idx({2, 2, 2}, 8), ErrorKind::usage, {"0x00000803", "expected 0x00000801"}, 1);
  expect({'P', 'K', 3, 4, 0, 0}, ErrorKind::usage, {"0x504b0304"});
  Bytes floats = idx({1, 1, 1}, 4);
  floats[2] = 0x0D;
  expect(floats, ErrorKind::usage, {"0x00000d03"});
}

TEST_F(IdxFile, TruncatedAnywhere) {
  const Bytes whole = idx({2, 2, 3}, 12);
  for (size_t size = 0; size < 16; ++size) {
    expect(first(whole, size), ErrorKind::runtime, {"truncated", "header alone needs 16"});
  }
  for (size_t size = 16; size < whole.size(); ++size) {
    expect(first(whole, size), ErrorKind::runtime,
           {"truncated", std::to_string(size - 16) + " byte", "declares 12", "[2, 2, 3]"});
  }
}

TEST_F(IdxFile, TruncatedGzipAnywhere) {
  const Bytes whole = gzipped(idx({20, 2, 3}, 120));
  for (size_t size = 0; size < whole.size(); ++size) {
    write_bytes(file_, first(whole, size));
    EXPECT_THROW(read_idx(file_, 3), Error) << size;
  }
  expect(first(whole, whole.size() - 12), ErrorKind::runtime, {"gzip stream is truncated"});
  expect(first(whole, whole.size() - 3), ErrorKind::runtime, {"gzip stream is truncated"});
}

TEST_F(IdxFile, DamagedGzip) {
  Bytes bytes = gzipped(idx({20, 2, 3}, 120));
  bytes[bytes.size() - 6] ^= 1;  // in the checksum
  expect(bytes, ErrorKind::runtime, {"the gzip stream is damaged", "incorrect data check"});
}

TEST_F(IdxFile, DataAfterTheEnd) {
  expect(idx({2, 2, 3}, 13), ErrorKind::runtime, {"more data than the 12 bytes"});
  expect(gzipped(idx({2, 2, 3}, 13)), ErrorKind::runtime, {"more data than the 12 bytes"});
}

TEST_F(IdxFile, HostileSizesTakeNoMemory) {
  constexpr uint32_t kHuge = 0xFFFFFFFF;
  expect(idx({kHuge, kHuge, kHuge}, 12), ErrorKind::runtime, {"4294967295", "2^40"});
  expect(idx({1u << 20, 1u << 19, 2}, 12), ErrorKind::runtime, {"truncated: 12 bytes"});
  expect(idx({0, 2, 2}, 0), ErrorKind::runtime, {"dimension 1 of 3 is 0"});
  expect(idx({2, 0, 2}, 0), ErrorKind::runtime, {"dimension 2 of 3 is 0"});
}

TEST_F(IdxFile, MissingOrFolder) {
  expect_error([&] { read_idx(folder_ / "none", 3); }, ErrorKind::runtime,
               {"none", "file not found"});
  expect_error([&] { read_idx(folder_.path(), 3); }, ErrorKind::runtime, {"is a folder"});
}

TEST(Mnist, AllSpellingsOfTheNamesWork) {
  const TemporaryFolder folder;
  write_mnist(folder);
  const Dataset dataset = load_dataset("mnist:" + folder.path().string());
  EXPECT_EQ(dataset.name, "mnist");
  EXPECT_EQ(dataset.sample_shape, (Shape{1, 2, 2}));
  EXPECT_EQ(dataset.classes, 10);
  EXPECT_EQ(dataset.train.labels, (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(dataset.test.labels, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(dataset.train.pixels.size(), 12u);
  EXPECT_EQ(dataset.test.pixels, (Bytes{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(Mnist, MissingFolderOrFileSaysWhatWasLookedFor) {
  const TemporaryFolder folder;
  expect_error([&] { load_mnist(folder / "none"); }, ErrorKind::runtime,
               {"none'", "train-images-idx3-ubyte", "t10k-labels-idx1-ubyte"});
  expect_error([&] { load_mnist(folder.path()); }, ErrorKind::runtime,
               {"train-images-idx3-ubyte, train-images-idx3-ubyte.gz", "train-images.idx3-ubyte"});
  write_mnist(folder);
  expect_error([&] { load_mnist(folder / "train-images-idx3-ubyte"); }, ErrorKind::runtime,
               {"is not a folder"});
  std::filesystem::remove(folder / "t10k-labels.idx1-ubyte");
  expect_error([&] { load_mnist(folder.path()); }, ErrorKind::runtime, {"t10k-labels-idx1-ubyte"});
}

TEST(Mnist, FilesThatDoNotFitTogether) {
  const TemporaryFolder folder;
  write_mnist(folder);
  write_bytes(folder / "train-labels-idx1-ubyte.gz", gzipped(idx({4}, 4)));
  expect_error(
      [&] { load_mnist(folder.path()); }, ErrorKind::runtime,
      {"train-images-idx3-ubyte' has 3 images", "train-labels-idx1-ubyte.gz' has 4 labels"});

  write_mnist(folder);
  write_bytes(folder / "t10k-images-idx3-ubyte.gz", idx({2, 2, 3}, 12));
  expect_error([&] { load_mnist(folder.path()); }, ErrorKind::runtime,
               {"t10k-images-idx3-ubyte.gz", "[1, 2, 3]", "[1, 2, 2]"});

  write_mnist(folder);
  Bytes labels = idx({3}, 3);
  labels.back() = 10;
  write_bytes(folder / "train-labels-idx1-ubyte.gz", labels);
  expect_error([&] { load_mnist(folder.path()); }, ErrorKind::runtime,
               {"train-labels-idx1-ubyte.gz", "label 2 is 10", "0 to 9"});
}

TEST(Mnist, RealData) {
  const std::filesystem::path folder = test::outside_data("mnist");
  if (!std::filesystem::exists(folder)) {
    GTEST_SKIP() << folder << " is not there; set HALFSCOPE_TEST_DATA to the folder above it";
  }
  const Dataset dataset = load_mnist(folder);
  EXPECT_EQ(dataset.sample_shape, (Shape{1, 28, 28}));
  ASSERT_EQ(dataset.train.size(), 60'000);
  ASSERT_EQ(dataset.test.size(), 10'000);
  const auto first_ten = [](const Split& split) {
    return std::vector<int32_t>(split.labels.begin(), split.labels.begin() + 10);
  };
  EXPECT_EQ(first_ten(dataset.train), (std::vector<int32_t>{5, 0, 4, 1, 9, 2, 1, 3, 1, 4}));
  EXPECT_EQ(first_ten(dataset.test), (std::vector<int32_t>{7, 2, 1, 0, 4, 1, 4, 9, 5, 9}));
  std::array<int, 10> counts{};
  for (const int32_t label : dataset.train.labels) ++counts[static_cast<size_t>(label)];
  EXPECT_EQ(counts,
            (std::array<int, 10>{5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949}));
  uint64_t sum = 0;
  for (const uint8_t pixel : dataset.train.pixels) sum += pixel;
  EXPECT_NEAR(static_cast<double>(sum) / 255.0 / (60'000.0 * 784.0), 0.13066, 0.00001);
}

}  // namespace
}  // namespace halfscope
