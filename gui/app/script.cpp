// SPDX-License-Identifier: MIT
// A script is checked while it runs: a line with unused words is an error.
#include "gui/app/script.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <iomanip>
#include <optional>
#include <sstream>
#include <thread>

#include "analysis/rules/text.h"
#include "analysis/what_if.h"
#include "core/error.h"
#include "core/numeric/formats/float_format.h"

namespace halfscope::gui {
namespace {

using Words = std::vector<std::string>;
constexpr double kMostShift = 300.0;  ///< powers of two: beyond every format
constexpr int kMostFrames = 10'000;
constexpr int kSettle = 3;  ///< frames until hover and layout have followed

class Line {
 public:
  Line(const ScriptStage& stage, int number, Words words)
      : stage_(stage), number_(number), words_(std::move(words)) {}

  void run();

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw usage_error(fmt::format("script, line {}: {}", number_, why),
                      "see the list of script commands in docs/reference/view.md");
  }
  const std::string& word(size_t i) const {
    if (i >= words_.size()) fail("'" + words_[0] + "' needs more arguments");
    return words_[i];
  }
  double number(size_t i) const {
    const std::string& text = word(i);
    double value = 0.0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) {
      fail("'" + text + "' is not a number");
    }
    return value;
  }
  template <typename Enum, size_t N>
  Enum choose(const std::array<Enum, N>& all, const char* (*name)(Enum) noexcept) const {
    for (const Enum each : all) {
      if (word(1) == name(each)) return each;
    }
    std::string known;
    for (const Enum each : all) known += std::string(known.empty() ? "" : ", ") + name(each);
    fail(fmt::format("'{}' is not one of: {}", word(1), known));
  }
  ImVec2 center_of(const std::string& path) const {
    const TrackedItem* item = stage_.tracker.find(path);
    if (item == nullptr) fail("no item named '" + path + "' is visible");
    return item->center();
  }
  void frames(int count) const {
    for (int i = 0; i < count; ++i) stage_.frame();
  }
  void press(bool down) const {
    stage_.input.down = down;
    frames(1);
  }
  int64_t step(size_t i) const;
  void takes(size_t least, size_t most) const;
  bool second_of(const char* first, const char* second) const;
  const RunModel& run_model() const;
  void require_layer(const std::string& path) const;
  void require_node(const std::string& path) const;
  void choose_lane(std::string& lane) const;
  void choose_tensor() const;
  void choose_tab() const;
  bool set_view();
  bool use_pointer();

  const ScriptStage& stage_;
  int number_;
  Words words_;
};

/// Returns a whole number that is not negative.
int64_t Line::step(size_t i) const {
  const double value = number(i);
  if (value < 0.0 || value != std::floor(value) || value > 1e15)
    fail("'" + word(i) + "' is not a step number");
  return static_cast<int64_t>(value);
}

void Line::takes(size_t least, size_t most) const {
  if (words_.size() < least + 1) fail("'" + words_[0] + "' needs more arguments");
  if (words_.size() > most + 1) {
    fail(fmt::format("too many arguments for '{}': remove '{}'", words_[0], words_[most + 1]));
  }
}

/// Returns true if the argument is the second word, false if it is the first.
bool Line::second_of(const char* first, const char* second) const {
  if (word(1) != first && word(1) != second) {
    fail(fmt::format("'{}' must be {} or {}", word(1), first, second));
  }
  return word(1) == second;
}

const RunModel& Line::run_model() const {
  if (!stage_.app.has_run()) fail("'" + words_[0] + "' needs an open run");
  return *stage_.app.run();
}

/// Fails unless the selected lane has the layer.
void Line::require_layer(const std::string& path) const {
  const RunModel& run = run_model();
  const int lane = resolve_selection(run, stage_.app.view()).lane;
  if (run.find_layer(lane, path) < 0) fail("layer not found: '" + path + "'");
}

/// Fails unless a rule of the plan can change the layer's format.
void Line::require_node(const std::string& path) const {
  require_layer(path);
  const RunModel& run = run_model();
  const int lane = resolve_selection(run, stage_.app.view()).lane;
  const LayerModel& layer = run.lane(lane).layers[static_cast<size_t>(run.find_layer(lane, path))];
  if (!can_keep_in_fp32(run.view().lane(lane), layer.info)) {
    fail("'" + path + "' already runs in fp32, or a plan cannot name it");
  }
}

void Line::choose_lane(std::string& lane) const {
  if (!run_model().view().find_lane(word(1))) fail("lane not found: '" + word(1) + "'");
  lane = word(1);
}

void Line::choose_tensor() const {
  const RunModel& run = run_model();
  ViewState& view = stage_.app.view();
  const int lane = resolve_selection(run, view).lane;
  if (lane < 0 || !run.view().find_site(lane, word(1))) fail("tensor not found: '" + word(1) + "'");
  view.site = word(1);
  view.layer = view.site.substr(0, view.site.rfind('.'));
}

void Line::choose_tab() const {
  const auto found =
      std::find_if(kTabs.begin(), kTabs.end(), [&](Tab each) { return word(1) == tab_name(each); });
  if (found == kTabs.end()) fail("unknown tab '" + word(1) + "'");
  stage_.app.show_tab(*found);
}

