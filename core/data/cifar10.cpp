// SPDX-License-Identifier: MIT
// CIFAR-10, binary version (Krizhevsky 2009): records of 3073 bytes, each a label from 0 to 9, then
// 1024 red, 1024 green and 1024 blue bytes, row by row. A file may contain any number of records.
#include <algorithm>
#include <string_view>
#include <system_error>

#include "core/data/dataset.h"
#include "core/data/npy.h"
#include "core/error.h"

namespace halfscope {
namespace {

namespace fs = std::filesystem;

constexpr size_t kImageValues = 3 * 32 * 32;
constexpr size_t kRecord = 1 + kImageValues;
constexpr int kCifarClasses = 10;
constexpr const char* kGetCifarAgain =
    "download CIFAR-10's \"binary version (suitable for C programs)\" again";

void append_records(const fs::path& file, Split& split) {
  const std::vector<uint8_t> bytes = read_file(file);
  if (bytes.empty() || bytes.size() % kRecord != 0) {
    throw Error(file.string() + ": " + std::to_string(bytes.size()) +
                    " bytes are not a multiple of the " + std::to_string(kRecord) +
                    " bytes of a record: truncated, or not CIFAR-10's binary version",
                kGetCifarAgain);
  }
  for (size_t at = 0; at < bytes.size(); at += kRecord) {
    if (bytes[at] >= kCifarClasses) {
      throw Error(file.string() + ": label " + std::to_string(bytes[at]) + " of record " +
                      std::to_string(at / kRecord) + " is not in 0..9",
                  kGetCifarAgain);
    }
    split.labels.push_back(bytes[at]);
    split.pixels.insert(split.pixels.end(), bytes.begin() + static_cast<int64_t>(at) + 1,
                        bytes.begin() + static_cast<int64_t>(at + kRecord));
  }
}

Split load_split(const fs::path& folder, std::string_view prefix) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(prefix) && name.ends_with(".bin")) files.push_back(entry.path());
  }
  if (files.empty()) {
    throw Error(
        "folder '" + folder.string() + "' contains no " + std::string(prefix) + "*.bin",
        "use the folder with CIFAR-10's data_batch_1.bin to data_batch_5.bin and test_batch.bin");
  }
  std::sort(files.begin(), files.end());
  Split split;
  for (const fs::path& file : files) append_records(file, split);
  return split;
}

}  // namespace

Dataset load_cifar10(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) {
    throw Error(fs::exists(folder, ignored) ? "'" + folder.string() + "' is not a folder"
                                            : "folder not found: '" + folder.string() + "'",
                "use the folder with CIFAR-10's binary files, or the embedded data set 'digits'");
  }
  return {.name = "cifar10",
          .sample_shape = {3, 32, 32},
          .classes = kCifarClasses,
          .mean = {0.485, 0.456, 0.406},
          .deviation = {0.229, 0.224, 0.225},
          .train = load_split(folder, "data_batch"),
          .test = load_split(folder, "test_batch")};
}

}  // namespace halfscope
