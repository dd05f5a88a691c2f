// Stands in for libcuda.so.1 and libcudart.so.13, as far as TVM's runtime calls them: device memory
// is the host's, streams are none, and a module is a library of emulated kernels.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <unistd.h>

namespace {

struct Module { void* library; };
using Launch = void (*)(void (*)(void**), void**, const unsigned*, const unsigned*);
struct Function { void (*kernel)(void**); Launch launch; };

struct LaunchConfig {
  unsigned grid[3], block[3], shared_bytes;
  void* stream;
  void* attributes;
  unsigned attribute_count;
};

int capability() {
  const char* sm = std::getenv("EMULATED_SM");
  return sm ? std::atoi(sm) : 90;
}

enum { SUCCESS = 0, OUT_OF_MEMORY = 2, BAD_IMAGE = 200, NOT_FOUND = 500 };

} // namespace

#define API extern "C" __attribute__((visibility("default")))

API int cuInit(unsigned) { return SUCCESS; }
API int cuDeviceGetCount(int* count) { *count = 1; return SUCCESS; }
API int cuDeviceGet(int* device, int number) { *device = number; return SUCCESS; }
API int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 75 ? capability() / 10 : attribute == 76 ? capability() % 10 : 0;
  return SUCCESS;
}
API int cuDeviceGetName(char* name, int size, int) {
  std::snprintf(name, size, "emulated sm_%d", capability());
  return SUCCESS;
}
API int cuDriverGetVersion(int* version) { *version = 13000; return SUCCESS; }
API int cuFuncSetAttribute(void*, int, int) { return SUCCESS; }
API int cuGetErrorName(int, const char** name) { *name = "EMULATED"; return SUCCESS; }
API int cuGetErrorString(int, const char** text) { *text = "emulated error"; return SUCCESS; }
API int cuTensorMapEncodeTiled(...) { return NOT_FOUND; }

// An image is "OPTCEMUL", its bytes' count as 8 bytes, and a shared library.
API int cuModuleLoadData(Module** module, const void* image) {
  const char* bytes = static_cast<const char*>(image);
  if (std::memcmp(bytes, "OPTCEMUL", 8)) return BAD_IMAGE;
  uint64_t size;
  std::memcpy(&size, bytes + 8, 8);
  char path[] = "/tmp/optc-emulated-XXXXXX";
  const int file = mkstemp(path);
  if (file < 0 || write(file, bytes + 16, size) != (ssize_t)size) return BAD_IMAGE;
  close(file);
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) std::fprintf(stderr, "CUDA emulator: %s\n", dlerror());
  unlink(path);
  if (!library) return BAD_IMAGE;
  *module = new Module{library};
  return SUCCESS;
}
API int cuModuleUnload(Module* module) { delete module; return SUCCESS; }
API int cuModuleGetFunction(Function** function, Module* module, const char* name) {
  void* kernel = dlsym(module->library, (std::string("emulated_") + name).c_str());
  void* launch = dlsym(module->library, "emulator_launch");
  if (!kernel || !launch) return NOT_FOUND;
  *function = new Function{(void (*)(void**))kernel, (Launch)launch};
  return SUCCESS;
}
API int cuLaunchKernelEx(const LaunchConfig* config, Function* function, void** values, void**) {
  function->launch(function->kernel, values, config->grid, config->block);
  return SUCCESS;
}

API int cudaDeviceGetAttribute(int* value, int attribute, int) {
  switch (attribute) {
    case 1: *value = 1024; break;      // threads of a block
    case 8: *value = 49152; break;     // shared memory of a block
    case 10: *value = 32; break;       // a warp
    case 16: *value = 1; break;        // multiprocessors
    case 75: *value = capability() / 10; break;
    case 76: *value = capability() % 10; break;
    default: *value = 0;
  }
  return SUCCESS;
}
API int cudaMalloc(void** memory, size_t size) {
  *memory = std::aligned_alloc(512, (size + 511) / 512 * 512);
  if (!*memory) return OUT_OF_MEMORY;
  std::memset(*memory, 0xff, size); // NaN: nobody may count on zeros
  return SUCCESS;
}
API int cudaFree(void* memory) { std::free(memory); return SUCCESS; }
API int cudaMallocHost(void** memory, size_t size) { *memory = std::malloc(size); return SUCCESS; }
API int cudaFreeHost(void* memory) { std::free(memory); return SUCCESS; }
API int cudaMemcpyAsync(void* to, const void* from, size_t size, int, void*) {
  std::memmove(to, from, size);
  return SUCCESS;
}
API int cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t size, void*) {
  std::memmove(to, from, size);
  return SUCCESS;
}
API int cudaMemGetInfo(size_t* left, size_t* total) {
  *left = *total = size_t(1) << 33;
  return SUCCESS;
}
API int cudaSetDevice(int) { return SUCCESS; }
API int cudaGetDevice(int* device) { *device = 0; return SUCCESS; }
API int cudaGetDeviceCount(int* count) { *count = 1; return SUCCESS; }
API int cudaGetDeviceProperties(void*, int) { return NOT_FOUND; }
API int cudaGetLastError() { return SUCCESS; }
API int cudaPeekAtLastError() { return SUCCESS; }
API const char* cudaGetErrorName(int) { return "EMULATED"; }
API const char* cudaGetErrorString(int error) {
  return error == OUT_OF_MEMORY ? "out of memory" : "emulated error";
}
API int cudaStreamCreate(void** stream) { *stream = nullptr; return SUCCESS; }
API int cudaStreamCreateWithFlags(void** stream, unsigned) { *stream = nullptr; return SUCCESS; }
API int cudaStreamDestroy(void*) { return SUCCESS; }
API int cudaStreamSynchronize(void*) { return SUCCESS; }
API int cudaStreamWaitEvent(void*, void*, unsigned) { return SUCCESS; }
API int cudaStreamBeginCapture(void*, int) { return NOT_FOUND; }
API int cudaStreamEndCapture(void*, void**) { return NOT_FOUND; }
API int cudaGraphInstantiate(void**, void*, unsigned long long) { return NOT_FOUND; }
API int cudaGraphLaunch(void*, void*) { return NOT_FOUND; }
API int cudaGraphDestroy(void*) { return SUCCESS; }
API int cudaGraphExecDestroy(void*) { return SUCCESS; }
API int cudaEventCreate(void** event) { *event = nullptr; return SUCCESS; }
API int cudaEventDestroy(void*) { return SUCCESS; }
API int cudaEventRecord(void*, void*) { return SUCCESS; }
API int cudaEventSynchronize(void*) { return SUCCESS; }
API int cudaEventElapsedTime(float* time, void*, void*) { *time = 0; return SUCCESS; }
