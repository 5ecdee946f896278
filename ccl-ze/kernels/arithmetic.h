// Sums of elements, rounded once to nearest even in the element's type; every NaN becomes the one canonical NaN.
// The bits are those of the CPU's twin. Rounding is done on integers: a compiler's own conversions may flush or
// approximate, a sum of two binary32 numbers is exact to the last bit on every device that keeps subnormals.
//
// binary16 and bfloat16 are added in binary32 and rounded once more: with at least 2p+2 bits in between, that equals
// rounding the exact sum.
#ifndef CCL_ARITHMETIC_H
#define CCL_ARITHMETIC_H

#pragma OPENCL FP_CONTRACT OFF

#define INFINITY_BITS 0x7F800000u
#define MAGNITUDE 0x7FFFFFFFu

INLINE uint sum_bits(uint a, uint b)
{
    return as_uint(as_float(a) + as_float(b));
}

INLINE bool is_nan_bits(uint bits)
{
    return (bits & MAGNITUDE) > INFINITY_BITS;
}

INLINE uint add_float32(uint a, uint b)
{
    const uint sum = sum_bits(a, b);
    return is_nan_bits(sum) ? 0x7FC00000u : sum;
}

// The rounded number's bits in the upper half.
INLINE uint round_to_bfloat16(uint bits)
{
#ifdef MUTANT_TRUNCATE
    const uint rounded = bits;
#else
    const uint rounded = bits + 0x7FFFu + ((bits >> 16) & 1u);
#endif
    return (is_nan_bits(bits) ? 0x7FC00000u : rounded) & 0xFFFF0000u;
}

// Two elements.
INLINE uint add_bfloat16(uint a, uint b)
{
    const uint high = round_to_bfloat16(sum_bits(a & 0xFFFF0000u, b & 0xFFFF0000u));
    const uint low = round_to_bfloat16(sum_bits(a << 16, b << 16));
    return high | low >> 16;
}

#define EXPONENT_GAP (112u << 23)
#define LEAST_NORMAL_HALF 0x38800000u

INLINE uint widen_float16(uint half_bits)
{
    const uint magnitude = (half_bits & 0x7FFFu) << 13;
    // As mantissa of 2^-14, less 2^-14: exact, and no binary32 subnormal comes into it.
    const uint tiny = as_uint(as_float(magnitude + LEAST_NORMAL_HALF) - as_float(LEAST_NORMAL_HALF));
    const uint normal = magnitude + EXPONENT_GAP;
    const uint wide = magnitude >= 0x7C00u << 13 ? normal + EXPONENT_GAP : magnitude < 0x0400u << 13 ? tiny : normal;
    return wide | (half_bits & 0x8000u) << 16;
}

INLINE uint round_to_float16(uint bits)
{
    const uint magnitude = bits & MAGNITUDE;
#ifdef MUTANT_TRUNCATE
    const uint normal = (magnitude - EXPONENT_GAP) >> 13;
#else
    const uint normal = (magnitude - EXPONENT_GAP + 0x0FFFu + ((magnitude >> 13) & 1u)) >> 13;
#endif
    // The last bit of 0.5 is 2^-24, that of a subnormal half: the addition rounds, were there anything to round.
    const uint tiny = as_uint(as_float(magnitude) + 0.5f) - as_uint(0.5f);
    uint rounded = magnitude < LEAST_NORMAL_HALF ? tiny : normal;
    rounded = magnitude >= 0x47800000u ? 0x7C00u : rounded;
    return magnitude > INFINITY_BITS ? 0x7E00u : rounded | (bits >> 16 & 0x8000u);
}

// Two elements.
INLINE uint add_float16(uint a, uint b)
{
    const uint low = round_to_float16(sum_bits(widen_float16(a & 0xFFFFu), widen_float16(b & 0xFFFFu)));
    const uint high = round_to_float16(sum_bits(widen_float16(a >> 16), widen_float16(b >> 16)));
    return low | high << 16;
}

#endif
