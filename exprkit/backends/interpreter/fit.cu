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
// What is accepted, how the damping changes and why a fit ends: the table of decisions.py, which writes:

//{decisions}

// ── Levenberg-Marquardt, by one thread ───────────────────────────────────────────────

//{Progress}
constexpr int PROGRESS_BYTES = sizeof(Progress);

// A fit in the block's memory: of n parameters p, trial, step and scale, the sums now, a factor, the sums of the trial.
struct State {
    Progress *now_at;
    double *numbers, *sums;
    int n_many;

    INLINE int n() const { return MANY ? n_many : TANGENTS; }
    INLINE int n_sums() const { return 1 + n() + n() * (n() + 1) / 2; }
    INLINE Progress &progress() const { return *now_at; }
    INLINE double &p(int i) const { return numbers[i]; }
    INLINE double &trial(int i) const { return numbers[n() + i]; }
    INLINE double &step(int i) const { return numbers[2 * n() + i]; }
    INLINE double &scale(int i) const { return numbers[3 * n() + i]; }
    INLINE double *now() const { return numbers + 4 * n(); }
    INLINE double *next() const { return sums; }
    INLINE double &loss() const { return now()[0]; }
    INLINE double &g(int i) const { return now()[1 + i]; }
    INLINE double &a(int i, int j) const { return now()[1 + n() + i * (i + 1) / 2 + j]; }  // i >= j
    INLINE double &factor(int i, int j) const { return now()[n_sums() + i * (i + 1) / 2 + j]; }
};

INLINE State state_of(const FitArguments &args, char *arena, int n)
{
    char *at = arena + args.state;
    double *numbers = reinterpret_cast<double *>(at + PROGRESS_BYTES);
    State state = {reinterpret_cast<Progress *>(at), numbers, nullptr, n};
    state.sums = &state.factor(state.n(), 0);
    return state;
}

struct Bounds {
    const double *lower, *upper;

    INLINE double low(int i) const { return BOUNDED && lower ? lower[i] : -MOST; }
    INLINE double high(int i) const { return BOUNDED && upper ? upper[i] : MOST; }
    // What is evaluated: a parameter of type T within its bounds.
    INLINE double nearest(double p, int i) const { return p != p ? p : min(max(double(T(p)), low(i)), high(i)); }
    // The same after a step, exactly at a bound that the step meets.
    INLINE double after(double p, double step, int i) const
    {
        if (!BOUNDED) return nearest(p + step, i);
        return step >= high(i) - p ? high(i) : step <= low(i) - p ? low(i) : nearest(p + step, i);
    }
};

// What a fit of one expression is told.
struct Terms {
    double tol, gtol, limit;
    int max_iter, patience, verdict;
    unsigned long long linear;  // bits of the parameters that the expression is linear in
    Bounds bounds;
};

INLINE Terms terms_of(const FitArguments &args, int e, const Bounds &bounds)
{
    const double limit = args.limits ? args.limits[e] : MOST;
    return Terms{args.tol, args.gtol, limit, args.max_iter, args.patience, args.verdicts[e],
                 args.linear ? args.linear[e] : 0, bounds};
}

// Whether a parameter changes the values, by numbers that can be reckoned with.
INLINE bool is_usable(const State &s, int i) { return s.a(i, i) > 0.0 && is_finite(s.a(i, i)) && is_finite(s.g(i)); }

INLINE bool is_active(const State &s, const Bounds &bounds, int i)
{
    if (!is_usable(s, i)) return false;
    return !(s.p(i) <= bounds.low(i) && s.g(i) > 0.0) && !(s.p(i) >= bounds.high(i) && s.g(i) < 0.0);
}

// What the trial, as far as it stands beside p, adds to a parameter's J'r; ``pivot``: its damped diagonal.
INLINE double slope_of_trial(const State &s, int i, double pivot)
{
    double slope = s.trial(i) != 0.0 ? pivot * s.trial(i) : 0.0;
#pragma unroll
    for (int j = 0; j < s.n(); ++j)
        if (j != i && s.trial(j) != 0.0) slope = fma(i > j ? s.a(i, j) : s.a(j, i), s.trial(j), slope);
    return slope;
}

