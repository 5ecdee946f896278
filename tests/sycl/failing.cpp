// Collectives on queues that fail, eager and recorded: they end in time with what went wrong in words, their outputs hold
// 0xFF bytes, the communicator stays failed and takes nothing more, and queue, graph and process are as good as before.
//
// failing RANKS SCENARIO eager|graph|native: starts the ranks as processes of its own and waits for them.
//   odd      ranks make different calls (CCLX_CHECK=global, or nobody notices)
//   outside  buffers that are not memory of the device (CCLX_CHECK=local)
//   absent   the last rank makes no call (a short CCLX_TIMEOUT_MS)
//   aborted  rank 0 aborts while it waits for the last rank
//   stuck    rank 0 aborts while its calls can't begin; eager, another thread's call on host buffers waits for that
//   second   the same, and the other thread's call is on a second queue while the first one records
//   killed   the last rank is killed in the middle of its calls
// With CCLX_ON_ERROR=log, or the first failure ends the process. FAILING_PATIENCE is how many seconds a failure may take to
// be noticed, 30 unless said.
#include "ranks.hpp"

#include <algorithm>
#include <atomic>
#include <cclx.h>
#include <functional>
#include <memory>
#include <optional>

namespace {

constexpr size_t count = 1500;
constexpr auto type = onecclFloat32;
using Submit = std::function<void(sycl::queue &)>;

bool contains(const std::string &text, const std::string &word) { return text.find(word) != std::string::npos; }

// What a rank submits: as it is, or recorded once and replayed.
class Work {
  public:
    Work(Rank &rank, const std::string &how, const Submit &submit) : queue(rank.current), submit(submit) {
        if (how == "eager")
            return;
        Graph graph = graph_on(queue, how == "native");
        graph.begin_recording(queue);
        submit(queue);
        graph.end_recording();
        executable.emplace(graph.finalize());
    }

    bool recorded() const { return executable.has_value(); }
    void enqueue() { executable ? void(queue.ext_oneapi_graph(*executable)) : submit(queue); }

  private:
    sycl::queue queue;
    Submit submit;
    std::optional<Executable> executable;
};

// Three collectives, the second on another queue, each fed by the one before.
struct Turn {
    Memory<float> work, gathered, scattered;
    Rank &rank;

    explicit Turn(Rank &rank) : work(rank, count), gathered(rank, count * size_t(rank.ranks)), scattered(rank, count), rank(rank) {}

    void submit(sycl::queue &queue) {
        CHECK(onecclAllReduce(work.at, work.at, count, type, onecclSum, rank.comm, &queue));
        auto &other = rank.fork();
        CHECK(onecclAllGather(work.at, gathered.at, count, type, rank.comm, &other));
        rank.join(other);
        CHECK(onecclReduceScatter(gathered.at, scattered.at, count, type, onecclSum, rank.comm, &queue));
    }

    void give(int call) {
        const auto given = values(count, [&](size_t i) { return value(rank.rank, call, i); });
        const auto wrong = values(count * size_t(rank.ranks), [&](size_t i) { return value(rank.rank + 1, call + 1, i); });
        work.put(rank.current, given);
        gathered.put(rank.current, wrong);
        const std::vector<float> also(wrong.begin(), wrong.begin() + count);
        scattered.put(rank.current, also);
        rank.current.wait();
    }

    void right(int call, const std::string &what) {
        // The gathered pieces are alike, so that their sum over the ranks is a multiple.
        same(rank, scattered.get(), values(count, [&](size_t i) { return float(rank.ranks) * sum(rank, call, i); }), what);
    }

