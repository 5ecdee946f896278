/* A small Level Zero program with one fault of choice: shows that the validation bed sees what it is there to see. */
#include "check.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *fault;

static int is(const char *name)
{
    return strcmp(fault, name) == 0;
}

/* As tests of several processes do: the program starts itself again, and nobody sees the child's stderr. */
static int in_child(const char *child_fault)
{
    pid_t child = fork();
    if (child == 0) {
        dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
        execl("/proc/self/exe", "provoke", child_fault, (char *)NULL);
        _exit(127);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child)
        return 2;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 2;
}

int main(int argc, char **argv)
{
    static const char child_prefix[] = "in-child:";
    fault = argc > 1 ? argv[1] : "none";
    if (strncmp(fault, child_prefix, strlen(child_prefix)) == 0)
        return in_child(fault + strlen(child_prefix));
    if (is("no-call"))
        return 0;

    ze_init_driver_type_desc_t types = {ZE_STRUCTURE_TYPE_INIT_DRIVER_TYPE_DESC, NULL, ZE_INIT_DRIVER_TYPE_FLAG_GPU};
    uint32_t count = 1;
    ze_driver_handle_t driver;
    CHECK(zeInitDrivers(&count, &driver, &types));
    ze_device_handle_t device;
    count = 1;
    CHECK(zeDeviceGet(driver, &count, &device));

    ze_context_desc_t context_desc = {ZE_STRUCTURE_TYPE_CONTEXT_DESC, NULL, 0};
    ze_context_handle_t context;
    CHECK(zeContextCreate(driver, &context_desc, &context));
    if (is("stype")) {
        ze_context_handle_t other;
        context_desc.stype = ZE_STRUCTURE_TYPE_FENCE_DESC;
        /* The result is dropped: the finding must not depend on a program that checks. */
        if (zeContextCreate(driver, &context_desc, &other) == ZE_RESULT_SUCCESS)
            CHECK(zeContextDestroy(other));
    }

    ze_event_pool_desc_t pool_desc = {ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, NULL, ZE_EVENT_POOL_FLAG_HOST_VISIBLE, 1};
    ze_event_pool_handle_t pool;
    CHECK(zeEventPoolCreate(context, &pool_desc, 1, &device, &pool));
    ze_event_desc_t event_desc = {ZE_STRUCTURE_TYPE_EVENT_DESC, NULL, 0, ZE_EVENT_SCOPE_FLAG_HOST,
                                  ZE_EVENT_SCOPE_FLAG_HOST};
    ze_event_handle_t event;
    CHECK(zeEventCreate(pool, &event_desc, &event));
    if (zeEventQueryStatus(event) != ZE_RESULT_NOT_READY)
        exit(2);

    ze_command_queue_desc_t queue_desc = {ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC};
    queue_desc.mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS;
    ze_command_list_handle_t list;
    CHECK(zeCommandListCreateImmediate(context, device, &queue_desc, &list));

    ze_device_mem_alloc_desc_t memory_desc = {ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    void *memory;
    CHECK(zeMemAllocDevice(context, &memory_desc, 4096, 64, device, &memory));
    if (is("null-event"))
        (void)zeCommandListAppendSignalEvent(list, NULL);

    uint32_t pattern = 7;
    CHECK(zeCommandListAppendMemoryFill(list, memory, &pattern, sizeof pattern, 4096, event, 0, NULL));
    CHECK(zeEventHostSynchronize(event, 5000000000ull));
    if (is("double-signal"))
        CHECK(zeCommandListAppendSignalEvent(list, event));
    CHECK(zeCommandListHostSynchronize(list, 5000000000ull));

    if (is("killed"))
        raise(SIGKILL);
    CHECK(zeCommandListDestroy(list));
    if (!is("leaked-event"))
        CHECK(zeEventDestroy(event));
    if (!is("leaked-pool"))
        CHECK(zeEventPoolDestroy(pool));
    if (!is("leaked-memory"))
        CHECK(zeMemFree(context, memory));
    CHECK(zeContextDestroy(context));
    return 0;
}
