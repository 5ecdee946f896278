/* A plain Level Zero program: times of commands that the device gathers, and memory that is mapped into reserved addresses.
 * Written against the real headers. With the argument "refused" it also asks for what the driver has not, by name, and for
 * what is wrong; the validation layer reports each of these. */
#include "check.h"

#include <string.h>
#define HOLDS(what)                                                                                                      \
    do {                                                                                                                 \
        if (!(what)) {                                                                                                   \
            printf("line %d: not %s\n", __LINE__, #what);                                                                \
            exit(2);                                                                                                     \
        }                                                                                                                \
    } while (0)

static ze_driver_handle_t driver;
static ze_device_handle_t device;
static ze_context_handle_t context;

enum { EVENTS = 3 };

/* The times of three fills, gathered at once on an immediate list, and again by each execution of a regular one. */
static void times(void)
{
    ze_event_pool_desc_t pool_desc = {ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, NULL,
                                      ZE_EVENT_POOL_FLAG_HOST_VISIBLE | ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP, EVENTS + 1};
    ze_event_pool_handle_t pool;
    CHECK(zeEventPoolCreate(context, &pool_desc, 1, &device, &pool));
    ze_event_handle_t events[EVENTS + 1];
    for (uint32_t i = 0; i <= EVENTS; i++) {
        ze_event_desc_t desc = {ZE_STRUCTURE_TYPE_EVENT_DESC, NULL, i, ZE_EVENT_SCOPE_FLAG_HOST, ZE_EVENT_SCOPE_FLAG_HOST};
        CHECK(zeEventCreate(pool, &desc, &events[i]));
    }
    ze_host_mem_alloc_desc_t host = {ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC, NULL, 0};
    ze_kernel_timestamp_result_t *results, *again;
    char *memory;
    CHECK(zeMemAllocHost(context, &host, 4096, 64, (void **)&results));
    CHECK(zeMemAllocHost(context, &host, 4096, 64, (void **)&again));
    CHECK(zeMemAllocHost(context, &host, 65536, 64, (void **)&memory));
    ze_command_queue_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC, .mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS};
    ze_command_list_handle_t list;
    CHECK(zeCommandListCreateImmediate(context, device, &desc, &list));
    for (int i = 0; i < EVENTS; i++) {
        char pattern = (char)(i + 1);
        CHECK(zeCommandListAppendMemoryFill(list, memory, &pattern, 1, 65536, events[i], i > 0, i > 0 ? &events[i - 1] : NULL));
    }
    /* Backwards, by offsets; then in a row. */
    size_t size = sizeof *results, offsets[EVENTS] = {2 * size, size, 0};
    CHECK(zeCommandListAppendQueryKernelTimestamps(list, EVENTS, events, results, offsets, events[EVENTS], 1, &events[EVENTS - 1]));
    CHECK(zeCommandListAppendQueryKernelTimestamps(list, EVENTS, events, again, NULL, NULL, 1, &events[EVENTS]));
    CHECK(zeCommandListHostSynchronize(list, UINT64_MAX));
    uint64_t before = 0;
    for (int i = 0; i < EVENTS; i++) {
        ze_kernel_timestamp_result_t own;
        CHECK(zeEventQueryKernelTimestamp(events[i], &own));
        HOLDS(memcmp(&own, &results[EVENTS - 1 - i], size) == 0 && memcmp(&own, &again[i], size) == 0);
        HOLDS(own.global.kernelStart >= before && own.global.kernelEnd >= own.global.kernelStart && own.global.kernelEnd > 0);
        before = own.global.kernelEnd;
    }

    ze_command_list_desc_t list_desc = {ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC, NULL, 0, 0};
    ze_command_list_handle_t closed;
    ze_command_queue_handle_t queue;
    CHECK(zeCommandListCreate(context, device, &list_desc, &closed));
    CHECK(zeCommandQueueCreate(context, device, &desc, &queue));
    CHECK(zeCommandListAppendEventReset(closed, events[0]));
    char pattern = 9;
    CHECK(zeCommandListAppendBarrier(closed, NULL, 0, NULL));
    CHECK(zeCommandListAppendMemoryFill(closed, memory, &pattern, 1, 65536, events[0], 0, NULL));
    CHECK(zeCommandListAppendQueryKernelTimestamps(closed, 1, events, results, NULL, NULL, 1, &events[0]));
    CHECK(zeCommandListClose(closed));
    for (int i = 0; i < 3; i++) {
        CHECK(zeCommandQueueExecuteCommandLists(queue, 1, &closed, NULL));
        CHECK(zeCommandQueueSynchronize(queue, UINT64_MAX));
        HOLDS(results[0].global.kernelStart >= before && results[0].context.kernelEnd >= results[0].context.kernelStart);
        before = results[0].global.kernelEnd;
    }
    CHECK(zeCommandQueueDestroy(queue));
    CHECK(zeCommandListDestroy(closed));
    CHECK(zeCommandListDestroy(list));
    for (int i = 0; i <= EVENTS; i++)
        CHECK(zeEventDestroy(events[i]));
    CHECK(zeEventPoolDestroy(pool));
    CHECK(zeMemFree(context, results));
    CHECK(zeMemFree(context, again));
    CHECK(zeMemFree(context, memory));
}

