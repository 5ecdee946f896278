/* A Level Zero driver that is another one, BED_FORWARD, but for one answer: making memory resident, which Intel's driver
 * says its pretended devices can't, succeeds. SYCL's newer adapter makes no context otherwise. Built with TABLES, a header
 * of one line EXPORT(name) for each function by which a loader gets a table of that driver. */
#include <dlfcn.h>
#include <level_zero/ze_ddi.h>
#include <stdio.h>
#include <stdlib.h>

static void *driver(const char *name)
{
    static void *library;
    if (!library) {
        const char *path = getenv("BED_FORWARD");
        library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
        if (!library) {
            fprintf(stderr, "BED_FORWARD: %s\n", path ? dlerror() : "not set");
            abort();
        }
    }
    return dlsym(library, name);
}

static ze_pfnContextMakeMemoryResident_t resident;

static ze_result_t ZE_APICALL make_resident(ze_context_handle_t context, ze_device_handle_t device, void *memory, size_t size)
{
    ze_result_t result = resident(context, device, memory, size);
    return result == ZE_RESULT_ERROR_UNINITIALIZED ? ZE_RESULT_SUCCESS : result;
}

static ze_result_t forward(const char *name, ze_api_version_t version, void *table)
{
    ze_result_t (*fill)(ze_api_version_t, void *) = (ze_result_t (*)(ze_api_version_t, void *))driver(name);
    return fill ? fill(version, table) : ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}

/* By another name in C, since the headers declare each with its own table's type. */
#define EXPORT(name)                                                                                                     \
    __attribute__((visibility("default"))) ze_result_t export_##name(ze_api_version_t version, void *table) __asm__(#name); \
    ze_result_t export_##name(ze_api_version_t version, void *table)                                                    \
    {                                                                                                                    \
        return forward(#name, version, table);                                                                           \
    }
#include TABLES

__attribute__((visibility("default"))) ze_result_t zeGetContextProcAddrTable(ze_api_version_t version,
                                                                             ze_context_dditable_t *table)
{
    ze_result_t result = forward("zeGetContextProcAddrTable", version, table);
    if (result == ZE_RESULT_SUCCESS) {
        resident = table->pfnMakeMemoryResident;
        table->pfnMakeMemoryResident = make_resident;
    }
    return result;
}
