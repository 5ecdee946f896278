/* What libcclx.so has beyond oneCCL's C API. Functions return 0 or the code of oneCCL's API for the failure;
 * onecclGetLastError says it in words. Communicators are those of onecclCommInitRank. */
#ifndef CCLX_H
#define CCLX_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Level Zero's own handles, by the names of its headers. */
struct _ze_driver_handle_t;
struct _ze_context_handle_t;
struct _ze_device_handle_t;
struct _ze_command_list_handle_t;
struct _ze_event_handle_t;

/* A command list, or a SYCL queue, that calls are appended to. */
typedef struct cclxStream *cclxStream_t;

/* The driver, context and device of a communicator, for command lists and events of the caller's; each place may be NULL.
 * They live as long as the communicator. */
int cclxCommHandles(void *comm, struct _ze_driver_handle_t **driver, struct _ze_context_handle_t **context,
                    struct _ze_device_handle_t **device);

/* Makes a stream without a list of the caller's, in order, on one of the device's compute queues, counted from 0. */
int cclxStreamOpen(void *comm, int queue, cclxStream_t *stream);

/* Makes a stream of a Level Zero command list of the communicator's device, in a context of the caller's that is also the
 * communicator's: an immediate list, in order or not, or a regular list that is open. The list must outlive the stream.
 *
 * What is appended to an immediate list that is being captured becomes part of the graph; what is appended to a regular
 * list runs each time the list is executed. The stream of a regular list keeps what the recorded calls need: destroy it
 * after the last execution, and make it anew when the list is reset. Destroy a graph after the executables made of it. */
int cclxStreamCreate(void *comm, struct _ze_command_list_handle_t *list, cclxStream_t *stream);

/* Makes a stream of a SYCL queue (a pointer to a sycl::queue): in order, of the communicator's device and of SYCL's default
 * context. Calls are ordered by the queue, and recorded where it records; there can be no Level Zero events. The queue's
 * state is kept alive, not the object pointed to. */
int cclxStreamFromQueue(void *comm, void *queue, cclxStream_t *stream);

/* Appends a copy of memory of the device (onecclMemAlloc) or of the host, after the n_wait events of wait. Both ranges are to
 * stay until the stream has done it. */
int cclxStreamCopy(cclxStream_t stream, void *to, const void *from, size_t bytes, size_t n_wait,
                   struct _ze_event_handle_t *const *wait);

/* Waits until what is on the stream has finished, at most so long: 6 (in progress) if it has not by then. What became of a
 * call, onecclCommGetAsyncError tells. */
int cclxStreamSynchronize(cclxStream_t stream, uint32_t timeout_ms);

/* Ends a stream. A list or queue of the caller's stays. */
int cclxStreamDestroy(cclxStream_t stream);

/* As onecclAllReduce, with events. On a stream the buffers are device memory and the call returns once it is appended: it
 * begins after the n_wait events of wait, and signals signal, which may be NULL, as its last act. Events may be regular or
 * counter-based. A regular event that is to be signalled must be reset before each call, and before each replay of what
 * records the call, by its owner.
 *
 * With a NULL stream the buffers are host memory, there can be no events, and the call returns with the result.
 *
 * Within a group it is made at the group's end; with events it is refused there. */
int cclxAllReduceAfter(const void *send, void *recv, size_t count, int datatype, int op, void *comm, cclxStream_t stream,
                       size_t n_wait, struct _ze_event_handle_t *const *wait, struct _ze_event_handle_t *signal);

/* Finds a communicator that somebody else in this process made, by whatever name or route this library was reached: the one
 * live communicator of the unique id (4096 bytes) that it was made with, or of any where id is NULL, on the device of that
 * number, or on any where device is -1. One that was split off has no id.
 *
 * If none fits, or several, the code is that of invalid usage and *comm is NULL. One that another copy of the library made,
 * from another file or in another namespace of the dynamic linker, can't be used by this copy: it is refused, with both paths. */
int cclxCommLookup(const void *id, int device, void **comm);

