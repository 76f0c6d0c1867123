// SPDX-License-Identifier: MIT
// The extension module halfscope._core. Everything that users see is in halfscope/*.py.
#include <nanobind/nanobind.h>

#include "core/error.h"
#include "python/src/run_file.h"

namespace nb = nanobind;

NB_MODULE(_core, module) {
  // A watch that lives until the program ends is no leak.
  nb::set_leak_warnings(false);
  module.doc() = "Native part of halfscope: statistics of tensors and run files.";
  module.attr("__version__") = HALFSCOPE_VERSION;
  nb::exception<halfscope::Error>(module, "Error", PyExc_RuntimeError);
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const halfscope::Error& error) {
      const std::string text = error.hint().empty()
                                   ? error.what()
                                   : std::string(error.what()) + " (hint: " + error.hint() + ")";
      PyErr_SetString(nb::module_::import_("halfscope._core").attr("Error").ptr(), text.c_str());
    }
  });
  halfscope::python::bind_recording(module);
  halfscope::python::bind_run_file(module);
}
