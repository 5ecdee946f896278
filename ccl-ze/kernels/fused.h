// What a collective's work-groups need that have work after it: to begin where there are more of them than wires, and to meet.
#ifndef CCL_FUSED_H
#define CCL_FUSED_H

// In the argument `shape`, besides what a boundary's has: the algorithm, the design, the rank.
#define IS_MESH(shape) (((shape) >> 17 & 1u) != 0)
#define DESIGN_OF(shape) ((shape) >> 20 & 0xFu)
#define RANK_OF(shape) ((shape) >> 24)
// By columns, where a mesh or none is said: into how many parts the mixes are cut.
#define COLUMN_PARTS_OF(shape) ((shape) >> 17 & 7u)
// Most ranks by columns: what they give is in local memory.
#define MOST_COLUMN_RANKS 8u
#define DESIGN_DELAYED 2u
#define DESIGN_OWNER 3u

// The steps of design C that a wait tells of: ccl-core's `MhcPhase`. Of the others a meeting is told as the last.
#define MHC_REDUCE 1u
#define MHC_GATHER 3u
#define MHC_FINISH 4u

// Words of the workspace, all 0 between calls but RELEASED, then from SLOTS on the sums of blocks, of one batch of rows and
// of the next in turn.
#define COUNTED 0u
#define MET 1u
#define RELEASED 2u
#define READY 64u
// By columns, for each tile: the groups that have left their sums, and above them, by GAVE_UP, those that have none.
#define ARRIVED 128u
#define GAVE_UP 0x10000u
// By columns and warps: behind the sums of two batches, sums of blocks with the call's number each.
#define PAIRS (4u << 20)
#define SLOTS 256u
#define SLOTS_OF_BATCH (((4u << 20) / 4u - SLOTS) / 2u)

// number / by, of numbers below 2^21.
INLINE uint few_quotient(uint number, uint by)
{
#ifdef __NVPTX__
    return small_quotient(number, by);
#else
    return number / by;
#endif
}

// All work-items come here; false if any has given up. What any has stored is seen by all.
INLINE bool all_well(local struct entry *e)
{
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    const bool well = e->failed == 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    return well;
}

#ifdef MUTANT_AHEAD_OF_CLEARING
#define CLEARED_WIRES(group, wires) ((group) < (wires) ? (wires) : 0)
#else
#define CLEARED_WIRES(group, wires) (wires)
#endif
#define CLEAR_FUSED(a, e, group, wires)                                                                                \
    do {                                                                                                               \
        if (group < wires)                                                                                             \
            clear_flags(a, e, group, wires);                                                                           \
        /* The last that each wire's barrier leaves in this rank's memory. */                                          \
        const struct place at = {1, 0, e->clearing};                                                                   \
        global struct staging_head *head = (global struct staging_head *)a->inbox;                                     \
        for (uint wire = 0; wire < CLEARED_WIRES(group, wires) && get_local_id(0) == 0 && e->failed == 0; wire++)      \
            wait_for_token(a, e, group, &at, head->barrier[wire] + (a->rank == 0 ? 2 : 3));                            \
    } while (0)

#ifdef __NVPTX__
// Out of the way of what calls execute but for one in thousands of millions.
static __attribute__((noinline)) void clear_fused(const struct args *a, local struct entry *e, uint group, uint wires)
{
    CLEAR_FUSED(a, e, group, wires);
}
#endif

// As `begin`, of more groups than wires. Every group reads what others of this rank clear: so all wait until all wires are
// cleared, everywhere. `filled` is what is filled where there is no result.
INLINE bool begin_fused(const struct args *a, const struct args *filled, local struct entry *e, uint group, uint wires,
                        uint log2_elem, bool *going, const struct first *first)
{
    if (get_local_id(0) == 0) {
        enter_with(a, e, group, first);
        if (group == 0 && !e->overlapped)
            compare(a, e);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (e->overlapped != 0) {
        const struct place nowhere = {0, 0, 0};
        if (get_local_id(0) == 0)
            report(a, e, group, &nowhere, FAULT_OVERLAP, 1);
        fill_failed(filled, log2_elem);
        return false;
    }
    const bool clears = e->failed == 0 && e->clearing != 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (clears) {
#ifdef __NVPTX__
        // Where its address goes: the other one stays in registers.
        const struct args own = *a;
        clear_fused(&own, e, group, wires);
#else
        CLEAR_FUSED(a, e, group, wires);
#endif
    }
    *going = all_well(e);
    return true;
}

// All work-items of `groups` groups come here, and go on when all have: what any has stored is seen by all. False if this
// group gave up.
INLINE bool meet(const struct args *a, local struct entry *e, uint group, uint groups, uint round, global uint *workspace)
{
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (get_local_id(0) == 0) {
        fence_device_release();
        // It doesn't change before this group, too, has come.
        const struct place at = {MHC_FINISH, round, poll_word(workspace + RELEASED) + 1};
        if (atomic_inc(workspace + MET) + 1 == groups) {
            atomic_xchg(workspace + MET, 0u);
            fence_device_release();
            store_word(workspace + RELEASED, at.expected);
        } else {
            wait_for_token(a, e, group, &at, workspace + RELEASED);
        }
        fence_device_acquire();
    }
    return all_well(e);
}

#endif
