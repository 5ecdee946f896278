/* faulty read|leak
 * What tools that look for faults of memory have to find, through the library: a buffer that is shorter than the call says,
 * and memory that nobody knows any more. */
#include "declarations.h"
#include <stdlib.h>
#include <string.h>

static void *volatile lost;

int main(int argc, char **argv) {
    onecclUniqueId id;
    onecclComm_t comm = NULL;
    int32_t result[9], *eight = (int32_t *)malloc(8 * sizeof *eight);
    if (argc != 2 || !eight) return 2;
    for (int i = 0; i < 8; i++) eight[i] = i * i;
    if (onecclGetUniqueId(&id) || onecclCommInitRank(&comm, 1, id, 0)) return 3;
    size_t count = strcmp(argv[1], "read") == 0 ? 9 : 8;
    if (onecclAllReduce(eight, result, count, onecclInt32, onecclSum, comm, NULL) || result[7] != 49) return 4;
    free(eight);
    if (strcmp(argv[1], "leak") == 0) {
        lost = malloc(4711);
        lost = NULL;
    }
    return onecclCommDestroy(comm);
}