/* mHC boundaries (docs/numerics.md). What a boundary computes: */
enum {
    CCLX_MHC_V4 = 0,   /* post, then pre; y by the coefficients of this boundary */
    CCLX_MHC_V41 = 1,  /* post, then pre; y by those of the boundary before */
    CCLX_MHC_POST = 2, /* post alone */
    CCLX_MHC_PRE = 3,  /* pre alone */
    CCLX_MHC_HEAD = 4  /* y alone, from sigmoid coefficients */
};

/* How an all-reduce and its boundary are computed. All have the same bits; not every call has each. */
enum { CCLX_MHC_AUTO = 0, CCLX_MHC_UNFUSED = 1, CCLX_MHC_A = 2, CCLX_MHC_B = 3, CCLX_MHC_C = 4 };

/* A boundary. Tensors are contiguous, in device memory; what the variant doesn't use is ignored. x, residual, y and the
 * norm's weight are of the datatype (bfloat16, float16 or float32, by oneCCL's numbers), the rest is float.
 *
 * residual_out, post_out and comb_out may be the storage of residual, post and comb, exactly, and x_out that of x. Any other
 * overlap of what is written is refused, as are null, misaligned and misshapen tensors, before anything is enqueued. */
typedef struct cclxMhcParams {
    size_t size;      /* sizeof(struct cclxMhcParams) */
    uint32_t version; /* 1 */
    int variant;
    int datatype;
    int design;       /* of cclxAllReduceMhc */
    uint64_t rows;    /* tokens; 0 is a call that does nothing */
    uint64_t hidden;  /* elements of a row of x */
    uint32_t streams; /* 2, 4 or 8 */
    uint32_t sinkhorn_iterations; /* 1 and more; the softmax is the first */
    float rms_eps;
    float pre_eps;
    float sinkhorn_eps;
    float post_multiplier;
    int has_norm;     /* whether RMSNorm(y) is wanted */
    float norm_eps;
    const void *x;              /* [rows, hidden]: this rank's part where the call reduces, else the whole */
    const void *residual;       /* [rows, streams, hidden] */
    const float *post;          /* [rows, streams] */
    const float *comb;          /* [rows, streams (in), streams (out)] */
    const float *previous_pre;  /* [rows, streams], of V41 */
    const float *fn_weights;    /* [fn_rows, fn_columns] */
    uint64_t fn_rows;           /* (2 + streams) * streams; of the head, streams */
    uint64_t fn_columns;        /* streams * hidden */
    const float *scale;         /* 3; of the head, 1 */
    const float *base;          /* [fn_rows] */
    const void *norm_weight;    /* [hidden] */
    void *x_out;                /* [rows, hidden], of cclxAllReduceMhc; may be NULL, of post alone unfused may not */
    void *residual_out;         /* [rows, streams, hidden] */
    float *post_out;            /* [rows, streams] */
    float *comb_out;            /* [rows, streams (in), streams (out)] */
    float *pre_out;             /* [rows, streams]; may be NULL, of V41 may not */
    void *y;                    /* [rows, hidden] */
    void *normed;               /* [rows, hidden] */
} cclxMhcParams;

/* Makes the communicator's device ready for boundaries, on this rank: compiles kernels and allocates what they share. To be
 * called before the first boundary; again it does nothing. */
int cclxMhcPrepare(void *comm);

/* Appends a boundary to stream, without a reduction, with events as of cclxAllReduceAfter. Not within a group. */
int cclxMhc(const cclxMhcParams *params, void *comm, cclxStream_t stream, size_t n_wait,
            struct _ze_event_handle_t *const *wait, struct _ze_event_handle_t *signal);

/* The same after a sum of x over all ranks. */
int cclxAllReduceMhc(const cclxMhcParams *params, void *comm, cclxStream_t stream, size_t n_wait,
                     struct _ze_event_handle_t *const *wait, struct _ze_event_handle_t *signal);

#ifdef __cplusplus
}
#endif

#endif
