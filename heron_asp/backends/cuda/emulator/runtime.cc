// Runs the threads of a block in turns: each is a fiber of its own stack that gives way at barriers and where a warp
// meets. One block runs after the other, in one thread of the host.
#include <csetjmp>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "runtime.h"

#if !defined(__x86_64__) || defined(HERON_UCONTEXT)
#define HERON_PORTABLE 1
#include <ucontext.h>
#else
#define HERON_PORTABLE 0
#endif

namespace heron {

Thread* current;
Index block_index, block_extent, grid_extent;

namespace {

constexpr size_t kStack = 256 << 10;
constexpr size_t kWindow = 64 << 20;    // addresses that shared memory may have
constexpr size_t kPoison = 0xff;        // NaN, in all formats
constexpr size_t kAlignment = 128;      // of shared memory
const size_t kPage = (size_t)sysconf(_SC_PAGESIZE);

size_t pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

void* reserve(size_t bytes, int protection) {
  void* made = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) abort();
  return made;
}

// ---- fibers --------------------------------------------------------------------------------------------------------

#if HERON_PORTABLE
using Context = ucontext_t;
void swap(Context* from, Context* to) { swapcontext(from, to); }
#else
using Context = void*;
extern "C" void heron_swap(void** from, void* to) __attribute__((visibility("hidden")));
asm(R"(
.text
.type heron_swap, @function
heron_swap:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size heron_swap, . - heron_swap
)");
void swap(Context* from, Context* to) { heron_swap(from, *to); }
#endif

enum State { RUNS, AT_BARRIER, MEETS, ENDED };

struct Copy {
  void* to;
  const void* from;
  int bytes, given;
};

struct Fiber : Thread {
  Context context;
  char* stack;
  State state;
  int line;               // of the barrier or the meeting
  uint64_t operations;    // on fragments
  std::vector<Copy> copies;
  std::vector<size_t> groups;    // where each group ends in `copies`
};

// What the lanes of a warp have done with fragments, which all must do alike.
struct Operation {
  const char* what;
  const void* pointer;
  unsigned stride, arrived;
  int line;
};

struct Meeting {
  const char* what;
  void* brought;
  unsigned mask;
  int line;
};

struct Warp {
  unsigned lanes, arrived;
  Meeting meetings[32];
  std::vector<Operation> log;
  uint64_t first;    // number of the operation at the front of the log
  char* arena;
  size_t used;
};

constexpr size_t kArena = 16 << 20;

struct Region {
  char* start;
  size_t bytes;
};

Fiber* fibers;
Warp* warps;
char* stacks;
int threads, stacks_made, warps_made;
Context scheduler;
const Kernel* kernel;
void** kernel_arguments;
bool early;
char* window;
size_t window_used;
std::vector<Region> shared;    // dynamic first, then static by their numbers
sigjmp_buf escape;
char failure[1024];    // no string: a signal may come while memory is being allocated
volatile sig_atomic_t running;

Fiber* self() { return (Fiber*)current; }

// Begins the message with the place; where it goes on.
char* place() {
  char *end = failure + sizeof failure / 2, *at = failure;
  at += snprintf(at, (size_t)(end - at), "kernel %.200s, block (%u, %u, %u)", kernel->name, block_index.x,
                 block_index.y, block_index.z);
  if (current)
    at += snprintf(at, (size_t)(end - at), ", thread (%u, %u, %u)", current->index.x, current->index.y,
                   current->index.z);
  return at;
}

std::string name(const Fiber& fiber) {
  char text[64];
  snprintf(text, sizeof text, "thread (%u, %u, %u)", fiber.index.x, fiber.index.y, fiber.index.z);
  return text;
}

void give_way(State state, int line) {
  Fiber* fiber = self();
  fiber->state = state;
  fiber->line = line;
  swap(&fiber->context, &scheduler);
}

void entry() {
  kernel->call(kernel_arguments);
  give_way(ENDED, 0);
  abort();
}

void start(Fiber& fiber) {
#if HERON_PORTABLE
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack;
  fiber.context.uc_stack.ss_size = kStack;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, entry, 0);
#else
  void** top = (void**)(fiber.stack + kStack) - 1;    // 8 bytes off a multiple of 16, as after a call
  *--top = (void*)entry;
  for (int saved = 0; saved < 6; ++saved) *--top = nullptr;
  fiber.context = top;
#endif
}

