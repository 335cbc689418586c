// What the source of a kernel sees in place of CUDA's headers: types, thread indices, barriers, fragments.
//
// Whatever needs no template is declared here and defined in runtime.cc and tiles.cc, which are compiled once.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#define __CUDA_ARCH__ 800
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __restrict__ __restrict
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)

#define HERON_LINE int line = __builtin_LINE()

namespace heron {

struct Index {
  unsigned x, y, z;
};

// The part of a thread that kernels read.
struct Thread {
  Index index;
  int lane, warp;
};

extern Thread* current;
extern Index block_index, block_extent, grid_extent;

[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));
void barrier(int line);
void* dynamic_shared();
void* static_shared(int which, size_t bytes);
unsigned shared_offset(const void* pointer);
void* shared_pointer(unsigned offset);

void copy_async(unsigned destination, const void* source, int bytes, int from_source);
void commit_copies();
void wait_copies(int groups);
void store_shared(unsigned destination, const unsigned* words, int count);

// All lanes of `mask` meet; the last one to come calls `work` with what each of them brought.
using Work = void (*)(void** brought, unsigned mask);
void meet(const char* what, unsigned mask, void* brought, Work work, bool same_line, int line);
unsigned lanes();
void shuffle(unsigned mask, unsigned* word, int source, int line);

enum Element { HALF, BFLOAT, FLOAT, SIGNED, UNSIGNED, INT };

void matrix_load(unsigned** words, int count, bool transposed, unsigned address, int line);
void matrix_multiply(Element a, Element b, Element sum, int depth, const unsigned* a_words, const unsigned* b_words,
                     const unsigned* c_words, void** d_words, int line);

// A fragment: the whole tile, row-major, kept by the first lane of the warp; floats or ints.
struct Tile {
  void* values;
  short rows, columns;
  Element element;

  Tile(int rows, int columns, Element element);
  ~Tile();
  Tile(const Tile&) = delete;
  Tile& operator=(const Tile&) = delete;
};

void tile_fill(Tile& tile, float number, int integer, int line);
void tile_load(Tile& tile, const void* pointer, unsigned stride, bool columns, int line);
void tile_store(void* pointer, const Tile& tile, unsigned stride, bool columns, int line);
void tile_multiply(Tile& d, const Tile& a, const Tile& b, const Tile& c, int line);

template <class To, class From>
inline To cast_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "the same bits");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

template <class Value>
inline unsigned bits(Value value) {
  return cast_bits<unsigned>(value);
}

// What the runtime calls by name.
struct Kernel {
  const char* name;
  void (*call)(void** arguments);
};
extern const Kernel kernels[];
extern const int kernel_count;

// Numbers of 16 bits that round after each operation, as a device does.
float half_to_float(uint16_t bits);
uint16_t float_to_half(float value);

inline float bfloat_to_float(uint16_t bits) { return cast_bits<float>((uint32_t)bits << 16); }

