// A CUDA driver without a device, for tests of what uses one. A "cubin" is a shared library with `heron_emulate`; a
// launch runs it on the host. Times are made up: a clock of its own counts nanoseconds, a launch takes one for each of
// its threads and half as many again after a memset of at least the L2 cache.
//
//   FAKE_DEVICES=0          no device
//   FAKE_ARCHITECTURE=90    of the device; 80 where nothing is said
//   FAKE_FAULTS=k=sticky,j=hang,i=crash,h=launch    what the launch of a kernel named k, j, i, h does
#include <dlfcn.h>
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <string>

typedef int (*Emulate)(const char*, const int*, const int*, size_t, void**, int, int, char*, size_t);

struct Module {
  void* library;
  Emulate emulate;
};
struct Function {
  Module* module;
  std::string name;
  int allowed;  // bytes of dynamic shared memory
};
struct Event {
  uint64_t time;
};

enum {
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NO_DEVICE = 100,
  INVALID_IMAGE = 200,
  NO_BINARY = 209,
  NOT_FOUND = 500,
  ILLEGAL_ADDRESS = 700,
  OUT_OF_RESOURCES = 701
};

static const int L2 = 1 << 16, MOST_SHARED = 163 * 1024;
static uint64_t now = 0;  // nanoseconds
static bool cold = false;
static int lost = 0;  // the error that every call returns once a kernel has failed

static int setting(const char* name, int otherwise) { return getenv(name) ? atoi(getenv(name)) : otherwise; }

static std::string fault(const std::string& kernel) {
  const char* said = getenv("FAKE_FAULTS");
  std::string faults = "," + std::string(said ? said : "") + ",", key = "," + kernel + "=";
  size_t at = faults.find(key);
  if (at == std::string::npos) return "";
  at += key.size();
  return faults.substr(at, faults.find(',', at) - at);
}

extern "C" {

int cuInit(unsigned) { return setting("FAKE_DEVICES", 1) ? 0 : NO_DEVICE; }
int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
int cuDeviceGetCount(int* count) { return *count = setting("FAKE_DEVICES", 1), 0; }
int cuDeviceGet(int* device, int ordinal) { return *device = ordinal, 0; }
int cuDeviceGetName(char* name, int size, int) { return snprintf(name, size, "fake device"), 0; }

int cuDeviceGetAttribute(int* value, int attribute, int) {
  int architecture = setting("FAKE_ARCHITECTURE", 80);
  static const std::map<int, int> known = {{16, 4},       {38, L2},        {13, 1000000}, {36, 1000000},
                                           {37, 256},     {39, 2048},      {81, 164 * 1024}, {82, 65536},
                                           {97, MOST_SHARED}, {106, 32},   {111, 1024}};
  if (attribute == 75 || attribute == 76) return *value = attribute == 75 ? architecture / 10 : architecture % 10, 0;
  auto found = known.find(attribute);
  return found == known.end() ? INVALID_VALUE : (*value = found->second, 0);
}

int cuDevicePrimaryCtxRetain(void** context, int) { return *context = &now, 0; }
int cuCtxSetCurrent(void*) { return 0; }
int cuCtxSynchronize() { return lost; }

int cuMemAlloc_v2(uint64_t* address, size_t size) {
  if (lost) return lost;
  void* memory = aligned_alloc(512, (size + 511) / 512 * 512);
  return memory ? (*address = (uint64_t)memory, 0) : OUT_OF_MEMORY;
}
int cuMemFree_v2(uint64_t address) { return lost ? lost : (free((void*)address), 0); }
int cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t size) {
  return lost ? lost : (memcpy((void*)to, from, size), 0);
}
int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t size) { return lost ? lost : (memcpy(to, (void*)from, size), 0); }
int cuMemsetD8Async(uint64_t address, unsigned char value, size_t size, void*) {
  if (lost) return lost;
  memset((void*)address, value, size);
  cold = cold || size >= L2;
  now += size;
  return 0;
}

