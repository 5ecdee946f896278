// Every access to memory that another device or the host uses at the same time, and every fence. Nothing else in the
// kernels touches staging memory, the host block or the communicator's shared words. "Disassembly" below is that of
// IGC for Xe2 (bmg), which .ci/kernels/ocloc.sh reads again for each kernel.
#ifndef CCL_MEMORY_ORDER_H
#define CCL_MEMORY_ORDER_H

#ifdef __NVPTX__
#include "memory_order_ptx.h"
#else

// A line is one store of its granule: data and flag together, so no order between stores is needed at all. What can't
// be seen torn is the link's property, measured at init. The Nontemporal operand of SPIR-V's OpStore is what makes IGC
// bypass both caches; disassembly: store.ugm.d32x2 / d32x4 .uc.uc.
INLINE void store_line_8(global uint2 *line, uint2 value)
{
    __builtin_nontemporal_store(value, line);
}

INLINE void store_line_16(global uint4 *line, uint4 value)
{
    __builtin_nontemporal_store(value, line);
}

// One word for others to see: a barrier's token, the host's counters. Disassembly: store.ugm.d32 / d64 .uc.uc.
INLINE void store_word(global uint *word, uint value)
{
    __builtin_nontemporal_store(value, word);
}

INLINE void store_wide_word(global ulong *word, ulong value)
{
    __builtin_nontemporal_store(value, word);
}

// What a spin loop calls in each turn. SPIR-V lets a Nontemporal load move like any other and the builtin drops
// `volatile`: alone it leaves the loop, which then never ends. The acquire fence may not be crossed by loads that
// follow it, the next turn's among them, and costs nothing at work-item scope; disassembly: load.ugm .uc.uc and
// fence.ugm.none.group, both between the loop's label and its jump. It is also what keeps the data's load behind the
// flag's: the hardware issues them in order and the branch needs the flag's value.
INLINE void fence_of_spin(void)
{
#ifndef MUTANT_NO_FENCE
    atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_acquire, memory_scope_work_item);
#endif
}

// What is polled is a scalar of 32 bits: a vector's load may be split on a CPU and its data then be older than its
// flag, IGC narrows one of which only the flag is used to a cached load, and one of 64 bits becomes a cached load on
// parts without such integers (dg2). Disassembly: load.ugm.d32 .uc.uc.
INLINE uint poll_word(global const uint *word)
{
    return __builtin_nontemporal_load(word);
}

// The data of a line whose flag has been seen: it arrived with the flag and stays until this rank has consumed it.
// Disassembly: load.ugm.d32x2 / d32x4 .uc.uc.
INLINE uint2 load_line_8(global const uint2 *line)
{
    return __builtin_nontemporal_load(line);
}

INLINE uint4 load_line_16(global const uint4 *line)
{
    return __builtin_nontemporal_load(line);
}

// Stores so far (clearings of own flags, words of a report) come before what follows: needed where a *second* location
// says that they are done. OpMemoryBarrier at CrossDevice scope; disassembly: fence.ugm.none.gpu (dg2: evict.tile), so
// it is this device that has completed them. Beyond the device it rests on the link: clearings are in the device's own
// memory, or go to host memory as the token and the report do, and writes of one device over PCIe arrive in order.
INLINE void fence_before_telling_others(void)
{
    atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_release, memory_scope_all_svm_devices);
}

// Loads that follow see what was stored before a flag that this work-item, or one before a barrier, has seen. Only where
// data and flag are apart: bulk and direct, which are for memory that is coherent across all that use it.
INLINE void fence_after_being_told(void)
{
    atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_acquire, memory_scope_all_svm_devices);
}

// The communicator's words in device memory are used by work-groups of one device only, so atomics at Device scope
// (OpenCL 1.x built-ins, relaxed) are right for them, with these fences around: release before a group counts itself
// out, acquire after the last one has. Disassembly: fence.ugm.none.gpu and fence.ugm.invalidate.gpu.
INLINE void fence_device_release(void)
{
    atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_release, memory_scope_device);
}

INLINE void fence_device_acquire(void)
{
    atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_acquire, memory_scope_device);
}

INLINE uint read_shared(volatile global uint *word)
{
    return atomic_or(word, 0u);
}

// How many groups have arrived before, by the one work-item that tells of its group, which counts for `by`, and sees what
// theirs have stored.
INLINE uint count_arrivals(volatile global uint *word, uint by)
{
    fence_device_release();
    const uint before = atomic_add(word, by);
    fence_device_acquire();
    return before;
}

INLINE uint count_arrival(volatile global uint *word)
{
    fence_device_release();
    const uint before = atomic_inc(word);
    fence_device_acquire();
    return before;
}

// All work-items come here: what the group has stored comes before what its first work-item does next.
INLINE void group_has_stored(uint wires)
{
    fence_device_release();
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
}

// All work-items of the last group come to these.
INLINE void counters_before_busy(void)
{
    fence_device_release();
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
}

INLINE void busy_before_done(void)
{
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (get_local_id(0) == 0)
        fence_before_telling_others();
}

#endif

#endif
