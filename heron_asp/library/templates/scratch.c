/* Scratch memory of kernels. Each thread keeps the few blocks that its kernels have used, and gives them to the next
 * kernel: fresh memory would cost a page fault for every 4 KiB. They are freed when the thread ends. */
#define _GNU_SOURCE
#include "heron-runtime.h"
#include "heron-status.h"

#include <pthread.h>
#include <stdlib.h>

enum { BLOCKS = 16, PAGE = 4096 };

struct block {
    void *memory; /* NULL if there is none */
    size_t bytes;
    int used;
};

struct heron_scratch {
    struct block blocks[BLOCKS];
};

static pthread_key_t at_thread_end;
static int has_key;

static void free_scratch(void *argument)
{
    struct heron_scratch *scratch = argument;
    for (int i = 0; i < BLOCKS; i++)
        free(scratch->blocks[i].memory);
    free(scratch);
}

__attribute__((constructor)) static void make_key(void)
{
    has_key = pthread_key_create(&at_thread_end, free_scratch) == 0;
}

/* The thread's blocks; NULL if there is no memory for them. */
static struct heron_scratch *own_scratch(void)
{
    if (heron_self.scratch == NULL && has_key) {
        heron_self.scratch = calloc(1, sizeof *heron_self.scratch);
        if (heron_self.scratch != NULL)
            pthread_setspecific(at_thread_end, heron_self.scratch);
    }
    return heron_self.scratch;
}

/* The smallest unused block that is large enough; else an empty place, else the smallest unused block; NULL if all are used. */
static struct block *place_for(struct heron_scratch *scratch, size_t bytes)
{
    struct block *best = NULL;
    for (struct block *block = scratch->blocks; block < scratch->blocks + BLOCKS; block++) {
        if (block->used)
            continue;
        if (best == NULL) {
            best = block;
            continue;
        }
        int fits = block->bytes >= bytes, best_fits = best->bytes >= bytes;
        if (fits != best_fits ? fits : block->bytes < best->bytes)
            best = block;
    }
    return best;
}

static void *fresh(size_t bytes)
{
    void *memory = aligned_alloc(HERON_ALIGNMENT, bytes);
    if (memory == NULL)
        heron_self.failure = HERON_OUT_OF_MEMORY;
    return memory;
}

static void *take(int device_type, int device_id, uint64_t wanted, int type_code, int type_bits)
{
    (void)device_type, (void)device_id, (void)type_code, (void)type_bits;
    size_t bytes = ((size_t)wanted + PAGE - 1) / PAGE * PAGE;
    struct heron_scratch *scratch = own_scratch();
    struct block *block = scratch == NULL ? NULL : place_for(scratch, bytes);
    if (block == NULL)
        return fresh(bytes);
    if (block->bytes < bytes) {
        free(block->memory);
        block->memory = fresh(bytes);
        block->bytes = block->memory == NULL ? 0 : bytes;
    }
    block->used = block->memory != NULL;
    return block->memory;
}

static int give_back(int device_type, int device_id, void *memory)
{
    (void)device_type, (void)device_id;
    struct heron_scratch *scratch = heron_self.scratch;
    for (int i = 0; scratch != NULL && i < BLOCKS; i++) {
        if (scratch->blocks[i].memory == memory) {
            scratch->blocks[i].used = 0;
            return 0;
        }
    }
    free(memory);
    return 0;
}

/* The kernels call through these pointers. */
void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int) = take;
int (*__TVMBackendFreeWorkspace)(int, int, void *) = give_back;

int heron_failed(void)
{
    int failure = heron_self.failure != 0 ? heron_self.failure : HERON_IN_KERNEL;
    heron_self.failure = 0;
    for (int i = 0; heron_self.scratch != NULL && i < BLOCKS; i++)
        heron_self.scratch->blocks[i].used = 0; /* a kernel that fails gives nothing back */
    return failure;
}
