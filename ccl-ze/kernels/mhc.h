// Functions of one or two binary32 values, in the bits of ccl-core's mhc::math: built from additions, multiplications and
// fused multiply-adds, which devices round correctly. Quotients and roots are whatever the device gives, set right by
// their residuals.
#ifndef CCL_MHC_H
#define CCL_MHC_H

#pragma OPENCL FP_CONTRACT OFF

// The argument `shape`: variant (which is told by what is null), number of ranks, whether the sums of a row are added by
// the last work-group, and into how many parts the mixes are cut.
#define RANKS_OF(shape) ((shape) >> 8 & 0xFFu)
#define IS_SPLIT(shape) (((shape) >> 16 & 1u) != 0)

#define PARTS_OF(shape) ((shape) >> 17 & 0x7Fu)

// Work-items of a group.
#define MHC_ITEMS 256u
#define MOST_RANKS 16u
// Words of the workspace before the sums: the work-groups of each tile that have added theirs.
#define COUNTERS 64u

#define EXPONENT_OF(bits) ((bits) >> 23)
// Within 2^60 of 1 neither a quotient nor a residual leaves the normal range.
#define LEAST_SAFE (127u - 60u)
#define MOST_SAFE (127u + 60u)

INLINE bool is_safe(float x)
{
    const uint exponent = EXPONENT_OF(as_uint(x));
    return exponent >= LEAST_SAFE && exponent <= MOST_SAFE;
}

// Neither 0 nor infinite nor NaN, of non-negative numbers.
INLINE bool is_ordinary(uint bits)
{
    return bits - 1u < INFINITY_BITS - 1u;
}

// a / b of positive numbers well inside the range, and on which side of the exact quotient that is: the residual's sign.
INLINE float quotient(float a, float b, float *residual)
{
    const float inverse = 1.0f / b;
    float q = a * inverse;
    q = fma(fma(-b, q, a), inverse, q);
    // Off by one at most; the residuals are exact, and no quotient lies in the middle of two neighbours.
    const float r = fma(-b, q, a);
    const float other = as_float(as_uint(q) + (r > 0.0f ? 1u : 0xFFFFFFFFu));
    const float other_r = fma(-b, other, a);
    const bool moved = fabs(other_r) < fabs(r);
    *residual = moved ? other_r : r;
    return moved ? other : q;
}

// Of any non-negative numbers: of their significands, then to the quotient's place.
INLINE float quotient_of_extremes(float a, float b)
{
    const uint ab = as_uint(a), bb = as_uint(b);
    if (!is_ordinary(ab) || !is_ordinary(bb)) {
        // Greater means: nearer to infinity. Two zeros or two infinities have no quotient.
        const int above_a = (int)(ab > 0) + (int)(ab >= INFINITY_BITS),
                  above_b = (int)(bb > 0) + (int)(bb >= INFINITY_BITS);
        const bool none = max(ab, bb) > INFINITY_BITS || above_a == above_b;
        const uint to = above_a > above_b ? INFINITY_BITS : 0u;
        return as_float(none ? NAN_FLOAT32 : to);
    }
    const int up_a = EXPONENT_OF(ab) == 0 ? (int)clz(ab) - 8 : 0, up_b = EXPONENT_OF(bb) == 0 ? (int)clz(bb) - 8 : 0;
    const int exponent_a = max((int)EXPONENT_OF(ab), 1) - up_a, exponent_b = max((int)EXPONENT_OF(bb), 1) - up_b;
    float rest;
    const uint q = as_uint(quotient(as_float((ab << up_a & 0x7FFFFFu) | 0x3F800000u),
                                    as_float((bb << up_b & 0x7FFFFFu) | 0x3F800000u), &rest));
    const int exponent = (int)EXPONENT_OF(q) + exponent_a - exponent_b;
    if (exponent >= 255)
        return as_float(INFINITY_BITS);
    if (exponent >= 1)
        return as_float((uint)exponent << 23 | (q & 0x7FFFFFu));
    // Rounded again, but what was rounded away before decides: two more bits say on which side it was.
    const uint fine = ((q & 0x7FFFFFu) | 0x800000u) * 4 + (rest > 0.0f ? 1u : 0u) - (rest < 0.0f ? 1u : 0u);
    const uint by = (uint)min(1 - exponent + 2, 31);
    const uint kept = fine >> by, lost = fine & ((1u << by) - 1), tie = 1u << (by - 1);
    return as_float(kept + (lost > tie || (lost == tie && (kept & 1u)) ? 1u : 0u));
}

