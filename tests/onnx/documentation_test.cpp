// SPDX-License-Identifier: MIT
// The table of operators in docs/onnx.md compared with the translators and the existing operators.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "core/onnx/translate.h"
#include "core/ops/ops.h"

namespace halfscope::onnx_files {
namespace {

/// Operators that become other ones; all others keep their name.
const std::map<std::string, std::string>& renamed() {
  static const std::map<std::string, std::string> names{
      {"AffineGrid", "MatMul"},
      {"ArgMin", "Neg, ArgMax"},
      {"Attention", "MatMul, Mul, Where, Softmax"},
      {"BitwiseNot", "BitwiseXor"},
      {"Cast", "Identity"},
      {"CastLike", "Identity"},
      {"Celu", "Elu, Mul, Where"},
      {"Col2Im", "ConvGradInput"},
      {"Compress", "Gather"},
      {"ConvTranspose", "ConvGradInput, Add"},
      {"Cosh", "Exp, Add, Mul"},
      {"DepthToSpace", "Reshape, Transpose"},
      {"DequantizeLinear", "Sub, Mul"},
      {"Einsum", "MatMul, Mul, ReduceSum"},
      {"Erfc", "Erf, Sub"},
      {"FastGelu", "Gelu"},
      {"GRU", "MatMul, Split, Sigmoid, Tanh, Mul, Add, Sub"},
      {"GatherND", "Reshape, Gather"},
      {"GlobalLpPool", "Pow, ReduceSum"},
      {"GlobalMaxPool", "ReduceMax"},
      {"GridSample", "GatherElements, Mul, ReduceSum"},
      {"Hardmax", "ArgMax, Equal, Where"},
      {"IsInf", "Abs, Equal"},
      {"IsNaN", "Equal, Not"},
      {"LRN", "AveragePool, Pow, Div"},
      {"LSTM", "MatMul, Split, Sigmoid, Tanh, Mul, Add"},
      {"LpNormalization", "Mul, ReduceSum, Sqrt, Div"},
      {"LpPool", "Pow, AveragePool"},
      {"Mean", "Add, Div"},
      {"MeanVarianceNormalization", "ReduceMean, Sub, Sqrt, Div"},
      {"NegativeLogLikelihoodLoss", "GatherElements, Neg, ReduceMean, Div"},
      {"OneHot", "Equal, Where"},
      {"QuantizeLinear", "Div, Round, Add, Clip"},
      {"RNN", "MatMul, Split, Tanh, Add"},
      {"ReduceL1", "Abs, ReduceSum"},
      {"ReduceL2", "Mul, ReduceSum, Sqrt"},
      {"ReduceLogSum", "ReduceSum, Log"},
      {"ReduceLogSumExp", "Sub, Exp, ReduceSum, Log, Add"},
      {"ReduceProd", "Slice, Mul"},
      {"ReduceSumSquare", "Mul, ReduceSum"},
      {"Resize", "Gather, Mul, Add"},
      {"RotaryEmbedding", "Slice, Mul, Sub, Add, Concat"},
      {"Scatter", "Concat, Gather"},
      {"ScatterElements", "Concat, Gather"},
      {"ScatterND", "Concat, Gather"},
      {"Selu", "Elu, Mul"},
      {"ReverseSequence", "Gather"},
      {"Shrink", "Add, Sub, Where"},
      {"SimplifiedLayerNormalization", "RMSNormalization"},
      {"Sinh", "Exp, Add, Tanh, Mul"},
      {"Softsign", "Abs, Add, Div"},
      {"SpaceToDepth", "Reshape, Transpose"},
      {"Squeeze", "Reshape"},
      {"Sum", "Add"},
      {"SwiGLU", "Swish, Mul"},
      {"Tan", "Sin, Cos, Div"},
      {"ThresholdedRelu", "Where"},
      {"Tile", "Reshape, Expand"},
      {"TopK", "GatherElements"},
      {"Trilu", "Where"},
      {"Unsqueeze", "Reshape"},
      {"Upsample", "Gather, Mul, Add"},
      {"Xor", "Equal, Not"},
  };
  return names;
}

std::string expected_table() {
  std::map<std::string, std::string> rows;
  for (const std::string& op : translated_operators()) {
    const auto other = renamed().find(op);
    const std::string becomes = other == renamed().end() ? "" : other->second;
    bool gradient = true, stagewise = false;
    std::istringstream parts(becomes.empty() ? op : becomes);
    for (std::string part; std::getline(parts, part, ',');) {
      const OpDef* def = lookup_op(part.substr(part.find_first_not_of(' ')));
      EXPECT_NE(def, nullptr) << op << " becomes " << part;
      if (def == nullptr) continue;
      gradient = gradient && def->gradient != nullptr;
      stagewise = stagewise || def->expand != nullptr;
    }
    EXPECT_FALSE(rows.contains(op)) << op;
    rows[op] = "| " + op + " | " + becomes + " | " + (gradient ? "yes" : "") + " | " +
               (stagewise ? "yes" : "") + " |";
  }
  std::string table;
  for (const auto& [op, row] : rows) table += row + "\n";
  return table;
}

TEST(OnnxDocumentation, ListsTheOperators) {
  std::ifstream file(HALFSCOPE_SOURCE_DIR "/docs/onnx.md");
  std::string table;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line == "| --- | --- | --- | --- |") {
      inside = true;
    } else if (inside && line.starts_with("| ")) {
      table += line + "\n";
    } else {
      inside = false;
    }
  }
  EXPECT_EQ(table, expected_table());
}

}  // namespace
}  // namespace halfscope::onnx_files
