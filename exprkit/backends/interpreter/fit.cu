// Derivatives and fits on the GPU: the whole parameter optimisation of an expression in one launch.
//
// What is computed, plainly:
//
//     for every expression and start, BLOCK threads:                 (FITS of them at a time in a block)
//         parameters = the start
//         repeat:
//             for TILE points, a warp:                               (POINTS points per thread)
//                 run the program on values with TANGENTS tangents   (d value / d parameter)
//                 add the points' shares of loss, J'r and J'J to the thread's sums
//             add up over threads and warps, in float64
//             one thread: was it a good step? then the next step's parameters (Levenberg-Marquardt)
//
// One evaluation an iteration serves as the trial of a step and as the normal equations of the next.
// TASK: NORMAL, GRADIENT and JACOBIAN stop behind the first evaluation and hand over what they have.
// Values have the type T, the algebra of a step is float64.
//
// The last of three texts (tangents.cu says which): the steps of a fit, and the kernels.  The host defines, besides
// the macros of equations.cu:
//
//     GLOBAL_ARENA  1 where shared memory is too little       BOUNDED  1 where parameters have bounds
//
// What a fit does with the sums: levenberg_marquardt.py, translated.

// ── the state of a fit, as the steps of levenberg_marquardt.py read and write it ─────

//{arrays}
//{fit states}
//{Progress}
constexpr int PROGRESS_BYTES = sizeof(Progress);

struct OneProgress { Progress *at; INLINE Progress &get(Long) const { return *at; } };
struct Triangle {  // the lower half of a symmetric matrix
    double *at;
    INLINE double get(int i, int j) const { return at[i * (i + 1) / 2 + j]; }
    INLINE void set(int i, int j, double value) const { at[i * (i + 1) / 2 + j] = value; }
};

// A fit in the block's memory: of n parameters p, trial, step and scale, the sums now, a factor, the sums of the trial.
struct State {
    Progress *progress;
    double *numbers, *sums;
    int n_many;

    INLINE int n() const { return MANY ? n_many : TANGENTS; }
    INLINE int n_sums() const { return 1 + n() + n() * (n() + 1) / 2; }
    INLINE double *trial() const { return numbers + n(); }
    INLINE double *now() const { return numbers + 4 * n(); }  // loss, J'r, J'J
};

INLINE State state_of(const FitArguments &args, char *arena, int n)
{
    char *at = arena + args.state;
    State state = {reinterpret_cast<Progress *>(at), reinterpret_cast<double *>(at + PROGRESS_BYTES), nullptr, n};
    state.sums = state.now() + state.n_sums() + state.n() * (state.n() + 1) / 2;
    return state;
}

// The same as levenberg_marquardt.py names it.
struct Fit {
    OneProgress progress;
    Plain<double> p, trial, step, scale, loss, jtr;
    Triangle jtj, factor;
};

INLINE Fit fit_of(const State &s)
{
    const int n = s.n();
    return Fit{{s.progress}, {s.numbers}, {s.trial()}, {s.numbers + 2 * n}, {s.numbers + 3 * n}, {s.now()}, {s.now() + 1},
               {s.now() + 1 + n}, {s.now() + s.n_sums()}};
}

struct Ends {
    const double *at;
    double none;
    INLINE double get(Long i) const { return BOUNDED && at ? at[i] : none; }
};
struct Terms {
    Long n;
    Ends lower, upper;
    double tol, gtol, limit;
    int max_iter, patience, verdict;
    Bits linear;
    static constexpr bool bounded = BOUNDED;
};

INLINE Terms terms_of(const FitArguments &args, int e)
{
    const Long at = Long(e) * args.max_params;
    const Ends lower = {args.lower ? args.lower + at : nullptr, -MOST}, upper = {args.upper ? args.upper + at : nullptr, MOST};
    return Terms{MANY ? args.n_params[e] : TANGENTS, lower, upper, args.tol, args.gtol, args.limits ? args.limits[e] : MOST,
                 args.max_iter, args.patience, args.verdicts[e], args.linear ? args.linear[e] : 0};
}

INLINE double as_evaluated(double p) { return double(T(p)); }

// The sums of the trial begin with its loss.
INLINE void keep_equations(const Fit &fit, const Terms &terms, const double *sums)
{
#pragma unroll
    for (int i = 0; i < 1 + terms.n + terms.n * (terms.n + 1) / 2; ++i) fit.loss.at[i] = sums[i];
}

namespace steps {
typedef int Long;  // counts and bits of reasons, which needs fewer registers
using ::larger, ::smaller;
INLINE int larger(int a, int b) { return a > b ? a : b; }
INLINE int smaller(int a, int b) { return a < b ? a : b; }

//{steps}
}

// After an evaluation: take it in, and say where the next one is.
INLINE void take_step(const State &state, const Terms &terms)
{
    state.progress->status = steps::advance(fit_of(state), terms, state.sums, state.sums[0]);
}

