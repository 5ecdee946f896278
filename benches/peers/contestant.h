// A rank of a peer library as the coordinator leads it: between two steps it sleeps in read, so that contestants can
// take turns on the same cores. The words that pass are told in coordinator.rs.
#pragma once
// To be compiled with -D_GNU_SOURCE.
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "data.h"

// What a library has to offer: one all-reduce, finished when it returns. `variant` is one of the names that the
// coordinator knows. Returns 0, or another number for a failure.
typedef int (*all_reduce_fn)(const char *variant, const void *from, void *to, size_t count, int bf16);

static int contestant_socket = -1;

static void contestant_fail(const char *what) {
    char line[512];
    int length = snprintf(line, sizeof line, "failed %s: %s\n", what, errno ? strerror(errno) : "refused");
    if (contestant_socket >= 0 && write(contestant_socket, line, (size_t)length) < 0) perror("write");
    fprintf(stderr, "%s", line);
    _exit(1);
}

static void contestant_pin(int rank) {
    cpu_set_t allowed, mine;
    CPU_ZERO(&mine);
    if (sched_getaffinity(0, sizeof allowed, &allowed)) contestant_fail("sched_getaffinity");
    int wanted = rank % CPU_COUNT(&allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed) && wanted-- == 0) CPU_SET(cpu, &mine);
    if (sched_setaffinity(0, sizeof mine, &mine)) contestant_fail("sched_setaffinity");
}

static int64_t contestant_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int contestant_ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

// Serves the coordinator until it says quit or goes away.
static void contestant_serve(const char *name, int rank, int ranks, size_t max_bytes, all_reduce_fn all_reduce) {
    const char *path = getenv("PEERS_SOCKET");
    struct sockaddr_un address;
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    if (!path || strlen(path) >= sizeof address.sun_path) contestant_fail("PEERS_SOCKET");
    strcpy(address.sun_path, path);
    contestant_socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (contestant_socket < 0 || connect(contestant_socket, (struct sockaddr *)&address, sizeof address))
        contestant_fail("connecting to the coordinator");
    FILE *in = fdopen(contestant_socket, "r");
    FILE *out = fdopen(dup(contestant_socket), "w");
    if (!in || !out) contestant_fail("fdopen");

    void *from = NULL, *to = NULL;
    if (posix_memalign(&from, 4096, max_bytes) || posix_memalign(&to, 4096, max_bytes)) contestant_fail("memory");
    memset(from, 0, max_bytes);
    memset(to, 0, max_bytes);
    fprintf(out, "hello %s %d %d\n", name, rank, (int)getpid());
    fflush(out);

    char line[256], variant[32], type[16];
    while (fgets(line, sizeof line, in)) {
        size_t count;
        unsigned warmup, calls, seed;
        if (!strncmp(line, "quit", 4)) break;
        if (sscanf(line, "run %31s %15s %zu %u %u %u", variant, type, &count, &warmup, &calls, &seed) != 6 || !calls)
            contestant_fail("a line that nobody understands");
        int bf16 = !strcmp(type, "bfloat16");
        if (count * (bf16 ? 2 : 4) > max_bytes) contestant_fail("more than was announced");
        int64_t *times = (int64_t *)malloc(calls * sizeof *times);
        if (!times) contestant_fail("memory");
        data_fill(from, bf16, count, (uint32_t)rank, seed);
        for (unsigned call = 0; call < warmup; call++)
            if (all_reduce(variant, from, to, count, bf16)) contestant_fail("all_reduce");
        int64_t begun = contestant_now();
        for (unsigned call = 0; call < calls; call++) {
            if (all_reduce(variant, from, to, count, bf16)) contestant_fail("all_reduce");
            int64_t now = contestant_now();
            times[call] = now - begun;
            begun = now;
        }
        qsort(times, calls, sizeof *times, contestant_ascending);
        // A result left over from the timed calls would be noticed.
        data_fill(from, bf16, count, (uint32_t)rank, seed + 1);
        memset(to, 0xA5, count * (bf16 ? 2 : 4));
        if (all_reduce(variant, from, to, count, bf16)) contestant_fail("all_reduce");
        size_t wrong = data_wrong(to, bf16, count, (uint32_t)ranks, seed + 1);
        fprintf(out, "done %lld %lld %zu\n", (long long)times[(calls - 1) / 2], (long long)times[0], wrong);
        fflush(out);
        free(times);
    }
}
