/* The CUDA runtime's functions for errors, devices, memory and copies. */
#include "virtual_gpu.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

/* --- errors ---------------------------------------------------------------------------------- */

static __thread cudaError_t last_error = cudaSuccess;

static cudaError_t report(cudaError_t error) {
    if (error) last_error = error;
    return error;
}

int report_status(enum memory_status status) {
    static const cudaError_t errors[] = {cudaSuccess, cudaErrorMemoryAllocation,
                                         cudaErrorInvalidValue};
    return report(errors[status]);
}

cudaError_t cudaGetLastError(void) {
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void) { return last_error; }

static const struct {
    cudaError_t error;
    const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered",
     "part or all of the requested memory range is not mapped"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
};

const char *cudaGetErrorString(cudaError_t error) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].error == error) return errors[i].text;
    return "unrecognized error code";
}

const char *cudaGetErrorName(cudaError_t error) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].error == error) return errors[i].name;
    return "unrecognized error code";
}

/* --- the device ------------------------------------------------------------------------------ */

cudaError_t cudaGetDeviceCount(int *count) {
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) { return report(device ? cudaErrorInvalidDevice : 0); }

cudaError_t cudaDriverGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
    COUNT(device_synchronize);
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    (void)device, (void)peer;
    *can = 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int device) {
    if (device) return report(cudaErrorInvalidDevice);
    snprintf(text, (size_t)length, PCI_BUS_ID);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *text) {
    (void)text;
    return cudaGetDevice(device);
}

cudaError_t cudaGetDeviceFlags(unsigned *flags) {
    *flags = 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetLimit(size_t *value, enum cudaLimit limit) {
    (void)limit;
    *value = 1 << 20;
    return cudaSuccess;
}

/* --- memory ---------------------------------------------------------------------------------- */

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    memory_info(free_bytes, total_bytes);
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **pointer, size_t bytes) {
    uint64_t address;
    enum memory_status status = memory_allocate(bytes, &address);
    *pointer = (void *)address;
    return report_status(status);
}

cudaError_t cudaFree(void *pointer) { return report_status(memory_free((uint64_t)pointer)); }

cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned flags) {
    (void)flags;
    COUNT(cudaHostAlloc);
    *pointer = host_allocate(bytes);
    return report(*pointer ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaMallocHost(void **pointer, size_t bytes) { return cudaHostAlloc(pointer, bytes, 0); }

cudaError_t cudaFreeHost(void *pointer) {
    COUNT(cudaFreeHost);
    host_free(pointer);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned flags) {
    (void)flags;
    host_register(pointer, bytes);
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *pointer) {
    return report(host_unregister(pointer) ? cudaSuccess : cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags) {
    (void)flags;
    *device = host;
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes,
                                     const void *pointer) {
    memset(attributes, 0, sizeof *attributes);
    if (is_device(pointer)) {
        attributes->type = cudaMemoryTypeDevice;
        attributes->devicePointer = (void *)pointer;
    } else if (is_pinned(pointer)) {
        attributes->type = cudaMemoryTypeHost;
        attributes->hostPointer = attributes->devicePointer = (void *)pointer;
    } else {
        attributes->type = cudaMemoryTypeUnregistered;
        attributes->device = cudaInvalidDeviceId;
        attributes->hostPointer = (void *)pointer;
    }
    return cudaSuccess;
}

cudaError_t cudaGetSymbolAddress(void **pointer, const void *symbol) {
    (void)symbol;
    *pointer = (void *)SYMBOL_ADDRESS;
    return cudaSuccess;
}

/* --- copies ---------------------------------------------------------------------------------- */

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    (void)kind;
    COUNT(copy);
    copy_bytes(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    (void)stream;
    return cudaMemcpy(to, from, bytes, kind);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream) {
    (void)kind, (void)stream;
    COUNT(copy);
    for (size_t row = 0; row < height; row++)
        copy_bytes((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width);
    return cudaSuccess;
}

cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                         size_t width, size_t height, enum cudaMemcpyKind kind) {
    return cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, NULL);
}

#if CUDART_VERSION >= 13000
cudaError_t cudaMemcpyBatchAsync(void *const *to, const void *const *from, const size_t *sizes,
                                 size_t count,
                                 struct cudaMemcpyAttributes *attributes,
                                 size_t *attribute_starts, size_t attribute_count,
                                 cudaStream_t stream) {
    (void)attributes, (void)attribute_starts, (void)attribute_count;
    for (size_t i = 0; i < count; i++)
        cudaMemcpyAsync(to[i], from[i], sizes[i], cudaMemcpyDefault, stream);
    return cudaSuccess;
}
#endif

cudaError_t cudaMemcpyFromSymbol(void *to, const void *symbol, size_t bytes, size_t offset,
                                 enum cudaMemcpyKind kind) {
    (void)symbol, (void)offset;
    return cudaMemcpy(to, (const void *)SYMBOL_ADDRESS, bytes, kind);
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                size_t bytes, cudaStream_t stream) {
    (void)to_device, (void)from_device;
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
}

cudaError_t cudaMemset(void *to, int value, size_t bytes) {
    set_bytes(to, value, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
    (void)stream;
    return cudaMemset(to, value, bytes);
}

cudaError_t cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
    (void)stream;
    for (size_t row = 0; row < height; row++) set_bytes((char *)to + row * pitch, value, width);
    return cudaSuccess;
}

/* --- the driver's functions, as the runtime hands them out ------------------------------------ */

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result) {
    if (result) *result = cudaDriverEntryPointSuccess;
    return cuGetProcAddress(name, function, (int)version, flags, NULL) == CUDA_SUCCESS
               ? cudaSuccess
               : cudaErrorNotSupported;
}

cudaError_t cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *result) {
    return cudaGetDriverEntryPointByVersion(name, function, CUDART_VERSION, flags, result);
}
