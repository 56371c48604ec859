/* What the card is. Python checks the values; here a missing one only gets a default. */
#include "virtual_gpu.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define PREFIX "FRAGBENCH_VGPU_"

static struct device_settings settings;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static bool started;

static uint64_t number(const char *variable, uint64_t otherwise) {
    const char *text = getenv(variable);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

static void read_settings(void) {
    const char *name = getenv(PREFIX "NAME");
    snprintf(settings.name, sizeof settings.name, "%s", name && *name ? name : "Virtual GPU");
    settings.memory_bytes = number(PREFIX "MEMORY_BYTES", 24ull << 30) / PAGE_BYTES * PAGE_BYTES;
    settings.context_bytes = number(PREFIX "CONTEXT_BYTES", 0) / PAGE_BYTES * PAGE_BYTES;
    settings.modules_bytes = number(PREFIX "MODULES_BYTES", 0) / PAGE_BYTES * PAGE_BYTES;
    settings.graph_bytes = number(PREFIX "GRAPH_BYTES", 0);
    settings.major = 8;
    settings.minor = 0;
    const char *capability = getenv(PREFIX "COMPUTE_CAPABILITY");
    if (capability) sscanf(capability, "%d.%d", &settings.major, &settings.minor);
    settings.multiprocessors = (int)number(PREFIX "MULTIPROCESSORS", 108);
    settings.max_threads_per_multiprocessor = (int)number(PREFIX "THREADS_PER_MULTIPROCESSOR", 2048);
    settings.shared_memory_per_block = (int)number(PREFIX "SHARED_MEMORY_PER_BLOCK", 166912);
    settings.shared_memory_per_multiprocessor =
        (int)number(PREFIX "SHARED_MEMORY_PER_MULTIPROCESSOR", 167936);
    settings.l2_cache_bytes = (int)number(PREFIX "L2_CACHE_BYTES", 40 << 20);
    settings.trace = number(PREFIX "TRACE", 0) != 0;
}

/* A forked process may be given settings of its own, unless it already has memory. */
static void forget_in_child(void) {
    if (counters.used_bytes) return;
    counters = (struct device_counters){0};
    graph_forget_all();
    started = false;
}

void start_device(void) {
    if (__atomic_load_n(&started, __ATOMIC_ACQUIRE)) return;
    pthread_mutex_lock(&mutex);
    if (!started) {
        static bool watching_forks;
        if (!watching_forks) pthread_atfork(NULL, NULL, forget_in_child);
        watching_forks = true;
        read_settings();
        counters.capacity_bytes = settings.memory_bytes;
        counters.context_bytes = settings.context_bytes;
        __atomic_store_n(&started, true, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&mutex);
}

const struct device_settings *fragbench_settings(void) {
    start_device();
    return &settings;
}
