// What the push algorithms have in common, on lines, in bulk and direct: nobody passes anything on, everybody stores
// into everybody's staging memory. docs/protocol.md and ccl-core's plan/push.rs are their law.
#ifndef CCL_PUSH_H
#define CCL_PUSH_H

// The kernels' argument `mode`.
#define MODE_ONE_SHOT 0u

// The steps that a wait tells of: ccl-core's `Phase`.
#define PHASE_REDUCE 1u
#define PHASE_GATHER 2u

struct push {
    // Each rank's staging memory, the own one included.
    global const ulong *peers;
    // By which the own contribution to a pre-multiplied sum is multiplied: each rank has a factor of its own.
    ulong factor;
    // What a wire has of a slot: lines, or bytes.
    uint part;
    bool one_shot;
    uint wire;
    uint wires;
    // Bytes of a bulk slot, and where this wire's part of the first one lies.
    ulong slot;
    ulong bulk;
};

INLINE global uchar *peer_memory(const struct push *p, uint rank)
{
    return (global uchar *)p->peers[rank];
}

// The arguments that every collective has. The barrier of a clearing goes round the ranks as the ring does.
INLINE struct args args_of(global const uchar *send, global uchar *recv, global struct comm_state *state,
                           global struct host_block *host, global const ulong *peers, ulong count, ulong period,
                           uint kind, uint rank, uint n, uint rounds)
{
    const uint next = rank + 1 < n ? rank + 1 : 0;
    const struct args a = {send,  recv,   state,  host, (global uchar *)peers[rank], (global uchar *)peers[next],
                           count, period, 0, kind, rank, n, rounds};
    return a;
}

// A broken build gives rank 1 the time that the others need to be a round ahead.
INLINE void come_late(const struct args *a)
{
#ifdef MUTANT_ONE_GENERATION
    for (uint i = 0; i < 20000 && a->rank == 1; i++)
        fence_before_telling_others();
#ifdef __NVPTX__
    // A fence that has nothing to order takes no time there.
    for (uint i = 0; i < 2000 && a->rank == 1; i++)
        doze();
#endif
#endif
}

// Sub-groups that share out work by number: a team's members have the items first, first + step, ...
struct team {
    uint first;
    uint step;
    // This work-item's place in its team, and the team's size; counted in lines of so many lanes.
    uint item;
    uint items;
};

INLINE struct team team_of(uint most, uint lanes)
{
    const uint size = get_max_sub_group_size(), groups = get_local_size(0) / size;
    const uint teams = groups * size == get_local_size(0) && groups >= most ? most : 1;
    // Not by %: the compiler would make both of one division, in a way that SPIR-V has no word for.
    const uint number = get_sub_group_id(), place = number / teams, first = number - place * teams;
    const uint members = (groups - first + teams - 1) / teams;
    struct team team;
    team.first = first;
    team.step = teams;
    team.item = (teams == 1 ? get_local_id(0) : place * size + get_sub_group_local_id()) / lanes;
    team.items = (teams == 1 ? (uint)get_local_size(0) : members * size) / lanes;
    return team;
}

// A rank at a distance below n.
INLINE uint at_distance(uint rank, uint distance, uint n)
{
    return rank + distance < n ? rank + distance : rank + distance - n;
}

// Whose input is the i-th of a chunk's in the order of reduction.
INLINE uint in_order(uint kind, uint chunk, uint i, uint n)
{
#ifdef MUTANT_WRONG_ORDER
    return i;
#else
    return ORDER_OF(kind) == ORDER_RANK ? i : at_distance(chunk, i, n);
#endif
}

#endif
