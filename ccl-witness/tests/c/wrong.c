/* A library under oneCCL's names that has another one (WRONG_UNDER) make its calls, and spoils one of them: on rank
 * WRONG_RANK, the result of the WRONG_CALL-th call named WRONG_NAME gets bit WRONG_BIT of its byte WRONG_BYTE flipped.
 * Without WRONG_CALL it spoils nothing. */
#include "declarations.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *under(const char *name) {
    static void *library;
    void *found;
    if (!library) library = dlopen(getenv("WRONG_UNDER"), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    found = library ? dlsym(library, name) : NULL;
    if (!found) {
        fprintf(stderr, "wrong: no %s: %s\n", name, dlerror());
        abort();
    }
    return found;
}

static int rank_of_process = -1;

static void spoil(const char *name, void *result) {
    static int calls;
    const char *call = getenv("WRONG_CALL");
    if (!call || strcmp(name, getenv("WRONG_NAME")) != 0 || ++calls != atoi(call)) return;
    if (rank_of_process == atoi(getenv("WRONG_RANK")))
        ((unsigned char *)result)[atoi(getenv("WRONG_BYTE"))] ^= (unsigned char)(1 << atoi(getenv("WRONG_BIT")));
}

#define FORWARD(name, parameters, arguments) \
    int name parameters { return ((int (*) parameters)under(#name)) arguments; }
#define SPOILED(name, result, parameters, arguments)           \
    int name parameters {                                      \
        int code = ((int (*) parameters)under(#name)) arguments; \
        if (code == 0) spoil(#name, result);                   \
        return code;                                           \
    }

FORWARD(onecclGetVersion, (int *version), (version))
FORWARD(onecclGetUniqueId, (onecclUniqueId * id), (id))
FORWARD(onecclSetDevice, (uint32_t index), (index))
FORWARD(onecclCommDestroy, (onecclComm_t c), (c))
FORWARD(onecclCommSplit, (onecclComm_t c, int color, int key, onecclComm_t *made, onecclConfig_t *config),
        (c, color, key, made, config))
FORWARD(onecclGroupStart, (void), ())
FORWARD(onecclGroupEnd, (void), ())
FORWARD(onecclSend, (const void *s, size_t n, int t, int peer, onecclComm_t c, void *q), (s, n, t, peer, c, q))
SPOILED(onecclRecv, r, (void *r, size_t n, int t, int peer, onecclComm_t c, void *q), (r, n, t, peer, c, q))
FORWARD(onecclRedOpCreatePreMulSum, (int *op, void *scalar, int t, int where, onecclComm_t c), (op, scalar, t, where, c))
FORWARD(onecclRedOpDestroy, (int op, onecclComm_t c), (op, c))
SPOILED(onecclAllReduce, r, (void *s, void *r, size_t n, int t, int op, onecclComm_t c, void *q), (s, r, n, t, op, c, q))
SPOILED(onecclReduce, r, (const void *s, void *r, size_t n, int t, int op, int root, onecclComm_t c, void *q),
        (s, r, n, t, op, root, c, q))
SPOILED(onecclReduceScatter, r, (const void *s, void *r, size_t n, int t, int op, onecclComm_t c, void *q),
        (s, r, n, t, op, c, q))
SPOILED(onecclBroadcast, r, (const void *s, void *r, size_t n, int t, int root, onecclComm_t c, void *q),
        (s, r, n, t, root, c, q))
SPOILED(onecclScatter, r, (const void *s, void *r, size_t n, int t, int root, onecclComm_t c, void *q),
        (s, r, n, t, root, c, q))
SPOILED(onecclAllGather, r, (const void *s, void *r, size_t n, int t, onecclComm_t c, void *q), (s, r, n, t, c, q))
SPOILED(onecclAllToAll, r, (const void *s, void *r, size_t n, int t, onecclComm_t c, void *q), (s, r, n, t, c, q))
SPOILED(onecclAllToAllV, r, (const void *s, const size_t *to, void *r, const size_t *from, int t, onecclComm_t c, void *q),
        (s, to, r, from, t, c, q))

int onecclCommInitRank(onecclComm_t *c, size_t n, onecclUniqueId id, int rank) {
    rank_of_process = rank;
    return ((int (*)(onecclComm_t *, size_t, onecclUniqueId, int))under("onecclCommInitRank"))(c, n, id, rank);
}
