/* libnvidia-ml.so.1: PyTorch asks it about fabric handles before it makes expandable segments, and
 * for the text of its OutOfMemoryError; other programs for the card's name and memory. It takes
 * what it says from the virtual GPU's library, which is loaded before it. */
#include "virtual_gpu.h"

#include <stdio.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7 };

#define DEVICE ((void *)0x10)

int nvmlInit_v2(void) { return SUCCESS; }
int nvmlInit(void) { return SUCCESS; }
int nvmlInitWithFlags(unsigned flags) { return (void)flags, SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int error) {
    return error == NOT_SUPPORTED ? "Not Supported" : error ? "Unknown Error" : "Success";
}

/* --- the device ------------------------------------------------------------------------------ */

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = 1;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = DEVICE;
    return index ? INVALID_ARGUMENT : SUCCESS;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device) {
    (void)bus;
    *device = DEVICE;
    return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    return nvmlDeviceGetHandleByPciBusId_v2(uuid, device);
}

int nvmlDeviceGetName(void *device, char *name, unsigned length) {
    (void)device;
    snprintf(name, length, "%s", fragbench_settings()->name);
    return SUCCESS;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) {
    (void)device;
    snprintf(uuid, length, "GPU-66726167-6265-6e63-682d-6770752d3030");
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
    (void)device;
    *major = fragbench_settings()->major;
    *minor = fragbench_settings()->minor;
    return SUCCESS;
}

/* --- memory ---------------------------------------------------------------------------------- */

struct memory {
    unsigned long long total, free, used;
};
struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
    (void)device;
    const struct device_counters *now = fragbench_counters();
    memory->total = now->capacity_bytes;
    memory->used = taken_bytes(now);
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *memory) {
    struct memory simple;
    nvmlDeviceGetMemoryInfo(device, &simple);
    memory->total = simple.total;
    memory->free = simple.free;
    memory->used = simple.used;
    memory->reserved = 0;
    return SUCCESS;
}

/* The one process on the card. Later versions of the structure have more after these members. */
struct process {
    unsigned pid;
    unsigned long long used_bytes;
};

int nvmlDeviceGetComputeRunningProcesses(void *device, unsigned *count,
                                         struct process *processes) {
    (void)device;
    unsigned room = *count;
    *count = 1;
    if (!room || !processes) return INSUFFICIENT_SIZE;
    const struct device_counters *now = fragbench_counters();
    processes->pid = (unsigned)getpid();
    processes->used_bytes = taken_bytes(now);
    return SUCCESS;
}

struct process_v3 {
    struct process process;
    unsigned gpu_instance, compute_instance;
};

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count,
                                            struct process_v3 *processes) {
    if (*count && processes) processes->gpu_instance = processes->compute_instance = ~0u;
    return nvmlDeviceGetComputeRunningProcesses(device, count, &processes->process);
}

/* --- versions -------------------------------------------------------------------------------- */

int cuDriverGetVersion(int *version);

int nvmlSystemGetCudaDriverVersion_v2(int *version) { return cuDriverGetVersion(version); }
int nvmlSystemGetCudaDriverVersion(int *version) { return cuDriverGetVersion(version); }

int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    snprintf(version, length, "580.00.00");
    return SUCCESS;
}

int nvmlSystemGetNVMLVersion(char *version, unsigned length) {
    snprintf(version, length, "13.580.00");
    return SUCCESS;
}

/* --- what the card lacks ----------------------------------------------------------------------- */

/* There is no header of NVML's to take names from: these are those that programs ask for. */
#define LACKING(X)                                                                             \
    X(nvmlDeviceGetNvLinkRemoteDeviceType) X(nvmlDeviceGetNvLinkRemotePciInfo_v2)              \
    X(nvmlDeviceGetNvLinkState) X(nvmlDeviceGetNvLinkCapability) X(nvmlDeviceGetP2PStatus)     \
    X(nvmlDeviceGetTopologyCommonAncestor) X(nvmlDeviceGetPciInfo_v3)                          \
    X(nvmlDeviceGetUtilizationRates) X(nvmlDeviceGetPowerUsage)                                \
    X(nvmlDeviceGetEnforcedPowerLimit) X(nvmlDeviceGetTotalEnergyConsumption)                  \
    X(nvmlDeviceGetTemperature) X(nvmlDeviceGetClockInfo) X(nvmlDeviceGetMaxClockInfo)         \
    X(nvmlDeviceGetMigMode) X(nvmlDeviceGetAttributes_v2) X(nvmlDeviceGetCpuAffinity)          \
    X(nvmlDeviceGetMemoryAffinity) X(nvmlDeviceGetNumaNodeId) X(nvmlDeviceGetBAR1MemoryInfo)   \
    X(nvmlDeviceGetPersistenceMode) X(nvmlDeviceGetFieldValues)
#define LACK(name) \
    int name(void) { return NOT_SUPPORTED; }
LACKING(LACK)

struct fabric_info {
    unsigned version;
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
};

/* An error here would make PyTorch warn. */
int nvmlDeviceGetGpuFabricInfoV(void *device, struct fabric_info *info) {
    (void)device;
    info->status = NOT_SUPPORTED;
    info->state = 0; /* the card is on no fabric */
    return SUCCESS;
}
