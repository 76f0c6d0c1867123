// SPDX-License-Identifier: MIT
// Initializers in every encoding, including damaged ones and those that refer to other files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/onnx/tensor_proto.h"
#include "tests/data/test_files.h"

namespace halfscope::onnx_files {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

::onnx::TensorProto declared(int type, std::initializer_list<int64_t> shape) {
  ::onnx::TensorProto proto;
  proto.set_data_type(type);
  for (int64_t size : shape) proto.add_dims(size);
  return proto;
}

::onnx::TensorProto raw(int type, std::initializer_list<int64_t> shape,
                        std::initializer_list<uint8_t> bytes) {
  ::onnx::TensorProto proto = declared(type, shape);
  proto.mutable_raw_data()->assign(bytes.begin(), bytes.end());
  return proto;
}

KnownTensor read(const ::onnx::TensorProto& proto) { return read_tensor(proto, ".", "w"); }

std::string refusal(const ::onnx::TensorProto& proto, const std::filesystem::path& folder = ".") {
  try {
    read_tensor(proto, folder, "w");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(OnnxTensor, RawBytesOfEveryType) {
  // Bit patterns by IEEE 754, bfloat16 as the upper half of float32, and the OCP 8-bit formats.
  EXPECT_THAT(read(raw(1, {1}, {0x00, 0x00, 0xC0, 0x3F})).reals, ElementsAre(1.5f));
  EXPECT_THAT(read(raw(11, {1}, {0, 0, 0, 0, 0, 0, 0xF8, 0xBF})).reals, ElementsAre(-1.5f));
  EXPECT_THAT(read(raw(10, {2}, {0x01, 0x00, 0xFF, 0x7B})).reals, ElementsAre(0x1p-24f, 65504.0f));
  EXPECT_THAT(read(raw(16, {2}, {0xC0, 0x3F, 0x80, 0xFF})).reals, ElementsAre(1.5f, -INFINITY));
  EXPECT_THAT(read(raw(17, {2}, {0x7E, 0x01})).reals, ElementsAre(448.0f, 0x1p-9f));     // e4m3fn
  EXPECT_THAT(read(raw(18, {2}, {0x7F, 0x08})).reals, ElementsAre(240.0f, 0x1p-7f));     // e4m3fnuz
  EXPECT_THAT(read(raw(19, {2}, {0x7B, 0x7C})).reals, ElementsAre(57344.0f, INFINITY));  // e5m2
  EXPECT_THAT(read(raw(20, {1}, {0x7F})).reals, ElementsAre(57344.0f));                  // e5m2fnuz
  EXPECT_TRUE(std::isnan(read(raw(18, {1}, {0x80})).reals[0]));
  EXPECT_THAT(read(raw(2, {2}, {0xFF, 1})).ints, ElementsAre(255, 1));
  EXPECT_THAT(read(raw(3, {2}, {0xFF, 1})).ints, ElementsAre(-1, 1));
  EXPECT_THAT(read(raw(4, {1}, {0xFE, 0xFF})).ints, ElementsAre(65534));
  EXPECT_THAT(read(raw(5, {1}, {0xFE, 0xFF})).ints, ElementsAre(-2));
  EXPECT_THAT(read(raw(6, {1}, {0xFE, 0xFF, 0xFF, 0xFF})).ints, ElementsAre(-2));
  EXPECT_THAT(read(raw(12, {1}, {0xFE, 0xFF, 0xFF, 0xFF})).ints, ElementsAre(4294967294));
  EXPECT_THAT(read(raw(7, {1}, {0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF})).ints,
              ElementsAre(-2));
  EXPECT_THAT(read(raw(9, {3}, {0, 1, 2})).ints, ElementsAre(0, 1, 1));
  EXPECT_THAT(read(raw(21, {3}, {0x2F, 0x0E})).ints, ElementsAre(15, 2, 14));
  EXPECT_THAT(read(raw(22, {3}, {0x2F, 0x0E})).ints, ElementsAre(-1, 2, -2));
}

TEST(OnnxTensor, TypedFields) {
  ::onnx::TensorProto proto = declared(1, {2});
  proto.add_float_data(1.5f);
  proto.add_float_data(-2.0f);
  EXPECT_THAT(read(proto).reals, ElementsAre(1.5f, -2.0f));
  proto = declared(11, {1});
  proto.add_double_data(0.1);
  EXPECT_THAT(read(proto).reals, ElementsAre(0.1f));
  proto = declared(7, {2, 1});
  proto.add_int64_data(int64_t{1} << 40);
  proto.add_int64_data(-3);
  EXPECT_THAT(read(proto).ints, ElementsAre(int64_t{1} << 40, -3));
  for (const auto& [type, code, value] :
       {std::tuple{10, 0x3E00, 1.5f}, {16, 0x3FC0, 1.5f}, {17, 0x3C, 1.5f}, {19, 0x3E, 1.5f}}) {
    proto = declared(type, {1});
    proto.add_int32_data(code);
    EXPECT_THAT(read(proto).reals, ElementsAre(value)) << type;
  }
  for (int type : {3, 5, 6}) {
    proto = declared(type, {1});
    proto.add_int32_data(-7);
    EXPECT_THAT(read(proto).ints, ElementsAre(-7)) << type;
  }
  proto = declared(13, {1});
  proto.add_uint64_data(9);
  EXPECT_THAT(read(proto).ints, ElementsAre(9));
  proto = declared(22, {3});  // two to an entry
  proto.add_int32_data(0x2F);
  proto.add_int32_data(0x0E);
  EXPECT_THAT(read(proto).ints, ElementsAre(-1, 2, -2));
}

TEST(OnnxTensor, ScalarsAndEmptyOnes) {
  EXPECT_TRUE(read(raw(1, {}, {0, 0, 0x80, 0x3F})).shape.empty());
  EXPECT_EQ(read(raw(1, {0, 3}, {})).count(), 0);
  EXPECT_EQ(read(declared(7, {0})).count(), 0);
}

TEST(OnnxTensor, WhatIsWrittenComesBack) {
  KnownTensor tensor{.shape = {2, 2}, .reals = {1.5f, -0.0f, 0x1p-9f, 448.0f}};
  for (DataType type : {DataType::float32, DataType::float16, DataType::float8e4m3fn}) {
    tensor.type = type;
    ::onnx::TensorProto proto;
    write_tensor(tensor, "w", proto);
    const KnownTensor back = read(proto);
    EXPECT_EQ(back.shape, tensor.shape);
    EXPECT_EQ(std::memcmp(back.reals.data(), tensor.reals.data(), 16), 0) << type_name(type);
  }
}

TEST(OnnxTensor, DamagedOnesAreRefused) {
  EXPECT_THAT(refusal(raw(1, {2}, {0, 0, 0, 0})), HasSubstr("has 4 bytes"));
  EXPECT_THAT(refusal(raw(1, {-1}, {})), HasSubstr("negative size"));
  EXPECT_THAT(refusal(declared(1, {int64_t{1} << 40, int64_t{1} << 40})),
              HasSubstr("has more than"));
  EXPECT_THAT(refusal(declared(1, {int64_t{1} << 62, 0, 8})), HasSubstr("has more than"));
  EXPECT_THAT(refusal(declared(1, {1000})), HasSubstr("has 0 elements"));
  EXPECT_THAT(refusal(declared(8, {1})), HasSubstr("string are not supported"));
  EXPECT_THAT(refusal(declared(14, {1})), HasSubstr("complex64 are not supported"));
  EXPECT_THAT(refusal(declared(99, {1})), HasSubstr("type 99 are not supported"));
  EXPECT_THAT(refusal(declared(-5, {1})), HasSubstr("are not supported"));
  EXPECT_THAT(refusal(declared(0, {1})), HasSubstr("undefined are not supported"));
}

class OnnxExternalData : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_ / "model/weights");
    const float values[] = {0.5f, 1.5f, -2.0f};
    test::Bytes bytes(sizeof values);
    std::memcpy(bytes.data(), values, sizeof values);
    test::write_bytes(folder_ / "model/weights/w.bin", bytes);
    test::write_bytes(folder_ / "secret.bin", bytes);
    std::filesystem::create_symlink(folder_ / "secret.bin", folder_ / "model/link.bin");
  }

