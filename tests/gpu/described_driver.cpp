// SPDX-License-Identifier: MIT
// A driver for machines without one: the toolkit's stub, plus the few functions with which cuDNN
// loads kernels that it has compiled. They succeed and do nothing. cuDNN hides all engines that
// compile at run time if it finds no driver, and with the stub alone it refuses to finish their
// plans. Nothing can run. Engines that ask how many clusters fit the device stay hidden.
#include <cuda.h>

namespace {

int loaded = 0;  // something to point at

template <class Handle>
CUresult give(Handle* handle) {
  *handle = reinterpret_cast<Handle>(&loaded);
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

/// Tests look for this name, to know that they have this driver.
int halfscope_described_driver() { return 1; }

CUresult cuLibraryLoadData(CUlibrary* library, const void*, CUjit_option*, void**, unsigned int,
                           CUlibraryOption*, void**, unsigned int) {
  return give(library);
}
CUresult cuLibraryUnload(CUlibrary) { return CUDA_SUCCESS; }
CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary, const char*) { return give(kernel); }
CUresult cuKernelGetFunction(CUfunction* function, CUkernel) { return give(function); }
CUresult cuKernelSetAttribute(CUfunction_attribute, int, CUkernel, CUdevice) {
  return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }

}  // extern "C"
