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

Elements elements_of(const Array& array, const Array* order_of) {
  const size_t rank = array.ndim();
  std::vector<int64_t> shape(rank), strides(rank), order(rank);
  for (size_t i = 0; i < rank; ++i) {
    shape[i] = static_cast<int64_t>(array.shape(i));
    strides[i] = array.stride(i);
    if (order_of != nullptr) order[i] = order_of->stride(i);
  }
  if (order_of == nullptr) order.clear();
  return Elements(array.data(), kind_of(array), shape, strides, order);
}

FloatFormat format_from(const std::string& name) {
  const std::optional<FloatFormat> format = parse_format(name);
  if (format) return *format;
  throw nb::value_error(("'" + name + "' is not a format: " + format_problem(name)).c_str());
}

}  // namespace halfscope::python
