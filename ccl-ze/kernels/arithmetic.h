// Reductions of elements, in the bits of the CPU's twin; docs/numerics.md has the rules. Every result that is NaN is the
// one canonical NaN.
//
// combine_*, scale_* and average_* do a piece of four 32-bit words, for each width of an element: datatype and operation
// are the same for a whole launch, so that choosing among them is a branch that all work-items take alike.
//
// Rounding is done on integers: a compiler's own conversions and divisions may flush or approximate. Only sum and product
// of binary32 are the device's, which rounds them correctly and keeps subnormals. binary16 and bfloat16 are computed with
// in binary32 and rounded once more; for sums, products and quotients by a small number that equals rounding the exact
// result. binary64 is integers throughout: not every device has it.
#ifndef CCL_ARITHMETIC_H
#define CCL_ARITHMETIC_H

#pragma OPENCL FP_CONTRACT OFF

// The argument `kind`: ccl-core's `Kind`.
#define DTYPE_OF(kind) ((kind) & 0xFFu)
#define OP_OF(kind) ((kind) >> 8 & 0xFFu)
#define ORDER_OF(kind) ((kind) >> 16)

#define DTYPE_INT8 0u
#define DTYPE_INT32 2u
#define DTYPE_UINT32 3u
#define DTYPE_INT64 4u
#define DTYPE_FLOAT16 6u
#define DTYPE_FLOAT32 7u
#define DTYPE_FLOAT64 8u
#define DTYPE_BFLOAT16 9u

#define OP_SUM 0u
#define OP_PROD 1u
#define OP_MAX 2u
#define OP_MIN 3u
#define OP_AVG 4u
#define OP_PREMULSUM 5u

#define ORDER_RANK 1u

#define INFINITY_BITS 0x7F800000u
#define MAGNITUDE 0x7FFFFFFFu
#define NAN_FLOAT32 0x7FC00000u

// binary32.

INLINE bool is_nan(uint bits)
{
    return (bits & MAGNITUDE) > INFINITY_BITS;
}

INLINE uint canonical(uint bits)
{
    return is_nan(bits) ? NAN_FLOAT32 : bits;
}

INLINE uint add_float32(uint a, uint b)
{
    return canonical(as_uint(as_float(a) + as_float(b)));
}

INLINE uint multiply_float32(uint a, uint b)
{
    return canonical(as_uint(as_float(a) * as_float(b)));
}

// Bits of positive numbers are ordered as the numbers are; these are so of all, and -0 is below +0.
INLINE int rank_of_float32(uint bits)
{
    return as_int(bits) ^ (as_int(bits) >> 31 & (int)MAGNITUDE);
}

INLINE uint extreme_float32(uint op, uint a, uint b)
{
    const bool below = rank_of_float32(a) < rank_of_float32(b);
    return is_nan(a) || is_nan(b) ? NAN_FLOAT32 : (op == OP_MAX) == below ? b : a;
}

INLINE uint combine_float32(uint op, uint a, uint b)
{
    if (op == OP_PROD)
        return multiply_float32(a, b);
    if (op == OP_MAX || op == OP_MIN)
        return extreme_float32(op, a, b);
    return add_float32(a, b);
}

// By a number of ranks; with `reciprocal` = (2^32 - 1) / n the estimate is at most 1 too small.
INLINE uint divide_word(uint a, uint n, uint reciprocal, uint *rest)
{
    const uint estimate = mul_hi(a, reciprocal);
    *rest = a - estimate * n;
    const bool more = *rest >= n;
    *rest -= more ? n : 0;
    return estimate + more;
}

INLINE uint divide_float32(uint bits, uint n, uint reciprocal)
{
    const uint magnitude = bits & MAGNITUDE, field = magnitude >> 23;
    if (magnitude >= INFINITY_BITS || magnitude == 0)
        return magnitude > INFINITY_BITS ? NAN_FLOAT32 : bits;
    const uint significand = field != 0 ? (magnitude & 0x7FFFFFu) | 0x800000u : magnitude;
    const int up = (int)clz(significand);
    uint rest;
    const uint quotient = divide_word(significand << up, n, reciprocal, &rest);
    // Places count from the last of a subnormal number. The quotient has 28 bits at least.
    const int from = (int)max(field, 1u) - 1 - up;
    const int place = max(from + (31 - (int)clz(quotient)) - 23, 0);
    const uint by = (uint)(place - from), kept = quotient >> by, lost = quotient & ((1u << by) - 1), tie = 1u << (by - 1);
    const bool round_up = lost > tie || (lost == tie && (rest != 0 || (kept & 1u)));
    return (bits & ~MAGNITUDE) | (((uint)place << 23) + kept + round_up);
}

