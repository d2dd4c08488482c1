// A CUDA runtime that hands each launch to the emulator: a program linked to it (-cudart shared) runs without a GPU.
//
// Device memory is host memory at addresses of its own. A launch writes its shape, its parameters, the tensor maps
// encoded so far and all device memory to a folder, runs the command in CAPTURED_RUN on that folder, and reads the
// memory back. Variables of modules are device memory as well; what they hold at first is in the text. captured.py builds
// this file and sets the environment.

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Variable {
  std::string name;
  char *address;
  size_t size;
  bool written; // by the host
};

constexpr size_t kArena = 8ull << 30, kAlign = 512, kGuard = 65536;
char *const kBase = reinterpret_cast<char *>(0x600000000000ull);

char *next_free = nullptr;
std::map<char *, size_t> live;             // device memory: address and bytes
std::map<const void *, std::string> names; // of kernels, by their host functions
std::map<const void *, Variable> variables; // by their host variables
std::string encoded;                       // a line for each tensor map
int maps = 0, launches = 0;
cudaError_t last = cudaSuccess;            // of a launch

struct Shape {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};
std::vector<Shape> pushed;

[[noreturn]] void fail(const std::string &what) {
  fprintf(stderr, "mock CUDA runtime: %s\n", what.c_str());
  exit(3);
}

const char *environment(const char *name) {
  const char *value = getenv(name);
  if (!value) fail(std::string(name) + " is not set: run the program by captured.py");
  return value;
}

int multiprocessors() { return atoi(environment("CAPTURED_SMS")); }
int capability() { return atoi(environment("CAPTURED_CAPABILITY")); } // 100: sm_100

/// Bytes of each parameter of a kernel: a line "NAME SIZE SIZE …" of the file CAPTURED_SIGNATURES.
std::vector<size_t> sizes_of(const std::string &kernel) {
  std::ifstream file(environment("CAPTURED_SIGNATURES"));
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (name != kernel) continue;
    std::vector<size_t> sizes;
    for (size_t size; words >> size;) sizes.push_back(size);
    return sizes;
  }
  fail("no PTX text has the kernel " + kernel);
}

cudaError_t launch(const void *function, dim3 grid, dim3 block, dim3 cluster, size_t shared, void **arguments, bool dependent) {
  if (!names.count(function)) fail("a launch of a function that no module has registered");
  const std::string kernel = names[function];
  if (!grid.x || !grid.y || !grid.z || !block.x || !block.y || !block.z) return last = cudaErrorInvalidConfiguration;
  char number[16];
  snprintf(number, sizeof number, "/L%03d", launches++);
  const std::string folder = environment("CAPTURED_FOLDER") + std::string(number);
  mkdir(folder.c_str(), 0777);
  {
    std::ofstream out(folder + "/launch.txt"), memory(folder + "/memory.bin", std::ios::binary);
    out << "entry " << kernel << "\ngrid " << grid.x << ' ' << grid.y << ' ' << grid.z << "\nblock " << block.x << ' '
        << block.y << ' ' << block.z << "\ncluster " << cluster.x << ' ' << cluster.y << ' ' << cluster.z << "\nshared "
        << shared << "\ndependent " << dependent << '\n';
    const auto sizes = sizes_of(kernel);
    for (size_t at = 0; at < sizes.size(); at++) {
      out << "parameter ";
      for (size_t byte = 0; byte < sizes[at]; byte++) {
        char hex[3];
        snprintf(hex, sizeof hex, "%02x", static_cast<unsigned char *>(arguments[at])[byte]);
        out << hex;
      }
      out << '\n';
    }
    for (const auto &[address, size] : live) {
      out << "buffer " << reinterpret_cast<unsigned long long>(address) << ' ' << size << '\n';
      memory.write(address, static_cast<std::streamsize>(size));
    }
    for (const auto &[host, variable] : variables)
      out << "variable " << reinterpret_cast<unsigned long long>(variable.address) << ' ' << variable.written << ' '
          << variable.name << '\n';
    out << encoded;
  }
  fflush(nullptr);
  const int code = system((environment("CAPTURED_RUN") + std::string(" ") + folder).c_str());
  std::ifstream after(folder + "/after.bin", std::ios::binary);
  if (code || !after) fail("the launch in " + folder + " did not end");
  for (const auto &[address, size] : live) after.read(address, static_cast<std::streamsize>(size));
  if (!after) fail("the memory in " + folder + " is too short");
  return cudaSuccess;
}

