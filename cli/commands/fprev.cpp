// SPDX-License-Identifier: MIT
// `halfscope fprev`: the order in which a dot product is summed, from its results alone.
#include <fmt/format.h>

#include <memory>

#include "cli/args/arguments.h"
#include "cli/args/backends.h"
#include "cli/commands/command.h"
#include "cli/tasks/fprev_models.h"
#include "cli/tasks/mma_formats.h"
#include "cli/terminal/output.h"
#include "core/error.h"

namespace halfscope {
namespace {

constexpr int kMostSummands = 4096, kMostSide = 65536;

struct FprevOptions {
  FprevChoice choice;
  int n = 64;
  bool json = false;
  bool sized = false;  ///< the product's rows or columns were given
};

int fprev(const FprevOptions& options) {
  if (options.sized && options.choice.backend.empty()) {
    throw usage_error("--rows and --columns need a backend", "add --backend NAME");
  }
  const FprevModel model = make_fprev_model(options.choice, options.n);
  const std::string& backend = options.choice.backend;
  const std::string name =
      backend.empty() ? options.choice.model : options.choice.model + " on " + backend;
  const std::string formats =
      fmt::format("{} operands, {} accumulator", model.input, model.accumulator);
  if (options.n > model.most) {
    throw usage_error(fmt::format("--n {}: {} with {} can tell apart at most {} summands",
                                  options.n, name, formats, model.most),
                      fmt::format("use --n {} or less", model.most));
  }
  const RecoveredTree found = recover_summation_tree(options.n, model.dot, model.values);
  if (!found.problem.empty()) {
    throw Error(name + ": " + found.problem,
                "results that change from run to run, or an order that depends on values, have "
                "no tree");
  }
  const std::string structure = describe(found.tree);
  if (options.json) {
    const TensorCorePlan& plan = model.plan;
    const Json plan_of_k{{"split_k", plan.slices},
                         {"interleave", plan.interleave},
                         {"tile", plan.tile},
                         {"promote", plan.promote_every}};
    write_json(Json{{"schema", "halfscope.fprev/1"},
                    {"version", kVersion},
                    {"model", options.choice.model},
                    {"backend", backend.empty() ? Json() : Json(backend)},
                    {"kernel", model.kernel.empty() ? Json() : Json(model.kernel)},
                    {"input", model.input},
                    {"accumulator", model.accumulator},
                    {"plan", backend.empty() ? plan_of_k : Json()},
                    {"n", options.n},
                    {"structure", structure},
                    {"probes", found.probes},
                    {"tree", found.tree.text()}});
    return 0;
  }
  write_out(fmt::format("model      {}: {}\n{}summands   {}\nstructure  {}\nprobes     {}\n\n{}",
                        name, formats,
                        model.kernel.empty() ? "" : fmt::format("kernel     {}\n", model.kernel),
                        options.n, structure, found.probes, draw_text(found.tree)));
  return 0;
}

/// A flag of the plan, which only tensor cores have.
void add_plan_flag(CLI::App& sub, const std::string& flag, int64_t& value, FprevChoice& choice,
                   const std::string& description) {
  sub.add_option_function<std::string>(
         flag,
         [&value, &choice, flag](const std::string& text) {
           value = static_cast<int64_t>(parse_integer(flag, text, 1, kMostSummands));
           choice.has_plan = true;
         },
         description)
      ->type_name("N")
      ->group("Plan of a tensor core");
}

}  // namespace

void add_fprev(CLI::App& app, Invocation& call) {
  auto options = std::make_shared<FprevOptions>();
  FprevChoice& choice = options->choice;
  CLI::App* sub = app.add_subcommand("fprev", "Find the order in which a dot product is summed");
  sub->footer("Example:  halfscope fprev --model h100 --input bf16 --n 64 --split-k 2");
  std::vector<std::string> models = fprev_model_names(), inputs = mma_input_names();
  offer(sub->add_option("--model", choice.model,
                        "Accumulation to probe (see `help accumulation`), or a tensor core")
            ->type_name("NAME")
            ->capture_default_str(),
        {.words = models});
  add_integer(*sub, "--n", options->n, 2, kMostSummands, "Number of summands")->default_str("64");
  std::vector<std::string> backends = backend_names();
  offer(sub->add_option("--backend", choice.backend,
                        "Probe a matrix product of this backend, summed as --model says")
            ->type_name("NAME"),
        {.words = backends});
  add_integer(*sub, "--rows", choice.rows, 1, kMostSide, "Rows of the backend's product")
      ->default_str("128");
  add_integer(*sub, "--columns", choice.columns, 1, kMostSide, "Columns of the backend's product")
      ->default_str("128");
  offer(sub->add_option("--input", choice.input,
                        "Format of the operands [fp16 for tensor cores, fp32 for backends]")
            ->type_name("FORMAT"),
        {.words = inputs});
  offer(sub->add_option("--output", choice.output, "Format of the accumulator [fp32]")
            ->type_name("FORMAT"),
        {.words = {"fp32", "fp16"}});
  add_plan_flag(*sub, "--split-k", choice.plan.slices, choice, "Contiguous slices of K [1]");
  add_plan_flag(*sub, "--promote", choice.plan.promote_every, choice,
                "Terms after which a chain is added to an fp32 total [never]");
  add_plan_flag(*sub, "--interleave", choice.plan.interleave, choice,
                "Warps that share every tile of K [1]");
  add_plan_flag(*sub, "--tile", choice.plan.tile, choice, "Elements of K per tile");
  sub->add_flag("--json", options->json, "Print the result as JSON")->group(group::kOutput);
  sub->callback([sub, options, &call] {
    options->sized = sub->count("--rows") + sub->count("--columns") > 0;
    call.action = [options] { return fprev(*options); };
  });
}

}  // namespace halfscope
