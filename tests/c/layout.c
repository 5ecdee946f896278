/* Sizes, offsets and numbers that the library is built for. Compiled as C and C++, against oneCCL's headers and without:
 * that it compiles is the test. */
#ifdef WITH_HEADERS
#include "oneapi/ccl.h"
#include <stddef.h>
#else
#include "declarations.h"
#endif

#ifdef __cplusplus
#define CHECK(what) static_assert(what, #what)
#else
#define CHECK(what) _Static_assert(what, #what)
#endif
#define AT(type, field, offset) CHECK(offsetof(type, field) == offset)
#define IS(name, number) CHECK((long long)(name) == number)

CHECK(sizeof(onecclUniqueId) == 4096);
CHECK(sizeof(onecclConfig_t) == 56);
AT(onecclConfig_t, size, 0);
AT(onecclConfig_t, magic, 8);
AT(onecclConfig_t, version, 12);
AT(onecclConfig_t, blocking, 16);
AT(onecclConfig_t, cgaClusterSize, 20);
AT(onecclConfig_t, minCTAs, 24);
AT(onecclConfig_t, maxCTAs, 28);
AT(onecclConfig_t, netName, 32);
AT(onecclConfig_t, splitShare, 40);
AT(onecclConfig_t, multiThreaded, 44);
AT(onecclConfig_t, plugin, 48);
CHECK(sizeof(onecclDevComm_t) == 64);
CHECK(sizeof(onecclDevCommRequirements_t) == 4);
CHECK(sizeof(onecclResult_t) == 4 && sizeof(onecclDataType_t) == 4 && sizeof(onecclRedOp_t) == 4);
CHECK(sizeof(onecclScalarResidence_t) == 4 && sizeof(onecclWindowFlags_t) == 4 && sizeof(onecclComm_t) == 8);
IS(onecclSuccess, 0);
IS(onecclError, 1);
IS(onecclSystemError, 2);
IS(onecclInternalError, 3);
IS(onecclInvalidArgument, 4);
IS(onecclInvalidUsage, 5);
IS(onecclInProgress, 6);
IS(onecclFailureGPU, 7);
IS(onecclFailureCPU, 8);
IS(onecclAllocFailureCPU, 9);
IS(onecclAllocFailureGPU, 10);
IS(onecclPluginException, 11);
IS(onecclNotImplemented, 12);
IS(onecclInt8, 0);
IS(onecclUint8, 1);
IS(onecclInt32, 2);
IS(onecclUint32, 3);
IS(onecclInt64, 4);
IS(onecclUint64, 5);
IS(onecclFloat16, 6);
IS(onecclFloat32, 7);
IS(onecclFloat64, 8);
IS(onecclBfloat16, 9);
IS(onecclSum, 0);
IS(onecclProd, 1);
IS(onecclMax, 2);
IS(onecclMin, 3);
IS(onecclAvg, 4);
IS(onecclNumOps, 5);
IS(onecclMaxRedOp, 0x7fffffff);
IS(onecclScalarDevice, 0);
IS(onecclScalarHostImmediate, 1);
IS(ONECCL_SPLIT_NOCOLOR, -1);
IS(ONECCL_CONFIG_UNDEF_INT, INT_MIN);

int main(void) {
    onecclConfig_t config = ONECCL_CONFIG_INITIALIZER;
    return config.size == 56 && config.magic == 0xcafebeef && config.version == 20220200 ? 0 : 1;
}
