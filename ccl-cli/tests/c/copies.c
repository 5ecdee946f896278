/* copies FIRST SECOND CASE: two libraries for the same calls in one process.
 *   handle   a communicator of the first is given to the second
 *   null     a null communicator is given to the second
 *   forked   a child of a process that has called the first makes a communicator of the first
 *   lookup   communicators are looked up in both
 * Prints each code, whether what came with it is as it should be, and the text of the failure. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct {
    char data[4096];
} id_t_;

struct api {
    int (*id)(id_t_ *);
    int (*init)(void **, size_t, id_t_, int);
    int (*count)(void *, int *);
    int (*set_device)(unsigned);
    int (*destroy)(void *);
    int (*lookup)(const void *, int, void **);
    const char *(*error)(void);
};

static struct api load(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    struct api api;
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(9);
    }
    *(void **)&api.id = dlsym(library, "onecclGetUniqueId");
    *(void **)&api.init = dlsym(library, "onecclCommInitRank");
    *(void **)&api.count = dlsym(library, "onecclCommCount");
    *(void **)&api.set_device = dlsym(library, "onecclSetDevice");
    *(void **)&api.destroy = dlsym(library, "onecclCommDestroy");
    *(void **)&api.lookup = dlsym(library, "cclxCommLookup");
    *(void **)&api.error = dlsym(library, "onecclGetLastErrorString");
    return api;
}

static void *make(struct api *api, unsigned device, id_t_ *id) {
    void *comm = NULL;
    if (api->set_device(device) != 0 || api->id(id) != 0 || api->init(&comm, 1, *id, 0) != 0) {
        fprintf(stderr, "init: %s\n", api->error());
        exit(8);
    }
    return comm;
}

static void say(const char *what, int code, int as_expected, const char *text) {
    printf("%s %d %d %s\n", what, code, as_expected, text);
}

int main(int argc, char **argv) {
    static id_t_ first_id, second_id, third_id;
    struct api a, b;
    int count = 0;
    if (argc != 4)
        return 7;
    a = load(argv[1]);
    b = load(argv[2]);
    if (strcmp(argv[3], "handle") == 0) {
        void *comm = make(&a, 0, &first_id);
        int code = a.count(comm, &count);
        say("own", code, count == 1, "");
        code = b.count(comm, &count);
        say("other", code, count == 1, b.error());
    } else if (strcmp(argv[3], "null") == 0) {
        make(&a, 0, &first_id);
        int code = b.count(NULL, &count);
        say("null", code, count == 0, b.error());
    } else if (strcmp(argv[3], "forked") == 0) {
        int status = 0, code = a.id(&first_id);
        pid_t child = code == 0 ? fork() : -1;
        if (child == 0) {
            make(&a, 0, &second_id);
            _exit(0);
        }
        if (child < 0 || waitpid(child, &status, 0) != child)
            return 6;
        say("forked", code, status == 0, "");
    } else {
        void *found = &count, *one = make(&a, 0, &first_id), *two = make(&a, 1, &second_id);
        int code = a.lookup(&first_id, -1, &found);
        say("by-id", code, found == one, "");
        code = a.lookup(NULL, 1, &found);
        say("by-device", code, found == two, "");
        code = a.lookup(&second_id, 1, &found);
        say("both", code, found == two, "");
        code = a.lookup(&second_id, 0, &found);
        say("contradiction", code, found == NULL, a.error());
        code = a.lookup(NULL, -1, &found);
        say("several", code, found == NULL, a.error());
        code = a.lookup(&third_id, -1, &found);
        say("unknown", code, found == NULL, a.error());
        code = b.lookup(&first_id, -1, &found);
        say("elsewhere", code, found == NULL, b.error());
        code = a.lookup(NULL, -2, &found);
        say("device", code, found == NULL, a.error());
        code = a.lookup(NULL, -1, NULL);
        say("place", code, 1, a.error());
        a.destroy(one);
        code = a.lookup(&first_id, -1, &found);
        say("destroyed", code, found == NULL, a.error());
        code = a.lookup(NULL, -1, &found);
        say("sole", code, found == two, "");
    }
    return 0;
}
