/* Host memory: copies between it and the device, and what is page-locked. */
#include "virtual_gpu.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Device memory holds nothing: what is written to it is lost and what is read is zeros. The
 * direction follows from the addresses, as with cudaMemcpyDefault. */
void copy_bytes(void *destination, const void *source, size_t bytes) {
    if (is_device(destination)) return;
    if (is_device(source))
        memset(destination, 0, bytes);
    else
        memmove(destination, source, bytes);
}

void set_bytes(void *destination, int value, size_t bytes) {
    if (!is_device(destination)) memset(destination, value, bytes);
}

struct range {
    uintptr_t start, end;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct range *ranges; /* in order of address */
static size_t count, room;

/* The number of ranges that start at or before an address. */
static size_t ranges_up_to(uintptr_t address) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranges[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void host_register(void *pointer, size_t bytes) {
    pthread_mutex_lock(&mutex);
    if (count == room) {
        room = room ? 2 * room : 64;
        ranges = realloc(ranges, room * sizeof *ranges);
        if (!ranges) abort();
    }
    size_t place = ranges_up_to((uintptr_t)pointer);
    memmove(ranges + place + 1, ranges + place, (count - place) * sizeof *ranges);
    ranges[place] = (struct range){(uintptr_t)pointer, (uintptr_t)pointer + bytes};
    count++;
    pthread_mutex_unlock(&mutex);
}

bool host_unregister(void *pointer) {
    pthread_mutex_lock(&mutex);
    size_t after = ranges_up_to((uintptr_t)pointer);
    bool found = after && ranges[after - 1].start == (uintptr_t)pointer;
    if (found) {
        memmove(ranges + after - 1, ranges + after, (count - after) * sizeof *ranges);
        count--;
    }
    pthread_mutex_unlock(&mutex);
    return found;
}

bool is_pinned(const void *pointer) {
    pthread_mutex_lock(&mutex);
    size_t after = ranges_up_to((uintptr_t)pointer);
    bool pinned = after && (uintptr_t)pointer < ranges[after - 1].end;
    pthread_mutex_unlock(&mutex);
    return pinned;
}

void *host_allocate(size_t bytes) {
    size_t whole_pages = (bytes + 4095) / 4096 * 4096;
    void *pointer = aligned_alloc(4096, whole_pages ? whole_pages : 4096);
    if (!pointer) return NULL;
    memset(pointer, 0, whole_pages);
    host_register(pointer, bytes);
    return pointer;
}

void host_free(void *pointer) {
    if (host_unregister(pointer)) free(pointer);
}
