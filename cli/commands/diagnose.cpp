// SPDX-License-Identifier: MIT
// `halfscope diagnose`: the findings of a run and the plan that would cure one of its lanes.
#include <fmt/format.h>
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "analysis/report/report.h"
#include "analysis/rules/recommend.h"
#include "cli/args/arguments.h"
#include "cli/args/config_file.h"
#include "cli/args/network.h"
#include "cli/args/recording.h"
#include "cli/args/zoo_case.h"
#include "cli/commands/command.h"
#include "cli/mpi/job.h"
#include "cli/tasks/advice_beside_plans.h"
#include "cli/tasks/advised_fix.h"
#include "cli/tasks/audit.h"
#include "cli/tasks/dealt_trials.h"
#include "cli/tasks/diagnosed_run.h"
#include "cli/tasks/training.h"
#include "cli/tasks/twin_repeat.h"
#include "cli/tasks/verify.h"
#include "cli/terminal/ending.h"
#include "cli/terminal/output.h"
#include "core/error.h"
#include "core/models/models.h"
#include "core/near_miss.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

constexpr size_t kIndent = 2, kHanging = 4;

struct DiagnoseOptions {
  /// The run file, or the network that is recorded with `recorded`.
  std::string run, lane, out, fail_on, budget, fix_as, record;
  std::optional<Settings> recorded{};
  std::optional<TwinFolder> twin{};  ///< whose training `recorded` is
  std::string line{};                ///< the command line
  bool audit = false, verify = false, no_twins = false, force = false, json = false, quiet = false;
  int threads = 0;
};

Error budget_error(const std::string& text) {
  return usage_error("--budget " + text + ": neither a number of trials nor a time",
                     "write 40 for trials, 90s for seconds or 10m for minutes");
}

/// "40" is a number of trials, "90s" and "10m" are times.
TrialBudget parse_budget(const std::string& text) {
  if (text.empty()) return {};
  const char unit = text.back();
  if (unit != 's' && unit != 'm') {
    try {
      return {.trials = static_cast<int64_t>(parse_integer("--budget", text, 1, 1000000))};
    } catch (const Error&) {
      throw budget_error(text);
    }
  }
  try {
    const double number = parse_number("--budget", text.substr(0, text.size() - 1), 0.001, 1e7);
    return {.seconds = unit == 'm' ? 60.0 * number : number};
  } catch (const Error&) {
    throw budget_error(text);
  }
}

int lane_of(const RunView& run, const DiagnoseOptions& options, const Report& report) {
  if (options.lane.empty()) {
    const int lane = advised_lane(run, report);
    if (lane < 0) throw Error("the run has no lanes");
    return lane;
  }
  if (const std::optional<int> found = run.find_lane(options.lane)) return *found;
  std::vector<std::string> names;
  for (const LaneInfo& each : run.info().lanes) names.push_back(each.name);
  throw usage_error("the run has no lane '" + options.lane + "'",
                    did_you_mean(options.lane, names, "lanes: " + comma_list(names)));
}

/// Returns the arguments that repeat the training, except outputs, threads and lanes. Runs of other
/// programs and old files have no settings.
std::vector<std::string> settings_of(const RunInfo& info) {
  if (!info.settings.empty()) return info.settings;
  return {"--model",     info.model,
          "--data",      info.data,
          "--optimizer", info.optimizer,
          "--steps",     std::to_string(info.steps_planned),
          "--batch",     std::to_string(info.batch),
          "--seed",      std::to_string(info.seed)};
}

/// Returns the default of --loss-scale for the plan.
std::string usual_loss_scale(const std::string& plan_json) {
  return needs_loss_scaling(plan_from_json(plan_json))
             ? loss_scale_text(parse_loss_scale("dynamic"))
             : "none";
}

/// The change to try next: the proved one if there is a proof, else the advice.
struct NextTry {
  PlanEdit edit;
  std::string plan_json;
  std::string loss_scale;  ///< as --loss-scale takes it; "" if the run does not say
};

