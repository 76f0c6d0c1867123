// SPDX-License-Identifier: MIT
// StudyView: an immutable snapshot of a study file, finished or still being written. A study is
// many trainings that differ in some settings (its axes): plans, seeds, loss scales ... Reports and
// the viewer read this and nothing else; study_file.h writes the file
// (docs/reference/sweep.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace halfscope {

/// A relative gap to the baseline's loss from which a trial counts as failing, if the study does
/// not choose one.
inline constexpr double kStudyTolerance = 0.05;
/// Most points of TrialResult::curve.
inline constexpr size_t kMostCurvePoints = 128;

/// A setting that differs between trials, and its values as compact texts: "mixed_float16", "7".
struct StudyAxis {
  std::string name;  ///< the key of the setting in configuration files: "plan", "loss_scale"
  std::vector<std::string> values{};

  bool operator==(const StudyAxis&) const = default;
};

struct StudyInfo {
  std::string name{};      ///< title; "" for none
  std::string json{};      ///< study.json as it was read
  std::string version{};   ///< of the program
  std::string baseline{};  ///< plan of the baseline trials; "" for none
  double tolerance = kStudyTolerance;
  std::vector<StudyAxis> axes{};  ///< in the order of study.json

  bool operator==(const StudyInfo&) const = default;
};

/// A training of the study, known before it runs.
struct TrialSpec {
  std::string hash{};  ///< 16 hexadecimal digits
  bool baseline = false;
  std::vector<int> places{};  ///< by axis: index of the value; -1: the axis does not apply
  /// Index of the baseline trial that this one is compared with.
  std::optional<int> base = std::nullopt;
  std::string command{};  ///< repeats the trial, in the folder of the study
  std::string run{};      ///< its run file, relative to that folder
};

enum class TrialStatus : uint8_t {
  waiting,  ///< not finished
  done,     ///< trained, well or badly
  failed,   ///< could not be trained: out of memory, a missing file ...
};
const char* trial_status_name(TrialStatus status) noexcept;  // "waiting"

struct CurvePoint {
  float step = 0.0F;
  float loss = 0.0F;  ///< NaN or infinite where the loss was
};

/// The first overflow or non-finite value.
struct FirstBad {
  int64_t step = 0;
  std::string layer{};  ///< "conv2"
  std::string role{};   ///< "activation"
};

/// Results of a trial. NaN and "" mean "not measured" or "none".
struct TrialResult {
  TrialStatus status = TrialStatus::waiting;
  /// Why the trial failed. Of a finished trial: why the training stopped before its last step.
  std::string error{};
  int64_t steps = 0, skipped = 0;
  /// Mean over the last fifth of the steps. NaN of a finished trial: a loss there was not finite.
  double loss = std::numeric_limits<double>::quiet_NaN();
  double test_loss = std::numeric_limits<double>::quiet_NaN();
  double accuracy = std::numeric_limits<double>::quiet_NaN();
  std::optional<FirstBad> first_bad = std::nullopt;
  std::string cause{};  ///< rule of the worst finding
  std::string cause_layer{};
  std::string headline{};  ///< that finding in a sentence
  /// Mean width of the numbers that a training step reads and writes, in bits.
  double bits = std::numeric_limits<double>::quiet_NaN();
  std::vector<CurvePoint> curve{};  ///< at most kMostCurvePoints; the first is the first step
  // May differ between two runs of the same trial.
  double seconds = std::numeric_limits<double>::quiet_NaN();
  std::string worker{};
};

/// A trial as it stands, and how it compares with its baseline.
struct TrialRow : TrialSpec, TrialResult {
  int trial = 0;  ///< its index
  /// (loss - baseline's loss) / |baseline's loss|; the divisor is at least kLearnedShare of the
  /// baseline's first loss. NaN without a finished baseline, or if either loss is not finite.
  double gap = std::numeric_limits<double>::quiet_NaN();
  /// A finished trial whose loss is not finite, that stopped early by an error, or whose gap
  /// exceeds the study's tolerance.
  bool fails = false;
  std::string why{};  ///< why it fails: "its loss is not finite"

  bool done() const noexcept { return status == TrialStatus::done; }
};

class StudyView {
 public:
  /// Reads a study file, or `study.sqlite` in a folder, in one transaction. Throws Error if it is
  /// missing, not a study file, damaged, or of another format.
  static StudyView open(const std::filesystem::path& file_or_folder);

  /// Creates a view in memory. Numbers the rows, and computes gap, fails and why. Throws Error if
  /// places or bases do not fit.
  StudyView(StudyInfo info, std::vector<TrialRow> rows);

  const StudyInfo& info() const noexcept { return info_; }
  std::span<const StudyAxis> axes() const noexcept { return info_.axes; }
  /// In the order of the study: the cross product of the axes, the last one fastest, then
  /// baselines.
  std::span<const TrialRow> trials() const noexcept { return trials_; }
  /// Returns the index of the axis of that name.
  std::optional<size_t> find_axis(const std::string& name) const;
  /// Returns the text of a trial's value on an axis; "" if the axis does not apply to it.
  std::string value(const TrialRow& trial, size_t axis) const;
  /// Returns the plan that a trial trains under: its value on the axis `plan`, or the baseline's.
  std::string plan(const TrialRow& trial) const;
  size_t count(TrialStatus status) const;

 private:
  StudyInfo info_;
  std::vector<TrialRow> trials_;
};

/// Returns the study file that a file or a folder stands for.
std::filesystem::path study_file_of(const std::filesystem::path& file_or_folder);
/// Returns whether that is a folder with a study file, which may be damaged, or a file with a study
/// file's name or mark. Does not throw.
bool is_study(const std::filesystem::path& file_or_folder) noexcept;

}  // namespace halfscope
