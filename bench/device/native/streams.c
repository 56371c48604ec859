/* Streams and events. Work is done as soon as it is asked for, so all are always ready. */
#include "virtual_gpu.h"

#include <cuda_runtime_api.h>

/* Handles are numbered: PyTorch compares them and never looks inside. */
void *next_handle(void) {
    static uintptr_t last = 0x1000;
    return (void *)__atomic_add_fetch(&last, 16, __ATOMIC_RELAXED);
}

/* --- streams --------------------------------------------------------------------------------- */

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    if (least) *least = LEAST_PRIORITY;
    if (greatest) *greatest = GREATEST_PRIORITY;
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    *stream = next_handle();
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    (void)flags;
    return cudaStreamCreate(stream);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
    (void)flags, (void)priority;
    return cudaStreamCreate(stream);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    (void)stream;
    return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) {
    (void)stream;
    *priority = 0;
    return cudaSuccess;
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned *flags) {
    (void)stream;
    *flags = cudaStreamNonBlocking;
    return cudaSuccess;
}

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long *id) {
    *id = (uintptr_t)stream;
    return cudaSuccess;
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int *device) {
    (void)stream;
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    (void)stream;
    COUNT(stream_synchronize);
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    (void)stream;
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    (void)stream, (void)event, (void)flags;
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument) {
    (void)stream;
    function(argument);
    return cudaSuccess;
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback,
                                  void *argument, unsigned flags) {
    (void)flags;
    callback(stream, cudaSuccess, argument);
    return cudaSuccess;
}

/* --- events ---------------------------------------------------------------------------------- */

cudaError_t cudaEventCreate(cudaEvent_t *event) {
    *event = next_handle();
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    (void)flags;
    return cudaEventCreate(event);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    (void)event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    (void)event, (void)stream;
    return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
    (void)event, (void)stream, (void)flags;
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    (void)event;
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    (void)event;
    COUNT(event_synchronize);
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
    (void)start, (void)end;
    *ms = 0;
    return cudaSuccess;
}
