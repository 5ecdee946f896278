/* Records and replays a graph with a fork, written against the real headers, so that neither our declarations nor our
 * tests can hide a wrong argument order. With the argument "answers" it also makes the calls that don't return success:
 * questions with an answer, and waits for what is only recorded; the validation layer reports each of them. */
#include "check.h"

#include <string.h>

static ze_event_handle_t counted(ze_context_handle_t context, ze_device_handle_t device)
{
    ze_event_counter_based_desc_t desc = {ZE_STRUCTURE_TYPE_EVENT_COUNTER_BASED_DESC, NULL,
                                          ZE_EVENT_COUNTER_BASED_FLAG_IMMEDIATE, 0, 0};
    ze_event_handle_t event;
    CHECK(zeEventCounterBasedCreate(context, device, &desc, &event));
    return event;
}

static ze_command_list_handle_t in_order(ze_context_handle_t context, ze_device_handle_t device, uint32_t ordinal)
{
    ze_command_queue_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                    .ordinal = ordinal,
                                    .flags = ZE_COMMAND_QUEUE_FLAG_IN_ORDER,
                                    .mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS};
    ze_command_list_handle_t list;
    CHECK(zeCommandListCreateImmediate(context, device, &desc, &list));
    return list;
}

static int destroyed;

static void note(void *data)
{
    destroyed += *(int *)data;
}

int main(int argc, char **argv)
{
    int answers = argc > 1 && strcmp(argv[1], "answers") == 0;
    ze_init_driver_type_desc_t types = {ZE_STRUCTURE_TYPE_INIT_DRIVER_TYPE_DESC, NULL, ZE_INIT_DRIVER_TYPE_FLAG_GPU};
    ze_driver_handle_t driver;
    ze_device_handle_t device;
    ze_context_handle_t context;
    uint32_t count = 1;
    CHECK(zeInitDrivers(&count, &driver, &types));
    count = 1;
    CHECK(zeDeviceGet(driver, &count, &device));
    ze_context_desc_t context_desc = {ZE_STRUCTURE_TYPE_CONTEXT_DESC, NULL, 0};
    CHECK(zeContextCreate(driver, &context_desc, &context));

    ze_record_replay_graph_ext_properties_t graphs = {ZE_STRUCTURE_TYPE_RECORD_REPLAY_GRAPH_EXT_PROPERTIES, NULL, 0};
    ze_device_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES, .pNext = &graphs};
    CHECK(zeDeviceGetProperties(device, &properties));
    if (!(graphs.graphFlags & ZE_RECORD_REPLAY_GRAPH_EXT_FLAG_IMMUTABLE_GRAPH))
        return printf("the device offers no graphs\n"), 2;

    uint64_t *memory;
    ze_host_mem_alloc_desc_t host = {ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC, NULL, 0};
    CHECK(zeMemAllocHost(context, &host, 4096, 64, (void **)&memory));
    ze_command_list_handle_t list = in_order(context, device, 0), child = in_order(context, device, 1);
    ze_event_handle_t fork = counted(context, device), join = counted(context, device), done = counted(context, device);

    ze_graph_handle_t graph, ended;
    ze_executable_graph_handle_t executable, other;
    CHECK(zeGraphCreateExt(context, NULL, &graph));
    if (answers) {
        EXPECT(ZE_RESULT_QUERY_TRUE, zeGraphIsEmptyExt(graph));
        EXPECT(ZE_RESULT_QUERY_FALSE, zeCommandListIsGraphCaptureEnabledExt(list));
    }
    CHECK(zeCommandListBeginCaptureIntoGraphExt(list, graph, NULL));
    CHECK(zeCommandListAppendMemoryCopy(list, memory + 1, memory, 8, fork, 0, NULL));
    CHECK(zeCommandListAppendMemoryCopy(child, memory + 2, memory + 1, 8, join, 1, &fork));
    CHECK(zeCommandListAppendMemoryCopy(list, memory + 3, memory + 2, 8, NULL, 1, &join));
    if (answers) {
        EXPECT(ZE_RESULT_QUERY_TRUE, zeCommandListIsGraphCaptureEnabledExt(child));
        EXPECT(ZE_RESULT_QUERY_FALSE, zeGraphIsEmptyExt(graph));
        EXPECT(ZE_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED, zeCommandListHostSynchronize(list, UINT64_MAX));
        EXPECT(ZE_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED, zeEventHostSynchronize(join, UINT64_MAX));
    }
    CHECK(zeCommandListGetGraphExt(list, &ended));
    CHECK(zeCommandListEndGraphCaptureExt(list, NULL, &ended));
    if (ended != graph)
        return printf("another graph came out than went in\n"), 2;
    int one = 1;
    CHECK(zeGraphSetDestructionCallbackExt(graph, note, &one, NULL));
    CHECK(zeGraphDumpContentsExt(graph, "/dev/null", NULL));
    CHECK(zeGraphInstantiateExt(graph, NULL, &executable));
    CHECK(zeGraphInstantiateExt(graph, NULL, &other));
    CHECK(zeExecutableGraphGetSourceGraphExt(other, &ended));
    CHECK(zeExecutableGraphDestroyExt(other));

    for (uint64_t replay = 1; replay <= 1000; replay++) {
        memory[0] = 3 * replay;
        CHECK(zeCommandListAppendGraphExt(list, executable, NULL, done, replay > 1, replay > 1 ? &done : NULL));
        CHECK(zeEventHostSynchronize(done, UINT64_MAX));
        if (memory[3] != 3 * replay)
            return printf("replay %llu: %llu\n", (unsigned long long)replay, (unsigned long long)memory[3]), 2;
    }
    CHECK(zeExecutableGraphDestroyExt(executable));
    CHECK(zeGraphDestroyExt(graph));
    if (destroyed != 1)
        return printf("the callback was called %d times\n", destroyed), 2;
    CHECK(zeEventDestroy(fork));
    CHECK(zeEventDestroy(join));
    CHECK(zeEventDestroy(done));
    CHECK(zeCommandListDestroy(child));
    CHECK(zeCommandListDestroy(list));
    CHECK(zeMemFree(context, memory));
    CHECK(zeContextDestroy(context));
    printf("1000 replays\n");
    return 0;
}