/// Notes a tensor map and marks it. box: of a map in an im2col mode, channels and pixels, then its corners.
CUresult note(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *extents,
              const cuuint64_t *strides, const std::vector<int> &box, const cuuint32_t *steps, CUtensorMapInterleave interleave,
              CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill, bool im2col) {
  std::ostringstream line;
  line << (im2col ? "im2col " : "map ") << maps << ' ' << type << ' ' << rank << ' ' << reinterpret_cast<unsigned long long>(address) << ' '
       << interleave << ' ' << swizzle << ' ' << promotion << ' ' << fill;
  for (cuuint32_t at = 0; at < rank; at++) line << ' ' << extents[at];
  for (cuuint32_t at = 0; at + 1 < rank; at++) line << ' ' << strides[at];
  for (cuuint32_t at = 0; at < rank; at++) line << ' ' << steps[at];
  for (const int size : box) line << ' ' << size;
  encoded += line.str() + "\n";
  // Both halves are marked: what copies leave on a stack is often half a map. CUTLASS clears a bit of the second word.
  memset(map, 0, sizeof *map);
  char *bytes = reinterpret_cast<char *>(map);
  memcpy(bytes, "FAKEMAP1", 8);
  memcpy(bytes + 64, "FAKEMAP2", 8);
  memcpy(bytes + 72, &maps, sizeof maps);
  maps++;
  return CUDA_SUCCESS;
}

CUresult encode(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *extents,
                const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *steps, CUtensorMapInterleave interleave,
                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  return note(map, type, rank, address, extents, strides, {box, box + rank}, steps, interleave, swizzle, promotion, fill, false);
}

CUresult encode_im2col(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *extents,
                       const cuuint64_t *strides, const int *lower, const int *upper, cuuint32_t channels, cuuint32_t pixels,
                       const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                       CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  std::vector<int> box = {static_cast<int>(channels), static_cast<int>(pixels)};
  box.insert(box.end(), lower, lower + rank - 2);
  box.insert(box.end(), upper, upper + rank - 2);
  return note(map, type, rank, address, extents, strides, box, steps, interleave, swizzle, promotion, fill, true);
}

CUresult error_text(CUresult, const char **text) {
  *text = "an error of the mock runtime";
  return CUDA_SUCCESS;
}

CUresult driver_version(int *version) {
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}

CUresult unknown_entry() { fail("a driver function that the mock runtime lacks"); }

cudaError_t entry_point(const char *name, void **function, cudaDriverEntryPointQueryResult *result) {
  const std::string wanted = name;
  *function = wanted == "cuTensorMapEncodeTiled"                           ? reinterpret_cast<void *>(encode)
              : wanted == "cuTensorMapEncodeIm2col"                        ? reinterpret_cast<void *>(encode_im2col)
              : wanted == "cuGetErrorString" || wanted == "cuGetErrorName" ? reinterpret_cast<void *>(error_text)
              : wanted == "cuDriverGetVersion"                             ? reinterpret_cast<void *>(driver_version)
                                                                           : reinterpret_cast<void *>(unknown_entry);
  if (result) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

} // namespace

#define DONE(name, ...) \
  cudaError_t name(__VA_ARGS__) { return cudaSuccess; }
