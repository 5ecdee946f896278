/* Preloaded into a program that uses Intel's CPU OpenCL runtime: that runtime keeps as many work-groups resident as it
 * sees processors, and a collective whose work-groups wait for peers needs all of its own resident. Reports at least
 * BED_CPUS processors (default 8); the threads then share those that exist. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int wanted(void)
{
    const char *text = getenv("BED_CPUS");
    int number = text != NULL ? atoi(text) : 8;
    return number > 0 && number <= CPU_SETSIZE ? number : 8;
}

int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set)
{
    int (*real)(pid_t, size_t, cpu_set_t *) = (int (*)(pid_t, size_t, cpu_set_t *))dlsym(RTLD_NEXT, "sched_getaffinity");
    if (real == NULL) {
        errno = ENOSYS;
        return -1;
    }
    int result = real(pid, size, set);
    if (result < 0)
        return result;
    for (int cpu = 0; cpu < wanted() && (size_t)cpu < size * 8; cpu++) {
        if (CPU_COUNT_S(size, set) >= wanted())
            break;
        CPU_SET_S(cpu, size, set);
    }
    return result;
}

long sysconf(int name)
{
    long (*real)(int) = (long (*)(int))dlsym(RTLD_NEXT, "sysconf");
    long value = real != NULL ? real(name) : -1;
    if ((name == _SC_NPROCESSORS_ONLN || name == _SC_NPROCESSORS_CONF) && value < wanted())
        return wanted();
    return value;
}
