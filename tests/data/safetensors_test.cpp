// SPDX-License-Identifier: MIT
// .safetensors files written byte by byte: every rule of the format, broken one at a time.
#include "core/data/safetensors.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "core/data/tensor_file.h"
#include "tests/data/test_files.h"

namespace halfscope {
namespace {

using test::Bytes;
using testing::ElementsAre;
using testing::HasSubstr;

/// A file with this header and data.
Bytes file_of(const std::string& header, const Bytes& data = {}) {
  Bytes bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<uint8_t>(header.size() >> (8 * i)));
  bytes.insert(bytes.end(), header.begin(), header.end());
  bytes.insert(bytes.end(), data.begin(), data.end());
  return bytes;
}

std::vector<StoredArray> arrays_of(const Bytes& bytes) {
  MemorySource source(bytes);
  return safetensors_arrays(source, "x.safetensors");
}

std::string problem_of(const Bytes& bytes) {
  try {
    arrays_of(bytes);
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << "more than one line";
    for (const char c : std::string(error.what())) EXPECT_GE(static_cast<unsigned char>(c), 0x20);
    EXPECT_NE(error.hint(), "");
    return error.what();
  }
  return "";
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& range) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + range + "}";
}

TEST(Safetensors, ReadsEveryType) {
  const Bytes data{0,    0,    0,    0,    0, 0, 0xf8, 0x3f,  // 1.5 as F64
                   0,    0,    0x20, 0xc0,                    // -2.5 as F32
                   0xff, 0x7b,                                // 65504 as F16
                   0x80, 0x7f,                                // inf as BF16
                   0x7e,                                      // 448 as F8_E4M3
                   0x7b,                                      // 57344 as F8_E5M2
                   0xff, 0xff,                                // -1 as I16
                   0xff,                                      // 255 as U8
                   1};
  const std::string header =
      "{\"__metadata__\":{\"format\":\"pt\"}," + tensor("a", "F64", "[]", "[0,8]") + "," +
      tensor("b", "F32", "[1]", "[8,12]") + "," + tensor("c", "F16", "[1]", "[12,14]") + "," +
      tensor("d", "BF16", "[1,1]", "[14,16]") + "," + tensor("e", "F8_E4M3", "[1]", "[16,17]") +
      "," + tensor("f", "F8_E5M2", "[1]", "[17,18]") + "," + tensor("g", "I16", "[1]", "[18,20]") +
      "," + tensor("h", "U8", "[1]", "[20,21]") + "," + tensor("i", "BOOL", "[1]", "[21,22]") +
      "}   ";
  const test::TemporaryFolder folder;
  test::write_bytes(folder / "x.safetensors", file_of(header, data));
  NamedTensors all = read_tensors(folder / "x.safetensors");
  ASSERT_EQ(all.size(), 9u);
  EXPECT_TRUE(all.at("a").shape.empty());
  EXPECT_EQ(all.at("d").shape, (Shape{1, 1}));
  std::vector<float> values;
  for (const auto& [name, each] : all) values.push_back(each.data.at(0));
  EXPECT_THAT(values, ElementsAre(1.5f, -2.5f, 65504.0f, std::numeric_limits<float>::infinity(),
                                  448.0f, 57344.0f, -1.0f, 255.0f, 1.0f));
  EXPECT_EQ(read_tensors_double(folder / "x.safetensors").at("a").data.at(0), 1.5);
}

TEST(Safetensors, AcceptsEmptyTensorsAndAnyOrder) {
  const auto arrays = arrays_of(file_of("{" + tensor("b", "U8", "[2]", "[1,3]") + "," +
                                            tensor("n", "F32", "[0,7]", "[1,1]") + "," +
                                            tensor("a", "U8", "[1]", "[0,1]") + "}",
                                        {1, 2, 3}));
  ASSERT_EQ(arrays.size(), 3u);
  EXPECT_EQ(arrays[0].name, "a");
  EXPECT_EQ(arrays[1].name, "n");
  EXPECT_EQ(arrays[2].name, "b");
  EXPECT_TRUE(arrays_of(file_of("{}")).empty());
}

TEST(Safetensors, EscapesInNamesAreRead) {
  const auto arrays = arrays_of(
      file_of("{" + tensor("a\\u00e9\\ud83d\\ude00\\n", "U8", "[1]", "[0,1]") + "}", {1}));
  EXPECT_EQ(arrays.at(0).name, "a\xc3\xa9\xf0\x9f\x98\x80\n");
  EXPECT_EQ(visible_name(arrays.at(0).name), "a\xc3\xa9\xf0\x9f\x98\x80\\x0a");
  EXPECT_EQ(printable_name("a\\b\xc3\xa9"), "a\\b\xc3\xa9");
  EXPECT_EQ(printable_name("a\xe2\x80\xae"
                           "b"),
            "a\\xe2\\x80\\xaeb")
      << "from right to left";
  EXPECT_EQ(printable_name("a\xe2\x80\xa8"
                           "b"),
            "a\\xe2\\x80\\xa8b")
      << "a new line";
  EXPECT_EQ(printable_name("a\xe2\x80\x93\xd7\x90"), "a\xe2\x80\x93\xd7\x90") << "a dash, a letter";
  EXPECT_EQ(printable_name("a\\\x1b\xc2\x85"), "a\\\\\\x1b\\xc2\\x85");
  EXPECT_EQ(visible_name("\x1b[31m\xff\\"), "\\x1b[31m\\xff\\\\");
}

