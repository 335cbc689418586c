/* What the machine can do at most, measured: dot products in registers, and bytes read from each level of its memory. */
#include <immintrin.h>
#include <omp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define VNNI __attribute__((target("avx512f,avx512bw,avx512vnni")))
#define ACCUMULATORS 12

static double now(void) {
    struct timespec said;
    clock_gettime(CLOCK_MONOTONIC, &said);
    return (double)said.tv_sec + 1e-9 * (double)said.tv_nsec;
}

/* Independent accumulators, operands in registers: 4 multiplications and additions in each of 16 lanes a step. */
VNNI static int32_t dot_products(long steps) {
    __m512i sums[ACCUMULATORS], a = _mm512_set1_epi8(1), b = _mm512_set1_epi8(2);
    for (int i = 0; i < ACCUMULATORS; i++) sums[i] = _mm512_setzero_si512();
    for (long step = 0; step < steps; step++) {
#pragma GCC unroll 12
        for (int i = 0; i < ACCUMULATORS; i++) sums[i] = _mm512_dpbusd_epi32(sums[i], a, b);
        __asm__ volatile("" : "+v"(a), "+v"(b)); /* the operands may have changed: nothing is computed ahead */
    }
    __m512i total = sums[0];
    for (int i = 1; i < ACCUMULATORS; i++) total = _mm512_add_epi32(total, sums[i]);
    return _mm512_reduce_add_epi32(total);
}

/* Operations a second of all threads together, a multiplication and an addition counting as two. */
double dot_product_peak(int threads, long steps) {
    volatile int32_t sink = 0;
    double begin = 0.0;
#pragma omp parallel num_threads(threads)
    {
        sink = dot_products(steps / 8); /* wakes the unit and the thread */
#pragma omp barrier
#pragma omp master
        begin = now();
#pragma omp barrier
        sink = dot_products(steps);
    }
    (void)sink;
    return 128.0 * ACCUMULATORS * (double)steps * threads / (now() - begin);
}

/* Loads whose values nobody needs. */
VNNI static void read_all(const char *from, size_t bytes) {
    for (const char *end = from + bytes; from < end; from += 512)
        __asm__ volatile(
            "vmovdqa64 (%0), %%zmm0\n\tvmovdqa64 64(%0), %%zmm1\n\tvmovdqa64 128(%0), %%zmm2\n\t"
            "vmovdqa64 192(%0), %%zmm3\n\tvmovdqa64 256(%0), %%zmm4\n\tvmovdqa64 320(%0), %%zmm5\n\t"
            "vmovdqa64 384(%0), %%zmm6\n\tvmovdqa64 448(%0), %%zmm7"
            :
            : "r"(from)
            : "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", "zmm7", "memory");
}

/* Bytes a second of all threads together, each reading a buffer of its own (a multiple of 512 bytes) again and again.
   A negative number: there is not so much memory. */
double read_bandwidth(int threads, size_t bytes, long passes) {
    double begin = 0.0, end = 0.0;
    int failed = 0;
#pragma omp parallel num_threads(threads)
    {
        char *own = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
        if (own == NULL) {
#pragma omp atomic write
            failed = 1;
        } else {
            memset(own, 1, bytes);
            read_all(own, bytes);
        }
#pragma omp barrier
#pragma omp master
        begin = now();
#pragma omp barrier
        if (own != NULL)
            for (long pass = 0; pass < passes; pass++) read_all(own, bytes);
#pragma omp barrier
#pragma omp master
        end = now();
        free(own);
    }
    return failed ? -1.0 : (double)bytes * (double)passes * threads / (end - begin);
}
