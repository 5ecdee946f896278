// The life of one collective on the device, whatever it computes: entry, waiting, failing, leaving.
#ifndef CCL_CALL_H
#define CCL_CALL_H

struct args {
    global const uchar *send;
    global uchar *recv;
    global struct comm_state *state;
    global struct host_block *host;
    // Own staging memory, and the next rank's.
    global uchar *inbox;
    global uchar *outbox;
    ulong count;
    ulong period;
    ulong factor;
    uint kind;
    uint rank;
    uint n;
    uint rounds;
};

// What the first work-item of a group reads for all of it.
struct entry {
    ulong call;
    // Looks at the abort word before a wait gives up.
    uint looks;
    uint base;
    uint next;
    uint wraps;
    // The number of the clearing that this call begins with; 0 if none.
    uint clearing;
    uint overlapped;
    // Set by whichever work-item gives up.
    uint failed;
    uint last;
    // Where one work-item waits for all: whether what it waited for has come.
    uint heard;
};

// Where a wait stands in the protocol.
struct place {
    uint step;
    uint round;
    uint expected;
};

INLINE uint mix_into(uint before, uint word)
{
    const uint x = (before ^ word) * 0x9E3779B1u;
    return x ^ x >> 15;
}

// Of all arguments that must be alike on all ranks: ccl-core's `Shape`.
INLINE uint fingerprint(const struct args *a)
{
    uint x = mix_into(0, (uint)a->count);
    x = mix_into(x, (uint)(a->count >> 32));
    x = mix_into(x, (uint)a->period);
    x = mix_into(x, (uint)(a->period >> 32));
    x = mix_into(x, (uint)a->factor);
    x = mix_into(x, (uint)(a->factor >> 32));
    x = mix_into(x, a->kind);
    return mix_into(x, a->rounds);
}

// Says what call `number` is. A poisoned communicator keeps what it said of the call that failed. Nothing orders these
// stores, which every call makes: they are looked at when a call has been stuck for long, after `report`'s fence, or twice.
INLINE void tell_shape(const struct args *a, ulong number)
{
    global struct host_block *host = a->host;
    store_wide_word(&host->shape_count, a->count);
    // Both in one store: the compiler would make one of two, but a cached one.
    store_wide_word((global ulong *)&host->shape_kind, (ulong)fingerprint(a) << 32 | a->kind);
    store_wide_word(&host->shape_call, number);
}

// One work-item of each wire: tells the host that the call has begun, and what it is.
INLINE void tell_host(const struct args *a, local struct entry *e, uint wire)
{
    if (wire != 0 || e->overlapped)
        return;
    store_wide_word(&a->host->entered, e->call);
    if (e->failed == 0)
        tell_shape(a, e->call);
}

// What a call begins with. On NVIDIA's GPUs all of it is asked for before any is looked at, and meanwhile a work-item can
// do what needs none of it: a trip to memory takes as long as hundreds of instructions.
struct first {
    uint busy;
    uint poisoned;
    uint base;
    uint wraps;
    uint tag_limit;
    uint spins_per_ms;
    uint check;
    ulong calls;
    ulong spin_limit_ms;
};

#ifdef __NVPTX__
// All work-items of the group may come here, of which one, that `enters`, takes the busy word.
INLINE struct first ask_first(global struct comm_state *state, uint wire, bool enters)
{
    struct first f;
    f.busy = take_busy(&state->busy[wire], enters);
    f.poisoned = read_shared(&state->poisoned);
    f.base = state->base;
    f.wraps = state->wraps;
    f.tag_limit = state->tag_limit;
    f.spins_per_ms = state->spins_per_ms;
    f.check = state->check;
    f.calls = state->calls;
    f.spin_limit_ms = state->spin_limit_ms;
    // The loads stay ahead of what follows.
    fence_of_spin();
    return f;
}

// Where nothing was asked for ahead, it is now.
#define KNOWN(word) (first != 0 ? first->word : state->word)
#else
#define KNOWN(word) state->word
#endif

