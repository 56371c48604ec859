/* The driver's functions by name, as the runtime, PyTorch and CUDA's other libraries find them. */
#define _GNU_SOURCE
#include "virtual_gpu.h"

#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* A function that is not here is answered by a stand-in of its own, so that the trace can name those
 * that are called and not the many that are only looked up. */
#define STAND_INS 512
static const char *stood_for[STAND_INS];

static CUresult refuse(int number) {
    trace_unsupported(stood_for[number]);
    return CUDA_ERROR_NOT_SUPPORTED;
}

#define STAND_IN(n) \
    static CUresult stand_in_##n(void) { return refuse(0x##n); }
#define SIXTEEN(X, h)                                                                          \
    X(h##0) X(h##1) X(h##2) X(h##3) X(h##4) X(h##5) X(h##6) X(h##7)                            \
    X(h##8) X(h##9) X(h##a) X(h##b) X(h##c) X(h##d) X(h##e) X(h##f)
#define EIGHT_ROWS(X, a, b, c, d, e, f, g, h)                                                  \
    SIXTEEN(X, a) SIXTEEN(X, b) SIXTEEN(X, c) SIXTEEN(X, d)                                    \
    SIXTEEN(X, e) SIXTEEN(X, f) SIXTEEN(X, g) SIXTEEN(X, h)
#define ALL_STAND_INS(X)                                                                       \
    EIGHT_ROWS(X, 00, 01, 02, 03, 04, 05, 06, 07) EIGHT_ROWS(X, 08, 09, 0a, 0b, 0c, 0d, 0e, 0f) \
    EIGHT_ROWS(X, 10, 11, 12, 13, 14, 15, 16, 17) EIGHT_ROWS(X, 18, 19, 1a, 1b, 1c, 1d, 1e, 1f)
ALL_STAND_INS(STAND_IN)

#define LISTED(n) stand_in_##n,
static CUresult (*const stand_ins[STAND_INS])(void) = {ALL_STAND_INS(LISTED)};

static void *stand_in_for(const char *name) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    int number = 0;
    pthread_mutex_lock(&mutex);
    while (stood_for[number] && strcmp(stood_for[number], name) && number < STAND_INS - 1) number++;
    if (!stood_for[number])
        stood_for[number] = number < STAND_INS - 1 ? strdup(name) : "another driver function";
    pthread_mutex_unlock(&mutex);
    return (void *)stand_ins[number];
}

CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags,
                          CUdriverProcAddressQueryResult *result) {
    (void)version, (void)flags;
    static const char *const suffixes[] = {"", "_v2", "_v3", "_v4"};
    if (result) *result = CU_GET_PROC_ADDRESS_SUCCESS;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        char exported[256];
        snprintf(exported, sizeof exported, "%s%s", name, suffixes[i]);
        if ((*function = dlsym(RTLD_DEFAULT, exported))) return CUDA_SUCCESS;
    }
    *function = stand_in_for(name);
    return CUDA_SUCCESS;
}

#undef cuGetProcAddress
CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags) {
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
