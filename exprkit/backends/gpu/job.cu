// What all kernels of the GPU interpreter share: what the host defines, and what it hands to every launch.
//
// The first of four texts that the host joins (opcodes.py): job.cu, arithmetic.cu, interpreter.cu, support.cu.  The kernels
// that differentiate follow the first two (dual_opcodes.py).
//
// The host defines (nvrtc.py):
//
//     REAL          float or double                       LANES      32 (1 where a CPU runs this text)
//     VECTORS       16-byte vectors of a thread           BLOCK      threads of a block
//     TASK          VALUES, SQUARE or ABSOLUTE            REDUCTION  SHUFFLE, SHARED or ATOMIC
//     WIDE          1: rows of results begin at multiples of 16 bytes
//     WEIGHTED, COUNTED, COLUMNS_SHARED, APPROXIMATE_DIVISION, APPROXIMATE_ROOT    0 or 1
//     PAIRS         1 where the low parts of pairs are used
//     FLUSH         ".ftz" or "": what the hardware's approximations do with subnormals
//     SUPPORT       1: the kernels before and after, not the interpreter
//     MIN_BLOCKS    of one multiprocessor: limits the registers of a thread
//     STACK         deepest stack of the per-expression kernel
//     ADDERS        threads that add up an item's chunks: a power of two, 256 at the most

enum { VALUES, SQUARE, ABSOLUTE };
enum { SHUFFLE, SHARED, ATOMIC };
enum { END = 1, LOAD = 2, SPILL = 4, SLOT = 8 };          // of a word's action
enum { NO_NUMBER, PARAMETER, CONSTANT, RESULT };          // where a number comes from: index << 2 | this
enum { T_CONSTANT, T_VARIABLE, T_PARAMETER, T_OPERATOR, T_STOP };  // tokens of the postfix form

typedef REAL T;
typedef long long Long;

constexpr int WIDTH = 16 / sizeof(T);      // numbers in a vector
constexpr int POINTS = VECTORS * WIDTH;    // points of a thread
constexpr int CHUNK = LANES * WIDTH;       // points of a warp's vector; float32 sums go no further
constexpr int TILE = VECTORS * CHUNK;      // points of a warp
constexpr int WARPS = BLOCK / LANES;

struct __align__(16) Vector { T at[WIDTH]; };
struct __align__(8) Word { unsigned action, places; };
struct __align__(2 * sizeof(T)) Number { T high, low; };
struct __align__(16) Record { unsigned action, places; Number number; };
struct __align__(16) Step { int code, a, b, result; };  // of a prologue; result: index << 1 | is a pair

struct __align__(16) Run { int item, n_items, word, n_words; };  // word: the first, in the stream of all sets

struct Job {
    // programs
    const Word *words;           // (n_words)
    const int *first_word;       // (n_exprs)
    const int *sources;          // (n_words) the words' numbers
    const Step *steps;           // prologues
    const int *first_step;       // (n_exprs + 1)
    const T *constants;
    Number *numbers;             // (n_sets, n_words)
    T *results;                  // (n_sets, n_results) of the prologues
    const T *params;             // (n_sets, n_exprs, max_params)
    // data
    const T *data;               // as the user gave it, two strides
    const int *column_code, *column_var, *column_low;
    T *columns;                  // (n_columns, pitch)
    const T *target, *weights;   // (n_points)
    // work: unit u is slab u / n_tiles of the items on tile u % n_tiles; block b has units b, b + gridDim.x, ...
    const Run *runs;             // (n_slabs, n_runs) of consecutive items; those without items are the last of a slab
    // results
    T *out;                      // (items, n_points)
    T *partials;                 // (items, n_chunks)
    double *sums;                // (items)
    unsigned long long *nonfinite;  // (items, 2): nan, inf
    Long n_points, pitch, stride_point, stride_variable, n_items, first_chunk;
    int n_exprs, n_words, n_sets, max_params, n_columns, n_slots, n_results, n_chunks, add_to_sums;
    int first_tile, n_tiles, n_units, n_runs;
    int expression, max_tokens;  // of the per-expression kernel
    const unsigned char *token_kinds;  // padded to max_tokens with T_STOP
    const int *token_values;
    const T *token_numbers;
};

#define INLINE __device__ __forceinline__

// ── launches that overlap, from sm_90 on ─────────────────────────────────────────────

#ifndef EMULATED
// Let the next launch begin: it may prepare itself, and waits before it reads what this one writes.
INLINE void let_next_begin()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Wait until the launch before has written everything.
INLINE void wait_for_previous()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
#endif
