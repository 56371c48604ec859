/* The CUDA driver's functions for modules, libraries and launches: Triton's, NVRTC's and CuTe's.
 * Code is never read: a module, a library and a kernel are numbers. */
#include "virtual_gpu.h"

#include <cuda.h>

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    static uintptr_t last = 0x2000;
    (void)image;
    *module = (CUmodule)__atomic_add_fetch(&last, 16, __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count,
                            CUjit_option *options, void **values) {
    return (void)count, (void)options, (void)values, cuModuleLoadData(module, image);
}

CUresult cuModuleLoad(CUmodule *module, const char *path) {
    return cuModuleLoadData(module, path);
}

CUresult cuModuleUnload(CUmodule module) { return (void)module, CUDA_SUCCESS; }

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    (void)name;
    *function = (CUfunction)((uintptr_t)module + 8);
    return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal(CUdeviceptr *address, size_t *bytes, CUmodule module,
                           const char *name) {
    (void)module, (void)name;
    if (address) *address = SYMBOL_ADDRESS;
    if (bytes) *bytes = 8;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode) {
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *options,
                           void **option_values, unsigned option_count,
                           CUlibraryOption *library_options, void **library_option_values,
                           unsigned library_option_count) {
    (void)options, (void)option_values, (void)option_count, (void)library_options;
    (void)library_option_values, (void)library_option_count;
    return cuModuleLoadData((CUmodule *)library, code);
}

CUresult cuLibraryUnload(CUlibrary library) { return (void)library, CUDA_SUCCESS; }

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
    return cuModuleGetFunction((CUfunction *)kernel, (CUmodule)library, name);
}

CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library) {
    *module = (CUmodule)library;
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary library,
                            const char *name) {
    return cuModuleGetGlobal(address, bytes, (CUmodule)library, name);
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
    *function = (CUfunction)kernel;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel,
                              CUdevice device) {
    (void)device;
    return cuFuncGetAttribute(value, attribute, (CUfunction)kernel);
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
    (void)function;
    *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024
             : attribute == CU_FUNC_ATTRIBUTE_NUM_REGS            ? 64
                                                                  : 0;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    return (void)function, (void)attribute, (void)value, CUDA_SUCCESS;
}

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) {
    return (void)function, (void)config, CUDA_SUCCESS;
}

static CUresult launch(CUfunction function) {
    COUNT(kernel_launch);
    return result_of(memory_load_kernel(function));
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z,
                        unsigned shared_bytes, CUstream stream, void **arguments, void **extra) {
    (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y, (void)block_z;
    (void)shared_bytes, (void)stream, (void)arguments, (void)extra;
    return launch(function);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **arguments,
                          void **extra) {
    (void)config, (void)arguments, (void)extra;
    return launch(function);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                   unsigned grid_z, unsigned block_x, unsigned block_y,
                                   unsigned block_z, unsigned shared_bytes, CUstream stream,
                                   void **arguments) {
    return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                          shared_bytes, stream, arguments, NULL);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function,
                                                     int block_size, size_t shared_bytes) {
    (void)function, (void)block_size, (void)shared_bytes;
    *blocks = 1;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction function,
                                      const CUlaunchConfig *config) {
    (void)function, (void)config;
    *clusters = 8;
    return CUDA_SUCCESS;
}