NextTry next_try(const RunView& run, const Recommendation& advice,
                 const std::optional<Proof>& proof) {
  const std::optional<double> scale = proof ? proof->edit.loss_scale() : advice.edit.loss_scale();
  return {proof ? proof->edit : advice.edit, proof ? proof->plan_json : advice.plan_json,
          scale ? "static:" + shortest(*scale) : run.lane(advice.lane).loss_scale};
}

/// "0.999:format=bf16,form=lerp" -> "0.999:form=lerp".
std::string without_formats(const std::string& value) {
  const size_t colon = value.find(':');
  if (colon == std::string::npos) return value;
  std::string options;
  for (size_t from = colon + 1; from <= value.size();) {
    const size_t end = std::min(value.find(',', from), value.size());
    const std::string option = value.substr(from, end - from);
    if (!option.starts_with("format=") && !option.starts_with("compute=")) {
      options += (options.empty() ? "" : ",") + option;
    }
    from = end + 1;
  }
  return value.substr(0, colon) + (options.empty() ? "" : ":" + options);
}

/// Returns the arguments without flags that would undo a change: flags win over the plan.
std::vector<std::string> without_undone(const std::vector<std::string>& words,
                                        const PlanEdit& edit) {
  std::vector<std::string> kept;
  for (size_t i = 0; i < words.size(); ++i) {
    const bool undoes =
        (words[i] == "--optimizer-compute" && edit.has(FixKind::update_fp32)) ||
        (words[i] == "--clip-format" && edit.has(FixKind::clip_fp32)) ||
        (words[i] == "--accumulate-grads" && edit.has(FixKind::gradient_sum_fp32)) ||
        (words[i] == "--optimizer-state" && edit.has(FixKind::state_fp32));
    if (undoes) {
      ++i;  // its value
      continue;
    }
    kept.push_back(words[i]);
    const bool loses_format = (words[i] == "--ema" && edit.has(FixKind::average_fp32)) ||
                              (words[i] == "--schedule" && edit.has(FixKind::schedule_fp32));
    if (!loses_format || i + 1 >= words.size()) continue;
    kept.push_back(without_formats(words[++i]));
  }
  return kept;
}

std::vector<std::string> next_command(const RunView& run, const NextTry& next,
                                      const std::string& plan_file) {
  const bool trains = !run.info().inference;
  std::vector<std::string> words{"halfscope", trains ? "train" : "run"};
  const std::vector<std::string> settings = without_undone(settings_of(run.info()), next.edit);
  words.insert(words.end(), settings.begin(), settings.end());
  words.insert(words.end(), {"--plan", plan_file});
  if (trains && !next.loss_scale.empty() && next.loss_scale != usual_loss_scale(next.plan_json)) {
    words.insert(words.end(), {"--loss-scale", next.loss_scale});
  }
  words.insert(words.end(), {trains ? "--out" : "--record", free_name("cured", ".hscope")});
  return words;
}

std::string shell_line(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + shell_quoted(word);
  return line;
}

/// Returns the findings and the advice in the form of the report's JSON.
Json advice_json(Report report, const std::optional<Recommendation>& advice, int lane) {
  const std::string name = report.lanes[static_cast<size_t>(lane)].name;
  report.recommendation = advice;
  const Json whole = Json::parse(report_json(report));
  Json json{{"lane", name}, {"recommendation", whole.at("recommendation")}};
  for (const char* list : {"findings", "actions"}) {
    json[list] = Json::array();
    for (const Json& each : whole.at(list)) {
      if (each.at("lane") == name) json[list].push_back(each);
    }
  }
  return json;
}

std::string severity_word(Severity severity, const TextStyle& style) {
  const std::string name = severity_name(severity);
  if (severity == Severity::info) return name;
  return coloured(name, severity == Severity::error ? Colour::red : Colour::yellow, style);
}

