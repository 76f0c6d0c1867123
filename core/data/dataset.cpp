// SPDX-License-Identifier: MIT
// The list of data sets: what --data SPEC may say. A new one is one loader and one branch here.
#include "core/data/dataset.h"

#include <string_view>

#include "core/error.h"

namespace halfscope {

Dataset load_dataset(const std::string& spec) {
  constexpr std::string_view kSpecs =
      "possible: \"digits\" (embedded) or \"mnist:DIR\" (a folder with the four MNIST files)";
  constexpr std::string_view kMnist = "mnist";
  if (spec == "digits") return make_digits();
  if (spec == kMnist || spec == "mnist:") {
    throw usage_error("data set \"" + spec + "\" lacks its folder", std::string(kSpecs));
  }
  if (spec.starts_with("mnist:")) return load_mnist(spec.substr(kMnist.size() + 1));
  throw usage_error("unknown data set \"" + spec + "\"", std::string(kSpecs));
}

}  // namespace halfscope
