// SPDX-License-Identifier: MIT
// ZIP archives seen through read_npz: the variants that must work, and archives that are damaged
// or hostile, each with an Error and never with a crash or a large allocation.
#include "core/data/zip.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "core/data/npz.h"
#include "zip_builder.h"

namespace halfscope {
namespace {

using test::BuiltMember;
using test::Bytes;
using test::deflated;
using test::expect_error;
using test::TemporaryFolder;
using test::ZipBuilder;

/// A .npy array of `count` float32 zeros.
Bytes zeros(int64_t count) {
  Bytes bytes = npy_header({count}, "<f4");
  bytes.resize(bytes.size() + 4 * static_cast<size_t>(count));
  return bytes;
}

class ZipFile : public testing::Test {
 protected:
  NamedTensors read(const Bytes& bytes) { return parse_npz(bytes, "weights.npz"); }

  void expect(const Bytes& bytes, ErrorKind kind, std::initializer_list<std::string_view> parts) {
    expect_error([&] { read(bytes); }, kind, {"weights.npz: "});
    expect_error([&] { read(bytes); }, kind, parts);
  }

  void expect_member(const BuiltMember& member, ErrorKind kind,
                     std::initializer_list<std::string_view> parts) {
    ZipBuilder zip;
    zip.add(member);
    expect(zip.finish(), kind, parts);
  }
};

TEST_F(ZipFile, CommentsAndZip64AreFine) {
  for (const bool member64 : {false, true}) {
    for (const bool end64 : {false, true}) {
      for (const std::string& comment : {std::string(), std::string("PK\5\6 made by hand")}) {
        ZipBuilder zip;
        zip.add({.name = "a.npy", .contents = zeros(3), .zip64 = member64});
        zip.add({.name = "b.npy", .contents = zeros(5), .deflate = true, .zip64 = member64});
        const NamedTensors tensors = read(zip.finish(comment, end64));
        ASSERT_EQ(tensors.size(), 2u);
        EXPECT_EQ(tensors.at("a").shape, Shape{3});
        EXPECT_EQ(tensors.at("b").shape, Shape{5});
      }
    }
  }
}

TEST_F(ZipFile, EmptyArchiveHasNoTensors) { EXPECT_TRUE(read(ZipBuilder().finish()).empty()); }

TEST_F(ZipFile, NotAnArchive) {
  expect({}, ErrorKind::usage, {"not a ZIP archive (0 bytes)"});
  expect(zeros(3), ErrorKind::usage, {"not a ZIP archive"});
  ZipBuilder zip;
  zip.add({.name = "a.npy", .contents = zeros(3)});
  Bytes cut = zip.finish();
  cut.pop_back();
  expect(cut, ErrorKind::runtime, {"truncated"});
  const TemporaryFolder folder;
  expect_error([&] { read_npz(folder / "none.npz"); }, ErrorKind::runtime,
               {"none.npz", "No such file"});
}

TEST_F(ZipFile, UnsupportedMembers) {
  expect_member({.name = "a.npy", .contents = zeros(3), .method = uint16_t{12}}, ErrorKind::usage,
                {"\"a.npy\"", "method 12"});
  expect_member({.name = "a.npy", .contents = zeros(3), .flags = 1}, ErrorKind::usage,
                {"\"a.npy\"", "encrypted"});
  expect_member({.name = "readme.txt", .contents = {'h', 'i'}}, ErrorKind::usage,
                {"\"readme.txt\" is not a .npy array"});
  expect_member({.name = "a.npy", .contents = {'h', 'i'}}, ErrorKind::runtime, {"truncated"});
}

TEST_F(ZipFile, SameNameTwice) {
  ZipBuilder zip;
  zip.add({.name = "a.npy", .contents = zeros(3)});
  zip.add({.name = "a.npy", .contents = zeros(4)});
  expect(zip.finish(), ErrorKind::runtime, {"\"a.npy\" is there twice"});
}

TEST_F(ZipFile, WrongChecksum) {
  for (const bool deflate : {false, true}) {
    expect_member({.name = "a.npy", .contents = zeros(3), .deflate = deflate, .crc = 1u},
                  ErrorKind::runtime, {"\"a.npy\"", "CRC-32"});
  }
}

TEST_F(ZipFile, DirectoryThatContradictsTheMembers) {
  expect_member({.name = "a.npy", .contents = zeros(3), .local_name = "b.npy"}, ErrorKind::runtime,
                {"contradicts"});
  expect_member({.name = "a.npy", .contents = zeros(3), .offset = 1}, ErrorKind::runtime,
                {"contradicts"});
  expect_member({.name = "a.npy", .contents = zeros(3), .offset = 1u << 30}, ErrorKind::runtime,
                {"beyond"});
  expect_member({.name = "a.npy", .contents = zeros(3), .offset = ~uint64_t{0}, .zip64 = true},
                ErrorKind::runtime, {"beyond"});
  expect_member({.name = "a.npy", .contents = zeros(3), .size = 141, .packed_size = 141},
                ErrorKind::runtime, {"beyond"});
  expect_member({.name = "a.npy",
                 .contents = zeros(3),
                 .size = ~uint64_t{0} - 10,
                 .packed_size = ~uint64_t{0} - 10,
                 .zip64 = true},
                ErrorKind::runtime, {"beyond"});
  expect_member({.name = "a.npy", .contents = zeros(3), .size = 139}, ErrorKind::runtime,
                {"140 bytes cannot hold 139"});
}

TEST_F(ZipFile, Bombs) {
  // A size that no deflate stream of this length can have.
  expect_member({.name = "a.npy",
                 .contents = zeros(3),
                 .deflate = true,
                 .size = uint64_t{1} << 50,
                 .zip64 = true},
                ErrorKind::runtime, {"cannot hold"});
  // A stream that yields more, or less, than it says.
  const Bytes honest = zeros(100);
  expect_member({.name = "a.npy",
                 .contents = honest,
                 .packed = deflated(zeros(100'000)),
                 .method = uint16_t{8}},
                ErrorKind::runtime, {"\"a.npy\""});
  Bytes longer = honest;
  longer.push_back(0);
  expect_member(
      {.name = "a.npy", .contents = honest, .packed = deflated(longer), .method = uint16_t{8}},
      ErrorKind::runtime, {"more data than the declared size"});
  Bytes shorter = honest;
  shorter.pop_back();
  expect_member(
      {.name = "a.npy", .contents = honest, .packed = deflated(shorter), .method = uint16_t{8}},
      ErrorKind::runtime, {"shorter than the declared size"});
  // A size that the array's shape does not ask for: refused before it is unpacked.
  Bytes padded = honest;
  padded.resize(5'000'000);
  expect_member({.name = "a.npy", .contents = padded, .deflate = true}, ErrorKind::runtime,
                {"does not fit"});
  // Garbage instead of, in and after the stream.
  expect_member(
      {.name = "a.npy", .contents = honest, .packed = Bytes(60, 0xFF), .method = uint16_t{8}},
      ErrorKind::runtime, {"damaged deflate stream"});
  Bytes cut = deflated(honest);
  cut.pop_back();
  expect_member({.name = "a.npy", .contents = honest, .packed = cut, .method = uint16_t{8}},
                ErrorKind::runtime, {"cut short"});
  Bytes more = deflated(honest);
  more.push_back(7);
  expect_member({.name = "a.npy", .contents = honest, .packed = more, .method = uint16_t{8}},
                ErrorKind::runtime, {"unused bytes"});
}

TEST_F(ZipFile, OverlappingMembers) {
  ZipBuilder zip;
  zip.add({.name = "a.npy", .contents = zeros(3)});
  zip.add({.name = "a.npy", .contents = zeros(3), .offset = 0});
  expect(zip.finish(), ErrorKind::runtime, {"overlap"});
}

TEST_F(ZipFile, EndRecordThatLies) {
  ZipBuilder zip;
  zip.add({.name = "a.npy", .contents = zeros(3)});
  const Bytes whole = zip.finish();
  const size_t end = whole.size() - 22;
  const auto changed = [&](size_t field, uint8_t value) {
    Bytes bytes = whole;
    bytes[end + field] = value;
    return bytes;
  };
  expect(changed(4, 1), ErrorKind::usage, {"several parts"});
  expect(changed(8, 2), ErrorKind::runtime, {"contradicts itself"});
  expect(changed(12, 0), ErrorKind::runtime, {"not where the end record says"});
  expect(changed(18, 1), ErrorKind::runtime, {"not where the end record says"});
  Bytes two = changed(8, 2);
  two[end + 10] = 2;
  expect(two, ErrorKind::runtime, {"truncated ZIP structure"});
  Bytes none = changed(8, 0);
  none[end + 10] = 0;
  expect(none, ErrorKind::runtime, {"more ZIP entries than declared"});

  Bytes far = zip.finish("", true);  // the ZIP64 locator's offset
  for (size_t i = 0; i < 8; ++i) far[far.size() - 22 - 12 + i] = 0xFF;
  expect(far, ErrorKind::runtime, {"outside of the file"});
}

}  // namespace
}  // namespace halfscope