// a / b of non-negative numbers.
INLINE float divide(float a, float b)
{
#ifdef __NVPTX__
    // It rounds correctly by itself, and is what Sinkhorn's iteration waits for.
    return a / b;
#else
    float rest;
    return is_safe(a) && is_safe(b) ? quotient(a, b, &rest) : quotient_of_extremes(a, b);
#endif
}

#ifdef __NVPTX__
// Near 1 / x.
INLINE float near_inverse(float x)
{
    float near;
    __asm__("rcp.approx.ftz.f32 %0, %1; // set right" : "=f"(near) : "f"(x));
    return near;
}

INLINE float lesser(float a, float b)
{
    float least;
    __asm__("min.f32 %0, %1, %2;" : "=f"(least) : "f"(a), "f"(b));
    return least;
}

// From here on quotients by a number no greater than some of them together leave the normal range, or their residuals do.
#define LEAST_DIVIDEND 0x1p-60f

// a / b, where b is a sum of a and of other positive numbers and isn't large: no branch looks whether it is so, `least` tells
// in the end. Five operations wait for one another. What a times the inverse is off by is corrected by the inverse's own
// residual, which leaves it off by one at most; the inverse, corrected beside that, is 1 / b rounded correctly (seen on an
// H200 for every significand). Then the residual is exact, and no quotient is so near to the middle of two neighbours that
// what it adds could be rounded to the wrong side.
INLINE float quotient_of_safe(float a, float b, float *least)
{
    const float near = near_inverse(b), off = fma(-b, near, 1.0f), inverse = fma(off, near, near);
    float q = a * near;
    q = fma(q, off, q);
    *least = lesser(*least, a);
    return fma(fma(-b, q, a), inverse, q);
}

// Whether this is the last of so many work-groups, asked by one work-item of each. What those with marks count tells by itself
// whether it has come, else all that was stored before is seen by the last.
INLINE bool is_last_of(global uint *counter, uint groups, bool marked)
{
    const bool is_last = (marked ? count_loosely(counter) : count_arrival(counter)) + 1 == groups;
    // For the next boundary, which begins when this one is over.
    if (is_last)
        atomic_xchg(counter, 0u);
    return is_last;
}

// number / by, of numbers below 2^21: the half keeps the quotient from a neighbour's side.
INLINE uint small_quotient(uint number, uint by)
{
    return (uint)(((float)number + 0.5f) * near_inverse((float)by));
}
#endif

// The root of a non-negative number.
INLINE float root(float x)
{
#ifdef __NVPTX__
    // It rounds correctly by itself.
    return sqrt(x);
#else
    const uint bits = as_uint(x);
    if (!is_ordinary(bits))
        return x;
    const bool small = EXPONENT_OF(bits) < LEAST_SAFE, large = EXPONENT_OF(bits) > MOST_SAFE;
    const float scaled = small ? x * 0x1p100f : large ? x * 0x1p-100f : x;
    float s = sqrt(scaled);
    s = fma(fma(-s, s, scaled), 0.5f / s, s);
    // Off by one at most. In the middle to the next one up is the root of the product of both, and a bit.
    const float above = as_float(as_uint(s) + 1), below = as_float(as_uint(s) - 1);
    if (fma(-s, above, scaled) > 0.0f)
        s = above;
    else if (fma(-s, below, scaled) <= 0.0f)
        s = below;
    return small ? s * 0x1p-50f : large ? s * 0x1p50f : s;
#endif
}

