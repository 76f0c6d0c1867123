// SPDX-License-Identifier: MIT
// ONNX import: graphs of opset 8 to 28 become graphs like those of built-in models, so that any
// plan can run and train them. Older forms are converted while reading. docs/onnx.md lists the
// operators.
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

/// A tensor that may train differently from the exported network, and how to resolve that.
struct ImportDoubt {
  std::string name;  ///< of the tensor: the user's name if the file contains it
  std::string why;   ///< a sentence
};

/// A tensor of reals that does not train.
struct ImportConstant {
  std::string name;
  Shape shape;
  std::string why;  ///< "buffer", "mask" ...
};

/// A variable that training changes.
struct ImportParameter {
  std::string name;       ///< as in named_parameters() if the file contains that name
  std::string file_name;  ///< of the initializer
  Shape shape;
  /// Nodes that read it; more than one if it is tied.
  std::vector<std::string> readers{};
  bool turned = false;  ///< the file has the transpose of the parameter in named_parameters()
};

struct ImportOptions {
  /// First dimension of the inputs if the file leaves it open; 0 means 1. If the file fixes it at 1
  /// and no node mixes samples, the network is converted to this many samples.
  int64_t batch = 0;
  /// Sizes of other open dimensions, by their names in the file or as "input.2".
  std::map<std::string, int64_t> dimensions{};
  /// Globs over the user's or the file's names of tensors: tensors that train or do not train
  /// whatever the importer would guess, and tensors of which every reading node gets its own copy.
  std::vector<std::string> trainable{}, frozen{}, untied{};
};

struct OnnxImport {
  /// The network without a loss. Variables start from the file's initializers. They are named by
  /// the node that reads them, "conv1.weight", and keep the initializer's name as Variable::alias.
  /// Running statistics of batch normalizations are buffers that training updates.
  Model model;
  /// The formats that the file itself computes in: nodes read and write float16 if their values in
  /// the file are float16.
  Plan types;
  /// Name of the first dimension of the inputs if the file leaves it open, "batch" if it has no
  /// name; empty if the file fixes it.
  std::string open_batch{};
  /// Key of ImportOptions::dimensions that set the first dimension of an input; else empty.
  std::string given_batch{};
  /// Reason why a file that fixes the batch at 1 cannot take ImportOptions::batch samples,
  /// beginning with the node; empty if it can, or if that is not requested.
  std::string one_sample{};
  /// Types of the file's inputs, such as "float16", by input name. In the model inputs are only
  /// real or index.
  std::map<std::string, std::string> input_types{};
  /// Notes about the conversion for the user, one line each.
  std::vector<std::string> notes;
  std::vector<ImportParameter> parameters{};
  std::vector<ImportConstant> constants{};
  std::vector<ImportDoubt> doubts{};
};

/// Returns the types of the inputs of a file in memory, such as "float16", by input name. Throws
/// Error naming `name` if it is not a valid ONNX file.
std::map<std::string, std::string> onnx_input_types(std::span<const uint8_t> bytes,
                                                    const std::string& name);

/// Returns the files beside a model that have weights of it (external data), in order and each
/// once. Throws Error if the model is not a valid ONNX file, or refers to a file outside its
/// folder.
std::vector<std::filesystem::path> external_files(const std::filesystem::path& file);

/// Imports a file. Throws Error naming the node if the file is damaged or needs something that is
/// not supported; code in the file is never executed.
OnnxImport read_onnx(const std::filesystem::path& file, const ImportOptions& options = {});

/// Imports a file from memory; external data is read from `folder`.
OnnxImport parse_onnx(std::span<const uint8_t> bytes, const std::string& name,
                      const std::filesystem::path& folder, const ImportOptions& options = {});

}  // namespace halfscope
