/* What a program called, by name: every function that has an answer and every one that has none.
 *
 * The traced build is compiled with -finstrument-functions, which makes each function call the hook
 * below; the ordinary one pays nothing. */
#define _GNU_SOURCE
#include "virtual_gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The hook must not call itself. */
#define UNTRACED __attribute__((no_instrument_function))

/* A function that was called, by its address, or one that was refused, by its name. */
struct called {
    const void *key;
    const char *name;
    uint64_t count;
    bool refused;
};

#define PLACES 4096
static struct called table[PLACES];

/* The place of a key, found or taken without a lock; NULL if the table is full. */
UNTRACED static struct called *place_of(const void *key) {
    size_t place = ((uintptr_t)key >> 4) % PLACES;
    for (size_t tried = 0; tried < PLACES; tried++, place = (place + 1) % PLACES) {
        const void *found = NULL;
        if (__atomic_compare_exchange_n(&table[place].key, &found, key, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED) ||
            found == key)
            return &table[place];
    }
    return NULL;
}

UNTRACED static uint64_t count_call(struct called *called) {
    return called ? __atomic_fetch_add(&called->count, 1, __ATOMIC_RELAXED) : 0;
}

/* Where this library begins and ends: the linker defines both. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

UNTRACED void __cyg_profile_func_enter(void *function, void *caller) {
    bool called_from_here = (const char *)caller >= __ehdr_start && (const char *)caller < _end;
    if (!called_from_here) count_call(place_of(function));
}

UNTRACED void __cyg_profile_func_exit(void *function, void *caller) {
    (void)function, (void)caller;
}

UNTRACED void trace_unsupported(const char *function) {
    COUNT(unsupported);
    if (!fragbench_settings()->trace) return;
    struct called *called = place_of(function);
    if (!called) return;
    called->name = function;
    called->refused = true;
    if (!count_call(called))
        fprintf(stderr, "fragbench: the virtual GPU does not support %s\n", function);
}

/* --- the list at exit -------------------------------------------------------------------------- */

/* The name under which a function was called; NULL for one that only this library can call. */
UNTRACED static const char *exported_name(const void *function) {
    Dl_info found;
    if (!dladdr(function, &found) || found.dli_saddr != function) return NULL;
    return strncmp(found.dli_sname, "fragbench_", 10) ? found.dli_sname : NULL;
}

/* By name, and one that was refused before the same one as a function that was called. */
UNTRACED static int by_name(const void *left, const void *right) {
    const struct called *a = left, *b = right;
    int order = strcmp(a->name, b->name);
    return order ? order : b->refused - a->refused;
}

UNTRACED static int by_count(const void *left, const void *right) {
    const struct called *a = left, *b = right;
    if (a->count != b->count) return a->count < b->count ? 1 : -1;
    return strcmp(a->name, b->name);
}

/* Brings what has a name to the front, each name once, and returns how many those are. */
UNTRACED static size_t gather_named(void) {
    size_t named = 0, different = 0;
    for (size_t i = 0; i < PLACES; i++) {
        if (!table[i].count) continue;
        struct called each = table[i];
        if (!each.refused) each.name = exported_name(each.key);
        if (each.name) table[named++] = each;
    }
    qsort(table, named, sizeof *table, by_name);
    for (size_t i = 0; i < named; i++)
        if (!i || strcmp(table[i].name, table[different - 1].name)) table[different++] = table[i];
    qsort(table, different, sizeof *table, by_count);
    return different;
}

UNTRACED void print_calls(void) {
    if (!fragbench_settings()->trace) return;
    size_t count = gather_named();
    for (size_t i = 0; i < count; i++)
        fprintf(stderr, "fragbench: %10llu %s%s\n", (unsigned long long)table[i].count,
                table[i].name, table[i].refused ? " (not supported)" : "");
}
