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
               {"none.npz", "file not found"});
}

TEST_F(ZipFile, UnsupportedMembers) {
  expect_member({.name = "a.npy", .contents = zeros(3), .method = uint16_t{99}}, ErrorKind::runtime,
                {"damaged"});
  expect_member({.name = "a.npy", .contents = zeros(3), .method = uint16_t{12}}, ErrorKind::usage,
                {"'a.npy'", "method 12"});
  expect_member({.name = "a.npy", .contents = zeros(3), .flags = 1}, ErrorKind::usage,
                {"'a.npy' is encrypted"});
  expect_member({.name = "readme.txt", .contents = {'h', 'i'}}, ErrorKind::usage,
                {"'readme.txt' is not a .npy array"});
  expect_member({.name = "a.npy", .contents = {'h', 'i'}}, ErrorKind::runtime, {"truncated"});
}

TEST_F(ZipFile, SameNameTwice) {
  ZipBuilder zip;
  zip.add({.name = "a.npy", .contents = zeros(3)});
  zip.add({.name = "a.npy", .contents = zeros(4)});
  expect(zip.finish(), ErrorKind::runtime, {"damaged"});
}

TEST_F(ZipFile, WrongChecksum) {
  for (const bool deflate : {false, true}) {
    expect_member({.name = "a.npy", .contents = zeros(3), .deflate = deflate, .crc = 1u},
                  ErrorKind::runtime, {"'a.npy'", "CRC"});
  }
}

// Sizes and places that the file does not have: an error, and nothing large is allocated.
TEST_F(ZipFile, DirectoryThatContradictsTheMembers) {
  const uint64_t far = ~uint64_t{0} - 10;
  const Bytes three = zeros(3);
  for (const BuiltMember& member :
       {BuiltMember{.name = "a.npy", .contents = three, .offset = 1},
        BuiltMember{.name = "a.npy", .contents = three, .offset = 1u << 30},
        BuiltMember{.name = "a.npy", .contents = three, .offset = ~uint64_t{0}, .zip64 = true},
        BuiltMember{.name = "a.npy", .contents = three, .size = 1 << 20, .packed_size = 1 << 20},
        BuiltMember{
            .name = "a.npy", .contents = three, .size = far, .packed_size = far, .zip64 = true},
        BuiltMember{.name = "a.npy", .contents = three, .size = 139, .packed_size = 139}}) {
    expect_member(member, ErrorKind::runtime, {});
  }
}

TEST_F(ZipFile, Bombs) {
  const Bytes honest = zeros(100);
  Bytes longer = honest, shorter = honest, padded = honest;
  longer.push_back(0);
  shorter.pop_back();
  padded.resize(5'000'000);
  // A size that no stream of this length can have, and that the array does not ask for.
  expect_member({.name = "a.npy",
                 .contents = zeros(3),
                 .deflate = true,
                 .size = uint64_t{1} << 50,
                 .zip64 = true},
                ErrorKind::runtime, {"'a.npy'", "cannot contain"});
  expect_member(
      {.name = "a.npy", .contents = {}, .packed = deflated(honest), .method = uint16_t{8}},
      ErrorKind::runtime, {"'a.npy'"});
  expect_member({.name = "a.npy", .contents = padded, .deflate = true}, ErrorKind::runtime,
                {"does not match"});
  // Streams that yield more, or less, than they say, and no streams.
  for (const Bytes& packed :
       {deflated(zeros(100'000)), deflated(longer), deflated(shorter), Bytes(60, 0xFF)}) {
    expect_member({.name = "a.npy", .contents = honest, .packed = packed, .method = uint16_t{8}},
                  ErrorKind::runtime, {"'a.npy'"});
  }
}

// A deflated file can unpack to 1000 times its size.
TEST_F(ZipFile, WhatWouldFillAllMemoryIsNotUnpacked) {
  ZipBuilder zip;
  for (const char* name : {"a.npy", "b.npy"}) zip.add(test::bomb(name, {}, 300));
  const test::TemporaryFolder folder;
  test::write_bytes(folder / "bomb.npz", zip.finish());
  test::expect_error([&] { read_npz(folder / "bomb.npz"); }, ErrorKind::usage,
                     {"bomb.npz", "expand to 629145600, more than 100 times as many"});
}

// Overlaps would let a small file unpack to any size.
TEST_F(ZipFile, OverlappingMembers) {
  ZipBuilder zip;
  zip.add({.name = "a.npy", .contents = zeros(3)});
  zip.add({.name = "a.npy", .contents = zeros(3), .offset = 0});
  expect(zip.finish(), ErrorKind::runtime, {});
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
  EXPECT_EQ(read(whole).at("a").shape, Shape{3});
  // The disk; members here; size and place of the directory.
  for (const auto& [field, value] : {std::pair{4, 1}, {8, 2}, {12, 0}, {18, 1}}) {
    expect_error([&] { read(changed(static_cast<size_t>(field), static_cast<uint8_t>(value))); },
                 ErrorKind::runtime, {"weights.npz: "});
  }
}

}  // namespace
}  // namespace halfscope
