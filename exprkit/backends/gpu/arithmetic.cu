// The arithmetic that the table's cells (ops.py) are written in, for float and double.

// ── the hardware's approximations ────────────────────────────────────────────────────

#ifndef EMULATED
#define APPROXIMATION(name, instruction)                                                   \
    INLINE float approximate_##name(float a)                                               \
    {                                                                                      \
        float y;                                                                           \
        asm(instruction ".approx" FLUSH ".f32 %0, %1;" : "=f"(y) : "f"(a));                  \
        return y;                                                                          \
    }
APPROXIMATION(exp2, "ex2")
APPROXIMATION(log2, "lg2")
APPROXIMATION(reciprocal, "rcp")
APPROXIMATION(root, "sqrt")
APPROXIMATION(sin, "sin")
APPROXIMATION(cos, "cos")
#undef APPROXIMATION
#define FLUSHED(name, instruction)                                                         \
    INLINE float flushed_##name(float a)                                                   \
    {                                                                                      \
        float y;                                                                           \
        asm(instruction ".approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(a));                       \
        return y;                                                                          \
    }
FLUSHED(reciprocal, "rcp")
FLUSHED(reciprocal_root, "rsqrt")
FLUSHED(exp2, "ex2")
#undef FLUSHED
INLINE float approximate_quotient(float a, float b)
{
    float y;
    asm("div.approx" FLUSH ".f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}
#endif

// ── arithmetic that the table's cells use ────────────────────────────────────────────

constexpr double LARGEST = sizeof(T) == 4 ? 3.4028234663852886e38 : 1.7976931348623157e308;
constexpr T LN2 = T(0.69314718055994530942);

INLINE double quotient(double a, double b) { return a / b; }
INLINE float quotient(float a, float b) { return APPROXIMATE_DIVISION ? approximate_quotient(a, b) : a / b; }
INLINE double reciprocal(double a) { return 1.0 / a; }
INLINE float reciprocal(float a) { return APPROXIMATE_DIVISION ? approximate_reciprocal(a) : 1.0f / a; }
INLINE double root(double a) { return sqrt(a); }
INLINE float root(float a) { return APPROXIMATE_ROOT ? approximate_root(a) : sqrt(a); }

// The square root as the compiler has it, bit by bit, without its branches: nan is common in random expressions.
INLINE double exact_root(double a) { return sqrt(a); }
INLINE float exact_root(float a)
{
#ifdef EMULATED
    return sqrt(a);
#else
    if (APPROXIMATE_ROOT || sizeof(FLUSH) > 1) return sqrt(a);
    const bool is_small = a < 7.8886090522101181e-31f;  // 2^-100; zeros and negative numbers, too
    const float x = is_small ? a * 18446744073709551616.0f : a, r = flushed_reciprocal_root(x);
    const float first = x * r, y = fma(fma(-first, first, x), 0.5f * r, first);
    return (a == 0.0f) | (a > float(LARGEST)) ? a : is_small ? y * 2.3283064365386963e-10f : y;  // 2^-32
#endif
}

INLINE double fast_exp2(double a) { return exp2(a); }
INLINE float fast_exp2(float a) { return approximate_exp2(a); }
INLINE double fast_exp(double a) { return exp(a); }
INLINE float fast_exp(float a) { return approximate_exp2(a * 1.4426950408889634f); }
INLINE double fast_log2(double a) { return log2(a); }
INLINE float fast_log2(float a) { return approximate_log2(a); }
INLINE double fast_log(double a) { return log(a); }
INLINE float fast_log(float a) { return approximate_log2(a) * float(LN2); }
INLINE double fast_log10(double a) { return log10(a); }
INLINE float fast_log10(float a) { return approximate_log2(a) * 0.30102999566398120f; }

// The hardware's sine is good within one turn: take off whole turns first.
INLINE float within_turn(float a)
{
    const float turns = rint(a * 0.15915494309189535f);
    return fma(turns, 1.7484555314695172e-7f, fma(turns, -6.2831854820251465f, a));
}
INLINE double fast_sin(double a) { return sin(a); }
INLINE float fast_sin(float a) { return approximate_sin(within_turn(a)); }
INLINE double fast_cos(double a) { return cos(a); }
INLINE float fast_cos(float a) { return approximate_cos(within_turn(a)); }
INLINE double fast_tan(double a) { return tan(a); }
INLINE float fast_tan(float a) { return quotient(fast_sin(a), fast_cos(a)); }

INLINE T sign_of(T a) { return a > T(0) ? T(1) : a < T(0) ? T(-1) : a == T(0) ? T(0) : a; }

INLINE T sigmoid(T a)
{
    const T e = exp(-fabs(a));
    return (a < T(0) ? e : T(1)) / (T(1) + e);
}

// log cosh a = |a| + log(1 + w) - log 2 with w = exp(-2 |a|); of float32 log(1 + w) / w as a polynomial, to 5e-9.
INLINE double log_cosh(double a) { return fabs(a) + (log1p(exp(-2.0 * fabs(a))) - LN2); }
INLINE float log_cosh(float a)
{
    const float z = fabs(a), w = flushed_exp2(z * -2.8853900817779268f);
    float y = fma(0.003930291865346068f, w, -0.02385471750946021f);
    y = fma(fma(y, w, 0.06808331984903528f), w, -0.1269075065848245f);
    y = fma(fma(y, w, 0.1856973851663174f), w, -0.24672660724295384f);
    y = fma(fma(y, w, 0.3328966302472995f), w, -0.49997093823092187f);
    return fma(fma(y, w, 0.9999993279155796f), w, z - 0.69314718055994531f);
}

INLINE float analytic_quotient(float a, float b) { return float(a / sqrt(1.0 + double(b) * b)); }
INLINE double analytic_quotient(double a, double b) { return a / hypot(1.0, b); }

// The derivative of log gamma(a), as simd_formulas.py has it.
INLINE double digamma(double a)
{
    if (a < 0.0 && a == rint(a)) return nan("");
    const double x = a < 0.0 ? 1.0 - a : a;
    double y;
    if (x < 3.0) {
        const double m = x < 1.0 ? x + 1.0 : x > 2.0 ? x - 1.0 : x;
        const double near[] = {
            0.9510558760318328, -0.4236274212814606, 0.24054248424078697, -0.14840492305388092, 0.09498872445289039,
            -0.06192213327548831, 0.040760833940846085, -0.026975796659787055, 0.017907248317313294,
            -0.011908220105959716, 0.007927021796868154, -0.005279937255532708, 0.003518106563802472,
            -0.0023454947397380833, 0.0015633696313653504, -0.0010364584817312839, 0.0006909255761282986,
            -0.00048595039220036254, 0.00032395945401345196, -0.00014480643368061614, 9.653646261410062e-05,
            -0.0001782188548855923, 0.00011881232908510335};
        y = near[22];
#pragma unroll
        for (int k = 21; k >= 0; --k) y = fma(y, m - 1.5, near[k]);
        y *= (m - 1.4616321449683622) - 9.549995429965697e-17;
        if (m != x) y += 1.0 / (x < 1.0 ? -x : m);
    } else {
        double top = 1.0, bottom = x;
        for (int k = 1; k < 8; ++k) { top = fma(top, x + k, bottom); bottom *= x + k; }
        const double z = x >= 8.0 ? x : x + 8.0, w = 1.0 / (z * z);
        y = log(z) - 0.5 / z - w * (1.0 / 12 + w * (-1.0 / 120 + w * (1.0 / 252 + w * (-1.0 / 240 + w * (1.0 / 132
          + w * (-691.0 / 32760 + w * (1.0 / 12 - w * (3617.0 / 8160))))))));
        if (x < 8.0) y -= top / bottom;
    }
    return a < 0.0 ? y - 3.1415926535897931 / tan((a - rint(a)) * 3.1415926535897931) : y;
}
INLINE float digamma(float a) { return float(digamma(double(a))); }

// a - floor(a / b) b: the remainder with the sign of b.
INLINE T floor_mod(T a, T b)
{
    const T r = fmod(a, b);
    if (r == T(0)) return copysign(T(0), b);
    return (r < T(0)) == (b < T(0)) ? r : r + b;
}

// log2 |a| as an unevaluated sum of two numbers.
INLINE float log2_hi_lo(float a, float &low)
{
    const double l = log2(fabs(double(a)));
    const float high = float(l);
    low = l - l == 0.0 ? float(l - double(high)) : 0.0f;
    return high;
}

INLINE double log2_hi_lo(double a, double &low)
{
    int k;
    double m = frexp(fabs(a), &k);  // in [0.5, 1)
    low = 0.0;
    if (!(fabs(a) > 0.0 && fabs(a) <= LARGEST)) return log2(fabs(a));
    if (m < 0.70710678118654752) { m += m; k -= 1; }
    // log2 m = 2 / ln 2 (f + f^3 / 3 + f^5 / 5 + ...) with f = (m - 1) / (m + 1); the first two terms in two parts
    const double d = m - 1.0, s = m + 1.0, s_low = m - (s - 1.0);
    const double f = d / s, f_low = (fma(-f, s, d) - f * s_low) / s;
    const double q = f * f, q_low = fma(f, f, -q) + 2.0 * f * f_low;
    const double c = q * f, c_low = fma(q, f, -c) + q * f_low + q_low * f;
    const double t = c / 3.0, t_low = (fma(-t, 3.0, c) + c_low) / 3.0;
    const double rest = c * q * (1.0 / 5 + q * (1.0 / 7 + q * (1.0 / 9 + q * (1.0 / 11 + q * (1.0 / 13
                      + q * (1.0 / 15 + q * (1.0 / 17 + q * (1.0 / 19 + q / 21))))))));
    const double g = f + t, g_low = (f - g) + t + (f_low + t_low + rest);
    const double scale = 2.8853900817779268, scale_low = 4.0710547481862066e-17;  // 2 / ln 2
    const double y = g * scale, y_low = fma(g, scale, -y) + (g * scale_low + g_low * scale);
    const double sum = k + y, rest_of_sum = (k - sum) + y + y_low, high = sum + rest_of_sum;
    low = (sum - high) + rest_of_sum;
    return high;
}

// With 0 and inf as the largest numbers there are, 0 * b is 0 and not nan for b = 0.
INLINE T log2_hi_lo_bounded(T a, T &low)
{
    const T high = log2_hi_lo(a, low);
    return high > T(LARGEST) ? T(LARGEST) : high < T(-LARGEST) ? T(-LARGEST) : high;
}

// 2^((high + low) b), 1 where high or b is 0.
INLINE T exp2_of_product(T high, T low, T b)
{
    const T p = high * b, rest = (fma(high, b, -p) + low * b) * LN2;
    const T y = exp2(p), corrected = fma(y, rest, y);
    const T result = corrected == corrected ? corrected : y;  // nan: out of range, where there is nothing to correct
    return high == T(0) || b == T(0) ? T(1) : result;
}
INLINE double fast_exp2_of_product(double high, double low, double b) { return exp2_of_product(high, low, b); }
INLINE float fast_exp2_of_product(float high, float low, float b) { return approximate_exp2(high * b); }

INLINE double fast_pow(double a, double b) { return a < 0.0 ? nan("") : pow(a, b); }
INLINE float fast_pow(float a, float b) { return b == 0.0f ? 1.0f : approximate_exp2(b * approximate_log2(a)); }

// a^b for whole b; with fast operators as a product of squares, from 64 on through the logarithm.
INLINE double whole_power(double a, double b) { return pow(a, b); }
INLINE float whole_power(float a, float b)
{
    if (PAIRS) return pow(a, b);
    const float size = fabs(b);
    if (size >= 64.0f) {
        const float y = approximate_exp2(b * approximate_log2(fabs(a)));
        return a < 0.0f && fmod(size, 2.0f) == 1.0f ? -y : y;
    }
    float y = 1.0f, square = a;
    for (int n = int(size); n > 0; n >>= 1) {
        if (n & 1) y *= square;
        if (n > 1) square *= square;
    }
    return b < 0.0f ? reciprocal(y) : y;
}

// ── formulas for the usual operands ──────────────────────────────────────────────────

// Each makes ``in_range`` false where the whole formula is needed: for zeros, infinities and what is very large or small,
// but not for nan that gives nan, which in random expressions is common.  They have no branches, so that those of many
// points run side by side.

INLINE double in_range_quotient(double a, double b, bool &) { return a / b; }
INLINE float in_range_quotient(float a, float b, bool &in_range)
{
    if (APPROXIMATE_DIVISION) return a / b;
    float r = flushed_reciprocal(b);
    r = fma(fma(-b, r, 1.0f), r, r);
    float y = a * r;
    y = fma(fma(-b, y, a), r, y);
    y = fma(fma(-b, y, a), r, y);  // rounded as it should be, unless something on the way was out of range
    const bool is_nan = a + b != a + b;  // or inf - inf, whose quotient is nan too
    in_range = in_range & (((fabs(a) >= 1e-21f) & (fabs(y) >= 1e-21f) & (fabs(y) <= 1e38f)) | is_nan);
    return y;
}

INLINE double in_range_exp2_of_product(double high, double low, double b, bool &) { return exp2_of_product(high, low, b); }
INLINE float in_range_exp2_of_product(float high, float low, float b, bool &in_range)
{
    const float p = high * b, rest = (fma(high, b, -p) + low * b) * LN2;
    const float power = flushed_exp2(p), y = fma(power, rest, power);
    in_range = in_range & (((y == y) & (p >= -126.0f)) | ((p != p) & (high != 0.0f) & (b != 0.0f)));
    return y;
}

INLINE double in_range_power(double a, double b, bool &) { return pow(a, b); }

// 2^(b log2 a) with log2 a in two parts, good to two units of the last place besides 2^x.
INLINE float in_range_power(float a, float b, bool &in_range)
{
    const int i = __float_as_int(a), k = (i - 0x3f3504f3) >> 23;  // a = m 2^k, m from sqrt(1/2) to sqrt(2)
    const float m = __int_as_float(i - (k << 23)), whole = __int_as_float(0x4b400000 + k) - 12582912.0f;
    // log2 m = 2 / ln 2 (s + s^3 / 3 + s^5 / 5 + ...) with s = (m - 1) / (m + 1); s in two parts
    const float t = fma(0.0f, a, m - 1.0f), u = m + 1.0f, u_low = m - (u - 1.0f), r = flushed_reciprocal(u);
    const float s = t * r, s_low = fma(-s, u_low, fma(-s, u, t)) * r, q = s * s;
    const float rest = q * fma(fma(fma(0.1179143041f, q, 0.1426863670f), q, 0.2000016719f), q, 0.3333333433f);
    const float scale = 2.8853900432586670f, scale_low = 3.8519260e-8f;  // 2 / ln 2
    const float y = s * scale;
    const float y_low = fma(fma(s, rest, s_low), scale, fma(s, scale_low, fma(s, scale, -y)));
    const float sum = whole + y, left = (whole - sum) + y + y_low, high = sum + left, low = (sum - high) + left;
    const float p = high * b, p_low = (fma(high, b, -p) + low * b) * LN2, power = flushed_exp2(p);
    const bool is_nan = ((a != a) & (b != 0.0f)) | ((b != b) & (a != 1.0f));
    in_range = in_range & (((a >= 1.17549435e-38f) & (a <= 3.4e38f) & (fabs(p) <= 32.0f)) | is_nan);
    return fma(power, p_low, power);
}

// ── operators that are the user's functions ──────────────────────────────────────────

//{user functions}