// bfloat16 and binary16: the lower element of a word and the upper one, as binary32 and back.

// The rounded number's bits in the upper half.
INLINE uint round_to_bfloat16(uint bits)
{
#ifdef MUTANT_TRUNCATE
    const uint rounded = bits;
#else
    const uint rounded = bits + 0x7FFFu + (bits >> 16 & 1u);
#endif
    return (is_nan(bits) ? NAN_FLOAT32 : rounded) & 0xFFFF0000u;
}

#define EXPONENT_GAP (112u << 23)
#define LEAST_NORMAL_HALF 0x38800000u

INLINE uint widen_float16(uint half_bits)
{
    const uint magnitude = (half_bits & 0x7FFFu) << 13;
    // As mantissa of 2^-14, less 2^-14: exact, and no binary32 subnormal comes into it.
    const uint tiny = as_uint(as_float(magnitude + LEAST_NORMAL_HALF) - as_float(LEAST_NORMAL_HALF));
    const uint normal = magnitude + EXPONENT_GAP;
    const uint finite = magnitude < (0x0400u << 13) ? tiny : normal;
    const uint wide = magnitude >= (0x7C00u << 13) ? normal + EXPONENT_GAP : finite;
    return wide | (half_bits & 0x8000u) << 16;
}

INLINE uint round_to_float16(uint bits)
{
    const uint magnitude = bits & MAGNITUDE;
#ifdef MUTANT_TRUNCATE
    const uint normal = (magnitude - EXPONENT_GAP) >> 13;
#else
    const uint normal = (magnitude - EXPONENT_GAP + 0x0FFFu + (magnitude >> 13 & 1u)) >> 13;
#endif
    // The last bit of 0.5 is 2^-24, that of a subnormal half: the addition rounds, were there anything to round.
    const uint tiny = as_uint(as_float(magnitude) + 0.5f) - as_uint(0.5f);
    uint rounded = magnitude < LEAST_NORMAL_HALF ? tiny : normal;
    rounded = magnitude >= 0x47800000u ? 0x7C00u : rounded;
    return is_nan(bits) ? 0x7E00u : rounded | (bits >> 16 & 0x8000u);
}

INLINE uint widen_low(uint kind, uint words)
{
    return DTYPE_OF(kind) == DTYPE_BFLOAT16 ? words << 16 : widen_float16(words & 0xFFFFu);
}

INLINE uint widen_high(uint kind, uint words)
{
    return DTYPE_OF(kind) == DTYPE_BFLOAT16 ? words & 0xFFFF0000u : widen_float16(words >> 16);
}

INLINE uint narrow(uint kind, uint low, uint high)
{
    if (DTYPE_OF(kind) == DTYPE_BFLOAT16)
        return round_to_bfloat16(low) >> 16 | round_to_bfloat16(high);
    return round_to_float16(low) | round_to_float16(high) << 16;
}

INLINE uint combine_word_w2(uint kind, uint a, uint b)
{
    return narrow(kind, combine_float32(OP_OF(kind), widen_low(kind, a), widen_low(kind, b)),
                  combine_float32(OP_OF(kind), widen_high(kind, a), widen_high(kind, b)));
}

INLINE uint scale_word_w2(uint kind, uint x, ulong factor)
{
    const uint by = widen_low(kind, (uint)factor);
    return narrow(kind, multiply_float32(widen_low(kind, x), by), multiply_float32(widen_high(kind, x), by));
}

INLINE uint average_word_w2(uint kind, uint x, uint n, uint reciprocal)
{
    return narrow(kind, divide_float32(widen_low(kind, x), n, reciprocal),
                  divide_float32(widen_high(kind, x), n, reciprocal));
}

// Elements of one byte.

