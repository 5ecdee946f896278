/* binding HOW [NAME]: reaches onecclGetVersion in one way, calls it, and prints whose it was: the version and the file.
 *   linked            as the program is linked
 *   global, local, deepbind NAME   by dlopen with that flag
 *   within NAME       through user_version of a library that is itself linked, opened with RTLD_DEEPBIND
 *   idle              not at all */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

extern int onecclGetVersion(int *) __attribute__((weak));

typedef int (*version_t)(int *);

static void *opened(const char *name, int flags) {
    void *library = dlopen(name, RTLD_NOW | flags);
    if (library == NULL)
        fprintf(stderr, "%s\n", dlerror());
    return library;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "linked", *name = argc > 2 ? argv[2] : "";
    version_t get = NULL;
    void *library = NULL;
    if (strcmp(how, "idle") == 0)
        return 0;
    if (strcmp(how, "linked") == 0)
        get = onecclGetVersion;
    else if (strcmp(how, "global") == 0)
        library = opened(name, RTLD_GLOBAL);
    else if (strcmp(how, "local") == 0)
        library = opened(name, RTLD_LOCAL);
    else if (strcmp(how, "deepbind") == 0 || strcmp(how, "within") == 0)
        library = opened(name, RTLD_LOCAL | RTLD_DEEPBIND);
    if (library != NULL)
        get = (version_t)dlsym(library, strcmp(how, "within") == 0 ? "user_version" : "onecclGetVersion");
    int version = 0;
    if (get == NULL || get(&version) != 0)
        return 1;
    printf("%d\n", version);
    return 0;
}
