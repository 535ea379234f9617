// What all kernels of the GPU backends share: what the host defines, and what it hands to every launch.
//
// The host joins texts (opcodes.py): common.cu, arithmetic.cu and those of the interpreter, support.cu, or those of
// the kernels that differentiate.  A name in braces behind // stands for what layout.py or the table of operators has.
//
// The host defines (nvrtc.py):
//
//     REAL          float or double                       LANES      32 (1 where a CPU runs this text)
//     VECTORS       16-byte vectors of a thread           BLOCK      threads of a block
//     TASK          VALUES, SQUARE, ABSOLUTE, SUM or TEXT
//     WIDE          1: rows of results begin at multiples of 16 bytes
//     TARGETS       numbers of a point that the loss of TEXT reads; WEIGHTED: the last of them is the weight
//     ONE_TILE      1: a tile has all points, so a warp has all of an item's sum
//     WEIGHTED, COUNTED, COLUMNS_SHARED, APPROXIMATE_DIVISION, APPROXIMATE_ROOT    0 or 1
//     POWERS        0: without powers and other code that needs many registers
//     PAIRS         1 where the low parts of double-doubles are used
//     FLUSH         ".ftz" or "": what the hardware's approximations do with subnormals
//     SUPPORT       1: the kernels before and after, not the interpreter
//     MIN_BLOCKS    of one multiprocessor: limits the registers of a thread
//     FRACTION      bits behind the point of results in 16 bits: 10 (float16) or 7 (bfloat16)
//     ADDERS        threads that add up an item's segments: a power of two, 256 at the most

//{actions}
//{sources}
//{modes}

typedef REAL T;
typedef long long Long;

constexpr int WIDTH = 16 / sizeof(T);  // numbers in a vector
constexpr int POINTS = VECTORS * WIDTH;          // points of a thread
constexpr int SEGMENT = LANES * WIDTH;           // points of a warp's vector; float32 sums go no further
constexpr int TILE = VECTORS * SEGMENT;          // points of a warp
constexpr int WARPS = BLOCK / LANES;

struct __align__(16) Vector { T at[WIDTH]; };
struct __align__(2 * sizeof(T)) DoubleDouble { T high, low; };

//{Instruction}
//{Step}
//{Chunk}
//{Arguments}
struct __align__(16) Record { unsigned action, places; DoubleDouble immediate; };  // an instruction in the buffer

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

// Let the host see a number, and all that was written for it before.
INLINE void tell(Long *place, Long number)
{
    __threadfence_system();
    *const_cast<volatile Long *>(place) = number;
}
