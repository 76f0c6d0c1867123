// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>

#include "core/data/dataset.h"
#include "core/error.h"
#include "tests/data/test_files.h"

namespace halfscope {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Text : public testing::Test {
 protected:
  std::string write(const std::string& text) {
    const std::filesystem::path file = files_ / "input.txt";
    std::ofstream(file, std::ios::binary) << text;
    return file.string();
  }

 private:
  test::TemporaryFolder files_;
};

TEST_F(Text, TokensAreTheDifferentBytesInAscendingOrder) {
  // a b c space \xff: 5 different bytes; space is the smallest, \xff the largest.
  const Dataset data = load_dataset("text:" +
                                    write("abc a\xff"
                                          "bca") +
                                    ",sequence=4");
  EXPECT_EQ(data.classes, 5);
  EXPECT_TRUE(data.sample_shape.empty());
  ASSERT_EQ(data.train.arrays.size(), 2u);
  EXPECT_EQ(data.train.arrays[0].name, "tokens");
  EXPECT_EQ(data.train.arrays[0].sample_shape, Shape{4});
  EXPECT_THAT(data.train.arrays[0].integers, ElementsAre(1, 2, 3, 0));
  EXPECT_EQ(data.train.arrays[1].name, "labels");
  EXPECT_THAT(data.train.arrays[1].integers, ElementsAre(2, 3, 0, 1));
  EXPECT_THAT(data.test.arrays[0].integers, ElementsAre(1, 4, 2, 3));
  EXPECT_THAT(data.test.arrays[1].integers, ElementsAre(4, 2, 3, 1));
}

TEST_F(Text, TheLastTenthIsForTests) {
  const Dataset data = load_dataset("text:" + write(std::string(2000, 'x') + "y"));
  EXPECT_EQ(data.train.size() + data.test.size(), 15);  // 2000 / 128
  EXPECT_EQ(data.test.size(), 1);
  EXPECT_EQ(load_text(write(std::string(301, 'x')), 10).test.size(), 3);
}

TEST_F(Text, BadTextsAreRefused) {
  const auto refusal = [](const std::string& spec) {
    try {
      load_dataset(spec);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  const std::string file = write("too short");
  EXPECT_THAT(refusal("text:" + file), HasSubstr("has 9 bytes, which are too few"));
  EXPECT_THAT(refusal("text:" + file + ",sequence=0"), HasSubstr("'0' is not a length"));
  EXPECT_THAT(refusal("text:" + file + ",sequence=4x"), HasSubstr("'4x' is not a length"));
  EXPECT_THAT(refusal("text:"), HasSubstr("needs a file"));
  EXPECT_THAT(refusal("text:" + file + ".missing"), HasSubstr("cannot read"));
  EXPECT_THAT(refusal("text:" + write("")), HasSubstr("has 0 bytes"));
}

}  // namespace
}  // namespace halfscope