// Solve (J'J + damping D) step = -J'r for the active parameters that ``mask`` allows; false if that is not definite.
// Parameters in which the expression is linear have a small share of the damping.
// The factor holds L times its pivots below the diagonal, and on it the pivots' inverses, 0 for what takes no part.
// ``onward``: what takes part is known, and the step begins where the trial stands beside p.
INLINE bool solve_once(
    const State &s, const Terms &terms, double damping, unsigned long long mask, bool onward)
{
#pragma unroll
    for (int i = 0; i < s.n(); ++i) {
        const bool allowed = is_active(s, terms.bounds, i) && (i < 64 ? mask >> i & 1 : mask == ~0ull);
        const bool takes_part = onward ? s.factor(i, i) > 0.0 : allowed;
        const double share = i < 64 && terms.linear >> i & 1 ? FREE : 1.0;
        double rest = takes_part ? -s.g(i) : 0.0, pivot = fma(damping * share, s.scale(i), s.a(i, i));
        if (onward && takes_part) rest -= slope_of_trial(s, i, pivot);
#pragma unroll
        for (int j = 0; j < i; ++j) {
            double left = takes_part && s.factor(j, j) > 0.0 ? s.a(i, j) : 0.0;
#pragma unroll
            for (int k = 0; k < j; ++k) left = fma(-s.factor(i, k), s.factor(j, k) * s.factor(k, k), left);
            s.factor(i, j) = left;
            pivot = fma(-left * left, s.factor(j, j), pivot);
            rest = fma(-left * s.factor(j, j), s.step(j), rest);
        }
        s.step(i) = rest;
        s.factor(i, i) = takes_part ? inverse(pivot) : 0.0;
        if (takes_part && !(pivot > 0.0 && is_finite(s.factor(i, i)))) return false;
    }
#pragma unroll
    for (int i = s.n() - 1; i >= 0; --i) {
        double rest = s.step(i);
#pragma unroll
        for (int k = i + 1; k < s.n(); ++k) rest = fma(-s.factor(k, i), s.step(k), rest);
        s.step(i) = s.factor(i, i) * rest;
        if (!is_finite(s.step(i))) return false;
    }
    return true;
}

// How much of its step a parameter can go from where the trial stands until it meets a bound; 1 or more: all.
INLINE double share_of_step(const State &s, const Bounds &bounds, int i)
{
    const double step = s.step(i);
    if (!(s.factor(i, i) > 0.0) || step == 0.0) return 1.0;
    return ((step > 0.0 ? bounds.high(i) : bounds.low(i)) - s.p(i) - s.trial(i)) / step;
}

// The step of the active parameters, 0 for the others; false if the equations have no solution.  Where the way meets a
// bound, that parameter stays there and the rest is solved anew for the others; the trial holds how far all have come.
INLINE bool solve(const State &s, const Terms &terms, double damping, unsigned long long mask)
{
    const Bounds &bounds = terms.bounds;
    for (bool onward = false, left = true; left; onward = true) {
        if (!solve_once(s, terms, damping, mask, onward)) return false;
        if (!BOUNDED) return true;
        double share = 1.0;
#pragma unroll
        for (int i = 0; i < s.n(); ++i) {
            if (!onward) s.trial(i) = 0.0;
            share = min(share, share_of_step(s, bounds, i));
        }
        left = false;
#pragma unroll
        for (int i = 0; i < s.n(); ++i) {
            if (!(s.factor(i, i) > 0.0)) continue;
            if (share < 1.0 && share_of_step(s, bounds, i) <= share) {
                s.trial(i) = (s.step(i) > 0.0 ? bounds.high(i) : bounds.low(i)) - s.p(i);
                s.factor(i, i) = 0.0;
            } else {
                s.trial(i) = fma(share, s.step(i), s.trial(i));
                left |= share < 1.0;
            }
        }
    }
#pragma unroll
    for (int i = 0; i < s.n(); ++i) s.step(i) = s.trial(i);
    return true;
}

