// Calls on queues while CCLX_CAPTURE saves them: they compute what they always do, and the corpus is what `ccl verify` has
// to say something of.
//
// captured RANKS WHAT: starts the ranks as processes of its own and waits for them.
//   eager   all-reduces in place and not, behind slow producers, asynchronous, in groups; mHC boundaries: a whole corpus
//   graph   eager ones between recorded ones and other collectives, which are left out and counted
//   native  the same, recorded by the driver
//   held    a queue that waits for what the same thread does later: the capture ends, and nothing is held up
// CAPTURED_RULES is what a library with hooks is to leave out.
#include "mhc.hpp"
#include "ranks.hpp"

#include <atomic>
#include <optional>

namespace {

// An all-reduce of one type, on the current queue or on one of the pool, behind a producer that takes its time.
template <typename T> void all_reduce(Rank &rank, size_t count, int call, onecclDataType_t type, bool in_place, bool elsewhere) {
    Memory<T> send(rank, count), recv(rank, count);
    std::vector<T> given(count), wanted(count);
    for (size_t i = 0; i < count; ++i) {
        given[i] = T(value(rank.rank, call, i));
        wanted[i] = T(sum(rank, call, i));
    }
    rank.current.submit([](sycl::handler &handler) {
        handler.host_task([] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
    });
    send.put(rank.current, given);
    auto &queue = elsewhere ? rank.fork() : rank.current;
    auto &result = in_place ? send : recv;
    CHECK(onecclAllReduce(send.at, result.at, count, type, onecclSum, rank.comm, &queue));
    if (elsewhere)
        rank.join(queue);
    if (result.get() != wanted)
        fail("rank " + std::to_string(rank.rank) + ", call " + std::to_string(call) + ": not as computed");
}

// 22 of them.
void eager(Rank &rank, int call) {
    for (const size_t count : {1, 7, 257, 5000, 70001}) {
        for (const bool in_place : {true, false}) {
            all_reduce<float>(rank, count, call++, onecclFloat32, in_place, false);
            all_reduce<int32_t>(rank, count, call++, onecclInt32, in_place, true);
        }
    }
    // A group on two queues.
    Memory<float> one(rank, 300), other(rank, 500);
    auto &queue = rank.fork();
    const auto first = values(300, [&](size_t i) { return value(rank.rank, call, i); });
    const auto second = values(500, [&](size_t i) { return value(rank.rank, call + 1, i); });
    one.put(rank.current, first);
    other.put(queue, second);
    CHECK(onecclGroupStart());
    CHECK(onecclAllReduce(one.at, one.at, 300, onecclFloat32, onecclSum, rank.comm, &rank.current));
    CHECK(onecclAllReduce(other.at, other.at, 500, onecclFloat32, onecclSum, rank.comm, &queue));
    CHECK(onecclGroupEnd());
    rank.join(queue);
    same(rank, one.get(), values(300, [&](size_t i) { return sum(rank, call, i); }), "one of a group");
    same(rank, other.get(), values(500, [&](size_t i) { return sum(rank, call + 1, i); }), "the other of a group");
}

// Two boundaries in place and a post alone behind them, by one design: what the first puts out, the next reads.
void chain(Rank &rank, int design, int call) {
    const mhc::Library library;
    mhc::ours(library.prepare(rank.comm), "cclxMhcPrepare");
    cclxStream_t stream = nullptr;
    mhc::ours(library.from_queue(rank.comm, &rank.current, &stream), "cclxStreamFromQueue");
    mhc::Boundary boundary(rank, design);
    auto &params = boundary.params;
    params.residual_out = const_cast<void *>(params.residual);
    params.post_out = const_cast<float *>(params.post);
    params.comb_out = const_cast<float *>(params.comb);
    boundary.fill(rank, rank.current, call);
    for (const int variant : {CCLX_MHC_V4, CCLX_MHC_V4, CCLX_MHC_POST}) {
        params.variant = variant;
        mhc::ours(library.all_reduce(&params, rank.comm, stream, 0, nullptr, nullptr), "cclxAllReduceMhc");
    }
    mhc::ours(library.synchronize(stream, 60000), "cclxStreamSynchronize");
    mhc::ours(library.destroy(stream), "cclxStreamDestroy");
}

void recorded(Rank &rank, bool native) {
    constexpr size_t count = 900;
    Memory<float> memory(rank, count), all(rank, count * size_t(rank.ranks));
    auto graph = graph_on(rank.current, native);
    graph.begin_recording(rank.current);
    CHECK(onecclAllReduce(memory.at, memory.at, count, onecclFloat32, onecclSum, rank.comm, &rank.current));
    CHECK(onecclAllGather(memory.at, all.at, count, onecclFloat32, rank.comm, &rank.current));
    graph.end_recording();
    auto executable = graph.finalize();
    for (int call = 60; call < 64; ++call) {
        all_reduce<float>(rank, 400, call, onecclFloat32, true, call % 2 == 0);
        const auto given = values(count, [&](size_t i) { return value(rank.rank, call, i); });
        memory.put(rank.current, given);
        rank.current.ext_oneapi_graph(executable);
        same(rank, all.get(), values(all.count, [&](size_t i) { return sum(rank, call, i % count); }), "a replay");
    }
    rank.current.wait();
}

void held(Rank &rank) {
    constexpr size_t count = 700;
    all_reduce<float>(rank, count, 1, onecclFloat32, true, false);
    Memory<float> memory(rank, count);
    const auto given = values(count, [&](size_t i) { return value(rank.rank, 2, i); });
    std::atomic<bool> free{false};
    rank.current.submit([&](sycl::handler &handler) {
        handler.host_task([&] {
            while (!free)
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
        });
    });
    memory.put(rank.current, given);
    CHECK(onecclAllReduce(memory.at, memory.at, count, onecclFloat32, onecclSum, rank.comm, &rank.current));
    free = true;
    same(rank, memory.get(), values(count, [&](size_t i) { return sum(rank, 2, i); }), "a call that was held");
    all_reduce<float>(rank, count, 3, onecclFloat32, false, true);
}

void of_rank(int number, int ranks, const std::string &store, const std::string &what) {
    alarm(100);
    if (const char *rules = std::getenv("CAPTURED_RULES"))
        set_hooks(uint32_t(std::strtoul(rules, nullptr, 0)));
    Rank rank = rank_of(number, ranks, store, 4);
    rank.comm = communicator(rank, 0, "id", true);
    if (what == "held") {
        held(rank);
    } else if (what == "graph" || what == "native") {
        recorded(rank, what == "native");
    } else if (what == "eager") {
        eager(rank, 1);
        for (const int design : {CCLX_MHC_UNFUSED, CCLX_MHC_A, CCLX_MHC_C})
            chain(rank, design, 30 + design);
    } else {
        fail("no " + what);
    }
    rank.current.wait_and_throw();
    meet(rank, "end");
    CHECK(onecclCommDestroy(rank.comm));
}

} // namespace

int main(int argc, char **argv) {
    return run_ranks(argc, argv, "captured RANKS eager|graph|native|held", of_rank);
}
