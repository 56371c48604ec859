/* Functions that need no state and have nothing to do here. */
#include "virtual_gpu.h"

#define NOTHING_TO_DO(X)                                                                       \
    X(cudaDeviceEnablePeerAccess) X(cudaDeviceDisablePeerAccess) X(cudaInitDevice)             \
    X(cudaSetDeviceFlags) X(cudaDeviceSetLimit) X(cudaDeviceSetCacheConfig)                    \
    X(cudaCtxResetPersistingL2Cache) X(cudaMemAdvise) X(cudaMemPrefetchAsync)                  \
    X(cudaFuncSetAttribute) X(cudaFuncSetCacheConfig) X(cudaKernelSetAttributeForDevice)       \
    X(cudaMemcpyToSymbol) X(cudaMemcpyToSymbolAsync) X(cudaProfilerStart) X(cudaProfilerStop)  \
    X(cudaGraphUpload) X(cudaGraphDestroy) X(cudaGraphRetainUserObject)                        \
    X(cudaGraphReleaseUserObject)                                                              \
    X(cudaStreamUpdateCaptureDependencies) X(cudaUserObjectCreate) X(cudaUserObjectRelease)    \
    X(cudaStreamSetAttribute) X(cudaStreamCopyAttributes) X(cudaStreamAttachMemAsync)          \
    X(cuStreamSetAttribute) X(cuStreamCopyAttributes)                                          \
    X(cuCtxResetPersistingL2Cache) X(cuCtxSetCacheConfig) X(cuKernelSetAttribute)              \
    X(cuTensorMapEncodeTiled) X(cuTensorMapEncodeIm2col) X(cuTensorMapReplaceAddress)           \
    X(cuLogsRegisterCallback) X(cuLogsUnregisterCallback) X(cuProfilerStart) X(cuProfilerStop)

NOTHING_TO_DO(DO_NOTHING)

/* CUDA's headers name these differently from version to version. */
REFUSE(cuLinkCreate_v2, ERROR_NOT_SUPPORTED)
REFUSE(cuLinkAddData_v2, ERROR_NOT_SUPPORTED)
REFUSE(cuLinkComplete, ERROR_NOT_SUPPORTED)
