// SPDX-License-Identifier: MIT
#include "python/src/arrays.h"

#include <utility>

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

/// Returns a name that attributes are looked up by; making one for each look-up takes longer.
nb::handle name_of(const char* text) {
  PyObject* const name = PyUnicode_InternFromString(text);
  if (name == nullptr) throw nb::python_error();
  return name;
}

/// PyTorch's class of tensors and its element types. All live as long as the program.
struct Torch {
  PyTypeObject* tensor = nullptr;
  std::vector<std::pair<PyObject*, ElementKind>> kinds;
  nb::handle is_cpu, is_neg, dtype, data_ptr, shape, stride;  ///< names
};

/// Returns PyTorch's types; without its class if PyTorch is not imported.
const Torch& torch_types() {
  static Torch torch;
  if (torch.tensor != nullptr) return torch;
  PyObject* const module = PyDict_GetItemString(PyImport_GetModuleDict(), "torch");
  if (module == nullptr) return torch;
  const nb::handle found(module);
  if (!nb::hasattr(found, "Tensor") || !nb::hasattr(found, "float32")) return torch;
  for (const auto& [name, kind] : {std::pair{"float32", ElementKind::f32},
                                   {"float64", ElementKind::f64},
                                   {"float16", ElementKind::f16},
                                   {"bfloat16", ElementKind::bf16},
                                   {"float8_e4m3fn", ElementKind::e4m3fn},
                                   {"float8_e4m3fnuz", ElementKind::e4m3fnuz},
                                   {"float8_e5m2", ElementKind::e5m2},
                                   {"float8_e5m2fnuz", ElementKind::e5m2fnuz}}) {
    if (nb::hasattr(found, name)) torch.kinds.emplace_back(found.attr(name).inc_ref().ptr(), kind);
  }
  torch.is_cpu = name_of("is_cpu");
  torch.is_neg = name_of("is_neg");
  torch.dtype = name_of("dtype");
  torch.data_ptr = name_of("data_ptr");
  torch.shape = name_of("shape");
  torch.stride = name_of("stride");
  torch.tensor = reinterpret_cast<PyTypeObject*>(found.attr("Tensor").inc_ref().ptr());
  return torch;
}

bool is_true(const nb::object& x) { return x.ptr() == Py_True; }

nb::object attribute(nb::handle of, nb::handle name) {
  PyObject* const found = PyObject_GetAttr(of.ptr(), name.ptr());
  if (found == nullptr) throw nb::python_error();
  return nb::steal(found);
}

nb::object call(nb::handle of, nb::handle method) {
  PyObject* const result = PyObject_CallMethodNoArgs(of.ptr(), method.ptr());
  if (result == nullptr) throw nb::python_error();
  return nb::steal(result);
}

std::vector<int64_t> numbers_in(const nb::object& tuple) {
  const nb::tuple all = nb::borrow<nb::tuple>(tuple);
  std::vector<int64_t> numbers;
  numbers.reserve(nb::len(all));
  for (const nb::handle each : all) numbers.push_back(nb::cast<int64_t>(each));
  return numbers;
}

}  // namespace

Borrowed::Borrowed(nb::handle tensor, const Borrowed* order_of) {
  const std::vector<int64_t> none;
  const std::vector<int64_t>& order = order_of == nullptr ? none : order_of->strides_;
  const Torch& torch = torch_types();
  if (torch.tensor != nullptr && PyObject_TypeCheck(tensor.ptr(), torch.tensor) != 0 &&
      is_true(attribute(tensor, torch.is_cpu)) && !is_true(call(tensor, torch.is_neg))) {
    const nb::object type = attribute(tensor, torch.dtype);
    for (const auto& [each, kind] : torch.kinds) {
      if (each != type.ptr()) continue;
      const auto* data =
          reinterpret_cast<const void*>(nb::cast<uintptr_t>(call(tensor, torch.data_ptr)));
      const std::vector<int64_t> shape = numbers_in(attribute(tensor, torch.shape));
      strides_ = numbers_in(call(tensor, torch.stride));
      elements_.emplace(data, kind, shape, strides_, order);
      if (data == nullptr && elements_->size() > 0) {
        throw nb::type_error("the tensor has no memory");
      }
      return;
    }
  }
  Array array;
  if (!nb::try_cast(tensor, array)) {
    throw nb::type_error("this is not an array on the CPU of a floating-point type");
  }
  array_.emplace(std::move(array));
  Layout own(*array_);
  elements_.emplace(array_->data(), kind_of(*array_), own.shape, own.strides, order);
  strides_ = std::move(own.strides);
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
