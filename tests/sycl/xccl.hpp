// What a rank of the SYCL tests has: its communicator, its queues, device memory, and how it fails.
#pragma once
#include <sycl/backend.hpp>
#include <sycl/ext/oneapi/experimental/graph.hpp>
#include <sycl/sycl.hpp>

#include <oneapi/ccl.h>

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace experimental = sycl::ext::oneapi::experimental;
using Graph = experimental::command_graph<experimental::graph_state::modifiable>;
using Executable = experimental::command_graph<experimental::graph_state::executable>;

[[noreturn]] inline void fail(const std::string &what) {
    std::fprintf(stderr, "%s\n", what.c_str());
    std::_Exit(1);
}

inline void check(onecclResult_t code, const char *call) {
    if (code != onecclSuccess)
        fail(std::string(call) + " gave " + std::to_string(code) + ": " + onecclGetLastError(nullptr));
}
#define CHECK(call) check(call, #call)

// A function of the library that oneCCL's header declares as not there, or that only our library has.
template <typename Function> Function *ours(const char *name) {
    auto *found = dlsym(RTLD_DEFAULT, name);
    if (!found)
        fail(std::string("the library has no ") + name);
    return reinterpret_cast<Function *>(found);
}
#define OURS(name) ours<decltype(name)>(#name)

// Switches rules of the library off; only the library with hooks can.
inline void set_hooks(uint32_t rules) { ours<void(uint32_t)>("ccl_test_hooks")(rules); }

// A graph for that queue; a native one is recorded by the driver.
inline Graph graph_on(const sycl::queue &queue, bool native) {
    sycl::property_list properties;
#if __LIBSYCL_MAJOR_VERSION >= 9
    if (native)
        properties = {experimental::property::graph::enable_native_recording{}};
#else
    if (native)
        fail("this release has no native recording");
#endif
    return Graph(queue.get_context(), queue.get_device(), properties);
}

// One rank, as a process group for XPUs has it.
struct Rank {
    int rank, ranks;
    sycl::device device;
    sycl::queue current;           // the framework's
    std::vector<sycl::queue> pool; // for asynchronous collectives, taken in turn
    onecclComm_t comm;
    size_t next = 0;
    std::string store; // a folder by which the ranks exchange what the library doesn't

    // A queue of the pool that waits for what is on the current one.
    sycl::queue &fork() {
        auto &queue = pool[next++ % pool.size()];
        queue.ext_oneapi_submit_barrier({current.ext_oneapi_submit_barrier()});
        return queue;
    }

    // What a Work object's wait does: the current queue waits, the host doesn't.
    void join(sycl::queue &queue) { current.ext_oneapi_submit_barrier({queue.ext_oneapi_submit_barrier()}); }
};

// Device memory of one type.
template <typename T> struct Memory {
    sycl::queue queue;
    size_t count;
    T *at;

    Memory(const Rank &rank, size_t count)
        : queue(rank.current), count(count), at(sycl::malloc_device<T>(count ? count : 1, queue)) {
        if (!at)
            fail("no device memory");
    }
    Memory(const Memory &) = delete;
    ~Memory() { sycl::free(at, queue); }

    // Enqueued; the values are copied before this returns, or kept until the queue is done.
    void put(sycl::queue &on, const std::vector<T> &values) { on.memcpy(at, values.data(), values.size() * sizeof(T)); }
    std::vector<T> get() {
        std::vector<T> values(count);
        queue.memcpy(values.data(), at, count * sizeof(T)).wait();
        return values;
    }
};

// Small integers, whose sums are exact in any order; never alike for two ranks, calls or places.
inline float value(int rank, int call, size_t i) { return float((29 * rank + 13 * call + 7 * int(i % 8191) + int(i / 8191)) % 251 - 100); }

template <typename Make> std::vector<float> values(size_t count, Make make) {
    std::vector<float> made(count);
    for (size_t i = 0; i < count; ++i)
        made[i] = make(i);
    return made;
}

inline float sum(const Rank &rank, int call, size_t i) {
    float total = 0;
    for (int peer = 0; peer < rank.ranks; ++peer)
        total += value(peer, call, i);
    return total;
}

inline void same(const Rank &rank, const std::vector<float> &got, const std::vector<float> &wanted, const std::string &what) {
    if (got.size() != wanted.size())
        fail(what + ": sizes differ");
    for (size_t i = 0; i < got.size(); ++i) {
        if (std::memcmp(&got[i], &wanted[i], sizeof(float)) != 0)
            fail("rank " + std::to_string(rank.rank) + ", " + what + ": element " + std::to_string(i) + " of " +
                 std::to_string(got.size()) + " is " + std::to_string(got[i]) + ", not " + std::to_string(wanted[i]));
    }
}
