/* Stands for a oneCCL of another version, which takes the library of CCL_PLUGIN as its plugin. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>

#ifndef VERSION
#define VERSION 20220100
#endif

int onecclGetVersion(int *version) {
    *version = VERSION;
    return 0;
}

int onecclGetUniqueId(void *id) {
    void *plugin = dlopen(getenv("CCL_PLUGIN"), RTLD_LAZY);
    void *(*call)(int) = plugin != NULL ? (void *(*)(int))dlsym(plugin, "onecclPluginCall") : NULL;
    if (call == NULL)
        return 1;
    int (*begin)(void) = (int (*)(void))call(1);
    int (*make_id)(void *) = (int (*)(void *))call(2);
    int code = begin();
    return code != 0 ? code : make_id(id);
}
