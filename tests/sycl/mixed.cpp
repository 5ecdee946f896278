// Calls of two communicators on one queue in every order that a program may make them in, with what makes a call another one
// than the one before it: type, operation, size, in place or not, memory that was freed and is another kind's now, a group,
// a recording, a replay, a call that is refused, one on buffers of the host, one by another thread, a queue or a communicator
// that has gone while another may lie where it lay. Each element of each result is compared.
//
// mixed SEED starts itself as rank 1. The second half uses a second queue as well. MIXED_NATIVE: the driver records some of the
// graphs.
#include "pair.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <unistd.h>

namespace {

constexpr int steps = 300;

// In device or host memory.
struct Buffer {
    sycl::queue queue;
    char *at;
    Buffer(const sycl::queue &queue, size_t bytes, bool on_device)
        : queue(queue), at(on_device ? sycl::malloc_device<char>(bytes, queue) : sycl::malloc_host<char>(bytes, queue)) {
        if (!at)
            fail("no memory");
    }
    Buffer(const Buffer &) = delete;
    ~Buffer() { sycl::free(at, queue); }
};

// Elements of 4 bytes as both types have them.
struct Call {
    onecclComm_t comm;
    bool integer;
    onecclRedOp_t op;
    size_t count;
    bool in_place;
    int number;

