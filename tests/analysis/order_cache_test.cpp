// SPDX-License-Identifier: MIT
#include "analysis/order_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>

namespace halfscope {
namespace {

namespace fs = std::filesystem;

/// Blocks of `block` summands and the sum so far.
SummationTree chain(int leaves, int block) {
  SummationTree tree{.leaves = leaves, .root = 0, .children = {}};
  tree.children.resize(static_cast<size_t>(leaves));
  int sum = -1;
  for (int first = 0; first < leaves; first += block) {
    std::vector<int> children(static_cast<size_t>(std::min(block, leaves - first)));
    std::iota(children.begin(), children.end(), first);
    if (sum >= 0) children.push_back(sum);
    tree.children.push_back(children);
    sum = tree.root = static_cast<int>(tree.children.size()) - 1;
  }
  return tree;
}

ProbedOrder found(SummationTree tree) {
  return {.tree = std::move(tree), .why = "", .of_kernel = true};
}

class OrderCache : public testing::Test {
 protected:
  void SetUp() override {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    folder_ = fs::path(testing::TempDir()) / ("halfscope-" + name + std::to_string(::getpid()));
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string text_of(const fs::path& file) {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  static void write(const fs::path& file, const std::string& text) {
    std::ofstream(file, std::ios::binary) << text;
  }

  fs::path folder_;
};

TEST_F(OrderCache, ATreeComesBackAsItWas) {
  OrderFiles files(folder_);
  for (const auto& [leaves, block] : {std::pair{1, 2}, {2, 2}, {7, 3}, {4096, 2}, {4096, 16}}) {
    const SummationTree tree = leaves == 1 ? SummationTree{1, 0, {{}}} : chain(leaves, block);
    const std::string key = std::to_string(leaves) + "|" + std::to_string(block);
    EXPECT_FALSE(files.find(key));
    files.store(key, found(tree));
    const std::optional<ProbedOrder> kept = OrderFiles(folder_).find(key);
    ASSERT_TRUE(kept && kept->tree) << key;
    EXPECT_EQ(kept->tree->leaves, tree.leaves);
    EXPECT_EQ(kept->tree->root, tree.root);
    EXPECT_EQ(kept->tree->children, tree.children);
    EXPECT_EQ(kept->why, "");
    EXPECT_LT(fs::file_size(files.file(key)), 64u * 1024u);
  }
  size_t all = 0;
  for (const auto& entry : fs::directory_iterator(folder_ / "kernel-orders")) {
    EXPECT_EQ(entry.path().extension(), ".json") << "nothing is left over";
    ++all;
  }
  EXPECT_EQ(all, 5u);
}

TEST_F(OrderCache, SoDoesWhyThereIsNone) {
  OrderFiles files(folder_);
  files.store("key", {.tree = {}, .why = "not a summation tree: \"7\"", .of_kernel = true});
  const std::optional<ProbedOrder> kept = files.find("key");
  ASSERT_TRUE(kept);
  EXPECT_FALSE(kept->tree);
  EXPECT_EQ(kept->why, "not a summation tree: \"7\"");
}

TEST_F(OrderCache, AnotherKeyHasNothing) {
  OrderFiles files(folder_);
  files.store("H200|cuBLASLt 13.1.0", found(chain(4, 2)));
  EXPECT_FALSE(files.find("H200|cuBLASLt 13.1.1"));
  EXPECT_FALSE(files.find(""));
  // Stored under the name of another key, as after a hash collision.
  fs::copy_file(files.file("H200|cuBLASLt 13.1.0"), files.file("other"));
  EXPECT_FALSE(files.find("other"));
  files.store("other", found(chain(5, 2)));
  EXPECT_EQ(files.find("other")->tree->leaves, 5);
}

TEST_F(OrderCache, DamagedFilesAreAsIfTheyWereNotThere) {
  OrderFiles files(folder_);
  files.store("key", found(chain(6, 2)));
  const std::string good = text_of(files.file("key"));
  const auto json = nlohmann::json::parse(good);
  std::vector<std::string> bad{"",
                               "{",
                               "[]",
                               "null",
                               "\xff\xfe",
                               std::string(5 << 20, ' '),
                               good.substr(0, good.size() / 2)};
  const auto with = [&](const char* name, const nlohmann::json& value) {
    nlohmann::json other = json;
    other[name] = value;
    bad.push_back(other.dump());
  };
  with("schema", "halfscope.kernel-order/2");
  with("key", 7);
  with("leaves", 5);  // summand 5 would be a sum of nothing
  with("leaves", 7);
  with("leaves", -1);
  with("leaves", 0);
  with("leaves", 1e300);
  with("leaves", 1 << 30);
  with("leaves", "6");
  with("root", 6);  // below the root of all
  with("root", 99);
  with("root", 2.5);
  with("sums", 3);
  with("sums", nlohmann::json::array());
  with("sums", {{0, 1}, {2, 6}, {3, 7}, {4, 8}});
  with("none", "");
  with("none", 3);
  const auto with_sum = [&](const nlohmann::json& sum) {
    nlohmann::json other = json;
    other["sums"][0] = sum;
    bad.push_back(other.dump());
  };
  with_sum({0});
  with_sum({0, 0});
  with_sum({0, 2});
  with_sum({0, -1});
  with_sum({0, 18446744073709551615u});
  with_sum({0, 8});  // a sum with itself
  with_sum({"0", "1"});
  with_sum(nlohmann::json::array());
  for (const std::string& text : bad) {
    write(files.file("key"), text);
    EXPECT_FALSE(files.find("key")) << text.substr(0, 200);
    files.store("key", found(chain(6, 2)));
    EXPECT_EQ(text_of(files.file("key")), good);
  }
  fs::remove(files.file("key"));
  fs::create_directory(files.file("key"));
  EXPECT_FALSE(files.find("key"));
  files.store("key", found(chain(6, 2)));
}

TEST_F(OrderCache, WithoutAFolderNothingIsKept) {
  OrderFiles none({});
  none.store("key", found(chain(4, 2)));
  EXPECT_FALSE(none.find("key"));
  write(folder_, "a file, not a folder");
  OrderFiles no_folder(folder_);
  no_folder.store("key", found(chain(4, 2)));
  EXPECT_FALSE(no_folder.find("key"));
  OrderFiles no_right("/proc/halfscope");  // no user running the test may write there
  no_right.store("key", found(chain(4, 2)));
  EXPECT_FALSE(no_right.find("key"));
}

class Variables {
 public:
  explicit Variables(std::initializer_list<std::pair<const char*, const char*>> set) {
    for (const char* name : kNames) {
      const char* value = std::getenv(name);
      before_.emplace_back(value == nullptr ? std::optional<std::string>() : value);
      ::unsetenv(name);
    }
    for (const auto& [name, value] : set) ::setenv(name, value, 1);
  }
  ~Variables() {
    for (size_t i = 0; i < before_.size(); ++i) {
      ::unsetenv(kNames[i]);
      if (before_[i]) ::setenv(kNames[i], before_[i]->c_str(), 1);
    }
  }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

 private:
  static constexpr const char* kNames[] = {"HALFSCOPE_CACHE", "XDG_CACHE_HOME", "HOME"};
  std::vector<std::optional<std::string>> before_;
};

fs::path folder_with(std::initializer_list<std::pair<const char*, const char*>> set) {
  const Variables variables(set);
  return cache_folder();
}

TEST(CacheFolder, IsTheFirstThatIsNamed) {
  EXPECT_EQ(folder_with({}), "");
  EXPECT_EQ(folder_with({{"HOME", ""}}), "");
  EXPECT_EQ(folder_with({{"HOME", "/u"}}), "/u/.cache/halfscope");
  EXPECT_EQ(folder_with({{"HOME", "/u"}, {"XDG_CACHE_HOME", "/c"}}), "/c/halfscope");
  EXPECT_EQ(folder_with({{"HOME", "/u"}, {"XDG_CACHE_HOME", "c"}}), "/u/.cache/halfscope");
  EXPECT_EQ(folder_with({{"XDG_CACHE_HOME", "/c"}, {"HALFSCOPE_CACHE", "/h"}}), "/h");
  EXPECT_EQ(folder_with({{"HOME", "/u"}, {"HALFSCOPE_CACHE", ""}}), "");
}

}  // namespace
}  // namespace halfscope
