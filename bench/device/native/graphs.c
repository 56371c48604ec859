/* Graphs: which stream is captured, and the instances that can be launched. A captured graph takes
 * nothing; what the driver of a real card keeps of each instance is a setting. */
#include "virtual_gpu.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdlib.h>

/* --- capture --------------------------------------------------------------------------------- */

/* One capture at a time, as PyTorch's graphs are captured. */
static cudaStream_t captured_stream;
static unsigned long long capture_id;
static bool capturing;

static enum cudaStreamCaptureStatus capture_status(cudaStream_t stream) {
    return capturing && stream == captured_stream ? cudaStreamCaptureStatusActive
                                                  : cudaStreamCaptureStatusNone;
}

static cudaGraph_t captured_graph(void) { return (cudaGraph_t)(0x50000 + 16 * capture_id); }

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
    (void)mode;
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    (void)mode;
    captured_stream = stream;
    capturing = true;
    capture_id++;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    (void)stream;
    capturing = false;
    *graph = captured_graph();
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    *status = capture_status(stream);
    return cudaSuccess;
}

static cudaError_t capture_info(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                unsigned long long *id, cudaGraph_t *graph,
                                const cudaGraphNode_t **nodes, size_t *node_count) {
    *status = capture_status(stream);
    if (id) *id = *status ? capture_id : 0;
    if (graph) *graph = captured_graph();
    if (nodes) *nodes = NULL;
    if (node_count) *node_count = 0;
    return cudaSuccess;
}

#if CUDART_VERSION >= 13000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                     unsigned long long *id, cudaGraph_t *graph,
                                     const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges,
                                     size_t *node_count) {
    if (edges) *edges = NULL;
    return capture_info(stream, status, id, graph, nodes, node_count);
}
#else
#undef cudaStreamGetCaptureInfo
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                     unsigned long long *id) {
    return capture_info(stream, status, id, NULL, NULL, NULL);
}

cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                        unsigned long long *id, cudaGraph_t *graph,
                                        const cudaGraphNode_t **nodes, size_t *node_count) {
    return capture_info(stream, status, id, graph, nodes, node_count);
}
#endif

/* --- instances ------------------------------------------------------------------------------- */

/* One byte for each instance that was ever made: whether it is there. */
static bool *is_live;
static uintptr_t made, room, live;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

#define FIRST_INSTANCE 0x70000

static enum memory_status add_instance(void **instance) {
    if (made == room) {
        uintptr_t more = room ? 2 * room : 1024;
        bool *grown = realloc(is_live, more * sizeof *is_live);
        if (!grown) return MEMORY_EXHAUSTED;
        is_live = grown;
        room = more;
    }
    enum memory_status status = memory_hold_graphs(live + 1);
    if (status) return status;
    live++;
    *instance = (void *)(FIRST_INSTANCE + made);
    is_live[made++] = true;
    return MEMORY_OK;
}

static enum memory_status remove_instance(void *instance) {
    uintptr_t number = (uintptr_t)instance - FIRST_INSTANCE;
    if (number >= made || !is_live[number]) return MEMORY_INVALID;
    is_live[number] = false;
    return memory_hold_graphs(--live);
}

enum memory_status graph_instantiate(void **instance) {
    *instance = NULL;
    pthread_mutex_lock(&mutex);
    enum memory_status status = add_instance(instance);
    pthread_mutex_unlock(&mutex);
    return status;
}

enum memory_status graph_destroy(void *instance) {
    pthread_mutex_lock(&mutex);
    enum memory_status status = remove_instance(instance);
    pthread_mutex_unlock(&mutex);
    return status;
}

void graph_forget_all(void) { made = live = 0; }

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *instance, cudaGraph_t graph,
                                 unsigned long long flags) {
    (void)graph, (void)flags;
    return report_status(graph_instantiate((void **)instance));
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *instance, cudaGraph_t graph,
                                          unsigned long long flags) {
    return cudaGraphInstantiate(instance, graph, flags);
}

cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t *instance, cudaGraph_t graph,
                                           cudaGraphInstantiateParams *asked) {
    cudaError_t error = cudaGraphInstantiate(instance, graph, asked->flags);
    asked->errNode_out = NULL;
    asked->result_out = error ? cudaGraphInstantiateError : cudaGraphInstantiateSuccess;
    return error;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t instance) {
    return report_status(graph_destroy(instance));
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t instance, cudaStream_t stream) {
    (void)instance, (void)stream;
    COUNT(graph_launch);
    return cudaSuccess;
}

/* PyTorch only asks whether a graph is empty. */
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    (void)graph;
    if (count && !nodes) *count = 1;
    return cudaSuccess;
}
