// oneCCL's C interface with its CPU plugin, on MPI's shared memory: host buffers, no stream.
#include <mpi.h>
#include <oneapi/ccl.h>

#include "contestant.h"

static onecclComm_t comm;

static int all_reduce(const char *variant, const void *from, void *to, size_t count, int bf16) {
    (void)variant;
    return onecclAllReduce((void *)from, to, count, bf16 ? onecclBfloat16 : onecclFloat32, onecclSum, comm, NULL) !=
           onecclSuccess;
}

int main(int argc, char **argv) {
    int rank, ranks;
    onecclUniqueId id;
    if (argc != 3) return 2;
    int level; // It asks for this one.
    if (MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level)) return 3;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    contestant_pin(rank);
    if (rank == 0 && onecclGetUniqueId(&id) != onecclSuccess) contestant_fail("onecclGetUniqueId");
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    onecclSetDevice((uint32_t)rank);
    if (onecclCommInitRank(&comm, (size_t)ranks, id, rank) != onecclSuccess) contestant_fail("onecclCommInitRank");
    contestant_serve(argv[1], rank, ranks, strtoull(argv[2], NULL, 10), all_reduce);
    // Its CPU plugin does not survive an orderly end.
    MPI_Finalize();
    fflush(NULL);
    _exit(0);
}