// Whether a step's numbers fit into the registers that the points leave.
constexpr bool IN_REGISTERS = !MANY && !BOUNDED && !GLOBAL_ARENA && TANGENTS <= (sizeof(T) == 4 ? 3 : 2);

// The same, of few parameters in registers.
INLINE void take_step_in_registers(const State &stored, const Terms &terms)
{
    constexpr int TRIANGLE = TANGENTS * (TANGENTS + 1) / 2, KEPT = 5 * TANGENTS + 1 + TRIANGLE;
    Progress progress = *stored.progress;
    double numbers[KEPT + TRIANGLE];
    const State state = {&progress, numbers, stored.sums, TANGENTS};
#pragma unroll
    for (int i = 0; i < KEPT; ++i) numbers[i] = stored.numbers[i];
    take_step(state, terms);
#pragma unroll
    for (int i = 0; i < KEPT; ++i) stored.numbers[i] = numbers[i];
    *stored.progress = progress;
}

INLINE void begin_at(const FitArguments &args, const State &state, int e, const double *start)
{
    steps::begin(fit_of(state), terms_of(args, e), Plain<const double>{start}, args.n_params[e]);
    state.progress->status = RUNNING;
}

// ── an expression with a set of parameters, or a start ───────────────────────────────

struct Item {
    int e, n_params;
    Long row;  // set and expression
    Program program;
};

INLINE void finish_fit(const FitArguments &args, const Item &item, const State &state)
{
    const bool lost = state.progress->status == NOT_FINITE;
    for (int i = thread(); i < args.max_params; i += BLOCK)
        args.params[item.row * args.max_params + i] = i < item.n_params ? state.numbers[i] : nan("");
    if (thread()) return;
    args.loss[item.row] = lost ? nan("") : state.now()[0];
    args.iterations[item.row] = state.progress->iterations;
    args.evaluations[item.row] = state.progress->evaluations;
    args.status[item.row] = (unsigned char)(state.progress->status);
}

INLINE void write_normal(const FitArguments &args, const Item &item, const State &state)
{
    const double *sums = state.sums;
    const int n = item.n_params, most = args.max_params;
    if (thread() == 0) args.loss[item.row] = sums[0];
    for (int i = thread(); i < n; i += BLOCK) args.jtr[item.row * most + i] = sums[1 + i];
    for (int i = thread(); i < n * n; i += BLOCK) {
        const int row = max(i / n, i % n), column = min(i / n, i % n);
        args.jtj[(item.row * most + i / n) * most + i % n] = sums[1 + state.n() + row * (row + 1) / 2 + column];
    }
}

INLINE void write_jacobian(const FitArguments &args, const Item &item, const Frame &frame, const Entry *entries, int first)
{
    const int lane = thread() % LANES * WIDTH;
    for (int tile = thread() / LANES * TILE; tile < args.n_points; tile += WARPS * TILE) {
        Dual acc;
        run(frame.at(tile + lane), entries, acc);
#pragma unroll
        for (int k = 0; k < POINTS; ++k) {
            const int point = tile + lane + k / WIDTH * SEGMENT + k % WIDTH;
#pragma unroll
            for (int t = 0; t < TANGENTS; ++t)
                if (point < args.n_points && first + t < item.n_params)
                    args.jacobian[(item.row * args.n_points + point) * args.max_params + first + t] = acc.tangent[t][k];
        }
    }
}

// Loss and gradient, or J: of as many parameters at a time as there are tangents.
INLINE void derive(const FitArguments &args, const Item &item, const Frame &frame, char *arena, const double *params)
{
    Entry *entries = reinterpret_cast<Entry *>(arena + args.entries);
    double *scratch = reinterpret_cast<double *>(arena + args.sums), *total = scratch + WARPS * N_SUMS;
    for (int first = 0; first < max(item.n_params, 1); first += TANGENTS) {
        sync();
        make_entries(args, item.e, item.program, arena, params, first, entries);
        sync();
        if (TASK == JACOBIAN) {
            write_jacobian(args, item, frame, entries, first);
            continue;
        }
        double sum[N_SUMS];
        bool strong = false;
        sum_points(args, frame, entries, sum, strong, MOST);
        add_threads(sum, scratch, total);
        for (int t = thread(); t < TANGENTS; t += BLOCK)
            if (first + t < item.n_params) args.jtr[item.row * args.max_params + first + t] = total[1 + t];
        if (thread() == 0 && first == 0) args.loss[item.row] = total[0];
    }
}

// Loss, J'r and J'J at the trial.
INLINE void make_sums(const FitArguments &args, const Item &item, const Frame &frame, char *arena, const State &state, bool &strong)
{
    Entry *entries = reinterpret_cast<Entry *>(arena + args.entries);
    for (int first = 0; first < (MANY ? item.n_params : 1); first += TANGENTS)
        make_entries(args, item.e, item.program, arena, state.trial(), first, entries + first / TANGENTS * args.max_instructions);
    sync();
    if (MANY) {
        sum_rows(args, frame, arena, entries, item.n_params, state.sums, strong);
    } else {
        double sum[N_SUMS];
        sum_points(args, frame, entries, sum, strong, state.progress->phase == AT_STEP ? state.now()[0] : MOST);
        add_threads(sum, reinterpret_cast<double *>(arena + args.sums), state.sums);
    }
}