bool Line::set_view() {
  ViewState& view = stage_.app.view();
  const std::string& command = words_[0];
  const bool two = command == "steps" && words_.size() > 1 && words_[1] != "all";
  const auto one_word = [this, two] { two ? takes(2, 2) : takes(1, 1); };
  if (command == "lane") {
    one_word();
    choose_lane(view.lane);
  } else if (command == "other-lane") {
    one_word();
    choose_lane(view.other_lane);
  } else if (command == "layer") {
    one_word();
    require_layer(word(1));
    view.layer = word(1);
    view.site.clear();
  } else if (command == "tensor") {
    one_word();
    choose_tensor();
  } else if (command == "step") {
    one_word();
    view.cursor = word(1) == "last" ? -1 : step(1);
  } else if (command == "steps") {
    one_word();
    view.range =
        two ? StepRange{static_cast<double>(step(1)), static_cast<double>(step(2))} : StepRange{};
    if (two && view.range.all()) fail("the last step comes before the first");
  } else if (command == "metric") {
    one_word();
    view.metric = choose(kMetrics, metric_name);
  } else if (command == "role") {
    one_word();
    view.role = choose(kRoleViews, role_view_name);
  } else if (command == "rows") {
    one_word();
    view.tensor_rows = second_of("layers", "tensors");
  } else if (command == "screen") {
    one_word();
    view.screen = choose(kScreens, screen_name);
  } else if (command == "window") {
    one_word();
    if (!parse_lens(word(1))) fail("'" + word(1) + "' is not a float format");
    view.window = word(1);
  } else if (command == "wipe") {
    one_word();
    view.wipe = number(1);
    if (view.wipe < 0.0 || view.wipe > 1.0) fail("'" + word(1) + "' is not a number from 0 to 1");
  } else if (command == "smooth") {
    one_word();
    view.smoothing = number(1);
    if (!(view.smoothing >= 0.0 && view.smoothing < 1.0))
      fail("'" + word(1) + "' is not a number from 0 to below 1");
  } else if (command == "note") {
    takes(2, 2);
    if (step(1) >= run_model().step_count())
      fail("the run has no step " + word(1) + ", only " +
           counted(run_model().step_count(), "step"));
    set_note(view, step(1), word(2));
  } else if (command == "tab") {
    one_word();
    choose_tab();
  } else if (command == "keep") {
    one_word();
    require_node(word(1));
    view.edits.keep(word(1), true);
  } else if (command == "scale-shift") {
    one_word();
    if (std::abs(number(1)) > kMostShift) fail("'" + word(1) + "' is out of range");
    view.scale_shift = number(1);
  } else if (command == "lens") {
    one_word();
    if (!parse_format(word(1))) fail("'" + word(1) + "' is not a float format");
    view.lens = word(1);
  } else if (command == "theme") {
    one_word();
    stage_.app.settings().dark = !second_of("dark", "light");
  } else {
    return false;
  }
  frames(kSettle);
  return true;
}

bool Line::use_pointer() {
  ScriptInput& input = stage_.input;
  const std::string& command = words_[0];
  if (command == "hover" || command == "click" || command == "double-click") {
    takes(1, 3);
    if (words_.size() == 3) fail("'" + command + "' takes two offsets or none");
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
    takes(3, 3);
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
    takes(2, 2);
    input.mouse = center_of(word(1));
    frames(1);
    input.wheel = static_cast<float>(number(2));
    frames(kSettle);
  } else if (command == "type") {
    takes(1, 1);
    input.typed = word(1);
    frames(kSettle);
  } else {
    return false;
  }
  return true;
}

void Line::run() {
  if (set_view() || use_pointer()) return;
  const std::string& command = words_[0];
  if (command == "frames") {
    takes(1, 1);
    if (step(1) > kMostFrames) fail(fmt::format("at most {} frames are allowed", kMostFrames));
    frames(static_cast<int>(step(1)));
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
    } else if (word(1) == "lab") {
      frames(1);
      while (stage_.app.lab().moving) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        frames(1);
      }
    } else {
      fail("'" + word(1) + "' must be run, report, trial or lab");
    }
  } else if (command == "picture") {
    frames(kSettle);
    stage_.save_picture(word(1));
  } else if (command == "svg") {
    takes(2, 2);
    const std::optional<PanelPicture> panel = find_panel(word(1));
    if (!panel) fail(fmt::format("'{}' is not one of: {}", word(1), panel_names()));
    if (!is_of_study(*panel)) static_cast<void>(run_model());
    frames(kSettle);
    stage_.check_file(word(2));
    stage_.app.save_svg(*panel, word(2));
    frames(1);
    if (!stage_.app.svg_problem().empty()) fail(stage_.app.svg_problem());
  } else {
    fail("unknown command '" + command + "'");
  }
}

}  // namespace

void wait_for_run(const ScriptStage& stage, bool with_report) {
  const auto ready = [&] {
    if (stage.app.shows_study()) return true;
    const RunModel* run = stage.app.has_run() ? stage.app.run() : nullptr;
    return run != nullptr && (!with_report || run->report() != nullptr) &&
           !stage.app.reads_others();
  };
  stage.frame();
  while (!ready()) {
    if (!stage.app.load_error().empty()) {
      throw Error(stage.app.load_error(), stage.app.load_hint());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    stage.frame();
  }
  if (const std::optional<Error> error = stage.app.others_error()) throw *error;
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
