/* What the dispatch and the kernels share: threads, scratch memory and the check of the processor.
 * Nothing of this is visible outside the library. */
#ifndef HERON_RUNTIME_H
#define HERON_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

enum { HERON_ALIGNMENT = 64, HERON_MOST_THREADS = 256 };

/* --- The calling thread ------------------------------------------------------------------------------------------ */

struct heron_scratch;

struct heron_thread {
    int parts;                     /* how many parts the parallel loops of the next kernel are cut into */
    int failure;                   /* why a kernel that this thread runs has failed; 0 if it has not */
    struct heron_scratch *scratch; /* memory that kernels of this thread used and will use again */
};

/* Compiled with -ftls-model=initial-exec: read with one instruction; so few bytes find room under dlopen, too. */
extern _Thread_local struct heron_thread heron_self;

/* --- Threads (pool.c) --------------------------------------------------------------------------------------------- */

/* What TVM passes to a part of a parallel loop. */
struct heron_group {
    void *sync_handle; /* for barriers, which none of our kernels has */
    int32_t parts;
};

/* A parallel loop: runs part `part` of `group->parts`. Returns 0, or anything else if it failed. */
typedef int heron_body(int part, struct heron_group *group, void *closure);

int heron_get_threads(void);
int heron_put_threads(int threads);

/* --- Scratch memory (scratch.c) ----------------------------------------------------------------------------------- */

/* Why the kernel that has just returned an error failed; makes the thread ready for its next kernel. */
int heron_failed(void);

/* --- The processor (cpu.c) ---------------------------------------------------------------------------------------- */

extern const char *const heron_cpu_flags[]; /* what the kernels need, as /proc/cpuinfo spells it; ends with NULL */
extern int heron_cpu_fits;                  /* found out when the library is loaded */

/* --- Checks of a call --------------------------------------------------------------------------------------------- */

static inline int heron_aligned(const void *pointer)
{
    return (uintptr_t)pointer % HERON_ALIGNMENT == 0;
}

/* Optional fields of a shape: 0 stands for the default. */
static inline int heron_or(int value, int otherwise)
{
    return value == 0 ? otherwise : value;
}

/* Whether no value is too small. */
static inline int heron_reach(const int *values, const int *least, int count)
{
    for (int i = 0; i < count; i++)
        if (values[i] < least[i])
            return 0;
    return 1;
}

/* A tensor whose rows may be any distance apart. */
struct heron_rows {
    int rows; /* of all its matrices */
    int row;  /* elements of one */
};

/* Whether rows may begin `leading` elements apart: kernels count elements with 32 bits. */
static inline int heron_spans(struct heron_rows tensor, int leading)
{
    return leading >= tensor.row && (int64_t)(tensor.rows - 1) * leading + tensor.row <= INT32_MAX;
}

/* --- The choice of a kernel --------------------------------------------------------------------------------------- */

static inline int heron_compare(const int *row, const int *wanted, int keys)
{
    for (int key = 0; key < keys; key++)
        if (row[key] != wanted[key])
            return row[key] < wanted[key] ? -1 : 1;
    return 0;
}

/* Rows begin with the extents of a shape and a number of threads, and are sorted by them. Of the rows with the wanted
 * extents, returns the one with the most threads not above the wanted ones, else the one with the fewest; NULL if none. */
static inline const void *heron_pick(const void *table, size_t rows, size_t row_bytes, const int *wanted, int extents)
{
    const char *first = table;
    size_t low = 0, high = rows; /* rows before `low` are not greater than `wanted`, rows from `high` on are */
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (heron_compare((const int *)(first + middle * row_bytes), wanted, extents + 1) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    const char *after = first + low * row_bytes;
    if (low > 0 && heron_compare((const int *)(after - row_bytes), wanted, extents) == 0)
        return after - row_bytes;
    if (low < rows && heron_compare((const int *)after, wanted, extents) == 0)
        return after;
    return NULL;
}

/* Cuts the kernel's parallel loops into parts for as many threads as it was tuned for, or as the setting allows. */
static inline void heron_cut(int tuned, int allowed)
{
    if (tuned > 1)
        heron_self.parts = tuned < allowed ? tuned : allowed;
}

/* The status of a call from what the kernel returned. */
static inline int heron_status_of(int returned)
{
    return returned == 0 ? 0 : heron_failed();
}

#endif
