// SPDX-License-Identifier: MIT
#include "python/src/arrays.h"

namespace nb = nanobind;

namespace halfscope::python {

ElementKind kind_of(const Array& array) {
  // Codes of DLPack 1.1.
  constexpr uint8_t kFloat = 2, kBfloat = 4, kE4m3fnCode = 10, kE4m3fnuzCode = 11, kE5m2Code = 12,
                    kE5m2fnuzCode = 13;
  const nb::dlpack::dtype type = array.dtype();
  if (type.lanes == 1) {
    if (type.code == kFloat && type.bits == 64) return ElementKind::f64;
    if (type.code == kFloat && type.bits == 32) return ElementKind::f32;
    if (type.code == kFloat && type.bits == 16) return ElementKind::f16;
    if (type.code == kBfloat && type.bits == 16) return ElementKind::bf16;
    if (type.code == kE4m3fnCode) return ElementKind::e4m3fn;
    if (type.code == kE4m3fnuzCode) return ElementKind::e4m3fnuz;
    if (type.code == kE5m2Code) return ElementKind::e5m2;
    if (type.code == kE5m2fnuzCode) return ElementKind::e5m2fnuz;
  }
  throw nb::type_error("the array is not of a floating-point type that HalfScope measures");
}

namespace {

struct Layout {
  std::vector<int64_t> shape, strides;

  explicit Layout(const Array& array) : shape(array.ndim()), strides(array.ndim()) {
    for (size_t i = 0; i < shape.size(); ++i) {
      shape[i] = static_cast<int64_t>(array.shape(i));
      strides[i] = array.stride(i);
    }
  }
};

}  // namespace

Elements elements_of(const Array& array, const Array* order_of) {
  const Layout own(array);
  if (order_of == nullptr) return Elements(array.data(), kind_of(array), own.shape, own.strides);
  return Elements(array.data(), kind_of(array), own.shape, own.strides, Layout(*order_of).strides);
}

Elements row_major_elements_of(const Array& array) {
  const Layout own(array);
  std::vector<int64_t> order(own.shape.size(), 1);
  for (size_t i = order.size(); i-- > 1;) order[i - 1] = order[i] * own.shape[i];
  return Elements(array.data(), kind_of(array), own.shape, own.strides, order);
}

FloatFormat format_from(const std::string& name) {
  const std::optional<FloatFormat> format = parse_format(name);
  if (format) return *format;
  throw nb::value_error(("'" + name + "' is not a format: " + format_problem(name)).c_str());
}

}  // namespace halfscope::python