std::string findings_text(const Report& report, int lane, const TextStyle& style) {
  std::string text = fmt::format("lane {}\n", report.lanes[static_cast<size_t>(lane)].name);
  for (const Finding& finding : report.findings) {
    if (finding.lane != lane) continue;
    const std::string word = severity_name(finding.severity);
    std::string lines = paragraph(word + ": " + finding.text, style, kIndent, kHanging);
    // Wrapped first: escape codes take no room.
    text += lines.replace(kIndent, word.size(), severity_word(finding.severity, style));
  }
  return text;
}

/// Returns the advice for a lane, computed if the report is about another lane.
std::optional<Recommendation> advice_on(const RunView& run, const Report& report, int lane) {
  if (report.recommendation && report.recommendation->lane == lane) return report.recommendation;
  return recommend(run, report.findings, lane);
}

/// Returns the stored proof of the lane's advice, if it succeeded.
std::optional<Proof> stored_proof(const RunView& run, int lane) {
  std::optional<Proof> proof = read_proof(run.proof(lane));
  return proof && proof->holds ? proof : std::nullopt;
}

Diagnosis diagnosis_on(const RunView& run, const Report& report, int lane,
                       const std::optional<Recommendation>& advice) {
  return diagnose(run, report.findings, lane, advice ? advice->edit : PlanEdit{},
                  read_proof(run.proof(lane)));
}

Json diagnosis_of(const RunView& run, const Report& report, int lane,
                  const std::optional<Recommendation>& advice) {
  return Json::parse(diagnosis_json(diagnosis_on(run, report, lane, advice)));
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t from = 0; from < text.size();) {
    const size_t end = std::min(text.find('\n', from), text.size());
    lines.push_back(text.substr(from, end - from));
    from = end + 1;
  }
  return lines;
}

/// Returns the command to run next, if nothing is written yet.
std::string next_line(const DiagnoseOptions& options, const RunView& run, const Report& report,
                      int lane, bool advised, bool untried, const DiagnosedRun& file) {
  if (!file.name().empty()) {
    const bool proved = file.is_kept() && stored_proof(run, lane);
    return advised || untried ? advice_command(run, report, lane, file.name(), proved)
                              : report_command_line(file.name());
  }
  if (!advised) return options.line + " --record " + free_name("run", ".hscope");
  const bool proves = !options.verify && can_be_proved(run, lane);
  return options.line + (proves ? " --verify" : "") + " --out " + free_name("plan", ".json");
}

/// Prints the last notes and throws the error of failed lanes; every output form ends here.
int finish(const DiagnosedRun& file, const Verified& verified, int code) {
  std::string why = file.not_stored();
  if (verified.not_stored) why = verified.not_stored->what();
  if (!why.empty() && verified.proof) {
    fmt::print(stderr, "note: the proof could not be stored in {}: {}\n", file.name(), why);
  }
  if (file.lost()) throw Error(*file.lost());
  return code;
}

/// Returns the settings of the recording, with the flags that are not of `train` or `run`.
Settings recorded_settings(const DiagnoseOptions& options) {
  Settings settings = *options.recorded;
  settings.force = options.force;
  settings.quiet = options.quiet;
  settings.threads = options.threads;
  return settings;
}

void check_all_files(const DiagnoseOptions& options) {
  check_is_file_name(options.record, "a run file");
  CommandFiles files{.written = {options.record, options.out}};
  if (options.recorded) {
    files.read = input_files(recorded_settings(options));
    if (options.twin) files.read.push_back(options.twin->file());
  } else {
    files.read.push_back(options.run);
  }
  check_files(files, options.force);
}

void check_options(const DiagnoseOptions& options) {
  const bool plan_printed = options.out == kStandardOutput;
  check_all_files(options);
  if (plan_printed && options.json) {
    throw usage_error("--json and --out - both write to standard output", "leave out one of them");
  }
  if (!options.fix_as.empty() && (plan_printed || options.json)) {
    throw usage_error("--fix-as prints to standard output", "leave out --json and --out -");
  }
  if (!options.fix_as.empty()) parse_fix_as(options.fix_as);
  exit_code({}, options.fail_on);  // a misspelt severity shows before the work
  parse_budget(options.budget);    // likewise
  if (!options.budget.empty() && !options.verify) {
    throw usage_error("--budget is for the search of --verify", "add --verify, or drop --budget");
  }
  if (!options.record.empty() && !options.recorded) {
    throw usage_error("--record is for networks, but " + options.run + " is recorded already",
                      "leave it out");
  }
}

