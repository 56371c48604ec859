"""Stand-ins for the CUDA functions that the virtual GPU does not have."""

from __future__ import annotations

from bench.device.stand_ins import stand_ins

HEADER = """
typedef enum cudaError_enum { CUDA_SUCCESS = 0 } CUresult;
CUresult cuFirst_v2(unsigned int Flags);
extern __attribute__((host)) cudaError_t cudaSecond(
    void **pointer);
CUresult cuFirst_v2(unsigned int Flags);
typedef void (*cudaHostFn_t)(void *data);
extern const char *cudaGetErrorString(cudaError_t error);
typedef CUresult (*cuCallback)(int status);
cublasStatus_t
cublasThird_v2(cublasHandle_t handle);
"""


def test_each_declared_function_gets_one_and_nothing_else_does() -> None:
    refused = [line for line in stand_ins(HEADER).splitlines() if "REFUSE" in line]
    assert refused == [
        "__attribute__((weak)) REFUSE(cuFirst_v2, ERROR_NOT_SUPPORTED)",
        "__attribute__((weak)) REFUSE(cublasThird_v2, CUBLAS_NOT_SUPPORTED)",
        "__attribute__((weak)) REFUSE(cudaSecond, ERROR_NOT_SUPPORTED)",
    ]