    int32_t element(int rank, size_t i) const { return int32_t((31 * size_t(rank + 1) * (i % 97 + 1) + 17 * size_t(number) + 5 * i) % 1999) - 1000; }
    int32_t reduced(size_t i) const {
        const int32_t a = element(0, i), b = element(1, i);
        return op == onecclSum ? a + b : op == onecclMax ? std::max(a, b) : std::min(a, b);
    }
    uint32_t bits(int32_t value) const {
        uint32_t word;
        const auto real = float(value);
        std::memcpy(&word, integer ? static_cast<const void *>(&value) : static_cast<const void *>(&real), sizeof word);
        return word;
    }
    std::vector<uint32_t> input(int rank) const {
        std::vector<uint32_t> words(count);
        for (size_t i = 0; i < count; ++i)
            words[i] = bits(element(rank, i));
        return words;
    }
    std::vector<uint32_t> output() const {
        std::vector<uint32_t> words(count);
        for (size_t i = 0; i < count; ++i)
            words[i] = bits(reduced(i));
        return words;
    }
    onecclDataType_t type() const { return integer ? onecclInt32 : onecclFloat32; }
};

// A call that is under way, and what it has to come to.
struct Pending {
    Call call;
    std::unique_ptr<Buffer> send, recv;
    std::string what;
    std::vector<uint32_t> given;
    void *from() const { return send->at; }
    void *to() const { return call.in_place ? send->at : recv->at; }
};

void compare(const Rank &rank, const Pending &pending, sycl::queue &queue, const std::string &when) {
    const auto wanted = pending.call.output();
    std::vector<uint32_t> got(wanted.size());
    queue.memcpy(got.data(), pending.to(), got.size() * sizeof got[0]).wait();
    for (size_t i = 0; i < got.size(); ++i) {
        if (got[i] != wanted[i])
            fail("rank " + std::to_string(rank.rank) + ", " + when + ", " + pending.what + ": element " + std::to_string(i) + " of " +
                 std::to_string(got.size()) + " is " + std::to_string(got[i]) + ", not " + std::to_string(wanted[i]));
    }
}

void run(Rank &rank, unsigned seed) {
    std::mt19937 random(seed);
    const auto pick = [&](size_t n) { return size_t(random() % n); };
    auto queue = std::make_unique<sycl::queue>(rank.device, sycl::property::queue::in_order());
    sycl::queue second(rank.device, sycl::property::queue::in_order());
    onecclComm_t comms[2] = {rank.comm, nullptr};
    CHECK(onecclCommSplit(rank.comm, 0, rank.rank, &comms[1], nullptr));
    std::vector<Pending> pending;
    std::optional<Executable> graph;
    std::vector<Pending> recorded;
    bool native = false;
    const bool may_be_native = std::getenv("MIXED_NATIVE") != nullptr;
    const size_t counts[] = {1, 7, 1000, 4096, 70000};
    int number = 0;
    size_t replays = 0, refusals = 0, goners = 0;

    const auto flush = [&](const std::string &when) {
        queue->wait_and_throw();
        second.wait_and_throw();
        for (const auto &one : pending)
            compare(rank, one, rank.current, when);
        pending.clear();
    };
    Call last{};
    const auto prepare = [&](sycl::queue &on, bool alike) {
        Call call{comms[pick(4) == 0], pick(4) == 0, pick(4) ? onecclSum : pick(2) ? onecclMax : onecclMin, counts[pick(5)], pick(2) == 0, 0};
        if (alike && last.comm) {
            // One thing is different, or nothing.
            const Call other = call;
            call = last;
            switch (pick(7)) {
            case 0: call.integer = other.integer; break;
            case 1: call.op = other.op; break;
            case 2: call.count = other.count; break;
            case 3: call.in_place = other.in_place; break;
            case 4: call.comm = other.comm; break;
            default: break;
            }
        }
        call.number = number++;
        last = call;
        const size_t bytes = call.count * 4;
        Pending one{call, std::make_unique<Buffer>(rank.current, bytes, pick(2)), std::make_unique<Buffer>(rank.current, bytes, pick(2)),
                    "call " + std::to_string(call.number), call.input(rank.rank)};
        // A producer that takes its time, so that whoever doesn't wait for it is early.
        if (pick(8) == 0 && call.number % 2 == rank.rank)
            on.submit([](sycl::handler &handler) {
                handler.host_task([] { std::this_thread::sleep_for(std::chrono::milliseconds(10)); });
            });
        on.memcpy(one.from(), one.given.data(), bytes);
        // The values stay until the queue is done.
        return one;
    };
    const auto submit = [&](sycl::queue &on, const Pending &one) {
        CHECK(onecclAllReduce(one.from(), one.to(), one.call.count, one.call.type(), one.call.op, one.call.comm, &on));
    };

    for (int step = 0; step < steps; ++step) {
        auto &on = step > steps / 2 && pick(3) == 0 ? second : *queue;
        const size_t what = pick(20);
        switch (what) {
        default: // A row of calls.
            for (size_t i = pick(6) + 1; i > 0; --i) {
                pending.push_back(prepare(on, pick(3) != 0));
                submit(on, pending.back());
            }
            break;
        case 10: { // Two threads' at once: whichever meets which, the sums are alike.
            std::vector<Pending> theirs[2];
            for (auto &own : theirs) {
                for (int i = 0; i < 8; ++i) {
                    own.push_back(prepare(on, false));
                    auto &one = own.back();
                    on.wait();
                    one.call = theirs[0][0].call;
                    one.given = one.call.input(rank.rank);
                    const size_t bytes = one.given.size() * 4;
                    one.send = std::make_unique<Buffer>(rank.current, bytes, true);
                    one.recv = std::make_unique<Buffer>(rank.current, bytes, true);
                    on.memcpy(one.from(), one.given.data(), bytes);
                }
            }
            const auto all = [&](const std::vector<Pending> &own) {
                for (const auto &one : own)
                    submit(on, one);
            };
            std::thread other([&] { all(theirs[1]); });
            all(theirs[0]);
            other.join();
            for (auto &own : theirs) {
                for (auto &one : own)
                    pending.push_back(std::move(one));
            }
            break;
        }
        case 11: { // A group.
            std::vector<Pending> two;
            for (int i = 0; i < 2; ++i)
                two.push_back(prepare(on, true));
            CHECK(onecclGroupStart());
            for (const auto &one : two)
                submit(on, one);
            CHECK(onecclGroupEnd());
            for (auto &one : two)
                pending.push_back(std::move(one));
            break;
        }
        case 12: { // Refused, for what it is itself.
            const auto like = prepare(on, true);
            const auto &call = like.call;
            const int how = int(pick(4));
            char *at = static_cast<char *>(like.from());
            const auto code = how == 0   ? onecclAllReduce(at + 1, at + 1, call.count, call.type(), call.op, call.comm, &on)
                              : how == 1 ? onecclAllReduce(at, nullptr, call.count, call.type(), call.op, call.comm, &on)
                              : how == 2 ? onecclAllReduce(at, at, call.count, onecclDataType_t(77), call.op, call.comm, &on)
                                         : onecclAllReduce(at, at, ~size_t(0) / 2, call.type(), call.op, call.comm, &on);
            if (code == onecclSuccess)
                fail("a call that can't be passes");
            ++refusals;
            // Then one that can be.
            pending.push_back(prepare(on, true));
            submit(on, pending.back());
            flush("after a refusal");
            break;
        }
        case 13: { // On buffers of the host.
            Call call{comms[pick(2)], pick(2) == 0, onecclSum, counts[pick(3)], true, number++};
            auto words = call.input(rank.rank);
            CHECK(onecclAllReduce(words.data(), words.data(), call.count, call.type(), call.op, call.comm, nullptr));
            if (words != call.output())
                fail("on the host");
            break;
        }
        case 14: { // Recorded, and replayed from now on.
            flush("before a recording");
            graph.reset();
            recorded.clear();
            native = may_be_native && pick(2);
            for (int i = 0; i < 3; ++i)
                recorded.push_back(prepare(*queue, true));
            queue->wait();
            Graph made = graph_on(*queue, native);
            made.begin_recording(*queue);
            for (const auto &one : recorded)
                submit(*queue, one);
            made.end_recording();
            // Between recording and first replay.
            pending.push_back(prepare(*queue, true));
            submit(*queue, pending.back());
            graph.emplace(made.finalize());
            break;
        }
        case 15:
        case 16:
            if (!graph)
                break;
            for (auto &one : recorded) {
                one.call.number = number++;
                one.given = one.call.input(rank.rank);
                queue->memcpy(one.from(), one.given.data(), one.given.size() * 4);
            }
            // What is on the other queue has no order with a replay, nor has for the runtime a host task with the driver's graph.
            if (step > steps / 2 || native)
                flush("before a replay");
            queue->ext_oneapi_graph(*graph);
            pending.push_back(prepare(*queue, true));
            submit(*queue, pending.back());
            queue->wait();
            for (const auto &one : recorded)
                compare(rank, one, rank.current, "a replay");
            ++replays;
            break;
        case 17: // A queue goes, and with it what is on it; a new one may lie where it lay.
            if (pick(2))
                flush("before a queue goes");
            {
                const auto *there = queue.get();
                graph.reset();
                auto done = queue->ext_oneapi_submit_barrier();
                queue.reset();
                queue = std::make_unique<sycl::queue>(rank.device, sycl::property::queue::in_order());
                queue->ext_oneapi_submit_barrier({done});
                goners += queue.get() == there;
            }
            break;
        case 18: // A communicator goes, with calls under way.
            graph.reset();
            recorded.clear();
            CHECK(onecclCommDestroy(comms[1]));
            if (pick(2))
                CHECK(onecclCommSplit(rank.comm, 0, rank.rank, &comms[1], nullptr));
            else {
                flush("before another communicator");
                CHECK(onecclCommSplit(rank.comm, 0, 1 - rank.rank, &comms[1], nullptr));
            }
            last = {};
            break;
        case 19: // Another thread's, one after the other.
            std::thread([&] {
                for (int i = 0; i < 3; ++i) {
                    pending.push_back(prepare(on, true));
                    submit(on, pending.back());
                }
            }).join();
            break;
        }
        if (pick(4) == 0)
            flush("step " + std::to_string(step) + ", " + std::to_string(what));
    }
    flush("at the end");
    CHECK(onecclCommDestroy(comms[1]));
    if (rank.rank == 0)
        std::printf("%d calls, %zu replays, %zu refusals, %zu queues in the place of others\n", number, replays, refusals, goners);
}

void of_rank(int number, const onecclUniqueId &id, const std::string &seed) {
    // Whatever hangs ends.
    alarm(100);
    const auto device = sycl::device::get_devices(sycl::info::device_type::gpu)[size_t(number)];
    Rank rank{number, 2, device, sycl::queue(device, sycl::property::queue::in_order()), {}, nullptr, 0, {}};
    CHECK(onecclSetDevice(uint32_t(number)));
    CHECK(onecclCommInitRank(&rank.comm, 2, id, number));
    run(rank, unsigned(std::atoi(seed.c_str())));
    CHECK(onecclCommDestroy(rank.comm));
    if (number == 0)
        std::printf("%s: all as computed\n", seed.c_str());
}

} // namespace

int main(int argc, char **argv) { return run_pair(argc, argv, "mixed SEED", nullptr, of_rank); }
