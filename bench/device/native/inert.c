/* Functions that PyTorch links to and that need no state: those that have nothing to do here, and
 * those that cannot be done, which say so and are named when tracing. Declared without arguments,
 * which is why this file includes no CUDA header: a C function may ignore what it is passed. */
#include "virtual_gpu.h"

#define NOTHING_TO_DO(X)                                                                       \
    X(cudaDeviceEnablePeerAccess) X(cudaFuncSetAttribute) X(cudaKernelSetAttributeForDevice)   \
    X(cudaMemcpyToSymbol) X(cudaProfilerStart) X(cudaProfilerStop)                             \
    X(cudaGraphDestroy) X(cudaGraphExecDestroy) X(cudaGraphRetainUserObject)                   \
    X(cudaStreamUpdateCaptureDependencies) X(cudaUserObjectCreate) X(cudaUserObjectRelease)    \
    X(cuTensorMapEncodeTiled) X(cuLogsRegisterCallback) X(cuLogsUnregisterCallback)

/* Stream-ordered memory, memory shared between processes, graphs built node by node, and code
 * loaded or linked at run time through the runtime. */
#define UNSUPPORTED(X)                                                                         \
    X(cudaMallocAsync) X(cudaFreeAsync) X(cudaDeviceGetDefaultMemPool)                         \
    X(cudaMemPoolGetAttribute) X(cudaMemPoolSetAttribute) X(cudaMemPoolSetAccess)              \
    X(cudaMemPoolTrimTo) X(cudaDeviceGetGraphMemAttribute) X(cudaDeviceSetGraphMemAttribute)   \
    X(cudaIpcGetMemHandle) X(cudaIpcOpenMemHandle) X(cudaIpcCloseMemHandle)                    \
    X(cudaIpcGetEventHandle) X(cudaIpcOpenEventHandle)                                         \
    X(cudaGraphAddNode) X(cudaGraphConditionalHandleCreate) X(cudaGraphNodeGetDependencies)    \
    X(cudaStreamBeginCaptureToGraph) X(cudaGraphAddEmptyNode) X(cudaGraphNodeGetType)          \
    X(cudaGraphDebugDotPrint)                                                                  \
    X(cudaLibraryLoadData) X(cudaLibraryGetKernel) X(cudaLibraryUnload)                        \
    X(cuLinkCreate_v2) X(cuLinkAddData_v2) X(cuLinkComplete)

#define ERROR_NOT_SUPPORTED 801 /* the same in the runtime and in the driver */

#define DO_NOTHING(name) \
    int name(void) { return 0; }
#define REFUSE(name)              \
    int name(void) {              \
        trace_unsupported(#name); \
        return ERROR_NOT_SUPPORTED; \
    }

NOTHING_TO_DO(DO_NOTHING)
UNSUPPORTED(REFUSE)
