// SPDX-License-Identifier: MIT
#include "core/data/file_bytes.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>

#include "core/data/npz.h"
#include "core/data/tensor_file.h"
#include "tests/data/test_files.h"

namespace halfscope {
namespace {

using test::Bytes;

TEST(FileBytes, ReadsAnyPart) {
  const test::TemporaryFolder folder;
  test::write_bytes(folder / "x", {1, 2, 3, 4, 5});
  const FileBytes file(folder / "x");
  EXPECT_EQ(file.size(), 5U);
  Bytes part(2);
  file.read(3, part);
  EXPECT_EQ(part, (Bytes{4, 5}));
  file.read(5, {});
  FileSource source(file);
  source.read(part);
  source.read(part);
  EXPECT_EQ(part, (Bytes{3, 4}));
}

TEST(FileBytes, OnlyFilesAreRead) {
  const test::TemporaryFolder folder;
  test::expect_error([&] { FileBytes file(folder / "none"); }, ErrorKind::runtime,
                     {"none", "file not found"});
  test::expect_error([&] { FileBytes file(folder.path()); }, ErrorKind::runtime, {"cannot read"});
  test::expect_error([&] { FileBytes file("/dev/zero"); }, ErrorKind::runtime, {"cannot read"});
}

// A mapped file would end the program with SIGBUS here.
TEST(FileBytes, AFileThatBecomesShorterIsAnError) {
  const test::TemporaryFolder folder;
  Bytes bytes(1 << 20, 7);
  test::write_bytes(folder / "x", bytes);
  const FileBytes file(folder / "x");
  std::filesystem::resize_file(folder / "x", 5000);
  file.read(0, std::span(bytes).first(5000));
  test::expect_error([&] { file.read(0, bytes); }, ErrorKind::runtime,
                     {"x'", "it became shorter while it was read"});
}

TEST(FileBytes, ArchivesThatBecomeShorterAreErrors) {
  const test::TemporaryFolder folder;
  write_npz(folder / "x.npz", {{"w", {{1 << 20}, std::vector<float>(1 << 20)}}});
  const TensorFile file(folder / "x.npz");
  std::filesystem::resize_file(folder / "x.npz", 10000);
  Bytes bytes(file.arrays()[0].bytes());
  test::expect_error([&] { file.open(file.arrays()[0])->read(bytes); }, ErrorKind::runtime,
                     {"x.npz: member 'w.npy'"});
}

}  // namespace
}  // namespace halfscope
