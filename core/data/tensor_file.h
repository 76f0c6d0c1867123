// SPDX-License-Identifier: MIT
// Files of tensors, told by their content: .npy, .npz and .safetensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/data/file_bytes.h"
#include "core/data/npy.h"
#include "core/data/stored_array.h"
#include "core/data/zip.h"
#include "core/tensor.h"

namespace halfscope {

enum class TensorFileKind : uint8_t { npy, npz, safetensors };

/// Returns the kind of a file by its first bytes, or by its extension if it is empty or damaged;
/// nothing for other files.
std::optional<TensorFileKind> tensor_file_kind(const std::filesystem::path& file);

/// Returns whether files with this name are usually written by torch.save().
bool is_torch_name(const std::filesystem::path& file);
/// Throws Error (usage) for such a name: these files are Python pickles.
void refuse_torch_file(const std::filesystem::path& file);

/// Reads all arrays of a .npz or .safetensors file as float32.
NamedTensors read_tensors(const std::filesystem::path& file);
/// Reads all arrays of a .npz or .safetensors file as float64.
NamedDoubleTensors read_tensors_double(const std::filesystem::path& file);

/// The arrays of a file, whose values are read in parts.
class TensorFile {
 public:
  /// Reads the headers. Throws Error.
  explicit TensorFile(const std::filesystem::path& file);

  const std::vector<StoredArray>& arrays() const noexcept { return arrays_; }

  /// Returns whether read() works: the file is not a .npz.
  bool is_plain() const noexcept { return !archive_; }
  /// Fills `target` with an array's bytes from `offset` on. Several threads may read at the same
  /// time. Throws Error if the file became shorter.
  void read(const StoredArray& array, uint64_t offset, std::span<uint8_t> target) const {
    file_.read(array.offset + offset, target);
  }
  /// Returns the values of an array of a .npz, to be read in order, one array at a time.
  std::unique_ptr<ByteSource> open(const StoredArray& array) const;

 private:
  FileBytes file_;
  std::unique_ptr<ZipReader> archive_;
  std::vector<StoredArray> arrays_;
};

}  // namespace halfscope