#define ANY_HANDLE(name, type, ...) \
  cudaError_t name(type *handle, ##__VA_ARGS__) { *handle = reinterpret_cast<type>(1); return cudaSuccess; }
#define NUMBER(name, type, number, ...) \
  cudaError_t name(type *value, ##__VA_ARGS__) { *value = number; return cudaSuccess; }

extern "C" {

// -- memory ---------------------------------------------------------------------------------------------------------

cudaError_t cudaMalloc(void **pointer, size_t size) {
  if (!next_free) {
    void *got = mmap(kBase, kArena, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got != kBase) fail("no room for device memory");
    next_free = kBase + kGuard;
  }
  if (!size) return *pointer = nullptr, cudaSuccess;
  if (next_free + size + kGuard > kBase + kArena) return cudaErrorMemoryAllocation;
  *pointer = next_free;
  live[next_free] = size;
  memset(next_free, 0xA5, size);
  next_free += (size + kGuard + kAlign - 1) / kAlign * kAlign;
  return cudaSuccess;
}
cudaError_t cudaMallocAsync(void **pointer, size_t size, cudaStream_t) { return cudaMalloc(pointer, size); }
cudaError_t cudaMallocManaged(void **pointer, size_t size, unsigned) { return cudaMalloc(pointer, size); }
cudaError_t cudaMallocHost(void **pointer, size_t size) { return *pointer = malloc(size), cudaSuccess; }
cudaError_t cudaHostAlloc(void **pointer, size_t size, unsigned) { return cudaMallocHost(pointer, size); }
cudaError_t cudaFreeHost(void *pointer) { return free(pointer), cudaSuccess; }
cudaError_t cudaFree(void *pointer) { return live.erase(static_cast<char *>(pointer)), cudaSuccess; }
cudaError_t cudaFreeAsync(void *pointer, cudaStream_t) { return cudaFree(pointer); }
cudaError_t cudaMemcpy(void *to, const void *from, size_t size, cudaMemcpyKind) { return memmove(to, from, size), cudaSuccess; }
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, cudaMemcpyKind, cudaStream_t) { return memmove(to, from, size), cudaSuccess; }
cudaError_t cudaMemset(void *to, int value, size_t size) { return memset(to, value, size), cudaSuccess; }
cudaError_t cudaMemsetAsync(void *to, int value, size_t size, cudaStream_t) { return memset(to, value, size), cudaSuccess; }
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *found, const void *pointer) {
  *found = {};
  found->type = cudaMemoryTypeDevice;
  found->devicePointer = const_cast<void *>(pointer);
  return cudaSuccess;
}

char *at_symbol(const void *symbol, size_t offset, bool write) {
  const auto found = variables.find(symbol);
  if (found == variables.end()) fail("a variable that no module has registered");
  found->second.written |= write;
  return found->second.address + offset;
}
cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t size, size_t offset, cudaMemcpyKind) { return memmove(at_symbol(symbol, offset, true), from, size), cudaSuccess; }
cudaError_t cudaMemcpyToSymbolAsync(const void *symbol, const void *from, size_t size, size_t offset, cudaMemcpyKind kind, cudaStream_t) { return cudaMemcpyToSymbol(symbol, from, size, offset, kind); }
cudaError_t cudaMemcpyFromSymbol(void *to, const void *symbol, size_t size, size_t offset, cudaMemcpyKind) { return memmove(to, at_symbol(symbol, offset, false), size), cudaSuccess; }
cudaError_t cudaMemcpyFromSymbolAsync(void *to, const void *symbol, size_t size, size_t offset, cudaMemcpyKind kind, cudaStream_t) { return cudaMemcpyFromSymbol(to, symbol, size, offset, kind); }
cudaError_t cudaGetSymbolAddress(void **address, const void *symbol) { return *address = at_symbol(symbol, 0, false), cudaSuccess; }

// -- what always works, at once ---------------------------------------------------------------------------------------

