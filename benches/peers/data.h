// The numbers that are reduced: integers so small that every sum is exact in bfloat16 whatever its order, drawn by a
// hash of rank, position and seed. The coordinator's own ranks draw the same (src/bin/peers/data.rs).
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline int32_t data_integer(uint32_t rank, uint32_t position, uint32_t seed) {
    uint32_t x = position * 0x9E3779B1u + (rank + 1) * 0x85EBCA77u + seed * 0xC2B2AE3Du;
    x ^= x >> 15;
    x *= 0x2C1B3C6Du;
    x ^= x >> 13;
    return (int32_t)(x >> 27) - 16;
}

static inline uint16_t data_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return (uint16_t)(bits >> 16);  // exact for these integers
}

// The input of one rank.
static inline void data_fill(void *to, int bf16, size_t count, uint32_t rank, uint32_t seed) {
    for (size_t i = 0; i < count; i++) {
        float value = (float)data_integer(rank, (uint32_t)i, seed);
        if (bf16)
            ((uint16_t *)to)[i] = data_bf16(value);
        else
            ((float *)to)[i] = value;
    }
}

// Elements that are not the sum over all ranks. A zero may have either sign.
static inline size_t data_wrong(const void *from, int bf16, size_t count, uint32_t ranks, uint32_t seed) {
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++) {
        int32_t sum = 0;
        for (uint32_t rank = 0; rank < ranks; rank++) sum += data_integer(rank, (uint32_t)i, seed);
        float is;
        if (bf16) {
            uint32_t bits = (uint32_t)((const uint16_t *)from)[i] << 16;
            memcpy(&is, &bits, 4);
        } else {
            is = ((const float *)from)[i];
        }
        wrong += !(is == (float)sum);
    }
    return wrong;
}