#define BYTE(word, i) ((word) >> 8 * (i) & 0xFFu)
#define BYTES(f, a, b, c)                                                                                              \
    (f(BYTE(a, 0), BYTE(b, 0), c) | f(BYTE(a, 1), BYTE(b, 1), c) << 8 | f(BYTE(a, 2), BYTE(b, 2), c) << 16 |           \
     f(BYTE(a, 3), BYTE(b, 3), c) << 24)

INLINE uint multiply_byte(uint a, uint b, uint unused)
{
    return a * b & 0xFFu;
}

// Of bytes whose sign bit is turned if they have one, so that their order is that of numbers without.
INLINE uint extreme_byte(uint a, uint b, uint op)
{
    return (op == OP_MAX) == (a < b) ? b : a;
}

INLINE uint combine_word_w1(uint kind, uint a, uint b)
{
    const uint op = OP_OF(kind), turned = DTYPE_OF(kind) == DTYPE_INT8 ? 0x80808080u : 0;
    if (op == OP_PROD)
        return BYTES(multiply_byte, a, b, 0);
    if (op == OP_MAX || op == OP_MIN)
        return BYTES(extreme_byte, a ^ turned, b ^ turned, op) ^ turned;
    // Carries stop below the highest bit of each byte, which is added apart.
    return ((a & 0x7F7F7F7Fu) + (b & 0x7F7F7F7Fu)) ^ ((a ^ b) & 0x80808080u);
}

INLINE uint scale_word_w1(uint kind, uint x, ulong factor)
{
    return BYTES(multiply_byte, x, ((uint)factor & 0xFFu) * 0x01010101u, 0);
}

// What is left of the error of `scale` = 2^16 / n + 1 is far below what could change a byte's quotient.
INLINE uint average_byte(uint a, uint scale, uint sign)
{
    const uint negative = a & sign ? 0xFFu : 0, one = negative & 1u;
    return ((((a ^ negative) + one & 0xFFu) * scale >> 16 ^ negative) + one) & 0xFFu;
}

INLINE uint average_word_w1(uint kind, uint x, uint n, uint reciprocal)
{
    const uint sign = DTYPE_OF(kind) == DTYPE_INT8 ? 0x80u : 0, scale = (reciprocal >> 16) + 1;
    return average_byte(BYTE(x, 0), scale, sign) | average_byte(BYTE(x, 1), scale, sign) << 8 |
           average_byte(BYTE(x, 2), scale, sign) << 16 | average_byte(BYTE(x, 3), scale, sign) << 24;
}

// Elements of one word.

INLINE uint combine_word_w4(uint kind, uint a, uint b)
{
    const uint op = OP_OF(kind);
    if (DTYPE_OF(kind) == DTYPE_FLOAT32)
        return combine_float32(op, a, b);
    if (op == OP_PROD)
        return a * b;
    const uint turned = DTYPE_OF(kind) == DTYPE_INT32 ? 0x80000000u : 0;
    if (op == OP_MAX || op == OP_MIN)
        return (op == OP_MAX) == ((a ^ turned) < (b ^ turned)) ? b : a;
    return a + b;
}

INLINE uint scale_word_w4(uint kind, uint x, ulong factor)
{
    return DTYPE_OF(kind) == DTYPE_FLOAT32 ? multiply_float32(x, (uint)factor) : x * (uint)factor;
}

INLINE uint average_word_w4(uint kind, uint x, uint n, uint reciprocal)
{
    if (DTYPE_OF(kind) == DTYPE_FLOAT32)
        return divide_float32(x, n, reciprocal);
    const uint negative = DTYPE_OF(kind) == DTYPE_INT32 && (x & ~MAGNITUDE) ? 0xFFFFFFFFu : 0;
    uint rest;
    return (divide_word((x ^ negative) - negative, n, reciprocal, &rest) ^ negative) - negative;
}

// Elements of two words.

#define SIGN_64 0x8000000000000000ul
#define MAGNITUDE_64 0x7FFFFFFFFFFFFFFFul
#define INFINITY_64 0x7FF0000000000000ul
#define NAN_64 0x7FF8000000000000ul

INLINE ulong shift_right_sticky(ulong value, uint by)
{
    if (by > 63)
        return value != 0;
    const ulong kept = value >> by;
    return kept | (kept << by != value);
}