INLINE Item item_of(const FitArguments &args, Long number)
{
    Item item;
    item.e = args.order[number / args.n_sets];
    item.row = number % args.n_sets * args.n_exprs + item.e;
    item.n_params = args.n_params[item.e];
    item.program = program_of(args, item.e);
    return item;
}

INLINE void normal_equations(const FitArguments &args, const Item &item, const Frame &frame, char *arena, const double *params)
{
    const State state = state_of(args, arena, item.n_params);
    bool strong = false;
    if (thread() == 0) begin_at(args, state, item.e, params);
    sync();
    make_sums(args, item, frame, arena, state, strong);
    write_normal(args, item, state);
}

// ── fits ─────────────────────────────────────────────────────────────────────────────

// The next fit that nobody has taken; a block of one fit ends with it, and the device starts the next block.
INLINE Long next_number(const FitArguments &args)
{
    return FITS > 1 ? Long(gridDim.x) * FITS + Long(atomicAdd(args.taken, 1ull)) : Long(args.n_here) * args.n_sets;
}

// Begin the fit of that number, or of the next one that is wanted; its number is -1 where there is none.
INLINE void begin_fit(const FitArguments &args, const State &fresh, Long number)
{
    for (; number < Long(args.n_here) * args.n_sets; number = next_number(args)) {
        const int e = args.order[number / args.n_sets];
        if (args.ended && !(SPOILED >> args.ended[e] & 1)) continue;
        const State state = State{fresh.progress, fresh.numbers, nullptr, args.n_params[e]};
        const Long row = number % args.n_sets * args.n_exprs + e;
        begin_at(args, state, e, args.starts + row * args.max_params);
        state.progress->number = number;
        state.progress->expression = e;
        return;
    }
    fresh.progress->number = -1;
}

// The step of one fit, by one thread.
INLINE void make_step(const FitArguments &args, char *arena)
{
    const Progress &progress = *reinterpret_cast<Progress *>(arena + args.state);
    if (progress.number < 0) return;
    const int e = progress.expression;
    const State state = state_of(args, arena, args.n_params[e]);
    const Terms terms = terms_of(args, e);
    if (IN_REGISTERS) take_step_in_registers(state, terms);
    else take_step(state, terms);
}

INLINE bool any_of_block(bool yes) { return FITS > 1 ? __syncthreads_or(yes) : yes; }
INLINE void sync_block() { if (FITS > 1) __syncthreads(); else sync(); }

// Fits, FITS at a time: the points of each by threads of its own, the steps of all by neighbouring lanes, which
// read their long code together.  Whose fit has ended takes the next one.
INLINE void optimise(const FitArguments &args, char *arenas, char *arena, const Frame &frame)
{
    State state = state_of(args, arena, 0);
    Item item;
    bool strong = false, begins = true;
    if (thread() == 0) begin_fit(args, state, args.first_item + Long(blockIdx.x) * FITS + place());
    sync();
    while (any_of_block(state.progress->number >= 0)) {
        const Long number = state.progress->number;
        if (number >= 0) {
            if (begins) {
                item = item_of(args, number);
                state = state_of(args, arena, item.n_params);
                strong = begins = false;
            }
            make_sums(args, item, frame, arena, state, strong);
        }
        sync_block();
        if (threadIdx.x < FITS) make_step(args, arenas + threadIdx.x * args.arena_bytes);
        sync_block();
        if (number < 0 || state.progress->status == RUNNING) continue;
        finish_fit(args, item, state);
        sync();
        if (thread() == 0) begin_fit(args, state, next_number(args));
        sync();
        begins = true;
    }
}

extern "C" __global__ void __launch_bounds__(FITS * BLOCK, MIN_BLOCKS) fit(const FitArguments args)
{
    extern __shared__ Vector shared[];
    char *arenas = GLOBAL_ARENA ? args.arena + blockIdx.x * args.arena_bytes : reinterpret_cast<char *>(shared);
    char *arena = arenas + place() * args.arena_bytes, *own = arena + args.slots + thread() / LANES * args.warp_bytes;
    const Frame frame = {args.columns, reinterpret_cast<Vector *>(own) + thread() % LANES,
                         reinterpret_cast<unsigned *>(own + args.actives) + thread() % LANES, args.pitch};
    if constexpr (TASK == FIT) {
        optimise(args, arenas, arena, frame);
    } else {
        const Item item = item_of(args, args.first_item + blockIdx.x);
        const double *params = args.starts + item.row * args.max_params;
        if constexpr (TASK == NORMAL) normal_equations(args, item, frame, arena, params);
        else derive(args, item, frame, arena, params);
    }
}
