// What the translated functions (translate.py) are written in.

typedef unsigned long long Bits;
#define INFINITE __longlong_as_double(0x7ff0000000000000)

// ── arrays as the translated functions read and write them: whole numbers are int64 ──

template <class E> struct As { typedef Long Number; };
template <> struct As<Bits> { typedef Bits Number; };
template <> struct As<const Bits> { typedef Bits Number; };
template <> struct As<double> { typedef double Number; };
template <> struct As<const double> { typedef double Number; };
template <> struct As<float> { typedef double Number; };

template <class V> struct Unreferenced { typedef V type; };
template <class V> struct Unreferenced<V &> { typedef V type; };
template <class V> using Bare = typename Unreferenced<V>::type;

template <int N> struct Several { Long at[N]; };

INLINE Long larger(Long a, Long b) { return a > b ? a : b; }
INLINE double larger(double a, double b) { return a > b ? a : b; }
INLINE Long smaller(Long a, Long b) { return a < b ? a : b; }
INLINE double smaller(double a, double b) { return a < b ? a : b; }
INLINE double absolute(double a) { return fabs(a); }
INLINE double number_of(Bits bits) { return __longlong_as_double(Long(bits)); }
INLINE Bits bits_of(double number) { return Bits(__double_as_longlong(number)); }

// An array; with rows of W numbers, a table.
template <class E, int W = 1> struct Plain {
    E *at;
    INLINE typename As<E>::Number get(Long i, Long j = 0) const { return at[i * W + j]; }
    template <class V> INLINE void set(Long i, V value) const { at[i] = E(value); }
    template <class V> INLINE void set(Long i, Long j, V value) const { at[i * W + j] = E(value); }
};

// An array, or a table, whose sizes are known when the kernel is launched.
template <class E> struct Table {
    E *at;
    Long width, n;
    INLINE Long length() const { return n; }
    INLINE typename As<E>::Number get(Long i) const { return at[i]; }
    INLINE typename As<E>::Number get(Long i, Long j) const { return at[i * width + j]; }
    template <class V> INLINE void set(Long i, V value) const { at[i] = E(value); }
    template <class V> INLINE void set(Long i, Long j, V value) const { at[i * width + j] = E(value); }
};

// One of a thread's own: number i of all threads, then number i + 1 of all threads.
template <class E, int W = 1> struct Own {
    E *at;
    unsigned threads;
    INLINE typename As<E>::Number get(Long i, Long j = 0) const { return at[unsigned(i * W + j) * threads]; }
    template <class V> INLINE void set(Long i, V value) const { at[unsigned(i) * threads] = E(value); }
    template <class V> INLINE void set(Long i, Long j, V value) const { at[unsigned(i * W + j) * threads] = E(value); }
};

// A thread's share of the scratch memory, array by array.
struct Memory {
    char *next;
    unsigned thread, threads;
    template <class E, int W = 1> INLINE Own<E, W> take(Long n)
    {
        E *at = reinterpret_cast<E *>(next) + thread;
        next += n * W * Long(sizeof(E)) * threads;
        return Own<E, W>{at, threads};
    }
};

INLINE Memory memory_of(char *scratch, int threads)
{
    return Memory{scratch, unsigned(blockIdx.x * blockDim.x + threadIdx.x), unsigned(threads)};
}
