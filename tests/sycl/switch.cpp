// A communicator's first call on a second queue, while a slow one on the first is under way: calls on one queue take no events
// of the runtime's (docs/sycl.md), so that their order is to be made now. On rank 0 the first queue is held up, on rank 1
// not: without that order the two ranks' calls would meet crosswise.
//
// switch MODE starts itself as rank 1. MODE is one of
//   plain    nothing else happens
//   records  the first queue records a graph by then, which is replayed on both
//   records-unheard  the same, and what the first queue got last has no event, which an adapter may not know the end of
//   turns    two communicators take turns on the first queue, several calls at a time
//   native   the driver records the first queue by then: refused, and made once that is over
//   gone     the program has destroyed its first queue by then
//   threads  the queues are two threads', and what the first one holds is asked for meanwhile
//   end      the communicator is destroyed instead
//   end-records  the same, and the queue records
//   captured-WHAT  calls on the first queue are over, and the driver records it; then WHAT, which has to know that:
//            end, end-turns (of two communicators that took turns), end-holds (the graph holds a call), end-late (rank 1's call comes late), abort, split, list (a call on a command list), other (on another queue).
//            end-replayed and split-replayed: after replays of a graph, so that it can't be known
//   race     the driver begins to record the first queue while its event is made (slow_mark.hpp)
//   batched  a queue without immediate command lists: refused
// SWITCH_HOOKS: rules that are switched off (the library with hooks).
#include "pair.hpp"

#include <atomic>
#include <chrono>
#include <cclx.h>
#include <memory>
#include <optional>
#include <thread>
#include <unistd.h>

namespace {

constexpr size_t count = 1000;

// Memory that the host sees, so that nothing has to be waited for to look at it.
struct Shared {
    sycl::queue queue;
    float *at;

