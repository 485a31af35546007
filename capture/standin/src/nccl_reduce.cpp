// NCCL's arithmetic: sums, products, extremes and averages of all its types.
//
// Inputs are always combined in the order of the ranks. So a result is the same to the bit in every run and
// on every rank, which NCCL promises only for one choice of algorithm and channels. Small floating-point
// types are added in float and rounded once, to nearest, ties to even; NCCL rounds after each addition, which
// for two ranks is the same. An average is the sum divided by the number of ranks. Integers wrap around.
//
// The small types differ only in how many bits they have for exponent and fraction, so one template reads and
// writes all four: fp16, bf16, and the two 8-bit types of the Open Compute Project's specification (e4m3 has
// no infinities and one NaN).
#include "nccl.h"

#include <cmath>
#include <cstring>

namespace standin {
namespace nccl {
namespace {

template <int kExponent, int kFraction, bool kFinite, typename Bits>
struct Small {
  Bits bits;
  using Wide = float;
  static constexpr int kBias = (1 << (kExponent - 1)) - 1;
  static constexpr unsigned kMaxExponent = (1u << kExponent) - 1;
  static constexpr unsigned kFractionMask = (1u << kFraction) - 1;

  float get() const {
    unsigned sign = unsigned(bits) >> (kExponent + kFraction) & 1, exponent = unsigned(bits) >> kFraction & kMaxExponent;
    unsigned fraction = unsigned(bits) & kFractionMask, u;
    float f;
    if (kExponent == 8) {
      u = unsigned(bits) << 16;
    } else if (exponent == 0) {
      f = std::ldexp(float(fraction), 1 - kBias - kFraction);
      return sign ? -f : f;
    } else if (exponent == kMaxExponent && (!kFinite || fraction == kFractionMask)) {
      u = sign << 31 | 0x7f800000 | (fraction ? 0x400000 : 0);
    } else {
      u = sign << 31 | (exponent - kBias + 127) << 23 | fraction << (23 - kFraction);
    }
    std::memcpy(&f, &u, 4);
    return f;
  }

  static Small of(float f) {
    unsigned u;
    std::memcpy(&u, &f, 4);
    unsigned sign = u >> 31, a = u & 0x7fffffff, out;
    constexpr int kShift = 23 - kFraction;
    unsigned rounded = a + ((1u << (kShift - 1)) - 1) + (a >> kShift & 1);
    int exponent = int(rounded >> 23) - 127;
    if (a > 0x7f800000) {
      out = kMaxExponent << kFraction | (kFinite ? kFractionMask : 1u << (kFraction - 1));
    } else if (kExponent == 8) {
      out = rounded >> kShift;
    } else if (int(a >> 23) - 127 < 1 - kBias) {
      float x;
      std::memcpy(&x, &a, 4);
      out = unsigned(std::nearbyint(std::ldexp(x, kBias - 1 + kFraction)));
    } else {
      out = unsigned(exponent + kBias) << kFraction | (rounded >> kShift & kFractionMask);
      unsigned largest = kFinite ? (kMaxExponent << kFraction | (kFractionMask - 1)) : kMaxExponent << kFraction;
      if (out > largest) out = largest;
    }
    return {Bits(out | sign << (kExponent + kFraction))};
  }
};

template <typename T>
struct Plain {
  T value;
  using Wide = T;
  T get() const { return value; }
  static Plain of(T v) { return {v}; }
};

using Half = Small<5, 10, false, uint16_t>;
using Brain = Small<8, 7, false, uint16_t>;
using E4M3 = Small<4, 3, true, uint8_t>;
using E5M2 = Small<5, 2, false, uint8_t>;

// Arithmetic that wraps around for both signed and unsigned integers.
template <typename W>
W add(W a, W b) {
  if constexpr (std::is_integral_v<W>) {
    return W(uint64_t(a) + uint64_t(b));
  } else {
    return a + b;
  }
}
template <typename W>
W multiply(W a, W b) {
  if constexpr (std::is_integral_v<W>) {
    return W(uint64_t(a) * uint64_t(b));
  } else {
    return a * b;
  }
}

template <typename T>
void reduce_as(Operation operation, const std::vector<const void *> &inputs, const std::vector<double> &factors, void *out,
               size_t count) {
  using W = typename T::Wide;
  for (size_t i = 0; i < count; i++) {
    W sum{};
    for (size_t r = 0; r < inputs.size(); r++) {
      W x = static_cast<const T *>(inputs[r])[i].get();
      if (operation == kScaledSum) x = multiply(x, W(factors[r]));
      if (r == 0) {
        sum = x;
      } else if (operation == kProduct) {
        sum = multiply(sum, x);
      } else if (operation == kMaximum) {
        sum = sum < x || x != x ? x : sum;
      } else if (operation == kMinimum) {
        sum = x < sum || x != x ? x : sum;
      } else {
        sum = add(sum, x);
      }
    }
    if (operation == kAverage) sum = W(sum / W(inputs.size()));
    static_cast<T *>(out)[i] = T::of(sum);
  }
}

struct Type {
  const char *name;
  size_t size;
  void (*reduce)(Operation, const std::vector<const void *> &, const std::vector<double> &, void *, size_t);
  double (*load)(const void *);
};

template <typename T>
double load_as(const void *p) {
  return double(static_cast<const T *>(p)->get());
}
template <typename T>
constexpr Type type(const char *name) {
  return {name, sizeof(T), reduce_as<T>, load_as<T>};
}

// In the order of ncclDataType_t.
const Type kTypes[] = {
    type<Plain<int8_t>>("int8"),   type<Plain<uint8_t>>("uint8"),   type<Plain<int32_t>>("int32"), type<Plain<uint32_t>>("uint32"),
    type<Plain<int64_t>>("int64"), type<Plain<uint64_t>>("uint64"), type<Half>("float16"),         type<Plain<float>>("float32"),
    type<Plain<double>>("float64"), type<Brain>("bfloat16"),        type<E4M3>("float8_e4m3"),     type<E5M2>("float8_e5m2"),
};
constexpr int kTypeCount = sizeof kTypes / sizeof kTypes[0];

bool exists(int t) { return t >= 0 && t < kTypeCount; }

}  // namespace

size_t type_size(int type) { return exists(type) ? kTypes[type].size : 0; }
const char *type_name(int type) { return exists(type) ? kTypes[type].name : "an unknown type"; }
double load(int type, const void *element) { return kTypes[type].load(element); }
void reduce(int type, Operation operation, const std::vector<const void *> &inputs, const std::vector<double> &factors, void *out,
            size_t count) {
  kTypes[type].reduce(operation, inputs, factors, out, count);
}

}  // namespace nccl
}  // namespace standin
