// The host side of a launch without a GPU: buffers of which only the addresses exist, and tensor maps that are written
// down in place of being encoded. `describe` prints a launch as JSON, see launch_description.py.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

struct Buffer {
  std::string name, dtype, fill;
  std::vector<long> shape;      // outermost first
  std::vector<uint8_t> bytes;   // what it holds, where the host has written it
};

// Buffer number n begins at FIRST_ADDRESS + n * 4 GiB, so that an address tells its buffer.
constexpr uint64_t FIRST_ADDRESS = 0x5A00'4000'0000ull;
// The bytes of a pretended tensor map: its number in four bytes, and this.
constexpr int MAP_FILLER = 0xA7;

inline std::vector<Buffer>& buffers() { static std::vector<Buffer> all; return all; }
inline std::vector<std::string>& maps() { static std::vector<std::string> all; return all; }

inline void* address_of(Buffer const& buffer) {
  buffers().push_back(buffer);
  return reinterpret_cast<void*>(FIRST_ADDRESS + (uint64_t(buffers().size() - 1) << 32));
}

// An array of the kernel's. fill: as in a launch description.
template <class T>
T* device_array(std::string name, std::string dtype, std::vector<long> shape, std::string fill = "normal") {
  return static_cast<T*>(address_of({name, dtype, fill, shape, {}}));
}

// Values that the host copies to the device, pointers among them.
template <class T>
T* copied(std::string name, std::vector<T> const& values) {
  std::vector<uint8_t> bytes(values.size() * sizeof(T));
  memcpy(bytes.data(), values.data(), bytes.size());
  return static_cast<T*>(address_of({name, "u8", "", {long(bytes.size())}, bytes}));
}

template <class T>
std::string listed(T const* values, size_t count) {
  std::ostringstream out;
  out << "[";
  for (size_t i = 0; i < count; i++) out << (i ? "," : "") << values[i];
  out << "]";
  return out.str();
}

inline std::string hexadecimal(void const* data, size_t count) {
  char const* digits = "0123456789abcdef";
  auto bytes = static_cast<uint8_t const*>(data);
  std::string text;
  for (size_t i = 0; i < count; i++) { text += digits[bytes[i] >> 4]; text += digits[bytes[i] & 15]; }
  return text;
}

// In place of the driver's function; CUTLASS_ENABLE_DIRECT_CUDA_DRIVER_CALL makes CUTLASS call it by name.
extern "C" CUresult CUDAAPI cuTensorMapEncodeTiled(
    CUtensorMap* map, CUtensorMapDataType dtype, cuuint32_t rank, void* address, cuuint64_t const* sizes,
    cuuint64_t const* strides, cuuint32_t const* box, cuuint32_t const* element_strides, CUtensorMapInterleave,
    CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  std::ostringstream out;
  out << "{\"dtype\":" << int(dtype) << ",\"address\":" << uint64_t(address) << ",\"swizzle\":" << int(swizzle)
      << ",\"sizes\":" << listed(sizes, rank) << ",\"strides\":" << listed(strides, rank - 1)
      << ",\"box\":" << listed(box, rank) << ",\"element_strides\":" << listed(element_strides, rank) << "}";
  uint32_t number = maps().size();
  memset(map, MAP_FILLER, sizeof(*map));
  memcpy(map, &number, sizeof(number));
  maps().push_back(out.str());
  return CUDA_SUCCESS;
}

inline std::string listed(dim3 size) { unsigned sizes[] = {size.x, size.y, size.z}; return listed(sizes, 3); }

inline std::string parameter_text(float value) {
  std::ostringstream out;
  out << "{\"dtype\":\"f32\",\"value\":" << value << "}";
  return out.str();
}

template <class Structure>
std::string parameter_text(Structure const& value) { return "\"" + hexadecimal(&value, sizeof(Structure)) + "\""; }

// Prints the launch of a kernel on a line of its own: structures by value, and floats.
template <class... Parameters>
void describe_all(dim3 grid, dim3 block, dim3 cluster, int dynamic_smem, Parameters const&... parameters) {
  std::string listed_parameters[] = {parameter_text(parameters)...};
  printf("\n{\"grid\":%s,\"block\":%s,\"cluster\":%s,\"dynamic_smem\":%d,\"parameters\":[", listed(grid).c_str(),
         listed(block).c_str(), listed(cluster).c_str(), dynamic_smem);
  for (size_t i = 0; i < sizeof...(Parameters); i++) printf("%s%s", i ? "," : "", listed_parameters[i].c_str());
  printf("],\"maps\":[");
  for (size_t i = 0; i < maps().size(); i++) printf("%s%s", i ? "," : "", maps()[i].c_str());
  printf("],\"buffers\":[");
  for (size_t i = 0; i < buffers().size(); i++) {
    auto& one = buffers()[i];
    printf("%s{\"name\":\"%s\",\"dtype\":\"%s\",\"fill\":\"%s\",\"shape\":%s,\"bytes\":\"%s\"}", i ? "," : "",
           one.name.c_str(), one.dtype.c_str(), one.fill.c_str(), listed(one.shape.data(), one.shape.size()).c_str(),
           hexadecimal(one.bytes.data(), one.bytes.size()).c_str());
  }
  printf("]}\n");
}

// Of a kernel whose one parameter is a structure by value.
template <class Parameter>
void describe(Parameter const& parameter, dim3 grid, dim3 block, dim3 cluster, int dynamic_smem) {
  describe_all(grid, block, cluster, dynamic_smem, parameter);
}
