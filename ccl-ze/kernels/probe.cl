// The kernel by which the host tests a link.
#include "layout.h"
#include "memory_order.h"

// Writes the words of a pattern.
kernel void probe(global uint *memory, ulong words, uint seed)
{
    for (ulong i = get_global_id(0); i < words; i += get_global_size(0)) {
        uint x = (uint)i * 0x9E3779B1u ^ seed;
        x ^= x >> 15;
        x *= 0x85EBCA77u;
        store_word(memory + i, x ^ x >> 13);
    }
}
