// SPDX-License-Identifier: MIT
// The table of settings: every row of every command goes from words to settings and back, and from
// a configuration file to settings and back.
#include "cli/args/settings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "cli/args/config_file.h"
#include "cli/args/setting.h"
#include "tests/cli/bad_inputs.h"

namespace halfscope {
namespace {

using Words = std::vector<std::string>;

/// A text that each setting takes, in the form in which it is printed, and that is not the default.
const std::map<std::string, std::string>& samples() {
  static const std::map<std::string, std::string> texts{
      {"network", "mlp:6-5-3"},
      {"model", "mlp:6-5-3"},
      {"loss", "mse"},
      {"running_variance", "population"},
      {"input", "x.npy"},
      {"data", "a.npz"},
      {"random_input", "7"},
      {"normalize", "raw"},
      {"labels", "l.npy"},
      {"scores", "logits"},
      {"ignore_label", "-100"},
      {"limit", "5"},
      {"batch", "12"},
      {"dimension", "sequence=64"},
      {"trainable", "*.scale"},
      {"frozen", "embedding.*"},
      {"untie", "decoder.weight"},
      {"init", "w.npz"},
      {"seed", "9"},
      {"steps", "17"},
      {"optimizer", "adam:lr=0.003,beta1=0.8"},
      {"schedule", "cosine:floor=0.1,warmup=5"},
      {"param_group", "*.bias:lr=0.5,weight_decay=0"},
      {"clip_norm", "0.25"},
      {"micro_batches", "4"},
      {"accumulate_grads", "fp16"},
      {"ranks", "8"},
      {"reduce", "tree:format=bf16,vote=one"},
      {"optimizer_state", "bf16"},
      {"optimizer_compute", "bf16"},
      {"clip_format", "fp16"},
      {"ema", "0.99:form=average,format=bf16"},
      {"early_stop", "2"},
      {"lanes", "float32,emulated:bfloat16"},
      {"backend", "cuda"},
      {"fp32", "conv*"},
      {"accumulate", "kahan"},
      {"loss_scale", "static:1024"},
      {"every", "3"},
      {"eval_every", "10"},
      {"errors_every", "6"},
      {"compare", "a,b"},
  };
  return texts;
}

/// Returns whether the setting is printed as part of another one.
bool is_printed_elsewhere(const std::string& key) { return key == "lr" || key == "plan"; }

class EachCommand : public testing::TestWithParam<Commands> {};

TEST_P(EachCommand, HasASampleForEverySettingThatIsKept) {
  for (const Setting* row : settings_of(GetParam())) {
    EXPECT_FALSE(row->help.empty()) << row->flag;
    const bool needs = row->is_in_files() && row->value.name != nullptr;
    if (needs && !is_printed_elsewhere(row->key())) {
      EXPECT_TRUE(samples().contains(row->key())) << row->flag;
    }
  }
}

TEST_P(EachCommand, HasEachFlagOnce) {
  std::set<std::string> flags;
  for (const Setting* row : settings_of(GetParam())) {
    EXPECT_TRUE(flags.insert(row->flag).second) << row->flag;
    for (const std::string& key : row->replaces) {
      EXPECT_NE(find_setting(GetParam(), key), nullptr) << row->flag << " replaces " << key;
    }
  }
}

TEST_P(EachCommand, ReadsTheWordsThatItKeeps) {
  for (const Setting* row : settings_of(GetParam())) {
    const bool kept = row->kept == Kept::settings || row->kept == Kept::always;
    const bool of_lanes = row->kept == Kept::lanes || row->kept == Kept::always_lanes;
    if ((!kept && !of_lanes) || is_printed_elsewhere(row->key())) continue;
    SCOPED_TRACE(row->flag);
    Words words;
    if (!row->is_argument()) words.push_back(row->flag);
    if (row->value.name != nullptr) words.push_back(samples().at(row->key()));
    const Settings settings = parse_settings(GetParam(), words);
    const Words all = of_lanes ? lane_settings_words(settings) : settings_words(settings);
    EXPECT_NE(std::search(all.begin(), all.end(), words.begin(), words.end()), all.end());
    const Settings again = parse_settings(GetParam(), all);
    EXPECT_EQ(of_lanes ? lane_settings_words(again) : settings_words(again), all);
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, EachCommand,
                         testing::Values(kTrain, kRun, kConvert, kDoctor, kInspect));

class EachFile : public testing::TestWithParam<Commands> {};

TEST_P(EachFile, IsPrintedAsItIsRead) {
  const test::Bench bench;
  Settings settings = default_settings(GetParam());
  settings.config = bench / "c.json";
  for (const Setting* row : settings_of(GetParam())) {
    if (!row->is_in_files() || is_printed_elsewhere(row->key())) continue;
    SCOPED_TRACE(row->flag);
    const auto sample = samples().find(row->key());
    const Json value = row->value.name == nullptr ? Json(true) : Json(sample->second);
    const Json file{{"schema", config_json(settings)["schema"]}, {row->key(), value}};
    test::write_text(settings.config, file.dump());
    Settings read = settings;
    read_config(read, {});
    EXPECT_EQ(read.from_file, std::set<std::string>{row->key()});
    const Json printed = config_json(read);
    test::write_text(settings.config, printed.dump());
    Settings again = settings;
    read_config(again, {});
    EXPECT_EQ(config_json(again), printed);
    EXPECT_NE(printed, config_json(settings)) << "the file has changed nothing";
    EXPECT_EQ(row->value.texts(again), row->value.texts(read));
    EXPECT_NE(row->value.texts(read), row->value.texts(settings));
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, EachFile, testing::Values(kTrain, kRun));

// The command line overrides the file's setting, but the file is still checked.
TEST(SettingsFile, KeysThatAreReplacedAreOnlyChecked) {
  const test::Bench bench;
  Settings settings = default_settings(kTrain);
  settings.config = bench / "c.json";
  test::write_text(settings.config,
                   R"({"schema": "halfscope.train-config/1", "steps": 5, "batch": 7})");
  read_config(settings, {"steps"});
  EXPECT_EQ(settings.steps, 200);
  EXPECT_EQ(settings.batch, 7);
  EXPECT_EQ(settings.from_file, std::set<std::string>{"batch"});
  test::write_text(settings.config, R"({"schema": "halfscope.train-config/1", "steps": "x"})");
  EXPECT_THROW(read_config(settings, {"steps"}), Error);
}

// An error names the keys that it is about, if they are the file's.
TEST(SettingsFile, ErrorsNameKeysOfTheFileOnly) {
  Settings settings = default_settings(kTrain);
  settings.config = "c.json";
  settings.from_file = {"batch", "steps"};
  const auto text = [&](std::vector<std::string> keys) {
    return std::string(named(settings, usage_error("no", "hint").about(std::move(keys))).what());
  };
  EXPECT_EQ(text({"batch"}), "c.json: \"batch\": no");
  EXPECT_EQ(text({"batch", "micro_batches"}), "c.json: \"batch\": no");
  EXPECT_EQ(text({"steps", "batch"}), "c.json: \"steps\" and \"batch\": no");
  EXPECT_EQ(text({"seed"}), "no");
  EXPECT_EQ(text({}), "no");
}

}  // namespace
}  // namespace halfscope
