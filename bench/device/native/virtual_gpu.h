/* The virtual GPU: what its files share.
 *
 * PyTorch's caching allocator asks the CUDA runtime and driver for memory and nothing else. This
 * library stands in for both: it accounts for device memory and backs none of it, so that the real
 * allocator runs on a card of any size. Kernels launch and do nothing.
 *
 *   settings.c          what the card is: size, name, capability (environment variables)
 *   memory.c            device addresses, physical pages, capacity
 *   counters.c          what was asked of the driver, for Python and for the summary at exit
 *   trace.c             what a program called, by name
 *   properties.c        device properties and attributes
 *   host.c              copies, page-locked host memory
 *   runtime.c           cuda*: errors, devices, memory, copies
 *   runtime_launches.c  cuda*: launches, occupancy
 *   streams.c           cuda*: streams, events
 *   graphs.c            cuda*: graph capture, instances of graphs
 *   lookup.c            cu*: functions by name
 *   driver.c            cu*: errors, the device, its context
 *   driver_modules.c    cu*: modules, libraries, launches
 *   driver_memory.c     cu*: memory
 *   driver_streams.c    cu*: streams, events, graphs
 *   inert.c             functions that do nothing
 *   matrix.c            cuBLAS and cuBLASLt, which do nothing
 *   nvml.c              a library of its own: libnvidia-ml.so.1
 *
 * Every other function of CUDA's and cuBLAS's headers says "not supported": the build makes a file
 * of them (bench/device/stand_ins.py).
 */
#ifndef FRAGBENCH_VIRTUAL_GPU_H
#define FRAGBENCH_VIRTUAL_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Physical memory comes in pages of this size, as on every data-centre GPU. */
#define PAGE_BYTES (2ull << 20)

/* Device addresses lie in a range that Linux gives to nobody on x86-64 and arm64 unless asked:
 * a pointer's kind can be told from its value. */
#define DEVICE_BASE 0x200000000000ull
#define DEVICE_SPAN 0x200000000000ull

static inline bool is_device(const void *pointer) {
    return (uintptr_t)pointer - DEVICE_BASE < DEVICE_SPAN;
}

/* --- exported: for Python (ctypes) and for libnvidia-ml.so.1 --------------------------------- */

/* Calls counted by kind; the order is that of the array that Python reads. */
#define COUNTED_CALLS(X)                                                                       \
    X(cudaMalloc) X(cudaFree) X(cudaHostAlloc) X(cudaFreeHost)                                 \
    X(cuMemAddressReserve) X(cuMemAddressFree) X(cuMemCreate) X(cuMemRelease)                  \
    X(cuMemMap) X(cuMemUnmap) X(cuMemSetAccess)                                                \
    X(failed_allocation) X(device_synchronize) X(stream_synchronize) X(event_synchronize)      \
    X(copy) X(kernel_launch) X(graph_launch) X(unsupported)

#define DECLARE_KIND(name) CALL_##name,
enum call_kind { COUNTED_CALLS(DECLARE_KIND) CALL_KINDS };
#undef DECLARE_KIND

struct device_counters {
    uint64_t capacity_bytes; /* what the card has */
    uint64_t context_bytes;  /* what the CUDA context takes of it */
    uint64_t modules_bytes;  /* what the code of launched kernels takes */
    uint64_t graph_bytes;    /* what the driver keeps of instantiated graphs */
    uint64_t peak_graph_bytes;
    uint64_t used_bytes;     /* physical pages in use, without the three above */
    uint64_t peak_bytes;     /* the most that used_bytes has been */
    uint64_t calls[CALL_KINDS];
};

/* Everything that is taken of the card. */
static inline uint64_t taken_bytes(const struct device_counters *now) {
    return now->context_bytes + now->modules_bytes + now->graph_bytes + now->used_bytes;
}

struct device_settings {
    char name[256];
    uint64_t memory_bytes, context_bytes, modules_bytes;
    uint64_t graph_bytes; /* of one graph, not in whole pages */
    int major, minor;
    int multiprocessors, max_threads_per_multiprocessor;
    int shared_memory_per_block, shared_memory_per_multiprocessor;
    int l2_cache_bytes;
    bool trace;
};

