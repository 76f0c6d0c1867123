// SPDX-License-Identifier: MIT
#include "gui/app/script.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <iomanip>
#include <optional>
#include <sstream>
#include <thread>

#include "core/error.h"

namespace halfscope::gui {
namespace {

using Words = std::vector<std::string>;
constexpr int kSettle = 3;  ///< frames until hover and layout have followed

class Line {
 public:
  Line(const ScriptStage& stage, int number, Words words)
      : stage_(stage), number_(number), words_(std::move(words)) {}

  void run();

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw usage_error(fmt::format("script, line {}: {}", number_, why),
                      "docs/contracts.md lists the commands of scripts");
  }
  const std::string& word(size_t i) const {
    if (i >= words_.size()) fail(words_[0] + " needs more words");
    return words_[i];
  }
  double number(size_t i) const {
    const std::string& text = word(i);
    double value = 0.0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) fail(text + " is no number");
    return value;
  }
  template <typename Enum, size_t N>
  Enum choose(const std::array<Enum, N>& all, const char* (*name)(Enum) noexcept) const {
    for (const Enum each : all) {
      if (word(1) == name(each)) return each;
    }
    std::string known;
    for (const Enum each : all) known += std::string(known.empty() ? "" : ", ") + name(each);
    fail(fmt::format("{} is none of: {}", word(1), known));
  }
  ImVec2 center_of(const std::string& path) const {
    const TrackedItem* item = stage_.tracker.find(path);
    if (item == nullptr) fail("nothing is drawn as " + path);
    return item->center();
  }
  void frames(int count) const {
    for (int i = 0; i < count; ++i) stage_.frame();
  }
  void press(bool down) const {
    stage_.input.down = down;
    frames(1);
  }
  bool set_view();
  bool use_hands();

  const ScriptStage& stage_;
  int number_;
  Words words_;
};

bool Line::set_view() {
  ViewState& view = stage_.app.view();
  const std::string& command = words_[0];
  if (command == "lane") {
    view.lane = word(1);
  } else if (command == "other-lane") {
    view.other_lane = word(1);
  } else if (command == "layer") {
    view.layer = word(1);
    view.site.clear();
  } else if (command == "tensor") {
    view.site = word(1);
    view.layer = view.site.substr(0, view.site.rfind('.'));
  } else if (command == "step") {
    view.cursor = word(1) == "last" ? -1 : static_cast<int64_t>(number(1));
  } else if (command == "steps") {
    view.range = word(1) == "all" ? StepRange{} : StepRange{number(1), number(2)};
  } else if (command == "metric") {
    view.metric = choose(kMetrics, metric_name);
  } else if (command == "role") {
    view.role = choose(kRoleViews, role_view_name);
  } else if (command == "rows") {
    view.tensor_rows = word(1) == "tensors";
  } else if (command == "tab") {
    static constexpr std::pair<const char*, Tab> kTabs[] = {
        {"recommendations", Tab::recommendations},
        {"events", Tab::events},
        {"details", Tab::layer_details},
        {"lab", Tab::float_lab},
        {"compare", Tab::compare},
        {"log", Tab::log}};
    const auto found = std::find_if(std::begin(kTabs), std::end(kTabs),
                                    [&](const auto& each) { return word(1) == each.first; });
    if (found == std::end(kTabs)) fail("there is no tab " + word(1));
    view.tab = found->second;
  } else if (command == "keep") {
    view.edits.keep(word(1), true);
  } else if (command == "scale-shift") {
    view.scale_shift = number(1);
  } else if (command == "lens") {
    view.lens = word(1);
  } else if (command == "theme") {
    stage_.app.settings().dark = word(1) != "light";
  } else {
    return false;
  }
  frames(kSettle);
  return true;
}

bool Line::use_hands() {
  ScriptInput& input = stage_.input;
  const std::string& command = words_[0];
  if (command == "hover" || command == "click" || command == "double-click") {
    input.mouse = center_of(word(1));
    if (words_.size() > 3) {
      input.mouse.x += static_cast<float>(number(2));
      input.mouse.y += static_cast<float>(number(3));
    }
    frames(kSettle);
    const int clicks = command == "hover" ? 0 : command == "click" ? 1 : 2;
    for (int i = 0; i < clicks; ++i) {
      press(true);
      press(false);
    }
    if (clicks > 0) frames(kSettle);
  } else if (command == "drag") {
    const ImVec2 from = center_of(word(1));
    input.mouse = from;
    frames(kSettle);
    press(true);
    constexpr int kMoves = 8;
    for (int i = 1; i <= kMoves; ++i) {
      const float part = static_cast<float>(i) / kMoves;
      input.mouse = {from.x + static_cast<float>(number(2)) * part,
                     from.y + static_cast<float>(number(3)) * part};
      frames(1);
    }
    press(false);
    frames(kSettle);
  } else if (command == "wheel") {
    input.mouse = center_of(word(1));
    frames(1);
    input.wheel = static_cast<float>(number(2));
    frames(kSettle);
  } else if (command == "type") {
    input.typed = word(1);
    frames(kSettle);
  } else {
    return false;
  }
  return true;
}

void Line::run() {
  if (set_view() || use_hands()) return;
  const std::string& command = words_[0];
  if (command == "frames") {
    frames(static_cast<int>(std::clamp(number(1), 0.0, 10000.0)));
  } else if (command == "wait") {
    if (word(1) == "run" || word(1) == "report") {
      wait_for_run(stage_, word(1) == "report");
    } else if (word(1) == "trial") {
      while (stage_.app.trial() != nullptr && stage_.app.trial()->running()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        frames(1);
      }
      frames(1);
      wait_for_run(stage_, true);
    } else {
      fail("can wait for run, report or trial, not for " + word(1));
    }
  } else if (command == "picture") {
    frames(kSettle);
    stage_.save_picture(word(1));
  } else {
    fail("there is no command " + command);
  }
}

}  // namespace

void wait_for_run(const ScriptStage& stage, bool with_report) {
  const auto ready = [&] {
    const RunModel* run = stage.app.run();
    return run != nullptr && (!with_report || run->report() != nullptr);
  };
  stage.frame();
  while (!ready()) {
    if (!stage.app.load_error().empty()) {
      throw Error(stage.app.load_error(), stage.app.load_hint());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    stage.frame();
  }
  for (int i = 0; i < kSettle; ++i) stage.frame();
}

void run_script(const std::string& text, const ScriptStage& stage) {
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream stream(line);
    Words words;
    std::string word;
    while (stream >> std::quoted(word)) {
      if (word.starts_with('#')) break;
      words.push_back(word);
    }
    if (!words.empty()) Line(stage, number, std::move(words)).run();
  }
}

}  // namespace halfscope::gui
