// SPDX-License-Identifier: MIT
// `halfscope mma-check`: the tensor-core model against results of a GPU, vector by vector.
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <memory>

#include "analysis/rules/text.h"
#include "cli/args/arguments.h"
#include "cli/commands/command.h"
#include "cli/tasks/mma_formats.h"
#include "cli/terminal/lane_summary.h"  // aligned
#include "core/data/mma_vectors.h"
#include "core/error.h"
#include "core/numeric/formats/round.h"

namespace halfscope {
namespace {

struct MmaCheckOptions {
  std::vector<std::string> files;
  std::string arch, input, output;
  uint64_t show = 3;
  bool ignore_c = false, json = false;
};

struct Mismatch {
  int64_t line;
  float expected, got;
};

struct Result {
  std::string file;
  std::string_view arch;
  TensorCoreProfile profile;
  int k = 0;
  bool c_ignored = false;
  int64_t vectors = 0, mismatches = 0;
  std::vector<Mismatch> first{};
};

/// Parts of "A100_bf16_fp32.txt.gz"; "" for missing ones.
struct NameParts {
  std::string gpu, input, output;
};

NameParts parts_of(const std::string& file) {
  std::string name = std::filesystem::path(file).filename().string();
  name = name.substr(0, name.find('.'));
  const size_t output = name.rfind('_');
  if (output == std::string::npos || output == 0) return {};
  const size_t input = name.rfind('_', output - 1);
  if (input == std::string::npos) return {};
  return {name.substr(0, input), name.substr(input + 1, output - input - 1),
          name.substr(output + 1)};
}

/// Returns the first text that is not empty.
std::string first_of(const std::string& option, const std::string& header, const std::string& name,
                     const std::string& file, const char* flag) {
  for (const std::string& each : {option, header, name}) {
    if (!each.empty()) return each;
  }
  throw usage_error(
      fmt::format("{}: neither its header nor its name says what {} stands for", file, flag + 2),
      fmt::format("use {}, or name the file GPU_INPUT_OUTPUT.txt", flag));
}

/// Returns whether the format has the number. For tf32 the hardware cuts the lower bits.
bool is_value(float x, const FloatFormat& format) {
  if (format == kTf32) return true;
  if (std::isnan(x)) return format.has_nan();
  if (std::isinf(x)) return format.has_infinity();
  return round_to_format(x, format).value == x;
}

void check_values(const std::string& file, const MmaVector& vector, const FloatFormat& format) {
  for (const auto* operand : {&vector.a, &vector.b}) {
    for (size_t i = 0; i < operand->size(); ++i) {
      const float x = (*operand)[i];
      if (is_value(x, format)) continue;
      throw Error(fmt::format("{}, line {}: {}[{}] = {:08x} is not a value of {}", file,
                              vector.line, operand == &vector.a ? 'a' : 'b', i,
                              std::bit_cast<uint32_t>(x), format_name(format)),
                  "check the input format, or set it with --input");
    }
  }
}

/// Equal bits; all NaNs are equal, since their bits are not part of the results of a product.
bool same(float x, float y) {
  return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y) ||
         (std::isnan(x) && std::isnan(y));
}

Result check(const std::string& file, const MmaCheckOptions& options) {
  MmaVectorReader reader(file);
  const NameParts name = parts_of(file);
  const FloatFormat input =
      mma_format(file, first_of(options.input, reader.input(), name.input, file, "--input"));
  const FloatFormat output =
      mma_format(file, first_of(options.output, reader.output(), name.output, file, "--output"));
  const TensorCoreArch* arch =
      &mma_arch(file, first_of(options.arch, reader.gpu(), name.gpu, file, "--arch"));
  bool ignore_c = options.ignore_c;
  if (options.arch.empty() && arch->name == "h100" && output == kFp32 &&
      (input == kE4m3fn || input == kE5m2)) {
    // The published fp8 results in fp32 of Hopper come from wgmma with an accumulator of zero,
    // although a c is listed with them.
    arch = find_tensor_core_arch("h100-wgmma");
    ignore_c = true;
  }
  Result result{.file = file,
                .arch = arch->name,
                .profile = mma_profile(file, *arch, input, output),
                .k = reader.k(),
                .c_ignored = ignore_c};
  MmaVector vector;
  while (reader.next(vector)) {
    check_values(file, vector, input);
    // Short vectors are instructions of a smaller K: nothing is filled with zeros.
    const float got = tensor_core_dot(result.profile, vector.a, vector.b,
                                      ignore_c ? 0.0f : vector.c, {.fill = false});
    ++result.vectors;
    if (same(got, vector.d)) continue;
    ++result.mismatches;
    if (result.first.size() < options.show) result.first.push_back({vector.line, vector.d, got});
  }
  if (result.vectors == 0)
    throw Error(file + ": the file contains no vectors", "choose a file with more than a header");
  return result;
}

std::string hex(float x) { return fmt::format("{:08x}", std::bit_cast<uint32_t>(x)); }

Json to_json(const Result& result) {
  Json first = Json::array();
  for (const Mismatch& each : result.first) {
    first.push_back(
        {{"line", each.line}, {"expected", hex(each.expected)}, {"got", hex(each.got)}});
  }
  return {{"file", result.file},
          {"arch", result.arch},
          {"input", format_name(result.profile.a_format)},
          {"output", format_name(result.profile.accumulator)},
          {"grade", std::string(1, result.profile.grade)},
          {"k", result.k},
          {"c_ignored", result.c_ignored},
          {"vectors", result.vectors},
          {"mismatches", result.mismatches},
          {"first_mismatches", first}};
}

int mma_check(const MmaCheckOptions& options) {
  std::vector<std::vector<std::string>> rows{
      {"file", "arch", "input", "output", "k", "vectors", "mismatches"}};
  std::string details;
  Json files = Json::array();
  int64_t vectors = 0, mismatches = 0;
  for (const std::string& file : options.files) {
    const Result result = check(file, options);
    vectors += result.vectors;
    mismatches += result.mismatches;
    files.push_back(to_json(result));
    rows.push_back({file, std::string(result.arch) + (result.c_ignored ? ", c ignored" : ""),
                    format_name(result.profile.a_format), format_name(result.profile.accumulator),
                    std::to_string(result.k), std::to_string(result.vectors),
                    std::to_string(result.mismatches)});
    for (const Mismatch& each : result.first) {
      details += fmt::format("{}, line {}: expected {} ({}), got {} ({})\n", file, each.line,
                             hex(each.expected), each.expected, hex(each.got), each.got);
    }
  }
  if (options.json) {
    write_json(Json{{"schema", "halfscope.mma-check/1"},
                    {"version", kVersion},
                    {"files", files},
                    {"vectors", vectors},
                    {"mismatches", mismatches}});
  } else {
    write_out(aligned(rows, {false, false, false, false, true, true, true}) + details +
              fmt::format("{}, {}, {} {}\n", counted(std::ssize(options.files), "file"),
                          counted(vectors, "vector"), mismatches,
                          mismatches == 1 ? "mismatch" : "mismatches"));
  }
  return mismatches == 0 ? 0 : 1;
}

}  // namespace

