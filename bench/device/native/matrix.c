/* cuBLAS and cuBLASLt: every multiplication does nothing. PyTorch allocates their workspace itself,
 * through its caching allocator, so that memory is taken as on a real card. */
#include "virtual_gpu.h"

/* Routines of BLAS exist for types of element: S, D, C and Z. */
#define FOR_ALL_TYPES(X)                                                                       \
    X(gemm_v2) X(gemmBatched) X(gemmStridedBatched) X(gemv_v2) X(trsm_v2) X(trsmBatched)       \
    X(gelsBatched) X(geqrfBatched) X(getrfBatched) X(getrsBatched)                             \
    X(axpy_v2) X(copy_v2) X(scal_v2) X(swap_v2) X(rot_v2) X(rotg_v2) X(symm_v2) X(symv_v2)     \
    X(syr_v2) X(syr2_v2) X(syrk_v2) X(syr2k_v2) X(trmm_v2) X(trmv_v2) X(trsv_v2)
#define EACH_TYPE(routine)                                                                     \
    DO_NOTHING(cublasS##routine) DO_NOTHING(cublasD##routine)                                  \
    DO_NOTHING(cublasC##routine) DO_NOTHING(cublasZ##routine)
FOR_ALL_TYPES(EACH_TYPE)

#define FOR_COMPLEX_TYPES(X)                                                                   \
    X(dotc_v2) X(dotu_v2) X(gerc_v2) X(geru_v2) X(hemm_v2) X(hemv_v2) X(her_v2) X(her2_v2)     \
    X(herk_v2) X(her2k_v2)
#define EACH_COMPLEX_TYPE(routine) DO_NOTHING(cublasC##routine) DO_NOTHING(cublasZ##routine)
FOR_COMPLEX_TYPES(EACH_COMPLEX_TYPE)

#define FOR_REAL_TYPES(X) X(dot_v2) X(ger_v2) X(rotm_v2) X(rotmg_v2) X(asum_v2) X(nrm2_v2)
#define EACH_REAL_TYPE(routine) DO_NOTHING(cublasS##routine) DO_NOTHING(cublasD##routine)
FOR_REAL_TYPES(EACH_REAL_TYPE)

#define OTHER_ROUTINES(X)                                                                      \
    X(cublasCsrot_v2) X(cublasZdrot_v2) X(cublasCsscal_v2) X(cublasZdscal_v2)                  \
    X(cublasScasum_v2) X(cublasDzasum_v2) X(cublasScnrm2_v2) X(cublasDznrm2_v2)                \
    X(cublasIsamax_v2) X(cublasIdamax_v2) X(cublasIcamax_v2) X(cublasIzamax_v2)                \
    X(cublasIsamin_v2) X(cublasIdamin_v2) X(cublasIcamin_v2) X(cublasIzamin_v2)                \
    X(cublasDotEx) X(cublasHgemm) X(cublasSgemmEx) X(cublasGemmEx) X(cublasGemmBatchedEx)      \
    X(cublasGemmStridedBatchedEx) X(cublasSetVectorAsync) X(cublasSetMatrixAsync)              \
    X(cublasGetVectorAsync) X(cublasGetMatrixAsync)                                            \
    X(cublasDestroy_v2) X(cublasSetMathMode) X(cublasSetPointerMode_v2)                        \
    X(cublasSetSmCountTarget) X(cublasSetStream_v2) X(cublasSetWorkspace_v2)                   \
    X(cublasLtDestroy) X(cublasLtMatmul) X(cublasLtMatmulAlgoCheck) X(cublasLtMatmulAlgoInit)  \
    X(cublasLtMatmulAlgoConfigGetAttribute) X(cublasLtMatmulAlgoConfigSetAttribute)            \
    X(cublasLtMatmulDescDestroy) X(cublasLtMatmulDescSetAttribute)                             \
    X(cublasLtMatmulPreferenceDestroy) X(cublasLtMatmulPreferenceSetAttribute)                 \
    X(cublasLtMatrixLayoutDestroy) X(cublasLtMatrixLayoutSetAttribute)
OTHER_ROUTINES(DO_NOTHING)

/* Handles are opaque to PyTorch, which only asks that they are not NULL. */
#define MAKE_HANDLE(name)               \
    int name(void **handle) {           \
        *handle = (void *)0x10;         \
        return 0;                       \
    }
MAKE_HANDLE(cublasCreate_v2)
MAKE_HANDLE(cublasLtCreate)
MAKE_HANDLE(cublasLtMatmulDescCreate)
MAKE_HANDLE(cublasLtMatmulPreferenceCreate)
MAKE_HANDLE(cublasLtMatrixLayoutCreate)

#define GET_ZERO(name)                   \
    int name(void *handle, int *value) { \
        (void)handle;                    \
        *value = 0;                      \
        return 0;                        \
    }
GET_ZERO(cublasGetMathMode)
GET_ZERO(cublasGetPointerMode_v2)

size_t cublasLtGetVersion(void) { return 120000; }

/* One algorithm is always found; PyTorch reports an error if none is. */
int cublasLtMatmulAlgoGetHeuristic(void *handle, void *operation, void *a, void *b, void *c,
                                   void *d, void *preference, int wanted, void *results,
                                   int *found) {
    (void)handle, (void)operation, (void)a, (void)b, (void)c, (void)d, (void)preference;
    (void)wanted, (void)results;
    *found = 1;
    return 0;
}
