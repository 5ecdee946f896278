/* client RANK RANKS ID_FILE RESULT_FILE [all]
 * One rank that makes every collective in tables of datatype, reduction, count, root and place, on host buffers. Each case
 * is compared with what it has to be, guard bytes on both sides of its output included, and written to RESULT_FILE as a line
 * of name, code and a number made of the output. A case whose code is not success counts as refused. `all`: also what
 * oneCCL's own library for CPUs lacks, where nothing may be refused. Exit status 1 tells of a wrong case.
 * The values are small integers, so that no order of a sum rounds. */
#ifdef WITH_HEADERS
#include "oneapi/ccl.h"
#else
#include "declarations.h"
#endif
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GUARD 64
#define MOST 4096
#define DT(number) ((onecclDataType_t)(number))
#define OP(number) ((onecclRedOp_t)(number))

static int rank, ranks, everything, wrong, refused, cases;
static onecclComm_t comm;
static FILE *results;
static unsigned char in_memory[8 * (MOST + GUARD)], out_memory[8 * (MOST + GUARD)];
static unsigned char *const in = in_memory + GUARD, *const out = out_memory + GUARD;

static const char *const type_names[] = {"int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32",
                                         "float64", "bfloat16"};
static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
static const char *const op_names[] = {"sum", "prod", "max", "min", "avg", "premulsum"};
static const size_t counts[] = {0, 1, 2, 5, 17, 300};
enum { TYPES = 10, OPS = 6, COUNTS = 6, PREMULSUM = 5 };

static int is_unsigned(int type) { return type == 1 || type == 3 || type == 5; }
static int is_float(int type) { return type >= 6; }

/* A small integer as an element. */
static void put(unsigned char *to, int type, size_t i, long value) {
    unsigned char bytes[8];
    float single = (float)value;
    double twice = (double)value;
    uint32_t bits;
    uint16_t half;
    memcpy(&bits, &single, 4);
    switch (type) {
    case 6:
        half = 0;
        if (value) {
            half = (uint16_t)((bits >> 16 & 0x8000) | ((bits >> 23 & 0xFF) - 112) << 10 | (bits >> 13 & 0x3FF));
        }
        memcpy(bytes, &half, 2);
        break;
    case 7: memcpy(bytes, &single, 4); break;
    case 8: memcpy(bytes, &twice, 8); break;
    case 9:
        half = (uint16_t)(bits >> 16);
        memcpy(bytes, &half, 2);
        break;
    default: memcpy(bytes, &value, 8); break;
    }
    memcpy(to + i * sizes[type], bytes, sizes[type]);
}

/* What a rank's input holds. */
static long value(int of, int type, int op, size_t i) {
    long v = (long)((of * 5 + i * 3 + (size_t)cases * 7) % 7) - 3;
    if (op == 1 && v == 0) v = 1;
    if (op == 4) v *= ranks;
    return is_unsigned(type) ? v + 3 * (op == 4 ? ranks : 1) + (op == 1) : v;
}

static long reduced(int type, int op, size_t i) {
    long total = 0;
    for (int of = 0; of < ranks; of++) {
        long v = value(of, type, op, i);
        if (of == 0) total = v;
        else if (op == 1) total *= v;
        else if (op == 2) total = v > total ? v : total;
        else if (op == 3) total = v < total ? v : total;
        else total += op == PREMULSUM ? v * (of + 1) : v;
    }
    return op == 4 ? total / ranks : total;
}

/* Prepares a case: `elements` of input at `at`, of this rank; the output and its guards are filled. */
static void fill(unsigned char *at, int type, int op, size_t elements, size_t first) {
    for (size_t i = 0; i < elements; i++) put(at, type, i, value(rank, type, op, first + i));
}

static void begin(void) {
    cases++;
    memset(in_memory, 0xC3, sizeof in_memory);
    memset(out_memory, 0xA5, sizeof out_memory);
}