/// Throws Error if the argument is neither a network nor an existing file. Files *.hscope are left
/// to RunView::open().
void check_argument(const std::string& name) {
  check_network_exists(name);
  std::error_code failed;
  if (name.empty() || names_network(name) || name.ends_with(".hscope")) return;
  if (std::filesystem::exists(name, failed)) return;
  if (name + ":" == zoo::kPrefix) {
    throw Error("'zoo' is not a network: the case is missing",
                "name a case, for example: halfscope diagnose zoo:F7");
  }
  refuse_torch_network(name);
  throw Error("run file or network not found: '" + name + "'",
              did_you_mean(name, network_words(),
                           "name a run file, a file *.onnx, a folder of save_twin(), zoo:ID or a "
                           "network: " +
                               comma_list(model_names())));
}

DiagnosedRun run_of(const DiagnoseOptions& options) {
  if (!options.recorded) return DiagnosedRun(options.run, options.verify);
  return DiagnosedRun(recorded_settings(options), options.record);
}

int audit(const DiagnoseOptions& options) {
  const std::pair<const char*, bool> unused[] = {{"--verify", options.verify},
                                                 {"--budget", !options.budget.empty()},
                                                 {"--out", !options.out.empty()},
                                                 {"--fix-as", !options.fix_as.empty()},
                                                 {"--record", !options.record.empty()}};
  for (const auto& [flag, given] : unused) {
    if (given)
      throw usage_error(fmt::format("--audit runs nothing, so {} has no effect", flag),
                        fmt::format("leave out --audit or {}", flag));
  }
  exit_code({}, options.fail_on);  // a misspelt severity shows before the work
  Settings settings;
  std::vector<NamedPlan> plans;
  if (options.recorded) {
    settings = *options.recorded;
    plans = plans_of(settings);
  } else {
    const RunInfo info = RunView::open(options.run).info();
    settings = settings_of_run(options.run, info);
    plans = plans_of(info);
  }
  const std::vector<AuditedLane> lanes =
      naming_keys(settings, [&] { return audit_lanes(settings, plans, options.lane); });
  if (options.json) {
    write_json(audit_result(settings, lanes));
  } else if (!options.quiet) {
    write_out(audit_text(lanes, text_style(STDOUT_FILENO)));
  }
  return exit_code(audit_findings(lanes), options.fail_on);
}

int diagnose_here(const DiagnoseOptions& options);

/// In a job of several processes, the others run trials of the proof.
int diagnose(const DiagnoseOptions& options) {
  MpiJob* const job = mpi_job();
  if (job == nullptr) return diagnose_here(options);
  begin_together(
      *job, [&] { check_options(options); }, [] { return fmt::format("version={}\n", kVersion); });
  if (!job->records()) {
    serve_proofs(*job);
    return 0;
  }
  try {
    const int code = diagnose_here(options);
    end_serving(*job);
    return code;
  } catch (...) {
    end_serving(*job);
    throw;
  }
}