INLINE void enter_with(const struct args *a, local struct entry *e, uint wire, const struct first *first)
{
    global struct comm_state *state = a->state;
#ifdef __NVPTX__
    e->overlapped = first != 0 ? first->busy : take_busy(&state->busy[wire], true);
    e->failed = first != 0 ? first->poisoned : read_shared(&state->poisoned);
#else
    e->overlapped = atomic_xchg(&state->busy[wire], 1u);
    fence_device_acquire();
    e->failed = read_shared(&state->poisoned);
#endif
    e->call = KNOWN(calls) + 1;
    e->last = 0;
    const uint base = KNOWN(base), wraps = KNOWN(wraps);
    const bool crosses = a->rounds > KNOWN(tag_limit) - base;
#ifdef MUTANT_FROZEN_BASE
    e->base = 0;
#else
    e->base = crosses ? 0 : base;
#endif
    e->next = crosses ? a->rounds : base + a->rounds;
    e->wraps = wraps + crosses;
#ifdef MUTANT_NO_CLEARING
    e->clearing = 0;
#else
    e->clearing = crosses ? wraps + 1 : 0;
#endif
    const ulong per_ms = KNOWN(spins_per_ms) != 0 ? KNOWN(spins_per_ms) : SPINS_PER_MS;
    const ulong looks = KNOWN(spin_limit_ms) * per_ms / SPINS_PER_LOOK + 1;
    e->looks = looks < 0xFFFFFFFFul ? (uint)looks : 0xFFFFFFFFu;
#ifdef TELLS_LATE
    // A checked call may wait for its peers here already.
    if (KNOWN(check) == 0)
        return;
#endif
    tell_host(a, e, wire);
}

INLINE void enter(const struct args *a, local struct entry *e, uint wire)
{
    enter_with(a, e, wire, 0);
}

// Says why the collective failed, if nobody has: the fault's code is the last word that the host gets to see.
INLINE void report(const struct args *a, local volatile struct entry *e, uint wire, const struct place *at,
                          uint fault, uint seen)
{
    e->failed = 1;
    if (fault == FAULT_ELSEWHERE || atomic_cmpxchg(&a->state->poisoned, FAULT_NONE, fault) != FAULT_NONE)
        return;
    global struct host_block *host = a->host;
    store_word(&host->wire, wire);
    // In pairs: of two constants the compiler would make one store, but a cached one.
    store_wide_word((global ulong *)&host->step, (ulong)at->round << 32 | at->step);
    store_wide_word((global ulong *)&host->expected, (ulong)seen << 32 | at->expected);
    store_wide_word(&host->call, e->call);
    fence_before_telling_others();
    store_word(&host->fault, fault);
}

// What a waiting work-item does every SPINS_PER_LOOK turns.
INLINE uint look(const struct args *a, local volatile struct entry *e, uint looks)
{
#ifdef MUTANT_CACHED_LOOK
    if (*(volatile global const uint *)&a->host->abort != 0)
#else
    if (poll_word(&a->host->abort) != 0)
#endif
        return FAULT_ABORTED;
    if (e->failed != 0 || read_shared(&a->state->poisoned) != 0)
        return FAULT_ELSEWHERE;
    return looks >= e->looks ? FAULT_SPIN_LIMIT : FAULT_NONE;
}

// One work-item waits for a token; false if it gave up.
INLINE bool wait_for_token(const struct args *a, local struct entry *e, uint wire, const struct place *at,
                                  global const uint *token)
{
    uint spins = 0, looks = 0;
    for (;;) {
        const uint seen = poll_word(token);
        fence_of_spin();
        if (seen == at->expected)
            return true;
        if (++spins == SPINS_PER_LOOK) {
            spins = 0;
            const uint fault = look(a, e, ++looks);
            if (fault != FAULT_NONE) {
                report(a, e, wire, at, fault, seen);
                return false;
            }
        }
    }
}

