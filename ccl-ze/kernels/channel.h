// Calls through channels, on lines and in bulk: messages from one rank to another, of which nobody else needs to know.
// docs/protocol.md, "Channels", and ccl-core's protocol/channel.rs and plan/channel.rs are their law.
#ifndef CCL_CHANNEL_H
#define CCL_CHANNEL_H

#define CHANNEL_WIRES 16u
#define CHANNEL_DEPTH 2u
#define LEAST_LAP 4u
#define MAX_RANKS 16u
#define ROOT_SHIFT 20u
#define FLAG_PRIVATE 1u

// The steps that a wait tells of.
#define AWAITS_CREDIT 0u
#define AWAITS_MESSAGE 1u
#define AWAITS_COMPARED 2u

// At the end of the communicator's state.
#define CHANNEL_STATE_OFFSET 328
struct channel_state {
    uint sent[MAX_RANKS][CHANNEL_WIRES];
    uint taken[MAX_RANKS][CHANNEL_WIRES];
    ulong private_calls;
};
_Static_assert(sizeof(struct comm_state) == CHANNEL_STATE_OFFSET, "the channels' state is elsewhere");

// Behind the other words of the host block.
#define PRIVATE_ENTERED_OFFSET 136
_Static_assert(sizeof(struct host_block) == PRIVATE_ENTERED_OFFSET, "the host's word is elsewhere");

struct piece_of {
    ulong offset;
    ulong bytes;
};

// A rank's own words for what it moves, where it has its own.
struct table {
    struct piece_of sends[MAX_RANKS];
    struct piece_of receives[MAX_RANKS];
};

struct channel {
    struct args a;
    global const ulong *peers;
    global const struct table *table;
    global struct channel_state *state;
    ulong send_stride;
    ulong recv_stride;
    ulong bytes;
    // Where the own piece begins in the whole message that is reduced, in elements.
    ulong first;
    ulong factor;
    uint sends;
    uint receives;
    // Wires of channels; this one; bytes of a full message.
    uint wires;
    uint wire;
    uint full;
    uint lap;
    bool is_private;
    // Offsets in staging memory of this wire's credit, of its flags and of its slots, of rank 0; from one rank's to the
    // next.
    ulong credits;
    ulong flags;
    ulong slots;
    ulong slot_bytes;
};

#define CHANNEL_PARAMETERS                                                                                             \
    global const uchar *send, global uchar *recv, global struct comm_state *state, global struct host_block *host,     \
        global const ulong *peers, global const struct table *table, ulong send_stride, ulong recv_stride,             \
        ulong bytes, ulong count, ulong first, ulong factor, uint kind, uint rank, uint n, uint sends, uint receives,  \
        uint wires, uint part, uint flags
#define CHANNEL_ARGUMENTS                                                                                              \
    send, recv, state, host, peers, table, send_stride, recv_stride, bytes, count, first, factor, kind, rank, n, sends, \
        receives, wires, part, flags

INLINE struct channel channel_of(CHANNEL_PARAMETERS, uint full)
{
    struct channel c;
    const struct args a = {send,  recv, state, host, (global uchar *)peers[rank],
                           (global uchar *)peers[rank + 1 < n ? rank + 1 : 0], count, 0, 0, kind, rank, n, 0};
    c.a = a;
    c.peers = peers;
    c.table = table;
    c.state = (global struct channel_state *)((global uchar *)state + CHANNEL_STATE_OFFSET);
    c.send_stride = send_stride;
    c.recv_stride = recv_stride;
    c.bytes = bytes;
    c.first = first;
    c.factor = factor;
    c.sends = sends;
    c.receives = receives;
    c.wires = wires;
    c.wire = get_group_id(0);
    c.full = full;
    c.lap = state->tag_limit < LEAST_LAP ? LEAST_LAP : state->tag_limit;
    c.is_private = (flags & FLAG_PRIVATE) != 0;
    const struct layout l = layout_of(state, n);
    const ulong end = l.bulk_slot == 0 ? l.flags : l.turns_end;
    const ulong at = (end + BULK_UNIT - 1) / BULK_UNIT * BULK_UNIT;
    const ulong lines = l.push_lines / CHANNEL_WIRES * l.granule, bulk = l.bulk_slot / CHANNEL_WIRES / BLOCK_BYTES * BLOCK_BYTES;
    c.slot_bytes = ((lines > bulk ? lines : bulk) + FLAG_STRIDE - 1) / FLAG_STRIDE * FLAG_STRIDE;
    c.credits = at + c.wire * FLAG_STRIDE;
    c.flags = at + ((ulong)n * CHANNEL_WIRES + c.wire * CHANNEL_DEPTH) * FLAG_STRIDE;
    c.slots = at + (ulong)n * CHANNEL_WIRES * (1 + CHANNEL_DEPTH) * FLAG_STRIDE + c.wire * CHANNEL_DEPTH * c.slot_bytes;
    return c;
}

INLINE global uchar *memory_of(const struct channel *c, uint rank)
{
    return (global uchar *)c->peers[rank];
}