// Make the trial and the step that really leads there; the loss that the step should take off.
INLINE void make_trial(const State &s, const Bounds &bounds)
{
    double predicted = 0.0;
#pragma unroll
    for (int i = 0; i < s.n(); ++i) {
        s.trial(i) = bounds.after(s.p(i), s.step(i), i);
        s.step(i) = s.trial(i) - s.p(i);
        if (s.step(i) == 0.0) continue;  // perhaps of derivatives that are not finite
        double row = s.g(i);
#pragma unroll
        for (int j = 0; j < i; ++j) if (s.step(j) != 0.0) row = fma(s.a(i, j), s.step(j), row);
        predicted = fma(-2.0 * s.step(i), row + 0.5 * s.a(i, i) * s.step(i), predicted);
    }
    s.progress().predicted = predicted;
}

INLINE bool is_flat(const State &s, const Bounds &bounds, double gtol)
{
    bool flat = true;
#pragma unroll
    for (int i = 0; i < s.n(); ++i) {
        const double most = gtol * gtol * s.a(i, i) * s.loss();
        if (is_active(s, bounds, i) && !(s.g(i) * s.g(i) <= most && is_finite(most))) flat = false;
    }
    return flat || s.loss() == 0.0;
}

// The bits of GTOL or FLAT where there is no slope.
INLINE unsigned stationary(const State &s, const Terms &terms)
{
    if (!is_flat(s, terms.bounds, terms.gtol)) return 0;
    bool any = false;
#pragma unroll
    for (int i = 0; i < s.n(); ++i) any |= is_usable(s, i);
    return any ? 1u << GTOL : 1u << FLAT;
}

// Make the trial the point where the fit stands; ``anew``: what was seen before does not count for the scale.
INLINE void accept(const State &s, bool anew)
{
#pragma unroll
    for (int i = 0; i < s.n(); ++i) s.p(i) = s.trial(i);
#pragma unroll
    for (int i = 0; i < s.n_sums(); ++i) s.now()[i] = s.next()[i];
#pragma unroll
    for (int i = 0; i < s.n(); ++i) {
        const double a = is_finite(s.a(i, i)) ? s.a(i, i) : 0.0;
        s.scale(i) = anew ? a : max(FADING * s.scale(i), a);
    }
}

// The damping's factor after a step that helped: less, the better the model predicted it.
INLINE double eased(double gain, double predicted)
{
    const double way = 2.0 * gain * inverse(predicted) - 1.0;
    return predicted > 0.0 ? max(EASIER, 1.0 - way * way * way) : HARDER;
}

// Judge the step that was evaluated last and take it if it helped; the bits of the reasons to end.
INLINE unsigned judge(const State &s, const Terms &terms, bool &taken)
{
    const double loss = s.next()[0], gain = s.loss() - loss, predicted = s.progress().predicted;
    const bool settled = !(gain > terms.tol * s.loss()) && 0.0 <= predicted && predicted <= terms.tol * s.loss();
    taken = gain > 0.0 && is_finite(loss);
    s.progress().damping = max(LEAST_DAMPING, s.progress().damping * (taken ? eased(gain, predicted) : HARDER));
    return settled << FTOL;
}

// No parameter moves by more than its tolerance.
INLINE bool is_still(const State &s, double tol)
{
    double share = 0.0;  // of the values that the parameters make: the largest, squared
#pragma unroll
    for (int i = 0; i < s.n(); ++i) {
        const double part = s.p(i) * s.p(i) * s.a(i, i);
        if (part > share && is_finite(part)) share = part;
    }
    bool still = true;
#pragma unroll
    for (int i = 0; i < s.n(); ++i)
        if (s.step(i) != 0.0) {
            const double unit = sqrt(share / s.a(i, i));
            if (!(fabs(s.step(i)) <= tol * (fabs(s.p(i)) + tol * unit))) still = false;
        }
    return still;
}