// ---- memory --------------------------------------------------------------------------------------------------------

// Shared memory whose last byte touches a page that cannot be accessed; the page before it cannot be either.
Region guarded(size_t bytes) {
  size_t body = pages(bytes);
  if (window_used + body + 2 * kPage > kWindow) fail("more than %zu bytes of shared memory", kWindow);
  char* base = window + window_used + kPage;
  window_used += body + 2 * kPage;
  mprotect(base, body, PROT_READ | PROT_WRITE);
  size_t aligned = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  memset(base, kPoison, body);
  return {base + body - aligned, bytes};
}

// What is read between an array and the guard pages is poison, and what is written there is found afterwards.
void check_margins(const Region& region) {
  size_t aligned = (region.bytes + kAlignment - 1) / kAlignment * kAlignment;
  char *end = region.start + aligned, *start = end - pages(region.bytes);
  for (char* byte = start; byte < end; ++byte) {
    if (byte == region.start) byte += region.bytes;
    if (byte == end || (unsigned char)*byte == kPoison) continue;
    current = nullptr;
    fail("a write out of bounds, byte %td of shared memory of %zu bytes", byte - region.start, region.bytes);
  }
}

void describe(char* text, size_t size, const char* address) {
  for (const Region& region : shared) {
    if (!region.start) continue;
    ptrdiff_t offset = address - region.start;
    if (offset < -(ptrdiff_t)(2 * kPage) || offset > (ptrdiff_t)(region.bytes + 2 * kPage)) continue;
    snprintf(text, size, "out of bounds, byte %td of %s shared memory, which has %zu bytes", offset,
             &region == &shared[0] ? "dynamic" : "an array in", region.bytes);
    return;
  }
  if (address >= window && address < window + kWindow)
    snprintf(text, size, "out of bounds of shared memory, of which the launch asks for %zu dynamic bytes",
             shared[0].bytes);
  else if (address >= stacks && address < stacks + (size_t)stacks_made * (kStack + kPage))
    snprintf(text, size, "its stack is full");
  else
    snprintf(text, size, "out of bounds, address=%p", (const void*)address);
}

void on_signal(int number, siginfo_t* details, void*) {
  if (!running) _exit(128 + number);
  running = 0;
  char* at = place();
  size_t size = (size_t)(failure + sizeof failure - at);
  at += snprintf(at, size, ": ");
  if (number == SIGALRM)
    snprintf(at, size - 2, "not at its end when time was up");
  else if (number == SIGFPE)
    snprintf(at, size - 2, "a division by zero");
  else if (details->si_code == SI_KERNEL)
    snprintf(at, size - 2, "an access of a misaligned vector, or of no address at all");
  else if (number == SIGSEGV || number == SIGBUS)
    describe(at, size - 2, (const char*)details->si_addr);
  else
    snprintf(at, size - 2, "signal %d", number);
  siglongjmp(escape, 1);
}

// ---- blocks --------------------------------------------------------------------------------------------------------

void make_threads(int count) {
  if (count > stacks_made) {
    if (stacks) munmap(stacks, (size_t)stacks_made * (kStack + kPage));
    delete[] fibers;
    size_t stride = kStack + kPage;
    stacks = (char*)reserve((size_t)count * stride, PROT_READ | PROT_WRITE);
    fibers = new Fiber[(size_t)count];
    for (int i = 0; i < count; ++i) {
      mprotect(stacks + (size_t)i * stride, kPage, PROT_NONE);
      fibers[i].stack = stacks + (size_t)i * stride + kPage;
    }
    stacks_made = count;
  }
  int wanted = (count + 31) / 32;
  if (wanted > warps_made) {
    for (int i = 0; i < warps_made; ++i) munmap(warps[i].arena, kArena);
    delete[] warps;
    warps = new Warp[(size_t)wanted];
    for (int i = 0; i < wanted; ++i) warps[i].arena = (char*)reserve(kArena, PROT_READ | PROT_WRITE);
    warps_made = wanted;
  }
  threads = count;
}