// In the sender's memory, the credit that `receiver` gives on this wire.
INLINE ulong credit_of(const struct channel *c, uint receiver)
{
    return c->credits + (ulong)receiver * CHANNEL_WIRES * FLAG_STRIDE;
}

// In the receiver's memory, where a message of `sender` with this tag is on this wire; and in bulk its flag.
INLINE ulong slot_of(const struct channel *c, uint sender, uint tag)
{
    return c->slots + ((ulong)sender * CHANNEL_WIRES * CHANNEL_DEPTH + tag % CHANNEL_DEPTH) * c->slot_bytes;
}

INLINE ulong flag_of(const struct channel *c, uint sender, uint tag)
{
    return c->flags + ((ulong)sender * CHANNEL_WIRES * CHANNEL_DEPTH + tag % CHANNEL_DEPTH) * FLAG_STRIDE;
}

// What goes to `peer`, or comes from it; false if nothing does.
INLINE bool sent_piece(const struct channel *c, uint peer, struct piece_of *piece)
{
    if (c->table != 0) {
        *piece = c->table->sends[peer];
        return piece->bytes != 0;
    }
    piece->offset = peer * c->send_stride;
    piece->bytes = c->bytes;
    return (c->sends >> peer & 1) != 0;
}

INLINE bool received_piece(const struct channel *c, uint peer, struct piece_of *piece)
{
    if (c->table != 0) {
        *piece = c->table->receives[peer];
        return piece->bytes != 0;
    }
    piece->offset = peer * c->recv_stride;
    piece->bytes = c->bytes;
    return (c->receives >> peer & 1) != 0;
}

// Messages of a piece on all wires; one of a piece without bytes.
INLINE ulong messages_of(const struct channel *c, ulong bytes)
{
    return bytes == 0 ? 1 : divide_long(bytes + c->full - 1, c->full);
}

// What this wire carries of a piece in a round; false if nothing.
INLINE bool message_of(const struct channel *c, ulong bytes, ulong round, ulong *start, uint *length)
{
    const ulong number = round * c->wires + c->wire;
    if (number >= messages_of(c, bytes))
        return false;
    *start = number * c->full;
    *length = bytes - *start < c->full ? (uint)(bytes - *start) : c->full;
    return true;
}

INLINE ulong rounds_of(const struct channel *c)
{
    ulong most = 0;
    for (uint peer = 0; peer < c->a.n; peer++) {
        struct piece_of piece;
        if (peer != c->a.rank && sent_piece(c, peer, &piece) && messages_of(c, piece.bytes) > most)
            most = messages_of(c, piece.bytes);
        if (peer != c->a.rank && received_piece(c, peer, &piece) && messages_of(c, piece.bytes) > most)
            most = messages_of(c, piece.bytes);
    }
    return divide_long(most + c->wires - 1, c->wires);
}

// One work-item waits until a message to `peer` has room; false if it gave up.
INLINE bool has_room(const struct channel *c, local struct entry *e, uint peer, uint sent, ulong round)
{
    const bool begins = sent == c->lap;
    const uint tag = begins ? 1 : sent + 1;
#ifdef MUTANT_NO_CREDIT
    return true;
#endif
    if (!begins && tag <= CHANNEL_DEPTH)
        return true;
    const struct place at = {AWAITS_CREDIT, (uint)round, begins ? 0 : tag - CHANNEL_DEPTH};
    global const uint *credit = (global const uint *)(c->a.inbox + credit_of(c, peer));
    uint spins = 0, looks = 0;
    for (;;) {
        const uint seen = poll_word(credit);
        fence_of_spin();
        if (begins ? seen == 0 : seen >= at.expected)
            return true;
        if (++spins == SPINS_PER_LOOK) {
            spins = 0;
            const uint fault = look(&c->a, e, ++looks);
            if (fault != FAULT_NONE) {
                report(&c->a, e, c->wire, &at, fault, seen);
                return false;
            }
        }
    }
}

// All work-items come here; says what the first of them found.
INLINE bool all_hear(local struct entry *e, bool found)
{
    if (get_local_id(0) == 0)
        e->heard = found;
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    fence_after_being_told();
    found = e->heard;
    barrier(CLK_LOCAL_MEM_FENCE);
    return found;
}

INLINE uint next_tag(const struct channel *c, uint sent)
{
    return sent == c->lap ? 1 : sent + 1;
}

// All work-items come here; whether one of the group gave up.
INLINE bool any_failed(local volatile struct entry *e)
{
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    const bool failed = e->failed != 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    return failed;
}

// Words of which byte, from the lowest, are in from..end of 16 bytes.
INLINE uint4 bytes_between(uint from, uint end)
{
    const int4 first = (int4)((int)from) - (int4)(0, 4, 8, 12), last = (int4)((int)end) - (int4)(0, 4, 8, 12);
    const uint4 above = (uint4)(0xFFFFFFFFu) << convert_uint4(clamp(first, 0, 3) * 8);
    const uint4 below = (uint4)(0xFFFFFFFFu) >> convert_uint4((4 - clamp(last, 1, 4)) * 8);
    return (first < 4 && last > 0) ? above & below : (uint4)(0);
}