int diagnose_here(const DiagnoseOptions& options) {
  check_options(options);
  const bool plan_printed = options.out == kStandardOutput, prints_fix = !options.fix_as.empty();
  if (options.threads > 0) omp_set_num_threads(options.threads);
  std::optional<TwinMatch> match;
  if (options.twin) match = repeat_twin(*options.twin, options.recorded->steps, options.quiet);
  const DiagnosedRun file = run_of(options);
  RunView run = RunView::open(file.file());
  Report report = make_report(run);
  const int lane = lane_of(run, options, report);
  // Judge from the file what was stored there, as `report` does.
  const auto read_again = [&] {
    run = RunView::open(file.file());
    report = make_report(run);
  };
  Verified verified;
  if (!options.no_twins) {
    verified.check = check_with_twins(file.file(), run, options.quiet);
    if (verified.check.trainings > 0) read_again();
  }
  const int advised = options.lane.empty() ? lane_of(run, options, report) : lane;
  std::optional<Recommendation> advice = advice_on(run, report, advised);
  if (!advice && options.verify) advice = advice_to_try(run, report.findings, advised);
  if (advice && options.verify) {
    verified = verify_advice(file.file(), run, *advice, std::move(verified.check), options.quiet,
                             parse_budget(options.budget));
    if (verified.proof && !verified.not_stored) read_again();
  }

  const bool refuted = advice && options.verify && !(verified.proof && verified.proof->holds);
  const int code = refuted ? 1 : exit_code(report.findings, options.fail_on);
  // Use the proof of an earlier --verify.
  const std::optional<Proof> proof = options.verify ? verified.proof : stored_proof(run, advised);
  std::vector<std::string> next;
  const bool written = (advice || proof) && !refuted && !options.out.empty();
  if (written) {
    const NextTry what = next_try(run, advice.value_or(Recommendation{.lane = advised}), proof);
    write_result(options.out, what.plan_json + "\n", options.force);
    next = next_command(run, what, options.out);
  }
  if (verified.proof) advice = advice_on(run, report, advised);
  if (prints_fix) {
    if (!refuted) {
      write_out(advised_fix(parse_fix_as(options.fix_as), run.lane(advised), advice, proof,
                            advice_beside_plans(report.findings, advised)));
    }
    return finish(file, verified, code);
  }
  if (options.json) {
    Json json{{"schema", "halfscope.recommend/1"}, {"version", kVersion}};
    json["run"] = file.name().empty() ? Json(nullptr) : Json(file.name());
    json["verdict"] = {{"state", verdict_name(report.verdict.state)},
                       {"text", report.verdict.text}};
    json.update(advice_json(report, advice, advised));
    json["diagnosis"] = diagnosis_of(run, report, advised, advice);
    if (match) json["twin"] = match->json();
    json["twins"] = twins_member(verified.check);
    json["not_checked"] = verified.check.problems;
    json["proof"] = proof_member(verified.proof);
    json["plan_file"] = written ? Json(options.out) : Json(nullptr);
    json["next"] = written ? Json(next) : Json(nullptr);
    write_json(json);
    return finish(file, verified, code);
  }
  if (options.quiet) return finish(file, verified, code);

  const TextStyle style = text_style(plan_printed ? STDERR_FILENO : STDOUT_FILENO);
  std::string text = match ? paragraph(match->text(), style, 0, kIndent) : "";
  text += verdict_text(report.verdict, style);
  for (const std::string& line : verified.check.lines()) text += paragraph(line, style, 0, kIndent);
  text += findings_text(report, advised, style);
  const Diagnosis diagnosis = diagnosis_on(run, report, advised, advice);
  const std::string tested = tested_advice(report, advised);
  if (!tested.empty()) text += paragraph("advice: " + tested, style, 0, kIndent);
  for (const std::string& line : lines_of(diagnosis_lines(diagnosis, !tested.empty()))) {
    text += paragraph(line, style, 0, kIndent);
  }
  const bool untried = !advice && !options.verify && !proof && diagnosis.harmed &&
                       other_advice(report.findings, advised).empty() &&
                       can_be_proved(run, advised);
  const bool is_said = advice && diagnosis.harmed &&
                       (diagnosis.fix == advice->edit || diagnosis.fix_text == advice->text);
  if (!is_said && tested.empty()) {
    text += paragraph(advice ? "advice: " + advice->text : no_advice_text(report, advised, untried),
                      style, 0, kIndent);
  }
  if (options.verify) text += paragraph(proof_line(verified), style, 0, kIndent);
  if (!options.record.empty()) text += "run file: " + options.record + "\n";
  if (written && !plan_printed) {
    const auto scale = std::find(next.begin(), next.end(), "--loss-scale");
    const std::string with =
        scale == next.end() ? "" : ", to use with --loss-scale " + *std::next(scale);
    text += fmt::format("plan: {}{}\nnext: {}\n", options.out, with, shell_line(next));
  } else if (!options.out.empty() && !written) {
    text += plan_printed ? "plan: not written, because there is no fix to write\n"
                         : fmt::format("plan: {} not written, because there is no fix to write\n",
                                       options.out);
  } else if (options.out.empty() && !refuted) {
    const bool can_write = advice || proof;
    text += "next: " + next_line(options, run, report, advised, can_write, untried, file) + "\n";
  }
  write_message(text, plan_printed);
  return finish(file, verified, code);
}

}  // namespace

