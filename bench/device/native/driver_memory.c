/* The CUDA driver's functions for memory. PyTorch makes its expandable segments with them. */
#include "virtual_gpu.h"

#include <cuda.h>

int result_of(enum memory_status status) {
    static const CUresult results[] = {CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY,
                                       CUDA_ERROR_INVALID_VALUE};
    return results[status];
}

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
        return cuCtxGetCurrent(value);
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

/* --- page-locked host memory ------------------------------------------------------------------ */

CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags) {
    (void)flags;
    COUNT(cudaHostAlloc);
    *pointer = host_allocate(bytes);
    return *pointer ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemAllocHost(void **pointer, size_t bytes) { return cuMemHostAlloc(pointer, bytes, 0); }

CUresult cuMemFreeHost(void *pointer) {
    COUNT(cudaFreeHost);
    host_free(pointer);
    return CUDA_SUCCESS;
}

CUresult cuMemHostRegister(void *pointer, size_t bytes, unsigned flags) {
    (void)flags;
    host_register(pointer, bytes);
    return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void *pointer) {
    return host_unregister(pointer) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr *device, void *host, unsigned flags) {
    (void)flags;
    *device = (CUdeviceptr)host;
    return CUDA_SUCCESS;
}

/* --- copies ---------------------------------------------------------------------------------- */

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    COUNT(copy);
    copy_bytes((void *)to, (const void *)from, bytes);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return (void)stream, cuMemcpy(to, from, bytes);
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes) {
    return cuMemcpy(to, (CUdeviceptr)from, bytes);
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    return (void)stream, cuMemcpyHtoD(to, from, bytes);
}

CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes) {
    return cuMemcpy((CUdeviceptr)to, from, bytes);
}

CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return (void)stream, cuMemcpyDtoH(to, from, bytes);
}

CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return cuMemcpy(to, from, bytes);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return (void)stream, cuMemcpyDtoD(to, from, bytes);
}

CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, size_t count) {
    set_bytes((void *)to, value, count);
    return CUDA_SUCCESS;
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
    return (void)stream, cuMemsetD8(to, value, count);
}

CUresult cuMemsetD32(CUdeviceptr to, unsigned value, size_t count) {
    if (is_device((void *)to)) return CUDA_SUCCESS;
    for (size_t i = 0; i < count; i++) ((unsigned *)to)[i] = value;
    return CUDA_SUCCESS;
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
    return (void)stream, cuMemsetD32(to, value, count);
}
