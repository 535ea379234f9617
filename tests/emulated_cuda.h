// CUDA C for a C++ compiler: the interpreter's kernels as a plain program, one thread at a time, a warp of one lane.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <mutex>

#define EMULATED
#define __global__
#define __device__
#define __shared__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
using std::min, std::max, std::fma, std::fmin, std::fmax, std::fmod, std::fabs, std::sqrt, std::exp, std::exp2, std::log,
    std::log2, std::log10, std::log1p, std::expm1, std::sin, std::cos, std::tan, std::asin, std::acos, std::atan,
    std::atan2, std::sinh, std::cosh, std::tanh, std::asinh, std::acosh, std::atanh, std::erf, std::erfc, std::tgamma,
    std::lgamma, std::cbrt, std::hypot, std::pow, std::floor, std::ceil, std::rint, std::copysign, std::frexp, std::nan;

struct Index { int x, y; };
static Index threadIdx, blockIdx, blockDim, gridDim;
struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };

inline void __syncthreads() {}
inline void __threadfence() {}
inline void __threadfence_system() {}
inline int __syncthreads_or(int yes) { return yes; }
inline void __syncwarp() {}
inline void let_next_begin() {}
inline void wait_for_previous() {}
inline unsigned __ballot_sync(unsigned, bool yes) { return yes; }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline bool __all_sync(unsigned, bool yes) { return yes; }
template <class V> void __stcs(V *at, V value) { std::memcpy(at, &value, sizeof value); }
template <class V> V __shfl_xor_sync(unsigned, V value, int) { return value; }
template <class V> V __shfl_sync(unsigned, V value, int) { return value; }
template <class V> V __shfl_up_sync(unsigned, V value, int) { return value; }
template <class V> V atomicAdd(V *at, V more) { V old = *at; *at += more; return old; }
template <class V> V atomicMin(V *at, V other) { V old = *at; *at = std::min(old, other); return old; }
template <class V> V atomicCAS(V *at, V expected, V other) { V old = *at; if (old == expected) *at = other; return old; }

inline long long __double_as_longlong(double a) { long long bits; std::memcpy(&bits, &a, 8); return bits; }
inline double __longlong_as_double(long long bits) { double a; std::memcpy(&a, &bits, 8); return a; }
template <class V> V atomicOr(V *at, V more) { V old = *at; *at |= more; return old; }
template <class V> V atomicMax(V *at, V other) { V old = *at; *at = std::max(old, other); return old; }

inline double approximate_inverse(double a) { return 1.0 / a; }
inline float approximate_exp2(float a) { return std::exp2(a); }
inline float approximate_log2(float a) { return std::log2(a); }
inline float approximate_reciprocal(float a) { return 1.0f / a; }
inline int __float_as_int(float a) { int i; std::memcpy(&i, &a, 4); return i; }
inline float __int_as_float(int i) { float a; std::memcpy(&a, &i, 4); return a; }
inline float flushed_exp2(float a) { return std::exp2(a); }
inline float flushed_reciprocal(float a) { return 1.0f / a; }
inline float approximate_root(float a) { return std::sqrt(a); }
inline float approximate_sin(float a) { return std::sin(a); }
inline float approximate_cos(float a) { return std::cos(a); }
inline float approximate_quotient(float a, float b) { return a / b; }

struct Vector;
static Vector *shared;
inline unsigned shared_address(const void *) { return 0; }
template <class V> V load_shared(unsigned address)
{
    V value;
    std::memcpy(&value, reinterpret_cast<const char *>(shared) + address, sizeof value);
    return value;
}
template <class V> void store_shared(unsigned address, V value)
{
    std::memcpy(reinterpret_cast<char *>(shared) + address, &value, sizeof value);
}
template <class V> void begin_copy(unsigned to, const V *from) { store_shared(to, *from); }
inline void group_copies() {}
template <int> void end_copies() {}