void add_diagnose(CLI::App& app, Invocation& call) {
  auto options = std::make_shared<DiagnoseOptions>();
  CLI::App* sub = app.add_subcommand(
      "diagnose", "Explain what went wrong in a run or a network, and what fixes it");
  sub->footer(
      "Example:  halfscope diagnose hot.hscope --out plan.json\n"
      "          halfscope diagnose zoo:F7 --verify\n"
      "          halfscope diagnose net.onnx --input x.npz --plan float16\n"
      "An ONNX file runs forward. It trains if you add --loss or another flag of train.\n"
      "All other settings of halfscope train and halfscope run work here, too.");
  offer(sub->add_option("run", options->run,
                        "Run file to diagnose, or network to record first: " + known_networks() +
                            "; or folder of halfscope.save_twin()")
            ->type_name("RUN|NETWORK")
            ->group(group::kArguments),
        {.words = network_words(), .files = "*.[ho][sn]*[ex]"});
  sub->add_option("--lane", options->lane, "Lane to advise on [the first one with a problem]")
      ->type_name("NAME")
      ->group("Advice");
  add_output(*sub, "--out", options->out, "*.json", "Write the advised plan to this file");
  add_output(*sub, "--record", options->record, "*.hscope",
             "Keep the run file of a network that is recorded first [not kept]");
  add_force(*sub, options->force);
  offer(sub->add_option("--fix-as", options->fix_as,
                        "Print only the advice, ready to paste: " + comma_list(fix_target_names()))
            ->type_name("FRAMEWORK")
            ->group("Advice"),
        {.words = fix_target_names()});
  sub->add_flag("--verify", options->verify,
                "Prove the advice by trying it; write a plan only if the proof succeeds")
      ->group("Advice");
  sub->add_option("--budget", options->budget,
                  "Trials (40) or time (90s, 10m) that --verify may search for the smallest change")
      ->type_name("N|Ns|Nm")
      ->group("Advice");
  sub->add_flag("--no-twins", options->no_twins,
                "Skip the extra float32 runs that measure how far healthy runs drift apart")
      ->group("Advice");
  sub->add_flag("--audit", options->audit,
                "List what constants become in the lane's formats, and which do harm, without "
                "running anything")
      ->group("Advice");
  add_recording_flags(*sub);
  add_integer(*sub, "--threads", options->threads, 1, 1024,
              "Threads to use; results stay the same [all cores]")
      ->group(group::kOther);
  sub->add_flag("--json", options->json, "Print findings and advice as JSON")
      ->group(group::kOutput);
  sub->add_flag("--quiet", options->quiet, "Print nothing")->group(group::kOutput);
  add_fail_on(*sub, options->fail_on);
  sub->callback([options, sub, &call] {
    call.action = [options, sub, line = call.line] {
      options->line = line;
      const bool named = sub->get_option("--model")->count() + sub->get_option("--config")->count();
      if (options->run.empty() && !named) {
        throw usage_error("diagnose needs a run file or a network",
                          "try halfscope diagnose hot.hscope");
      }
      check_argument(options->run);
      if (is_twin_folder(options->run)) {
        options->twin = read_twin(options->run);
        options->recorded = twin_settings(*sub, *options->twin);
      } else if (options->run.empty() || names_network(options->run)) {
        options->recorded = recording_settings(*sub, options->run);
      } else {
        check_no_recording_flags(*sub, options->run);
      }
      return options->audit ? audit(*options) : diagnose(*options);
    };
  });
}

}  // namespace halfscope
