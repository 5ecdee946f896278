/* metronome MICROSECONDS COMMAND [ARGUMENTS]: runs a command while a thread of real-time priority on each processor wakes every
 * so many microseconds, does nothing and sleeps again. Whoever ran there has to be chosen anew each time: so processes that
 * spin while they wait for each other, many to a processor, take turns as often as that and not just at the kernel's tick. So a
 * hop is shorter, and less of the processors' time is spent on spinning. Where there is no right to such a priority, the command runs all
 * the same. Its exit status is the command's. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct timespec period;
static pid_t child;

static void *beat(void *place)
{
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET((int)(long)place, &only);
    struct sched_param lowest = {.sched_priority = sched_get_priority_min(SCHED_FIFO)};
    int error = pthread_setaffinity_np(pthread_self(), sizeof only, &only);
    if (error == 0)
        error = pthread_setschedparam(pthread_self(), SCHED_FIFO, &lowest);
    if (error != 0) {
        fprintf(stderr, "metronome: none on processor %ld: %s\n", (long)place, strerror(error));
        return NULL;
    }
    for (;;)
        nanosleep(&period, NULL);
}

static void pass_on(int signal)
{
    kill(child, signal);
}

int main(int count, char **words)
{
    long microseconds = count > 2 ? strtol(words[1], NULL, 10) : 0;
    if (microseconds < 50 || microseconds > 100000) {
        fprintf(stderr, "usage: metronome MICROSECONDS COMMAND [ARGUMENTS], with 50 to 100000\n");
        return 2;
    }
    period.tv_nsec = microseconds * 1000;
    pid_t own = getpid();
    child = fork();
    if (child < 0) {
        perror("metronome: fork");
        return 2;
    }
    if (child == 0) {
        /* It doesn't outlive the metronome. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != own)
            return 2;
        execvp(words[2], words + 2);
        perror(words[2]);
        _exit(127);
    }
    signal(SIGTERM, pass_on);
    signal(SIGINT, pass_on);
    cpu_set_t all;
    if (sched_getaffinity(0, sizeof all, &all) == 0)
        for (long place = 0; place < CPU_SETSIZE; place++) {
            pthread_t thread;
            if (CPU_ISSET((int)place, &all) && pthread_create(&thread, NULL, beat, (void *)place) == 0)
                pthread_detach(thread);
        }
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return 2;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