inline uint16_t float_to_bfloat(float value) {
  uint32_t word = cast_bits<uint32_t>(value);
  if (value != value) return (uint16_t)(word >> 16 | 0x40);
  return (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

#if defined(__F16C__) || defined(__aarch64__)
inline float widen(uint16_t bits) { return (float)cast_bits<_Float16>(bits); }
inline uint16_t narrow(float value) { return cast_bits<uint16_t>((_Float16)value); }
#else
inline float widen(uint16_t bits) { return half_to_float(bits); }
inline uint16_t narrow(float value) { return float_to_half(value); }
#endif

struct HalfFormat {
  static float widen(uint16_t bits) { return heron::widen(bits); }
  static uint16_t narrow(float value) { return heron::narrow(value); }
};

struct BfloatFormat {
  static float widen(uint16_t bits) { return bfloat_to_float(bits); }
  static uint16_t narrow(float value) { return float_to_bfloat(value); }
};

template <class Format>
struct Small {
  uint16_t bits;

  Small() = default;
  template <class Number, class = std::enable_if_t<std::is_arithmetic_v<Number>>>
  Small(Number number) : bits(Format::narrow((float)number)) {}
  operator float() const { return Format::widen(bits); }
  Small operator-() const {
    Small result;
    result.bits = bits ^ 0x8000;
    return result;
  }
  Small& operator+=(Small other) { return *this = *this + other; }
  Small& operator-=(Small other) { return *this = *this - other; }
  Small& operator*=(Small other) { return *this = *this * other; }
  Small& operator/=(Small other) { return *this = *this / other; }
};

#define HERON_OPERATOR(Result, sign)                                          \
  template <class Format>                                                     \
  inline Result operator sign(Small<Format> left, Small<Format> right) {      \
    return (float)left sign(float) right;                                     \
  }
HERON_OPERATOR(Small<Format>, +)
HERON_OPERATOR(Small<Format>, -)
HERON_OPERATOR(Small<Format>, *)
HERON_OPERATOR(Small<Format>, /)
HERON_OPERATOR(bool, <)
HERON_OPERATOR(bool, >)
HERON_OPERATOR(bool, <=)
HERON_OPERATOR(bool, >=)
HERON_OPERATOR(bool, ==)
HERON_OPERATOR(bool, !=)
#undef HERON_OPERATOR

}  // namespace heron

#define threadIdx (heron::current->index)
#define blockIdx (heron::block_index)
#define blockDim (heron::block_extent)
#define gridDim (heron::grid_extent)
#define warpSize 32
#define __syncthreads() heron::barrier(__LINE__)
#define __cvta_generic_to_shared(pointer) heron::shared_offset(pointer)

inline void __syncwarp(unsigned mask = 0xffffffffu, HERON_LINE) {
  heron::meet("__syncwarp", mask, nullptr, [](void**, unsigned) {}, false, line);
}

inline unsigned __activemask() { return heron::lanes(); }

// ---- numbers -------------------------------------------------------------------------------------------------------

using __half = heron::Small<heron::HalfFormat>;
using half = __half;
using __nv_bfloat16 = heron::Small<heron::BfloatFormat>;
using nv_bfloat16 = __nv_bfloat16;

#define HERON_VECTOR(Type, Name, size)                                                                  \
  struct alignas(size < 16 ? size : 16) Name##1 {                                                       \
    Type x;                                                                                             \
  };                                                                                                    \
  struct alignas(2 * size < 16 ? 2 * size : 16) Name##2 {                                               \
    Type x, y;                                                                                          \
  };                                                                                                    \
  struct alignas(size) Name##3 {                                                                        \
    Type x, y, z;                                                                                       \
  };                                                                                                    \
  struct alignas(4 * size < 16 ? 4 * size : 16) Name##4 {                                               \
    Type x, y, z, w;                                                                                    \
  };                                                                                                    \
  inline Name##1 make_##Name##1(Type x) { return {x}; }                                                 \
  inline Name##2 make_##Name##2(Type x, Type y) { return {x, y}; }                                      \
  inline Name##3 make_##Name##3(Type x, Type y, Type z) { return {x, y, z}; }                           \
  inline Name##4 make_##Name##4(Type x, Type y, Type z, Type w) { return {x, y, z, w}; }
HERON_VECTOR(signed char, char, 1)
HERON_VECTOR(unsigned char, uchar, 1)
HERON_VECTOR(short, short, 2)
HERON_VECTOR(unsigned short, ushort, 2)
HERON_VECTOR(int, int, 4)
HERON_VECTOR(unsigned, uint, 4)
HERON_VECTOR(long long, longlong, 8)
HERON_VECTOR(unsigned long long, ulonglong, 8)
HERON_VECTOR(float, float, 4)
HERON_VECTOR(double, double, 8)
#undef HERON_VECTOR

#define HERON_PAIR(Type, Name)                       \
  struct alignas(4) Name {                           \
    Type x, y;                                       \
    Name() = default;                                \
    Name(Type x, Type y) : x(x), y(y) {}             \
  };
HERON_PAIR(__half, __half2)
HERON_PAIR(__nv_bfloat16, __nv_bfloat162)
#undef HERON_PAIR
using half2 = __half2;
using nv_bfloat162 = __nv_bfloat162;
inline __half2 make_half2(__half x, __half y) { return {x, y}; }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __half2 __floats2half2_rn(float x, float y) { return {x, y}; }

inline float __half2float(__half x) { return x; }
inline __half __float2half(float x) { return x; }
inline __half __float2half_rn(float x) { return x; }
inline float __bfloat162float(__nv_bfloat16 x) { return x; }
inline __nv_bfloat16 __float2bfloat16(float x) { return x; }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return x; }
inline unsigned short __half_as_ushort(__half x) { return x.bits; }
inline __half __ushort_as_half(unsigned short x) { return heron::cast_bits<__half>(x); }

