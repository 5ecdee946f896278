// Memory that host, device and peers share, as ccl-core's protocol module lays it out. The numbers are the protocol's.
#ifndef CCL_LAYOUT_H
#define CCL_LAYOUT_H

// The module holds kernels only, so each access to memory can be traced to a kernel argument.
#define INLINE static inline __attribute__((always_inline))

#define BLOCK_BYTES 256u
#define BLOCK_WORDS 64u
#define TILE_WORDS (15u * BLOCK_WORDS)
#define MAX_WIRES 64u
#define STAGING_HEAD_BYTES 8192u
#define SPINS_PER_LOOK 1024u

// Codes of the first failure.
#define FAULT_NONE 0u
#define FAULT_ABORTED 1u
#define FAULT_SPIN_LIMIT 2u
#define FAULT_OVERLAP 3u
#define FAULT_MISMATCH 4u
// Never stored: another work-item of this rank failed and has said why.
#define FAULT_ELSEWHERE 0xFFFFFFFFu

struct comm_state {
    uint base;
    uint tag_limit;
    uint left;
    uint poisoned;
    uint wraps;
    uint hooks;
    ulong calls;
    ulong spin_limit_ms;
    uint spins_before_yield;
    // Turns of a spin loop in a millisecond; 0 leaves it to SPINS_PER_MS.
    uint spins_per_ms;
    uint slot_tiles;
    uint push_tiles;
    uint bulk_bytes;
    uint granule;
    uint busy[MAX_WIRES];
    uint check;
    uint reserved;
};

struct host_block {
    uint abort;
    uint reserved[15];
    ulong entered;
    ulong done;
    uint fault;
    uint wire;
    uint step;
    uint round;
    uint expected;
    uint seen;
    ulong call;
    ulong shape_call;
    ulong shape_count;
    uint shape_kind;
    uint shape_fingerprint;
};

struct staging_head {
    uint parked;
    uint reserved[15];
    uint barrier[MAX_WIRES][16];
    uint check[16];
};

#define AT(type, field, offset) \
    _Static_assert(__builtin_offsetof(struct type, field) == (offset), #type "." #field " is elsewhere")
AT(comm_state, poisoned, 12);
AT(comm_state, calls, 24);
AT(comm_state, spin_limit_ms, 32);
AT(comm_state, spins_per_ms, 44);
AT(comm_state, slot_tiles, 48);
AT(comm_state, granule, 60);
AT(comm_state, busy, 64);
AT(comm_state, check, 320);
AT(host_block, entered, 64);
AT(host_block, done, 72);
AT(host_block, fault, 80);
AT(host_block, seen, 100);
AT(host_block, call, 104);
AT(host_block, shape_call, 112);
AT(host_block, shape_fingerprint, 132);
AT(staging_head, barrier, 64);
AT(staging_head, check, 4160);
_Static_assert(sizeof(struct staging_head) <= STAGING_HEAD_BYTES, "the head leaves its room");

// What follows from the agreed numbers about staging memory behind the ring's slots: ccl-core's `Layout`. A place is a
// region, a generation and a sender; offsets are those of the first.
#define GENERATIONS 2u
#define FLAG_STRIDE 64u
#define REGION_INPUT 0u
#define REGION_RESULT 1u
#define DIRECT_READY 0u
#define DIRECT_DONE 1u
#define BULK_UNIT 4096ul

struct layout {
    ulong tile_bytes;
    ulong granule;
    uint places;
    uint push_lines;
    // Push line slots, flags of bulk places, flags of direct calls, bulk slots.
    ulong push;
    ulong push_slot;
    ulong flags;
    ulong direct;
    ulong bulk;
    ulong bulk_slot;
    // Bulk slots of one-shots and meshes, and their end.
    ulong turns;
    ulong turns_end;
};

INLINE struct layout layout_of(global const struct comm_state *state, uint n)
{
    struct layout l;
    const uint granule = state->granule;
    const uint lines = granule == 8 ? TILE_WORDS : granule == 16 ? TILE_WORDS / 3 : TILE_WORDS / 15;
    l.granule = granule;
    l.tile_bytes = lines * granule;
    l.places = 2 * GENERATIONS * n;
    l.push_lines = state->push_tiles * lines;
    l.push = STAGING_HEAD_BYTES + (ulong)(2 * (n - 1)) * state->slot_tiles * l.tile_bytes;
    l.push_slot = l.push_lines * l.granule;
    l.flags = l.push + l.places * l.push_slot;
    l.direct = l.flags + (ulong)l.places * MAX_WIRES * FLAG_STRIDE;
    l.bulk = (l.direct + (ulong)2 * n * MAX_WIRES * FLAG_STRIDE + BULK_UNIT - 1) / BULK_UNIT * BULK_UNIT;
    l.bulk_slot = state->bulk_bytes;
    l.turns = l.bulk + l.places * l.bulk_slot;
    l.turns_end = l.turns + 2 * n * l.bulk_slot;
    return l;
}

INLINE uint generation(uint tag)
{
#ifdef MUTANT_ONE_GENERATION
    tag = 0;
#endif
    return tag % GENERATIONS;
}

INLINE uint place_of(uint n, uint region, uint tag, uint sender)
{
    return (region * GENERATIONS + generation(tag)) * n + sender;
}

// A uncached load of device memory takes a quarter of a microsecond at least, so this gives up late, never early: it
// is the backstop behind the host's own deadline.
#define SPINS_PER_MS 4096u

#endif
