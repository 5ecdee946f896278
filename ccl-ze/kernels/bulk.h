// Flags that are apart from their data: whoever stores one has stored the data before, whoever sees one sees the data.
#ifndef CCL_BULK_H
#define CCL_BULK_H

// Elements side by side.
struct range {
    ulong first;
    ulong elements;
};

// All work-items come here before one of them stores flags: what any has stored is to be seen by who sees a flag.
INLINE void all_have_stored(void)
{
#ifdef __NVPTX__
    // The first work-item, which alone tells, has by the barrier what all have stored before its fence; a fence of each
    // would be one trip for each.
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (get_local_id(0) == 0)
        fence_before_telling_others();
#else
    fence_before_telling_others();
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    fence_before_telling_others();
#endif
}

// This wire's flag of a place, in a peer's staging memory.
INLINE void tell(const struct push *p, const struct layout *l, const struct args *a, uint peer, ulong flags, uint place,
                 uint tag)
{
    const ulong offset = flags + ((ulong)place * MAX_WIRES + p->wire) * FLAG_STRIDE;
    store_word((global uint *)(peer_memory(p, peer) + offset), tag);
}

// Where the input that `sender` stores for `receiver` lies, and of a mesh the result on its way back: ccl-core's
// `bulk_place`. One of them is the own rank.
INLINE global uchar *bulk_place(const struct push *p, const struct args *a, uint tag, uint sender, uint receiver)
{
    const bool turned = p->one_shot && generation(tag) == 1;
    const uint holder = turned ? sender : receiver, other = turned ? receiver : sender;
    return peer_memory(p, holder) + p->bulk + ((p->one_shot ? 0 : a->n) + other) * p->slot;
}

// One work-item waits for this wire's flag of a place in the own staging memory; false if it gave up.
INLINE bool hear(const struct push *p, const struct layout *l, const struct args *a, local struct entry *e,
                 const struct place *at, ulong flags, uint place)
{
    const ulong offset = flags + ((ulong)place * MAX_WIRES + p->wire) * FLAG_STRIDE;
    global const uint *flag = (global const uint *)(a->inbox + offset);
    const bool came = wait_for_token(a, e, p->wire, at, flag);
#ifdef __NVPTX__
    acquire_word(flag);
#endif
    return came;
}

// All work-items come here; says what the one that waited found.
INLINE bool all_have_heard(local struct entry *e, bool came)
{
#ifdef __NVPTX__
    // Who heard has acquired; the barrier passes that on.
    if (get_local_id(0) == 0)
        e->heard = came;
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
#else
    if (get_local_id(0) == 0)
        e->heard = came;
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    fence_after_being_told();
#endif
    came = e->heard;
    barrier(CLK_LOCAL_MEM_FENCE);
    return came;
}

#endif