static unsigned long long mixed(const unsigned char *bytes, size_t count) {
    unsigned long long hash = 1469598103934665603ull;
    for (size_t i = 0; i < count; i++) hash = (hash ^ bytes[i]) * 1099511628211ull;
    return hash;
}

/* Ends a case: `bytes` of output are to be like `wanted`, and what surrounds them untouched. */
static void end(const char *name, int code, const unsigned char *wanted, size_t bytes) {
    int bad = 0;
    if (code) {
        refused++;
        fprintf(results, "%s %d -\n", name, code);
        return;
    }
    bad = memcmp(out, wanted, bytes) != 0;
    for (size_t i = 0; i < GUARD; i++) bad |= out_memory[i] != 0xA5 || out[bytes + i] != 0xA5;
    if (bad) {
        wrong++;
        fprintf(stderr, "rank %d: %s is wrong\n", rank, name);
    }
    fprintf(results, "%s 0 %016llx\n", name, mixed(out, bytes));
}

static unsigned char wanted[8 * MOST];
static onecclRedOp_t own_op;

/* The reduction's number, made for this case if it is one's own. */
static onecclRedOp_t reduction(int type, int op, int *code) {
    unsigned char scalar[8] = {0};
    *code = 0;
    if (op != PREMULSUM) return OP(op);
    put(scalar, type == 9 ? 7 : type, 0, rank + 1);
    *code = (int)onecclRedOpCreatePreMulSum(&own_op, scalar, DT(type), (onecclScalarResidence_t)onecclScalarHostImmediate, comm);
    return own_op;
}

static void done_with(int op, int made) {
    if (op == PREMULSUM && made == 0 && onecclRedOpDestroy(own_op, comm)) wrong++;
}

/* Averages of integers are what oneCCL's own library for CPUs lacks. */
static int fits(int type, int op) { return op != 4 || is_float(type) || everything; }

static void all_reduces(int ops) {
    char name[128];
    for (int type = 0; type < TYPES; type++)
        for (int op = 0; op < ops; op++)
            for (int c = 0; c < COUNTS; c++)
                for (int in_place = 0; in_place < 2; in_place++) {
                    size_t count = counts[c], size = sizes[type];
                    int code;
                    if (!fits(type, op)) continue;
                    begin();
                    snprintf(name, sizeof name, "all_reduce-%s-%s-%zu-%d", type_names[type], op_names[op], count, in_place);
                    fill(in_place ? out : in, type, op, count, 0);
                    for (size_t i = 0; i < count; i++) put(wanted, type, i, reduced(type, op, i));
                    onecclRedOp_t number = reduction(type, op, &code);
                    int made = code;
                    if (!code) code = (int)onecclAllReduce(in_place ? out : in, out, count, DT(type), number, comm, NULL);
                    end(name, code, wanted, count * size);
                    done_with(op, made);
                }
}

static void reduces(int ops) {
    char name[128];
    for (int type = 0; type < TYPES; type++)
        for (int op = 0; op < ops; op++)
            for (int c = 0; c < COUNTS; c++)
                for (int in_place = 0; in_place < 2; in_place++) {
                    size_t count = counts[c], size = sizes[type];
                    int code, made;
                    if (!fits(type, op)) continue;
                    for (int root = 0; root < ranks; root++) {
                        unsigned char *from = in_place && rank == root ? out : in;
                        begin();
                        snprintf(name, sizeof name, "reduce-%s-%s-%zu-root%d-%d", type_names[type], op_names[op], count, root,
                                 in_place);
                        fill(from, type, op, count, 0);
                        for (size_t i = 0; i < count; i++) put(wanted, type, i, reduced(type, op, i));
                        onecclRedOp_t number = reduction(type, op, &made);
                        code = made;
                        if (!code) code = (int)onecclReduce(from, out, count, DT(type), number, root, comm, NULL);
                        end(name, code, wanted, rank == root ? count * size : 0);
                        done_with(op, made);
                    }

                    begin();
                    snprintf(name, sizeof name, "reduce_scatter-%s-%s-%zu-%d", type_names[type], op_names[op], count, in_place);
                    /* All of it in `in`; in place the own piece lies within, and what is compared is copied out. */
                    unsigned char *to = in_place ? in + rank * count * size : out;
                    fill(in, type, op, count * ranks, 0);
                    for (size_t i = 0; i < count; i++) put(wanted, type, i, reduced(type, op, rank * count + i));
                    onecclRedOp_t number = reduction(type, op, &made);
                    code = made;
                    if (!code) code = (int)onecclReduceScatter(in, to, count, DT(type), number, comm, NULL);
                    if (in_place && !code) memcpy(out, to, count * size);
                    end(name, code, wanted, count * size);
                    done_with(op, made);
                }
}

