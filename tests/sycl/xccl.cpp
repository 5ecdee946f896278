// What PyTorch's process group for XPUs does with oneCCL's C API, in small: an id by value through a store, communicators
// made outside whatever group is open, all-reduces in place on the current queue, asynchronous ones on a pool's queue
// between barriers, grouped sends and receives, and a graph of collectives that is replayed with other inputs.
//
// xccl RANKS MODE [REPLAYS]: starts the ranks as processes of its own and waits for them.
//   eager    calls that run
//   graph    calls that are recorded as well, by the runtime's own means
//   native   the same with native recording (a runtime that has it)
//   shown    as graph, on devices that a driver only pretends: nothing is waited for, since nothing runs
//   shown-native  likewise
//   host     calls on buffers of the host, for which oneCCL's own library for CPUs does too
// XCCL_DUMP names a file for rank 0's graph of three collectives.
#include "mhc.hpp"
#include "ranks.hpp"

#include <algorithm>
#include <optional>

namespace {

// A producer that takes its time, so that whoever doesn't wait for it is early.
void slowly(sycl::queue &queue) {
    // The older adapter without immediate command lists takes events into use that are in use where a host task's thread
    // submits beside the program's, whatever library is called (docs/limits.md).
    if (std::getenv("XCCL_NO_HOST_TASKS"))
        return;
    queue.submit([](sycl::handler &handler) {
        handler.host_task([] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
    });
}

void all_reduce(Rank &rank, size_t count, int call, bool asynchronous, bool slow) {
    Memory<float> memory(rank, count);
    const auto input = values(count, [&](size_t i) { return value(rank.rank, call, i); });
    if (slow)
        slowly(rank.current);
    memory.put(rank.current, input);
    if (asynchronous) {
        auto &queue = rank.fork();
        CHECK(onecclAllReduce(memory.at, memory.at, count, onecclFloat32, onecclSum, rank.comm, &queue));
        rank.join(queue);
    } else {
        CHECK(onecclAllReduce(memory.at, memory.at, count, onecclFloat32, onecclSum, rank.comm, &rank.current));
    }
    same(rank, memory.get(), values(count, [&](size_t i) { return sum(rank, call, i); }), "all_reduce");
}

void others(Rank &rank, size_t count, int call) {
    const size_t n = size_t(rank.ranks), own = size_t(rank.rank);
    auto &queue = rank.current;
    const auto mine = values(count, [&](size_t i) { return value(rank.rank, call, i); });
    const auto whole = values(n * count, [&](size_t i) { return value(rank.rank, call, i); });
    Memory<float> one(rank, count), all(rank, n * count), back(rank, n * count);

    one.put(queue, mine);
    CHECK(onecclAllGather(one.at, all.at, count, onecclFloat32, rank.comm, &queue));
    const auto gathered = values(n * count, [&](size_t i) { return value(int(i / count), call, i % count); });
    same(rank, all.get(), gathered, "all_gather");

    all.put(queue, whole);
    CHECK(onecclReduceScatter(all.at, one.at, count, onecclFloat32, onecclSum, rank.comm, &queue));
    same(rank, one.get(), values(count, [&](size_t i) { return sum(rank, call, own * count + i); }), "reduce_scatter");

    one.put(queue, mine);
    const int root = call % rank.ranks;
    CHECK(onecclBroadcast(one.at, one.at, count, onecclFloat32, root, rank.comm, &queue));
    same(rank, one.get(), values(count, [&](size_t i) { return value(root, call, i); }), "broadcast");

    one.put(queue, mine);
    CHECK(onecclReduce(one.at, one.at, count, onecclFloat32, onecclSum, root, rank.comm, &queue));
    if (rank.rank == root)
        same(rank, one.get(), values(count, [&](size_t i) { return sum(rank, call, i); }), "reduce");

    all.put(queue, whole);
    CHECK(onecclScatter(all.at, one.at, count, onecclFloat32, root, rank.comm, &queue));
    same(rank, one.get(), values(count, [&](size_t i) { return value(root, call, own * count + i); }), "scatter");

    all.put(queue, whole);
    CHECK(onecclAllToAll(all.at, back.at, count, onecclFloat32, rank.comm, &queue));
    same(rank, back.get(), values(n * count, [&](size_t i) { return value(int(i / count), call, own * count + i % count); }),
         "all_to_all");

    // Rank r sends count - r - p elements to rank p, so that no two pairs but the mirrored are alike.
    std::vector<size_t> sizes;
    for (size_t peer = 0; peer < n; ++peer)
        sizes.push_back(count - own - peer);
    all.put(queue, whole);
    CHECK(onecclAllToAllV(all.at, sizes.data(), back.at, sizes.data(), onecclFloat32, rank.comm, &queue));
    const auto uneven = back.get();
    auto from = uneven.begin();
    for (size_t peer = 0; peer < n; from += long(sizes[peer]), ++peer) {
        // Where the peer's piece for this rank begins in what the peer sends.
        size_t start = 0;
        for (size_t before = 0; before < own; ++before)
            start += count - peer - before;
        same(rank, std::vector<float>(from, from + long(sizes[peer])),
             values(sizes[peer], [&](size_t i) { return value(int(peer), call, start + i); }), "all_to_all_v");
    }

    // An uneven reduce_scatter is a group of reduces.
    all.put(queue, whole);
    CHECK(onecclGroupStart());
    for (size_t to = 0; to < n; ++to)
        CHECK(onecclReduce(all.at + to * count, back.at, count - to, onecclFloat32, onecclSum, int(to), rank.comm, &queue));
    CHECK(onecclGroupEnd());
    auto reduced = back.get();
    reduced.resize(count - own);
    same(rank, reduced, values(count - own, [&](size_t i) { return sum(rank, call, own * count + i); }), "grouped reduces");

    // As all_to_all with a group: every rank to every rank, itself included.
    all.put(queue, whole);
    CHECK(onecclGroupStart());
    for (size_t peer = 0; peer < n; ++peer) {
        CHECK(onecclSend(all.at + peer * count, count, onecclFloat32, int(peer), rank.comm, &queue));
        CHECK(onecclRecv(back.at + peer * count, count, onecclFloat32, int(peer), rank.comm, &queue));
    }
    CHECK(onecclGroupEnd());
    const auto swapped = [&](size_t i) { return value(int(i / count), call, own * count + i % count); };
    same(rank, back.get(), values(n * count, swapped), "grouped sends and receives");

    // On the queue, on buffers of the host, on the queue: each reads what the one before wrote, though one rank is late. (On the
    // software driver all queues are of one engine, which keeps this order anyway: there it is the wait for a queue that is
    // tried, and tests/tests/abi_groups.rs has the order, on two engines.) A batched queue would be waited for in vain.
    if (!std::getenv("UR_L0_V2_FORCE_BATCHED")) {
        one.put(queue, mine);
        queue.wait();
        if (rank.rank == call % rank.ranks)
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
        std::vector<float> twice(count);
        CHECK(onecclGroupStart());
        CHECK(onecclAllReduce(one.at, one.at, count, onecclFloat32, onecclSum, rank.comm, &queue));
        CHECK(onecclAllReduce(one.at, twice.data(), count, onecclFloat32, onecclSum, rank.comm, nullptr));
        CHECK(onecclAllReduce(one.at, one.at, count, onecclFloat32, onecclSum, rank.comm, &queue));
        CHECK(onecclGroupEnd());
        const auto again = values(count, [&](size_t i) { return float(n) * sum(rank, call, i); });
        same(rank, twice, again, "a group on the queue and on the host");
        same(rank, one.get(), again, "a group on the host and on the queue");
    }

    // Sends and receives alone, round the ring; the even ranks send first.
    const int next = (rank.rank + 1) % rank.ranks, before = (rank.rank + rank.ranks - 1) % rank.ranks;
    one.put(queue, mine);
    const auto send = [&] { CHECK(onecclSend(one.at, count, onecclFloat32, next, rank.comm, &queue)); };
    const auto receive = [&] { CHECK(onecclRecv(back.at, count, onecclFloat32, before, rank.comm, &queue)); };
    rank.rank % 2 == 0 ? send() : receive();
    rank.rank % 2 == 0 ? receive() : send();
    auto got = back.get();
    got.resize(count);
    same(rank, got, values(count, [&](size_t i) { return value(before, call, i); }), "send and receive");

    // An uneven all_gather is a group of broadcasts.
    one.put(queue, mine);
    CHECK(onecclGroupStart());
    for (size_t root = 0; root < n; ++root)
        CHECK(onecclBroadcast(one.at, back.at + root * count, count - root, onecclFloat32, int(root), rank.comm, &queue));
    CHECK(onecclGroupEnd());
    got = back.get();
    for (size_t root = 0; root < n; ++root) {
        const auto from = got.begin() + long(root * count);
        same(rank, std::vector<float>(from, from + long(count - root)),
             values(count - root, [&](size_t i) { return value(int(root), call, i); }), "grouped broadcasts");
    }
}

// Three collectives, the second on another queue that joins the recording and leaves it, each fed by the one before.
struct Recorded {
    static constexpr size_t count = 1537;
    Memory<float> input, work, gathered, scattered, output;
    Executable executable;

    static Executable record(Rank &rank, Recorded &self, bool native, const std::string &dump) {
        auto &queue = rank.current;
        Graph graph = graph_on(rank.current, native);
        graph.begin_recording(queue);
        queue.memcpy(self.work.at, self.input.at, count * sizeof(float));
        CHECK(onecclAllReduce(self.work.at, self.work.at, count, onecclFloat32, onecclSum, rank.comm, &queue));
        auto &other = rank.fork();
        CHECK(onecclAllGather(self.work.at, self.gathered.at, count, onecclFloat32, rank.comm, &other));
        rank.join(other);
        CHECK(onecclReduceScatter(self.gathered.at, self.scattered.at, count, onecclFloat32, onecclSum, rank.comm, &queue));
        queue.memcpy(self.output.at, self.scattered.at, count * sizeof(float));
        graph.end_recording();
        if (!dump.empty())
            graph.print_graph(dump, true);
        return graph.finalize();
    }

    Recorded(Rank &rank, bool native, const std::string &dump)
        : input(rank, count), work(rank, count), gathered(rank, count * size_t(rank.ranks)), scattered(rank, count),
          output(rank, count), executable(record(rank, *this, native, dump)) {}

    void replay(Rank &rank, int call) {
        const auto given = values(count, [&](size_t i) { return value(rank.rank, call, i); });
        input.put(rank.current, given);
        rank.current.ext_oneapi_graph(executable);
        // The gathered pieces are alike, so that their sum over the ranks is a multiple.
        const auto wanted = values(count, [&](size_t i) { return float(rank.ranks) * sum(rank, call, i); });
        same(rank, output.get(), wanted, "replay " + std::to_string(call));
    }
};

// What must be refused by name, before anything is enqueued.
void refusals(Rank &rank) {
    Memory<float> memory(rank, 16);
    const auto refused = [&](sycl::queue queue, const char *word) {
        const auto code = onecclAllReduce(memory.at, memory.at, 16, onecclFloat32, onecclSum, rank.comm, &queue);
        const std::string text = onecclGetLastError(nullptr);
        if (code == onecclSuccess || text.find(word) == std::string::npos)
            fail("refusal: code " + std::to_string(code) + ", " + text);
    };
    refused(sycl::queue(rank.device), "not in order");
    refused(sycl::queue(sycl::context(rank.device), rank.device, in_order()), "default context");
    const auto devices = rank.device.get_platform().get_devices();
    refused(sycl::queue(devices[size_t(rank.rank + 1) % devices.size()], in_order()), "another device");

    // In a group the call before it isn't made either.
    auto &queue = rank.current;
    Memory<float> output(rank, 16);
    const std::vector<float> threes(16, 3), sevens(16, 7);
    const auto grouped = [&](auto bad, onecclResult_t at_once, const char *word) {
        memory.put(queue, threes);
        output.put(queue, sevens);
        CHECK(onecclGroupStart());
        CHECK(onecclAllReduce(memory.at, output.at, 16, onecclFloat32, onecclSum, rank.comm, &queue));
        const auto code = bad(), end = onecclGroupEnd();
        const std::string text = onecclGetLastError(nullptr);
        if (code != at_once || end != onecclInvalidArgument || text.find(word) == std::string::npos)
            fail("refusal in a group: codes " + std::to_string(code) + " and " + std::to_string(end) + ", " + text);
        same(rank, output.get(), sevens, "what a refused group leaves alone");
    };
    const auto misaligned = reinterpret_cast<float *>(reinterpret_cast<char *>(memory.at) + 2);
    grouped([&] { return onecclBroadcast(misaligned, misaligned, 8, onecclFloat32, 0, rank.comm, &queue); },
            onecclInvalidArgument, "not aligned");
    grouped(
        [&] {
            CHECK(onecclSend(memory.at, 8, onecclFloat32, rank.rank, rank.comm, &queue));
            CHECK(onecclRecv(memory.at + 4, 8, onecclFloat32, rank.rank, rank.comm, &queue));
            return onecclSuccess;
        },
        onecclSuccess, "overlap");
}

// The same calls on buffers of the host with a null stream, which oneCCL's library for CPUs takes as well: one binary for both.
void on_host(Rank &rank, size_t count, int call) {
    const size_t n = size_t(rank.ranks), own = size_t(rank.rank);
    const auto mine = values(count, [&](size_t i) { return value(rank.rank, call, i); });
    const auto whole = values(n * count, [&](size_t i) { return value(rank.rank, call, i); });
    const auto summed = values(count, [&](size_t i) { return sum(rank, call, i); });
    const int root = call % rank.ranks;

    auto one = mine;
    CHECK(onecclAllReduce(one.data(), one.data(), count, onecclFloat32, onecclSum, rank.comm, nullptr));
    same(rank, one, summed, "all_reduce on the host");
    one = mine;
    CHECK(onecclReduce(one.data(), one.data(), count, onecclFloat32, onecclSum, root, rank.comm, nullptr));
    if (rank.rank == root)
        same(rank, one, summed, "reduce on the host");
    one = mine;
    CHECK(onecclBroadcast(one.data(), one.data(), count, onecclFloat32, root, rank.comm, nullptr));
    same(rank, one, values(count, [&](size_t i) { return value(root, call, i); }), "broadcast on the host");
    std::vector<float> all(n * count);
    CHECK(onecclAllGather(mine.data(), all.data(), count, onecclFloat32, rank.comm, nullptr));
    same(rank, all, values(n * count, [&](size_t i) { return value(int(i / count), call, i % count); }),
         "all_gather on the host");
    CHECK(onecclReduceScatter(whole.data(), one.data(), count, onecclFloat32, onecclSum, rank.comm, nullptr));
    same(rank, one, values(count, [&](size_t i) { return sum(rank, call, own * count + i); }), "reduce_scatter on the host");
    CHECK(onecclAllToAll(whole.data(), all.data(), count, onecclFloat32, rank.comm, nullptr));
    same(rank, all, values(n * count, [&](size_t i) { return value(int(i / count), call, own * count + i % count); }),
         "all_to_all on the host");
    const int next = (rank.rank + 1) % rank.ranks, before = (rank.rank + rank.ranks - 1) % rank.ranks;
    CHECK(onecclGroupStart());
    CHECK(onecclSend(mine.data(), count, onecclFloat32, next, rank.comm, nullptr));
    CHECK(onecclRecv(one.data(), count, onecclFloat32, before, rank.comm, nullptr));
    CHECK(onecclGroupEnd());
    same(rank, one, values(count, [&](size_t i) { return value(before, call, i); }), "grouped send and receive on the host");
}

// The driver takes a graph of three collectives, and calls that run: arguments, sizes, lists.
int show(Rank &rank, bool native) {
    const char *dump = std::getenv("XCCL_DUMP");
    Recorded recorded(rank, native, dump && rank.rank == 0 ? dump : "");
    for (int i = 0; i < 3; ++i) {
        rank.current.ext_oneapi_graph(recorded.executable);
        CHECK(onecclAllReduce(recorded.work.at, recorded.work.at, Recorded::count, onecclFloat32, onecclSum, rank.comm,
                              &rank.current));
    }
    meet(rank, "end");
    // What never runs is never over: nobody waits for it.
    std::_Exit(0);
}

int run(Rank &rank, const std::string &mode, int replays) {
    if (mode == "shown" || mode == "shown-native")
        return show(rank, mode == "shown-native");
    if (mode == "host") {
        for (const size_t count : {1, 7, 257, 5000, 70001})
            on_host(rank, count, int(count) + replays);
        return 0;
    }
    if (std::getenv("XCCL_REFUSALS"))
        refusals(rank);
    all_reduce(rank, 1024, 0, false, true);
    all_reduce(rank, 1000, 1, true, true);
    int call = 2;
    for (const size_t count : {1, 7, 257, 5000, 70001}) {
        all_reduce(rank, count, call++, false, false);
        all_reduce(rank, count, call++, true, false);
    }
    // All of the pool's queues, as a framework takes them.
    for (size_t i = 0; i < rank.pool.size(); ++i)
        all_reduce(rank, 64 + i, call++, true, false);
    others(rank, 600, call++);
    others(rank, 33, call++);
    // Recorded before anything recorded is replayed: whatever fails then, the dump is there.
    const char *dump = std::getenv("XCCL_DUMP");
    std::optional<Recorded> recorded;
    if (mode != "eager")
        recorded.emplace(rank, mode == "native", dump && rank.rank == 0 ? dump : "");
    mhc::check_all(rank, call, [&](auto submit, auto replays) {
        if (mode == "eager")
            return;
        auto graph = graph_on(rank.current, mode == "native");
        graph.begin_recording(rank.current);
        submit();
        graph.end_recording();
        auto executable = graph.finalize();
        replays([&] { rank.current.ext_oneapi_graph(executable); });
    });
    if (!recorded)
        return 0;
    for (int i = 0; i < 5; ++i)
        recorded->replay(rank, call++);
    for (int i = 0; i < replays; ++i) {
        if (i % 3 == 1)
            all_reduce(rank, 300 + size_t(i), call++, i % 2 == 0, false);
        recorded->replay(rank, call++);
    }
    rank.current.wait_and_throw();
    return 0;
}

int of_rank(int number, int ranks, const std::string &mode, const std::string &store, int replays) {
    // Whatever hangs ends.
    alarm(100);
    // Its devices are pretended.
    if (mode.rfind("shown", 0) == 0)
        set_hooks(512);
    Rank rank = rank_of(number, ranks, store, 32);
    CHECK(onecclGroupStart());
    CHECK(onecclGroupStart());
    rank.comm = communicator(rank, 2, "id", mode != "host");
    CHECK(onecclGroupEnd());
    CHECK(onecclGroupEnd());
    const int status = run(rank, mode, replays);
    rank.current.wait_and_throw();
    // A rank that goes early would be a failure to the others.
    meet(rank, "end");
    CHECK(onecclCommDestroy(rank.comm));
    return status;
}

int start_all(const char *ranks, const char *mode, const char *replays) {
    const int bad = start(ranks, {mode, replays});
    if (bad == 0)
        std::printf("%s ranks, %s: all as computed\n", ranks, mode);
    return bad != 0;
}

} // namespace

int main(int argc, char **argv) {
    try {
        if (argc >= 7 && std::string(argv[1]) == "rank")
            return of_rank(std::atoi(argv[2]), std::atoi(argv[3]), argv[5], argv[4], std::atoi(argv[6]));
        if (argc >= 3)
            return start_all(argv[1], argv[2], argc > 3 ? argv[3] : "20");
    } catch (const std::exception &error) {
        fail(error.what());
    }
    fail("usage: xccl RANKS eager|graph|native|shown|shown-native|host [REPLAYS]");
}