    explicit Shared(const sycl::queue &queue) : queue(queue), at(sycl::malloc_host<float>(count, queue)) {}
    Shared(const Shared &) = delete;
    ~Shared() { sycl::free(at, queue); }
    void put(const Rank &rank, int call) {
        for (size_t i = 0; i < count; ++i)
            at[i] = value(rank.rank, call, i);
    }
    void check(const Rank &rank, int call, const std::string &what) const {
        same(rank, {at, at + count}, values(count, [&](size_t i) { return sum(rank, call, i); }), what);
    }
};

void hold_up(const Rank &rank, sycl::queue &queue) {
    if (rank.rank == 0)
        queue.submit([](sycl::handler &handler) {
            handler.host_task([] { std::this_thread::sleep_for(std::chrono::milliseconds(100)); });
        });
}

onecclResult_t begin(const Rank &rank, sycl::queue &queue, Shared &memory) {
    return onecclAllReduce(memory.at, memory.at, count, onecclFloat32, onecclSum, rank.comm, &queue);
}

void destroy(Rank &rank) {
    CHECK(onecclCommDestroy(rank.comm));
    rank.comm = nullptr;
}

void refused(onecclResult_t code, const std::string &words, const std::string &what) {
    const std::string text = onecclGetLastError(nullptr);
    if (code == onecclSuccess || text.find(words) == std::string::npos)
        fail(what + ": code " + std::to_string(code) + ", " + text);
}

// Calls of two communicators on `queue`, which go on with each other's and their own; the second one.
onecclComm_t turns(Rank &rank, sycl::queue &queue) {
    onecclComm_t comms[2] = {rank.comm, nullptr};
    CHECK(onecclCommSplit(rank.comm, 0, rank.rank, &comms[1], nullptr));
    constexpr int calls = 24;
    std::vector<std::unique_ptr<Shared>> memory;
    for (int call = 0; call < calls; ++call) {
        memory.push_back(std::make_unique<Shared>(rank.current));
        memory.back()->put(rank, 500 + call);
    }
    for (int call = 0; call < calls; ++call) {
        // One, two and three in a row.
        rank.comm = comms[call % 6 == 1 || call % 6 > 2];
        CHECK(begin(rank, queue, *memory[size_t(call)]));
    }
    rank.comm = comms[0];
    queue.wait();
    for (int call = 0; call < calls; ++call)
        memory[size_t(call)]->check(rank, 500 + call, "a call of two communicators that take turns");
    return comms[1];
}

// What has to know that the calls on `first` are over while the driver records it. Nothing of this may take as long as calls
// are waited for at the end.
void captured(Rank &rank, const std::string &what, sycl::queue &first) {
    Shared one(rank.current), recorded(rank.current);
    const auto has = [&](const char *word) { return what.find(word) != std::string::npos; };
    const bool replayed = has("replayed");
    if (replayed) {
        Graph graph = graph_on(first, true);
        graph.begin_recording(first);
        recorded.put(rank, 400);
        CHECK(begin(rank, first, recorded));
        graph.end_recording();
        auto executable = graph.finalize();
        first.ext_oneapi_graph(executable);
        first.wait();
        recorded.check(rank, 400, "a replay before");
    }
    one.put(rank, 401);
    if (has("late") && rank.rank == 1)
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
    CHECK(begin(rank, first, one));
    if (!has("late"))
        first.wait();
    onecclComm_t other = has("turns") ? turns(rank, first) : nullptr;
    Shared others(rank.current);
    if (other) {
        // Either has to know of its own one when it goes, though nothing was between them: rank 1's calls come late.
        if (rank.rank == 1)
            std::this_thread::sleep_for(std::chrono::milliseconds(300));
        one.put(rank, 401);
        others.put(rank, 405);
        std::swap(rank.comm, other);
        CHECK(begin(rank, first, others));
        std::swap(rank.comm, other);
        CHECK(begin(rank, first, one));
    }
    Graph graph = graph_on(first, true);
    graph.begin_recording(first);
    if (has("holds"))
        CHECK(begin(rank, first, recorded));
    const auto since = std::chrono::steady_clock::now();
    if (has("end")) {
        destroy(rank);
        one.check(rank, 401, "a call before the end");
        if (other) {
            CHECK(onecclCommDestroy(other));
            others.check(rank, 405, "a call of the other communicator");
        }
    } else if (has("abort")) {
        check(OURS(onecclCommAbort)(rank.comm), "onecclCommAbort");
        rank.comm = nullptr;
    } else if (has("split")) {
        const auto code = onecclCommSplit(rank.comm, 0, rank.rank, &other, nullptr);
        if (replayed)
            refused(code, "end the recording first", what);
        else
            CHECK(code);
        if (other) {
            std::swap(rank.comm, other);
            one.put(rank, 402);
            CHECK(begin(rank, rank.current, one));
            rank.current.wait();
            one.check(rank, 402, "a call of the new communicator");
            std::swap(rank.comm, other);
            CHECK(onecclCommDestroy(other));
        }
    } else if (has("list")) {
        cclxStream_t stream = nullptr;
        if (OURS(cclxStreamOpen)(rank.comm, 0, &stream) != 0)
            fail("a command list");
        one.put(rank, 403);
        if (OURS(cclxAllReduceAfter)(one.at, one.at, count, onecclFloat32, onecclSum, rank.comm, stream, 0, nullptr, nullptr) != 0 ||
            OURS(cclxStreamSynchronize)(stream, 30000) != 0)
            fail(std::string("a call on a command list: ") + onecclGetLastError(nullptr));
        one.check(rank, 403, "a call on a command list");
        OURS(cclxStreamDestroy)(stream);
    } else {
        // Whether it is known already that the first one is over makes no difference here.
        one.put(rank, 404);
        refused(begin(rank, rank.current, one), "while the driver records the first one", what);
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - since;
    if (took.count() > 20)
        fail(what + " took " + std::to_string(took.count()) + " s");
    graph.end_recording();
}

// Another thread has the driver record the first queue between the question whether it is recorded and the barrier: the call
// is refused, and no part of the graph.
void race(Rank &rank, sycl::queue &first, Shared &one, Shared &two) {
    Graph graph = graph_on(first, true);
    std::thread other([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        graph.begin_recording(first);
    });
    const auto code = begin(rank, rank.current, two);
    other.join();
    refused(code, "while the driver records the first one", "a second queue as the driver begins to record");
    graph.end_recording();
    CHECK(begin(rank, rank.current, two));
    rank.current.wait();
    one.check(rank, 100, "the call on the first queue");
    two.check(rank, 101, "the call on the second queue");
}

void run(Rank &rank, const std::string &mode) {
    if (mode == "batched") {
        namespace property = sycl::ext::intel::property::queue;
        const sycl::property_list batched{sycl::property::queue::in_order(), property::no_immediate_command_list()};
        sycl::queue queue(rank.device, batched);
        Shared memory(rank.current);
        memory.put(rank, 1);
        refused(begin(rank, queue, memory), "batches", mode);
        CHECK(begin(rank, rank.current, memory));
        rank.current.wait();
        memory.check(rank, 1, "a call after it");
        return;
    }
    auto first = std::make_unique<sycl::queue>(rank.device, sycl::property::queue::in_order());
    auto &second = rank.current;
    Shared one(second), two(second), third(second);
    // Ordinary calls before it: none has an event that could be waited for.
    for (int call = 0; call < 20; ++call) {
        one.put(rank, call);
        CHECK(begin(rank, *first, one));
        first->wait();
        one.check(rank, call, "a call before");
    }
    if (mode.rfind("captured-", 0) == 0) {
        captured(rank, mode.substr(9), *first);
        return;
    }
    if (mode == "turns") {
        onecclComm_t other = turns(rank, *first);
        // Nothing of it is in the way of the one that is left.
        CHECK(onecclCommDestroy(other));
        other = turns(rank, *first);
        destroy(rank);
        rank.comm = other;
        one.put(rank, 99);
        CHECK(begin(rank, *first, one));
        first->wait();
        one.check(rank, 99, "a call of the communicator that is left");
        return;
    }
    one.put(rank, 100);
    two.put(rank, 101);
    hold_up(rank, *first);
    CHECK(begin(rank, *first, one));
    if (mode == "race") {
        race(rank, *first, one, two);
        return;
    }
    const bool native = mode == "native";
    std::optional<Graph> graph;
    std::optional<Executable> executable;
    const auto record = [&] {
        graph.emplace(graph_on(*first, native));
        graph->begin_recording(*first);
        CHECK(begin(rank, *first, third));
    };
    const auto recorded = [&] {
        graph->end_recording();
        executable.emplace(graph->finalize());
    };
    if (mode.rfind("end", 0) == 0) {
        if (mode == "end-records")
            record();
        destroy(rank);
        one.check(rank, 100, "a call before the end");
        return;
    }
    if (mode == "records-unheard") {
        sycl::ext::oneapi::experimental::submit(*first, [&](sycl::handler &handler) { handler.memset(third.at, 0, 1); });
        graph.emplace(graph_on(*first, false));
        graph->begin_recording(*first);
    }
    if (mode == "records" || native)
        record();
    if (native) {
        refused(begin(rank, second, two), "while the driver records the first one", "a second queue during native recording");
        recorded();
    }
    if (mode == "gone")
        first.reset();
    if (mode == "threads") {
        std::atomic<bool> over{false};
        std::thread other([&] {
            CHECK(begin(rank, second, two));
            over = true;
        });
        while (!over)
            static_cast<void>(first->ext_oneapi_empty());
        other.join();
    } else {
        CHECK(begin(rank, second, two));
    }
    second.wait();
    // The one before it has ended first, though nobody has waited for it.
    one.check(rank, 100, "the call on the first queue");
    two.check(rank, 101, "the call on the second queue");
    if (mode == "records")
        recorded();
    if (mode == "records-unheard")
        graph->end_recording();
    // There and back again, now with events.
    for (int call = 200; call < 220; ++call) {
        auto &queue = call % 2 == 0 && first ? *first : second;
        auto &memory = call % 2 == 0 ? one : two;
        memory.put(rank, call);
        if (call % 5 == 0)
            hold_up(rank, queue);
        CHECK(begin(rank, queue, memory));
        if (call % 2 == 0)
            continue;
        second.wait();
        one.check(rank, call - 1, "a call there");
        two.check(rank, call, "a call back");
    }
    for (int call = 300; executable && call < 306; ++call) {
        auto &queue = call % 2 == 0 ? *first : second;
        third.put(rank, call);
        queue.ext_oneapi_graph(*executable);
        queue.wait();
        third.check(rank, call, "a replay");
        one.put(rank, call + 100);
        CHECK(begin(rank, queue, one));
        queue.wait();
        one.check(rank, call + 100, "a call between replays");
    }
}

void of_rank(int number, const onecclUniqueId &id, const std::string &mode) {
    // Whatever hangs ends.
    alarm(60);
    if (const char *hooks = std::getenv("SWITCH_HOOKS"))
        set_hooks(uint32_t(std::atoi(hooks)));
    const auto device = sycl::device::get_devices(sycl::info::device_type::gpu)[size_t(number)];
    Rank rank{number, 2, device, sycl::queue(device, sycl::property::queue::in_order()), {}, nullptr, 0, {}};
    CHECK(onecclSetDevice(uint32_t(number)));
    CHECK(onecclCommInitRank(&rank.comm, 2, id, number));
    run(rank, mode);
    if (rank.comm)
        destroy(rank);
    if (number == 0)
        std::printf("%s: all as computed\n", mode.c_str());
}

} // namespace

int main(int argc, char **argv) { return run_pair(argc, argv, "switch MODE", nullptr, of_rank); }