// The status if there may be no other step.
INLINE int last_step(const State &s, const Terms &terms)
{
    const bool stuck = !(s.progress().damping <= MOST_DAMPING);
    const int steps = s.progress().iterations;
    const bool enough = steps >= terms.max_iter || (steps >= terms.patience && s.loss() > terms.limit);
    return first_reason(enough << MAX_ITER | stuck << STUCK);
}

// The status, unless a derivative is not finite: then that of success is another.
INLINE int final_reason(const State &s, int status)
{
    bool known = true;
#pragma unroll
    for (int i = 0; i < s.n(); ++i) known = known && is_finite(s.a(i, i)) && is_finite(s.g(i));
    return !known && status != RUNNING && CONVERGED >> status & 1 ? NO_SLOPE : status;
}

INLINE bool moves(const State &s)
{
    bool any = false;
#pragma unroll
    for (int i = 0; i < s.n(); ++i) any |= s.step(i) != 0.0;
    return any;
}

// Find the next trial: at first one of the linear parameters alone, if ``linear``, else of all; the status if there is none.
// ``holds``: the bits of the reasons to end; ``open``: whether no slope is one, too.  Long code stands here once, so that
// lanes with other fits run it together.
INLINE int propose(const State &s, const Terms &terms, bool linear, unsigned holds, bool open)
{
    while (true) {
        if (!linear) {
            if (open) holds |= stationary(s, terms);
            open = false;
            int status = first_reason(holds);
            if (status == RUNNING) status = last_step(s, terms);
            if (status != RUNNING) return status;
            ++s.progress().iterations;
        }
        const bool solved = solve(s, terms, linear ? LEAST_DAMPING : s.progress().damping, linear ? terms.linear : ~0ull);
        if (solved) make_trial(s, terms.bounds);
        if (linear && solved && moves(s)) {
            s.progress().phase = AT_LINEAR_STEP;
            return RUNNING;
        }
        if (!linear && solved) return first_reason(is_still(s, terms.tol) << XTOL);
        if (!linear) s.progress().damping *= HARDER;
        linear = false;
    }
}

// After an evaluation: take it in, and say where the next one is.
INLINE void advance(const State &s, const Terms &terms)
{
    ++s.progress().evaluations;
    const int phase = s.progress().phase;
    bool taken = phase == AT_START || s.next()[0] < s.loss();
    unsigned holds = 0;
    if (phase == AT_STEP) holds = judge(s, terms, taken);
    if (taken) accept(s, phase != AT_STEP);
    int status = RUNNING;
    if (phase != AT_STEP) status = terms.verdict != RUNNING ? terms.verdict : first_reason(!is_finite(s.loss()) << NOT_FINITE);
    s.progress().phase = AT_STEP;
    if (status == RUNNING) status = propose(s, terms, phase == AT_START && terms.linear, holds, taken || phase != AT_STEP);
    const bool fitted = terms.verdict == RUNNING && status != NOT_FINITE;
    s.progress().status = fitted ? final_reason(s, status) : status;
}

// Whether a step's numbers fit into the registers that the points leave.
constexpr bool IN_REGISTERS = !MANY && !BOUNDED && !GLOBAL_ARENA && TANGENTS <= (sizeof(T) == 4 ? 3 : 2);

// The same, of few parameters in registers.
INLINE void advance_in_registers(const State &stored, const Terms &terms)
{
    constexpr int TRIANGLE = TANGENTS * (TANGENTS + 1) / 2, KEPT = 5 * TANGENTS + 1 + TRIANGLE;
    Progress progress = *stored.now_at;
    double numbers[KEPT + TRIANGLE];
    const State s = {&progress, numbers, stored.sums, TANGENTS};
#pragma unroll
    for (int i = 0; i < KEPT; ++i) numbers[i] = stored.numbers[i];
    advance(s, terms);
#pragma unroll
    for (int i = 0; i < KEPT; ++i) stored.numbers[i] = numbers[i];
    *stored.now_at = progress;
}

