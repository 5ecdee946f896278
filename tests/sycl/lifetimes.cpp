// Queues and communicators that come and go, several on one, and messages without elements.
//
// lifetimes RANKS eager|graph|native: starts the ranks as processes of its own and waits for them.
#include "ranks.hpp"

#include <atomic>
#include <functional>
#include <malloc.h>
#include <optional>

namespace {

constexpr auto type = onecclFloat32;

// Runs `submit` once, or as often as a graph of it is replayed, and `check` after each.
void each(sycl::queue &queue, const std::string &how, const std::function<void()> &submit, const std::function<void(int)> &before,
          const std::function<void(int)> &check) {
    std::optional<Executable> executable;
    if (how != "eager") {
        auto graph = graph_on(queue, how == "native");
        graph.begin_recording(queue);
        submit();
        graph.end_recording();
        executable.emplace(graph.finalize());
    }
    for (int call = 0; call < 4; ++call) {
        before(call);
        executable ? void(queue.ext_oneapi_graph(*executable)) : submit();
        queue.wait_and_throw();
        check(call);
    }
}

// Nobody waits for what has no elements, wherever it is said to lie; what is around it goes on.
void empty(Rank &rank, const std::string &how) {
    constexpr size_t count = 333;
    Memory<float> memory(rank, count);
    std::vector<float> given;
    auto &queue = rank.current;
    const int next = (rank.rank + 1) % rank.ranks, last = (rank.rank + rank.ranks - 1) % rank.ranks;
    const std::vector<size_t> none(size_t(rank.ranks), 0);
    const auto submit = [&] {
        for (float *at : {memory.at, static_cast<float *>(nullptr)}) {
            CHECK(onecclAllReduce(at, at, 0, type, onecclSum, rank.comm, &queue));
            CHECK(onecclAllGather(at, at, 0, type, rank.comm, &queue));
            CHECK(onecclReduceScatter(at, at, 0, type, onecclSum, rank.comm, &queue));
            CHECK(onecclBroadcast(at, at, 0, type, 0, rank.comm, &queue));
            CHECK(onecclReduce(at, at, 0, type, onecclSum, 0, rank.comm, &queue));
            CHECK(onecclScatter(at, at, 0, type, 0, rank.comm, &queue));
            CHECK(onecclAllToAll(at, at, 0, type, rank.comm, &queue));
            CHECK(onecclAllToAllV(at, none.data(), at, none.data(), type, rank.comm, &queue));
            CHECK(onecclSend(at, 0, type, next, rank.comm, &queue));
            CHECK(onecclRecv(at, 0, type, last, rank.comm, &queue));
            CHECK(onecclGroupStart());
            CHECK(onecclSend(at, 0, type, rank.rank, rank.comm, &queue));
            CHECK(onecclRecv(at, 0, type, rank.rank, rank.comm, &queue));
            CHECK(onecclAllReduce(at, at, 0, type, onecclSum, rank.comm, &queue));
            CHECK(onecclGroupEnd());
        }
    };
    const auto give = [&](int call) {
        given = values(count, [&](size_t i) { return value(rank.rank, call, i); });
        memory.put(queue, given);
        queue.wait();
    };
    // Alone, and between calls that have elements.
    each(queue, how, submit, give, [&](int) { same(rank, memory.get(), given, "beside empty calls"); });
    const auto between = [&] {
        submit();
        CHECK(onecclAllReduce(memory.at, memory.at, count, type, onecclSum, rank.comm, &queue));
        submit();
    };
    each(queue, how, between, give, [&](int call) {
        same(rank, memory.get(), values(count, [&](size_t i) { return sum(rank, call, i); }), "between empty calls");
    });
}

// Two communicators, in which the ranks have other numbers, take turns on one queue and on another.
void two_on_a_queue(Rank &rank, const std::string &how) {
    constexpr size_t count = 777;
    Rank turned = rank;
    turned.rank = rank.ranks - 1 - rank.rank;
    onecclUniqueId id;
    if (turned.rank == 0) {
        CHECK(onecclGetUniqueId(&id));
        to_store(rank, "turned", std::string(reinterpret_cast<const char *>(&id), sizeof id));
    }
    const std::string data = from_store(rank, "turned", sizeof id);
    std::memcpy(&id, data.data(), sizeof id);
    CHECK(onecclSetDevice(uint32_t(rank.rank)));
    CHECK(onecclCommInitRank(&turned.comm, size_t(rank.ranks), id, turned.rank));
    Memory<float> memory(rank, count), all(rank, count * size_t(rank.ranks)), back(rank, count * size_t(rank.ranks));
    auto &queue = rank.current;
    std::vector<float> given;
    const auto submit = [&] {
        CHECK(onecclAllReduce(memory.at, memory.at, count, type, onecclSum, rank.comm, &queue));
        CHECK(onecclAllGather(memory.at, all.at, count, type, turned.comm, &queue));
        auto &other = rank.fork();
        CHECK(onecclAllReduce(all.at, all.at, all.count, type, onecclSum, rank.comm, &other));
        CHECK(onecclAllToAll(all.at, back.at, count, type, turned.comm, &other));
        CHECK(onecclAllReduce(back.at, back.at, back.count, type, onecclSum, rank.comm, &other));
        rank.join(other);
        CHECK(onecclAllReduce(back.at, back.at, back.count, type, onecclMax, turned.comm, &queue));
    };
    const auto give = [&](int call) {
        given = values(count, [&](size_t i) { return value(rank.rank, call, i); });
        memory.put(queue, given);
        queue.wait();
    };
    each(queue, how, submit, give, [&](int call) {
        const auto factor = float(rank.ranks * rank.ranks);
        same(rank, back.get(), values(back.count, [&](size_t i) { return factor * sum(rank, call, i % count); }), "two communicators");
    });
    meet(rank, "turned-end");
    CHECK(onecclCommDestroy(turned.comm));
}

// A graph is recorded from a queue of the pool, and the current one joins it.
void recorded_from_the_pool(Rank &rank, const std::string &how) {
    constexpr size_t count = 444;
    Memory<float> memory(rank, count), all(rank, count * size_t(rank.ranks));
    auto &first = rank.pool[0];
    std::vector<float> given;
    const auto submit = [&] {
        CHECK(onecclAllReduce(memory.at, memory.at, count, type, onecclSum, rank.comm, &first));
        for (size_t i = 1; i < rank.pool.size(); ++i) {
            // Each way is once there and once back, with a collective at its end.
            auto &other = i % 2 ? rank.current : rank.pool[i];
            other.ext_oneapi_submit_barrier({first.ext_oneapi_submit_barrier()});
            CHECK(onecclAllReduce(memory.at, memory.at, count, type, i % 2 ? onecclMax : onecclMin, rank.comm, &other));
            first.ext_oneapi_submit_barrier({other.ext_oneapi_submit_barrier()});
        }
        CHECK(onecclAllGather(memory.at, all.at, count, type, rank.comm, &first));
    };
    const auto give = [&](int call) {
        given = values(count, [&](size_t i) { return value(rank.rank, call, i); });
        memory.put(first, given);
        first.wait();
    };
    each(first, how, submit, give, [&](int call) {
        same(rank, all.get(), values(all.count, [&](size_t i) { return sum(rank, call, i % count); }), "from the pool");
    });
}

// The caller's queue is gone while the call on it waits for a slow producer.
void queue_goes_first(Rank &rank) {
    constexpr size_t count = 555;
    Memory<float> memory(rank, count);
    for (int call = 0; call < 10; ++call) {
        const auto given = values(count, [&](size_t i) { return value(rank.rank, call, i); });
        sycl::event done;
        {
            sycl::queue queue(rank.device, in_order());
            queue.submit([](sycl::handler &handler) {
                handler.host_task([] { std::this_thread::sleep_for(std::chrono::milliseconds(10)); });
            });
            memory.put(queue, given);
            CHECK(onecclAllReduce(memory.at, memory.at, count, type, onecclSum, rank.comm, &queue));
            if (call % 2)
                done = queue.ext_oneapi_submit_barrier();
        }
        if (call % 2)
            done.wait();
        // The next collective is behind that one, whatever queue it is on.
        CHECK(onecclAllReduce(memory.at, memory.at, count, type, onecclMax, rank.comm, &rank.current));
        same(rank, memory.get(), values(count, [&](size_t i) { return sum(rank, call, i); }), "a queue that has gone");
    }
}

// Calls on several queues behind work that ends only after them: the host is not kept.
void behind_what_waits(Rank &rank) {
    constexpr size_t count = 99;
    Memory<float> memory(rank, count), other(rank, count);
    for (int call = 0; call < 4; ++call) {
        const auto given = values(count, [&](size_t i) { return value(rank.rank, call, i); });
        const auto also = values(count, [&](size_t i) { return value(rank.rank, call + 1, i); });
        std::atomic<bool> free{false};
        rank.current.submit([&](sycl::handler &handler) {
            handler.host_task([&] {
                while (!free)
                    std::this_thread::sleep_for(std::chrono::milliseconds(1));
            });
        });
        memory.put(rank.current, given);
        auto &queue = rank.pool[size_t(call)];
        other.put(queue, also);
        CHECK(onecclAllReduce(memory.at, memory.at, count, type, onecclSum, rank.comm, &rank.current));
        CHECK(onecclAllReduce(other.at, other.at, count, type, onecclSum, rank.comm, &queue));
        CHECK(onecclAllReduce(memory.at, memory.at, count, type, onecclMax, rank.comm, &rank.current));
        free = true;
        queue.wait();
        same(rank, memory.get(), values(count, [&](size_t i) { return sum(rank, call, i); }), "behind what waits");
        same(rank, other.get(), values(count, [&](size_t i) { return sum(rank, call + 1, i); }), "on another queue");
    }
}

size_t entries(const char *folder) {
    size_t number = 0;
    for (const auto &entry : std::filesystem::directory_iterator(folder))
        number += !entry.path().empty();
    return number;
}

// What a process holds.
struct Held {
    size_t heap = mallinfo2().uordblks, files = entries("/proc/self/fd"), threads = entries("/proc/self/task");
};

// `turn` many times: neither files nor threads are more at the end than in the middle, and of the heap so many bytes a turn.
void leaves_nothing(const char *what, int turns, size_t bytes, const std::function<void(int)> &turn) {
    std::optional<Held> middle;
    for (int i = 0; i < turns; ++i) {
        if (i == turns / 2)
            middle.emplace();
        turn(i);
    }
    const Held end;
    const size_t grown = end.heap > middle->heap ? (end.heap - middle->heap) / size_t(turns - turns / 2) : 0;
    std::printf("%s: %d turns, the heap grows by %zu bytes a turn, %zu files, %zu threads\n", what, turns, grown, end.files, end.threads);
    if (grown > bytes || end.files > middle->files || end.threads > middle->threads)
        fail(std::string(what) + ": that is a leak; in the middle " + std::to_string(middle->files) + " files, " +
             std::to_string(middle->threads) + " threads");
}

void of_rank(int number, int ranks, const std::string &store, const std::string &how) {
    alarm(100);
    Rank rank = rank_of(number, ranks, store, 32);
    rank.comm = communicator(rank, 0, "id", true);
    if (how == "eager")
        behind_what_waits(rank);
    empty(rank, how);
    two_on_a_queue(rank, how);
    recorded_from_the_pool(rank, how);
    if (how == "eager") {
        queue_goes_first(rank);
        Memory<float> memory(rank, 100);
        const auto given = values(100, [&](size_t i) { return value(rank.rank, 5, i); });
        const auto wanted = values(100, [&](size_t i) { return sum(rank, 5, i); });
        const auto reduce = [&](onecclComm_t comm, sycl::queue &queue) {
            memory.put(queue, given);
            CHECK(onecclAllReduce(memory.at, memory.at, 100, type, onecclSum, comm, &queue));
            queue.wait();
            same(rank, memory.get(), wanted, "one of many");
        };
        const bool leaks = std::getenv("LIFETIMES_LEAK") != nullptr;
        leaves_nothing("queues", 1000, 100, [&](int) {
            auto *queue = new sycl::queue(rank.device, in_order());
            reduce(rank.comm, *queue);
            if (!leaks)
                delete queue;
        });
        leaves_nothing("communicators", 60, 2000, [&](int turn) {
            auto comm = communicator(rank, 0, "turn" + std::to_string(turn), true);
            reduce(comm, rank.current);
            meet(rank, "over" + std::to_string(turn) + "-");
            CHECK(onecclCommDestroy(comm));
        });
    }
    rank.current.wait_and_throw();
    meet(rank, "end");
    CHECK(onecclCommDestroy(rank.comm));
}

} // namespace

int main(int argc, char **argv) {
    return run_ranks(argc, argv, "lifetimes RANKS eager|graph|native", of_rank);
}
