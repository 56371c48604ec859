/* The CUDA headers of PyTorch's wheels include this file, which only the CUDA compiler's own
 * package has. In host code its macros mean the following. */
#ifndef FRAGBENCH_HOST_DEFINES_H
#define FRAGBENCH_HOST_DEFINES_H
#define CUDARTAPI
#define CUDARTAPI_CDECL
#define CUDART_CB
#define __host__
#define __device__
#define __cudart_builtin__
#define __device_builtin__
#define __specialization_static
#define __cluster_dims__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
#endif
