// The same accesses and fences for NVIDIA's GPUs, which the software driver's CUDA engine runs the kernels on. PTX has no
// word for "past the caches"; what it has is scope: a volatile access is a relaxed one at system scope, which is all that
// lines and polled words need. clang 15 knows neither these nor sub-groups for this target, hence the assembly.
#ifndef CCL_MEMORY_ORDER_PTX_H
#define CCL_MEMORY_ORDER_PTX_H

// One instruction for the whole line. PTX itself promises no more than that each word of a vector arrives whole; that
// aligned 8 and 16 bytes do is what the litmus test at init looks for.
INLINE void store_line_8(global uint2 *line, uint2 value)
{
    __asm__ volatile("st.volatile.global.v2.u32 [%0], {%1, %2};" ::"l"(line), "r"(value.x), "r"(value.y) : "memory");
}

INLINE void store_line_16(global uint4 *line, uint4 value)
{
    __asm__ volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(line), "r"(value.x), "r"(value.y),
                     "r"(value.z), "r"(value.w)
                     : "memory");
}

INLINE void store_word(global uint *word, uint value)
{
    __asm__ volatile("st.volatile.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

INLINE void store_wide_word(global ulong *word, ulong value)
{
    __asm__ volatile("st.volatile.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

// Volatile loads stay where they are and are made anew in each turn; only the compiler is to be told so.
INLINE void fence_of_spin(void)
{
    __asm__ volatile("" ::: "memory");
}

INLINE uint poll_word(global const uint *word)
{
    uint value;
    __asm__ volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

// Once more the word that has been polled: loads that follow see what came before its store. A fence would wait for this
// work-item's stores, too.
INLINE void acquire_word(global const uint *word)
{
    uint value;
    __asm__ volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
}

INLINE uint2 load_line_8(global const uint2 *line)
{
    uint x, y;
    __asm__ volatile("ld.volatile.global.v2.u32 {%0, %1}, [%2];" : "=r"(x), "=r"(y) : "l"(line) : "memory");
    return (uint2)(x, y);
}

// A line's load isn't split, so that its flag tells whether its data have come.
#define LINES_LOAD_WHOLE

INLINE uint4 load_line_16(global const uint4 *line)
{
    uint x, y, z, w;
    __asm__ volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x), "=r"(y), "=r"(z), "=r"(w)
                     : "l"(line)
                     : "memory");
    return (uint4)(x, y, z, w);
}

INLINE void fence_before_telling_others(void)
{
    __asm__ volatile("fence.acq_rel.sys;" ::: "memory");
}

INLINE void fence_after_being_told(void)
{
    __asm__ volatile("fence.acq_rel.sys;" ::: "memory");
}

INLINE void fence_device_release(void)
{
    __asm__ volatile("fence.acq_rel.gpu;" ::: "memory");
}

INLINE void fence_device_acquire(void)
{
    __asm__ volatile("fence.acq_rel.gpu;" ::: "memory");
}

INLINE uint read_shared(volatile global uint *word)
{
    uint value;
    __asm__ volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

// What a call does with those words. A fence takes as long here as a trip to memory and back, so there are no more than
// a call that begins behind the end of the one before needs: the end of a kernel orders all. That the words are busy
// tells of two calls at once, which would not become harmless by an order.
//
// One work-item's alone, though others come here: who doesn't take it sees it free.
INLINE uint take_busy(volatile global uint *word, bool takes)
{
    uint busy;
    __asm__ volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; mov.u32 %0, 0;"
                     " @p atom.relaxed.gpu.global.exch.b32 %0, [%1], 1; }"
                     : "=&r"(busy)
                     : "l"(word), "r"((uint)takes)
                     : "memory");
    return busy;
}

// Has a line on its way to this multiprocessor's cache.
INLINE void fetch_ahead(global const uchar *at)
{
    __asm__ volatile("prefetch.global.L1 [%0];" ::"l"(at) : "memory");
}

// The barrier orders the group's stores before the first work-item's fence, and that has them all before what it does. A
// group that is alone has nobody to tell.
INLINE void group_has_stored(uint wires)
{
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (get_local_id(0) == 0 && wires > 1)
        __asm__ volatile("fence.acq_rel.gpu;" ::: "memory");
}

// Both words in one trip: `poisoned` lies behind `left`.
INLINE uint count_out(global struct comm_state *state, uint *poisoned)
{
    ulong before;
    __asm__ volatile("atom.acquire.gpu.global.add.u64 %0, [%1], 1;" : "=l"(before) : "l"(&state->left) : "memory");
    *poisoned = (uint)(before >> 32);
    return (uint)before;
}

INLINE uint count_arrivals(volatile global uint *word, uint by)
{
    uint before;
    __asm__ volatile("fence.acq_rel.gpu; atom.acquire.gpu.global.add.u32 %0, [%1], %2;"
                     : "=r"(before)
                     : "l"(word), "r"(by)
                     : "memory");
    return before;
}

// Counts without an order: what is counted tells by itself whether it is there.
INLINE uint count_loosely(volatile global uint *word)
{
    uint before;
    __asm__ volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(word) : "memory");
    return before;
}

// What one work-group leaves for others: what has been stored before, by work-items that have met, is seen by who sees it.
INLINE ulong tell_bits(volatile global ulong *word, ulong bits)
{
    ulong before;
    __asm__ volatile("fence.acq_rel.gpu; atom.acquire.gpu.global.or.b64 %0, [%1], %2;"
                     : "=l"(before)
                     : "l"(word), "l"(bits)
                     : "memory");
    return before;
}

INLINE ulong look_for_bits(volatile global ulong *word)
{
    ulong bits;
    __asm__ volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(bits) : "l"(word) : "memory");
    return bits;
}

INLINE uint count_arrival(volatile global uint *word)
{
    return count_arrivals(word, 1);
}

INLINE void counters_before_busy(void)
{
}

// The host learns from `done` that a call is over, but what it has done only from its event.
INLINE void busy_before_done(void)
{
}

// A sub-group is a warp, all of whose work-items come here: groups are whole warps.
INLINE int warp_all(int predicate)
{
    int all;
    __asm__ volatile("{ .reg .pred p, q; setp.ne.s32 p, %1, 0; vote.sync.all.pred q, p, 0xffffffff;"
                     " selp.s32 %0, 1, 0, q; }"
                     : "=r"(all)
                     : "r"(predicate)
                     : "memory");
    return all;
}

// A meeting of the group, which tells whether one has it.
INLINE bool group_any(bool one)
{
    uint any;
    __asm__ volatile("{ .reg .pred p, q; setp.ne.u32 p, %1, 0; bar.red.or.pred q, 0, p; selp.u32 %0, 1, 0, q; }"
                     : "=r"(any)
                     : "r"((uint)one)
                     : "memory");
    return any != 0;
}

// A meeting of so many of the group's warps, always the same ones.
INLINE void some_meet(uint warps)
{
    __asm__ volatile("bar.sync 1, %0;" ::"r"(warps * 32) : "memory");
}

// So many warps meet, of which some only tell that they have come.
INLINE void others_meet(uint warps)
{
    __asm__ volatile("bar.sync 2, %0;" ::"r"(warps * 32) : "memory");
}

INLINE void others_may_meet(uint warps)
{
    __asm__ volatile("bar.arrive 2, %0;" ::"r"(warps * 32) : "memory");
}

#ifdef BEGINS_EARLY
// All kernels of this module wait, before they read anything that others write, for what they depend on.
constant uint waits_for_what_is_before = 1;
#endif

// A kernel of a module that says so may begin while the one before ends. Until this it has read nothing that
// others write, behind it all is there that it had to wait for; all of its work-groups come here but those that do nothing at all.
INLINE void wait_for_what_is_before(void)
{
#if defined BEGINS_EARLY && !defined MUTANT_UNASKED
    __asm__ volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// From when all groups have come here on, or have ended, the next kernel may begin, whose groups take places while they wait.
// So what comes here needs nobody any more who may need such a place.
INLINE void let_next_begin(void)
{
#ifdef BEGINS_EARLY
    __asm__ volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Has a line on its way to the cache that all share, which others' stores are seen in.
INLINE void fetch_before(global const float *at)
{
#ifdef BEGINS_EARLY
    __asm__ volatile("prefetch.global.L2 [%0];" ::"l"(at) : "memory");
#endif
}

#if defined TRIAL_LATE_SUMS || defined MUTANT_UNMARKED || defined MUTANT_ONE_GENERATION
INLINE void doze(void)
{
    __asm__ volatile("nanosleep.u32 10000;" ::: "memory");
}
#endif

// In a loop's body: nor may the assembler unroll it. Code that is executed once takes longer to come than to be executed.
INLINE void stay_short(void)
{
    __asm__ volatile(".pragma \"nounroll\";");
}

// How many multiprocessors there are.
INLINE uint processors(void)
{
    uint count;
    __asm__("mov.u32 %0, %%nsmid;" : "=r"(count));
    return count;
}

INLINE int warp_any(int predicate)
{
    return !warp_all(!predicate);
}

INLINE void warp_meet(void)
{
    __asm__ volatile("bar.warp.sync 0xffffffff;" ::: "memory");
}

// Another work-item's value, which all of the warp name: by its lane, or by how its lane's number differs from the own.
INLINE float warp_look(float value, uint lane)
{
    float seen;
    __asm__ volatile("shfl.sync.idx.b32 %0, %1, %2, 31, 0xffffffff;" : "=f"(seen) : "f"(value), "r"(lane));
    return seen;
}

INLINE float warp_exchange(float value, uint apart)
{
    float seen;
    __asm__ volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;" : "=f"(seen) : "f"(value), "r"(apart));
    return seen;
}

#define get_max_sub_group_size() 32u
#define get_sub_group_id() ((uint)get_local_id(0) / 32u)
#define get_sub_group_local_id() ((uint)get_local_id(0) % 32u)
#define get_num_sub_groups() ((uint)get_local_size(0) / 32u)
#define sub_group_all warp_all
#define sub_group_any warp_any
#define sub_group_barrier(fences) warp_meet()

#endif
