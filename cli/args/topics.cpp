// SPDX-License-Identifier: MIT
#include "cli/args/topics.h"

#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "cli/args/backends.h"
#include "cli/terminal/lane_summary.h"  // aligned
#include "cli/terminal/output.h"
#include "core/lower/optimizer.h"
#include "core/near_miss.h"
#include "core/numeric/formats/float_format.h"
#include "core/numeric/sums/accumulation.h"
#include "core/numeric/sums/reduction.h"
#include "core/numeric/sums/tensor_core.h"
#include "core/policy/policy.h"

namespace halfscope {
namespace {

constexpr size_t kTopicWidth = 80;

/// Returns the rows in columns, indented by two blanks.
std::string table_of(const std::vector<std::vector<std::string>>& rows) {
  const std::string text = aligned(rows, std::vector<bool>(rows.front().size(), false));
  std::string result;
  for (size_t from = 0; from < text.size();) {
    const size_t end = text.find('\n', from);
    result += "  " + text.substr(from, end - from + 1);
    from = end + 1;
  }
  return result;
}

/// Returns "Label: a, b, c", wrapped.
std::string list_of(const std::string& label, const std::vector<std::string>& names) {
  return paragraph(label + ": " + comma_list(names), {.width = kTopicWidth}, 0, 2);
}

std::string plans_text() {
  std::vector<std::vector<std::string>> rows{
      {"preset", "products read", "gradients", "write", "weights in"}};
  for (const std::string& name : preset_names()) {
    const Plan plan = preset_plan(name).value();
    if (plan.double_precision) {
      rows.push_back({name, "fp64", "fp64", "fp64", "fp64"});
      continue;
    }
    const NodePlan node = resolve(plan, "", "Gemm");
    rows.push_back({name, format_name(node.read), format_name(node.grad_read.value_or(node.read)),
                    format_name(node.write), format_name(plan.storage)});
  }
  return "A plan says which format each layer reads and writes, and how it sums.\n"
         "A lane is one run of the network under one plan.\n\n"
         "Presets:\n" +
         table_of(rows) + "\n" +
         "`halfscope plan list` has all, also Keras's mixed policies and TensorFlow's AMP,\n"
         "which decide by network. Formats have short names (fp16), plans long ones.\n"
         "mixed_* computes losses, softmax, layer and group norms in fp32; batch norm\n"
         "follows its input, like in PyTorch's autocast. *_stagewise rounds after each\n"
         "primitive operation.\n"
         "A plan can also be a JSON file or its text. All keys are optional except\n"
         "\"schema\" and \"name\". Later rules win.\n\n"
         "  {\"schema\": \"halfscope.plan/1\", \"name\": \"mine\",\n"
         "   \"default\": {\"read\": \"fp16\", \"write\": \"fp16\", \"accumulate\": \"fp32\"},\n"
         "   \"variables\": {\"storage\": \"fp32\"},\n"
         "   \"rules\": [{\"path\": \"conv2*\", \"format\": \"fp32\"},\n"
         "             {\"op\": \"Softmax\", \"format\": \"fp32\"}]}\n\n"
         "A name in front of a plan chooses its backend: BACKEND:PLAN.\n" +
         list_of("Backends", backend_names()) +
         "\nExamples:\n"
         "  halfscope train --plan mixed_bfloat16\n"
         "  halfscope train --lanes float32,mixed_float16,bfloat16\n"
         "  halfscope train --lanes float32,emulated:mixed_float16\n"
         "  halfscope train --plan mixed_float16 --fp32 'conv2*'\n"
         "  halfscope train --model resnet20 --plan mixed_float16 --fp32 '*bn*'\n"
         "  halfscope run lenet --data digits --plan float16 --plan mxfp8\n\n"
         "See also: halfscope help formats, halfscope help accumulation\n";
}

std::string formats_text() {
  std::vector<std::vector<std::string>> rows{
      {"format", "bits", "largest", "smallest normal", "smallest", "infinity"}};
  for (const NamedFormat& each : named_formats()) {
    const FloatFormat& format = each.format;
    rows.push_back(
        {std::string(each.name), std::to_string(format.bits()),
         fmt::format("{:.6g}", format.max_finite()), fmt::format("{:.3g}", format.min_normal()),
         fmt::format("{:.3g}", format.min_subnormal()), format.has_infinity() ? "yes" : "no"});
  }
  return "A format says which numbers a value can have. Values outside its range\n"
         "overflow or underflow.\n\n"
         "Formats:\n" +
         table_of(rows) +
         "\nint8 and int4 are whole numbers from -127 to 127 and from -7 to 7, for scaled\n"
         "operands. Any other format: eXmY, with X exponent bits (1 to 8) and Y mantissa\n"
         "bits (0 to 23). A suffix sets the encoding:\n"
         "  fn       no infinity, one NaN\n"
         "  fnuz     no infinity, one NaN, no negative zero\n"
         "  finite   neither infinity nor NaN\n"
         "  bN       exponent bias N\n\n"
         "Options follow a colon:\n"
         "  :sat     values that are too large become the largest number\n"
         "  :ftz     values below the smallest normal number become 0\n"
         "  :ftz-in, :ftz-out   the same for operands or for outputs only\n\n"
         "Examples:\n"
         "  halfscope train --optimizer-state bf16\n"
         "  halfscope train --micro-batches 4 --accumulate-grads e5m2:sat\n"
         "  halfscope train --optimizer-compute e6m9\n"
         "  halfscope train --optimizer-state fp16:ftz\n\n"
         "See also: halfscope help plans\n";
}

std::string accumulation_text() {
  std::vector<std::string> kinds, archs;
  for (const std::string& name : accumulation_names()) {
    if (!name.starts_with("tensor-core:")) kinds.push_back(name);
  }
  std::vector<std::vector<std::string>> rows;
  for (const TensorCoreArch& arch : tensor_core_archs()) {
    rows.push_back({std::string(arch.name), std::string(arch.about)});
  }
  return "An accumulation is the order and the precision in which a layer adds its\n"
         "products. --accumulate sets it for all lanes except the fp32 baseline.\n\n" +
         list_of("Kinds", kinds) +
         "  fp32              one chain of fp32 fused multiply-adds\n"
         "  fp64              the same in double, rounded once at the end\n"
         "  pairwise          fp32 additions in a balanced tree\n"
         "  interleaved16     16 chains in turn, added in a balanced tree\n"
         "  kahan             fp32 with compensation for the rounding errors\n"
         "  format            the layer's write format, rounded after every term\n"
         "  format-mul-add    the same, with the product rounded first\n"
         "  fma32-then-round  fp32 fma, then rounded (rounds twice)\n\n"
         "Tensor cores, as tensor-core:ARCH:\n" +
         table_of(rows) +
         "\nOptions follow a colon (a comma after ARCH), separated by commas:\n"
         "  promote=N      add a chain to an fp32 total after every N terms\n"
         "  split-k=N      cut the sum into N parts, added in fp32\n"
         "  acc=fp16       use fp16 accumulators (tensor cores only)\n"
         "  rounding=MODE  rounding of format and format-mul-add: nearest-even,\n"
         "                 nearest-away, toward-zero, up, down, odd or stochastic\n\n"
         "Examples:\n"
         "  halfscope train --accumulate format\n"
         "  halfscope train --accumulate fp32:promote=128\n"
         "  halfscope train --accumulate tensor-core:h100\n"
         "  halfscope train --accumulate tensor-core:v100,acc=fp16\n"
         "  halfscope train --accumulate format:rounding=stochastic\n";
}

std::string loss_scale_help() {
  return "A loss scale multiplies the loss, so that small gradients do not become 0 in\n"
         "a format with a short range. Gradients are divided by it before the update.\n"
         "A step whose gradients are NaN or infinite is skipped.\n\n"
         "  dynamic       start at 2^16 (65,536); halve after a skipped step, double\n"
         "                after 2000 good steps in a row\n"
         "  dynamic:INIT  the same, starting at INIT\n"
         "  static:X      always X\n"
         "  none          no scaling; no step is skipped\n\n"
         "Scalers of frameworks do exactly what the framework does, errors and NaN\n"
         "weights included. Options follow a colon, separated by commas:\n" +
         table_of({{"torch", "init=65536, growth=2, backoff=0.5, interval=2000"},
                   {"tf-keras", "init=32768, interval=2000; or static=X"},
                   {"keras3", "init=32768, interval=2000, backend=tensorflow; or static=X"},
                   {"apex", "init=65536, window=2000, min=X, max=16777216, sum;"},
                   {"", "or static=X"},
                   {"apex-fp16-utils", "init=4294967296, factor=2, window=1000; or static=X"},
                   {"deepspeed", "init=65536, window=1000, hysteresis=2, consecutive,"},
                   {"", "min=1, raise, no-raise, fused, sum; or static=X"},
                   {"deepspeed-bf16", "scale 1; skips steps that overflow"}}) +
         "\n  interval, window  good steps until the scale grows\n"
         "  hysteresis        overflows until it falls\n"
         "  consecutive       a good step refills the hysteresis\n"
         "  min, max          limits; raise: an overflow at min ends the training\n"
         "  fused             DeepSpeed without ZeRO: no hysteresis, no error\n"
         "  sum               a tensor whose fp32 sum overflows counts as overflow\n\n"
         "Default for lanes with a format of fewer than 8 exponent bits (fp16, fp8): the\n"
         "framework's own under keras-* and keras3-*, else dynamic. None for other lanes,\n"
         "and where operands have their own scales.\n\n"
         "Examples:\n"
         "  halfscope train --loss-scale static:1024\n"
         "  halfscope train --loss-scale dynamic:4096\n"
         "  halfscope train --loss-scale tf-keras\n"
         "  halfscope train --loss-scale deepspeed:hysteresis=4,min=0.25\n\n"
         "See also: halfscope plan scalers, which compares them\n";
}

std::string optimizers_text() {
  std::vector<std::vector<std::string>> rows{{"optimizer", "lr", "other options"}};
  for (const char* name : {"sgd", "adam", "adamw", "rmsprop"}) {
    const Optimizer optimizer = parse_optimizer(name);
    std::string options;
    if (is_adam(optimizer)) {
      options = fmt::format("beta1={}, beta2={}, eps={}, ", optimizer.beta1, optimizer.beta2,
                            optimizer.eps);
    } else if (optimizer.kind == Optimizer::Kind::rmsprop) {
      options = fmt::format("alpha={}, momentum={}, eps={}, ", optimizer.alpha, optimizer.momentum,
                            optimizer.eps);
    } else {
      options = fmt::format("momentum={}, dampening={}, nesterov={}, ", optimizer.momentum,
                            optimizer.dampening, optimizer.nesterov);
    }
    rows.push_back({name, shortest(optimizer.learning_rate),
                    options + fmt::format("weight_decay={}", optimizer.weight_decay)});
  }
  return "Options follow the name after a colon: NAME:OPTION=VALUE,OPTION=VALUE\n\n"
         "Optimizers and their defaults (--optimizer):\n" +
         table_of(rows) +
         "With amsgrad=true, adam and adamw divide by the largest second moment so far.\n"
         "With centered=true, rmsprop divides by the standard deviation of gradients.\n"
         "Dampening is the share of a gradient that sgd leaves out of its momentum, except\n"
         "in the first step. With maximize=true, every optimizer maximizes the loss.\n"
         "\nSettings of some weights (--param-group, repeatable; the first match applies):\n"
         "  GLOB:OPTION=VALUE,...        other options for weights whose name matches\n"
         "\nLearning-rate schedules (--schedule):\n"
         "  constant                     the same rate in every step\n"
         "  step:every=N,gamma=0.1       times gamma every N steps\n"
         "  cosine:floor=0               half a cosine from the rate to floor times it\n"
         "  linear:floor=0               a straight line to floor times the rate\n"
         "  onecycle:div=25,final_div=10000,start=0.3,anneal=cos\n"
         "                               up from 1/div, then down (PyTorch's OneCycleLR)\n"
         "  file:FILE                    the rate of each step: a .npy file of one array,\n"
         "                               or a .npz file of the arrays lr, momentum and\n"
         "                               beta1, of groups GLOB:lr, GLOB:momentum ...\n"
         "All schedules but file take format=F, the format that rates are computed in. All\n"
         "but onecycle and file take warmup=N: the rate rises over the first N steps.\n\n"
         "Moving averages of the weights (--ema): DECAY, with options after a colon:\n"
         "  format=F      format of the averages [the variable's]\n"
         "  compute=F     format of the arithmetic [fp32]\n"
         "  form=average  d e + (1 - d) w [lerp: e + (1 - d) (w - e)]\n\n"
         "Examples:\n"
         "  halfscope train --optimizer sgd:momentum=0.9,nesterov=true,weight_decay=1e-4\n"
         "  halfscope train --optimizer adamw --lr 3e-4\n"
         "  halfscope train --optimizer adam --param-group '*.bias:lr=0.01,beta2=0.99'\n"
         "  halfscope train --schedule cosine:warmup=20\n"
         "  halfscope train --schedule step:every=50,gamma=0.5\n"
         "  halfscope train --ema 0.999:format=bf16,compute=bf16\n";
}

std::string reduce_text() {
  const std::span<const std::string> names = reduction_names();
  return "With --ranks N, each of N simulated ranks computes the gradients of its share\n"
         "of the batch. --reduce says how these gradients are added.\n\n" +
         list_of("Algorithms", {names.begin(), names.end()}) +
         "  ring        each part of a gradient goes around a ring of ranks\n"
         "  tree        neighbours first, then pairs of pairs\n"
         "  halving     rank r and rank r + N/2 first, then N/4 and so on\n"
         "  all-to-all  one rank adds each part in fp32, in the order of ranks\n\n"
         "Options follow a colon, separated by commas:\n"
         "  format=F        format in which sums are sent and stored [the gradient's]\n"
         "  average=after   divide by N after the additions [before]\n"
         "  vote=all        all ranks skip a step if one has non-finite gradients [all]\n"
         "  vote=one        each rank skips a step on its own\n\n"
         "Examples:\n"
         "  halfscope train --ranks 4\n"
         "  halfscope train --ranks 4 --reduce tree:format=bf16\n"
         "  halfscope train --ranks 4 --reduce ring:format=fp16,average=after,vote=one\n"
         "  mpirun -n 4 halfscope train --reduce ring:format=bf16\n\n"
         "mpirun makes each rank a process; results have the same bits.\n";
}

std::string verdicts_text() {
  return "A verdict says whether reduced precision harms a run. Each lane is compared with\n"
         "fp32: losses, accuracies, gradients, and how far weights move.\n\n"
         "States:\n" +
         table_of({{"healthy", "Results were compared, and none is harmed."},
                   {"attention", "A result is worse than in fp32, or will be."},
                   {"broken", "Training fails (NaN, no learning), or fp32 itself does."},
                   {"cured", "One lane is harmed, and a lane with wider formats is not."},
                   {"inconclusive", "No harm was found, but the run cannot rule it out:"},
                   {"", "too few steps, nothing learned, nothing to compare with."}}) +
         "\n\"so far\" means that the training was stopped or is still going on.\n"
         "A verdict about fp32 itself (\"Not a precision problem\") asks you to change the\n"
         "training, for example the learning rate: no format will help.\n\n"
         "Confidence in the advice:\n" +
         table_of({{"high", "The cause is known, and a training with the advice was healthy."},
                   {"medium", "One of the two, and no change that was tried failed."},
                   {"low", "Neither: a hint, no more. --verify trains with the advice."}}) +
         "\nTo let a CI job fail, add --fail-on error or --fail-on warning to diagnose or\n"
         "report, or give report limits with --gate.\n\n"
         "Examples:\n"
         "  halfscope train --model lenet-hot --plan mixed_float16 --steps 60 --batch 32\n"
         "  halfscope train --model lenet-hot --plan mixed_float16 --steps 60 --verify\n"
         "  halfscope train --model lenet --lanes float32,bfloat16 --steps 200\n\n"
         "See also: halfscope help diagnose, halfscope help report\n";
}

}  // namespace

std::span<const Topic> topics() {
  static constexpr Topic kTopics[] = {
      {"plans", "Plans: which format each layer uses", plans_text},
      {"formats", "Number formats, with their ranges", formats_text},
      {"accumulation", "Orders and precisions of sums", accumulation_text},
      {"loss-scale", "Loss scaling", loss_scale_help},
      {"optimizers", "Optimizers, schedules and moving averages", optimizers_text},
      {"reduce", "Sums of gradients over ranks", reduce_text},
      {"verdicts", "Verdicts: healthy, attention, broken ...", verdicts_text}};
  return kTopics;
}

}  // namespace halfscope
