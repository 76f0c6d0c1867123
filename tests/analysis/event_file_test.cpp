// SPDX-License-Identifier: MIT
// The bytes of event files. tests/oracle/tensorboard_export.py reads them with TensorBoard.
#include "analysis/export/event_file.h"

#include <gtest/gtest.h>

#include "analysis/export/tensorboard.h"
#include "tests/analysis/sample_run.h"

namespace halfscope {
namespace {

using namespace test;  // NOLINT: the helpers of these tests

TEST(EventFile, ChecksumsOfRfc3720) {
  // B.4, and the check value of CRC-32C.
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(crc32c(""), 0U);
}

TEST(EventFile, BeginsAsTensorFlowsFilesDo) {
  const TemporaryFolder folder;
  EventFile(folder / "events").close();
  const std::string text = read_text(folder / "events");
  // TensorFlow's own files begin with these 12 bytes, because their first event is as long.
  EXPECT_EQ(text.substr(0, 12), std::string("\x18\0\0\0\0\0\0\0\xa3\x7fK\"", 12));
  EXPECT_EQ(text.substr(12 + 9, 15),
            "\x1a\x0d"
            "brain.Event:2");
  EXPECT_EQ(text.size(), 8 + 4 + 24 + 4U);
}

TEST(EventFile, AScalarByHand) {
  const TemporaryFolder folder;
  EventFile file(folder / "events");
  file.scalar(1.0, 300, "a", 0.1);
  file.close();
  const std::string event(
      "\x09\0\0\0\0\0\0\xf0\x3f"  // wall_time 1.0
      "\x10\xac\x02"              // step 300
      "\x2a\x0a\x0a\x08"          // summary, value
      "\x0a\x01"
      "a"                      // tag
      "\x15\xcd\xcc\xcc\x3d",  // simple_value 0.1
      9 + 3 + 4 + 3 + 5);
  const std::string text = read_text(folder / "events");
  EXPECT_EQ(text.substr(40), tf_record(event));
}

TEST(EventFile, AFolderThatCannotBeWrittenIsAnError) {
  EXPECT_THROW(EventFile("/nonexistent/events"), Error);
}

TEST(Tensorboard, FoldersOfLanesStayInside) {
  RunInfo info = sample_info();
  info.lanes.resize(2);
  while (info.lanes.size() < 6) info.lanes.push_back(info.lanes[0]);
  const char* names[] = {"../../etc", "..", "a/b", "a_b", "", "fp16+conv:e5m2,x=1"};
  for (size_t i = 0; i < 6; ++i) info.lanes[i].name = names[i];
  const std::vector<std::string> folders = tensorboard_folders(RunView(info, RunStatus::complete));
  EXPECT_EQ(folders, (std::vector<std::string>{"_.._.._etc", "_..", "a_b", "a_b-2", "_",
                                               "fp16+conv_e5m2,x=1"}));
}

}  // namespace
}  // namespace halfscope
