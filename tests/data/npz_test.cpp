// SPDX-License-Identifier: MIT
// read_npz and write_npz compared with numpy: files that numpy wrote, files that it reads, and
// files that were truncated or changed.
#include "core/data/npz.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>

#include "test_files.h"
#include "tests/special_values.h"

namespace halfscope {
namespace {

using test::Bytes;
using test::committed;
using test::expect_error;
using test::outside_data;
using test::read_bytes;
using test::TemporaryFolder;
using test::write_bytes;

/// Compares bits, so that NaN equals itself and the two zeros differ.
bool same(const NamedTensors& a, const NamedTensors& b) {
  const auto bits = [](float x, float y) {
    return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](const auto& x, const auto& y) {
    return x.first == y.first && x.second.shape == y.second.shape &&
           std::equal(x.second.data.begin(), x.second.data.end(), y.second.data.begin(),
                      y.second.data.end(), bits);
  });
}

NamedTensors some_tensors() {
  return {{"fc1.weight", {{2, 3}, {1, -2, 0.1f, -0.0f, 1e-45f, 3.4e38f}}},
          {"block2/conv1.bias", {{3}, {kInf, -kInf, std::nanf("")}}},
          {"scalar", {{}, {7.5f}}},
          {"empty", {{0, 4}, {}}},
          {"gr\xC3\xB6\xC3\x9F"
           "e",
           {{1, 1, 1}, {42}}}};
}

TEST(ReadNpz, EveryTypeInBothByteOrders) {
  const NamedTensors tensors = read_npz(committed("types.npz"));
  EXPECT_EQ(tensors.size(), 23u);
  EXPECT_EQ(tensors.at("bool").data, (std::vector<float>{1, 0, 1}));
  for (const std::string order : {"_little", "_big"}) {
    for (const std::string kind : {"f2", "f4", "f8"}) {
      const std::vector<float>& values = tensors.at(kind + order).data;
      // 1e-7 in binary16 is the subnormal 2 * 2^-24.
      const float tiny = kind == "f2" ? 0x1p-23f : 1e-7f;
      EXPECT_EQ(values, (std::vector<float>{0, 1, 2.5f, -3, 100, tiny, 0, kInf})) << kind;
      EXPECT_TRUE(std::signbit(values[6])) << kind;
    }
    for (const int size : {1, 2, 4, 8}) {
      const float top = std::ldexp(1.0f, 8 * size - 1);
      const std::string number = std::to_string(size) + order;
      // numpy converts to the nearest float32, so 2^31 - 1 becomes 2^31.
      EXPECT_EQ(tensors.at("i" + number).data,
                (std::vector<float>{0, 1, 2, -top, 100, size < 4 ? top - 1 : top}));
      EXPECT_EQ(tensors.at("u" + number).data,
                (std::vector<float>{0, 1, 2, 0, 100, size < 4 ? 2 * top - 1 : 2 * top}));
    }
  }
}

TEST(ReadNpz, ShapesAndFortranOrder) {
  const NamedTensors tensors = read_npz(committed("shapes.npz"));
  std::vector<float> counting(24);
  std::iota(counting.begin(), counting.end(), 0.0f);
  for (const char* const name : {"c_order", "fortran_order"}) {
    EXPECT_EQ(tensors.at(name).shape, (Shape{2, 3, 4})) << name;
    EXPECT_EQ(tensors.at(name).data, counting) << name;
  }
  counting.resize(12);
  EXPECT_EQ(tensors.at("fortran_matrix").shape, (Shape{3, 4}));
  EXPECT_EQ(tensors.at("fortran_matrix").data, counting);
  EXPECT_EQ(tensors.at("scalar").shape, Shape{});
  EXPECT_EQ(tensors.at("scalar").data, std::vector<float>{7.5f});
  EXPECT_EQ(tensors.at("one").data, std::vector<float>{3});
  EXPECT_EQ(tensors.at("empty").shape, (Shape{0, 3}));
  EXPECT_TRUE(tensors.at("empty").data.empty());
}

TEST(ReadNpz, StoredDeflatedAndStreamedAreTheSame) {
  const NamedTensors stored = read_npz(committed("stored.npz"));
  ASSERT_EQ(stored.size(), 2u);
  EXPECT_EQ(stored.at("fc1.weight").shape, (Shape{3, 4}));
  EXPECT_EQ(stored.at("fc1.weight").data[11], 23.0f / 8);
  EXPECT_EQ(stored.at("fc1.bias").data, (std::vector<float>{0.5f, -0.25f, 3}));
  EXPECT_TRUE(same(stored, read_npz(committed("deflated.npz"))));
  EXPECT_TRUE(same(stored, read_npz(committed("streamed.npz"))));
}

TEST(ReadNpz, TruncatedAnywhereIsAnError) {
  for (const char* const name : {"stored.npz", "deflated.npz", "streamed.npz"}) {
    const Bytes whole = read_bytes(committed(name));
    ASSERT_GT(whole.size(), 100u);
    for (size_t size = 0; size < whole.size(); ++size) {
      const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_THROW(parse_npz(cut, name), Error) << name << " cut after " << size;
    }
  }
}

TEST(ReadNpz, OneByteChangedIsAnErrorOrHarmless) {
  for (const char* const name : {"stored.npz", "deflated.npz", "streamed.npz", "shapes.npz"}) {
    const NamedTensors expected = read_npz(committed(name));
    const Bytes whole = read_bytes(committed(name));
    size_t harmless = 0;
    for (size_t at = 0; at < whole.size(); ++at) {
      for (const uint8_t change : {0x01, 0x08, 0x80, 0xFF}) {
        Bytes bytes = whole;
        bytes[at] ^= change;
        try {
          EXPECT_TRUE(same(parse_npz(bytes, name), expected)) << name << ", byte " << at;
          ++harmless;
        } catch (const Error&) {
        }
      }
    }
    EXPECT_GT(harmless, 0u);  // time stamps and versions do not matter
    EXPECT_LT(harmless, 2 * whole.size());
  }
}

TEST(WriteNpz, RoundTripKeepsEveryBit) {
  const TemporaryFolder folder;
  write_npz(folder / "a.npz", some_tensors());
  EXPECT_TRUE(same(read_npz(folder / "a.npz"), some_tensors()));
  write_npz(folder / "none.npz", {});
  EXPECT_TRUE(read_npz(folder / "none.npz").empty());
}

TEST(WriteNpz, SameTensorsSameBytesAndNothingLeftBehind) {
  const TemporaryFolder folder;
  write_npz(folder / "a.npz", some_tensors());
  write_bytes(folder / "b.npz", {1, 2, 3});  // is replaced
  write_npz(folder / "b.npz", some_tensors());
  EXPECT_EQ(read_bytes(folder / "a.npz"), read_bytes(folder / "b.npz"));
  const std::filesystem::directory_iterator files(folder.path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 2);
}

TEST(WriteNpz, FailureLeavesTheOldFile) {
  const TemporaryFolder folder;
  write_npz(folder / "a.npz", some_tensors());
  EXPECT_THROW(write_npz(folder / "a.npz", {{"bad", {{2, 2}, {1, 2, 3}}}}), Error);
  EXPECT_TRUE(same(read_npz(folder / "a.npz"), some_tensors()));
  for (const NamedTensors& tensors : {NamedTensors{}, some_tensors()}) {
    expect_error([&] { write_npz(folder / "no_such/a.npz", tensors); }, ErrorKind::runtime,
                 {"cannot write", "no_such/a.npz"});
  }
  std::filesystem::create_directory(folder / "is_folder");
  expect_error([&] { write_npz(folder / "is_folder", {}); }, ErrorKind::runtime,
               {"cannot write", "is_folder"});
  const std::filesystem::directory_iterator files(folder.path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 2);
}

TEST(WriteNpz, NumpyReadsIt) {
  const std::string python = "/usr/bin/python3";
  if (std::system((python + " -c 'import numpy' 2>/dev/null").c_str()) != 0) {
    GTEST_SKIP() << python << " has no numpy";
  }
  const TemporaryFolder folder;
  write_npz(folder / "a.npz", some_tensors());
  std::ofstream(folder / "check.py") << R"(import sys, zipfile, numpy as np
assert zipfile.ZipFile(sys.argv[1]).testzip() is None
z = np.load(sys.argv[1])
names = ['block2/conv1.bias', 'empty', 'fc1.weight', 'gr\u00f6\u00dfe', 'scalar']
assert sorted(z) == names, list(z)
assert all(z[k].dtype == np.float32 for k in z)
w = np.array([[1, -2, 0.1], [-0.0, 1e-45, 3.4e38]], np.float32)
assert z['fc1.weight'].tobytes() == w.tobytes() and z['fc1.weight'].shape == (2, 3)
b = z['block2/conv1.bias']
assert b[0] == np.inf and b[1] == -np.inf and np.isnan(b[2]) and b.shape == (3,)
assert z['scalar'].shape == () and z['scalar'] == 7.5
assert z['empty'].shape == (0, 4)
assert z[names[3]].shape == (1, 1, 1) and z[names[3]][0, 0, 0] == 42
)";
  const std::string command = python + " -W error '" + (folder / "check.py").string() + "' '" +
                              (folder / "a.npz").string() + "'";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

TEST(ReadNpz, OutsideFiles) {
  const std::filesystem::path folder = outside_data("models");
  if (!std::filesystem::exists(folder)) {
    GTEST_SKIP() << folder << " is not there; set HALFSCOPE_TEST_DATA to the folder above it";
  }
  const NamedTensors small = read_npz(folder / "small.npz");
  ASSERT_EQ(small.size(), 2u);
  for (size_t i = 0; i < small.at("x").data.size(); ++i) {
    EXPECT_EQ(small.at("x_plus_one").data[i], small.at("x").data[i] + 1);
  }

  // expected_tensors.csv: file,tensor,dtype,shape,count,min,max,norm,...
  const NamedTensors resnet = read_npz(folder / "resnet20_cifar10_f32.npz");
  std::ifstream table(folder / "expected_tensors.csv");
  size_t checked = 0;
  for (std::string line; std::getline(table, line);) {
    std::vector<std::string> cells;
    for (size_t from = 0; from <= line.size();) {
      const size_t to = std::min(line.find(',', from), line.size());
      cells.push_back(line.substr(from, to - from));
      from = to + 1;
    }
    if (cells[0] != "resnet20_cifar10_f32.npz") continue;
    const Tensor& tensor = resnet.at(cells[1]);
    EXPECT_EQ(std::to_string(tensor.data.size()), cells[4]) << cells[1];
    if (cells[2] == "F32") {
      const auto [low, high] = std::minmax_element(tensor.data.begin(), tensor.data.end());
      EXPECT_EQ(*low, std::stof(cells[5])) << cells[1];
      EXPECT_EQ(*high, std::stof(cells[6])) << cells[1];
    }
    ++checked;
  }
  EXPECT_EQ(checked, resnet.size());

  EXPECT_GT(read_npz(folder / "expected_outputs.npz").size(), 5u);
}

}  // namespace
}  // namespace halfscope