// A template would not see a converted argument, so each function is written for both formats.
#define HERON_SMALL(Type)                                                             \
  inline Type __hadd(Type x, Type y) { return x + y; }                                \
  inline Type __hsub(Type x, Type y) { return x - y; }                                \
  inline Type __hmul(Type x, Type y) { return x * y; }                                \
  inline Type __hdiv(Type x, Type y) { return x / y; }                                \
  inline Type __hfma(Type x, Type y, Type z) { return fmaf(x, y, z); }                \
  inline Type __hneg(Type x) { return -x; }                                           \
  inline Type __habs(Type x) { return fabsf(x); }                                     \
  inline bool __hgt(Type x, Type y) { return x > y; }                                 \
  inline bool __hlt(Type x, Type y) { return x < y; }                                 \
  inline bool __hge(Type x, Type y) { return x >= y; }                                \
  inline bool __hle(Type x, Type y) { return x <= y; }                                \
  inline bool __heq(Type x, Type y) { return x == y; }                                \
  inline bool __hne(Type x, Type y) { return x != y; }                                \
  inline bool __hisnan(Type x) { return std::isnan((float)x); }                       \
  inline Type __hmax(Type x, Type y) { return fmaxf(x, y); }                          \
  inline Type __hmin(Type x, Type y) { return fminf(x, y); }                          \
  inline Type hexp(Type x) { return expf(x); }                                        \
  inline Type hexp2(Type x) { return exp2f(x); }                                      \
  inline Type hlog(Type x) { return logf(x); }                                        \
  inline Type hlog2(Type x) { return log2f(x); }                                      \
  inline Type hsqrt(Type x) { return sqrtf(x); }                                      \
  inline Type hrsqrt(Type x) { return 1.0f / sqrtf(x); }                              \
  inline Type hrcp(Type x) { return 1.0f / (float)x; }                                \
  inline Type hsin(Type x) { return sinf(x); }                                        \
  inline Type hcos(Type x) { return cosf(x); }                                        \
  inline Type htanh(Type x) { return tanhf(x); }                                      \
  inline Type hceil(Type x) { return ceilf(x); }                                      \
  inline Type hfloor(Type x) { return floorf(x); }                                    \
  inline Type htrunc(Type x) { return truncf(x); }                                    \
  inline Type hrint(Type x) { return rintf(x); }
HERON_SMALL(__half)
HERON_SMALL(__nv_bfloat16)
#undef HERON_SMALL

#define HERON_EXTREMES(Type)                                       \
  inline Type max(Type x, Type y) { return x > y ? x : y; }        \
  inline Type min(Type x, Type y) { return x < y ? x : y; }
HERON_EXTREMES(int)
HERON_EXTREMES(unsigned)
HERON_EXTREMES(long)
HERON_EXTREMES(unsigned long)
HERON_EXTREMES(long long)
HERON_EXTREMES(unsigned long long)
#undef HERON_EXTREMES
inline float max(float x, float y) { return fmaxf(x, y); }
inline float min(float x, float y) { return fminf(x, y); }
inline double max(double x, double y) { return fmax(x, y); }
inline double min(double x, double y) { return fmin(x, y); }