static void moves(void) {
    char name[128];
    for (int type = 0; type < TYPES; type++)
        for (int c = 0; c < COUNTS; c++)
            for (int turn = 0; turn < 2 * ranks; turn++) {
                size_t count = counts[c], size = sizes[type];
                int code, root = turn / 2, in_place = turn % 2;

                begin();
                snprintf(name, sizeof name, "broadcast-%s-%zu-root%d-%d", type_names[type], count, root, in_place);
                fill(in_place ? out : in, type, 0, count, 0);
                for (size_t i = 0; i < count; i++) put(wanted, type, i, value(root, type, 0, i));
                code = (int)onecclBroadcast(in_place ? out : in, out, count, DT(type), root, comm, NULL);
                end(name, code, wanted, count * size);

                begin();
                int within = everything && in_place;
                snprintf(name, sizeof name, "scatter-%s-%zu-root%d-%d", type_names[type], count, root, within);
                /* In place the root's own piece stays where it is; what is compared is copied out. */
                unsigned char *piece = within && rank == root ? in + rank * count * size : out;
                fill(in, type, 0, count * ranks, 0);
                for (size_t i = 0; i < count; i++) put(wanted, type, i, value(root, type, 0, rank * count + i));
                code = (int)onecclScatter(in, piece, count, DT(type), root, comm, NULL);
                if (piece != out && !code) memcpy(out, piece, count * size);
                end(name, code, wanted, count * size);

                begin();
                snprintf(name, sizeof name, "all_gather-%s-%zu-%d", type_names[type], count, in_place);
                unsigned char *from = in_place ? out + rank * count * size : in;
                fill(from, type, 0, count, 0);
                for (int of = 0; of < ranks; of++)
                    for (size_t i = 0; i < count; i++) put(wanted, type, of * count + i, value(of, type, 0, i));
                code = (int)onecclAllGather(from, out, count, DT(type), comm, NULL);
                end(name, code, wanted, ranks * count * size);

                begin();
                snprintf(name, sizeof name, "all_to_all-%s-%zu-%d", type_names[type], count, within);
                fill(within ? out : in, type, 0, count * ranks, 0);
                for (int of = 0; of < ranks; of++)
                    for (size_t i = 0; i < count; i++)
                        put(wanted, type, of * count + i, value(of, type, 0, rank * count + i));
                code = (int)onecclAllToAll(within ? out : in, out, count, DT(type), comm, NULL);
                end(name, code, wanted, ranks * count * size);

                /* From rank a to rank b go (a + 2b + root) mod 3 times `count` elements. */
                size_t to[16], come[16], total = 0, filled = 0;
                begin();
                snprintf(name, sizeof name, "all_to_all_v-%s-%zu-%d", type_names[type], count, root);
                for (int other = 0; other < ranks; other++) {
                    size_t before = 0;
                    to[other] = (size_t)((rank + 2 * other + root) % 3) * count;
                    come[other] = (size_t)((other + 2 * rank + root) % 3) * count;
                    for (int b = 0; b < rank; b++) before += (size_t)((other + 2 * b + root) % 3) * count;
                    for (size_t i = 0; i < come[other]; i++)
                        put(wanted, type, total + i, value(other, type, 0, before + i));
                    total += come[other];
                    filled += to[other];
                }
                fill(in, type, 0, filled, 0);
                code = (int)onecclAllToAllV(in, to, out, come, DT(type), comm, NULL);
                end(name, code, wanted, total * size);
            }
}