void begin_block() {
  for (const Region& region : shared)
    if (region.start) memset(region.start, kPoison, region.bytes);
  for (int i = 0; i < threads; ++i) {
    Fiber& fiber = fibers[i];
    unsigned number = (unsigned)i;
    fiber.index = {number % block_extent.x, number / block_extent.x % block_extent.y,
                   number / block_extent.x / block_extent.y};
    fiber.lane = i % 32;
    fiber.warp = i / 32;
    fiber.state = RUNS;
    fiber.operations = 0;
    fiber.copies.clear();
    fiber.groups.clear();
    start(fiber);
  }
  for (int i = 0; i * 32 < threads; ++i) {
    Warp& warp = warps[i];
    int lanes = threads - i * 32;
    warp.lanes = lanes < 32 ? (1u << lanes) - 1 : 0xffffffffu;
    warp.arrived = 0;
    warp.log.clear();
    warp.first = 0;
    warp.used = 0;
  }
}

// At a barrier, or the end, all lanes of a warp must have done the same with fragments.
void check_logs() {
  for (int i = 0; i * 32 < threads; ++i) {
    Warp& warp = warps[i];
    for (const Operation& one : warp.log) {
      if (one.arrived == warp.lanes) continue;
      int missing = __builtin_ctz(warp.lanes & ~one.arrived), there = __builtin_ctz(one.arrived);
      current = &fibers[i * 32 + missing];
      fail("never reaches the %s in line %d that %s of its warp is at", one.what, one.line,
           name(fibers[i * 32 + there]).c_str());
    }
    warp.first += warp.log.size();
    warp.log.clear();
  }
}

[[noreturn]] void explain_stop() {
  const Fiber *waiting = nullptr, *ended = nullptr, *meeting = nullptr;
  for (int i = 0; i < threads; ++i) {
    const Fiber& fiber = fibers[i];
    (fiber.state == AT_BARRIER ? waiting : fiber.state == ENDED ? ended : meeting) = &fiber;
  }
  if (meeting) {
    const Meeting& where = warps[meeting->warp].meetings[meeting->lane];
    unsigned missing = where.mask & ~warps[meeting->warp].arrived;
    const Fiber& absent = fibers[meeting->warp * 32 + (missing ? __builtin_ctz(missing) : 0)];
    current = (Thread*)&absent;
    fail("never reaches the %s in line %d that %s of its warp waits at", where.what, where.line,
         name(*meeting).c_str());
  }
  current = (Thread*)ended;
  fail("ended and never reaches the barrier in line %d that %s waits at", waiting->line, name(*waiting).c_str());
}

void release_barrier() {
  for (int i = 1; i < threads; ++i)
    if (fibers[i].line != fibers[0].line) {
      current = &fibers[i];
      fail("waits at the barrier in line %d, %s at the one in line %d", fibers[i].line, name(fibers[0]).c_str(),
           fibers[0].line);
    }
  check_logs();
  for (int i = 0; i < threads; ++i) fibers[i].state = RUNS;
}

// Each thread of a range runs until it has to wait; false if none could.
bool take_turns(const std::vector<int>& turns, size_t first, size_t last) {
  bool progress = false;
  for (size_t i = first; i < last; ++i) {
    Fiber& fiber = fibers[turns[i]];
    if (fiber.state != RUNS) continue;
    current = &fiber;
    swap(&scheduler, &fiber.context);
    progress = true;
  }
  return progress;
}

