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

INLINE struct fold fold_start_w2(uint kind, uint4 x)
{
    const bool wide = ORDER_OF(kind) == ORDER_RANK;
    const struct fold f = {wide ? widen_low(kind, x) : x, wide ? widen_high(kind, x) : (uint4)(0)};
    return f;
}

INLINE void fold_add_w2(uint kind, struct fold *f, uint4 x)
{
    if (ORDER_OF(kind) == ORDER_RANK) {
        f->low = combine_float32(OP_OF(kind), f->low, widen_low(kind, x));
        f->high = combine_float32(OP_OF(kind), f->high, widen_high(kind, x));
    } else {
        f->low = combine_w2(kind, f->low, x);
    }
}

INLINE uint4 fold_end_w2(uint kind, const struct fold *f, uint n)
{
    const bool averages = OP_OF(kind) == OP_AVG;
    if (ORDER_OF(kind) != ORDER_RANK)
        return averages ? average_w2(kind, f->low, n) : f->low;
    return averages ? narrow(kind, average_float32(f->low, n), average_float32(f->high, n)) : narrow(kind, f->low, f->high);
}

#endif
