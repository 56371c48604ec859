/* The CUDA driver's functions for errors, the device and its context. The header's macros give
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

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
    (void)device;
    *major = fragbench_settings()->major;
    *minor = fragbench_settings()->minor;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device) {
    (void)device;
    snprintf(text, (size_t)length, PCI_BUS_ID);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *text) {
    return (void)text, cuDeviceGet(device, 0);
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
    (void)device, (void)peer;
    *can = 0;
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

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    if (least) *least = LEAST_PRIORITY;
    if (greatest) *greatest = GREATEST_PRIORITY;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext context, unsigned *version) {
    (void)context;
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned *flags) {
    *flags = 0;
    return CUDA_SUCCESS;
}
