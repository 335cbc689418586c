/* VTA's driver functions over a memory of our own, with a cache that nobody keeps coherent: what the host writes, the
   device sees after VTAFlushCache, and the host sees what the device writes after VTAInvalidateCache. Buffers begin at
   physical addresses that are multiples of 16 only. A function of the test runs programs and may refuse. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 1 << 22, FIRST = 0x100010 };

static uint8_t cache[SIZE], dram[SIZE];
static size_t used;
static int buffers, devices, left = -1;
static int (*run)(uint8_t *memory, uint32_t first, uint32_t size, uint32_t stream, uint32_t count, uint32_t wait);

void simulated_run(int (*function)(uint8_t *, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t)) { run = function; }
/* After how many allocations of any kind there is nothing left; negative: never. */
void simulated_left(int allocations) { left = allocations; }
int simulated_held(void) { return buffers + devices; }

static int refused(void) { return left >= 0 && left-- == 0; }

void *VTAMemAlloc(size_t size, int cached) {
  if (refused() || !cached || used + size > SIZE) return NULL;
  void *found = cache + used;
  memset(cache + used, 0xa5, size);
  memset(dram + used, 0x5a, size);
  used += (size + 15) / 16 * 16;
  ++buffers;
  return found;
}
void VTAMemFree(void *buffer) {
  (void)buffer;
  if (--buffers == 0) used = 0;
}
uint32_t VTAMemGetPhyAddr(void *buffer) { return FIRST + (uint32_t)((uint8_t *)buffer - cache); }
void VTAMemCopyFromHost(void *to, const void *from, size_t size) { memcpy(to, from, size); }
void VTAMemCopyToHost(void *to, const void *from, size_t size) { memcpy(to, from, size); }
void VTAFlushCache(void *memory, uint32_t physical, int size) {
  if (physical != VTAMemGetPhyAddr(memory)) abort();
  memcpy(dram + (physical - FIRST), memory, (size_t)size);
}
void VTAInvalidateCache(void *memory, uint32_t physical, int size) {
  if (physical != VTAMemGetPhyAddr(memory)) abort();
  memcpy(memory, dram + (physical - FIRST), (size_t)size);
}
void *VTADeviceAlloc(void) {
  if (refused()) return NULL;
  ++devices;
  return dram;
}
void VTADeviceFree(void *device) { devices -= device == dram; }
int VTADeviceRun(void *device, uint32_t stream, uint32_t count, uint32_t wait) {
  return device == dram && run ? run(dram, FIRST, SIZE, stream, count, wait) : -1;
}
