/* Device memory: addresses, physical pages and the card's capacity. Nothing is backed.
 *
 * Everything is kept in one table with an entry for every 2 MiB of device addresses; what starts
 * at an address is found at its entry. The table is 256 MiB of address space of which only the
 * touched parts exist, and makes every operation O(pages it names) or O(1), without limits.
 *
 * Addresses are handed out upwards and used again last in, first out within a size class, so that
 * they depend on the sequence of calls alone: PyTorch's best fit breaks ties by address. A size
 * class is an eighth of a power of two wide; that bounds what a long run can take of the range.
 */
#define _GNU_SOURCE
#include "virtual_gpu.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

struct entry {
    uint32_t allocated; /* pages of the allocation (cudaMalloc) that starts here */
    uint32_t reserved;  /* pages of the reservation that starts here */
    uint32_t mapped;    /* pages of the mapping that starts here */
    uint32_t link;      /* the mapping's physical memory; for a free range the next free one */
};

/* Physical memory made by cuMemCreate: alive while its handle or a mapping is. */
struct physical {
    uint32_t pages; /* 0: this place is free */
    uint32_t maps;
    uint32_t handles;
    uint32_t next_free;
};

#define TABLE_ENTRIES (DEVICE_SPAN / PAGE_BYTES)
#define MANTISSA_BITS 3
#define SIZE_CLASSES (64 << MANTISSA_BITS)

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct entry *table;
static uint32_t free_ranges[SIZE_CLASSES]; /* entry index; 0 is none, as entry 0 is for symbols */
static uint32_t next_entry = 1;
static struct physical *physical; /* place 0 is unused: a handle is never 0 */
static uint32_t physical_count, physical_room, physical_free;

static uint64_t page_count(uint64_t bytes) { return bytes / PAGE_BYTES + (bytes % PAGE_BYTES != 0); }

static uint64_t address_of(uint32_t index) { return DEVICE_BASE + index * PAGE_BYTES; }

