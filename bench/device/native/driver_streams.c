/* The CUDA driver's functions for streams, events and graphs: the runtime's under other names. */
#include "virtual_gpu.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

/* --- streams --------------------------------------------------------------------------------- */

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    (void)flags;
    *stream = next_handle();
    return CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
    return (void)priority, cuStreamCreate(stream, flags);
}

CUresult cuStreamDestroy(CUstream stream) { return (void)stream, CUDA_SUCCESS; }

CUresult cuStreamSynchronize(CUstream stream) { return (CUresult)cudaStreamSynchronize(stream); }

CUresult cuStreamQuery(CUstream stream) { return (void)stream, CUDA_SUCCESS; }

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    return (void)stream, (void)event, (void)flags, CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream stream, int *priority) {
    return (CUresult)cudaStreamGetPriority(stream, priority);
}

CUresult cuStreamGetFlags(CUstream stream, unsigned *flags) {
    return (CUresult)cudaStreamGetFlags(stream, flags);
}

CUresult cuStreamGetId(CUstream stream, unsigned long long *id) {
    return (CUresult)cudaStreamGetId(stream, id);
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *context) {
    return (void)stream, cuCtxGetCurrent(context);
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *argument) {
    return (CUresult)cudaLaunchHostFunc(stream, function, argument);
}

/* --- events ---------------------------------------------------------------------------------- */

CUresult cuEventCreate(CUevent *event, unsigned flags) {
    (void)flags;
    *event = next_handle();
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event) { return (void)event, CUDA_SUCCESS; }

CUresult cuEventRecord(CUevent event, CUstream stream) {
    return (void)event, (void)stream, CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent event) { return (void)event, CUDA_SUCCESS; }

CUresult cuEventSynchronize(CUevent event) { return (CUresult)cudaEventSynchronize(event); }

CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end) {
    return (CUresult)cudaEventElapsedTime(ms, start, end);
}

/* --- graphs ---------------------------------------------------------------------------------- */

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
    return (CUresult)cudaStreamIsCapturing(stream, (enum cudaStreamCaptureStatus *)status);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    return (CUresult)cudaThreadExchangeStreamCaptureMode((enum cudaStreamCaptureMode *)mode);
}

/* From CUDA 12 on the header makes callers of cuGraphInstantiate call this one. */
CUresult cuGraphInstantiateWithFlags(CUgraphExec *instance, CUgraph graph,
                                     unsigned long long flags) {
    (void)graph, (void)flags;
    return result_of(graph_instantiate((void **)instance));
}

#undef cuGraphInstantiate
CUresult cuGraphInstantiate(CUgraphExec *instance, CUgraph graph, unsigned long long flags) {
    return cuGraphInstantiateWithFlags(instance, graph, flags);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *instance, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *asked) {
    CUresult result = cuGraphInstantiateWithFlags(instance, graph, asked->flags);
    asked->hErrNode_out = NULL;
    asked->result_out = result ? CUDA_GRAPH_INSTANTIATE_ERROR : CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return result;
}

CUresult cuGraphExecDestroy(CUgraphExec instance) {
    return result_of(graph_destroy(instance));
}

CUresult cuGraphLaunch(CUgraphExec instance, CUstream stream) {
    return (CUresult)cudaGraphLaunch(instance, stream);
}