INLINE float inverse_root(float x)
{
    return divide(1.0f, root(x));
}

INLINE float power_of_two(int k)
{
    return as_float((uint)(k + 127) << 23);
}

#define LOG2_E as_float(0x3FB8AA3Bu)
#define LN2_HIGH as_float(0x3F317200u)
#define LN2_LOW as_float(0x35BFBE8Eu)
#define ROUND_TO_INTEGER 12582912.0f
#define EXP_MOST 88.72284f
#define EXP_LEAST -103.97208f

INLINE float exponential(float x)
{
#ifndef __NVPTX__
    if (is_nan(as_uint(x)))
        return as_float(NAN_FLOAT32);
    if (x >= EXP_MOST)
        return as_float(INFINITY_BITS);
    if (x <= EXP_LEAST)
        return 0.0f;
#endif
    const float turns = fma(x, LOG2_E, ROUND_TO_INTEGER) - ROUND_TO_INTEGER;
    const float r = fma(turns, -LN2_LOW, fma(turns, -LN2_HIGH, x));
    float p = 1.0f / 5040.0f;
    p = fma(p, r, 1.0f / 720.0f);
    p = fma(p, r, 1.0f / 120.0f);
    p = fma(p, r, 1.0f / 24.0f);
    p = fma(p, r, 1.0f / 6.0f);
    p = fma(p, r, 0.5f);
    p = fma(p, r, 1.0f);
    p = fma(p, r, 1.0f);
    const int k = (int)turns, half_of_k = k >> 1;
    const float power = p * power_of_two(half_of_k) * power_of_two(k - half_of_k);
#ifdef __NVPTX__
    // Chosen in the end, so that lanes don't part.
    const float outside = x >= EXP_MOST ? as_float(INFINITY_BITS) : x <= EXP_LEAST ? 0.0f : as_float(NAN_FLOAT32);
    return x > EXP_LEAST && x < EXP_MOST ? power : outside;
#else
    return power;
#endif
}

INLINE float sigmoid(float x)
{
    return divide(1.0f, 1.0f + exponential(-x));
}

INLINE float canonical_float(float x)
{
    return as_float(canonical(as_uint(x)));
}

// Whether a work-item's four columns can be moved at once.
INLINE bool is_aligned(global const uchar *at, ulong bytes)
{
    return ((ulong)at & (bytes - 1)) == 0;
}

// Four elements as binary32, those past the row's end as 0; and back, rounded, which returns what was stored. `left` is
// how many the row has from there on.

INLINE float4 load_few_f32(global const float *from, long left)
{
    return (float4)(left > 0 ? from[0] : 0.0f, left > 1 ? from[1] : 0.0f, left > 2 ? from[2] : 0.0f,
                    left > 3 ? from[3] : 0.0f);
}

INLINE float4 load_f32(global const uchar *row, ulong column, long left)
{
    global const float *from = (global const float *)row + column;
    if (left >= 4 && is_aligned((global const uchar *)from, 16))
        return *(global const float4 *)from;
#ifdef OF_FUSED
    // The same, written out: the form of which the fused kernels' committed SPIR-V was made.
    return (float4)(left > 0 ? from[0] : 0.0f, left > 1 ? from[1] : 0.0f, left > 2 ? from[2] : 0.0f,
                    left > 3 ? from[3] : 0.0f);
#else
    return load_few_f32(from, left);
#endif
}

// What is stored of them.
INLINE float4 rounded_f32(long left, float4 x)
{
    return (float4)(left > 0 ? canonical_float(x.x) : 0.0f, left > 1 ? canonical_float(x.y) : 0.0f,
                    left > 2 ? canonical_float(x.z) : 0.0f, left > 3 ? canonical_float(x.w) : 0.0f);
}