static void lock(void) {
    start_device();
    pthread_mutex_lock(&mutex);
    if (table) return;
    table = mmap(NULL, (TABLE_ENTRIES + 1) * sizeof *table, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (table == MAP_FAILED) {
        fputs("fragbench: no 256 MiB of address space for the virtual GPU's table (ulimit -v?)\n",
              stderr);
        abort();
    }
}

static enum memory_status unlock(enum memory_status status) {
    pthread_mutex_unlock(&mutex);
    return status;
}

/* The entry that an address names, or NULL if it is not the start of a page. */
static struct entry *entry_at(uint64_t address) {
    if (!is_device((void *)address) || address % PAGE_BYTES) return NULL;
    return &table[(address - DEVICE_BASE) / PAGE_BYTES];
}

/* --- addresses ------------------------------------------------------------------------------- */

/* Rounds a count up to its size class's and says which class that is. */
static uint64_t size_class(uint64_t pages, uint32_t *class) {
    int shift = 63 - __builtin_clzll(pages) - MANTISSA_BITS;
    if (shift < 0) shift = 0;
    uint64_t mantissa = (pages + (1ull << shift) - 1) >> shift;
    *class = ((uint32_t)shift << MANTISSA_BITS) + (uint32_t)mantissa;
    return mantissa << shift;
}

/* Takes a range of addresses; 0 if the range is used up. */
static uint32_t take_range(uint64_t pages) {
    uint32_t class;
    uint64_t room = size_class(pages, &class);
    uint32_t index = free_ranges[class];
    if (index) {
        free_ranges[class] = table[index].link;
        table[index].link = 0;
        return index;
    }
    if (room > TABLE_ENTRIES - next_entry) return 0;
    index = next_entry;
    next_entry += (uint32_t)room;
    return index;
}

static void return_range(struct entry *entry, uint64_t pages) {
    uint32_t class;
    size_class(pages, &class);
    entry->link = free_ranges[class];
    free_ranges[class] = (uint32_t)(entry - table);
}

/* --- capacity -------------------------------------------------------------------------------- */

static uint64_t free_bytes(void) {
    uint64_t taken = taken_bytes(&counters);
    return taken < counters.capacity_bytes ? counters.capacity_bytes - taken : 0;
}

static bool take_pages(uint64_t pages) {
    if (pages > free_bytes() / PAGE_BYTES) {
        COUNT(failed_allocation);
        return false;
    }
    counters.used_bytes += pages * PAGE_BYTES;
    if (counters.used_bytes > counters.peak_bytes) counters.peak_bytes = counters.used_bytes;
    return true;
}

static void return_pages(uint64_t pages) { counters.used_bytes -= pages * PAGE_BYTES; }

void memory_info(size_t *free, size_t *total) {
    lock();
    *free = free_bytes();
    *total = counters.capacity_bytes;
    unlock(MEMORY_OK);
}

/* --- memory beside the allocator ------------------------------------------------------------- */

static enum memory_status charge(uint64_t *charged, uint64_t bytes) {
    if (bytes > *charged && bytes - *charged > free_bytes()) {
        COUNT(failed_allocation);
        return MEMORY_EXHAUSTED;
    }
    __atomic_store_n(charged, bytes, __ATOMIC_RELAXED);
    return MEMORY_OK;
}

/* A card loads the code of a kernel at its first launch. Kernels have no sizes here: each of the
 * first MODULE_PARTS different ones brings an equal part of what a program's take together. vLLM
 * launches one before it first reads the memory of the card, 35 to 39 in all before it divides the
 * rest. The build says how many parts there are (bench/device/build.py). */
static const void *loaded[MODULE_PARTS];
static unsigned loaded_count;

static bool is_loaded(const void *kernel) {
    for (unsigned i = 0; i < loaded_count; i++)
        if (loaded[i] == kernel) return true;
    return false;
}

enum memory_status memory_load_kernel(const void *kernel) {
    uint64_t all = fragbench_settings()->modules_bytes;
    if (__atomic_load_n(&counters.modules_bytes, __ATOMIC_RELAXED) == all) return MEMORY_OK;
    lock();
    if (!counters.modules_bytes) loaded_count = 0; /* in a forked process */
    bool are_all = counters.modules_bytes == all;  /* since another thread loaded the last */
    if (are_all || is_loaded(kernel)) return unlock(MEMORY_OK);
    uint64_t pages = page_count(all * (loaded_count + 1) / MODULE_PARTS);
    enum memory_status status = charge(&counters.modules_bytes, pages * PAGE_BYTES);
    if (!status) loaded[loaded_count++] = kernel;
    return unlock(status);
}

/* The driver packs what it keeps: all graphs together take whole pages, not each of them. */
enum memory_status memory_hold_graphs(uint64_t count) {
    uint64_t pages = page_count(count * fragbench_settings()->graph_bytes);
    lock();
    enum memory_status status = charge(&counters.graph_bytes, pages * PAGE_BYTES);
    if (counters.graph_bytes > counters.peak_graph_bytes)
        counters.peak_graph_bytes = counters.graph_bytes;
    return unlock(status);
}

/* --- cudaMalloc ------------------------------------------------------------------------------ */

enum memory_status memory_allocate(uint64_t bytes, uint64_t *address) {
    uint64_t pages = page_count(bytes);
    lock();
    COUNT(cudaMalloc);
    *address = 0;
    if (!pages) return unlock(MEMORY_OK);
    if (!take_pages(pages)) return unlock(MEMORY_EXHAUSTED);
    uint32_t index = take_range(pages);
    if (!index) {
        return_pages(pages);
        return unlock(MEMORY_EXHAUSTED);
    }
    table[index].allocated = (uint32_t)pages;
    *address = address_of(index);
    return unlock(MEMORY_OK);
}

enum memory_status memory_free(uint64_t address) {
    lock();
    COUNT(cudaFree);
    struct entry *entry = entry_at(address);
    if (!address) return unlock(MEMORY_OK);
    if (!entry || !entry->allocated) return unlock(MEMORY_INVALID);
    return_pages(entry->allocated);
    return_range(entry, entry->allocated);
    entry->allocated = 0;
    return unlock(MEMORY_OK);
}

/* --- virtual memory management --------------------------------------------------------------- */

enum memory_status memory_reserve(uint64_t bytes, uint64_t *address) {
    lock();
    COUNT(cuMemAddressReserve);
    if (!bytes || bytes % PAGE_BYTES) return unlock(MEMORY_INVALID);
    uint32_t index = bytes < DEVICE_SPAN ? take_range(bytes / PAGE_BYTES) : 0;
    if (!index) return unlock(MEMORY_EXHAUSTED);
    table[index].reserved = (uint32_t)(bytes / PAGE_BYTES);
    *address = address_of(index);
    return unlock(MEMORY_OK);
}

enum memory_status memory_unreserve(uint64_t address, uint64_t bytes) {
    lock();
    COUNT(cuMemAddressFree);
    struct entry *entry = entry_at(address);
    if (!entry || !entry->reserved || bytes != entry->reserved * PAGE_BYTES)
        return unlock(MEMORY_INVALID);
    for (uint32_t page = 0; page < entry->reserved; page++)
        if (entry[page].mapped) return unlock(MEMORY_INVALID);
    return_range(entry, entry->reserved);
    entry->reserved = 0;
    return unlock(MEMORY_OK);
}

static uint32_t take_place(void) {
    if (physical_free) {
        uint32_t place = physical_free;
        physical_free = physical[place].next_free;
        return place;
    }
    if (physical_count + 1 >= physical_room) {
        uint32_t room = physical_room ? 2 * physical_room : 1024;
        struct physical *grown = realloc(physical, room * sizeof *physical);
        if (!grown) return 0;
        physical = grown;
        physical_room = room;
    }
    return ++physical_count;
}

static struct physical *physical_at(uint64_t handle) {
    if (!handle || handle > physical_count || !physical[handle].pages) return NULL;
    return &physical[handle];
}

static void free_if_unused(struct physical *memory) {
    if (memory->handles || memory->maps) return;
    return_pages(memory->pages);
    memory->pages = 0;
    memory->next_free = physical_free;
    physical_free = (uint32_t)(memory - physical);
}

enum memory_status memory_create(uint64_t bytes, uint64_t *handle) {
    lock();
    COUNT(cuMemCreate);
    uint64_t pages = bytes / PAGE_BYTES;
    if (!pages || bytes % PAGE_BYTES) return unlock(MEMORY_INVALID);
    if (!take_pages(pages)) return unlock(MEMORY_EXHAUSTED);
    uint32_t place = take_place();
    if (!place) {
        return_pages(pages);
        return unlock(MEMORY_EXHAUSTED);
    }
    physical[place] = (struct physical){.pages = (uint32_t)pages, .handles = 1};
    *handle = place;
    return unlock(MEMORY_OK);
}

enum memory_status memory_release(uint64_t handle) {
    lock();
    COUNT(cuMemRelease);
    struct physical *memory = physical_at(handle);
    if (!memory || !memory->handles) return unlock(MEMORY_INVALID);
    memory->handles--;
    free_if_unused(memory);
    return unlock(MEMORY_OK);
}

/* Whether pages from `*first` on lie in one reservation, whose own first page becomes `*first`. A
 * reservation starts at or before its pages, so the search goes back. PyTorch asks for pages that
 * follow one another: the reservation found last is looked at first. */
static bool is_reserved(uint64_t *first, uint64_t pages) {
    static uint64_t last;
    uint64_t end = *first + pages, start = last;
    if (*first < start || *first >= start + table[start].reserved) {
        start = *first;
        while (start && !table[start].reserved) start--;
    }
    *first = last = start;
    return end <= start + table[start].reserved;
}

enum memory_status memory_map(uint64_t address, uint64_t bytes, uint64_t handle) {
    lock();
    COUNT(cuMemMap);
    struct entry *entry = entry_at(address);
    struct physical *memory = physical_at(handle);
    uint64_t pages = bytes / PAGE_BYTES;
    if (!entry || !memory || bytes % PAGE_BYTES || !pages || pages > memory->pages)
        return unlock(MEMORY_INVALID);
    uint64_t first = (uint64_t)(entry - table);
    if (!is_reserved(&first, pages)) return unlock(MEMORY_INVALID);
    for (uint64_t page = 0; page < pages; page++)
        if (entry[page].mapped) return unlock(MEMORY_INVALID);
    entry->mapped = (uint32_t)pages;
    entry->link = (uint32_t)handle;
    memory->maps++;
    return unlock(MEMORY_OK);
}

/* Whether a range is made of whole mappings, one after the other. */
static bool is_mapped(const struct entry *entry, uint64_t pages) {
    uint64_t page = 0;
    while (page < pages && entry[page].mapped) page += entry[page].mapped;
    return page == pages;
}

enum memory_status memory_unmap(uint64_t address, uint64_t bytes) {
    lock();
    COUNT(cuMemUnmap);
    struct entry *entry = entry_at(address);
    if (!entry || !bytes || bytes % PAGE_BYTES || !is_mapped(entry, bytes / PAGE_BYTES))
        return unlock(MEMORY_INVALID);
    struct entry *end = entry + bytes / PAGE_BYTES;
    while (entry < end) {
        struct physical *memory = &physical[entry->link];
        uint32_t pages = entry->mapped;
        memory->maps--;
        free_if_unused(memory);
        entry->mapped = entry->link = 0;
        entry += pages;
    }
    return unlock(MEMORY_OK);
}

enum memory_status memory_set_access(uint64_t address, uint64_t bytes) {
    lock();
    COUNT(cuMemSetAccess);
    struct entry *entry = entry_at(address);
    bool mapped = entry && bytes && bytes % PAGE_BYTES == 0 && is_mapped(entry, bytes / PAGE_BYTES);
    return unlock(mapped ? MEMORY_OK : MEMORY_INVALID);
}

enum memory_status memory_find(uint64_t address, uint64_t *base, uint64_t *bytes) {
    if (!is_device((void *)address)) return MEMORY_INVALID;
    lock();
    uint64_t index = (address - DEVICE_BASE) / PAGE_BYTES;
    uint64_t start = index;
    while (start && !table[start].allocated && !table[start].mapped && !table[start].reserved)
        start--;
    uint64_t pages = table[start].allocated + table[start].mapped;
    if (index >= start + pages) return unlock(MEMORY_INVALID);
    *base = address_of((uint32_t)start);
    *bytes = pages * PAGE_BYTES;
    return unlock(MEMORY_OK);
}

bool fragbench_find_reservation(uint64_t address, uint64_t range[2]) {
    if (!is_device((void *)address)) return false;
    lock();
    uint64_t start = (address - DEVICE_BASE) / PAGE_BYTES;
    bool found = is_reserved(&start, 1);
    range[0] = address_of((uint32_t)start);
    range[1] = range[0] + table[start].reserved * PAGE_BYTES;
    unlock(MEMORY_OK);
    return found;
}