INLINE void begin(const FitArguments &args, const State &s, const Bounds &bounds, const double *start, int n_params)
{
    s.progress().damping = FIRST_DAMPING;
    s.progress().iterations = s.progress().evaluations = 0;
    s.progress().status = RUNNING;
    s.progress().phase = AT_START;
    for (int i = 0; i < s.n(); ++i) s.trial(i) = i < n_params ? bounds.nearest(start[i], i) : 0.0;
}

// ── an expression with a set of parameters, or a start ───────────────────────────────

struct Item {
    int e, n_params;
    Long row;  // set and expression
    Program program;
};

INLINE void finish_fit(const FitArguments &args, const Item &item, const State &s)
{
    const bool lost = s.progress().status == NOT_FINITE;
    for (int i = thread(); i < args.max_params; i += BLOCK)
        args.params[item.row * args.max_params + i] = i < item.n_params ? s.p(i) : nan("");
    if (thread()) return;
    args.loss[item.row] = lost ? nan("") : s.loss();
    args.iterations[item.row] = s.progress().iterations;
    args.evaluations[item.row] = s.progress().evaluations;
    args.status[item.row] = (unsigned char)(s.progress().status);
}

INLINE void write_normal(const FitArguments &args, const Item &item, const State &s)
{
    const double *sums = s.next();
    const int n = item.n_params, most = args.max_params;
    if (thread() == 0) args.loss[item.row] = sums[0];
    for (int i = thread(); i < n; i += BLOCK) args.jtr[item.row * most + i] = sums[1 + i];
    for (int i = thread(); i < n * n; i += BLOCK) {
        const int row = max(i / n, i % n), column = min(i / n, i % n);
        args.jtj[(item.row * most + i / n) * most + i % n] = sums[1 + s.n() + row * (row + 1) / 2 + column];
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
        make_entries(args, item.e, item.program, arena, &state.trial(0), first, entries + first / TANGENTS * args.max_instructions);
    sync();
    if (MANY) {
        sum_rows(args, frame, arena, entries, item.n_params, state.next(), strong);
    } else {
        double sum[N_SUMS];
        sum_points(args, frame, entries, sum, strong, state.progress().phase == AT_STEP ? state.loss() : MOST);
        add_threads(sum, reinterpret_cast<double *>(arena + args.sums), state.next());
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

INLINE Bounds bounds_of(const FitArguments &args, int e)
{
    const Long at = Long(e) * args.max_params;
    return Bounds{args.lower ? args.lower + at : nullptr, args.upper ? args.upper + at : nullptr};
}

INLINE void normal_equations(const FitArguments &args, const Item &item, const Frame &frame, char *arena, const double *params)
{
    const State state = state_of(args, arena, item.n_params);
    bool strong = false;
    if (thread() == 0) begin(args, state, bounds_of(args, item.e), params, item.n_params);
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
        const State state = {fresh.now_at, fresh.numbers, nullptr, args.n_params[e]};
        const Long row = number % args.n_sets * args.n_exprs + e;
        begin(args, state, bounds_of(args, e), args.starts + row * args.max_params, args.n_params[e]);
        state.progress().number = number;
        state.progress().expression = e;
        return;
    }
    fresh.progress().number = -1;
}

// The step of one fit, by one thread.
INLINE void make_step(const FitArguments &args, char *arena)
{
    const Progress &progress = *reinterpret_cast<Progress *>(arena + args.state);
    if (progress.number < 0) return;
    const int e = progress.expression;
    const State state = state_of(args, arena, args.n_params[e]);
    const Terms terms = terms_of(args, e, bounds_of(args, e));
    if (IN_REGISTERS) advance_in_registers(state, terms);
    else advance(state, terms);
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
    while (any_of_block(state.progress().number >= 0)) {
        const Long number = state.progress().number;
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
        if (number < 0 || state.progress().status == RUNNING) continue;
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
