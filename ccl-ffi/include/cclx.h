/* What libcclx.so has beyond oneCCL's C API. Functions return 0 or the code of oneCCL's API for the failure;
 * onecclGetLastError says it in words. Communicators are those of onecclCommInitRank. */
#ifndef CCLX_H
#define CCLX_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Level Zero's own handles, by the names of its headers. */
struct _ze_command_list_handle_t;
struct _ze_event_handle_t;

/* A command list that calls are appended to. */
typedef struct cclxStream *cclxStream_t;

/* Makes a stream of a Level Zero command list of the communicator's device, in a context of the caller's that is also the
 * communicator's: an immediate list, in order or not, or a regular list that is open. The list must outlive the stream.
 *
 * What is appended to an immediate list that is being captured becomes part of the graph; what is appended to a regular
 * list runs each time the list is executed. The stream of a regular list keeps what the recorded calls need: destroy it
 * after the last execution, and make it anew when the list is reset. Destroy a graph after the executables made of it. */
int cclxStreamCreate(void *comm, struct _ze_command_list_handle_t *list, cclxStream_t *stream);

/* Ends a stream. The list stays. */
int cclxStreamDestroy(cclxStream_t stream);

/* As onecclAllReduce, with events. On a stream the buffers are device memory and the call returns once it is appended: it
 * begins after the n_wait events of wait, and signals signal, which may be NULL, as its last act. Events may be regular or
 * counter-based. A regular event that is to be signalled must be reset before each call, and before each replay of what
 * records the call, by its owner.
 *
 * With a NULL stream the buffers are host memory, there can be no events, and the call returns with the result. */
int cclxAllReduceAfter(const void *send, void *recv, size_t count, int datatype, int op, void *comm, cclxStream_t stream,
                       size_t n_wait, struct _ze_event_handle_t *const *wait, struct _ze_event_handle_t *signal);

#ifdef __cplusplus
}
#endif

#endif
