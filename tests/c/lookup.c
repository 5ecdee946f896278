/* lookup LIBRARY: a communicator that was made through oneCCL's own library, with LIBRARY as its plugin, is found in LIBRARY and
 * serves its calls, in turn with calls through oneCCL's. One rank. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "declarations.h"

int main(int argc, char **argv) {
    static onecclUniqueId id, other;
    onecclComm_t comm = NULL;
    void *found = NULL;
    int (*lookup)(const void *, int, void **), (*all_reduce)(const void *, void *, size_t, int, int, void *, void *);
    int in[3] = {3, -5, 70000}, out[3] = {0}, again[3] = {0};
    void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD) : NULL;
    if (library != NULL) {
        fprintf(stderr, "the plugin is there before it was asked for\n");
        return 1;
    }
    if (onecclGetUniqueId(&id) != 0 || onecclCommInitRank(&comm, 1, id, 0) != 0) {
        fprintf(stderr, "no communicator\n");
        return 2;
    }
    library = dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD);
    if (library == NULL) {
        fprintf(stderr, "the plugin is not there\n");
        return 3;
    }
    *(void **)&lookup = dlsym(library, "cclxCommLookup");
    *(void **)&all_reduce = dlsym(library, "onecclAllReduce");
    if (lookup(&id, -1, &found) != 0 || found == NULL || found == (void *)comm) {
        fprintf(stderr, "it is not found\n");
        return 4;
    }
    if (lookup(&other, -1, &found) == 0 || found != NULL) {
        fprintf(stderr, "what there is not is found\n");
        return 5;
    }
    lookup(NULL, -1, &found);
    if (all_reduce(in, out, 3, onecclInt32, onecclSum, found, NULL) != 0 ||
        onecclAllReduce(in, again, 3, onecclInt32, onecclSum, comm, NULL) != 0 || memcmp(in, out, sizeof in) != 0 ||
        memcmp(in, again, sizeof in) != 0) {
        fprintf(stderr, "the calls failed\n");
        return 6;
    }
    if (onecclCommDestroy(comm) != 0 || lookup(&id, -1, &found) == 0) {
        fprintf(stderr, "it is found after its end\n");
        return 7;
    }
    return 0;
}