    bool gave_up() {
        const auto got = scattered.get();
        return std::all_of(got.begin(), got.end(), [](float one) {
            uint32_t bits = 0;
            std::memcpy(&bits, &one, sizeof bits);
            return bits == UINT32_MAX;
        });
    }
};

// Waits until `done`, at most so long.
bool comes(int seconds, const std::function<bool()> &done) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    while (!done()) {
        if (std::chrono::steady_clock::now() > until)
            return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
}

void settle(Rank &rank) {
    // Whatever hangs meets the alarm.
    rank.current.wait_and_throw();
    for (auto &queue : rank.pool)
        queue.wait_and_throw();
}

// The communicator has failed, or does so soon, and says why with this word.
void failed(Rank &rank, const std::string &word) {
    auto *error_of = OURS(onecclCommGetAsyncError);
    const char *patience = std::getenv("FAILING_PATIENCE");
    if (!comes(patience ? std::atoi(patience) : 30, [&] { return error_of(rank.comm) != onecclSuccess; }))
        fail("rank " + std::to_string(rank.rank) + ": nobody noticed, not in words of " + word);
    const std::string text = onecclGetLastError(rank.comm);
    if (!contains(text, word))
        fail("rank " + std::to_string(rank.rank) + " says " + text + ", not " + word);
    if (rank.rank == 0)
        std::fprintf(stderr, "%s\n", text.c_str());
}

// Whatever is called now is refused with that word and leaves the queue empty, and a recording too.
void takes_no_more(Rank &rank, const std::string &word) {
    Memory<float> memory(rank, count);
    const auto before = values(count, [&](size_t i) { return value(rank.rank, 77, i); });
    memory.put(rank.current, before);
    rank.current.wait();
    const auto refused = [&](onecclResult_t code, const char *call) {
        const std::string text = onecclGetLastError(nullptr);
        if (code == onecclSuccess || !contains(text, word))
            fail(std::string(call) + " on a failed communicator: code " + std::to_string(code) + ", " + text + ", not " + word);
    };
    const auto all = [&] {
        auto *comm = rank.comm;
        auto *queue = &rank.current;
        refused(onecclAllReduce(memory.at, memory.at, count, type, onecclSum, comm, queue), "all_reduce");
        refused(onecclBroadcast(memory.at, memory.at, count, type, 0, comm, queue), "broadcast");
        refused(onecclRecv(memory.at, count, type, (rank.rank + 1) % rank.ranks, comm, queue), "receive");
        CHECK(onecclGroupStart());
        onecclAllReduce(memory.at, memory.at, count, type, onecclSum, comm, queue);
        refused(onecclGroupEnd(), "a group");
    };
    all();
    if (!rank.current.ext_oneapi_empty())
        fail("a refused call left something on the queue");
    Graph graph(rank.current.get_context(), rank.device);
    graph.begin_recording(rank.current);
    all();
    graph.end_recording();
    if (!graph.get_nodes().empty())
        fail("a refused call left something in a graph");
    same(rank, memory.get(), before, "what a refused call was given");
}

// The ranks that are left make a new communicator and use it on the same queues, eager and recorded.
void starts_anew(const Rank &old, int ranks, const std::string &how) {
    Rank rank = old;
    rank.ranks = ranks;
    rank.comm = communicator(rank, 0, "again", true);
    {
        Turn turn(rank);
        const Submit submit = [&](sycl::queue &queue) { turn.submit(queue); };
        for (const std::string &kind : {std::string("eager"), how}) {
            Work work(rank, kind, submit);
            for (int call = 40; call < 43; ++call) {
                turn.give(call);
                work.enqueue();
                turn.right(call, "anew, " + kind);
            }
        }
    }
    meet(rank, "anew");
    CHECK(onecclCommDestroy(rank.comm));
}

// What is left of a failed communicator whose work gave up.
void aftermath(Rank &rank, Turn &turn, Work &work, const std::string &word, const std::string &sticky, int left, const std::string &how) {
    settle(rank);
    failed(rank, word);
    if (!turn.gave_up())
        fail("rank " + std::to_string(rank.rank) + ": the output of a call that failed is not 0xFF");
    takes_no_more(rank, sticky);
    const auto replay = [&](const std::string &when) {
        turn.give(50);
        work.enqueue();
        settle(rank);
        if (!turn.gave_up())
            fail("a replay " + when + " has an output that is not 0xFF");
    };
    if (work.recorded())
        replay("after the failure");
    starts_anew(rank, left, how);
    CHECK(onecclCommDestroy(rank.comm));
    if (work.recorded())
        replay("after the communicator's end");
}

// Turns that go well.
void warm_up(Rank &rank, Turn &turn, Work &work) {
    for (int call = 1; call < 4; ++call) {
        turn.give(call);
        work.enqueue();
        turn.right(call, "turn " + std::to_string(call));
    }
    meet(rank, "warm");
}

void absent(Rank &rank, const std::string &how) {
    const int last = rank.ranks - 1;
    Turn turn(rank);
    Work work(rank, how, [&](sycl::queue &queue) { turn.submit(queue); });
    warm_up(rank, turn, work);
    turn.give(4);
    if (rank.rank == last) {
        failed(rank, "has not entered");
        // Late, its calls are refused or give up.
        if (work.recorded())
            work.enqueue();
        else
            turn.rank.current.memset(turn.scattered.at, 0xff, count * sizeof(float));
    } else {
        work.enqueue();
    }
    aftermath(rank, turn, work, "rank " + std::to_string(last) + " has not entered", "has not entered", rank.ranks, how);
}

// Only who receives waits, and is told where the sender is.
void unsent(Rank &rank, const std::string &how) {
    const int last = rank.ranks - 1;
    Memory<float> memory(rank, count);
    Work work(rank, how, [&](sycl::queue &queue) {
        if (rank.rank == 0)
            CHECK(onecclRecv(memory.at, count, type, last, rank.comm, &queue));
    });
    const auto before = values(count, [&](size_t i) { return value(rank.rank, 0, i); });
    memory.put(rank.current, before);
    rank.current.wait();
    work.enqueue();
    settle(rank);
    failed(rank, "rank " + std::to_string(last) + " is in no call");
    takes_no_more(rank, "is in no call");
    meet(rank, "unsent");
    CHECK(onecclCommDestroy(rank.comm));
}

void aborted(Rank &rank, const std::string &how) {
    auto *synchronize = OURS(cclxStreamSynchronize);
    cclxStream_t stream = nullptr;
    if (OURS(cclxStreamFromQueue)(rank.comm, &rank.current, &stream) != 0)
        fail("cclxStreamFromQueue");
    Turn turn(rank);
    Work work(rank, how, [&](sycl::queue &queue) { turn.submit(queue); });
    warm_up(rank, turn, work);
    turn.give(4);
    const std::string word = rank.rank == 0 ? "was aborted" : "onecclCommAbort was called";
    if (rank.rank == rank.ranks - 1) {
        failed(rank, word);
        rank.current.memset(turn.scattered.at, 0xff, count * sizeof(float));
    } else {
        work.enqueue();
    }
    if (rank.rank == 0) {
        // It waits for the last rank, and another thread of its own ends that.
        if (synchronize(stream, 300) != onecclInProgress)
            fail("a call is over that the last rank has not made");
        auto *abort = OURS(onecclCommAbort);
        std::thread other([&] { check(abort(rank.comm), "onecclCommAbort"); });
        settle(rank);
        other.join();
        if (OURS(onecclCommGetAsyncError)(rank.comm) == onecclSuccess)
            fail("an aborted communicator has no error");
    } else {
        settle(rank);
        failed(rank, word);
    }
    if (!turn.gave_up())
        fail("the output of an aborted call is not 0xFF");
    takes_no_more(rank, word);
    if (OURS(cclxAllReduceAfter)(turn.work.at, turn.work.at, count, type, onecclSum, rank.comm, stream, 0, nullptr, nullptr) == 0)
        fail("a stream of an aborted communicator takes calls");
    if (synchronize(stream, 30000) != 0 || OURS(cclxStreamDestroy)(stream) != 0)
        fail("a stream of an aborted communicator can't end");
    if (work.recorded()) {
        turn.give(50);
        work.enqueue();
        settle(rank);
        if (!turn.gave_up())
            fail("a replay after the abort has an output that is not 0xFF");
    }
    starts_anew(rank, rank.ranks, how);
    CHECK(onecclCommDestroy(rank.comm));
}

// A call of another thread that the host holds back until the one before it has finished, as on a command list or behind a
// queue that records. It is to fail with the communicator, and to leave nothing behind.
class Behind {
  public:
    Behind(Rank &rank, bool second) : rank(rank), second(second), memory(rank, count), given(values(count, [](size_t i) { return value(5, 6, i); })) {
        memory.put(rank.pool[1], given);
        rank.pool[1].wait();
        thread = std::thread([this] {
            code = this->second ? onecclAllReduce(memory.at, memory.at, count, type, onecclSum, this->rank.comm, &this->rank.pool[0])
                                : onecclAllReduce(host, host + 1, 1, type, onecclSum, this->rank.comm, nullptr);
            text = onecclGetLastError(nullptr);
            over = true;
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        if (over)
            fail("a call doesn't wait for the one before it: code " + std::to_string(code) + ", " + text);
    }

    // Since then the communicator has been aborted.
    void fails(std::chrono::steady_clock::time_point since) {
        // If it doesn't, the alarm ends this.
        thread.join();
        if (std::chrono::steady_clock::now() - since > std::chrono::seconds(10))
            fail("a call that can't begin notices an abort too late");
        if (code == onecclSuccess || !contains(text, "onecclCommAbort was called"))
            fail("a call that can't begin has code " + std::to_string(code) + ", " + text);
        if (!rank.pool[0].ext_oneapi_empty() || host[1] != 0)
            fail("a call that was not made left something behind");
        std::vector<float> got(count);
        rank.pool[1].memcpy(got.data(), memory.at, count * sizeof(float)).wait();
        if (got != given)
            fail("a call that was not made wrote something");
    }

  private:
    Rank &rank;
    bool second;
    Memory<float> memory;
    std::vector<float> given;
    float host[2] = {1, 0};
    onecclResult_t code = onecclSuccess;
    std::string text;
    std::atomic<bool> over{false};
    std::thread thread;
};

// Rank 0 aborts while its call is behind work of its own that ends only after that. (One call: a barrier for what is behind
// that work has the runtime wait for it.)
void stuck(Rank &rank, const std::string &how, bool second) {
    Turn turn(rank);
    Work work(rank, how, [&](sycl::queue &queue) {
        CHECK(onecclReduceScatter(turn.gathered.at, turn.scattered.at, count, type, onecclSum, rank.comm, &queue));
    });
    turn.give(3);
    work.enqueue();
    settle(rank);
    meet(rank, "well");
    turn.give(4);
    std::atomic<bool> free{rank.rank != 0};
    rank.current.submit([&](sycl::handler &handler) {
        handler.host_task([&] {
            while (!free)
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
        });
    });
    work.enqueue();
    meet(rank, "in");
    if (rank.rank == 0) {
        Graph graph(rank.current.get_context(), rank.device);
        if (second)
            graph.begin_recording(rank.current);
        // What is recorded waits for nothing that runs, and nothing for that.
        std::optional<Behind> behind;
        if (!work.recorded())
            behind.emplace(rank, second);
        const auto since = std::chrono::steady_clock::now();
        check(OURS(onecclCommAbort)(rank.comm), "onecclCommAbort");
        const auto took = std::chrono::steady_clock::now() - since;
        if (behind)
            behind->fails(since);
        if (second)
            graph.end_recording();
        if (!graph.get_nodes().empty())
            fail("a graph has what nobody put there");
        for (int peer = 1; peer < rank.ranks; ++peer)
            from_store(rank, "told" + std::to_string(peer), 1);
        free = true;
        if (took > std::chrono::seconds(10))
            fail("onecclCommAbort waits for what is before its calls");
    }
    settle(rank);
    failed(rank, "onecclCommAbort was called");
    to_store(rank, "told" + std::to_string(rank.rank), "x");
    // Rank 0 comes when the others have given up, and may find all that it needs.
    const auto whole = values(count, [&](size_t i) {
        float total = 0;
        for (int peer = 0; peer < rank.ranks; ++peer)
            total += value(peer + 1, 5, size_t(rank.rank) * count + i);
        return total;
    });
    if (!turn.gave_up() && (rank.rank != 0 || turn.scattered.get() != whole)) {
        const auto got = turn.scattered.get();
        fail("rank " + std::to_string(rank.rank) + ": the output of an aborted call is not 0xFF but " + std::to_string(got[0]) +
             (got == whole ? ", whole" : ""));
    }
    takes_no_more(rank, rank.rank == 0 ? "was aborted" : "onecclCommAbort was called");
    starts_anew(rank, rank.ranks, how);
    CHECK(onecclCommDestroy(rank.comm));
}

void killed(Rank &rank, const std::string &how) {
    const int last = rank.ranks - 1;
    Turn turn(rank);
    Work work(rank, how, [&](sycl::queue &queue) { turn.submit(queue); });
    warm_up(rank, turn, work);
    turn.give(4);
    // Several deep, as a framework that doesn't wait has it; the last rank makes some of these. A graph that is in flight is
    // not replayed before it has finished: the runtime may have the host wait for that.
    const int made = rank.rank == last ? 2 : work.recorded() ? 3 : 5;
    for (int i = 0; i < made; ++i)
        work.enqueue();
    to_store(rank, "deep" + std::to_string(rank.rank), "x");
    if (rank.rank == last) {
        for (int peer = 0; peer < last; ++peer)
            from_store(rank, "deep" + std::to_string(peer), 1);
        raise(SIGKILL);
    }
    for (int i = made; work.recorded() && i < 5; ++i)
        work.enqueue();
    const std::string word = "rank " + std::to_string(last) + " is gone";
    aftermath(rank, turn, work, word, word, rank.ranks - 1, how);
}

// The fourth call is another one on rank 1.
void odd(Rank &rank, const std::string &how, const std::string &key, const Submit &usual, const Submit &other, const std::string &word) {
    rank.comm = communicator(rank, 0, key, true);
    Work alike(rank, how, usual), unlike(rank, how, other);
    for (int i = 0; i < 3; ++i)
        alike.enqueue();
    settle(rank);
    (rank.rank == 1 ? unlike : alike).enqueue();
    settle(rank);
    if (key == "finalize") {
        // Asked before anything else, it waits until the ranks know which of them it was.
        const auto code = onecclCommFinalize(rank.comm);
        const std::string text = onecclGetLastError(nullptr);
        if (code != onecclInvalidUsage || !contains(text, word))
            fail("finalize of a rank that disagrees: code " + std::to_string(code) + ", " + text + ", not " + word);
    } else {
        failed(rank, word);
        takes_no_more(rank, word);
    }
    meet(rank, key + "-end");
    CHECK(onecclCommDestroy(rank.comm));
}

void odd_ones(Rank &rank, const std::string &how) {
    Memory<float> one(rank, count), all(rank, count * size_t(rank.ranks));
    const auto reduce = [&](size_t elements) -> Submit {
        return [&, elements](sycl::queue &queue) {
            CHECK(onecclAllReduce(one.at, one.at, elements, type, onecclSum, rank.comm, &queue));
        };
    };
    const Submit gather = [&](sycl::queue &queue) { CHECK(onecclAllGather(one.at, all.at, 100, type, rank.comm, &queue)); };
    // Unchecked, these finish as if nothing were wrong.
    odd(rank, how, "count", reduce(1000), reduce(990), "ranks disagree on call #4: rank 1 made it with 990 float32 sum");
    odd(rank, how, "finalize", reduce(1000), reduce(990), "ranks disagree on call #4: rank 1 made it with 990 float32 sum");
    odd(rank, how, "kind", gather, reduce(100), "ranks disagree on call #4: rank 1 made all_reduce with 100 float32 sum");
    starts_anew(rank, rank.ranks, how);
}

// Refused on this rank alone, before the others have anything to do with it.
void outside(Rank &rank, const std::string &how) {
    Turn turn(rank);
    std::vector<float> host(count);
    const auto refusals = [&](sycl::queue &queue) {
        const auto refused = [&](void *send, void *recv, const char *word) {
            const auto code = onecclAllReduce(send, recv, count, type, onecclSum, rank.comm, &queue);
            const std::string text = onecclGetLastError(nullptr);
            if (code != onecclInvalidArgument || !contains(text, word) || !contains(text, "CCLX_CHECK=local"))
                fail("a buffer outside: code " + std::to_string(code) + ", " + text + ", not " + word);
        };
        refused(host.data(), turn.work.at, "send buffer");
        const auto long_one = onecclAllReduce(turn.work.at, turn.work.at, size_t(1) << 30, type, onecclSum, rank.comm, &queue);
        if (long_one != onecclInvalidArgument || !contains(onecclGetLastError(nullptr), "passes the end of its allocation"))
            fail("a buffer that is too long");
        refused(turn.work.at, host.data(), "not memory of this device");
        if (onecclAllGather(host.data(), turn.gathered.at, count, type, rank.comm, &queue) != onecclInvalidArgument)
            fail("an all_gather from outside");
    };
    const Submit submit = [&](sycl::queue &queue) {
        if (rank.rank == 1)
            refusals(queue);
        turn.submit(queue);
    };
    refusals(rank.current);
    if (!rank.current.ext_oneapi_empty())
        fail("a refused call left something on the queue");
    Work work(rank, how, submit);
    warm_up(rank, turn, work);
    CHECK(onecclCommDestroy(rank.comm));
}

void of_rank(int number, int ranks, const std::string &store, const std::string &scenario, const std::string &how) {
    // Whatever hangs ends.
    alarm(100);
    Rank rank = rank_of(number, ranks, store, 3);
    if (scenario == "odd") {
        odd_ones(rank, how);
    } else {
        rank.comm = communicator(rank, 0, "id", true);
        if (scenario == "absent") {
            absent(rank, how);
            rank.comm = communicator(rank, 0, "unsent", true);
            unsent(rank, how);
        } else if (scenario == "aborted") {
            aborted(rank, how);
        } else if (scenario == "stuck") {
            stuck(rank, how, false);
        } else if (scenario == "second") {
            stuck(rank, how, true);
        } else if (scenario == "killed") {
            killed(rank, how);
        } else if (scenario == "outside") {
            outside(rank, how);
        } else {
            fail("no scenario " + scenario);
        }
    }
    settle(rank);
}

} // namespace

int main(int argc, char **argv) {
    try {
        if (argc == 7 && std::string(argv[1]) == "rank") {
            of_rank(std::atoi(argv[2]), std::atoi(argv[3]), argv[4], argv[5], argv[6]);
            return 0;
        }
        if (argc == 4) {
            const int dies = std::string(argv[2]) == "killed" ? std::atoi(argv[1]) - 1 : -1;
            const int bad = start(argv[1], {argv[2], argv[3]}, dies);
            if (bad == 0)
                std::printf("%s ranks, %s, %s: as it should fail\n", argv[1], argv[2], argv[3]);
            return bad != 0;
        }
    } catch (const std::exception &error) {
        fail(error.what());
    }
    fail("usage: failing RANKS odd|outside|absent|aborted|stuck|second|killed eager|graph|native");
}
