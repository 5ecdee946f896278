// Which elements a wire carries, in which order: ccl-core's geometry module, which explains the terms.
#ifndef CCL_GEOMETRY_H
#define CCL_GEOMETRY_H

struct geometry {
    ulong count;
    ulong period;
    // Whole rows, and blocks of a whole row and of the last, shorter one: each chunk has the quotient by n, chunks
    // below the remainder have one more.
    ulong rows;
    ulong row_share;
    ulong tail_share;
    uint row_rest;
    uint tail_rest;
    uint n;
    uint wires;
    uint wire;
    // log2 of the elements of a block.
    uint shift;
};

struct block {
    ulong first;
    uint elements;
};

// One wire's share of a chunk in one round.
struct segment {
    // Blocks of the chunk in a whole row.
    ulong row_blocks;
    // Number, in the chunk, of the segment's first block.
    ulong first;
    uint chunk;
    uint blocks;
    uint words;
};

// Devices have no 64-bit division; almost every message gets by with 32 bits. The loop is small and rarely runs.
INLINE ulong divide_any(ulong a, ulong b)
{
    if (((a | b) >> 32) == 0)
        return (uint)a / (uint)b;
    ulong quotient = 0, rest = 0;
    for (int bit = 63 - (int)clz(a); bit >= 0; bit--) {
        const bool carry = rest >> 63;
        rest = rest << 1 | ((a >> bit) & 1u);
        if (carry || rest >= b) {
            rest -= b;
            quotient |= 1ul << bit;
        }
    }
    return quotient;
}

#ifdef __NVPTX__
// What is executed lies close together where the loop is elsewhere.
static __attribute__((noinline)) ulong divide_slowly(ulong a, ulong b)
{
    return divide_any(a, b);
}

INLINE ulong divide_long(ulong a, ulong b)
{
    return ((a | b) >> 32) == 0 ? (uint)a / (uint)b : divide_slowly(a, b);
}
#else
INLINE ulong divide_long(ulong a, ulong b)
{
    return divide_any(a, b);
}
#endif

INLINE struct geometry make_geometry(ulong count, ulong period, uint n, uint wires, uint wire, uint shift)
{
    struct geometry g;
    g.count = count;
    g.period = period < count ? period : count;
    g.rows = g.period == count ? 1 : divide_long(count, g.period);
    g.n = n;
    g.wires = wires;
    g.wire = wire;
    g.shift = shift;
    const ulong round_up = (1ul << shift) - 1;
    const ulong row_blocks = (g.period + round_up) >> shift;
    const ulong tail_blocks = (count - g.rows * g.period + round_up) >> shift;
    g.row_share = divide_long(row_blocks, n);
    g.row_rest = (uint)(row_blocks - g.row_share * n);
    g.tail_share = divide_long(tail_blocks, n);
    g.tail_rest = (uint)(tail_blocks - g.tail_share * n);
    return g;
}

// Block k of a chunk that has row_blocks blocks in a row.
INLINE struct block block_of(const struct geometry *g, uint chunk, ulong row_blocks, ulong k)
{
    ulong row = 0, column = k;
    if (g->period != g->count) {
        row = divide_long(k, row_blocks);
        column = k - row * row_blocks;
    }
    const ulong offset = (chunk + column * g->n) << g->shift;
    struct block block;
    block.first = row * g->period + offset;
    const ulong row_left = g->period - offset, left = g->count - block.first;
    const ulong most = row_left < left ? row_left : left;
    block.elements = (uint)(most < 1ul << g->shift ? most : 1ul << g->shift);
    return block;
}

// The segment of a chunk that begins with block `first` of the wire's stream and has at most `most` blocks.
INLINE struct segment segment_of(const struct geometry *g, uint chunk, ulong first, uint most, uint log2_elem)
{
    struct segment s;
    s.chunk = chunk;
    s.row_blocks = g->row_share + (chunk < g->row_rest);
    const ulong in_chunk = g->rows * s.row_blocks + g->tail_share + (chunk < g->tail_rest);
    const ulong in_wire = in_chunk > g->wire ? divide_long(in_chunk - g->wire + g->wires - 1, g->wires) : 0;
    const ulong left = in_wire > first ? in_wire - first : 0;
    s.blocks = left < most ? (uint)left : most;
    s.first = g->wire + first * g->wires;
    s.words = s.blocks * BLOCK_WORDS;
    if (s.blocks != 0 && left <= most) {
        // The last block of the stream is cut to the words that it needs.
        const struct block last = block_of(g, chunk, s.row_blocks, s.first + (ulong)(s.blocks - 1) * g->wires);
        s.words -= BLOCK_WORDS - (((last.elements << log2_elem) + 3) >> 2);
    }
    return s;
}

#endif