static void messages(void) {
    char name[128];
    for (int type = 0; type < TYPES; type++)
        for (int c = 0; c < COUNTS; c++)
            for (int receives_first = 0; receives_first < 2; receives_first++) {
                size_t count = counts[c], size = sizes[type];
                int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks, code = 0;
                begin();
                snprintf(name, sizeof name, "ring-%s-%zu-%d", type_names[type], count, receives_first);
                fill(in, type, 0, count, 0);
                for (size_t i = 0; i < count; i++) put(wanted, type, i, value(last, type, 0, i));
                code = (int)onecclGroupStart();
                for (int turn = 0; turn < 2 && !code; turn++)
                    code = turn == receives_first ? (int)onecclSend(in, count, DT(type), next, comm, NULL)
                                                  : (int)onecclRecv(out, count, DT(type), last, comm, NULL);
                int ended = (int)onecclGroupEnd();
                end(name, code ? code : ended, wanted, count * size);
            }
    /* Without a group, between two ranks. */
    for (int c = 1; c < COUNTS && ranks > 1; c++) {
        size_t count = counts[c];
        int code = 0;
        begin();
        snprintf(name, sizeof name, "pair-%zu", count);
        fill(in, 2, 0, count, 0);
        for (size_t i = 0; i < count; i++) put(wanted, 2, i, value(0, 2, 0, i));
        if (rank == 0) code = (int)onecclSend(in, count, DT(2), ranks - 1, comm, NULL);
        if (rank == ranks - 1) code = (int)onecclRecv(out, count, DT(2), 0, comm, NULL);
        end(name, code, wanted, rank == ranks - 1 ? count * 4 : 0);
    }
}

/* As torch gathers pieces of unequal size: a group of broadcasts, with a message from a rank to itself in it. */
static void groups(void) {
    char name[128];
    for (int c = 0; c < COUNTS; c++) {
        size_t count = counts[c], at = 0, own = 0;
        int code = 0;
        begin();
        snprintf(name, sizeof name, "group-%zu", count);
        for (int of = 0; of < ranks; of++) {
            if (of == rank) own = at;
            for (size_t i = 0; i < count + of; i++) put(wanted, 7, at + i, value(of, 7, 0, i));
            at += count + of;
        }
        for (size_t i = 0; i < count; i++) put(wanted, 7, at + i, value(rank, 7, 0, i));
        fill(in, 7, 0, count + rank, 0);
        code = (int)onecclGroupStart();
        for (size_t of = 0, to = 0; of < (size_t)ranks && !code; to += count + of, of++) {
            code = (int)onecclGroupStart();
            if (!code) code = (int)onecclBroadcast(in, out + to * 4, count + of, DT(7), (int)of, comm, NULL);
            if (!code) code = (int)onecclGroupEnd();
        }
        if (!code) code = (int)onecclRecv(out + at * 4, count, DT(7), rank, comm, NULL);
        if (!code) code = (int)onecclSend(in, count, DT(7), rank, comm, NULL);
        int ended = (int)onecclGroupEnd();
        end(name, code ? code : ended, wanted, (at + count) * 4);
        (void)own;
    }
}