// The own piece changes places, unless it is in place: all work-items of all groups share it out.
INLINE void keep_own(const struct channel *c)
{
    struct piece_of from, to;
    if (!sent_piece(c, c->a.rank, &from) || !received_piece(c, c->a.rank, &to))
        return;
    global const uchar *source = c->a.send + from.offset;
    global uchar *target = c->a.recv + to.offset;
    if (source == target)
        return;
    const ulong item = get_global_id(0), turn = get_global_size(0);
    const bool words = (((ulong)source | (ulong)target | to.bytes) & 3) == 0;
    for (ulong i = item; words && i < to.bytes >> 2; i += turn)
        ((global uint *)target)[i] = ((global const uint *)source)[i];
    for (ulong i = item; !words && i < to.bytes; i += turn)
        target[i] = source[i];
}

// What comes from all peers in a round has been taken: tells the senders. At the end of a lap the flags are cleared
// before: `bytes` from where a peer's slots, or flags, of this wire begin. All work-items come here.
INLINE void tell_taken(const struct channel *c, ulong round, ulong begin, ulong stride, ulong bytes)
{
    bool clears = false;
    for (uint d = 1; d < c->a.n; d++) {
        const uint peer = at_distance(c->a.rank, d, c->a.n);
        struct piece_of piece;
        ulong start;
        uint length;
        if (!received_piece(c, peer, &piece) || !message_of(c, piece.bytes, round, &start, &length) ||
            c->state->taken[peer][c->wire] + 1 != c->lap)
            continue;
        clears = true;
        for (ulong i = get_local_id(0) * 8; i < bytes; i += get_local_size(0) * 8)
            store_line_8((global uint2 *)(c->a.inbox + begin + peer * stride + i), (uint2)(0));
    }
    fence_before_telling_others();
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (clears)
        fence_before_telling_others();
    for (uint d = 1; d < c->a.n && get_local_id(0) == 0; d++) {
        const uint peer = at_distance(c->a.rank, d, c->a.n);
        struct piece_of piece;
        ulong start;
        uint length;
        if (!received_piece(c, peer, &piece) || !message_of(c, piece.bytes, round, &start, &length))
            continue;
        const uint tag = c->state->taken[peer][c->wire] + 1, credit = tag == c->lap ? 0 : tag;
        c->state->taken[peer][c->wire] = credit;
        store_word((global uint *)(memory_of(c, peer) + credit_of(c, c->a.rank)), credit);
    }
}

// Fills what a call that gave up would have written.
INLINE void fill_pieces(const struct channel *c)
{
    for (uint peer = 0; peer < c->a.n; peer++) {
        struct piece_of piece;
        if (!received_piece(c, peer, &piece))
            continue;
        for (ulong i = get_local_id(0); i < piece.bytes; i += get_local_size(0))
            c->a.recv[piece.offset + i] = 0xFF;
    }
}

// What all work-items of a group do first; false if the call overlaps another and must be left as it is, and otherwise
// `going` says whether there is anything to be done before leaving.
INLINE bool channel_begin(const struct channel *c, local struct entry *e, bool *going)
{
    const struct args *a = &c->a;
    if (get_local_id(0) == 0) {
        enter(a, e, c->wire);
        if (c->wire == 0 && !e->overlapped) {
            if (c->is_private) {
                c->state->private_calls += 1;
                store_wide_word((global ulong *)((global uchar *)a->host + PRIVATE_ENTERED_OFFSET),
                                c->state->private_calls);
            } else if (a->state->check != 0) {
                compare(a, e);
                // Who ends a call through channels hasn't heard of everyone; but the next comparison overwrites this one.
                e->clearing = (uint)e->call;
                if (e->failed == 0)
                    pass_barrier(a, e, 0, AWAITS_COMPARED);
                e->clearing = 0;
            }
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (e->overlapped != 0) {
        // The busy words and the counters are the other call's.
        const struct place nowhere = {0, 0, 0};
        if (get_local_id(0) == 0)
            report(a, e, c->wire, &nowhere, FAULT_OVERLAP, 1);
        fill_pieces(c);
        return false;
    }
    *going = e->failed == 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    return true;
}

// All work-items of all groups come here, save those of a group that found its busy word taken.
INLINE void channel_leave(const struct channel *c, local struct entry *e)
{
    // It had the number of the collective that is next, and is none.
    if (c->is_private && get_local_id(0) == 0)
        e->call -= 1;
    // Nothing to fill by its count: what is written of the output is filled below.
    struct args a = c->a;
    a.count = 0;
    leave(&a, e, get_num_groups(0), 0);
    if (e->last == 0)
        return;
    if (e->failed != 0)
        fill_pieces(c);
    if (c->is_private && get_local_id(0) == 0)
        store_wide_word(&c->a.host->entered, e->call);
}

#endif
