// The reduction of all ranks' contributions one after the other, for elements of one width: begun with the first, and
// ended when the last is in. In ring order each step is rounded to the element type; in rank order 16-bit floats stay
// binary32 until the end.
#ifndef CCL_FOLD_H
#define CCL_FOLD_H

// Words of a piece; in rank order of 16-bit floats the lower elements of each word, and the upper ones.
struct fold {
    uint4 low;
    uint4 high;
};

#define FOLD(width)                                                                                                    \
    INLINE struct fold fold_start_##width(uint kind, uint4 x)                                                          \
    {                                                                                                                  \
        const struct fold f = {x, (uint4)(0)};                                                                         \
        return f;                                                                                                      \
    }                                                                                                                  \
    INLINE void fold_add_##width(uint kind, struct fold *f, uint4 x)                                                   \
    {                                                                                                                  \
        f->low = combine_##width(kind, f->low, x);                                                                     \
    }                                                                                                                  \
    INLINE uint4 fold_end_##width(uint kind, const struct fold *f, uint n)                                             \
    {                                                                                                                  \
        return OP_OF(kind) == OP_AVG ? average_##width(kind, f->low, n) : f->low;                                      \
    }
FOLD(w1)
FOLD(w4)
FOLD(w8)

// The four words of a piece, one after the other.
#define WORDWISE(f, ...) (uint4)(f(x, __VA_ARGS__), f(y, __VA_ARGS__), f(z, __VA_ARGS__), f(w, __VA_ARGS__))
#define WIDEN(i, half) half(kind, words.i)
#define ADD_WIDE(i, sum, half) combine_float32(OP_OF(kind), sum.i, half(kind, words.i))
#define DIVIDED(i, sum) divide_float32(sum.i, n, RECIPROCAL(n))
#define NARROWED(i, lower, upper) narrow(kind, lower.i, upper.i)

INLINE struct fold fold_start_w2(uint kind, uint4 words)
{
    struct fold f = {words, (uint4)(0)};
    if (ORDER_OF(kind) == ORDER_RANK) {
        f.low = WORDWISE(WIDEN, widen_low);
        f.high = WORDWISE(WIDEN, widen_high);
    }
    return f;
}

INLINE void fold_add_w2(uint kind, struct fold *f, uint4 words)
{
    if (ORDER_OF(kind) == ORDER_RANK) {
        f->low = WORDWISE(ADD_WIDE, f->low, widen_low);
        f->high = WORDWISE(ADD_WIDE, f->high, widen_high);
    } else {
        f->low = combine_w2(kind, f->low, words);
    }
}

INLINE uint4 fold_end_w2(uint kind, const struct fold *f, uint n)
{
    uint4 low = f->low, high = f->high;
    if (ORDER_OF(kind) != ORDER_RANK)
        return OP_OF(kind) == OP_AVG ? average_w2(kind, low, n) : low;
    if (OP_OF(kind) == OP_AVG) {
        low = WORDWISE(DIVIDED, low);
        high = WORDWISE(DIVIDED, high);
    }
    return WORDWISE(NARROWED, low, high);
}

#endif