TEST(Safetensors, RefusesHostileFiles) {
  Bytes billion = file_of("{}");
  const uint64_t length = 1'000'000'000;
  for (int i = 0; i < 8; ++i) {
    billion[static_cast<size_t>(i)] = static_cast<uint8_t>(length >> (8 * i));
  }
  Bytes beyond = file_of("{}");
  beyond[0] = 3;
  const std::string huge = "[4294967296,4294967296,4294967296]";
  const struct {
    Bytes bytes;
    const char* what;
  } cases[] = {
      {{}, "not a .safetensors file (0 bytes)"},
      {{1, 0, 0, 0, 0, 0, 0}, "not a .safetensors file (7 bytes)"},
      {billion, "1000000000 bytes, expected at most 100000000"},
      {beyond, "truncated"},
      {file_of(""), "'{' expected"},
      {file_of("[]"), "'{' expected"},
      {file_of("{\"a\":1}"), "'{' expected"},
      {file_of("{} x"), "after the closing brace"},
      {file_of(std::string("{}\0", 3)), "after the closing brace"},
      {file_of("{\"a"), "quote is not closed"},
      {file_of("{\"a\\"), "quote is not closed"},
      {file_of("{\"\\ud800\":1}"), "surrogate"},
      {file_of("{\"\\u00"), "cut off"},
      {file_of("{\"a\":{\"b\":1}}"), "unknown or repeated key 'b'"},
      {file_of("{\"__metadata__\":{\"a\":1}}"), "'\"' expected"},
      {file_of("{" + tensor("a", "F32", "[1]", "[0,4]") + "}", {0, 0, 0}), "beyond the file's"},
      {file_of("{" + tensor("a", "F32", "[1]", "[4,8]") + "}", Bytes(8)), "after a gap"},
      {file_of(
           "{" + tensor("a", "U8", "[2]", "[0,2]") + "," + tensor("b", "U8", "[2]", "[1,3]") + "}",
           Bytes(3)),
       "overlaps"},
      {file_of("{" + tensor("a", "U8", "[1]", "[0,1]") + "}", Bytes(2)), "belong to none"},
      {file_of("{" + tensor("a", "U8", "[1]", "[1,0]") + "}", Bytes(1)), "not a begin and an end"},
      {file_of("{" + tensor("a", "U8", "[1]", "[0]") + "}", Bytes(1)), "not a begin and an end"},
      {file_of("{" + tensor("a", "U8", "[-1]", "[0,1]") + "}", Bytes(1)), "whole numbers from 0"},
      {file_of("{" + tensor("a", "U8", "[1.0]", "[0,1]") + "}", Bytes(1)), "whole numbers from 0"},
      {file_of("{" + tensor("a", "U8", "[1e0]", "[0,1]") + "}", Bytes(1)), "whole numbers from 0"},
      {file_of("{" + tensor("a", "U8", "[99999999999999999999]", "[0,1]") + "}", Bytes(1)),
       "does not fit in 64 bits"},
      {file_of("{" + tensor("a", "F32", huge, "[0,0]") + "}"), "but 0 bytes"},
      {file_of("{" + tensor("a", "F32", "[0,4294967296,4294967296]", "[0,0]") + "}"),
       "but 0 bytes"},
      {file_of("{" + tensor("a", "F32", "[2]", "[0,4]") + "}", Bytes(4)), "but 4 bytes"},
      {file_of("{" + tensor("a", "F32", "[1]", "[0,5]") + "}", Bytes(5)), "but 5 bytes"},
      {file_of("{" + tensor("a", "U8", "[1]", "[0,9223372036854775807]") + "}", Bytes(1)),
       "but 9223372036854775807 bytes"},
      {file_of(
           "{" + tensor("a", "U8", "[1]", "[0,1]") + "," + tensor("a", "U8", "[1]", "[1,2]") + "}",
           Bytes(2)),
       "'a' occurs twice"},
      {file_of("{" + tensor("a", "C64", "[1]", "[0,8]") + "}", Bytes(8)), "has dtype 'C64'"},
      {file_of("{" + tensor("\\u001b[2J", "U8", "[2]", "[0,1]") + "}", Bytes(1)), "\\x1b[2J"},
      {file_of("{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", Bytes(1)), "lacks dtype, shape or"},
      {file_of("{" + std::string(100000, '{')), "'\"' expected"},
  };
  for (const auto& each : cases) EXPECT_THAT(problem_of(each.bytes), HasSubstr(each.what));
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const Bytes whole = file_of("{" + tensor("a", "F32", "[2]", "[0,8]") + "}", Bytes(8));
  EXPECT_EQ(problem_of(whole), "");
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(problem_of(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size))),
              "")
        << size;
  }
}

TEST(StoredArray, LargeIntegersRoundToOdd) {
  // The midpoint of two bf16 numbers plus one: rounding to double first would drop the one.
  const int64_t value = (int64_t{1} << 60) + (int64_t{1} << 52) + 1;
  std::vector<uint8_t> raw(8);
  for (size_t i = 0; i < 8; ++i) raw[i] = static_cast<uint8_t>(value >> (8 * i));
  double nearest = 0, odd = 0;
  decode_values(raw, StoredType::i64, false, &nearest);
  decode_values(raw, StoredType::i64, false, &odd, LargeIntegers::odd);
  EXPECT_EQ(nearest, 0x1.01p60);
  EXPECT_EQ(odd, 0x1.01p60 + 0x1p11);
}

}  // namespace
}  // namespace halfscope
