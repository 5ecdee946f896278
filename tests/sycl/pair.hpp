// Two ranks, of which the first is the process that was started: for tools that look at one process.
#pragma once
#include "xccl.hpp"

#include <fstream>
#include <sys/wait.h>
#include <unistd.h>

// The main function of a program with at most one argument, `otherwise` without one. Rank 0 starts itself as rank 1, to which
// the id travels as a file.
inline int run_pair(int argc, char **argv, const char *usage, const char *otherwise,
                    void (*of_rank)(int number, const onecclUniqueId &id, const std::string &what)) {
    try {
        onecclUniqueId id;
        if (argc == 3) {
            std::ifstream file(argv[2], std::ios::binary);
            file.read(reinterpret_cast<char *>(&id), sizeof id);
            of_rank(1, id, argv[1]);
            return 0;
        }
        const char *what = argc == 2 ? argv[1] : otherwise;
        if (!what)
            fail(std::string("usage: ") + usage);
        CHECK(onecclGetUniqueId(&id));
        char name[] = "/tmp/pair.XXXXXX";
        const int file = mkstemp(name);
        if (file < 0 || write(file, &id, sizeof id) != ssize_t(sizeof id))
            fail("the id's file");
        close(file);
        // Before this process has used the driver or the runtime.
        const pid_t child = fork();
        if (child == 0) {
            execl(argv[0], argv[0], what, name, nullptr);
            _exit(127);
        }
        of_rank(0, id, what);
        int status = 0;
        waitpid(child, &status, 0);
        unlink(name);
        return status != 0;
    } catch (const std::exception &error) {
        fail(error.what());
    }
}
