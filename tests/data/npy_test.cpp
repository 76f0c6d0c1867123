// SPDX-License-Identifier: MIT
// Single .npy arrays: every number type, the three header versions, and headers with wrong sizes.
#include "core/data/npy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <numeric>
#include <string>

#include "core/data/npz.h"
#include "test_files.h"

namespace halfscope {
namespace {

using test::Bytes;
using test::committed;
using test::expect_error;
using test::outside_data;
using test::TemporaryFolder;

/// A version 1.0 .npy file with this header text, unpadded, and this many bytes of zeros.
Bytes npy(const std::string& header, size_t data_size) {
  Bytes bytes = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0};
  bytes.push_back(static_cast<uint8_t>(header.size() & 0xFF));
  bytes.push_back(static_cast<uint8_t>(header.size() >> 8));
  bytes.insert(bytes.end(), header.begin(), header.end());
  bytes.resize(bytes.size() + data_size);
  return bytes;
}

std::string header(const std::string& descr, const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + "}\n";
}

class NpyFile : public testing::Test {
 protected:
  Tensor read(const Bytes& bytes) {
    MemorySource source(bytes);
    return read_npy_array(source, "array.npy");
  }

  void expect(const Bytes& bytes, ErrorKind kind, std::initializer_list<std::string_view> parts) {
    expect_error([&] { read(bytes); }, kind, {"array.npy: "});
    expect_error([&] { read(bytes); }, kind, parts);
  }
};

TEST_F(NpyFile, HeaderVersions2And3) {
  std::vector<float> expected(24);
  std::iota(expected.begin(), expected.end(), 0.0f);
  for (const char* const name : {"version2.npy", "version3.npy"}) {
    const Tensor tensor = read_npy(committed(name));
    EXPECT_EQ(tensor.shape, (Shape{2, 3, 4}));
    EXPECT_EQ(tensor.data, expected);
  }
}

TEST_F(NpyFile, OtherTypesAreUsageErrors) {
  const auto fails = [](const char* name, const char* part) {
    expect_error([&] { read_npy(committed(name)); }, ErrorKind::usage, {name, part});
  };
  fails("complex.npy", "'<c16'");
  fails("text.npy", "'<U2'");
  fails("records.npy", "structured records");
  fails("objects.npy", "'|O'");
}

TEST_F(NpyFile, EveryHalfIsExact) {
  Bytes bytes = npy(header("<f2", "(65536,)"), 0);
  for (unsigned bits = 0; bits < 65536; ++bits) {
    bytes.push_back(static_cast<uint8_t>(bits));
    bytes.push_back(static_cast<uint8_t>(bits >> 8));
  }
  const Tensor tensor = read(bytes);
  ASSERT_EQ(tensor.data.size(), 65536u);
  for (unsigned bits = 0; bits < 65536; ++bits) {
    // The definition: (-1)^s * 2^(e-15) * 1.f, subnormal 2^-14 * 0.f.
    const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
    double expected =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    if (exponent == 31) expected = std::numeric_limits<double>::infinity();
    if ((bits & 0x8000) != 0) expected = -expected;
    const float value = tensor.data[bits];
    if (exponent == 31 && fraction != 0) {
      ASSERT_TRUE(std::isnan(value)) << bits;
    } else {
      ASSERT_EQ(value, expected) << bits;
      ASSERT_EQ(std::signbit(value), std::signbit(expected)) << bits;
    }
  }
}

TEST_F(NpyFile, HeaderIsReadAsPythonReadsIt) {
  for (const std::string& text : {
           std::string("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n"),
           std::string("{\"shape\":(2,3),\"fortran_order\":False,\"descr\":\"<f4\"}"),
           std::string("{'descr':'<i4','fortran_order':True,'shape':(2L,3L,)}"),
           std::string(" { 'descr' : '=f4' , 'fortran_order' : False , 'shape' : ( 2 , 3 ) } "),
       }) {
    const Tensor tensor = read(npy(text, 24));
    EXPECT_EQ(tensor.shape, (Shape{2, 3})) << text;
    EXPECT_EQ(tensor.data, std::vector<float>(6, 0.0f)) << text;
  }
  EXPECT_EQ(read(npy(header("<f4", "()"), 4)).shape, Shape{});
  EXPECT_EQ(read(npy(header("<f4", "(0, 7)"), 0)).shape, (Shape{0, 7}));
}

TEST_F(NpyFile, WrongHeaders) {
  const auto damaged = [this](const std::string& text, const char* part) {
    expect(npy(text, 24), ErrorKind::runtime, {"array.npy: .npy header", part});
  };
  damaged("", "'{' expected");
  damaged("{}", "is missing");
  damaged("{'descr': '<f4', 'fortran_order': False}", "is missing");
  damaged("{'descr': '<f4', 'descr': '<f4'}", "repeated key 'descr'");
  damaged("{'colour': 'red'}", "unknown or repeated key 'colour'");
  damaged("{'descr': '<f4", "not closed");
  damaged("{'descr' '<f4'}", "':' expected");
  damaged("{'descr': '<f4' 'shape': ()}", "'}' expected");
  damaged("{'fortran_order': Maybe}", "neither True nor False");
  damaged("{'fortran_order': ", "neither True nor False");
  damaged("{'shape': 3}", "'(' expected");
  damaged("{'shape': (-3,)}", "tuple of sizes");
  damaged("{'shape': (3 4)}", "')' expected");
  damaged("{'shape': (3,", "tuple of sizes");
  damaged("{'shape': (99999999999999999999,)}", "64 bits");
  damaged(header("<f4", "(2, 3)") + "x", "after the closing brace");
}

TEST_F(NpyFile, ShapesThatDoNotFitTheData) {
  const auto misfit = [this](const std::string& descr, const std::string& shape, size_t size) {
    expect(npy(header(descr, shape), size), ErrorKind::runtime, {"does not match"});
  };
  misfit("<f4", "(2, 3)", 23);
  misfit("<f4", "(2, 3)", 25);
  misfit("<f4", "(2, 3)", 0);
  misfit("<f4", "()", 0);
  misfit("<f4", "(0,)", 4);
  misfit("<f8", "(3,)", 12);
  misfit("|i1", "(9223372036854775807,)", 8);
  misfit("<f4", "(4294967296, 4294967296)", 0);                 // 2^64 wraps to 0
  misfit("<f4", "(4611686018427387905,)", 4);                   // * 4 wraps to 4
  misfit("<f4", "(2147483648, 2147483648, 0, 4294967296)", 0);  // would overflow before the 0
}

TEST_F(NpyFile, NotNpyAtAll) {
  expect({'P', 'K', 3, 4, 0, 0, 0, 0, 0}, ErrorKind::usage, {"does not begin"});
  Bytes bytes = npy(header("<f4", "(1,)"), 4);
  bytes[6] = 4;
  expect(bytes, ErrorKind::usage, {"version 4.0"});
  bytes[6] = 2;  // the length field has four bytes then and reads as far too long
  expect(bytes, ErrorKind::runtime, {"the .npy header has", "at most 1048576"});
  const TemporaryFolder folder;
  expect_error([&] { read_npy(folder / "none.npy"); }, ErrorKind::runtime, {"none.npy"});
  expect_error([&] { read_npy(folder.path()); }, ErrorKind::runtime, {"cannot read"});
}

TEST_F(NpyFile, TruncatedAnywhereOrWithOneByteChanged) {
  const Bytes whole = test::read_bytes(committed("version2.npy"));
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THROW(read({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)}), Error)
        << size;
  }
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const uint8_t change : {0x01, 0x10, 0x80, 0xFF}) {
      Bytes bytes = whole;
      bytes[at] ^= change;
      try {
        EXPECT_EQ(read(bytes).data.size(), 24u) << at;  // a value or the padding changed
      } catch (const Error&) {
      }
    }
  }
}

TEST_F(NpyFile, FloatHeaderIsWhatNumpyWrites) {
  for (const Shape& shape : {Shape{}, Shape{3}, Shape{2, 3}, Shape{0, 7}, Shape(30, 1)}) {
    const Bytes bytes = npy_header(shape, "<f4");
    EXPECT_EQ(bytes.size() % 64, 0u);
    EXPECT_EQ(bytes.back(), '\n');
    Bytes file = bytes;
    file.resize(bytes.size() + 4 * static_cast<size_t>(element_count(shape)));
    EXPECT_EQ(read(file).shape, shape);
  }
  const Bytes numpys = test::read_bytes(committed("stored.npz"));
  const Bytes ours = npy_header({3, 4}, "<f4");
  EXPECT_NE(std::search(numpys.begin(), numpys.end(), ours.begin(), ours.end()), numpys.end());
}

TEST_F(NpyFile, OutsideFile) {
  const std::filesystem::path file = outside_data("models/small.npy");
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
  EXPECT_FALSE(read_npy(file).data.empty());
}

}  // namespace
}  // namespace halfscope