// In the forward and reverse orders each warp runs as far as it can before the next one begins, so that what no barrier
// holds back overtakes; in the random order warps are mixed.
void run_block(std::vector<int>& turns, int order, unsigned& seed) {
  begin_block();
  for (;;) {
    if (order == 2)
      for (int i = threads - 1; i > 0; --i) {
        seed = seed * 1664525u + 1013904223u;
        std::swap(turns[(size_t)i], turns[(seed >> 8) % (unsigned)(i + 1)]);
      }
    bool progress = false;
    for (size_t first = 0; first < turns.size();) {
      size_t last = order == 2 ? turns.size() : first + 1;
      while (last < turns.size() && turns[last] / 32 == turns[first] / 32) ++last;
      while (take_turns(turns, first, last)) {
        progress = true;
        if (order == 2) break;
      }
      first = last;
    }
    int waiting = 0, ended = 0;
    for (int i = 0; i < threads; ++i) {
      waiting += fibers[i].state == AT_BARRIER;
      ended += fibers[i].state == ENDED;
    }
    if (ended == threads) break;
    if (waiting == threads)
      release_barrier();
    else if (!progress)
      explain_stop();
  }
  check_logs();
  for (const Region& region : shared)
    if (region.start) check_margins(region);
}

void run_blocks(int order, const long long* blocks, long long count) {
  std::vector<int> turns((size_t)threads);
  for (int i = 0; i < threads; ++i) turns[(size_t)i] = order == 1 ? threads - 1 - i : i;
  unsigned seed = 12345;
  long long all = (long long)grid_extent.x * grid_extent.y * grid_extent.z;
  for (long long i = 0; i < (blocks ? count : all); ++i) {
    long long number = blocks ? blocks[i] : order == 1 ? all - 1 - i : i;
    block_index = {(unsigned)(number % grid_extent.x), (unsigned)(number / grid_extent.x % grid_extent.y),
                   (unsigned)(number / grid_extent.x / grid_extent.y)};
    run_block(turns, order, seed);
  }
}

void install(struct sigaction* before, stack_t* stack_before) {
  static char* alternative = (char*)reserve(1 << 16, PROT_READ | PROT_WRITE);
  stack_t stack{};
  stack.ss_sp = alternative;
  stack.ss_size = 1 << 16;
  sigaltstack(&stack, stack_before);
  struct sigaction action{};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_ONSTACK | SA_SIGINFO;
  const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM};
  for (int i = 0; i < 5; ++i) sigaction(numbers[i], &action, &before[i]);
}

void restore(const struct sigaction* before, const stack_t* stack_before) {
  const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM};
  for (int i = 0; i < 5; ++i) sigaction(numbers[i], &before[i], nullptr);
  sigaltstack(stack_before, nullptr);
}

}  // namespace

void fail(const char* format, ...) {
  running = 0;
  char* at = place();
  at += snprintf(at, 3, ": ");
  va_list list;
  va_start(list, format);
  vsnprintf(at, (size_t)(failure + sizeof failure - at), format, list);
  va_end(list);
  siglongjmp(escape, 1);
}

void barrier(int line) { give_way(AT_BARRIER, line); }

void* dynamic_shared() { return shared[0].start ? shared[0].start : window; }

void* static_shared(int which, size_t bytes) {
  size_t number = (size_t)which + 1;
  if (shared.size() <= number) shared.resize(number + 1, {nullptr, 0});
  if (!shared[number].start) shared[number] = guarded(bytes);
  return shared[number].start;
}

unsigned shared_offset(const void* pointer) {
  ptrdiff_t offset = (const char*)pointer - window;
  if (offset < 0 || offset >= (ptrdiff_t)kWindow) fail("an address in shared memory is wanted, and this is none");
  return (unsigned)offset;
}

void* shared_pointer(unsigned offset) {
  if (offset >= kWindow) fail("an address in shared memory is wanted, and this is none");
  return window + offset;
}

// ---- asynchronous copies -------------------------------------------------------------------------------------------

static void do_copy(const Copy& copy) {
  memcpy(copy.to, copy.from, (size_t)copy.given);
  memset((char*)copy.to + copy.given, 0, (size_t)(copy.bytes - copy.given));
}

void copy_async(unsigned destination, const void* source, int bytes, int from_source) {
  if (bytes != 4 && bytes != 8 && bytes != 16) fail("cp.async of %d bytes", bytes);
  if (from_source < 0 || from_source > bytes) fail("cp.async reads %d of %d bytes", from_source, bytes);
  if (destination % (unsigned)bytes)
    fail("cp.async of %d bytes to shared memory at a multiple of %u", bytes, destination & -destination);
  if ((uintptr_t)source % (unsigned)bytes)
    fail("cp.async of %d bytes from global memory at a multiple of %u", bytes,
         (unsigned)((uintptr_t)source & -(uintptr_t)source));
  Copy copy{shared_pointer(destination), source, bytes, from_source};
  if (early)
    do_copy(copy);
  else
    self()->copies.push_back(copy);
}

