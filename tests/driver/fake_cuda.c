/* A mock CUDA driver for machines without a GPU: it has no device, executes nothing itself, and logs every call.

   Built by tests/driver/mock_gpu.py as libcuda.so.1. Each call appends a line to the file that FAKE_CUDA_LOG names.
   "Device memory" is host memory. Environment variables inject faults. A listener (tests/driver/executing.py) is called
   for each launch and returns its status. */
#include <cuda.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local CUcontext current;
static int fake_module, fake_context;
static CUresult (*listener)(const CUlaunchConfig *config, size_t function, void **parameters);
void fake_cuda_listen(CUresult (*to)(const CUlaunchConfig *, size_t, void **)) { listener = to; }

static void note(const char *format, ...) {
    const char *path = getenv("FAKE_CUDA_LOG");
    if (!path) return;
    FILE *file = fopen(path, "a");
    if (!file) return;
    va_list rest;
    va_start(rest, format);
    vfprintf(file, format, rest);
    va_end(rest);
    fputc('\n', file);
    fclose(file);
}
static int setting(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

CUresult cuInit(unsigned flags) { return setting("FAKE_CUDA_INIT", 0); }
CUresult cuDriverGetVersion(int *version) { *version = 13000; return 0; }
CUresult cuDeviceGetCount(int *count) { *count = setting("FAKE_CUDA_DEVICES", 1); return 0; }
CUresult cuDeviceGet(CUdevice *device, int index) { *device = index; return 0; }
CUresult cuDeviceGetName(char *name, int length, CUdevice device) { 
    strncpy(name, setting("FAKE_CUDA_CAPABILITY", 90) / 10 == 10 ? "Fake B200" : "Fake H200", length);
    return 0;
}
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) { *bytes = 1 << 20; return 0; }
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    switch ((int)attribute) {
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = setting("FAKE_CUDA_CAPABILITY", 90) / 10; break;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = setting("FAKE_CUDA_CAPABILITY", 90) % 10; break;
        case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = setting("FAKE_CUDA_SMS", 132); break;
        case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: *value = setting("FAKE_CUDA_KHZ", 1980000); break;
        default: *value = 232448;
    }
    return 0;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    note("retain %d", device);
    *context = (CUcontext)&fake_context;
    return 0;
}
CUresult cuCtxGetCurrent(CUcontext *context) { *context = current; return 0; }
CUresult cuCtxSetCurrent(CUcontext context) { current = context; return 0; }
CUresult cuCtxGetDevice(CUdevice *device) { *device = 0; return current ? 0 : CUDA_ERROR_INVALID_CONTEXT; }
CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr pointer) { *(int *)data = 0; return 0; }
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
    *status = setting("FAKE_CUDA_CAPTURING", 0);
    return 0;
}
CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *number, CUgraph *graph,
                                   const CUgraphNode **nodes, size_t *count) {
    *status = setting("FAKE_CUDA_CAPTURING", 0);
    *number = setting("FAKE_CUDA_CAPTURING", 0);
    return 0;
}
/* Events: a kernel takes a microsecond for each CTA. */
static unsigned last_grid, recorded[1024];
static size_t events;
CUresult cuEventCreate(CUevent *event, unsigned flags) { *event = (CUevent)++events; return 0; }
CUresult cuEventRecord(CUevent event, CUstream stream) {
    note("event %zu stream %zx", (size_t)event, (size_t)stream);
    recorded[(size_t)event % 1024] = last_grid;
    return 0;
}
CUresult cuEventQuery(CUevent event) { return setting("FAKE_CUDA_BUSY", 0) ? CUDA_ERROR_NOT_READY : 0; }
CUresult cuEventSynchronize(CUevent event) { return 0; }
CUresult cuEventElapsedTime_v2(float *ms, CUevent begin, CUevent end) { *ms = recorded[(size_t)end % 1024] * 1e-3f; return 0; }
CUresult cuEventDestroy_v2(CUevent event) { note("forget event %zu", (size_t)event); return 0; }
/* Streams and copies: a copy is made at once, and written down with its stream. */
CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
    static size_t streams = 0x100;
    if (!current) return CUDA_ERROR_INVALID_CONTEXT;
    *stream = (CUstream)++streams;
    note("stream %zx flags %u", streams, flags);
    return 0;
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    note("stream %zx waits for event %zu", (size_t)stream, (size_t)event);
    return 0;
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    note("copy %zu stream %zx", bytes, (size_t)stream);
    if (!current) return CUDA_ERROR_INVALID_CONTEXT;
    memcpy((void *)to, (void *)from, bytes);
    return setting("FAKE_CUDA_COPY", 0);
}
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream stream) {
    note("copy %zu x %zu stream %zx", copy->Height, copy->WidthInBytes, (size_t)stream);
    if (copy->srcMemoryType != CU_MEMORYTYPE_UNIFIED || copy->dstMemoryType != CU_MEMORYTYPE_UNIFIED ||
        copy->WidthInBytes > copy->srcPitch || copy->WidthInBytes > copy->dstPitch || copy->srcXInBytes || copy->dstY)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t row = 0; row < copy->Height; ++row)
        memcpy((char *)copy->dstDevice + row * copy->dstPitch, (char *)copy->srcDevice + row * copy->srcPitch, copy->WidthInBytes);
    return 0;
}
CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned flags) {
    note("write %u stream %zx", value, (size_t)stream);
    if (!current) return CUDA_ERROR_INVALID_CONTEXT;
    *(cuuint32_t *)at = value;
    return 0;
}
CUresult cuStreamSynchronize(CUstream stream) { note("synchronize %zx", (size_t)stream); return 0; }
CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    note("load %.3s", (const char *)image + 1);
    *module = (CUmodule)&fake_module;
    return 0;
}
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    note("function %s", name);
    *function = (CUfunction)malloc(1); /* a handle of its own */
    return 0;
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    note("attribute %d %d", attribute, value);
    return 0;
}
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) { *value = 32; return 0; }
CUresult cuTensorMapEncodeTiled(
    CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *dims,
    const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *steps, CUtensorMapInterleave interleave,
    CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
    note("map %d rank %u dims %zu %zu stride %zu box %u %u swizzle %d", type, rank, (size_t)dims[0], (size_t)dims[1],
         (size_t)strides[0], box[0], box[1], swizzle);
    if ((size_t)map % 64) return CUDA_ERROR_INVALID_VALUE;
    memset(map, 0x5a, sizeof *map);
    return setting("FAKE_CUDA_MAP", 0);
}
CUresult cuTensorMapEncodeIm2col(
    CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *dims,
    const cuuint64_t *strides, const int *lower, const int *upper, cuuint32_t channels, cuuint32_t pixels,
    const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
    CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
    note("im2col %d rank %u dims %zu %zu corners %d %d to %d %d moves %u %u steps %u %u swizzle %d", type, rank,
         (size_t)dims[0], (size_t)dims[1], lower[0], lower[1], upper[0], upper[1], channels, pixels, steps[1], steps[2],
         swizzle);
    memset(map, 0x5a, sizeof *map);
    return 0;
}
CUresult cuTensorMapEncodeIm2colWide(
    CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *dims,
    const cuuint64_t *strides, int lower, int upper, cuuint32_t channels, cuuint32_t pixels, const cuuint32_t *steps,
    CUtensorMapInterleave interleave, CUtensorMapIm2ColWideMode mode, CUtensorMapSwizzle swizzle,
    CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
    note("wide %d rank %u corners %d to %d moves %u %u steps %u mode %d swizzle %d fill %d", type, rank, lower, upper,
         channels, pixels, steps[1], mode, swizzle, fill);
    memset(map, 0x5a, sizeof *map);
    return 0;
}
CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra) {
    if (!current) return CUDA_ERROR_INVALID_CONTEXT;
    char attributes[128] = "";
    for (unsigned at = 0; at < config->numAttrs; ++at) {
        const CUlaunchAttribute *attribute = &config->attrs[at];
        char text[64] = "";
        if (attribute->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            snprintf(text, sizeof text, " cluster %u %u %u", attribute->value.clusterDim.x, attribute->value.clusterDim.y,
                     attribute->value.clusterDim.z);
        if (attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
            snprintf(text, sizeof text, " pdl %d", attribute->value.programmaticStreamSerializationAllowed);
        strncat(attributes, text, sizeof attributes - strlen(attributes) - 1);
    }
    last_grid = config->gridDimX;
    note("launch grid %u %u %u block %u %u %u smem %u stream %zx first %zx%s", config->gridDimX, config->gridDimY,
         config->gridDimZ, config->blockDimX, config->blockDimY, config->blockDimZ, config->sharedMemBytes,
         (size_t)config->hStream, *(size_t *)parameters[0], attributes);
    if (listener) return listener(config, (size_t)function, parameters);
    return setting("FAKE_CUDA_LAUNCH", 0);
}
CUresult cuOccupancyMaxActiveClusters(int *count, CUfunction function, const CUlaunchConfig *config) {
    int ctas = config->attrs[0].value.clusterDim.x * config->attrs[0].value.clusterDim.y * config->attrs[0].value.clusterDim.z;
    note("occupancy smem %u cluster %d", config->sharedMemBytes, ctas);
    *count = setting("FAKE_CUDA_SMS", 132) / ctas - 3; /* GPCs of odd sizes */
    return setting("FAKE_CUDA_OCCUPANCY", 0);
}
static char *link_log[2];
CUresult cuLinkCreate_v2(unsigned count, CUjit_option *options, void **values, CUlinkState *state) {
    for (unsigned at = 0; at < count; ++at) {
        if (options[at] == CU_JIT_INFO_LOG_BUFFER) link_log[0] = values[at];
        if (options[at] == CU_JIT_ERROR_LOG_BUFFER) link_log[1] = values[at];
    }
    *state = (CUlinkState)&fake_module;
    return 0;
}
CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name,
                          unsigned count, CUjit_option *options, void **values) {
    note("link %d %zu %s", type, size - strlen(data), name);
    strcpy(link_log[0], "ptxas info    : Compiling entry function 'add' for 'sm_90a'\nptxas info    : Used 12 registers");
    if (strstr(data, "%f77")) {
        strcpy(link_log[1], "ptxas application ptx input, line 20; error   : Unknown symbol '%f77'");
        return CUDA_ERROR_INVALID_PTX;
    }
    return 0;
}
CUresult cuLinkComplete(CUlinkState state, void **cubin, size_t *size) {
    *cubin = "\177ELF of the driver";
    *size = strlen(*cubin);
    return 0;
}
CUresult cuLinkDestroy(CUlinkState state) { return 0; }
CUresult cuGetErrorName(CUresult error, const char **text) {
    *text = error == CUDA_ERROR_INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE" : error == CUDA_ERROR_NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_FAKE";
    return 0;
}
CUresult cuGetErrorString(CUresult error, const char **text) { *text = "something a test asked for"; return 0; }

/* cuda-bindings looks every function up here; what is missing is left null */
#include <dlfcn.h>
CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status) {
    char versioned[256];
    void *self = dlopen("libcuda.so.1", RTLD_NOW);
    snprintf(versioned, sizeof versioned, "%s_v2", symbol);
    *function = dlsym(self, versioned);
    if (!*function) *function = dlsym(self, symbol);
    if (status) *status = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
#undef cuGetProcAddress
CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags) {
    return cuGetProcAddress_v2(symbol, function, version, flags, 0);
}
