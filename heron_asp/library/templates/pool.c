/* Threads: the caller runs part 0 of a parallel loop and a worker each of the others.
 *
 * Every worker has a mailbox of one cache line, so that handing over a part moves one line to the worker and hearing that
 * it is done moves it back: a few hundred nanoseconds while the worker is awake. A worker stays awake for a while after it
 * has worked and then sleeps. Workers start when they are first needed and live as long as the process. */
#define _GNU_SOURCE
#include "heron-runtime.h"
#include "heron-status.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { AWAKE_NANOSECONDS = 50000 }; /* about what it costs to wake a worker that sleeps */
enum { LINE = 128 };                /* processors fetch cache lines in pairs */

enum { IDLE, WORK, ASLEEP };

struct mailbox {
    _Alignas(LINE) atomic_int state; /* IDLE or ASLEEP: the worker waits; WORK: the rest says for what */
    int part;
    int parts;
    int failure; /* why the part failed, 0 if it did not */
    heron_body *body;
    void *closure;
};

_Thread_local struct heron_thread heron_self;

static struct mailbox mailboxes[HERON_MOST_THREADS]; /* the first would be the caller's */
static atomic_int setting;                           /* threads that a kernel may use */
static atomic_int busy;                              /* whether some thread has the workers */
static int started = 1;                              /* threads there are, the caller included; only for who is `busy` */
static int processors = 1;

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* --- A worker ----------------------------------------------------------------------------------------------------- */

static int run_part(heron_body *body, int part, int parts, void *closure)
{
    struct heron_group group = {NULL, parts};
    return body(part, &group, closure) == 0 ? 0 : heron_failed();
}

/* Waits awake for a part; whether one came. With fewer processors than threads, staying awake would hold the others up. */
static int comes_soon(struct mailbox *mailbox, int crowded)
{
    int64_t until = crowded ? 0 : nanoseconds() + AWAKE_NANOSECONDS;
    do {
        for (int i = 0; i < 32; i++) {
            if (atomic_load_explicit(&mailbox->state, memory_order_acquire) == WORK)
                return 1;
            relax();
        }
    } while (nanoseconds() < until);
    return 0;
}

static void sleep_until_work(struct mailbox *mailbox)
{
    int idle = IDLE;
    if (!atomic_compare_exchange_strong(&mailbox->state, &idle, ASLEEP))
        return; /* a part came at the last moment */
    while (atomic_load(&mailbox->state) == ASLEEP)
        syscall(SYS_futex, &mailbox->state, FUTEX_WAIT_PRIVATE, ASLEEP, NULL, NULL, 0);
}

static void *work(void *argument)
{
    struct mailbox *mailbox = argument;
    int crowded = mailbox - mailboxes >= processors;
    for (;;) {
        if (!comes_soon(mailbox, crowded))
            sleep_until_work(mailbox);
        mailbox->failure = run_part(mailbox->body, mailbox->part, mailbox->parts, mailbox->closure);
        atomic_store_explicit(&mailbox->state, IDLE, memory_order_release);
    }
    return NULL;
}

/* --- The caller --------------------------------------------------------------------------------------------------- */

/* A forked child has none of the workers, and nobody who is busy with them. */
static void forget_workers(void)
{
    started = 1;
    atomic_store(&busy, 0);
}

/* Whether there are enough workers now. */
static int start_workers(int wanted)
{
    static int watching = 0; /* forked children inherit the handler */
    if (!watching)
        watching = pthread_atfork(NULL, NULL, forget_workers) == 0;
    sigset_t all, before;
    sigfillset(&all); /* signals are for the program's own threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (watching && started < wanted) {
        pthread_t thread;
        atomic_store(&mailboxes[started].state, IDLE);
        if (pthread_create(&thread, NULL, work, &mailboxes[started]) != 0)
            break;
        pthread_detach(thread);
        started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started >= wanted;
}

static int run_alone(heron_body *body, int parts, void *closure)
{
    int failure = 0;
    for (int part = 0; part < parts && failure == 0; part++)
        failure = run_part(body, part, parts, closure);
    return failure;
}

static void hand_over(struct mailbox *mailbox, heron_body *body, int part, int parts, void *closure)
{
    mailbox->body = body;
    mailbox->closure = closure;
    mailbox->part = part;
    mailbox->parts = parts;
    if (atomic_exchange(&mailbox->state, WORK) == ASLEEP)
        syscall(SYS_futex, &mailbox->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Why the worker's part failed, 0 if it did not. Waits for its end: awake at first, then as any other thread lets it. */
static int outcome_of(struct mailbox *mailbox, int crowded)
{
    int64_t until = 0;
    while (atomic_load_explicit(&mailbox->state, memory_order_acquire) == WORK) {
        for (int i = 0; i < 32 && atomic_load_explicit(&mailbox->state, memory_order_acquire) == WORK; i++)
            relax();
        if (until == 0)
            until = crowded ? 1 : nanoseconds() + AWAKE_NANOSECONDS;
        else if (nanoseconds() > until)
            sched_yield();
    }
    return mailbox->failure;
}

static int run_together(heron_body *body, int parts, void *closure)
{
    for (int part = 1; part < parts; part++)
        __builtin_prefetch(&mailboxes[part], 1); /* all lines at once, not one after the other */
    for (int part = 1; part < parts; part++)
        hand_over(&mailboxes[part], body, part, parts, closure);
    int failure = run_part(body, 0, parts, closure);
    for (int part = 1; part < parts; part++) {
        int other = outcome_of(&mailboxes[part], parts > processors);
        failure = failure ? failure : other;
    }
    return failure;
}

/* TVM's entry for a parallel loop. Workers that another thread has at the moment are not waited for. */
static int launch(heron_body *body, void *closure, int parts_by_tvm)
{
    (void)parts_by_tvm; /* always 0: as many as there are */
    int parts = heron_self.parts, failure;
    if (parts > 1 && atomic_exchange_explicit(&busy, 1, memory_order_acquire) == 0) {
        if (parts <= started || start_workers(parts))
            failure = run_together(body, parts, closure);
        else
            failure = run_alone(body, parts, closure);
        atomic_store_explicit(&busy, 0, memory_order_release);
    } else {
        failure = run_alone(body, parts > 0 ? parts : 1, closure);
    }
    heron_self.failure = failure;
    return failure == 0 ? 0 : -1;
}

/* The kernels call through this pointer. */
int (*__TVMBackendParallelLaunch)(heron_body *, void *, int) = launch;

/* --- The setting -------------------------------------------------------------------------------------------------- */

int heron_get_threads(void)
{
    return atomic_load_explicit(&setting, memory_order_relaxed);
}

int heron_put_threads(int threads)
{
    if (threads < 1 || threads > HERON_MOST_THREADS)
        return HERON_BAD_ARGUMENT;
    atomic_store_explicit(&setting, threads, memory_order_relaxed);
    return HERON_OK;
}

__attribute__((constructor)) static void count_processors(void)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
        processors = CPU_COUNT(&allowed);
    else
        processors = (int)sysconf(_SC_NPROCESSORS_ONLN); /* more processors than the set has room for */
    processors = processors < 1 ? 1 : processors;
    atomic_store(&setting, processors < HERON_MOST_THREADS ? processors : HERON_MOST_THREADS);
}
