// A call through a pointer, and what the emulator refuses: recursion.
__device__ float twice(float x) { return 2 * x; }
__device__ float thrice(float x) { return 3 * x; }
typedef float (*Function)(float);
__device__ Function functions[2] = {twice, thrice};

extern "C" __global__ void through_pointer(float* x, int which) { x[threadIdx.x] = functions[which](x[threadIdx.x]); }

__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
extern "C" __global__ void recursive(int* x) { x[threadIdx.x] = fibonacci(x[threadIdx.x]); }
