/* Times calls from C: seconds of one call over a block of calls. */
#include <time.h>

double time_calls(void (*call)(void *), void *context, long calls) {
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (long i = 0; i < calls; i++) call(context);
    clock_gettime(CLOCK_MONOTONIC, &end);
    return ((double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec)) / (double)calls;
}