#define DEMAND(what)                                                                       \
    do {                                                                                   \
        if (!(what)) {                                                                     \
            wrong++;                                                                       \
            fprintf(stderr, "rank %d: line %d: not %s: %s\n", rank, __LINE__, #what, onecclGetLastError(NULL)); \
        }                                                                                  \
    } while (0)

/* What can't be is refused by name, before anything happens: the communicator is good for more. */
static void refusals(void) {
    size_t to[16] = {0}, from[16] = {0};
    int32_t sum = 0, mine = 1;
    unsigned char before[256];
    memset(out, 0xA5, sizeof before);
    memcpy(before, out, sizeof before);
    DEMAND(onecclAllReduce(in, in + 4, 9, DT(2), OP(0), comm, NULL) == onecclInvalidArgument);
    DEMAND(strstr(onecclGetLastError(NULL), "overlap otherwise than in place") != NULL);
    DEMAND(onecclAllGather(out, out + 4, 9, DT(2), comm, NULL) == onecclInvalidArgument);
    DEMAND(onecclAllReduce(NULL, out, 9, DT(2), OP(0), comm, NULL) == onecclInvalidArgument);
    DEMAND(onecclAllReduce(in, NULL, 9, DT(2), OP(0), comm, NULL) == onecclInvalidArgument);
    DEMAND(onecclAllReduce(in, out, (size_t)-1, DT(2), OP(0), comm, NULL) == onecclInvalidArgument);
    DEMAND(onecclAllReduce(in, out, 9, DT(10), OP(0), comm, NULL) == onecclInvalidArgument);
    DEMAND(onecclAllReduce(in, out, 9, DT(-1), OP(0), comm, NULL) == onecclInvalidArgument);
    DEMAND(onecclAllReduce(in, out, 9, DT(2), OP(5), comm, NULL) == onecclInvalidArgument);
    DEMAND(onecclAllReduce(in, out, 9, DT(2), OP(0x7fffffff), comm, NULL) == onecclInvalidArgument);
    DEMAND(onecclAllReduce(in, out, 9, DT(2), OP(0), NULL, NULL) == onecclInvalidArgument);
    DEMAND(onecclAllReduce(in, out, 9, DT(2), OP(0), comm, (void *)(uintptr_t)0x1000) == onecclNotImplemented);
    DEMAND(onecclReduce(in, out, 9, DT(2), OP(0), ranks, comm, NULL) == onecclInvalidArgument);
    DEMAND(onecclBroadcast(in, out, 9, DT(2), -1, comm, NULL) == onecclInvalidArgument);
    DEMAND(onecclScatter(in, out, 9, DT(2), ranks, comm, NULL) == onecclInvalidArgument);
    DEMAND(onecclSend(in, 9, DT(2), ranks, comm, NULL) == onecclInvalidArgument);
    DEMAND(onecclRecv(out, 9, DT(2), -7, comm, NULL) == onecclInvalidArgument);
    DEMAND(onecclSend(in, 9, DT(2), rank, comm, NULL) == onecclInvalidUsage);
    DEMAND(onecclAllToAllV(in, NULL, out, from, DT(2), comm, NULL) == onecclInvalidArgument);
    to[rank] = 1;
    DEMAND(onecclAllToAllV(in, to, out, from, DT(2), comm, NULL) == onecclInvalidArgument);
    DEMAND(onecclGroupEnd() == onecclInvalidUsage);
    DEMAND(memcmp(out, before, sizeof before) == 0);
    DEMAND(onecclAllReduce(&mine, &sum, 1, DT(2), OP(0), comm, NULL) == 0 && sum == ranks);
}

/* Memory of the device is as good as the host's in any call, on either side; that of another device is refused. What the
 * device is here can be reached by the processor, so that this needs no other copies. */
static void device_memory(void) {
    enum { COUNT = 250 };
    size_t bytes = COUNT * 4 * ranks;
    void *a = NULL, *b = NULL, *foreign = NULL;
    DEMAND(onecclMemAlloc(&a, bytes) == 0 && onecclMemAlloc(&b, bytes) == 0);
    for (int place = 0; place < 4; place++) {
        unsigned char *from = place & 1 ? (unsigned char *)a : in, *to = place & 2 ? (unsigned char *)b : out;
        cases++;
        fill(from, 2, 0, COUNT * ranks, 0);
        memset(to, 0, bytes);
        DEMAND(onecclAllReduce(from, to, COUNT, DT(2), OP(0), comm, NULL) == 0);
        for (size_t i = 0; i < COUNT; i++) put(wanted, 2, i, reduced(2, 0, i));
        DEMAND(memcmp(to, wanted, COUNT * 4) == 0);
        DEMAND(onecclAllGather(from, to, COUNT, DT(2), comm, NULL) == 0);
        for (int of = 0; of < ranks; of++)
            for (size_t i = 0; i < COUNT; i++) put(wanted, 2, of * COUNT + i, value(of, 2, 0, i));
        DEMAND(memcmp(to, wanted, bytes) == 0);
        DEMAND(onecclReduceScatter(from, to, COUNT, DT(2), OP(2), comm, NULL) == 0);
        for (size_t i = 0; i < COUNT; i++) put(wanted, 2, i, reduced(2, 2, rank * COUNT + i));
        DEMAND(memcmp(to, wanted, COUNT * 4) == 0);
        DEMAND(onecclAllToAll(from, to, COUNT, DT(2), comm, NULL) == 0);
        for (int of = 0; of < ranks; of++)
            for (size_t i = 0; i < COUNT; i++) put(wanted, 2, of * COUNT + i, value(of, 2, 0, rank * COUNT + i));
        DEMAND(memcmp(to, wanted, bytes) == 0);
        memset(to, 0, bytes);
        /* To the next rank, and to oneself. */
        int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
        DEMAND(onecclGroupStart() == 0);
        DEMAND(onecclRecv(to, COUNT / 2, DT(2), last, comm, NULL) == 0);
        DEMAND(onecclSend(from, COUNT / 2, DT(2), next, comm, NULL) == 0);
        if (ranks > 1) {
            DEMAND(onecclSend(from, COUNT / 2, DT(2), rank, comm, NULL) == 0);
            DEMAND(onecclRecv(to + COUNT / 2 * 4, COUNT / 2, DT(2), rank, comm, NULL) == 0);
        }
        DEMAND(onecclGroupEnd() == 0);
        for (size_t i = 0; i < COUNT / 2; i++) put(wanted, 2, i, value(last, 2, 0, i));
        for (size_t i = 0; i < COUNT / 2; i++) put(wanted, 2, COUNT / 2 + i, ranks > 1 ? value(rank, 2, 0, i) : 0);
        DEMAND(memcmp(to, wanted, COUNT / 2 * 2 * 4) == 0);
    }
    DEMAND(onecclAllReduce(in, (char *)b + 8, bytes / 4, DT(2), OP(0), comm, NULL) == onecclInvalidArgument);
    DEMAND(strstr(onecclGetLastError(NULL), "pass the end of what onecclMemAlloc gave") != NULL);
    DEMAND(onecclSetDevice((uint32_t)(rank + 1) % 4) == 0 && onecclMemAlloc(&foreign, bytes) == 0);
    DEMAND(onecclSetDevice((uint32_t)rank) == 0);
    DEMAND(onecclBroadcast(foreign, foreign, COUNT, DT(2), 0, comm, NULL) == onecclNotImplemented);
    DEMAND(strstr(onecclGetLastError(NULL), "is memory of device") != NULL);
    DEMAND(onecclGroupStart() == 0);
    DEMAND(onecclAllReduce(in, foreign, COUNT, DT(2), OP(0), comm, NULL) == onecclNotImplemented);
    DEMAND(onecclGroupEnd() == onecclNotImplemented);
    DEMAND(onecclMemFree(foreign) == 0 && onecclMemFree(b) == 0 && onecclMemFree(a) == 0);
}

/* What oneCCL's own library for CPUs lacks, or gets wrong. */
static void all_of_it(void) {
    int number = -1, major, minor, patch;
    onecclComm_t part = NULL, again = NULL;
    onecclConfig_t config = ONECCL_CONFIG_INITIALIZER;
    void *memory = NULL, *registration = NULL;
    DEMAND(onecclGetVersion(&number) == 0 && number >= 20220000);
    DEMAND(onecclExtractVersionComponents(20220207, &major, &minor, &patch) == 0);
    DEMAND(major == 2022 && minor == 2 && patch == 7);
    DEMAND(strcmp(onecclGetErrorString(onecclNotImplemented), "not implemented") == 0);
    DEMAND(onecclCommDevice(comm, &number) == 0 && number == rank);
    /* The ranks in reverse, without the last; which has a communicator of none. */
    int last = rank == ranks - 1;
    DEMAND(onecclCommSplit(comm, last ? ONECCL_SPLIT_NOCOLOR : 3, -rank, &part, NULL) == 0);
    DEMAND((part == NULL) == last);
    if (part) {
        int32_t sum = 0, mine = 1 << rank;
        DEMAND(onecclCommCount(part, &number) == 0 && number == ranks - 1);
        DEMAND(onecclCommUserRank(part, &number) == 0 && number == ranks - 2 - rank);
        DEMAND(onecclAllReduce(&mine, &sum, 1, DT(2), OP(0), part, NULL) == 0 && sum == (1 << (ranks - 1)) - 1);
        DEMAND(onecclCommFinalize(part) == 0);
        DEMAND(onecclAllReduce(&mine, &sum, 1, DT(2), OP(0), part, NULL) == onecclInvalidUsage);
        DEMAND(onecclCommDestroy(part) == 0);
        DEMAND(onecclCommDestroy(part) == onecclInvalidUsage);
    }
    config.maxCTAs = 2;
    DEMAND(onecclCommSplit(comm, 0, rank, &again, &config) == 0);
    if (again) {
        int32_t all[16], mine = rank;
        DEMAND(onecclAllGather(&mine, all, 1, DT(2), again, NULL) == 0);
        for (int of = 0; of < ranks; of++) DEMAND(all[of] == of);
        DEMAND(onecclCommDestroy(again) == 0);
    }
    again = NULL;
    DEMAND(onecclCommSplit(comm, 0, 0, &again, NULL) == 0);
    if (again) {
        int32_t mine = rank;
        DEMAND(onecclAllReduce(&mine, &mine, 1, DT(2), OP(0), again, NULL) == 0 && mine == ranks * (ranks - 1) / 2);
        /* The others are done with it, too: for them an abort would be a failure. */
        DEMAND(onecclAllReduce(&mine, &mine, 1, DT(2), OP(2), comm, NULL) == 0);
        /* oneCCL's header forbids its use. */
        int (*ends)(onecclComm_t) = (int (*)(onecclComm_t))dlsym(RTLD_DEFAULT, "onecclCommAbort");
        DEMAND(ends && ends(again) == 0);
        DEMAND(onecclAllReduce(&mine, &mine, 1, DT(2), OP(0), again, NULL) == onecclInvalidUsage);
        DEMAND(onecclCommDestroy(again) == 0);
    }
    DEMAND(onecclMemAlloc(&memory, 100) == 0 && memory);
    DEMAND(onecclMemFree(memory) == 0 && onecclMemFree(memory) == onecclInvalidArgument && onecclMemFree(NULL) == 0);
    DEMAND(onecclCommRegister(comm, in, sizeof in_memory - GUARD, &registration) == 0 && registration);
    DEMAND(onecclCommDeregister(comm, registration) == 0);
    DEMAND(onecclCommDeregister(comm, registration) == onecclInvalidArgument);
    /* A scalar in device memory, which is this process's own where the device is software. */
    DEMAND(onecclMemAlloc(&memory, 4) == 0);
    {
        float scalar = 2, mine = (float)(rank + 1), sum = 0;
        onecclRedOp_t op;
        memcpy(memory, &scalar, 4);
        DEMAND(onecclRedOpCreatePreMulSum(&op, memory, DT(7), (onecclScalarResidence_t)onecclScalarDevice, comm) == 0);
        DEMAND(onecclAllReduce(&mine, &sum, 1, DT(7), op, comm, NULL) == 0 && sum == (float)(ranks * (ranks + 1)));
        scalar = 3;
        memcpy(memory, &scalar, 4);
        DEMAND(onecclAllReduce(&mine, &sum, 1, DT(7), op, comm, NULL) == 0);
        DEMAND(sum == 1.5f * (float)(ranks * (ranks + 1)));
        DEMAND(onecclRedOpDestroy(op, comm) == 0 && onecclRedOpDestroy(op, comm) == onecclInvalidArgument);
        DEMAND(onecclMemFree(memory) == 0);
    }
    refusals();
    device_memory();
    onecclWindow_t window = NULL;
    onecclDevComm_t inside;
    onecclDevCommRequirements_t needs;
    needs.lsa_barrier_count = 1;
    DEMAND(onecclCommWindowRegister(comm, in, 8, &window, (onecclWindowFlags_t)0) == onecclNotImplemented);
    DEMAND(onecclCommWindowDeregister(comm, window) == onecclNotImplemented);
    DEMAND(onecclDevCommCreate(comm, &needs, &inside) == onecclNotImplemented);
    DEMAND(onecclDevCommDestroy(comm, &inside) == onecclNotImplemented);
    DEMAND(onecclGetPeerDevicePointer(window, 0, 0, &memory) == onecclNotImplemented);
    DEMAND(onecclGetLsaDevicePointer(window, 0, 0, &memory) == onecclNotImplemented);
    DEMAND(onecclGetLocalDevicePointer(window, 0, &memory) == onecclNotImplemented);
    onecclDebugInit();
    onecclResetDebugInit();
}

int main(int argc, char **argv) {
    onecclUniqueId id;
    int number = -1, code;
    if (argc < 5) return 2;
    everything = argc > 5;
    rank = atoi(argv[1]);
    ranks = atoi(argv[2]);
    results = fopen(argv[4], "w");
    if (!results) return 2;
    if (rank == 0) {
        char part[4096];
        snprintf(part, sizeof part, "%s.part", argv[3]);
        code = (int)onecclGetUniqueId(&id);
        if (code) {
            fprintf(stderr, "unique id: %d %s\n", code, onecclGetErrorString((onecclResult_t)code));
            return 3;
        }
        FILE *file = fopen(part, "wb");
        if (!file || fwrite(&id, sizeof id, 1, file) != 1 || fclose(file) || rename(part, argv[3])) return 3;
    } else {
        FILE *file = NULL;
        for (int turn = 0; turn < 6000 && !(file = fopen(argv[3], "rb")); turn++) usleep(10000);
        if (!file || fread(&id, sizeof id, 1, file) != 1) return 3;
        fclose(file);
    }
    if (everything && onecclSetDevice((uint32_t)rank)) return 3;
    code = (int)onecclCommInitRank(&comm, (size_t)ranks, id, rank);
    if (code) {
        fprintf(stderr, "rank %d: init: %d %s: %s\n", rank, code, onecclGetErrorString((onecclResult_t)code), onecclGetLastError(NULL));
        return 3;
    }
    if (onecclCommCount(comm, &number) || number != ranks || onecclCommUserRank(comm, &number) || number != rank) {
        fprintf(stderr, "rank %d: its place in the communicator is wrong\n", rank);
        return 1;
    }
    all_reduces(everything ? OPS : 4);
    reduces(everything ? OPS : 4);
    moves();
    messages();
    groups();
    if (everything) all_of_it();
    code = (int)onecclCommDestroy(comm);
    if (code) fprintf(stderr, "rank %d: destroy: %d\n", rank, code);
    fclose(results);
    printf("rank %d of %d: %d cases, %d wrong, %d refused\n", rank, ranks, cases, wrong, refused);
    return wrong || (everything && (refused || code)) ? 1 : 0;
}
