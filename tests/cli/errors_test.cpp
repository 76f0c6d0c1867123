// SPDX-License-Identifier: MIT
// Exit codes and messages: one error line, at most one hint, no output, no file left or changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "tests/cli/bad_inputs.h"
#include "tests/cli/refusals.h"

namespace halfscope {
namespace {

using test::Bench;
using test::ErrorCase;
using test::expect_refusal;
using test::expect_refusals;
using test::lines_of;
using test::Outcome;
using test::small_training;
using test::Words;
using testing::HasSubstr;

/// A training of one step that works, unless `more` breaks it.
Words train(Words more) {
  Words words{"train", "--quiet", "--no-eval", "--out", "new.hscope"};
  const auto has = [&more](const char* flag) {
    return std::find(more.begin(), more.end(), flag) != more.end();
  };
  if (has("--out")) words.resize(3);
  if (!has("--model")) words.insert(words.end(), {"--model", "mlp:784-10"});
  if (!has("--batch")) words.insert(words.end(), {"--batch", "10"});
  if (!has("--steps")) words.insert(words.end(), {"--steps", "1"});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(CliErrors, WordsAndFlags) {
  const Bench bench;
  test::write_bad_inputs(bench);
  expect_refusals(
      bench,
      {
          {{}, 2, "a command is required", "--help"},
          {{"trian"}, 2, "unknown command 'trian'", "did you mean train?"},
          {{"frobnicate"},
           2,
           "unknown command 'frobnicate'",
           "commands: train, run, sweep, diagnose"},
          {{"--verison"}, 2, "unknown flag '--verison'", "did you mean --version?"},
          {{"--model", "lenet"}, 2, "unknown flag '--model'", "halfscope train --model"},
          {{"--nothing"}, 2, "unknown flag '--nothing'"},
          {{"report"}, 2, "report needs a run file", "halfscope report run.hscope"},
          {{"inspect"}, 2, "inspect needs a run file", "try halfscope"},
          {{"completion"}, 2, "completion needs a SHELL"},
          {{"completion", "csh"}, 2, "there is no completion for 'csh'", "did you mean zsh?"},
          {{"report", "run.hscope", "cut.hscope"}, 2, "unexpected argument 'cut.hscope'"},
          {{"report", "run.hscope", "--htlm", "x"}, 2, "report has no flag --htlm", "--html?"},
          {{"train", "--record"},
           2,
           "train has no flag --record",
           "the default; --no-record turns"},
          {{"report", "run.hscope", "--lr", "x"},
           2,
           "report has no flag --lr",
           "--lr is a flag of halfscope train"},
          {{"report", "run.hscope", "--html"}, 2, "--html needs a value", "FILE"},
          {{"report", "run.hscope", "--html="}, 2, "--html needs a value"},
          {{"report", "run.hscope", "--html", "--md"}, 2, "--html needs a value"},
          {{"report", "run.hscope", "--html", ""}, 2, "--html needs a value"},
          {{"report", "run.hscope", "--force=yes"}, 2, "--force takes no value"},
          {{"report", ""}, 2, "an argument is empty"},
          {{"report", "run.hscope", "-x"}, 2, "report has no flag -x"},
          {{"train", "steps", "5"}, 2, "unexpected argument 'steps'", "did you mean --steps?"},
          {{"train", "lenet"}, 2, "unexpected argument 'lenet'", "did you mean --model lenet?"},
          {{"train", "something"}, 2, "unexpected argument 'something'", "try halfscope"},
          {train({"--stpes", "3"}), 2, "train has no flag --stpes", "did you mean --steps?"},
          {train({"--steps", "3", "--steps", "4"}), 2, "--steps is given twice"},
          {train({"--plan", "fp16"}), 2, "no plan named 'fp16'", "mixed_float16 for autocast"},
          {train({"--plan", "half"}), 2, "no plan named 'half'", "float16 for model.half()"},
          {train({"--plan", "O1"}), 2, "no plan named 'O1'", "did you mean apex-O1?"},
          {train({"--plan", "amp"}), 2, "no plan named 'amp'", "did you mean mixed_float16?"},
          {train({"--loss-scale", "1024"}), 2, "unknown loss scale", "did you mean static:1024?"},
          {train({"--loss-scale", "static=8"}), 2, "unknown loss scale", "did you mean static:8?"},
          {train({"--init", "net.pt"}), 2, "is a PyTorch file", "safetensors.torch.save_file"},
          {{"run", "net.pt", "--data", "digits"}, 2, "is a PyTorch file", "export the network"},
          {{"float", "fp8", "1"}, 2, "\"fp8\" is neither a named format", "did you mean e4m3fn?"},
          {train({"--lanes", "float16", "--lanes", "float32"}), 2, "--lanes is given twice",
           "commas"},
          {train({"--html", "x"}), 2, "train has no flag --html", "a flag of halfscope report"},
          {{"report", "run.hscope", "--fail-on", "fatal"},
           2,
           "unknown severity 'fatal'",
           "info, warning or error"},
          {{"report", "run.hscope", "--fail-on", "eror", "--html", "new.html"},
           2,
           "unknown severity 'eror'",
           "did you mean error?"},
          {{"diagnose", "run.hscope", "--lane", "mixed_fp16"},
           2,
           "the run has no lane 'mixed_fp16'",
           "did you mean mixed_float16?"},
          {{"diagnose", "run.hscope", "--lane", "x"},
           2,
           "the run has no lane 'x'",
           "lanes: float32, mixed_float16"},
      });
}

TEST(CliErrors, ValuesOfTrain) {
  const Bench bench;
  expect_refusals(
      bench,
      {
          {train({"--steps", "0"}), 2, "--steps 0: out of range", "1 or more"},
          {train({"--steps", "many"}), 2, "--steps many: not a whole number"},
          {train({"--steps", "1.5"}), 2, "--steps 1.5: not a whole number"},
          {train({"--steps", "1e99"}), 2, "--steps 1e99: out of range"},
          {train({"--steps", "-5"}), 2, "--steps -5: out of range"},
          {train({"--batch", "0x10"}), 2, "--batch 0x10: not a whole number"},
          {train({"--batch", "12001"}), 2, "batch size 12001 does not fit the data", "12000"},
          {train({"--seed", "4294967296"}), 2, "--seed 4294967296: out of range",
           "0 to 4294967295"},
          {train({"--lr", "fast"}), 2, "--lr fast: not a number"},
          {train({"--lr", "-0.1"}), 2, "--lr -0.1: out of range", "0 or more"},
          {train({"--lr", "nan"}), 2, "--lr nan: not a number"},
          {train({"--every", "0"}), 2, "--every 0: out of range"},
          {train({"--threads", "0"}), 2, "--threads 0: out of range", "1 to 1024"},
          {train({"--model", "vgg"}), 2, "unknown model 'vgg'"},
          {train({"--model", "lenet-hto"}), 2, "lenet-hto", "lenet-hot"},
          {train({"--model", "mlp:784-0-10"}), 2, "'0' is not a layer width", "mlp:784"},
          {train({"--model", "mlp:100-10"}), 2, "mlp:100-10' does not fit the data", "784"},
          {train({"--data", "imagenet"}), 2, "unknown data set 'imagenet'", "digits"},
          {train({"--data", "digts"}), 2, "unknown data set 'digts'", "digits"},
          {train({"--data", "mnist"}), 2, "needs a folder"},
          {train({"--data", "mnist:nowhere"}), 3, "folder not found: 'nowhere'"},
          {train({"--lanes", "float32,fp17"}), 2,
           "no plan named 'fp17', and no file with this name",
           "list them with: halfscope plan list"},
          {train({"--lanes", "float32,mixed_fp16"}), 2, "no plan named 'mixed_fp16'",
           "did you mean mixed_float16?"},
          {train({"--lanes", "float32,,float16"}), 2, "an empty name"},
          {train({"--lanes", "float32,float32"}), 2, "two lanes are named 'float32'"},
          {train({"--lanes", "float32", "--plan", "float16"}), 2, "exclude each other"},
          {train({"--fp32", "conv*"}), 2, "no layer matches 'conv*'"},
          {train({"--lanes", "float32", "--fp32", "fc1"}), 2, "not a reference"},
          {train({"--lanes", "float32", "--fuse"}), 2,
           "--fuse needs a lane that is not a reference"},
          {train({"--accumulate", "fp128"}), 2, "unknown accumulation 'fp128'"},
          {train({"--accumulate", "fromat"}), 2, "unknown accumulation 'fromat'",
           "did you mean format?"},
          {train({"--loss-scale", "static"}), 2, "unknown loss scale 'static'", "static:X"},
          {train({"--loss-scale", "dynmic"}), 2, "unknown loss scale 'dynmic'", "dynamic?"},
          {train({"--loss-scale", "dynamic:-2"}), 2, "'dynamic:-2': -2 is not a positive number"},
          {train({"--optimizer", "lion"}), 2, "unknown optimizer 'lion'"},
          {train({"--optimizer", "sgd:beta1=0.5"}), 2, "beta1"},
          {train({"--optimizer", "sgd:lr=fast"}), 2, "lr=fast"},
      });
}

TEST(CliErrors, ValuesOfTheCourseOfTraining) {
  const Bench bench;
  expect_refusals(
      bench,
      {
          {train({"--batch", "128", "--micro-batches", "3"}), 2,
           "a batch of 128 cannot be split into 3 equal micro-batches", "divides 128"},
          {train({"--micro-batches", "0"}), 2, "--micro-batches 0: out of range", "1 or more"},
          {train({"--accumulate-grads", "fp16"}), 2, "--accumulate-grads needs more than one",
           "--micro-batches N"},
          {train({"--micro-batches", "2", "--accumulate-grads", "fp17"}), 2,
           "unknown format 'fp17'", "did you mean fp16?"},
          {train({"--early-stop", "2"}), 2, "--early-stop needs evaluations", "--eval-every N"},
          {train({"--eval-every", "0"}), 2, "--eval-every 0: out of range"},
          {train({"--errors-every", "0"}), 2, "--errors-every 0: out of range"},
          {train({"--clip-norm", "-1"}), 2, "--clip-norm -1: out of range"},
          {train({"--schedule", "cosin"}), 2, "unknown schedule 'cosin'", "did you mean cosine?"},
          {train({"--schedule", "step"}), 2, "step needs every=N", "step:every=30"},
          {train({"--schedule", "step:every=0"}), 2, "step needs every=N"},
          {train({"--schedule", "onecycle:format=fp15"}), 2, "unknown format 'fp15'", "fp16"},
          {train({"--schedule", "onecycle:div=0"}), 2, "'div=0' must be above 0"},
          {train({"--schedule", "cosine:gamma=2"}), 2, "'cosine' has no option 'gamma'", "floor"},
          {train({"--schedule", "cosine:"}), 2, "'' is not KEY=VALUE", "warmup"},
          {train({"--schedule", "linear:floor"}), 2, "'floor' is not KEY=VALUE"},
          {train({"--schedule", "cosine:warmup=1.5"}), 2, "'warmup=1.5' is not a whole number"},
          {train({"--schedule", "cosine:floor=low"}), 2, "'floor=low' is not a number"},
          {train({"--no-errors", "--errors-every", "2"}), 2,
           "--no-errors and --errors-every exclude each other"},
          {train({"--no-record", "--errors-every", "2"}), 2,
           "--no-record and --errors-every exclude each other"},
          {train({"--no-errors", "--compare", "a,b"}), 2,
           "--no-errors and --compare exclude each other"},
          {train({"--lanes", "float64,mixed_float16", "--errors-every", "2"}), 2,
           "no two lanes to compare every 2 steps", "--compare"},
          {train({"--optimizer", "sgd:momentum=0.9,momentum=0.5"}), 2,
           "optimizer: momentum is given twice"},
          {train({"--schedule", "cosine:floor=0.1,floor=0.1"}), 2,
           "schedule: floor is given twice"},
          {train({"--accumulate", "tensor-core:k80"}), 2, "unknown accumulation 'tensor-core:k80'",
           "tensor-core:ARCH with one of v100, t4, a100"},
          {train({"--accumulate", "fp32:promote=0"}), 2, "unknown accumulation 'fp32:promote=0'",
           "options of fp32: promote=N (1 or more)"},
          {train({"--accumulate", "pairwize:promote=4"}), 2,
           "unknown accumulation 'pairwize:promote=4'", "did you mean pairwise?"},
          {train({"--accumulate", "formt"}), 2, "unknown accumulation 'formt'",
           "did you mean format?"},
          {train({"--lanes", "float32,mixed_bfloat16", "--accumulate", "tensor-core:v100"}), 2,
           "tensor-core:v100 cannot multiply bf16", "it reads: fp16"},
          {train({"--compare", "a"}), 2, "--compare 'a': not two lanes",
           "--compare mixed_float16,bfloat16"},
          {train({"--compare", "a,b"}), 2, "there is no lane 'a'", "lanes: float32, mixed_float16"},
          {train({"--compare", "float32,mixed_flaot16"}), 2, "there is no lane 'mixed_flaot16'",
           "did you mean mixed_float16?"},
          {train({"--compare", "float32,float32"}), 2, "compares a lane with itself"},
          {train({"--lanes", "float64,float32", "--compare", "float32,float64"}), 2,
           "float64' runs in double precision and cannot be compared"},
          {train({"--checkpoint-every", "5"}), 2, "--checkpoint-every needs a file",
           "--checkpoint FILE"},
          {train({"--model", "resnet2"}), 2, "unknown model 'resnet2'", "did you mean resnet20?"},
      });
}

TEST(CliErrors, CheckpointsAndCifar10) {
  const Bench bench;
  test::write_bad_inputs(bench);
  const auto resnet = [](const std::string& data) {
    return train({"--model", "resnet20", "--batch", "2", "--data", data});
  };
  expect_refusals(
      bench,
      {
          {train({"--resume", "run.hscope"}), 2, "run.hscope: not a ZIP archive"},
          {train({"--resume", "w.npz"}), 2, "'w.npz' is not a checkpoint", "--checkpoint"},
          {train({"--resume", "cutc.npz"}), 3, "cutc.npz: truncated"},
          {train({"--resume", "nothere.npz"}), 3, "nothere.npz"},
          {train({"--resume", "folder"}), 3, "folder"},
          {train({"--resume", "c.npz", "--model", "mlp:784-8-10"}), 2, "another --model"},
          {train({"--resume", "c.npz", "--model", "lenet"}), 2, "another --model"},
          {train({"--resume", "c.npz", "--seed", "2"}), 2,
           "the checkpoint was made with another --seed", "with the arguments"},
          {train({"--resume", "c.npz", "--batch", "5"}), 2, "another --batch"},
          {train({"--resume", "c.npz", "--no-shuffle"}), 2, "made without --no-shuffle"},
          {train({"--resume", "c.npz", "--optimizer", "adam"}), 2, "another --optimizer",
           "the arguments of the run"},
          {train({"--resume", "c.npz", "--plan", "bfloat16"}), 2, "has no lane 'bfloat16'",
           "float32, mixed_float16"},
          {train({"--checkpoint", "c.npz"}), 2, "'c.npz' already exists", "--force"},
          {train({"--checkpoint", "nowhere/c.npz"}), 2, "folder 'nowhere' not found"},
          {train({"--checkpoint", "x.npz", "--save-weights", "x.npz"}), 2,
           "'x.npz' is named twice"},
          {train({"--resume", "c.npz", "--save-weights", "c.npz", "--force"}), 2, "also an input"},
          {resnet("cifar10"), 2, "needs a folder"},
          {resnet("cifar10:nowhere"), 3, "folder not found: 'nowhere'", "binary"},
          {resnet("cifar10:c.npz"), 3, "c.npz' is not a folder"},
          {resnet("cifar10:folder"), 3, "no data_batch*.bin"},
          {resnet("cifar10:cifar10test"), 3, "contains no test_batch*.bin"},
          {resnet("cifar10:cifar10short"), 3,
           "data_batch_1.bin: 9218 bytes are not a multiple of the 3073 bytes of a record"},
          {resnet("cifar10:cifar10label"), 3,
           "data_batch_1.bin: label 10 of record 2 is not in 0..9"},
      });
  EXPECT_EQ(bench.run(resnet("cifar10:cifar10")).code, 0) << "the one that is right";
}

TEST(CliErrors, Plans) {
  const Bench bench;
  test::write_bad_inputs(bench);
  expect_refusals(
      bench,
      {
          {train({"--plan", "run.hscope"}), 2, "'run.hscope' is a run file, not a plan",
           "halfscope diagnose run.hscope --out plan.json"},
          {train({"--plan", "nothere.json"}), 2, "no plan named 'nothere.json', and no file"},
          {train({"--plan", "folder"}), 2, "'folder' is a folder, not a plan"},
          {train({"--plan", "empty.json"}), 2, "empty.json: plan: the text is empty"},
          {train({"--plan", "comma.json"}), 2,
           "comma.json: plan: not JSON: line 4, column 1: unexpected }"},
          {train({"--plan", "open.json"}), 2, "line 1, column 43: the text ends too early"},
          {train({"--plan", "binary.json"}), 2, "binary.json: plan: not a text file"},
          {train({"--plan", "array.json"}), 2, "must be an object"},
          {train({"--plan", "noname.json"}), 2, "key \"name\" is missing"},
          {train({"--plan", "schema.json"}), 2, "halfscope.plan/9"},
          {train({"--plan", "format.json"}), 2,
           "format.json: plan: default.format: unknown format \"fp8\"", "did you mean e4m3fn?"},
          {train({"--plan", "key.json"}), 2, "unknown key \"ruels\"", "did you mean rules?"},
          {train({"--plan", "rulekey.json"}), 2, "unknown key \"formt\" in rules[0]",
           "did you mean format?"},
          {train({"--plan", "op.json"}), 2, "unknown operator \"Gem\"", "did you mean Gemm?"},
          {train({"--plan", "path.json"}), 2, "fc9", "fc1"},
          {train({"--plan", "nothing.json"}), 2, "selects nothing", "path or an op"},
          {train({"--plan", "mode.json"}), 2, "unknown value \"fast\"", "fused or stagewise"},
          {train({"--plan", "accumulate.json"}), 2, "unknown value \"fp16\"", "fp32, fp64"},
          {train({"--plan", "type.json"}), 2, "rules must be an array"},
          {train({"--plan", "number.json"}), 2, "number.json: plan: not JSON: a number"},
      });
}

TEST(CliErrors, DataAndInitialWeights) {
  const Bench bench;
  test::write_bad_inputs(bench);
  expect_refusals(
      bench,
      {
          {train({"--data", "mnist:run.hscope"}), 3, "run.hscope' is not a folder"},
          {train({"--data", "mnist:magic"}), 2, "train-images-idx3-ubyte: magic number 0x00000801"},
          {train({"--data", "mnist:short"}), 3, "train-images-idx3-ubyte: truncated"},
          {train({"--data", "mnist:long"}), 3, "more data than the 15680 bytes"},
          {train({"--data", "mnist:gone"}), 3, "has no train-images file", "four MNIST files"},
          {train({"--data", "mnist:gzip"}), 3, "gzip stream"},
          {train({"--data", "mnist:label"}), 3, "label 0 is 11, expected 0 to 9", "ten classes"},
          {train({"--data", "mnist:counts"}), 3, "20 images, but", "same data set"},
          {train({"--data", "mnist:sizes"}), 3, "14", "same data set"},
          {train({"--init", "nothere.npz"}), 3, "nothere.npz"},
          {train({"--init", "folder"}), 3, "folder"},
          {train({"--init", "run.hscope"}), 2, "run.hscope"},
          {train({"--init", "cut.npz"}), 3, "cut.npz"},
          {train({"--init", "nan.npz"}), 2, "initial weights nan.npz: fc1.weight[3,5] is nan",
           "must be finite"},
          {train({"--init", "inf.npz"}), 2, "inf.npz: fc1.weight[0,0] is -inf"},
          {train({"--init", "shape.npz"}), 2,
           "initial weights shape.npz: 'fc1.weight' has shape [784, 10]"},
          {train({"--init", "unknown.npz"}), 2,
           "unknown.npz: the model has no variable 'fc1.wieght'", "fc1.weight"},
      });
}

TEST(CliErrors, RunFiles) {
  const Bench bench;
  test::write_bad_inputs(bench);
  std::vector<ErrorCase> cases;
  for (const char* name : {"report", "diagnose", "inspect"}) {
    cases.push_back({{name, "nothere.hscope"}, 3, "cannot read 'nothere.hscope': file not found"});
    cases.push_back({{name, "text.hscope"}, 2, "'text.hscope' is not a run file"});
    cases.push_back({{name, "tiny.hscope"}, 2, "'tiny.hscope' is not a run file"});
    cases.push_back({{name, "cut.hscope"}, 3, "cut.hscope"});
    cases.push_back({{name, "empty.hscope"}, 3, "'empty.hscope' does not contain a run yet"});
    if (std::string_view(name) == "inspect") continue;  // it reads tensors, too
    cases.push_back({{name, "w.npz"}, 2, "'w.npz' is not a run file"});
    cases.push_back({{name, "folder"}, 2, "'folder' is a folder"});
  }
  expect_refusals(bench, cases);
}

TEST(CliErrors, Outputs) {
  const Bench bench;
  test::write_bad_inputs(bench);
  test::write_text(bench / "there", "precious");
  std::vector<ErrorCase> cases{
      {train({"--out", "there"}), 2, "'there' already exists", "--force"},
      {train({"--save-weights", "there"}), 2, "'there' already exists", "--force"},
      {train({"--save-weights", "./new.hscope"}), 2, "'./new.hscope' is named twice"},
      {train({"--init", "w.npz", "--out", "w.npz", "--force"}), 2, "'w.npz' is also an input"},
      {train({"--init", "w.npz", "--save-weights", "./w.npz", "--force"}), 2,
       "'./w.npz' is also an input"},
      {train({"--plan", "path.json", "--out", "path.json", "--force"}), 2, "also an input"},
      {train({"--out", "folder"}), 2, "'folder' is a folder"},
      {train({"--out", "nowhere/new.hscope"}), 2, "folder 'nowhere' not found"},
      {train({"--save-weights", "nowhere/w.npz"}), 2, "folder 'nowhere' not found"},
      {train({"--out", "/proc/new.hscope"}), 3, "/proc/new.hscope"},
      {{"report", "run.hscope", "--html", "run.hscope", "--force"}, 2, "also an input"},
      {{"report", "run.hscope", "--html", "new", "--md", "new"}, 2, "'new' is named twice"},
      {{"report", "run.hscope", "--html", "new.html", "--md", "/dev/full"}, 3, "/dev/full"},
      {{"diagnose", "run.hscope", "--out", "there"}, 2, "'there' already exists", "--force"},
      {{"diagnose", "run.hscope", "--out", "nowhere/plan.json"}, 2, "folder 'nowhere' not found"},
  };
  cases.erase(cases.end() - 3);  // writes new.html before it meets the full disk; see below
  for (const char* flag : {"--html", "--md", "--json", "--csv"}) {
    cases.push_back({{"report", "run.hscope", flag, "there"}, 2, "'there' already exists"});
    cases.push_back(
        {{"report", "run.hscope", flag, "folder/x/y"}, 2, "folder 'folder/x' not found"});
    cases.push_back({{"report", "run.hscope", flag, "/proc/x"}, 3, "cannot write '/proc/x'"});
    cases.push_back({{"report", "run.hscope", flag, "/dev/full"}, 3, "cannot write '/dev/full'"});
  }
  for (const char* flag : {"--steps", "--stats"}) {
    cases.push_back({{"report", "run.hscope", flag, "there"}, 2, "'there' already exists"});
    cases.push_back({{"report", "run.hscope", flag, "/dev/full"}, 3, "No space left"});
  }
  expect_refusals(bench, cases);
}

TEST(CliErrors, AMisspeltOutputIsFoundBeforeTheWork) {
  const Bench bench;
  // The run would take hours.
  expect_refusal(bench.run({"train", "--steps", "1e9", "--save-weights", "nowhere/w.npz"}), 2,
                 "folder 'nowhere' not found");
  expect_refusal(bench.run({"report", "nothere.hscope", "--html", "nowhere/r.html"}), 2,
                 "folder 'nowhere' not found");
}

TEST(CliErrors, ForceReplaces) {
  const Bench bench;
  ASSERT_EQ(bench.run(small_training({})).code, 0);
  const std::string before = test::text_of(bench / "run.hscope");
  EXPECT_EQ(bench.run(small_training({"--force", "--force", "--seed", "2"})).code, 0);
  EXPECT_NE(test::text_of(bench / "run.hscope"), before);
}

TEST(CliErrors, FullDisks) {
  const Bench bench;
  ASSERT_EQ(bench.run(small_training({})).code, 0);
  const auto before = test::contents(bench);
  // Files may have 4 kB at most: the report does not fit, and half a report must not remain.
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit small{.rlim_cur = 4096, .rlim_max = old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Outcome outcome = bench.run({"report", "run.hscope", "--html", "r.html"});
  const Outcome training = bench.run(small_training({"--out", "b.hscope"}));
  setrlimit(RLIMIT_FSIZE, &old);
  expect_refusal(outcome, 3, "cannot write 'r.html'");
  expect_refusal(training, 3, "b.hscope");
  std::filesystem::remove(bench / "b.hscope");  // keeps what was committed
  for (const char* suffix : {"-wal", "-shm", "-journal"}) {
    std::filesystem::remove(bench / ("b.hscope" + std::string(suffix)));
  }
  EXPECT_EQ(test::contents(bench), before);
  expect_refusal(bench.run({"report", "run.hscope"}, "", "stderr.txt", "/dev/full"), 3,
                 "cannot write to standard output: No space left");
}

TEST(CliErrors, AReaderThatLeavesIsNoError) {
  const Bench bench;
  ASSERT_EQ(bench.run(small_training({})).code, 0);
  for (const std::string& words : {std::string("report run.hscope"), std::string("runs run.hscope"),
                                   std::string("export run.hscope --stats /dev/stdout"),
                                   std::string("completion bash"), std::string("train --help")}) {
    // The reader is gone before the first byte comes.
    const std::string command = "cd '" + (bench / "").string() +
                                "' && { sleep 0.3; '" HALFSCOPE_PROGRAM "' " + words +
                                " 2>noise.txt; echo $? >code.txt; } | true";
    EXPECT_EQ(std::system(command.c_str()), 0);
    EXPECT_EQ(test::text_of(bench / "noise.txt"), "") << words;
    EXPECT_EQ(test::text_of(bench / "code.txt"), "0\n") << words;
  }
}

TEST(CliErrors, ARunThatIsStillWritten) {
  const Bench bench;
  const pid_t child = bench.start(
      {"train", "--model", "mlp:784-16-10", "--batch", "16", "--steps", "1e6", "--quiet"});
  Outcome live;
  for (int tries = 0; tries < 200 && live.code != 0; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    live = bench.run({"inspect", "run.hscope"});
  }
  EXPECT_EQ(live.code, 0) << live.err;
  EXPECT_THAT(live.out, HasSubstr("running"));
  EXPECT_EQ(bench.run({"report", "run.hscope"}).code, 0);
  expect_refusal(bench.run(small_training({"--force"})), 2, "'run.hscope' is in use",
                 "choose another name");
  kill(child, SIGINT);
  EXPECT_EQ(bench.finish(child).code, 0);
}

TEST(CliErrors, LayersOfDoctor) {
  const Bench bench;
  expect_refusals(
      bench,
      {{{"doctor", "--model", "lenett"}, 2, "unknown model 'lenett'", "lenet"},
       {{"doctor", "--model", "none.onnx"}, 3, "cannot open 'none.onnx'", "check the path"},
       {{"doctor", "--plan", "mixed_float16"}, 2, "--plan is for the layers", "add --model"},
       {{"doctor", "--data", "digits"}, 2, "--data is for the layers", "add --model"},
       {{"doctor", "--dimension", "a=3"}, 2, "--dimension is for the layers", "add --model"},
       {{"doctor", "--batch", "8"}, 2, "--batch is for the layers", "add --model"},
       {{"doctor", "--model", "lenet", "--batch", "0"}, 2, "--batch 0: out of range"},
       {{"doctor", "--model", "lenet", "--plan", "float64"}, 2, "runs in double precision", "plan"},
       {{"doctor", "--model", "lenet", "--plan", "half"},
        2,
        "no plan named 'half'",
        "model.half()"},
       {{"doctor", "--model", "lenet", "--plan", "as_exported"},
        2,
        "as_exported is the plan of an ONNX file"},
       {{"doctor", "--model", "lenet", "--data", "mnist:none"}, 3, "none"},
       {{"doctor", "--model", "lenet", "--dimension", "a=3"}, 2, "--dimension is for network"},
       {{"doctor", "--model", "mlp:5-4", "--data", "digits"}, 2, "does not fit the data", "784"}});
}

TEST(CliErrors, InstructionSet) {
  const Bench bench;
  expect_refusal(bench.run(small_training({}), "HALFSCOPE_ISA=sse9"), 2,
                 "HALFSCOPE_ISA=sse9 is not supported on this processor");
  EXPECT_FALSE(std::filesystem::exists(bench / "run.hscope"));
  EXPECT_EQ(bench.run(small_training({}), "HALFSCOPE_ISA=baseline").code, 0);
}

TEST(CliErrors, HelpOfEverything) {
  const Bench bench;
  for (const Words& words : {Words{"--help"}, Words{"-h"}, Words{"help"}}) {
    const Outcome help = bench.run(words);
    EXPECT_EQ(help.code, 0);
    EXPECT_EQ(help.err, "");
    EXPECT_THAT(help.out, HasSubstr("\nTrain:\n  train "));
  }
  EXPECT_THAT(bench.run({"--version"}).out, testing::MatchesRegex("halfscope [0-9.]+\n"));
  for (const char* name : {"train", "run", "diagnose", "report", "view", "inspect", "convert",
                           "cost", "doctor", "fprev", "mma-check", "completion"}) {
    const Outcome help = bench.run({name, "--help"});
    EXPECT_EQ(help.code, 0) << name;
    EXPECT_THAT(help.out, HasSubstr("\nUsage: halfscope " + std::string(name)));
    EXPECT_THAT(help.out, HasSubstr("\nExample:  halfscope " + std::string(name)));
    EXPECT_EQ(bench.run({"help", name}).out, help.out);
    for (const std::string& line : lines_of(help.out)) {
      EXPECT_LE(line.size(), 100u) << line;
    }
  }
}

// Help works in any position, even after a flag without its value.
TEST(CliErrors, HelpIsNotAValue) {
  const Bench bench;
  const std::string help = bench.run({"train", "--help"}).out;
  for (const Words& words : {Words{"train", "--steps", "1", "--out", "--help"},
                             {"train", "--out", "-h"},
                             {"train", "--nonsense", "--help"},
                             {"help", "train", "--steps"}}) {
    const Outcome outcome = bench.run(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.out, help);
    EXPECT_EQ(outcome.err, "");
  }
  EXPECT_EQ(bench.run({"help", "help"}).out, bench.run({"--help"}).out);
  EXPECT_TRUE(test::contents(bench).size() <= 2) << "only what was printed";
}

TEST(CliErrors, SettingsWithoutEffect) {
  const Bench bench;
  const auto run = [](const Words& more) {
    Words words{"run", "mlp:784-10", "--data", "digits", "--limit", "4"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  expect_refusals(
      bench, {{run({"--every", "2"}), 2, "--every needs a run file to write", "add --record FILE"},
              {run({"--errors-every", "2"}), 2, "--errors-every needs a run file"},
              {run({"--compare", "a,b"}), 2, "--compare needs a run file"},
              {run({"--dimension", "a=1", "--dimension", "a=2"}), 2, "the dimension is given twice",
               "keep"},
              {run({"--lanes", "emulated:"}), 2, "'emulated:' has no plan", "write emulated:PLAN"},
              {run({"--plan", "a,b.json"}), 2, "a plan's name cannot contain a comma", "rename"},
              {train({"--lr", "1e39"}), 2, "--lr 1e39: out of range", "use at most 3.4e+38"},
              {train({"--steps", "1e15", "--batch", "1e16"}), 2, "--batch 1e16: out of range",
               "at most"}});
}

// Scripts for earlier versions still work; help shows the current names only.
TEST(CliErrors, OldNamesOfCommandsStillWork) {
  const Bench bench;
  ASSERT_EQ(bench.run(small_training({})).code, 0);
  const struct {
    Words old, now;
  } pairs[] = {{{"runs", "run.hscope", "--json"}, {"inspect", "run.hscope", "--json"}},
               {{"recommend", "run.hscope", "--json"}, {"diagnose", "run.hscope", "--json"}},
               {{"export", "run.hscope", "--steps", "-"}, {"report", "run.hscope", "--steps", "-"}},
               {{"recommend", "--help"}, {"diagnose", "--help"}},
               {{"help", "runs"}, {"inspect", "--help"}}};
  const std::string help = bench.run({"--help"}).out;
  for (const auto& [old, now] : pairs) {
    const Outcome before = bench.run(old), after = bench.run(now);
    EXPECT_EQ(before.code, 0) << old[0];
    EXPECT_EQ(before.out, after.out) << old[0];
    EXPECT_NE(after.out, "");
    EXPECT_TRUE(old[0] == "help" || help.find("\n  " + old[0] + " ") == std::string::npos);
  }
}

}  // namespace
}  // namespace halfscope
