// Kernels for the tests of the engine that executes SPIR-V; rebuild.sh makes kernels.spv of them.

#pragma OPENCL EXTENSION cl_khr_fp16 : enable

kernel void add(global const float *a, global const float *b, global float *sum, uint count)
{
    uint i = get_global_id(0);
    if (i < count) {
        sum[i] = a[i] + b[i];
    }
}

struct odd {
    uchar a;
    ulong b;
    ushort c;
};

// One argument of every size, each of which is written to `out`.
kernel void scalars(global ulong *out, uchar a, ushort b, uint c, ulong d, half e, float f, double g, uint2 h, uint3 i,
                    struct odd j)
{
    out[0] = a;
    out[1] = b;
    out[2] = c;
    out[3] = d;
    out[4] = as_ushort(e);
    out[5] = as_uint(f);
    out[6] = as_ulong(g);
    out[7] = h.x + ((ulong)h.y << 32);
    out[8] = i.x + i.y + i.z;
    out[9] = j.a + j.b + j.c;
}

// Reverses each group's items through local memory; `bias` is a pointer to constant memory.
kernel void reverse(global uint *data, local uint *scratch, constant uint *bias)
{
    uint id = get_local_id(0), size = get_local_size(0), start = get_group_id(0) * size;
    scratch[id] = data[start + id];
    barrier(CLK_LOCAL_MEM_FENCE);
    data[start + id] = scratch[size - 1 - id] + bias[0];
}

// Writes, for every work-item, where in the grid it is.
kernel void places(global ulong *out)
{
    size_t at = get_global_id(0) + get_global_size(0) * (get_global_id(1) + get_global_size(1) * get_global_id(2));
    out[at] = get_group_id(0) + 16 * get_group_id(1) + 256 * get_group_id(2) + 4096 * get_local_id(0)
            + 65536 * get_local_id(1) + ((ulong)get_local_linear_id() << 32);
}

// Plays ping-pong: waits until `from` holds a round's number and then writes the number to `to`; the side that serves
// writes first. `turns` bounds it; `result` gets the rounds that were played.
kernel void pingpong(global const uint *from, global uint *to, uint rounds, uint serves, ulong turns,
                     global uint *result)
{
    uint played = 0;
    for (ulong turn = 0; turn < turns; ++turn) {
        if (played == rounds) {
            break;
        }
        if (serves) {
            __builtin_nontemporal_store(played + 1, to);
        }
        uint value = __builtin_nontemporal_load(from);
        atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_acquire, memory_scope_work_item);
        if (value > played) {
            ++played;
            if (!serves) {
                __builtin_nontemporal_store(played, to);
            }
        }
    }
    *result = played;
}

// Every group says that it is there, in the place `first` plus its number, and waits for all `total` of them, which may
// be those of several launches: it ends well only if they are resident together.
kernel void together(global uint *there, uint first, uint total, ulong turns, global uint *seen)
{
    if (get_local_id(0) != 0) {
        return;
    }
    uint place = first + get_group_id(0);
    __builtin_nontemporal_store(1u, there + place);
    uint count = 0;
    for (ulong turn = 0; turn < turns; ++turn) {
        if (count == total) {
            break;
        }
        uint value = __builtin_nontemporal_load(there + count);
        atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_acquire, memory_scope_work_item);
        count += value;
    }
    seen[place] = count;
}

// Follows a pointer that lies in memory.
kernel void indirect(global const ulong *address)
{
    global uint *cell = (global uint *)address[0];
    cell[0] += 1;
}

__attribute__((reqd_work_group_size(4, 1, 1))) kernel void fours(global uint *out)
{
    out[get_global_id(0)] = 4;
}

__attribute__((intel_reqd_sub_group_size(16))) kernel void sixteen(global uint *out)
{
    out[get_global_id(0)] = get_sub_group_size();
}

kernel void nothing(void)
{
}

// Each group's sum of its part of the data, by halves in local memory.
kernel void total(global const uint *data, local ulong *scratch, global ulong *sums, uint count)
{
    uint id = get_local_id(0), at = get_global_id(0);
    scratch[id] = at < count ? data[at] : 0;
    for (uint part = get_local_size(0) / 2; part > 0; part /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (id < part) {
            scratch[id] += scratch[id + part];
        }
    }
    if (id == 0) {
        sums[get_group_id(0)] = scratch[0];
    }
}
