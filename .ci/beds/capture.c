/* Preloaded into every process of a run on the loader bed, so that what the validation layer says can be told apart.
 * The layer writes to the C library's stderr one character at a time: on a stream that several processes share, its
 * lines would be shredded, and a parent that swallows a child's stderr would swallow the findings. So each process
 * gets files of its own in BED_FINDINGS: PID.stderr for that stream, PID.log for the loader's log. Descriptor 2, which
 * the program under test may use and its parent may read, stays as it is. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void give_own_files(void)
{
    const char *folder = getenv("BED_FINDINGS");
    char path[4096], name[32];
    if (folder == NULL)
        return;
    snprintf(path, sizeof path, "%s/%d.stderr", folder, (int)getpid());
    int own = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (own < 0) {
        perror(path);
        _exit(125);
    }
    /* glibc's own field: std::cerr may hold this FILE already, so another FILE in its place would come too late. */
    stderr->_fileno = own;
    snprintf(name, sizeof name, "%d.log", (int)getpid());
    setenv("ZEL_LOADER_LOG_DIR", folder, 1);
    setenv("ZEL_LOADER_LOG_FILE", name, 1);
}

/* The loader's log is buffered: only of a process that came this far is it known to be whole. */
__attribute__((destructor)) static void tell_end(void)
{
    if (getenv("BED_FINDINGS") != NULL)
        fprintf(stderr, "\nbed: ended in order\n");
}