// A device's quick versions round otherwise, by a few units in the last place.
inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return powf(10.0f, x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __saturatef(float x) { return fminf(fmaxf(x, 0.0f), 1.0f); }
inline int __float_as_int(float x) { return heron::cast_bits<int>(x); }
inline unsigned __float_as_uint(float x) { return heron::cast_bits<unsigned>(x); }
inline float __int_as_float(int x) { return heron::cast_bits<float>(x); }
inline float __uint_as_float(unsigned x) { return heron::cast_bits<float>(x); }
inline int __float2int_rn(float x) { return (int)rintf(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __mulhi(int x, int y) { return (int)(((long long)x * y) >> 32); }
inline unsigned __umulhi(unsigned x, unsigned y) { return (unsigned)(((unsigned long long)x * y) >> 32); }

template <class Value>
inline Value __ldg(const Value* pointer) {
  return *pointer;
}

namespace heron {
template <class A, class B>
inline int dot(unsigned a, unsigned b, int sum) {
  for (int part = 0; part < 32; part += 8) sum += (int)(A)(a >> part) * (int)(B)(b >> part);
  return sum;
}
}  // namespace heron
inline int __dp4a(int a, int b, int c) { return heron::dot<int8_t, int8_t>((unsigned)a, (unsigned)b, c); }
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  return (unsigned)heron::dot<uint8_t, uint8_t>(a, b, (int)c);
}

// ---- exchange among the lanes of a warp ----------------------------------------------------------------------------

namespace heron {
template <class Value>
inline Value shuffle_value(unsigned mask, Value value, int source, int line) {
  static_assert(sizeof(Value) <= 8, "a shuffle moves at most eight bytes");
  unsigned words[2] = {};
  memcpy(words, &value, sizeof value);
  for (size_t word = 0; word < (sizeof(Value) + 3) / 4; ++word) shuffle(mask, &words[word], source, line);
  memcpy(&value, words, sizeof value);
  return value;
}
}  // namespace heron

template <class Value>
inline Value __shfl_sync(unsigned mask, Value value, int from, int width = 32, HERON_LINE) {
  int lane = heron::current->lane;
  return heron::shuffle_value(mask, value, (lane & -width) | (from & (width - 1)), line);
}
template <class Value>
inline Value __shfl_up_sync(unsigned mask, Value value, unsigned by, int width = 32, HERON_LINE) {
  int lane = heron::current->lane, from = lane - (int)by;
  return heron::shuffle_value(mask, value, from < (lane & -width) ? lane : from, line);
}
template <class Value>
inline Value __shfl_down_sync(unsigned mask, Value value, unsigned by, int width = 32, HERON_LINE) {
  int lane = heron::current->lane, from = lane + (int)by;
  return heron::shuffle_value(mask, value, from >= (lane & -width) + width ? lane : from, line);
}
template <class Value>
inline Value __shfl_xor_sync(unsigned mask, Value value, int with, int width = 32, HERON_LINE) {
  int lane = heron::current->lane, from = lane ^ with;
  return heron::shuffle_value(mask, value, from >= (lane & -width) + width ? lane : from, line);
}

// ---- fragments -----------------------------------------------------------------------------------------------------

namespace nvcuda {
namespace wmma {
struct row_major {};
struct col_major {};
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
enum layout_t { mem_row_major, mem_col_major };

template <class Type>
struct ElementOf;
template <>
struct ElementOf<__half> : std::integral_constant<heron::Element, heron::HALF> {};
template <>
struct ElementOf<__nv_bfloat16> : std::integral_constant<heron::Element, heron::BFLOAT> {};
template <>
struct ElementOf<float> : std::integral_constant<heron::Element, heron::FLOAT> {};
template <>
struct ElementOf<signed char> : std::integral_constant<heron::Element, heron::SIGNED> {};
template <>
struct ElementOf<unsigned char> : std::integral_constant<heron::Element, heron::UNSIGNED> {};
template <>
struct ElementOf<int> : std::integral_constant<heron::Element, heron::INT> {};

template <class Role, int M, int N, int K, class Type, class Layout = void>
struct fragment : heron::Tile {
  static_assert(K == 16 && ((M == 16 && N == 16) || (M == 32 && N == 8) || (M == 8 && N == 32)),
                "fragments are of 16x16x16, 32x8x16 or 8x32x16");
  static constexpr bool sums = std::is_same<Role, accumulator>::value;
  static constexpr heron::Element kind = ElementOf<Type>::value;
  static_assert(sums == (kind == heron::FLOAT || kind == heron::INT) || kind == heron::HALF,
                "operands are of 8 or 16 bits, sums float, int or half");
  using type = Type;
  fragment()
      : heron::Tile(std::is_same<Role, matrix_b>::value ? K : M, std::is_same<Role, matrix_a>::value ? K : N, kind) {}
};

template <class Role, int M, int N, int K, class Type, class Layout>
inline void fill_fragment(fragment<Role, M, N, K, Type, Layout>& to,
                          const typename fragment<Role, M, N, K, Type, Layout>::type& value, HERON_LINE) {
  heron::tile_fill(to, (float)value, (int)value, line);
}
template <class Role, int M, int N, int K, class Type, class Layout>
inline void load_matrix_sync(fragment<Role, M, N, K, Type, Layout>& to, const Type* from, unsigned stride, HERON_LINE) {
  static_assert(!std::is_void<Layout>::value, "an accumulator is loaded with its layout");
  heron::tile_load(to, from, stride, std::is_same<Layout, col_major>::value, line);
}
template <int M, int N, int K, class Type>
inline void load_matrix_sync(fragment<accumulator, M, N, K, Type>& to, const Type* from, unsigned stride,
                             layout_t layout, HERON_LINE) {
  heron::tile_load(to, from, stride, layout == mem_col_major, line);
}
template <int M, int N, int K, class Type>
inline void store_matrix_sync(Type* to, const fragment<accumulator, M, N, K, Type>& from, unsigned stride,
                              layout_t layout, HERON_LINE) {
  heron::tile_store(to, from, stride, layout == mem_col_major, line);
}
template <int M, int N, int K, class Sum, class A, class LayoutA, class B, class LayoutB, class Start>
inline void mma_sync(fragment<accumulator, M, N, K, Sum>& d, const fragment<matrix_a, M, N, K, A, LayoutA>& a,
                     const fragment<matrix_b, M, N, K, B, LayoutB>& b,
                     const fragment<accumulator, M, N, K, Start>& c, HERON_LINE) {
  static_assert(std::is_same<A, B>::value, "both operands are of one type");
  static_assert((sizeof(A) == 1) == std::is_same<Sum, int>::value, "integers add up to int");
  static_assert((sizeof(A) == 1) == std::is_same<Start, int>::value, "integers add up to int");
  static_assert(!std::is_same<A, __nv_bfloat16>::value || std::is_same<Sum, float>::value, "bfloat16 adds up to float");
  heron::tile_multiply(d, a, b, c, line);
}
}  // namespace wmma
}  // namespace nvcuda
