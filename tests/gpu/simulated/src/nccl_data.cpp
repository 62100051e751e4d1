#include "nccl_data.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>

namespace sim {
namespace {

constexpr size_t kMaxTransferBytes = 1 << 20;       // kMaxBytes of a rendezvous
constexpr size_t kMaxFloatTransferBytes = 1 << 16;  // activations, gradients and weights are usually larger

template <class T>
struct Arithmetic {  // the type in which a reduction computes
  using type = T;
};
template <>
struct Arithmetic<__half> {
  using type = float;
};
template <>
struct Arithmetic<__nv_bfloat16> {
  using type = float;
};
template <>
struct Arithmetic<__nv_fp8_e4m3> {
  using type = float;
};
template <>
struct Arithmetic<__nv_fp8_e5m2> {
  using type = float;
};

template <class Call>
void dispatch_type(ncclDataType_t type, Call call) {
  switch (type) {
    case ncclInt8:
      return call((int8_t*)nullptr);
    case ncclUint8:
      return call((uint8_t*)nullptr);
    case ncclInt32:
      return call((int32_t*)nullptr);
    case ncclUint32:
      return call((uint32_t*)nullptr);
    case ncclInt64:
      return call((int64_t*)nullptr);
    case ncclUint64:
      return call((uint64_t*)nullptr);
    case ncclFloat16:
      return call((__half*)nullptr);
    case ncclFloat32:
      return call((float*)nullptr);
    case ncclFloat64:
      return call((double*)nullptr);
    case ncclBfloat16:
      return call((__nv_bfloat16*)nullptr);
    case ncclFloat8e4m3:
      return call((__nv_fp8_e4m3*)nullptr);
    case ncclFloat8e5m2:
      return call((__nv_fp8_e5m2*)nullptr);
    default:
      return;
  }
}

}  // namespace

size_t bytes_of(ncclDataType_t type) {
  size_t bytes = 1;
  dispatch_type(type, [&](auto* element) { bytes = sizeof *element; });
  return bytes;
}

const char* name_of(ncclDataType_t type) {
  // NCCL has one kernel for sums of signed and unsigned integers.
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return "u8";
    case ncclInt32:
    case ncclUint32:
      return "u32";
    case ncclInt64:
    case ncclUint64:
      return "u64";
    case ncclFloat16:
      return "f16";
    case ncclFloat32:
      return "f32";
    case ncclFloat64:
      return "f64";
    case ncclBfloat16:
      return "bf16";
    case ncclFloat8e4m3:
      return "f8e4m3";
    default:
      return "f8e5m2";
  }
}

bool is_transferred(size_t bytes, ncclDataType_t type) {
  return bytes <= (type >= ncclFloat16 ? kMaxFloatTransferBytes : kMaxTransferBytes);
}

void reduce(void* into, const void* from, size_t count, ncclDataType_t type, ncclRedOp_t op) {
  dispatch_type(type, [&](auto* element) {
    using T = std::remove_pointer_t<decltype(element)>;
    using A = typename Arithmetic<T>::type;
    auto* result = (T*)into;
    auto* other = (const T*)from;
    for (size_t i = 0; i < count; i++) {
      A a = (A)result[i], b = (A)other[i];
      switch (op) {
        case ncclProd:
          a = (A)(a * b);
          break;
        case ncclMax:
          a = std::max(a, b);
          break;
        case ncclMin:
          a = std::min(a, b);
          break;
        default:
          a = (A)(a + b);  // ncclSum, ncclAvg and user-defined pre-multiplied sums
      }
      result[i] = (T)a;
    }
  });
}

void scale(void* data, size_t count, ncclDataType_t type, double factor) {
  dispatch_type(type, [&](auto* element) {
    using T = std::remove_pointer_t<decltype(element)>;
    using A = typename Arithmetic<T>::type;
    for (size_t i = 0; i < count; i++) ((T*)data)[i] = (T)(A)((double)(A)((T*)data)[i] * factor);
  });
}

double scalar_at(const void* scalar, ncclDataType_t type) {
  double value = 1;
  dispatch_type(type, [&](auto* element) {
    using T = std::remove_pointer_t<decltype(element)>;
    value = (double)(typename Arithmetic<T>::type)(*(const T*)scalar);
  });
  return value;
}

}  // namespace sim
