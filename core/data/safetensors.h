// SPDX-License-Identifier: MIT
// .safetensors files (huggingface/safetensors, "Format"): 8 bytes with the length of the header,
// the header, a JSON object of name -> dtype, shape, data_offsets, and then the values of all
// tensors without gaps. Only the JSON that this format allows is accepted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/data/npy.h"
#include "core/data/stored_array.h"

namespace halfscope {

/// The longest header that the format allows.
inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

/// Reads the header of a file. Returns the tensors in the order of their values;
/// StoredArray::offset counts from the start of the file. `name` stands for the file in messages.
/// Throws Error if the file breaks a rule of the format: the offsets must be in range, and cover
/// all bytes after the header without gaps and overlaps.
std::vector<StoredArray> safetensors_arrays(ByteSource& file, const std::string& name);

/// Reads all tensors, converted to float32 as read_npz() does.
NamedTensors read_safetensors(const std::filesystem::path& file);
/// Reads all tensors as float64.
NamedDoubleTensors read_safetensors_double(const std::filesystem::path& file);

/// Returns whether the file is called .safetensors, or starts like one.
bool is_safetensors(const std::filesystem::path& file);

}  // namespace halfscope
