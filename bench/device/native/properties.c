/* Device properties and attributes. PyTorch and Triton choose kernels by them, and divide by some. */
#include "virtual_gpu.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

/* CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability". */
int blocks_per_multiprocessor(void) {
    const struct device_settings *card = fragbench_settings();
    if (card->major == 8 && card->minor == 6) return 16;
    if ((card->major == 8 && card->minor == 9) || card->major == 12) return 24;
    return card->major >= 8 ? 32 : 16;
}

static bool is_data_centre(const struct device_settings *card) {
    return card->minor == 0; /* 8.0, 9.0, 10.0: 8.6, 8.9 and 12.0 are mostly of the desktop */
}

/* Attributes have the same numbers in the runtime and in the driver, which names more of them.
 * One that is not here is 0: a feature that the card lacks. */
int device_attribute(int attribute) {
    const struct device_settings *card = fragbench_settings();
    switch (attribute) {
#define IS(name, value) case CU_DEVICE_ATTRIBUTE_##name: return value;
        IS(MAX_THREADS_PER_BLOCK, 1024)
        IS(MAX_BLOCK_DIM_X, 1024)
        IS(MAX_BLOCK_DIM_Y, 1024)
        IS(MAX_BLOCK_DIM_Z, 64)
        IS(MAX_GRID_DIM_X, 2147483647)
        IS(MAX_GRID_DIM_Y, 65535)
        IS(MAX_GRID_DIM_Z, 65535)
        IS(MAX_SHARED_MEMORY_PER_BLOCK, 49152)
        IS(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, card->shared_memory_per_block)
        IS(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, card->shared_memory_per_multiprocessor)
        IS(RESERVED_SHARED_MEMORY_PER_BLOCK, 1024)
        IS(TOTAL_CONSTANT_MEMORY, 65536)
        IS(WARP_SIZE, 32)
        IS(MAX_PITCH, 2147483647)
        IS(MAX_REGISTERS_PER_BLOCK, 65536)
        IS(MAX_REGISTERS_PER_MULTIPROCESSOR, 65536)
        IS(CLOCK_RATE, 1410000)
        IS(MEMORY_CLOCK_RATE, 1593000)
        IS(GLOBAL_MEMORY_BUS_WIDTH, 5120)
        IS(TEXTURE_ALIGNMENT, 512)
        IS(TEXTURE_PITCH_ALIGNMENT, 32)
        IS(MULTIPROCESSOR_COUNT, card->multiprocessors)
        IS(MAX_THREADS_PER_MULTIPROCESSOR, card->max_threads_per_multiprocessor)
        IS(MAX_BLOCKS_PER_MULTIPROCESSOR, blocks_per_multiprocessor())
        IS(COMPUTE_CAPABILITY_MAJOR, card->major)
        IS(COMPUTE_CAPABILITY_MINOR, card->minor)
        IS(L2_CACHE_SIZE, card->l2_cache_bytes)
        IS(MAX_PERSISTING_L2_CACHE_SIZE, card->l2_cache_bytes / 2)
        IS(MAX_ACCESS_POLICY_WINDOW_SIZE, 128 << 20)
        IS(GPU_OVERLAP, 1)
        IS(ASYNC_ENGINE_COUNT, 3)
        IS(CONCURRENT_KERNELS, 1)
        IS(STREAM_PRIORITIES_SUPPORTED, 1)
        IS(GLOBAL_L1_CACHE_SUPPORTED, 1)
        IS(LOCAL_L1_CACHE_SUPPORTED, 1)
        IS(CAN_MAP_HOST_MEMORY, 1)
        IS(UNIFIED_ADDRESSING, 1)
        IS(ECC_ENABLED, is_data_centre(card))
        IS(PCI_BUS_ID, 1)
        IS(COMPUTE_PREEMPTION_SUPPORTED, 1)
        IS(COOPERATIVE_LAUNCH, 1)
        IS(HOST_REGISTER_SUPPORTED, 1)
        IS(CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1)
        IS(VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1)
        IS(SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, is_data_centre(card) ? 2 : 64)
        IS(CLUSTER_LAUNCH, card->major >= 9)
        IS(TENSOR_MAP_ACCESS_SUPPORTED, card->major >= 9)
#undef IS
    }
    return 0;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    if (device) return cudaErrorInvalidDevice;
    *value = device_attribute((int)attribute);
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
    if (device) return cudaErrorInvalidDevice;
    const struct device_settings *card = fragbench_settings();
    memset(properties, 0, sizeof *properties);
    snprintf(properties->name, sizeof properties->name, "%s", card->name);
    memcpy(&properties->uuid, "fragbench-gpu-00", sizeof properties->uuid);
    properties->totalGlobalMem = card->memory_bytes;
#define FROM(field, name)                                                                      \
    properties->field = device_attribute(CU_DEVICE_ATTRIBUTE_##name)
    FROM(major, COMPUTE_CAPABILITY_MAJOR);
    FROM(minor, COMPUTE_CAPABILITY_MINOR);
    FROM(multiProcessorCount, MULTIPROCESSOR_COUNT);
    FROM(maxThreadsPerMultiProcessor, MAX_THREADS_PER_MULTIPROCESSOR);
    FROM(maxBlocksPerMultiProcessor, MAX_BLOCKS_PER_MULTIPROCESSOR);
    FROM(maxThreadsPerBlock, MAX_THREADS_PER_BLOCK);
    FROM(maxThreadsDim[0], MAX_BLOCK_DIM_X);
    FROM(maxThreadsDim[1], MAX_BLOCK_DIM_Y);
    FROM(maxThreadsDim[2], MAX_BLOCK_DIM_Z);
    FROM(maxGridSize[0], MAX_GRID_DIM_X);
    FROM(maxGridSize[1], MAX_GRID_DIM_Y);
    FROM(maxGridSize[2], MAX_GRID_DIM_Z);
    FROM(warpSize, WARP_SIZE);
    FROM(memPitch, MAX_PITCH);
    FROM(regsPerBlock, MAX_REGISTERS_PER_BLOCK);
    FROM(regsPerMultiprocessor, MAX_REGISTERS_PER_MULTIPROCESSOR);
    FROM(sharedMemPerBlock, MAX_SHARED_MEMORY_PER_BLOCK);
    FROM(sharedMemPerBlockOptin, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    FROM(sharedMemPerMultiprocessor, MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
    FROM(reservedSharedMemPerBlock, RESERVED_SHARED_MEMORY_PER_BLOCK);
    FROM(totalConstMem, TOTAL_CONSTANT_MEMORY);
    FROM(textureAlignment, TEXTURE_ALIGNMENT);
    FROM(texturePitchAlignment, TEXTURE_PITCH_ALIGNMENT);
    FROM(memoryBusWidth, GLOBAL_MEMORY_BUS_WIDTH);
    FROM(l2CacheSize, L2_CACHE_SIZE);
    FROM(persistingL2CacheMaxSize, MAX_PERSISTING_L2_CACHE_SIZE);
    FROM(accessPolicyMaxWindowSize, MAX_ACCESS_POLICY_WINDOW_SIZE);
    FROM(asyncEngineCount, ASYNC_ENGINE_COUNT);
    FROM(concurrentKernels, CONCURRENT_KERNELS);
    FROM(streamPrioritiesSupported, STREAM_PRIORITIES_SUPPORTED);
    FROM(globalL1CacheSupported, GLOBAL_L1_CACHE_SUPPORTED);
    FROM(localL1CacheSupported, LOCAL_L1_CACHE_SUPPORTED);
    FROM(canMapHostMemory, CAN_MAP_HOST_MEMORY);
    FROM(unifiedAddressing, UNIFIED_ADDRESSING);
    FROM(ECCEnabled, ECC_ENABLED);
    FROM(pciBusID, PCI_BUS_ID);
    FROM(computePreemptionSupported, COMPUTE_PREEMPTION_SUPPORTED);
    FROM(cooperativeLaunch, COOPERATIVE_LAUNCH);
    FROM(hostRegisterSupported, HOST_REGISTER_SUPPORTED);
#if CUDART_VERSION < 13000
    FROM(clockRate, CLOCK_RATE);
    FROM(memoryClockRate, MEMORY_CLOCK_RATE);
    FROM(deviceOverlap, GPU_OVERLAP);
#endif
#undef FROM
    return cudaSuccess;
}