// The place of a finite number's last bit, counted from that of the subnormal ones.
INLINE int last_place(ulong magnitude)
{
    return max((int)(magnitude >> 52), 1) - 1;
}

INLINE ulong significand_of(ulong magnitude)
{
    const ulong fraction = magnitude & 0xFFFFFFFFFFFFFul;
    return magnitude >> 52 != 0 ? fraction | 1ul << 52 : fraction;
}

// `significand` times two to the `place`, rounded. Where it stands for more bits than it has, its last one is set and
// there are 56 or more.
INLINE ulong round_float64(ulong sign, ulong significand, int place)
{
    if (significand == 0)
        return sign;
    if (place < -60) {
        significand = shift_right_sticky(significand, (uint)(-60 - place));
        place = -60;
    }
    const int at = max(place + (63 - (int)clz(significand)) - 52, 0), by = at - place;
    if (by <= 0) {
        significand <<= -by;
    } else {
        const ulong kept = significand >> by, lost = significand & ((1ul << by) - 1), tie = 1ul << (by - 1);
        significand = kept + (lost > tie || (lost == tie && (kept & 1)));
    }
    const ulong bits = ((ulong)at << 52) + significand;
    return sign | (bits < INFINITY_64 ? bits : INFINITY_64);
}

INLINE ulong add_float64(ulong a, ulong b)
{
    const bool swap = (a & MAGNITUDE_64) < (b & MAGNITUDE_64);
    const ulong large = swap ? b : a, small = swap ? a : b;
    const ulong high = large & MAGNITUDE_64, low = small & MAGNITUDE_64, sign = large & SIGN_64;
    const bool subtract = (a ^ b) & SIGN_64;
    if (high >= INFINITY_64)
        return high > INFINITY_64 || (low == INFINITY_64 && subtract) ? NAN_64 : large;
    const int place = last_place(high);
    const ulong x = significand_of(high) << 10;
    const ulong y = shift_right_sticky(significand_of(low) << 10, (uint)(place - last_place(low)));
    const ulong sum = subtract ? x - y : x + y;
    return round_float64(sum == 0 && subtract ? 0 : sign, sum, place - 10);
}

INLINE ulong multiply_float64(ulong a, ulong b)
{
    const ulong x = a & MAGNITUDE_64, y = b & MAGNITUDE_64, sign = (a ^ b) & SIGN_64;
    if (x > INFINITY_64 || y > INFINITY_64)
        return NAN_64;
    if (x == INFINITY_64 || y == INFINITY_64)
        return x == 0 || y == 0 ? NAN_64 : sign | INFINITY_64;
    if (x == 0 || y == 0)
        return sign;
    const ulong xs = significand_of(x), ys = significand_of(y);
    const int up = (int)clz(xs), down = (int)clz(ys);
    const ulong p = xs << up, q = ys << down;
    return round_float64(sign, mul_hi(p, q) | (p * q != 0), last_place(x) + last_place(y) + 64 - up - down - 1074);
}

// By a number of ranks, which leaves no rest above 15: so each part of a longer dividend is one of 32 bits.
INLINE ulong divide_wide(ulong a, uint n, uint reciprocal, uint *rest)
{
    const ulong high = divide_word((uint)(a >> 40), n, reciprocal, rest);
    const ulong middle = divide_word(*rest << 28 | ((uint)(a >> 12) & 0xFFFFFFFu), n, reciprocal, rest);
    const ulong low = divide_word(*rest << 12 | ((uint)a & 0xFFFu), n, reciprocal, rest);
    return high << 40 | middle << 12 | low;
}

INLINE ulong divide_float64(ulong bits, uint n, uint reciprocal)
{
    const ulong magnitude = bits & MAGNITUDE_64;
    if (magnitude >= INFINITY_64 || magnitude == 0)
        return magnitude > INFINITY_64 ? NAN_64 : bits;
    const ulong significand = significand_of(magnitude);
    const int up = (int)clz(significand);
    uint rest;
    const ulong quotient = divide_wide(significand << up, n, reciprocal, &rest);
    return round_float64(bits & SIGN_64, quotient | (rest != 0), last_place(magnitude) - up);
}

INLINE long rank_of_float64(ulong bits)
{
    return as_long(bits) ^ (as_long(bits) >> 63 & (long)MAGNITUDE_64);
}

