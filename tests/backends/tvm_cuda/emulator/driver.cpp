// Stands in for libcuda.so.1 and libcudart.so.13, as far as TVM's runtime calls them: device memory
// is the host's, streams are none, and a module is a library of emulated kernels.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <optional>
#include <string>
#include <unistd.h>
#include <unordered_map>
#include <vector>

namespace {

struct Module { void* library; };
using Launch = void (*)(void (*)(void**), void**, const unsigned*, const unsigned*, bool,
    void (*)(void*), void*);
using Keep = void** (*)(void**);
struct Function { void (*kernel)(void**); Launch launch; Keep keep; };

struct Attribute { int name; char padding[4]; int value[16]; };
struct LaunchConfig {
  unsigned grid[3], block[3], shared_bytes;
  void* stream;
  const Attribute* attributes;
  unsigned attribute_count;

  // Whether the kernel may start before those before it have ended.
  bool early() const {
    constexpr int PROGRAMMATIC_STREAM_SERIALIZATION = 6;
    for (unsigned i = 0; i < attribute_count; ++i)
      if (attributes[i].name == PROGRAMMATIC_STREAM_SERIALIZATION && attributes[i].value[0])
        return true;
    return false;
  }
};

int capability() {
  const char* sm = std::getenv("EMULATED_SM");
  return sm ? std::atoi(sm) : 90;
}

enum {
  SUCCESS = 0,
  BAD_POINTER = 1,
  OUT_OF_MEMORY = 2,
  BAD_IMAGE = 200,
  NOT_FOUND = 500,
  NOT_IN_CAPTURE = 900
};

// A launch, with copies of its arguments.
struct Node {
  Function* function;
  void** values;
  unsigned grid[3], block[3];
  bool early;

