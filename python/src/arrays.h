// SPDX-License-Identifier: MIT
// Arrays of other libraries, through DLPack or the buffer protocol.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/numeric/formats/float_format.h"
#include "python/src/elements.h"

namespace halfscope::python {

/// A tensor in host memory that this call borrows.
using Array = nanobind::ndarray<nanobind::ro, nanobind::device::cpu>;

/// Returns the element type of an array. Throws a Python TypeError if it is not a floating-point
/// type that is supported.
ElementKind kind_of(const Array& array);

/// Returns the numbers of an array, in the order of `order_of` if given. Valid as long as the
/// array.
Elements elements_of(const Array& array, const Array* order_of = nullptr);

/// Returns the numbers of an array in row-major order, whatever its strides.
Elements row_major_elements_of(const Array& array);

/// Parses a format. Throws a Python ValueError that says what is wrong with it.
FloatFormat format_from(const std::string& name);

}  // namespace halfscope::python
