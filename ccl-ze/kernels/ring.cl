// The ring's kernels, and the one that tests a link. README.md says how families are built.
#pragma OPENCL EXTENSION cl_khr_subgroups : enable

#include "layout.h"
#include "memory_order.h"
#include "arithmetic.h"
#include "geometry.h"
#include "call.h"
#include "line.h"

#define ALGORITHM "ring.inc"

#define WIDTH w1
#define LOG2_ELEM 0
#include "lines.inc"
#undef WIDTH
#undef LOG2_ELEM

#define WIDTH w2
#define LOG2_ELEM 1
#include "lines.inc"
#undef WIDTH
#undef LOG2_ELEM

#define WIDTH w4
#define LOG2_ELEM 2
#include "lines.inc"
#undef WIDTH
#undef LOG2_ELEM

#define WIDTH w8
#define LOG2_ELEM 3
#include "lines.inc"
#undef WIDTH
#undef LOG2_ELEM

// Writes the words of a pattern, by which the host tests a link.
kernel void probe(global uint *memory, ulong words, uint seed)
{
    for (ulong i = get_global_id(0); i < words; i += get_global_size(0)) {
        uint x = (uint)i * 0x9E3779B1u ^ seed;
        x ^= x >> 15;
        x *= 0x85EBCA77u;
        store_word(memory + i, x ^ x >> 13);
    }
}