void add_mma_check(CLI::App& app, Invocation& call) {
  auto options = std::make_shared<MmaCheckOptions>();
  CLI::App* sub =
      app.add_subcommand("mma-check", "Check the tensor-core model against results of a GPU");
  sub->footer("Example:  halfscope mma-check A100_bf16_fp32.txt.gz");
  offer(sub->add_option("file", options->files,
                        "Results of a GPU, named GPU_INPUT_OUTPUT.txt or .txt.gz")
            ->required()
            ->type_name("FILE")
            ->group(group::kArguments),
        {.files = "*.gz"});
  std::vector<std::string> archs = mma_arch_names(), inputs = mma_input_names();
  offer(sub->add_option("--arch", options->arch, "Architecture [from the file's header or name]")
            ->type_name("NAME"),
        {.words = archs});
  offer(
      sub->add_option("--input", options->input, "Format of the operands [from the header or name]")
          ->type_name("FORMAT"),
      {.words = inputs});
  offer(sub->add_option("--output", options->output,
                        "Format of c and of the results [from the header or name]")
            ->type_name("FORMAT"),
        {.words = {"fp32", "fp16"}});
  sub->add_flag("--ignore-c", options->ignore_c, "Compute with c = 0");
  add_integer(*sub, "--show", options->show, 0, 1000000, "Mismatches to print per file")
      ->default_str("3");
  sub->add_flag("--json", options->json, "Print the result as JSON")->group(group::kOutput);
  sub->callback([options, &call] { call.action = [options] { return mma_check(*options); }; });
}

}  // namespace halfscope