cudaError_t cudaPeekAtLastError() { return last; }
cudaError_t cudaGetLastError() {
  const cudaError_t found = last;
  return last = cudaSuccess, found;
}
DONE(cudaDeviceSynchronize)
DONE(cudaDeviceReset)
DONE(cudaSetDevice, int)
DONE(cudaMemPrefetchAsync, const void *, size_t, cudaMemLocation, unsigned, cudaStream_t)
DONE(cudaMemAdvise, const void *, size_t, cudaMemoryAdvise, cudaMemLocation)
DONE(cudaStreamSynchronize, cudaStream_t)
DONE(cudaStreamDestroy, cudaStream_t)
DONE(cudaStreamWaitEvent, cudaStream_t, cudaEvent_t, unsigned)
DONE(cudaEventDestroy, cudaEvent_t)
DONE(cudaEventRecord, cudaEvent_t, cudaStream_t)
DONE(cudaEventSynchronize, cudaEvent_t)
DONE(cudaFuncSetAttribute, const void *, cudaFuncAttribute, int)
DONE(cudaFuncSetCacheConfig, const void *, cudaFuncCache)
ANY_HANDLE(cudaStreamCreate, cudaStream_t)
ANY_HANDLE(cudaStreamCreateWithFlags, cudaStream_t, unsigned)
ANY_HANDLE(cudaStreamCreateWithPriority, cudaStream_t, unsigned, int)
ANY_HANDLE(cudaEventCreate, cudaEvent_t)
ANY_HANDLE(cudaEventCreateWithFlags, cudaEvent_t, unsigned)
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus *status) { return *status = cudaStreamCaptureStatusNone, cudaSuccess; }
NUMBER(cudaEventElapsedTime, float, 1, cudaEvent_t, cudaEvent_t)
NUMBER(cudaGetDevice, int, 0)
NUMBER(cudaGetDeviceCount, int, 1)
NUMBER(cudaRuntimeGetVersion, int, CUDART_VERSION)
NUMBER(cudaDriverGetVersion, int, CUDA_VERSION)
NUMBER(cudaOccupancyMaxActiveBlocksPerMultiprocessor, int, 1, const void *, int, size_t)
NUMBER(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, int, 1, const void *, int, size_t, unsigned)
NUMBER(cudaOccupancyMaxActiveClusters, int, multiprocessors() / 2, const void *, const cudaLaunchConfig_t *)
const char *cudaGetErrorString(cudaError_t) { return "an error of the mock runtime"; }
const char *cudaGetErrorName(cudaError_t) { return "pretended"; }

cudaError_t cudaMemGetInfo(size_t *unused, size_t *total) { return *unused = *total = size_t(1) << 34, cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int) {
  const std::map<int, int> known = {
      {cudaDevAttrComputeCapabilityMajor, capability() / 10}, {cudaDevAttrComputeCapabilityMinor, capability() % 10},
      {cudaDevAttrMaxSharedMemoryPerBlock, 49152}, {cudaDevAttrMaxSharedMemoryPerBlockOptin, 232448},
      {cudaDevAttrMaxSharedMemoryPerMultiprocessor, 233472}, {cudaDevAttrMaxThreadsPerBlock, 1024},
      {cudaDevAttrMaxThreadsPerMultiProcessor, 2048}, {cudaDevAttrWarpSize, 32}, {cudaDevAttrCooperativeLaunch, 1},
      {cudaDevAttrL2CacheSize, 50 << 20}, {cudaDevAttrMaxBlockDimX, 1024}, {cudaDevAttrMaxBlockDimY, 1024},
      {cudaDevAttrMaxBlockDimZ, 64}, {cudaDevAttrMaxGridDimX, 2147483647}, {cudaDevAttrMaxGridDimY, 65535},
      {cudaDevAttrMaxGridDimZ, 65535}, {cudaDevAttrMaxRegistersPerBlock, 65536},
      {cudaDevAttrMaxRegistersPerMultiprocessor, 65536}, {cudaDevAttrMaxBlocksPerMultiprocessor, 32}};
  const auto found = known.find(attribute);
  *value = attribute == cudaDevAttrMultiProcessorCount ? multiprocessors() : found == known.end() ? 0 : found->second;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *found, int) {
  *found = {};
  strcpy(found->name, "pretended");
  found->major = capability() / 10;
  found->minor = capability() % 10;
  found->multiProcessorCount = multiprocessors();
  found->warpSize = 32;
  found->maxThreadsPerBlock = 1024;
  found->maxThreadsPerMultiProcessor = 2048;
  found->sharedMemPerBlock = 49152;
  found->sharedMemPerBlockOptin = 232448;
  found->sharedMemPerMultiprocessor = 233472;
  for (const int at : {0, 1, 2}) found->maxGridSize[at] = at ? 65535 : 2147483647, found->maxThreadsDim[at] = at < 2 ? 1024 : 64;
  found->cooperativeLaunch = found->managedMemory = found->concurrentManagedAccess = 1;
  found->regsPerBlock = found->regsPerMultiprocessor = 65536;
  found->totalGlobalMem = kArena;
  found->l2CacheSize = 50 << 20;
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *found, const void *) {
  *found = {};
  found->maxThreadsPerBlock = 1024;
  found->numRegs = 128;
  found->ptxVersion = found->binaryVersion = capability();
  return cudaSuccess;
}