  void run(void (*before)(void*) = nullptr, void* data = nullptr) const {
    function->launch(function->kernel, values, grid, block, early, before, data);
  }
};
using Nodes = std::vector<Node>;

constexpr size_t MEMORY = size_t(1) << 33;
void* const STREAM = (void*)0x100; // the one that is not the default stream

// What both libraries know.
struct State {
  size_t used = 0;                         // bytes of device memory
  std::unordered_map<void*, size_t> sizes; // of what is allocated, as a device counts them
  Nodes* captured = nullptr;               // while STREAM captures
  std::optional<Node> pending;             // launched, and to run when it has to
  int early = 0;                           // launches before the kernels before had ended
  int copies[5] = {};                      // by their kind
};
State& state() {
  using Get = State* (*)();
  static State* const found = ((Get)dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuEmulatorState"))();
  return *found;
}

// What was launched has run.
void finish() {
  if (!state().pending) return;
  const Node node = *state().pending;
  state().pending.reset();
  node.run();
}

// A kernel that others may overtake is kept back; the next one starts, and waits for it.
void launch(const Node& node) {
  if (!node.early) {
    finish();
    node.run();
  } else if (!state().pending) {
    state().pending = node;
  } else {
    ++state().early;
    node.run([](void*) { finish(); }, nullptr);
    finish(); // a kernel of no threads
  }
}

} // namespace

#define API extern "C" __attribute__((visibility("default")))

API State* cuEmulatorState() {
  static State state;
  return &state;
}
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
API int cuModuleUnload(Module* module) {
  finish();
  delete module;
  return SUCCESS;
}
API int cuModuleGetFunction(Function** function, Module* module, const char* name) {
  void* kernel = dlsym(module->library, (std::string("emulated_") + name).c_str());
  void* launch = dlsym(module->library, "emulator_launch");
  void* keep = dlsym(module->library, (std::string("kept_") + name).c_str());
  if (!kernel || !launch || !keep) return NOT_FOUND;
  *function = new Function{(void (*)(void**))kernel, (Launch)launch, (Keep)keep};
  return SUCCESS;
}
API int cuLaunchKernelEx(const LaunchConfig* config, Function* function, void** values, void**) {
  Node node{function, function->keep(values), {}, {}, config->early()};
  std::memcpy(node.grid, config->grid, sizeof node.grid);
  std::memcpy(node.block, config->block, sizeof node.block);
  if (!state().captured) {
    launch(node);
  } else {
    if (config->stream != STREAM) return NOT_IN_CAPTURE;
    state().captured->push_back(node);
  }
  return SUCCESS;
}
// Launches so far of kernels that started before those before them had ended.
API int cudaEmulatorEarly() { return state().early; }

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
  if (state().captured) return NOT_IN_CAPTURE;
  const size_t taken = (size + 511) / 512 * 512;
  *memory = std::aligned_alloc(512, taken);
  if (!*memory) return OUT_OF_MEMORY;
  std::memset(*memory, 0xff, size); // NaN: nobody may count on zeros
  state().sizes[*memory] = taken;
  state().used += taken;
  return SUCCESS;
}
API int cudaFree(void* memory) {
  if (state().captured) return NOT_IN_CAPTURE;
  finish();
  const auto found = state().sizes.find(memory);
  if (found == state().sizes.end()) return memory ? BAD_POINTER : SUCCESS;
  state().used -= found->second;
  state().sizes.erase(found);
  std::free(memory);
  return SUCCESS;
}
API int cudaMallocHost(void** memory, size_t size) { *memory = std::malloc(size); return SUCCESS; }
API int cudaFreeHost(void* memory) { std::free(memory); return SUCCESS; }
API int cudaMemcpyAsync(void* to, const void* from, size_t size, int kind, void*) {
  if (state().captured) return NOT_IN_CAPTURE;
  finish();
  ++state().copies[kind];
  std::memmove(to, from, size);
  return SUCCESS;
}
// Copies so far of a kind: 1 to the device, 2 to the host, 3 within the device.
API int cudaEmulatorCopies(int kind) { return state().copies[kind]; }
API int cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t size, void*) {
  finish();
  std::memmove(to, from, size);
  return SUCCESS;
}
API int cudaMemGetInfo(size_t* left, size_t* total) {
  *left = MEMORY - state().used;
  *total = MEMORY;
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
API int cudaStreamCreateWithFlags(void** stream, unsigned) { *stream = STREAM; return SUCCESS; }
API int cudaStreamDestroy(void*) { return SUCCESS; }
API int cudaStreamSynchronize(void*) {
  if (state().captured) return NOT_IN_CAPTURE;
  finish();
  return SUCCESS;
}
API int cudaStreamWaitEvent(void*, void*, unsigned) { return SUCCESS; }
API int cudaStreamBeginCapture(void* stream, int) {
  if (stream != STREAM || state().captured) return NOT_IN_CAPTURE;
  state().captured = new Nodes;
  return SUCCESS;
}
API int cudaStreamEndCapture(void*, Nodes** graph) {
  if (!state().captured) return NOT_IN_CAPTURE;
  *graph = state().captured;
  state().captured = nullptr;
  return SUCCESS;
}
API int cudaGraphInstantiate(Nodes** made, Nodes* graph, unsigned long long) {
  *made = new Nodes(*graph);
  return SUCCESS;
}
API int cudaGraphLaunch(Nodes* graph, void*) {
  for (const Node& node : *graph) launch(node);
  return SUCCESS;
}
API int cudaGraphDestroy(Nodes* graph) { delete graph; return SUCCESS; }
API int cudaGraphExecDestroy(Nodes* graph) { delete graph; return SUCCESS; }
API int cudaEventCreate(void** event) { *event = nullptr; return SUCCESS; }
API int cudaEventDestroy(void*) { return SUCCESS; }
API int cudaEventRecord(void*, void*) { return SUCCESS; }
API int cudaEventSynchronize(void*) {
  finish();
  return SUCCESS;
}
API int cudaEventElapsedTime(float* time, void*, void*) { *time = 0; return SUCCESS; }
