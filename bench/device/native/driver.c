/* The CUDA driver's functions. PyTorch takes the virtual-memory ones by name from the runtime;
 * Triton and others link to them or look them up. The header's macros give names their suffixes
 * (cuMemGetInfo is cuMemGetInfo_v2). */
#define _GNU_SOURCE
#include "virtual_gpu.h"

#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* --- looking functions up --------------------------------------------------------------------- */

/* A function that is not here is answered by a stand-in of its own, so that the trace can name those
 * that are called and not the many that are only looked up. */
#define STAND_INS 512
static const char *stood_for[STAND_INS];

static CUresult refuse(int number) {
    trace_unsupported(stood_for[number]);
    return CUDA_ERROR_NOT_SUPPORTED;
}

#define STAND_IN(n) \
    static CUresult stand_in_##n(void) { return refuse(0x##n); }
#define SIXTEEN(X, h)                                                                          \
    X(h##0) X(h##1) X(h##2) X(h##3) X(h##4) X(h##5) X(h##6) X(h##7)                            \
    X(h##8) X(h##9) X(h##a) X(h##b) X(h##c) X(h##d) X(h##e) X(h##f)
#define EIGHT_ROWS(X, a, b, c, d, e, f, g, h)                                                  \
    SIXTEEN(X, a) SIXTEEN(X, b) SIXTEEN(X, c) SIXTEEN(X, d)                                    \
    SIXTEEN(X, e) SIXTEEN(X, f) SIXTEEN(X, g) SIXTEEN(X, h)
#define ALL_STAND_INS(X)                                                                       \
    EIGHT_ROWS(X, 00, 01, 02, 03, 04, 05, 06, 07) EIGHT_ROWS(X, 08, 09, 0a, 0b, 0c, 0d, 0e, 0f) \
    EIGHT_ROWS(X, 10, 11, 12, 13, 14, 15, 16, 17) EIGHT_ROWS(X, 18, 19, 1a, 1b, 1c, 1d, 1e, 1f)
ALL_STAND_INS(STAND_IN)

#define LISTED(n) stand_in_##n,
static CUresult (*const stand_ins[STAND_INS])(void) = {ALL_STAND_INS(LISTED)};

static void *stand_in_for(const char *name) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    int number = 0;
    pthread_mutex_lock(&mutex);
    while (stood_for[number] && strcmp(stood_for[number], name) && number < STAND_INS - 1) number++;
    if (!stood_for[number])
        stood_for[number] = number < STAND_INS - 1 ? strdup(name) : "another driver function";
    pthread_mutex_unlock(&mutex);
    return (void *)stand_ins[number];
}

CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags,
                          CUdriverProcAddressQueryResult *result) {
    (void)version, (void)flags;
    static const char *const suffixes[] = {"", "_v2", "_v3", "_v4"};
    if (result) *result = CU_GET_PROC_ADDRESS_SUCCESS;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        char exported[256];
        snprintf(exported, sizeof exported, "%s%s", name, suffixes[i]);
        if ((*function = dlsym(RTLD_DEFAULT, exported))) return CUDA_SUCCESS;
    }
    *function = stand_in_for(name);
    return CUDA_SUCCESS;
}

#undef cuGetProcAddress
CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags) {
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}

/* --- errors ---------------------------------------------------------------------------------- */

static CUresult result_of(enum memory_status status) {
    static const CUresult results[] = {CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY,
                                       CUDA_ERROR_INVALID_VALUE};
    return results[status];
}

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

/* --- memory ---------------------------------------------------------------------------------- */

CUresult cuMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    memory_info(free_bytes, total_bytes);
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr *address, size_t bytes) {
    uint64_t taken;
    enum memory_status status = memory_allocate(bytes, &taken);
    *address = taken;
    return result_of(status);
}

CUresult cuMemFree(CUdeviceptr address) { return result_of(memory_free(address)); }

CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *properties,
                                       CUmemAllocationGranularity_flags flags) {
    (void)properties, (void)flags;
    *bytes = PAGE_BYTES;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment,
                             CUdeviceptr wanted, unsigned long long flags) {
    (void)alignment, (void)wanted, (void)flags;
    uint64_t taken = 0;
    enum memory_status status = memory_reserve(bytes, &taken);
    *address = taken;
    return result_of(status);
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
    return result_of(memory_unreserve(address, bytes));
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *properties, unsigned long long flags) {
    (void)properties, (void)flags;
    uint64_t made = 0;
    enum memory_status status = memory_create(bytes, &made);
    *handle = made;
    return result_of(status);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    return result_of(memory_release(handle));
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
    (void)flags;
    return offset ? CUDA_ERROR_INVALID_VALUE : result_of(memory_map(address, bytes, handle));
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
    return result_of(memory_unmap(address, bytes));
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *description,
                        size_t count) {
    (void)description, (void)count;
    return result_of(memory_set_access(address, bytes));
}

CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
    uint64_t start = 0, length = 0;
    enum memory_status status = memory_find(address, &start, &length);
    if (base) *base = start;
    if (bytes) *bytes = length;
    return result_of(status);
}

/* How many bytes an attribute of a pointer has differs; the ones not named here are ints. */
CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr pointer) {
    uint64_t base = 0, bytes = 0;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)value = CONTEXT;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)value =
            is_device((void *)pointer) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
        return is_device((void *)pointer) || is_pinned((void *)pointer) ? CUDA_SUCCESS
                                                                        : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)value = pointer;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *(CUdeviceptr *)value = pointer;
        return is_device((void *)pointer) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        if (memory_find(pointer, &base, &bytes)) return CUDA_ERROR_INVALID_VALUE;
        *(uint64_t *)value = attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE ? bytes : base;
        return CUDA_SUCCESS;
    default:
        *(int *)value = 0;
        return CUDA_SUCCESS;
    }
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **values,
                                CUdeviceptr pointer) {
    for (unsigned i = 0; i < count; i++) cuPointerGetAttribute(values[i], attributes[i], pointer);
    return CUDA_SUCCESS;
}

/* --- copies ---------------------------------------------------------------------------------- */

CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes) {
    COUNT(copy);
    return (void)to, (void)from, (void)bytes, CUDA_SUCCESS;
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    return (void)stream, cuMemcpyHtoD(to, from, bytes);
}

CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes) {
    COUNT(copy);
    copy_bytes(to, (const void *)from, bytes);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return (void)stream, cuMemcpyDtoH(to, from, bytes);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return (void)stream, cuMemcpyHtoD(to, (const void *)from, bytes);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
    return (void)to, (void)value, (void)count, (void)stream, CUDA_SUCCESS;
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
    return (void)to, (void)value, (void)count, (void)stream, CUDA_SUCCESS;
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