INLINE ulong extreme_float64(uint op, ulong a, ulong b)
{
    if ((a & MAGNITUDE_64) > INFINITY_64 || (b & MAGNITUDE_64) > INFINITY_64)
        return NAN_64;
    const bool below = rank_of_float64(a) < rank_of_float64(b);
    return (op == OP_MAX) == below ? b : a;
}

INLINE ulong combine_long(uint kind, ulong a, ulong b)
{
    const uint op = OP_OF(kind);
    if (DTYPE_OF(kind) == DTYPE_FLOAT64) {
        if (op == OP_PROD)
            return multiply_float64(a, b);
        return op == OP_MAX || op == OP_MIN ? extreme_float64(op, a, b) : add_float64(a, b);
    }
    if (op == OP_PROD)
        return a * b;
    const ulong turned = DTYPE_OF(kind) == DTYPE_INT64 ? SIGN_64 : 0;
    if (op == OP_MAX || op == OP_MIN)
        return (op == OP_MAX) == ((a ^ turned) < (b ^ turned)) ? b : a;
    return a + b;
}

INLINE ulong scale_long(uint kind, ulong x, ulong factor)
{
    return DTYPE_OF(kind) == DTYPE_FLOAT64 ? multiply_float64(x, factor) : x * factor;
}

INLINE ulong average_long(uint kind, ulong x, uint n, uint reciprocal)
{
    if (DTYPE_OF(kind) == DTYPE_FLOAT64)
        return divide_float64(x, n, reciprocal);
    const ulong negative = DTYPE_OF(kind) == DTYPE_INT64 && (x & SIGN_64) ? ~0ul : 0;
    uint rest;
    return (divide_wide((x ^ negative) - negative, n, reciprocal, &rest) ^ negative) - negative;
}

// All of a piece. Word by word: the translator would make vectors' choices of what is chosen word by word here, which
// SPIR-V has no word for.

// (2^32 - 1) / n, with which divide_word gets by without a division.
#define RECIPROCAL(n) (0xFFFFFFFFu / (n))

#define PIECEWISE(width)                                                                                               \
    INLINE uint4 combine_##width(uint kind, uint4 a, uint4 b)                                                          \
    {                                                                                                                  \
        return (uint4)(combine_word_##width(kind, a.x, b.x), combine_word_##width(kind, a.y, b.y),                     \
                       combine_word_##width(kind, a.z, b.z), combine_word_##width(kind, a.w, b.w));                    \
    }                                                                                                                  \
    INLINE uint4 scale_##width(uint kind, uint4 x, ulong factor)                                                       \
    {                                                                                                                  \
        return (uint4)(scale_word_##width(kind, x.x, factor), scale_word_##width(kind, x.y, factor),                   \
                       scale_word_##width(kind, x.z, factor), scale_word_##width(kind, x.w, factor));                  \
    }                                                                                                                  \
    INLINE uint4 average_##width(uint kind, uint4 x, uint n)                                                           \
    {                                                                                                                  \
        const uint r = RECIPROCAL(n);                                                                                  \
        return (uint4)(average_word_##width(kind, x.x, n, r), average_word_##width(kind, x.y, n, r),                   \
                       average_word_##width(kind, x.z, n, r), average_word_##width(kind, x.w, n, r));                  \
    }
PIECEWISE(w1)
PIECEWISE(w2)
PIECEWISE(w4)

INLINE uint4 combine_w8(uint kind, uint4 a, uint4 b)
{
    return (uint4)(as_uint2(combine_long(kind, as_ulong(a.xy), as_ulong(b.xy))),
                   as_uint2(combine_long(kind, as_ulong(a.zw), as_ulong(b.zw))));
}

INLINE uint4 scale_w8(uint kind, uint4 x, ulong factor)
{
    return (uint4)(as_uint2(scale_long(kind, as_ulong(x.xy), factor)),
                   as_uint2(scale_long(kind, as_ulong(x.zw), factor)));
}

INLINE uint4 average_w8(uint kind, uint4 x, uint n)
{
    const uint r = RECIPROCAL(n);
    return (uint4)(as_uint2(average_long(kind, as_ulong(x.xy), n, r)),
                   as_uint2(average_long(kind, as_ulong(x.zw), n, r)));
}

#endif
