/* calls RANK RANKS ID_FILE CALLS [leave]: one rank that makes CALLS all-reduces, and every tenth time one of the others, on
 * host buffers, and looks at no result: that is what the witness is for. `leave`: ends as torch does, without destroying
 * anything. */
#include "declarations.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST 1200

static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
static _Alignas(8) unsigned char in[16 * 8 * MOST], out[16 * 8 * MOST];

static void demand(int code, const char *what) {
    if (code) {
        fprintf(stderr, "calls: %s returned %d\n", what, code);
        exit(3);
    }
}

/* Any finite number of the type, and of both signs: what depends on rank, call and position, and rounds when it is added. */
static void fill(unsigned char *to, int type, size_t count, int rank, int call) {
    for (size_t i = 0; i < count; i++) {
        unsigned x = (unsigned)(rank * 2654435761u + (unsigned)call * 40503u + (unsigned)i * 2246822519u);
        x ^= x >> 15;
        double value = (double)(x % 20001) / 997.0 - 10.0;
        float single = (float)value;
        uint32_t bits;
        uint16_t half;
        uint64_t whole = x;
        memcpy(&bits, &single, 4);
        unsigned char *at = to + i * sizes[type];
        if (type == 6) {
            int exponent = (int)(bits >> 23 & 0xFF) - 112;
            half = exponent > 0 ? (uint16_t)((bits >> 16 & 0x8000) | (unsigned)exponent << 10 | (bits >> 13 & 0x3FF)) : 0;
            memcpy(at, &half, 2);
        } else if (type == 7) memcpy(at, &single, 4);
        else if (type == 8) memcpy(at, &value, 8);
        else if (type == 9) {
            half = (uint16_t)(bits >> 16);
            memcpy(at, &half, 2);
        } else memcpy(at, &whole, sizes[type]);
    }
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    int rank = atoi(argv[1]), ranks = atoi(argv[2]), calls = atoi(argv[4]), leave = argc > 5;
    onecclUniqueId id;
    onecclComm_t comm, part;
    if (rank == 0) {
        char name[4096];
        snprintf(name, sizeof name, "%s.part", argv[3]);
        demand(onecclGetUniqueId(&id), "onecclGetUniqueId");
        FILE *file = fopen(name, "wb");
        if (!file || fwrite(&id, sizeof id, 1, file) != 1 || fclose(file) || rename(name, argv[3])) return 3;
    } else {
        FILE *file = NULL;
        for (int turn = 0; turn < 6000 && !(file = fopen(argv[3], "rb")); turn++) usleep(10000);
        if (!file || fread(&id, sizeof id, 1, file) != 1) return 3;
        fclose(file);
    }
    demand(onecclSetDevice((uint32_t)rank), "onecclSetDevice");
    demand(onecclCommInitRank(&comm, (size_t)ranks, id, rank), "onecclCommInitRank");
    /* The other way round. */
    demand(onecclCommSplit(comm, 0, -rank, &part, NULL), "onecclCommSplit");
    for (int call = 0; call < calls; call++) {
        int type = call % 10, op = call / 10 % 4, root = call % ranks;
        size_t count = (size_t)(call * 37 % 300) + (call % 500 == 0 ? 900 : 0), size = sizes[type];
        onecclComm_t c = call % 7 == 3 ? part : comm;
        if (op == 1 && type >= 6) op = 0;
        fill(in, type, count * (size_t)ranks, rank, call);
        if (call % 3) {
            demand(onecclAllReduce(in, in, count, type, op, c, NULL), "onecclAllReduce");
        } else {
            demand(onecclAllReduce(in, out, count, type, op, c, NULL), "onecclAllReduce");
        }
        if (call % 10) continue;
        type = call / 10 % 10;
        size = sizes[type];
        op = type >= 6 ? 0 : op;
        fill(in, type, count * (size_t)ranks, rank, call + 1);
        switch (call / 100 % 8) {
        case 0: demand(onecclReduce(in, out, count, type, op, root, c, NULL), "onecclReduce"); break;
        case 1: demand(onecclReduceScatter(in, in + (size_t)rank * count * size, count, type, op, comm, NULL), "onecclReduceScatter"); break;
        case 2: demand(onecclBroadcast(in, out, count, type, root, c, NULL), "onecclBroadcast"); break;
        case 3: demand(onecclScatter(in, out, count, type, root, c, NULL), "onecclScatter"); break;
        case 4: demand(onecclAllGather(in, out, count, type, c, NULL), "onecclAllGather"); break;
        case 5: demand(onecclAllToAll(in, out, count, type, c, NULL), "onecclAllToAll"); break;
        case 6: {
            size_t to[16], from[16];
            for (int other = 0; other < ranks; other++) {
                to[other] = count * (size_t)((rank + 2 * other) % 3) / 2;
                from[other] = count * (size_t)((other + 2 * rank) % 3) / 2;
            }
            demand(onecclAllToAllV(in, to, out, from, type, comm, NULL), "onecclAllToAllV");
            break;
        }
        default: {
            /* Of one group: collectives of both communicators, a message, and an input that another call writes. */
            float factor = 0.3f + (float)rank;
            int own = 0;
            demand(onecclRedOpCreatePreMulSum(&own, &factor, onecclFloat32, onecclScalarHostImmediate, comm), "onecclRedOpCreatePreMulSum");
            fill(in, onecclFloat32, MOST, rank, call);
            demand(onecclGroupStart(), "onecclGroupStart");
            demand(onecclAllReduce(in, out, 100, onecclFloat32, own, comm, NULL), "onecclAllReduce");
            demand(onecclAllReduce(out, out + 4000, 100, onecclFloat32, onecclSum, comm, NULL), "onecclAllReduce");
            demand(onecclAllReduce(in + 400, out + 8000, 50, onecclFloat32, onecclMax, part, NULL), "onecclAllReduce");
            demand(onecclSend(in, 10, onecclFloat32, (rank + 1) % ranks, comm, NULL), "onecclSend");
            demand(onecclRecv(out + 12000, 10, onecclFloat32, (rank + ranks - 1) % ranks, comm, NULL), "onecclRecv");
            demand(onecclGroupEnd(), "onecclGroupEnd");
            demand(onecclRedOpDestroy(own, comm), "onecclRedOpDestroy");
        }
        }
    }
    if (!leave) {
        demand(onecclCommDestroy(part), "onecclCommDestroy");
        demand(onecclCommDestroy(comm), "onecclCommDestroy");
    }
    return 0;
}