/* Two pages of device memory in two places. */
static void places(int refused)
{
    size_t page = 0, alike = 0;
    CHECK(zeVirtualMemQueryPageSize(context, device, 10000, &page));
    char *place;
    CHECK(zeVirtualMemReserve(context, NULL, 8 * page, (void **)&place));
    ze_physical_mem_desc_t desc = {ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, NULL, ZE_PHYSICAL_MEM_FLAG_ALLOCATE_ON_DEVICE, 2 * page};
    ze_physical_mem_handle_t memory;
    CHECK(zePhysicalMemCreate(context, device, &desc, &memory));
    char *one = place + page, *other = place + 4 * page;
    CHECK(zeVirtualMemMap(context, one, 2 * page, memory, 0, ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE));
    CHECK(zeVirtualMemMap(context, other, page, memory, page, ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE));
    CHECK(zeVirtualMemMap(context, other + page, page, memory, 0, ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE));
    if (refused) {
        EXPECT(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeVirtualMemMap(context, one + page, page, memory, 0, ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE));
        EXPECT(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeVirtualMemMap(context, place, 3 * page, memory, 0, ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE));
        EXPECT(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeVirtualMemUnmap(context, one, page));
        EXPECT(ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE, zeVirtualMemFree(context, place, 8 * page));
        EXPECT(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, zeVirtualMemReserve(context, NULL, page / 2, (void **)&place));
        EXPECT(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFree(context, one));
    }
    /* The memory outlives its handle where it is mapped. */
    CHECK(zePhysicalMemDestroy(context, memory));

    ze_command_queue_desc_t queue_desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC, .flags = ZE_COMMAND_QUEUE_FLAG_IN_ORDER};
    ze_command_list_handle_t list;
    CHECK(zeCommandListCreateImmediate(context, device, &queue_desc, &list));
    uint32_t *words = malloc(2 * page), *back = malloc(2 * page);
    size_t count = page / sizeof *words;
    for (size_t i = 0; i < 2 * count; i++)
        words[i] = (uint32_t)(i * 2654435761u);
    CHECK(zeCommandListAppendMemoryCopy(list, one, words, 2 * page, NULL, 0, NULL));
    CHECK(zeCommandListAppendMemoryCopy(list, back, other, 2 * page, NULL, 0, NULL));
    CHECK(zeCommandListHostSynchronize(list, UINT64_MAX));
    /* The halves lie the other way round there. */
    HOLDS(memcmp(back, words + count, page) == 0 && memcmp(back + count, words, page) == 0);

    ze_memory_allocation_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
    ze_device_handle_t of = NULL;
    void *base = NULL;
    CHECK(zeMemGetAllocProperties(context, one + page + 5, &properties, &of));
    HOLDS(properties.type == ZE_MEMORY_TYPE_DEVICE && of == device);
    CHECK(zeMemGetAddressRange(context, one + page + 5, &base, &alike));
    HOLDS(base == one && alike == 2 * page);

    ze_memory_access_attribute_t access;
    CHECK(zeVirtualMemSetAccessAttribute(context, other + page, page, ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY));
    CHECK(zeVirtualMemGetAccessAttribute(context, other, 3 * page, &access, &alike));
    HOLDS(access == ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE && alike == page);
    CHECK(zeVirtualMemGetAccessAttribute(context, other + page, page, &access, &alike));
    HOLDS(access == ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY && alike == page);
    memset(back, 0, page);
    CHECK(zeCommandListAppendMemoryCopy(list, back, other + page, page, NULL, 0, NULL));
    CHECK(zeCommandListHostSynchronize(list, UINT64_MAX));
    HOLDS(memcmp(back, words, page) == 0);
    CHECK(zeVirtualMemUnmap(context, other, 2 * page));
    CHECK(zeVirtualMemGetAccessAttribute(context, other - page, 5 * page, &access, &alike));
    HOLDS(access == ZE_MEMORY_ACCESS_ATTRIBUTE_NONE && alike == 5 * page);
    CHECK(zeMemGetAllocProperties(context, other, &properties, &of));
    HOLDS(properties.type == ZE_MEMORY_TYPE_UNKNOWN);
    CHECK(zeVirtualMemUnmap(context, one, 2 * page));
    CHECK(zeVirtualMemFree(context, place, 8 * page));
    CHECK(zeCommandListDestroy(list));
    free(words);
    free(back);
}

/* Images: the devices say that they have none, and the call says its name. */
static void images(void)
{
    ze_device_image_properties_t limits = {.stype = ZE_STRUCTURE_TYPE_DEVICE_IMAGE_PROPERTIES};
    CHECK(zeDeviceGetImageProperties(device, &limits));
    HOLDS(limits.maxImageDims1D == 0 && limits.maxImageDims2D == 0 && limits.maxImageDims3D == 0);
    ze_image_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_IMAGE_DESC, .type = ZE_IMAGE_TYPE_2D, .width = 4, .height = 4, .depth = 1};
    ze_image_handle_t image = NULL;
    EXPECT(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, zeImageCreate(context, device, &desc, &image));
    const char *text = NULL;
    CHECK(zeDriverGetLastErrorDescription(driver, &text));
    HOLDS(text && strstr(text, "zeImageCreate"));
}

int main(int argc, char **argv)
{
    int refused = argc > 1 && strcmp(argv[1], "refused") == 0;
    ze_init_driver_type_desc_t types = {ZE_STRUCTURE_TYPE_INIT_DRIVER_TYPE_DESC, NULL, ZE_INIT_DRIVER_TYPE_FLAG_GPU};
    uint32_t count = 1;
    CHECK(zeInitDrivers(&count, &driver, &types));
    count = 1;
    CHECK(zeDeviceGet(driver, &count, &device));
    ze_context_desc_t context_desc = {ZE_STRUCTURE_TYPE_CONTEXT_DESC, NULL, 0};
    CHECK(zeContextCreate(driver, &context_desc, &context));
    times();
    places(refused);
    if (refused)
        images();
    CHECK(zeContextDestroy(context));
    printf("times, places%s: right\n", refused ? ", refusals" : "");
    return 0;
}
