/* What a call returns. The same in every library that heron_asp exports. */
#ifndef HERON_STATUS
#define HERON_STATUS
enum heron_status {
    HERON_OK = 0,
    HERON_BAD_ARGUMENT = 1,      /* a number of a shape or of threads is out of range */
    HERON_NULL_POINTER = 2,      /* a pointer is NULL */
    HERON_MISALIGNED = 3,        /* a pointer is not a multiple of 64 bytes */
    HERON_CPU = 4,               /* the processor lacks an instruction set, or /proc/cpuinfo does not say */
    HERON_NO_KERNEL = 5,         /* the library has no kernel for this shape */
    HERON_LEADING_DIMENSION = 6, /* less than a row, or so large that the tensor spans more than 2^31 - 1 elements */
    HERON_OUT_OF_MEMORY = 7,     /* no scratch memory for the kernel; the result is undefined */
    HERON_IN_KERNEL = 8          /* a kernel failed for another reason; the result is undefined */
};
#endif
