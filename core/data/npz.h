// SPDX-License-Identifier: MIT
// NumPy's .npy and .npz files (format description: numpy.lib.format; a .npz is a ZIP archive of
// .npy members, stored or deflated).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace halfscope {

/// Reads every member as float32 (float16, float32, float64, integers and bool are converted;
/// C and Fortran order). Keys are member names without ".npy". Throws Error on anything else.
NamedTensors read_npz(const std::filesystem::path& file);

/// Parses a file in memory; `name` stands for the file in messages.
NamedTensors parse_npz(std::vector<uint8_t> bytes, const std::string& name);

/// Writes float32 members, stored, in key order, with fixed time stamps: same bytes for the
/// same tensors. Writes to a temporary file first and renames it.
void write_npz(const std::filesystem::path& file, const NamedTensors& tensors);

/// Writes float64 members.
NamedDoubleTensors read_npz_double(const std::filesystem::path& file);
void write_npz_double(const std::filesystem::path& file, const NamedDoubleTensors& tensors);

/// Reads one .npy file as float32.
Tensor read_npy(const std::filesystem::path& file);
/// Reads every member as float64.
DoubleTensor read_npy_double(const std::filesystem::path& file);

/// Writes one float32 .npy file through a temporary file, like write_npz().
void write_npy(const std::filesystem::path& file, const Tensor& tensor);

}  // namespace halfscope
