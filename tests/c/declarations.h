/* oneCCL's C API as the tests know it without its headers: names, numbers and layouts. */
#ifndef TEST_DECLARATIONS_H
#define TEST_DECLARATIONS_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int onecclResult_t;
typedef int onecclDataType_t;
typedef int onecclRedOp_t;
typedef int onecclScalarResidence_t;
typedef int onecclWindowFlags_t;
typedef unsigned int onecclPluginType_t;
typedef struct onecclComm *onecclComm_t;
typedef void *onecclWindow_t;

typedef struct {
    char data[4096];
} onecclUniqueId;

typedef struct onecclConfig {
    size_t size;
    unsigned int magic, version;
    int blocking, cgaClusterSize, minCTAs, maxCTAs;
    const char *netName;
    int splitShare, multiThreaded;
    onecclPluginType_t plugin;
} onecclConfig_t;

typedef struct {
    void *opaque[8];
} onecclDevComm_t;

typedef struct {
    int lsa_barrier_count;
} onecclDevCommRequirements_t;

enum { onecclSuccess, onecclError, onecclSystemError, onecclInternalError, onecclInvalidArgument, onecclInvalidUsage,
       onecclInProgress, onecclFailureGPU, onecclFailureCPU, onecclAllocFailureCPU, onecclAllocFailureGPU,
       onecclPluginException, onecclNotImplemented };
enum { onecclInt8, onecclUint8, onecclInt32, onecclUint32, onecclInt64, onecclUint64, onecclFloat16, onecclFloat32,
       onecclFloat64, onecclBfloat16 };
enum { onecclSum, onecclProd, onecclMax, onecclMin, onecclAvg, onecclNumOps, onecclMaxRedOp = 0x7fffffff };
enum { onecclScalarDevice, onecclScalarHostImmediate };
enum { ONECCL_WINDOW_DEFAULT, ONECCL_WINDOW_COLL_SYMMETRIC };

#define ONECCL_SPLIT_NOCOLOR (-1)
#define ONECCL_CONFIG_UNDEF_INT INT_MIN
#define ONECCL_CONFIG_INITIALIZER \
    { sizeof(onecclConfig_t), 0xcafebeef, 20220200, INT_MIN, INT_MIN, INT_MIN, INT_MIN, NULL, INT_MIN, INT_MIN, 0 }

int onecclGetVersion(int *);
int onecclGetUniqueId(onecclUniqueId *);
int onecclExtractVersionComponents(int, int *, int *, int *);
int onecclCommInitRank(onecclComm_t *, size_t, onecclUniqueId, int);
int onecclCommInitRankConfig(onecclComm_t *, size_t, onecclUniqueId, int, const onecclConfig_t *);
int onecclCommFinalize(onecclComm_t);
int onecclCommDestroy(onecclComm_t);
int onecclCommSplit(onecclComm_t, int, int, onecclComm_t *, onecclConfig_t *);
const char *onecclGetErrorString(int);
const char *onecclGetLastError(onecclComm_t);
void onecclDebugInit(void);
void onecclResetDebugInit(void);
int onecclCommCount(const onecclComm_t, int *);
int onecclCommDevice(const onecclComm_t, int *);
int onecclCommUserRank(const onecclComm_t, int *);
int onecclSetDevice(uint32_t);
int onecclMemAlloc(void **, size_t);
int onecclMemFree(void *);
int onecclCommRegister(onecclComm_t, void *, size_t, void **);
int onecclCommDeregister(onecclComm_t, void *);
int onecclCommWindowRegister(onecclComm_t, void *, size_t, onecclWindow_t *, int);
int onecclCommWindowDeregister(onecclComm_t, onecclWindow_t);
int onecclDevCommCreate(onecclComm_t, const onecclDevCommRequirements_t *, onecclDevComm_t *);
int onecclDevCommDestroy(onecclComm_t, const onecclDevComm_t *);
int onecclGetPeerDevicePointer(onecclWindow_t, size_t, int, void **);
int onecclGetLsaDevicePointer(onecclWindow_t, size_t, int, void **);
int onecclGetLocalDevicePointer(onecclWindow_t, size_t, void **);
int onecclReduce(const void *, void *, size_t, int, int, int, onecclComm_t, void *);
int onecclAllReduce(void *, void *, size_t, int, int, onecclComm_t, void *);
int onecclBroadcast(const void *, void *, size_t, int, int, onecclComm_t, void *);
int onecclReduceScatter(const void *, void *, size_t, int, int, onecclComm_t, void *);
int onecclScatter(const void *, void *, size_t, int, int, onecclComm_t, void *);
int onecclAllGather(const void *, void *, size_t, int, onecclComm_t, void *);
int onecclAllToAll(const void *, void *, size_t, int, onecclComm_t, void *);
int onecclAllToAllV(const void *, const size_t *, void *, const size_t *, int, onecclComm_t, void *);
int onecclSend(const void *, size_t, int, int, onecclComm_t, void *);
int onecclRecv(void *, size_t, int, int, onecclComm_t, void *);
int onecclGroupStart(void);
int onecclGroupEnd(void);
int onecclRedOpCreatePreMulSum(int *, void *, int, int, onecclComm_t);
int onecclRedOpDestroy(int, onecclComm_t);

#ifdef __cplusplus
}
#endif

#endif