void commit_copies() {
  if (!early) self()->groups.push_back(self()->copies.size());
}

void wait_copies(int groups) {
  Fiber* fiber = self();
  if (early || (int)fiber->groups.size() <= groups) return;
  size_t done = fiber->groups.size() - (size_t)groups;
  size_t end = fiber->groups[done - 1];
  for (size_t i = 0; i < end; ++i) do_copy(fiber->copies[i]);
  fiber->copies.erase(fiber->copies.begin(), fiber->copies.begin() + (ptrdiff_t)end);
  fiber->groups.erase(fiber->groups.begin(), fiber->groups.begin() + (ptrdiff_t)done);
  for (size_t& group : fiber->groups) group -= end;
}

void store_shared(unsigned destination, const unsigned* words, int count) {
  unsigned bytes = (unsigned)count * 4;
  if (destination % bytes) fail("st.shared of %u bytes at a multiple of %u", bytes, destination & -destination);
  memcpy(shared_pointer(destination), words, bytes);
}

// ---- warps ---------------------------------------------------------------------------------------------------------

unsigned lanes() { return warps[current->warp].lanes; }

void meet(const char* what, unsigned mask, void* brought, Work work, bool same_line, int line) {
  Warp& warp = warps[current->warp];
  unsigned own = 1u << current->lane;
  if (!(mask & own)) fail("%s in line %d leaves out the lane that calls it", what, line);
  mask &= warp.lanes;
  warp.meetings[current->lane] = {what, brought, mask, line};
  warp.arrived |= own;
  if ((warp.arrived & mask) != mask) return give_way(MEETS, line);
  void* all[32] = {};
  for (unsigned left = mask; left; left &= left - 1) {
    int lane = __builtin_ctz(left);
    const Meeting& other = warp.meetings[lane];
    if (other.what != what || other.mask != mask || (same_line && other.line != line))
      fail("is at %s in line %d, %s of its warp at %s in line %d", what, line,
           name(fibers[current->warp * 32 + lane]).c_str(), other.what, other.line);
    all[lane] = other.brought;
  }
  work(all, mask);
  warp.arrived &= ~mask;
  for (unsigned left = mask & ~own; left; left &= left - 1)
    fibers[current->warp * 32 + __builtin_ctz(left)].state = RUNS;
}

namespace {
struct Shuffle {
  unsigned word, result;
  int source;
};

void do_shuffle(void** brought, unsigned mask) {
  for (unsigned left = mask; left; left &= left - 1) {
    Shuffle* one = (Shuffle*)brought[__builtin_ctz(left)];
    bool there = one->source >= 0 && one->source < 32 && (mask >> one->source & 1);
    one->result = there ? ((Shuffle*)brought[one->source])->word : 0xffffffffu;    // undefined on a device
  }
}
}  // namespace

void shuffle(unsigned mask, unsigned* word, int source, int line) {
  Shuffle own{*word, 0, source};
  meet("shuffle", mask, &own, do_shuffle, false, line);
  *word = own.result;
}

bool alike(const char* what, const void* pointer, unsigned stride, int line) {
  Fiber* fiber = self();
  Warp& warp = warps[fiber->warp];
  size_t number = (size_t)(fiber->operations++ - warp.first);
  unsigned own = 1u << fiber->lane;
  if (number == warp.log.size()) {
    warp.log.push_back({what, pointer, stride, own, line});
  } else {
    Operation& one = warp.log[number];
    const Fiber& other = fibers[fiber->warp * 32 + __builtin_ctz(one.arrived)];
    if (one.what != what || one.line != line)
      fail("does %s in line %d where %s of its warp does %s in line %d", what, line, name(other).c_str(), one.what,
           one.line);
    if (one.pointer != pointer || one.stride != stride)
      fail("gives %s in line %d another address or leading dimension than %s of its warp", what, line,
           name(other).c_str());
    one.arrived |= own;
    if (one.arrived == 0xffffffffu && number + 1 == warp.log.size() && warp.log.size() > 1024) {
      size_t whole = 0;    // a long loop without barriers: what all have done can go
      while (whole < warp.log.size() && warp.log[whole].arrived == 0xffffffffu) ++whole;
      warp.first += whole;
      warp.log.erase(warp.log.begin(), warp.log.begin() + (ptrdiff_t)whole);
    }
  }
  if (warp.lanes != 0xffffffffu) fail("%s in line %d by a warp of fewer than 32 lanes", what, line);
  return fiber->lane == 0;
}

