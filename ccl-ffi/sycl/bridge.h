// What the library asks of a SYCL runtime. ccl-ze/src/sycl/bridge.rs has the same declarations.
//
// All functions return 0, or another value with a text in `error`; none lets an exception out.
#pragma once
#include <cstddef>
#include <cstdint>

extern "C" {

#define CCLX_SYCL_RECORDS 2
#define CCLX_SYCL_ASK_SUBMIT 2
#define CCLX_SYCL_DRIVER_WAS_ASKED 2

// Nothing was said; immediate ones; not immediate ones.
#define CCLX_SYCL_LISTS_USUAL 0
#define CCLX_SYCL_LISTS_IMMEDIATE 1
#define CCLX_SYCL_LISTS_NOT_IMMEDIATE 2

// A fill of a byte is submitted to it that has no event, or one that is dropped; the driver records it as long as it is there.
#define CCLX_SYCL_TRY_NO_EVENT 0
#define CCLX_SYCL_TRY_DROPPED_EVENT 1
#define CCLX_SYCL_TRY_RECORDED 2

// Raised with every change of what follows.
#define CCLX_SYCL_BRIDGE_VERSION 5

// An event of the runtime, in memory of the caller's.
typedef struct cclx_sycl_event {
    uint64_t words[2];
} cclx_sycl_event;

// What doesn't change about a queue.
typedef struct cclx_sycl_queue_facts {
    uint32_t level_zero; // 0: another backend's, and the handles are null
    uint32_t in_order;
    uint32_t lists; // which command lists it was said to use, CCLX_SYCL_LISTS_...
    void *device;  // ze_device_handle_t
    void *context; // ze_context_handle_t
} cclx_sycl_queue_facts;

// One launch of a kernel, or where `kernel` is null a copy of `bytes` bytes, or where that is 0 nothing but its event.
typedef struct cclx_sycl_work {
    void *kernel;
    uint32_t groups;
    uint32_t items; // of a group
    const uint64_t *words; // its one argument, a structure
    size_t word_bytes;
    void *to;
    const void *from;
    size_t bytes;
    // Not if the queue records: the result is then CCLX_SYCL_RECORDS, and nothing was done. CCLX_SYCL_DRIVER_WAS_ASKED: the
    // driver doesn't capture the queue's list, so that it only records by the runtime's own means. Where it begins to record
    // meanwhile, a submission of nothing may be recorded and has no event: CCLX_SYCL_RECORDS too.
    uint32_t unless_recording;
} cclx_sycl_work;

typedef struct cclx_sycl_bridge {
    uint32_t version;
    uint32_t release; // the major version of libsycl
    // The text of this thread's last failure.
    const char *(*error)(void);

    // The Level Zero GPUs in the runtime's order, with the context that queues on them have if nobody chose another. The
    // handles stay as long as the process. Writes at most `most`, and their number.
    int (*devices)(uint32_t most, void **devices, void **contexts, uint32_t *count);

    // Tells queues apart that are alive.
    uintptr_t (*queue_key)(const void *queue);
    // A handle of its own, which keeps the queue alive.
    int (*queue_open)(const void *queue, void **own, cclx_sycl_queue_facts *facts);
    void (*queue_close)(void *own);
    // 1 if it records, 0 if not; if asking costs as much as submitting does, CCLX_SYCL_ASK_SUBMIT, unless `whatever_it_costs`:
    // `unless_recording` tells.
    int (*queue_recording)(void *own, uint32_t whatever_it_costs, uint32_t *recording);
    // Its immediate command list; null if it has a command queue instead.
    int (*queue_list)(void *own, void **list);

    // The graph that the queue records for.
    int (*graph_open)(void *own_queue, void **own);
    int (*graph_is)(void *own_graph, void *own_queue, uint32_t *same);
    void (*graph_close)(void *own_graph);

    // A kernel of the runtime's on a ze_kernel_handle_t that nobody else sets arguments of; both handles stay the caller's.
    int (*kernel_open)(void *own_queue, void *module, void *kernel, void **own);
    void (*kernel_close)(void *own_kernel);

    // Whether nothing that was submitted is unfinished; what was recorded isn't submitted. May be asked of a queue that records.
    // 0 also where the runtime doesn't know.
    int (*queue_is_idle)(void *own, uint32_t *idle);
    // From now on a submission that nobody wants an event of has one all the same, which is let go at once.
    void (*queue_drop_events)(void *own);
    // Another queue of its device and context, to try something on. CCLX_SYCL_TRY_...: what is done with it.
    int (*queue_to_try)(void *own, uint32_t what, void **other);

    // Submits in the queue's order and after the events in `after`; makes `event`, unless that is null: it costs the runtime
    // about a thousand instructions.
    int (*submit)(void *own_queue, const cclx_sycl_work *work, const cclx_sycl_event *const *after, uint32_t count,
                  cclx_sycl_event *event);
    // The same of a kernel, after nothing, without an event and not if the queue records: `groups` times `items` work-items.
    // What it is given fits in registers.
    int (*launch)(void *own_queue, void *kernel, uint64_t groups_items, const uint64_t *words, size_t word_bytes,
                  uint32_t unless_recording);

    int (*event_finished)(const cclx_sycl_event *event, uint32_t *finished);
    void (*event_close)(cclx_sycl_event *event);
} cclx_sycl_bridge;

// The bridge, or null if it is of another version.
__attribute__((visibility("default"))) const cclx_sycl_bridge *cclx_sycl_bridge_open(uint32_t version);
}