int cuModuleLoadData(void** module, const void* image) {
  if (lost) return lost;
  const Elf64_Ehdr* header = (const Elf64_Ehdr*)image;
  if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return INVALID_IMAGE;
  if (header->e_machine == 190) return NO_BINARY;  // EM_CUDA: code of a device
  size_t size = header->e_shoff + (size_t)header->e_shentsize * header->e_shnum;
  int file = memfd_create("cubin", 0);
  if (write(file, image, size) != (ssize_t)size) return OUT_OF_MEMORY;
  void* library = dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW | RTLD_LOCAL);
  close(file);
  Emulate emulate = library ? (Emulate)dlsym(library, "heron_emulate") : nullptr;
  if (!emulate) return INVALID_IMAGE;
  *module = new Module{library, emulate};
  return 0;
}
int cuModuleUnload(void* module) {
  if (lost) return lost;
  dlclose(((Module*)module)->library);
  delete (Module*)module;
  return 0;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  if (lost) return lost;
  if (strstr(name, "absent")) return NOT_FOUND;
  *function = new Function{(Module*)module, name, 48 * 1024};
  return 0;
}
int cuFuncGetAttribute(int* value, int attribute, void*) {
  if (attribute != 1 && attribute != 3 && attribute != 4) return INVALID_VALUE;
  return *value = attribute == 4 ? 32 : 0, 0;
}
int cuFuncSetAttribute(void* function, int attribute, int value) {
  if (attribute != 8 || value > MOST_SHARED) return INVALID_VALUE;
  ((Function*)function)->allowed = value > 48 * 1024 ? value : 48 * 1024;
  return 0;
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int threads, size_t) {
  return *blocks = 2048 / threads, 0;
}

int cuLaunchKernel(void* handle, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void*, void** parameters, void**) {
  if (lost) return lost;
  Function* function = (Function*)handle;
  if ((int)shared > function->allowed || bx * by * bz > 1024) return INVALID_VALUE;
  std::string wrong = fault(function->name);
  if (wrong == "launch") return OUT_OF_RESOURCES;
  if (wrong == "hang") pause();
  if (wrong == "crash") abort();
  if (wrong == "sticky") return lost = ILLEGAL_ADDRESS, 0;  // told by the next call, as a device does
  void* arguments[64] = {};
  for (int at = 0; parameters[at] && at < 64; ++at) arguments[at] = *(void**)parameters[at];
  int grid[3] = {(int)gx, (int)gy, (int)gz}, block[3] = {(int)bx, (int)by, (int)bz};
  char message[512] = "";
  if (function->module->emulate(function->name.c_str(), grid, block, shared, arguments, 0, 0, message, 512)) {
    fprintf(stderr, "%s\n", message);
    return lost = ILLEGAL_ADDRESS, 0;
  }
  uint64_t threads = (uint64_t)gx * gy * gz * bx * by * bz;
  now += cold ? threads * 3 / 2 : threads;
  cold = false;
  return 0;
}

int cuEventCreate(void** event, unsigned) { return *event = new Event{0}, 0; }
int cuEventRecord(void* event, void*) { return lost ? lost : (((Event*)event)->time = now, 0); }
int cuEventSynchronize(void*) { return lost; }
int cuEventElapsedTime(float* milliseconds, void* begin, void* end) {
  return *milliseconds = (((Event*)end)->time - ((Event*)begin)->time) * 1e-6f, lost;
}

int cuGetErrorName(int number, const char** name) {
  static const std::map<int, const char*> names = {{INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
                                                   {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
                                                   {NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
                                                   {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"},
                                                   {NO_BINARY, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
                                                   {NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
                                                   {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
                                                   {OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"}};
  auto found = names.find(number);
  return found == names.end() ? INVALID_VALUE : (*name = found->second, 0);
}
}
