// data.h for gloo.py.
#include "data.h"

void peers_fill(void *to, int bf16, size_t count, uint32_t rank, uint32_t seed) {
    data_fill(to, bf16, count, rank, seed);
}

size_t peers_wrong(const void *from, int bf16, size_t count, uint32_t ranks, uint32_t seed) {
    return data_wrong(from, bf16, count, ranks, seed);
}