// -- modules and launches ---------------------------------------------------------------------------------------------

void **__cudaRegisterFatBinary(void *) {
  static void *handle[4];
  return handle;
}
void __cudaRegisterFatBinaryEnd(void **) {}
void __cudaUnregisterFatBinary(void **) {}
void __cudaRegisterVar(void **, char *host, char *, const char *name, int, size_t size, int, int) {
  void *address;
  cudaMalloc(&address, size);
  variables[host] = {name, static_cast<char *>(memset(address, 0, size)), size, false};
}
char __cudaInitModule(void **) { return 1; }
void __cudaRegisterFunction(void **, const char *function, char *, const char *name, int, uint3 *, uint3 *, dim3 *, dim3 *, int *) { names[function] = name; }
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream_st *stream) { return pushed.push_back({grid, block, shared, stream}), 0; }
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
  const Shape last = pushed.back();
  pushed.pop_back();
  *grid = last.grid, *block = last.block, *shared = last.shared;
  *static_cast<cudaStream_t *>(stream) = last.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function) { return *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void *>(function)), cudaSuccess; }
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t) { return launch(kernel, grid, block, dim3(1, 1, 1), shared, arguments, false); }
cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t) { return launch(function, grid, block, dim3(1, 1, 1), shared, arguments, false); }
cudaError_t cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t) { return launch(function, grid, block, dim3(1, 1, 1), shared, arguments, false); }
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function, void **arguments) {
  dim3 cluster(1, 1, 1);
  bool dependent = false;
  for (unsigned at = 0; at < config->numAttrs; at++) {
    const cudaLaunchAttribute &one = config->attrs[at];
    if (one.id == cudaLaunchAttributeClusterDimension) cluster = dim3(one.val.clusterDim.x, one.val.clusterDim.y, one.val.clusterDim.z);
    if (one.id == cudaLaunchAttributeProgrammaticStreamSerialization) dependent = one.val.programmaticStreamSerializationAllowed;
  }
  return launch(function, config->gridDim, config->blockDim, cluster, config->dynamicSmemBytes, arguments, dependent);
}
cudaError_t cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long, cudaDriverEntryPointQueryResult *result) { return entry_point(name, function, result); }
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned, unsigned long long, cudaDriverEntryPointQueryResult *result) { return entry_point(name, function, result); }

// -- of the driver, for programs that link to it ------------------------------------------------------------------------

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *extents, const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  return encode(map, type, rank, address, extents, strides, box, steps, interleave, swizzle, promotion, fill);
}
CUresult cuTensorMapEncodeIm2col(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *extents, const cuuint64_t *strides, const int *lower, const int *upper, cuuint32_t channels, cuuint32_t pixels, const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  return encode_im2col(map, type, rank, address, extents, strides, lower, upper, channels, pixels, steps, interleave, swizzle, promotion, fill);
}
CUresult cuGetErrorString(CUresult error, const char **text) { return error_text(error, text); }
CUresult cuGetErrorName(CUresult error, const char **text) { return error_text(error, text); }
CUresult cuDriverGetVersion(int *version) { return driver_version(version); }
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream) { return std::fill_n(reinterpret_cast<unsigned *>(to), count, value), CUDA_SUCCESS; }

} // extern "C"