  static ::onnx::TensorProto external(const std::string& location, const std::string& offset,
                                      const std::string& length) {
    ::onnx::TensorProto proto = declared(1, {2});
    proto.set_data_location(::onnx::TensorProto::EXTERNAL);
    for (const auto& [key, value] : {std::pair<std::string, std::string>{"location", location},
                                     {"offset", offset},
                                     {"length", length}}) {
      if (value.empty()) continue;
      ::onnx::StringStringEntryProto& entry = *proto.add_external_data();
      entry.set_key(key);
      entry.set_value(value);
    }
    return proto;
  }
  std::string refused(const std::string& location, const std::string& offset = "",
                      const std::string& length = "") const {
    return refusal(external(location, offset, length), folder_ / "model");
  }

  test::TemporaryFolder temporary_;
  std::filesystem::path folder_ = temporary_.path();
};

TEST_F(OnnxExternalData, IsReadFromBesideTheModel) {
  const auto at = [&](const std::string& offset, const std::string& length) {
    return read_tensor(external("weights/w.bin", offset, length), folder_ / "model", "w").reals;
  };
  EXPECT_THAT(at("", ""), ElementsAre(0.5f, 1.5f));
  EXPECT_THAT(at("4", "8"), ElementsAre(1.5f, -2.0f));
}

TEST_F(OnnxExternalData, NeverLeavesTheFolder) {
  for (const std::string& path :
       {std::string("../secret.bin"), std::string("weights/../../secret.bin"),
        (folder_ / "secret.bin").string(), std::string("link.bin"), std::string(""),
        std::string("..\\secret.bin"), std::string("w\0.bin", 6)}) {
    EXPECT_THAT(refused(path), HasSubstr("outside the folder of the model")) << path;
  }
}

TEST_F(OnnxExternalData, DamagedReferencesAreRefused) {
  EXPECT_THAT(refused("weights/none.bin"), HasSubstr("cannot read"));
  EXPECT_THAT(refused("weights"), HasSubstr("cannot read"));
  EXPECT_THAT(refused("weights/w.bin", "8"), HasSubstr("does not contain 8 bytes at offset 8"));
  EXPECT_THAT(refused("weights/w.bin", "18446744073709551615"),
              HasSubstr("does not contain 8 bytes"));
  EXPECT_THAT(refused("weights/w.bin", "0", "4"), HasSubstr("does not contain 8 bytes"));
  EXPECT_THAT(refused("weights/w.bin", "-1"),
              HasSubstr("offset of its external data is not a number"));
  EXPECT_THAT(refused("weights/w.bin", "1x"), HasSubstr("is not a number"));
}

}  // namespace
}  // namespace halfscope::onnx_files