void* open_tile(size_t bytes) {
  Warp& warp = warps[current->warp];
  if (current->lane) return nullptr;
  if (warp.used + bytes > kArena) fail("fragments of more than %zu bytes", kArena);
  warp.used += bytes;
  return warp.arena + warp.used - bytes;
}

void close_tile(size_t bytes) {
  if (!current->lane) warps[current->warp].used -= bytes;
}

}  // namespace heron

// What the compiler's sanitizer passes to the two functions that it calls.
struct Place {
  const char* file;
  unsigned line, column;
};

struct Type {
  unsigned short kind, info;
  char name[1];
};

struct Mismatch {
  Place place;
  const Type* type;
  unsigned char alignment, access;
};

struct Outside {
  Place place;
  const Type *array, *index;
};

#define HERON_HANDLER extern "C" __attribute__((visibility("hidden"))) void

HERON_HANDLER __ubsan_handle_type_mismatch_v1_abort(Mismatch* data, uintptr_t address) {
  unsigned wanted = 1u << data->alignment;
  heron::fail("a misaligned access in line %u: %s %s needs a multiple of %u bytes, this address is %u bytes off",
              data->place.line, data->access == 1 ? "storing" : "loading", data->type->name, wanted,
              (unsigned)(address % wanted));
}

HERON_HANDLER __ubsan_handle_out_of_bounds_abort(Outside* data, uintptr_t index) {
  heron::fail("an index out of bounds in line %u: %lld of %s", data->place.line, (long long)(int)index,
              data->array->name);
}

extern "C" __attribute__((visibility("default"))) int heron_emulate_blocks(
    const char* name, const int grid[3], const int block[3], size_t dynamic_shared, void** arguments, int order,
    int copies, char* message, size_t message_bytes, const long long* blocks, long long count) {
  using namespace heron;
  kernel = nullptr;
  for (int i = 0; i < kernel_count; ++i)
    if (!strcmp(kernels[i].name, name)) kernel = &kernels[i];
  if (!kernel) {
    snprintf(message, message_bytes, "the source has no kernel %s", name);
    return 2;
  }
  struct sigaction before[5];
  stack_t stack_before;
  install(before, &stack_before);
  current = nullptr;
  kernel_arguments = arguments;
  early = copies == 1;
  grid_extent = {(unsigned)grid[0], (unsigned)grid[1], (unsigned)grid[2]};
  block_extent = {(unsigned)block[0], (unsigned)block[1], (unsigned)block[2]};
  block_index = {0, 0, 0};
  window = (char*)reserve(kWindow, PROT_NONE);
  window_used = 0;
  int result = 0;
  if (sigsetjmp(escape, 1) == 0) {
    running = 1;
    shared.assign(1, {nullptr, 0});
    if (dynamic_shared) shared[0] = guarded(dynamic_shared);
    make_threads(block[0] * block[1] * block[2]);
    run_blocks(order, blocks, count);
  } else {
    snprintf(message, message_bytes, "%s", failure);
    result = 1;
  }
  running = 0;
  restore(before, &stack_before);
  munmap(window, kWindow);
  return result;
}

extern "C" __attribute__((visibility("default"))) int heron_emulate(const char* name, const int grid[3],
                                                                     const int block[3], size_t dynamic_shared,
                                                                     void** arguments, int order, int copies,
                                                                     char* message, size_t message_bytes) {
  return heron_emulate_blocks(name, grid, block, dynamic_shared, arguments, order, copies, message, message_bytes,
                              nullptr, 0);
}