// In checked mode: one work-item sends the next rank what this call is, and compares with what the previous rank's is.
INLINE void compare(const struct args *a, local struct entry *e)
{
    if (a->state->check == 0 || a->n < 2 || e->failed != 0)
        return;
    const uint own = fingerprint(a), number = (uint)e->call;
    store_line_8((global uint2 *)((global struct staging_head *)a->outbox)->check, (uint2)(own, number));
    global const uint *line = ((global struct staging_head *)a->inbox)->check;
#ifdef MUTANT_LATE_COMPARE
    // Rank 1 looks once the next call's line lies there, or after long.
    for (uint turn = 0; turn < 1u << 26 && a->rank == 1 && poll_word(line + 1) <= number; turn++)
        fence_of_spin();
#endif
    const struct place at = {0, 0, number};
    if (!wait_for_token(a, e, 0, &at, line + 1))
        return;
    // It arrived with its flag, and stays until this rank has gone on.
    const uint other = poll_word(line);
    const struct place differs = {0, 0, own};
    if (other != own)
        report(a, e, 0, &differs, FAULT_MISMATCH, other);
}

// A token goes round the ranks twice: when it is back at rank 0 all have come, then it lets them go.
INLINE void pass_barrier(const struct args *a, local struct entry *e, uint wire, uint barrier)
{
    global const uint *from = ((global struct staging_head *)a->inbox)->barrier[wire] + barrier * 2;
    global uint *to = ((global struct staging_head *)a->outbox)->barrier[wire] + barrier * 2;
    const struct place at = {barrier, 0, e->clearing};
    for (uint lap = 0; lap < 2; lap++) {
        if (a->rank == 0)
            store_word(to + lap, at.expected);
        const bool waits = a->rank != 0 || lap == 0, passes = a->rank != 0 && (lap == 0 || a->rank + 1 < a->n);
        if (waits && !wait_for_token(a, e, wire, &at, from + lap))
            return;
        if (passes)
            store_word(to + lap, at.expected);
    }
}

// Zeroes, in each of `slots` slots from an offset on, the wire's part: `part` bytes, and for the last wire what the
// division leaves over. Returns the offset behind them. 8 bytes at a time: all that lies there is a multiple of it.
INLINE ulong clear_parts(const struct args *a, local struct entry *e, ulong from, uint slots, ulong slot_bytes,
                         ulong part, uint wire, uint wires)
{
    const ulong first = wire * part, end = wire + 1 == wires ? slot_bytes : first + part;
    for (uint slot = 0; slot < slots && e->failed == 0; slot++) {
        global uchar *at = a->inbox + from + slot * slot_bytes;
        for (ulong i = first + get_local_id(0) * 8; i < end; i += get_local_size(0) * 8)
            store_line_8((global uint2 *)(at + i), (uint2)(0));
    }
    return from + slots * slot_bytes;
}

// Starts the tag range anew: barrier, clear own flags, barrier. Each group does so for its own wire of every algorithm,
// whose lines and flags no other wire's sender touches; the last one also takes what this call's number of wires leaves
// unused, which calls with another number do not. All work-items of the group come here.
INLINE void clear_flags(const struct args *a, local struct entry *e, uint wire, uint wires)
{
    if (get_local_id(0) == 0)
        pass_barrier(a, e, wire, 0);
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    const struct layout l = layout_of(a->state, a->n);
    ulong at = clear_parts(a, e, STAGING_HEAD_BYTES, 2 * (a->n - 1), (ulong)a->state->slot_tiles * l.tile_bytes,
                           (ulong)(a->state->slot_tiles / wires) * l.tile_bytes, wire, wires);
    at = clear_parts(a, e, at, l.places, l.push_slot, l.push_lines / wires * l.granule, wire, wires);
    if (a->state->bulk_bytes != 0)
        clear_parts(a, e, at, l.places + 2 * a->n, MAX_WIRES * FLAG_STRIDE, FLAG_STRIDE, wire, wires);
    fence_before_telling_others();
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (get_local_id(0) == 0 && e->failed == 0)
        pass_barrier(a, e, wire, 1);
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
}

// Makes the whole output unmistakable: zeros would be plausible, all ones is NaN in every float type.
INLINE void fill_failed(const struct args *a, uint log2_elem)
{
    const ulong bytes = a->count << log2_elem;
    const bool words = (((ulong)a->recv | bytes) & 3) == 0;
    for (ulong i = get_local_id(0); words && i < bytes >> 2; i += get_local_size(0))
        ((global uint *)a->recv)[i] = 0xFFFFFFFFu;
    for (ulong i = get_local_id(0); !words && i < bytes; i += get_local_size(0))
        a->recv[i] = 0xFF;
}

