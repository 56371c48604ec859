/* The CUDA runtime's functions for launches and for what a kernel may use. */
#include "virtual_gpu.h"

#include <cuda_runtime_api.h>
#include <string.h>

static cudaError_t launch(const void *kernel) {
    COUNT(kernel_launch);
    return report_status(memory_load_kernel(kernel));
}

cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments,
                             size_t shared_bytes, cudaStream_t stream) {
    (void)grid, (void)block, (void)arguments, (void)shared_bytes, (void)stream;
    return launch(kernel);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel,
                                void **arguments) {
    (void)config, (void)arguments;
    return launch(kernel);
}

cudaError_t cudaLaunchCooperativeKernel(const void *kernel, dim3 grid, dim3 block,
                                        void **arguments, size_t shared_bytes,
                                        cudaStream_t stream) {
    return cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, stream);
}

/* From CUDA 13 on, `kernel<<<...>>>` compiles to these two, which no public header declares. */
cudaError_t __cudaGetKernel(void **kernel, const void *function) {
    *kernel = (void *)function;
    return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(void *kernel, dim3 grid, dim3 block, void **arguments,
                               size_t shared_bytes, cudaStream_t stream) {
    return cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, stream);
}

cudaError_t __cudaLaunchKernel_ptsz(void *kernel, dim3 grid, dim3 block, void **arguments,
                                    size_t shared_bytes, cudaStream_t stream) {
    return cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, stream);
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *kernel) {
    (void)kernel;
    const struct device_settings *card = fragbench_settings();
    memset(attributes, 0, sizeof *attributes);
    attributes->maxThreadsPerBlock = 1024;
    attributes->numRegs = 64;
    attributes->binaryVersion = attributes->ptxVersion = card->major * 10 + card->minor;
    attributes->maxDynamicSharedSizeBytes = card->shared_memory_per_block;
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *kernel,
                                                          int block_size, size_t shared_bytes) {
    (void)kernel, (void)block_size, (void)shared_bytes;
    *blocks = 1;
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *kernel,
                                                                   int block_size,
                                                                   size_t shared_bytes,
                                                                   unsigned flags) {
    (void)flags;
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, block_size, shared_bytes);
}

cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, const void *kernel, int blocks,
                                                      int block_size) {
    (void)kernel, (void)block_size;
    *bytes = (size_t)fragbench_settings()->shared_memory_per_block / (size_t)(blocks ? blocks : 1);
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveClusters(int *clusters, const void *kernel,
                                           const cudaLaunchConfig_t *config) {
    (void)kernel, (void)config;
    *clusters = 8;
    return cudaSuccess;
}
