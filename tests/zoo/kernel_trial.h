// SPDX-License-Identifier: MIT
// A kernel trial: a healthy network on a backend with one broken kernel. A diagnosis must blame
// that kernel, and no format, layer or loss scale.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/graph/site.h"

namespace halfscope::zoo {

using Choice = std::function<bool(const SiteInfo&)>;

/// The emulator, but kernels that make a tensor of such a site return `value` for all of its
/// elements. By default it says that its kernels are its own, and lanes have them checked.
class FaultyKernel final : public Backend {
 public:
  FaultyKernel(Choice sites, float value, const char* name = "faulty")
      : sites_(std::move(sites)), value_(value), name_(name) {}
  const char* name() const noexcept override { return name_; }
  std::unique_ptr<Program> compile(const Executable& executable) const override;

 private:
  Choice sites_;
  float value_;
  const char* name_;
};

struct KernelTrial {
  std::string id, what;
  std::string network, plan;  ///< a healthy case, and a plan that it is healthy under
  Choice sites{};             ///< what the broken kernel makes
  float value = 0.0f;         ///< what it returns
};

/// F32 and F51.
std::vector<KernelTrial> kernel_trials();

struct KernelScore {
  std::string id{};
  bool healthy_elsewhere = false;  ///< the same plan does no harm on the emulator
  bool harmful = false;            ///< on the faulty backend it does
  bool alarm = false;              ///< and the verdict says so
  /// The cause is that kernel, both as recorded and after a search, which may find changes that
  /// have another kernel take its place.
  bool blamed = false;
  bool nothing_else = false;  ///< the run leads to no advice about a layer, format or scale
  std::string cause{}, headline{};

  bool right() const noexcept {
    return healthy_elsewhere && harmful && alarm && blamed && nothing_else;
  }
};

KernelScore score_of(const KernelTrial& trial, const std::filesystem::path& folder);

std::string kernel_head();
std::string kernel_row(const KernelScore& score);

}  // namespace halfscope::zoo