INLINE float4 store_f32(global uchar *row, ulong column, long left, float4 x)
{
    global float *to = (global float *)row + column;
    const float4 rounded = rounded_f32(left, x);
    if (left >= 4 && is_aligned((global const uchar *)to, 16)) {
        *(global float4 *)to = rounded;
        return rounded;
    }
    if (left > 0)
        to[0] = rounded.x;
    if (left > 1)
        to[1] = rounded.y;
    if (left > 2)
        to[2] = rounded.z;
    if (left > 3)
        to[3] = rounded.w;
    return rounded;
}

// The bits of four elements of 16 bits, in two words.
INLINE uint2 load_halves(global const uchar *row, ulong column, long left)
{
    global const ushort *from = (global const ushort *)row + column;
    if (left >= 4 && is_aligned((global const uchar *)from, 8))
        return *(global const uint2 *)from;
    uint2 words = (uint2)(0, 0);
    if (left > 0)
        words.x = from[0];
    if (left > 1)
        words.x |= (uint)from[1] << 16;
    if (left > 2)
        words.y = from[2];
    if (left > 3)
        words.y |= (uint)from[3] << 16;
    return words;
}

INLINE void store_halves(global uchar *row, ulong column, long left, uint2 words)
{
    global ushort *to = (global ushort *)row + column;
    if (left >= 4 && is_aligned((global const uchar *)to, 8)) {
        *(global uint2 *)to = words;
        return;
    }
    if (left > 0)
        to[0] = (ushort)words.x;
    if (left > 1)
        to[1] = (ushort)(words.x >> 16);
    if (left > 2)
        to[2] = (ushort)words.y;
    if (left > 3)
        to[3] = (ushort)(words.y >> 16);
}

#define WIDENED(kind, words)                                                                                           \
    as_float4((uint4)(widen_low(kind, words.x), widen_high(kind, words.x), widen_low(kind, words.y),                   \
                      widen_high(kind, words.y)))
#define NARROWED_PAIR(kind, a, b) narrow(kind, as_uint(a), as_uint(b))
#define OF_HALVES(name, kind)                                                                                          \
    INLINE float4 load_##name(global const uchar *row, ulong column, long left)                                        \
    {                                                                                                                  \
        const uint2 words = load_halves(row, column, left);                                                            \
        return WIDENED(kind, words);                                                                                   \
    }                                                                                                                  \
    INLINE uint2 narrowed_##name(long left, float4 x)                                                                  \
    {                                                                                                                  \
        uint2 words = (uint2)(NARROWED_PAIR(kind, x.x, x.y), NARROWED_PAIR(kind, x.z, x.w));                           \
        words.x &= left > 1 ? 0xFFFFFFFFu : left > 0 ? 0xFFFFu : 0;                                                    \
        words.y &= left > 3 ? 0xFFFFFFFFu : left > 2 ? 0xFFFFu : 0;                                                    \
        return words;                                                                                                  \
    }                                                                                                                  \
    INLINE float4 rounded_##name(long left, float4 x)                                                                  \
    {                                                                                                                  \
        const uint2 words = narrowed_##name(left, x);                                                                  \
        return WIDENED(kind, words);                                                                                   \
    }                                                                                                                  \
    INLINE float4 store_##name(global uchar *row, ulong column, long left, float4 x)                                   \
    {                                                                                                                  \
        const uint2 words = narrowed_##name(left, x);                                                                  \
        store_halves(row, column, left, words);                                                                        \
        return WIDENED(kind, words);                                                                                   \
    }
OF_HALVES(bf16, DTYPE_BFLOAT16)
OF_HALVES(f16, DTYPE_FLOAT16)

// Four elements that are all there and aligned, as they are in memory: what is loaded long before it is used takes no
// more registers than that.
#define narrowed_f32 rounded_f32
#define raw_f32 float4
#define raw_bf16 uint2
#define raw_f16 uint2
#define widened_f32(raw) (raw)
#define widened_bf16(raw) WIDENED(DTYPE_BFLOAT16, (raw))
#define widened_f16(raw) WIDENED(DTYPE_FLOAT16, (raw))

#endif
