// SPDX-License-Identifier: MIT
// Runs the built `halfscope` in a temporary folder and keeps its output.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

namespace halfscope::test {

inline std::string text_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

struct Outcome {
  int code = -1;
  std::string out, err;
};

/// A temporary folder that programs run in; removed at the end of the test.
class Bench {
 public:
  Bench() {
    const testing::TestInfo& info = *testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) /
              ("halfscope_cli_" + std::string(info.name()) + "_" + std::to_string(getpid()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  ~Bench() { std::filesystem::remove_all(folder_); }

  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }

  std::string program = HALFSCOPE_PROGRAM;  ///< or one that starts it

  /// `words` are the arguments. `environment` is "NAME=VALUE", or several of them, one a line.
  Outcome run(const std::vector<std::string>& words, const std::string& environment = "",
              const std::string& standard_error = "stderr.txt",
              const std::string& standard_output = "stdout.txt") const {
    return finish(start(words, environment, standard_error, standard_output));
  }

  /// Standard error and output go to the file or device of that name.
  pid_t start(const std::vector<std::string>& words, const std::string& environment = "",
              const std::string& standard_error = "stderr.txt",
              const std::string& standard_output = "stdout.txt") const {
    for (const char* name : {"stdout.txt", "stderr.txt"}) {
      std::error_code ignored;
      std::filesystem::remove(folder_ / name, ignored);
    }
    std::fflush(nullptr);  // or the child would print it once more
    const pid_t child = fork();
    if (child != 0) return child;
    if (chdir(folder_.c_str()) != 0) _exit(126);
    if (freopen(standard_output.c_str(), "w", stdout) == nullptr ||
        freopen(standard_error.c_str(), "w", stderr) == nullptr)
      _exit(126);
    std::vector<char*> arguments{const_cast<char*>(program.c_str())};
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    setenv("HALFSCOPE_CACHE", "cache", 1);  // in the folder, not the user's
    unsetenv("NO_COLOR");                   // from the user's environment
    for (const std::string& entry : lines_of(environment)) {
      const size_t equals = entry.find('=');
      setenv(entry.substr(0, equals).c_str(), entry.c_str() + equals + 1, 1);
    }
    execv(program.c_str(), arguments.data());
    _exit(127);
  }

  Outcome finish(pid_t child) const {
    int status = 0;
    waitpid(child, &status, 0);
    Outcome outcome;
    outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    outcome.out = text_of(folder_ / "stdout.txt");
    outcome.err = text_of(folder_ / "stderr.txt");
    return outcome;
  }

 private:
  std::filesystem::path folder_;
};

/// Arguments of a run that takes a moment: a small network on few samples a step.
inline std::vector<std::string> small_training(std::vector<std::string> more) {
  std::vector<std::string> words{"train",   "--model", "mlp:784-16-10", "--batch", "16",
                                 "--steps", "4",       "--no-eval",     "--quiet"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace halfscope::test
