/* What was asked of the driver: an array that Python reads, and a summary at exit. */
#include "virtual_gpu.h"

#include <stdio.h>
#include <stdlib.h>

struct device_counters counters;

#define NAME_KIND(name) #name,
static const char *const names[] = {COUNTED_CALLS(NAME_KIND)};
#undef NAME_KIND

struct device_counters *fragbench_counters(void) {
    start_device();
    return &counters;
}

const char *fragbench_call_name(int kind) {
    return kind >= 0 && kind < CALL_KINDS ? names[kind] : NULL;
}

static double mib(uint64_t bytes) { return (double)bytes / 1048576.0; }

/* `fragbench exec` asks for it. A process that never used the device has nothing to say. */
__attribute__((destructor)) static void print_summary(void) {
    if (!getenv("FRAGBENCH_VGPU_SUMMARY") || !counters.capacity_bytes) return;
    fprintf(stderr,
            "fragbench: peak device memory %.1f MiB of %.1f MiB (context %.1f MiB, "
            "modules %.1f MiB, graphs at most %.1f MiB); calls:",
            mib(counters.peak_bytes), mib(counters.capacity_bytes), mib(counters.context_bytes),
            mib(counters.modules_bytes), mib(counters.peak_graph_bytes));
    const char *separator = " ";
    for (int kind = 0; kind < CALL_KINDS; kind++) {
        if (!counters.calls[kind]) continue;
        fprintf(stderr, "%s%s %llu", separator, names[kind],
                (unsigned long long)counters.calls[kind]);
        separator = ", ";
    }
    fputc('\n', stderr);
    print_calls();
}