// What all work-items of a group do first; false if the collective overlaps another and must be left as it is, and
// otherwise `going` says whether there is anything to be done before leaving.
INLINE bool begin_with(const struct args *a, local struct entry *e, uint wire, uint wires, uint log2_elem, bool *going,
                       const struct first *first)
{
    if (get_local_id(0) == 0) {
        if (first != 0)
            enter_with(a, e, wire, first);
        else
            enter(a, e, wire);
        if (wire == 0 && !e->overlapped)
            compare(a, e);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (e->overlapped != 0) {
        // The busy words and the counters are the other collective's.
        const struct place nowhere = {0, 0, 0};
        if (get_local_id(0) == 0)
            report(a, e, wire, &nowhere, FAULT_OVERLAP, 1);
        fill_failed(a, log2_elem);
        return false;
    }
    // What decides where all work-items go is read by all before any can change it.
    const bool clears = e->failed == 0 && e->clearing != 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (clears)
        clear_flags(a, e, wire, wires);
    *going = e->failed == 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    return true;
}

INLINE bool begin(const struct args *a, local struct entry *e, uint wire, uint wires, uint log2_elem, bool *going)
{
    return begin_with(a, e, wire, wires, log2_elem, going, 0);
}

// Ends a call of `wires` groups: by all work-items of the last one, where e->failed says whether there is a result.
INLINE void end_call(const struct args *a, local struct entry *e, uint wires, uint log2_elem)
{
    global struct comm_state *state = a->state;
    // Nobody else writes to the output any more.
    if (e->failed != 0)
        fill_failed(a, log2_elem);
    if (get_local_id(0) == 0) {
        state->base = e->next;
        state->wraps = e->wraps;
        state->calls = e->call;
        atomic_xchg(&state->left, 0u);
    }
    counters_before_busy();
    for (uint wire = get_local_id(0); wire < wires; wire += get_local_size(0))
        atomic_xchg(&state->busy[wire], 0u);
    busy_before_done();
    if (get_local_id(0) == 0)
        store_wide_word(&a->host->done, e->call);
}

#ifdef __NVPTX__
// The same by one work-item, while others of the group still do what can't fail and isn't filled.
INLINE void end_alone(const struct args *a, local struct entry *e, uint wires, uint log2_elem)
{
    global struct comm_state *state = a->state;
    for (ulong i = 0; e->failed != 0 && i < a->count << log2_elem; i++)
        a->recv[i] = 0xFF;
    state->base = e->next;
    state->wraps = e->wraps;
    state->calls = e->call;
    atomic_xchg(&state->left, 0u);
    for (uint wire = 0; wire < wires; wire++)
        store_word(&state->busy[wire], 0u);
    store_wide_word(&a->host->done, e->call);
}
#endif

// All work-items of `counted` groups come here, of which the last one ends the call of `wires` groups.
INLINE void leave_of(const struct args *a, local struct entry *e, uint counted, uint wires, uint log2_elem)
{
    global struct comm_state *state = a->state;
    group_has_stored(counted);
    if (get_local_id(0) == 0) {
        // More than all have left only where collectives overlapped; the communicator is poisoned then.
#ifdef __NVPTX__
        uint failed = 0;
        if (counted == 1)
            failed = read_shared(&state->poisoned);
        e->last = counted == 1 || count_out(state, &failed) + 1 >= counted;
        if (e->last != 0)
            e->failed = failed;
#else
        e->last = atomic_inc(&state->left) + 1 >= counted;
        fence_device_acquire();
        if (e->last != 0)
            e->failed = read_shared(&state->poisoned);
#endif
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (e->last != 0)
        end_call(a, e, wires, log2_elem);
}

// All work-items of all groups come here, save those of a group that found its busy word taken.
INLINE void leave(const struct args *a, local struct entry *e, uint wires, uint log2_elem)
{
    leave_of(a, e, wires, wires, log2_elem);
}

#endif
