/* The CUDA driver's functions for errors, the device, modules and launches. The header's macros give
 * names their suffixes: cuDeviceTotalMem is cuDeviceTotalMem_v2. */
#include "virtual_gpu.h"

#include <cuda.h>
#include <stdio.h>
#include <string.h>

/* --- errors ---------------------------------------------------------------------------------- */

static const struct {
    CUresult result;
    const char *name, *text;
} results[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
};

CUresult cuGetErrorString(CUresult result, const char **text) {
    *text = "unrecognized error code";
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        if (results[i].result == result) *text = results[i].text;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult result, const char **name) {
    *name = "unrecognized error code";
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        if (results[i].result == result) *name = results[i].name;
    return CUDA_SUCCESS;
}

/* --- the device and its one context ------------------------------------------------------------ */

#define CONTEXT ((CUcontext)0x10)

CUresult cuInit(unsigned flags) { return (void)flags, CUDA_SUCCESS; }

CUresult cuDriverGetVersion(int *version) {
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
    *count = 1;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    *device = 0;
    return ordinal ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    (void)device;
    snprintf(name, (size_t)length, "%s", fragbench_settings()->name);
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device) {
    (void)device;
    *bytes = fragbench_settings()->memory_bytes;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
    (void)device;
    memcpy(uuid, "fragbench-gpu-00", sizeof *uuid);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    (void)device;
    *value = device_attribute((int)attribute);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    (void)device;
    *flags = 0;
    *active = 1;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    (void)device;
    *context = CONTEXT;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) { return (void)device, CUDA_SUCCESS; }

CUresult cuCtxGetCurrent(CUcontext *context) {
    *context = CONTEXT;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) { return (void)context, CUDA_SUCCESS; }

CUresult cuCtxPushCurrent(CUcontext context) { return (void)context, CUDA_SUCCESS; }

CUresult cuCtxPopCurrent(CUcontext *context) {
    if (context) *context = CONTEXT;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device) {
    *device = 0;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t *value, CUlimit limit) {
    (void)limit;
    *value = 1 << 20;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
    return (void)limit, (void)value, CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) {
    COUNT(device_synchronize);
    return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream) {
    (void)stream;
    COUNT(stream_synchronize);
    return CUDA_SUCCESS;
}

/* --- modules and launches (Triton, NVRTC) ------------------------------------------------------- */

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

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z,
                        unsigned shared_bytes, CUstream stream, void **arguments, void **extra) {
    (void)function, (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y;
    (void)block_z, (void)shared_bytes, (void)stream, (void)arguments, (void)extra;
    COUNT(kernel_launch);
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **arguments,
                          void **extra) {
    (void)config, (void)function, (void)arguments, (void)extra;
    COUNT(kernel_launch);
    return CUDA_SUCCESS;
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
