// SPDX-License-Identifier: MIT
// The list of data sets: what --data SPEC may say. A new one is one loader and one row here.
#include "core/data/dataset.h"

#include <string_view>

#include "core/error.h"
#include "core/near_miss.h"

namespace halfscope {
namespace {

struct FolderSet {
  const char* name;
  const char* what;
  Dataset (*load)(const std::filesystem::path&);
};

constexpr FolderSet kFolderSets[] = {
    {"mnist", "a folder with the four MNIST files", load_mnist},
    {"cifar10", "a folder with CIFAR-10's binary files", load_cifar10},
};

std::string known_specs() {
  std::string text = "possible: \"digits\" (embedded)";
  for (const FolderSet& set : kFolderSets)
    text += std::string(", \"") + set.name + ":DIR\" (" + set.what + ")";
  return text;
}

}  // namespace

Dataset load_dataset(const std::string& spec) {
  if (spec == "digits") return make_digits();
  const size_t colon = std::min(spec.find(':'), spec.size());
  const std::string name = spec.substr(0, colon);
  std::vector<std::string> names{"digits"};
  for (const FolderSet& set : kFolderSets) {
    names.push_back(set.name);
    if (name != set.name) continue;
    if (colon + 1 >= spec.size())
      throw usage_error("data set \"" + spec + "\" lacks its folder", known_specs());
    return set.load(spec.substr(colon + 1));
  }
  const std::string near = did_you_mean(name, names);
  throw usage_error("unknown data set \"" + spec + "\"",
                    near + (near.empty() ? "" : " ") + known_specs());
}

}  // namespace halfscope
