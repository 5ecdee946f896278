// Ranks as processes of a program of its own, and how they meet: by files of a folder, as torch's do by its store.
#pragma once
#include "xccl.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <spawn.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

extern char **environ;

constexpr auto in_order = [] { return sycl::property_list{sycl::property::queue::in_order()}; };

// Waits for a file of the store, at most a minute.
inline std::string from_store(const Rank &rank, const std::string &key, size_t bytes) {
    const std::string path = rank.store + "/" + key;
    for (int i = 0; i < 60000; ++i) {
        std::ifstream file(path, std::ios::binary);
        std::string data((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
        if (data.size() == bytes)
            return data;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    fail(key + " does not come");
}

inline void to_store(const Rank &rank, const std::string &key, const std::string &data) {
    const std::string path = rank.store + "/" + key;
    std::ofstream(path + ".new", std::ios::binary) << data;
    if (std::rename((path + ".new").c_str(), path.c_str()) != 0)
        fail("the store");
}

// All ranks have come here.
inline void meet(const Rank &rank, const std::string &key) {
    to_store(rank, key + std::to_string(rank.rank), "x");
    for (int peer = 0; peer < rank.ranks; ++peer)
        from_store(rank, key + std::to_string(peer), 1);
}

// Made outside whatever group is open, which is `depth` deep.
inline onecclComm_t communicator(const Rank &rank, int depth, const std::string &key, bool on_device) {
    onecclUniqueId id;
    if (rank.rank == 0) {
        CHECK(onecclGetUniqueId(&id));
        to_store(rank, key, std::string(reinterpret_cast<const char *>(&id), sizeof id));
    }
    const std::string data = from_store(rank, key, sizeof id);
    std::memcpy(&id, data.data(), sizeof id);
    onecclComm_t comm = nullptr;
    for (int i = 0; i < depth; ++i)
        CHECK(onecclGroupEnd());
    // oneCCL's library for CPUs has no devices, and says so.
    if (on_device)
        CHECK(onecclSetDevice(uint32_t(rank.rank)));
    CHECK(onecclCommInitRank(&comm, size_t(rank.ranks), id, rank.rank));
    for (int i = 0; i < depth; ++i)
        CHECK(onecclGroupStart());
    return comm;
}

// A rank on the device of its number, with its queues and no communicator.
inline Rank rank_of(int number, int ranks, const std::string &store, int queues) {
    std::vector<sycl::device> devices;
    for (const auto &device : sycl::device::get_devices(sycl::info::device_type::gpu)) {
        if (device.get_backend() == sycl::backend::ext_oneapi_level_zero)
            devices.push_back(device);
    }
    if (devices.size() < size_t(ranks))
        fail(std::to_string(devices.size()) + " devices");
    const auto device = devices[size_t(number)];
    Rank rank{number, ranks, device, sycl::queue(device, in_order()), {}, nullptr, 0, store};
    for (int i = 0; i < queues; ++i)
        rank.pool.emplace_back(device, in_order());
    return rank;
}

// Starts this program once for each rank, as `NAME rank NUMBER RANKS STORE REST...`, and waits: how many ended otherwise
// than `dies` says, which is by SIGKILL for that rank and well for all others. Once one did, the others are ended.
inline int start(const char *ranks, const std::vector<const char *> &rest, int dies = -1) {
    char store[] = "/tmp/ranks.XXXXXX";
    if (!mkdtemp(store))
        fail("no folder for the store");
    std::vector<pid_t> children;
    for (int i = 0; i < std::atoi(ranks); ++i) {
        const std::string number = std::to_string(i);
        std::vector<const char *> arguments = {"rank", "rank", number.c_str(), ranks, store};
        arguments.insert(arguments.end(), rest.begin(), rest.end());
        arguments.push_back(nullptr);
        pid_t child = 0;
        if (posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, const_cast<char **>(arguments.data()), environ) != 0)
            fail("a rank does not start");
        children.push_back(child);
    }
    int bad = 0;
    for (size_t i = 0; i < children.size(); ++i) {
        int status = 0;
        pid_t ended = -1;
        while ((ended = waitpid(-1, &status, 0)) < 0 && errno == EINTR)
            ;
        const auto number = std::find(children.begin(), children.end(), ended) - children.begin();
        if (size_t(number) == children.size())
            fail("a process that is no rank has ended");
        children[size_t(number)] = 0;
        if (number == dies ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : status == 0)
            continue;
        std::fprintf(stderr, "rank %ld ended with status %#x\n", long(number), unsigned(status));
        ++bad;
        for (const pid_t other : children) {
            if (other != 0)
                kill(other, SIGTERM);
        }
    }
    std::filesystem::remove_all(store);
    return bad;
}

// The main function of a program with the arguments RANKS and WHAT: starts the ranks, or is one of them.
inline int run_ranks(int argc, char **argv, const char *usage,
                     void (*of_rank)(int number, int ranks, const std::string &store, const std::string &what)) {
    try {
        if (argc == 6 && std::string(argv[1]) == "rank") {
            of_rank(std::atoi(argv[2]), std::atoi(argv[3]), argv[4], argv[5]);
            return 0;
        }
        if (argc == 3) {
            const int bad = start(argv[1], {argv[2]});
            if (bad == 0)
                std::printf("%s ranks, %s: all as computed\n", argv[1], argv[2]);
            return bad != 0;
        }
    } catch (const std::exception &error) {
        fail(error.what());
    }
    fail(std::string("usage: ") + usage);
}