struct device_counters *fragbench_counters(void);
const char *fragbench_call_name(int kind);
const struct device_settings *fragbench_settings(void);
/* The reserved addresses, [range[0], range[1]), that an address lies in; false if in none. */
bool fragbench_find_reservation(uint64_t address, uint64_t range[2]);

/* --- internal -------------------------------------------------------------------------------- */
#pragma GCC visibility push(hidden)

extern struct device_counters counters;
#define COUNT(kind) ((void)__atomic_fetch_add(&counters.calls[CALL_##kind], 1, __ATOMIC_RELAXED))

/* Reads the settings and charges the context, once a process, at its first use of the device. A
 * fork server imports PyTorch long before a run's settings are known, so this cannot be done when
 * the library is loaded. */
void start_device(void);

/* Counts a refusal and, if the setting `trace` is on, names the function. */
void trace_unsupported(const char *function);
void print_calls(void);
#define ERROR_NOT_SUPPORTED 801 /* the same in the runtime and in the driver */
#define CUBLAS_NOT_SUPPORTED 15

/* Functions declared without arguments, in files that include no CUDA header: a C function may
 * ignore what it is passed. */
#define DO_NOTHING(name) \
    int name(void) { return 0; }
#define REFUSE(name, error)       \
    int name(void) {              \
        trace_unsupported(#name); \
        return error;             \
    }

enum memory_status { MEMORY_OK, MEMORY_EXHAUSTED, MEMORY_INVALID };
/* The runtime's error, which cudaGetLastError tells as well, and the driver's. */
int report_status(enum memory_status status);
int result_of(enum memory_status status);

enum memory_status memory_allocate(uint64_t bytes, uint64_t *address);
enum memory_status memory_free(uint64_t address);
enum memory_status memory_reserve(uint64_t bytes, uint64_t *address);
enum memory_status memory_unreserve(uint64_t address, uint64_t bytes);
enum memory_status memory_create(uint64_t bytes, uint64_t *handle);
enum memory_status memory_release(uint64_t handle);
enum memory_status memory_map(uint64_t address, uint64_t bytes, uint64_t handle);
enum memory_status memory_unmap(uint64_t address, uint64_t bytes);
enum memory_status memory_set_access(uint64_t address, uint64_t bytes);
/* The allocation or mapping that an address lies in. */
enum memory_status memory_find(uint64_t address, uint64_t *base, uint64_t *bytes);
void memory_info(size_t *free_bytes, size_t *total_bytes);
/* Charges the code of a kernel, if it is launched for the first time. */
enum memory_status memory_load_kernel(const void *kernel);
/* Charges what so many instantiated graphs take together, instead of what was charged for them. */
enum memory_status memory_hold_graphs(uint64_t count);
/* One page of addresses for the variables of device code, whose values nobody can see. */
#define SYMBOL_ADDRESS DEVICE_BASE

void copy_bytes(void *destination, const void *source, size_t bytes);
void set_bytes(void *destination, int value, size_t bytes);

/* Page-locked host memory, so that a pointer's kind can be told. */
void *host_allocate(size_t bytes);
void host_free(void *pointer);
void host_register(void *pointer, size_t bytes);
bool host_unregister(void *pointer);
bool is_pinned(const void *pointer);

/* Instances of graphs: numbers that are not used again. */
enum memory_status graph_instantiate(void **instance);
enum memory_status graph_destroy(void *instance);
/* In a forked process that has a card of its own. */
void graph_forget_all(void);

#define PCI_BUS_ID "0000:01:00.0"

/* Streams, events and modules are numbers: who has a handle compares it and never looks inside. */
void *next_handle(void);
#define LEAST_PRIORITY 0
#define GREATEST_PRIORITY (-5)

int device_attribute(int attribute);
int blocks_per_multiprocessor(void);

#pragma GCC visibility pop
#endif
