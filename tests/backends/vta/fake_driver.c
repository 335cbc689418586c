/* A tiny device with VTA's driver functions: loads accumulators, stores outputs, ignores everything else.
   Its memory begins at an odd physical address. FAKE_VTA=hang, crash or late makes it misbehave. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint8_t dram[1 << 20];
static const uint32_t first = 0x10000010;
static size_t used;
static int flushed;
static int32_t acc[2048][16];

void *VTAMemAlloc(size_t size, int cached) {
  (void)cached;
  if (used + size > sizeof dram) return NULL;
  void *found = dram + used;
  used += (size + 15) / 16 * 16;
  return found;
}
void VTAMemFree(void *buffer) { (void)buffer; }
uint32_t VTAMemGetPhyAddr(void *buffer) { return first + (uint32_t)((uint8_t *)buffer - dram); }
void VTAMemCopyFromHost(void *to, const void *from, size_t size) { memcpy(to, from, size); }
void VTAMemCopyToHost(void *to, const void *from, size_t size) { memcpy(to, from, size); }
void VTAFlushCache(void *pointer, uint32_t physical, int size) {
  (void)size;
  flushed += physical == VTAMemGetPhyAddr(pointer);
}
void VTAInvalidateCache(void *pointer, uint32_t physical, int size) { (void)pointer; (void)physical; (void)size; }
void *VTADeviceAlloc(void) { return acc; }
void VTADeviceFree(void *device) { (void)device; }

int VTADeviceRun(void *device, uint32_t stream, uint32_t count, uint32_t wait) {
  const char *mode = getenv("FAKE_VTA");
  if (mode && !strcmp(mode, "hang")) for (;;) {}
  if (mode && !strcmp(mode, "crash")) { fprintf(stderr, "assertion in the model\n"); abort(); }
  if (mode && !strcmp(mode, "late")) return 1;
  if (device != acc || wait == 0 || flushed != 2) return 2;
  const uint64_t *words = (const uint64_t *)(dram + (stream - first));
  for (uint32_t i = 0; i < count; ++i) {
    uint64_t low = words[2 * i], high = words[2 * i + 1];
    unsigned opcode = low & 7, memory = low >> 7 & 7, sram = low >> 10 & 0xffff;
    uint32_t base = (uint32_t)(low >> 26), rows = high & 0xffff, row = high >> 16 & 0xffff, stride = high >> 32 & 0xffff;
    for (uint32_t y = 0; y < rows; ++y)
      for (uint32_t x = 0; x < row; ++x) {
        if (opcode == 0 && memory == 3)
          memcpy(acc[sram + y * row + x], dram + ((uint64_t)(base + y * stride + x) * 64 - first), 64);
        if (opcode == 1)
          for (int k = 0; k < 16; ++k)
            dram[(uint64_t)(base + y * stride + x) * 16 - first + k] = (uint8_t)acc[sram + y * row + x][k];
      }
  }
  return 0;
}
