// SPDX-License-Identifier: MIT
// Summary of an imported network file, as text and as JSON: weights that train, are tied, stay
// constant or are doubtful.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/terminal/output.h"
#include "core/onnx/import.h"

namespace halfscope {

struct NetworkSummary {
  std::string file;
  std::vector<ImportParameter> parameters;
  std::vector<ImportConstant> constants;
  std::vector<ImportDoubt> doubts;
  std::vector<std::string> notes;
  int64_t batch = 1;              ///< samples that the imported network takes at once
  std::string open_batch{};       ///< the file's name for that dimension; "" if the file fixes it
  int64_t constant_elements = 0;  ///< in constant tensors of more than one number
};

/// Returns the summary; `batch` is the number of samples per batch.
NetworkSummary summary_of(const OnnxImport& import, const std::string& file, int64_t batch);

/// Hint that follows doubts.
inline constexpr const char* kDoubtHint =
    "docs/onnx.md shows the export that leaves the fewest doubts; --trainable, --frozen and "
    "--untie "
    "correct a wrong guess";

/// One or two sentences, and a line for each tied parameter.
std::string summary_text(const NetworkSummary& summary);
/// The same as an object: counts, tied parameters, doubts and the batch.
Json summary_json(const NetworkSummary& summary);

/// Every parameter, constant and doubt.
std::string listing_text(const NetworkSummary& summary);
/// Schema halfscope.network/1, without nodes.
Json listing_json(const NetworkSummary& summary);

}  // namespace halfscope
