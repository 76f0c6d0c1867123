// SPDX-License-Identifier: MIT
// ONNX files as networks: graphs of opset 8 to 28 become the graphs that built-in models are, so
// that any plan can run and train them. Older forms are converted while reading. docs/onnx.md lists
// the operators.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/lower/lower.h"
#include "core/plan/plan.h"

namespace halfscope {

/// What may train differently from the network that was exported, and how that can be settled.
struct ImportDoubt {
  std::string name;  ///< of the tensor, as the user calls it where the file says it
  std::string why;   ///< a sentence
};

/// A tensor of reals that training leaves alone.
struct ImportConstant {
  std::string name;
  Shape shape;
  std::string why;  ///< "buffer", "mask" ...
};

/// A variable that training changes.
struct ImportParameter {
  std::string name;       ///< as in named_parameters() where the file says it
  std::string file_name;  ///< of the initializer
  Shape shape;
  /// Nodes that read it; more than one where it is tied.
  std::vector<std::string> readers{};
};

struct ImportOptions {
  /// The first dimension of the inputs where the file leaves it open; 0 means 1. Where the file
  /// fixes it at 1 and no node mixes samples, the network takes that many as well.
  int64_t batch = 0;
  /// Sizes of other open dimensions, by their names in the file or as "input.2".
  std::map<std::string, int64_t> dimensions{};
  /// Globs over the names of tensors, the user's or the file's: what trains in spite of how it
  /// looks, what does not, and what every node that reads it has for itself.
  std::vector<std::string> trainable{}, frozen{}, untied{};
};

struct OnnxImport {
  /// Without a loss. Variables start from the file's initializers; they are called by the node that
  /// reads them, "conv1.weight", and keep the initializer's name as Variable::alias. Running
  /// statistics of batch normalizations are buffers that training moves on.
  Model model;
  /// The formats that the file itself computes in: where it has float16 values, nodes read and
  /// write float16.
  Plan types;
  /// What the file calls the first dimension of its inputs where it leaves that open, "batch" if it
  /// has no name there; empty if the file fixes it.
  std::string open_batch{};
  /// The key of ImportOptions::dimensions that gave an input its first dimension; empty without.
  std::string given_batch{};
  /// Why a file that fixes the batch at 1 cannot take ImportOptions::batch samples, beginning with
  /// the node; empty if it can, and where nobody asks.
  std::string one_sample{};
  /// The types of the file's inputs by their names here, "float16"; the model has reals and
  /// indices.
  std::map<std::string, std::string> input_types{};
  /// What a user should know of the conversion, a line each.
  std::vector<std::string> notes;
  std::vector<ImportParameter> parameters{};
  std::vector<ImportConstant> constants{};
  std::vector<ImportDoubt> doubts{};
};

/// The types of the inputs of a file in memory by their names, "float16". Throws Error naming
/// `name` if it is no ONNX file.
std::map<std::string, std::string> onnx_input_types(std::span<const uint8_t> bytes,
                                                    const std::string& name);

/// Throws Error naming the node where the file is damaged or asks for what we do not have; nothing
/// of it is ever executed.
OnnxImport read_onnx(const std::filesystem::path& file, const ImportOptions& options = {});

/// The same from memory; external data is looked for in `folder`.
OnnxImport parse_onnx(std::span<const uint8_t> bytes, const std::string& name,
                      const std::filesystem::path& folder, const ImportOptions& options = {});

}  // namespace halfscope
