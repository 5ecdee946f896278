// graphs [native]: work recorded from queues and replayed, by the runtime's own recording or, where it exists, by the
// driver's (native). Other words name parts to run; `reordered` has the driver run what has no order in another one, and
// `dropped` has it forget the edges that events make, which must show. RELEASE is the major version of the library that it is built for.
#include "kernels.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <unistd.h>

namespace exp = sycl::ext::oneapi::experimental;

namespace {
constexpr size_t N = 4096;
bool native = false;

uint32_t pattern(size_t i, uint32_t seed) { return uint32_t(i) * 2654435761u + seed * 40503u; }

using modifiable = exp::command_graph<exp::graph_state::modifiable>;
using executable = exp::command_graph<exp::graph_state::executable>;

modifiable new_graph(const sycl::queue &queue) {
#if RELEASE >= 9
    if (native)
        return {queue.get_context(), queue.get_device(), {exp::property::graph::enable_native_recording{}}};
#endif
    return {queue.get_context(), queue.get_device()};
}

struct Buffers {
    sycl::queue &queue;
    uint32_t *in, *a, *b, *out;
    explicit Buffers(sycl::queue &q) : queue(q) {
        for (uint32_t **buffer : {&in, &a, &b, &out}) *buffer = sycl::malloc_device<uint32_t>(N, q);
    }
    ~Buffers() {
        for (uint32_t *buffer : {in, a, b, out}) sycl::free(buffer, queue);
    }
};

// Fills the input, runs `work`, which makes the output of it, and compares.
template <typename Work, typename Expected>
void turn(sycl::queue &queue, Buffers &x, uint32_t seed, Work work, Expected expected) {
    std::vector<uint32_t> data(N), back(N);
    for (size_t i = 0; i < N; i++) data[i] = pattern(i, seed);
    queue.memcpy(x.in, data.data(), N * 4);
    work();
    queue.memcpy(back.data(), x.out, N * 4).wait();
    for (size_t i = 0; i < N; i++)
        if (back[i] != expected(data[i]))
            fail(__FILE__, __LINE__, "turn " + std::to_string(seed) + ", element " + std::to_string(i) + ": " +
                                         std::to_string(back[i]) + " is not " + std::to_string(expected(data[i])));
}

// memset -> affine -> copy -> add on one queue.
void chain(sycl::queue &queue, const Kernels &kernels, Buffers &x) {
    queue.memset(x.b, 1, N * 4);
    launch(queue, kernels.affine(), N, {}, x.a, x.in, 3u, 5u);
    queue.memcpy(x.out, x.a, N * 4);
    launch(queue, kernels.add(), N, {}, x.out, x.out, x.b);
}

void one_queue(sycl::queue &queue, const Kernels &kernels) {
    Buffers x{queue};
    auto graph = new_graph(queue);
    graph.begin_recording(queue);
    CHECK(queue.ext_oneapi_get_state() == exp::queue_state::recording);
    chain(queue, kernels, x);
    graph.end_recording(queue);
    CHECK(queue.ext_oneapi_get_state() == exp::queue_state::executing);
    if (!native) {
        auto drawing = std::filesystem::temp_directory_path() / ("chain-" + std::to_string(getpid()) + ".dot");
        graph.print_graph(drawing.string(), true);
        std::stringstream text;
        text << std::ifstream(drawing).rdbuf();
        std::filesystem::remove(drawing);
        CHECK(text.str().find("affine") != std::string::npos && text.str().find("->") != std::string::npos);
    }
    auto ready = graph.finalize();
    auto expected = [](uint32_t value) { return value * 3 + 5 + 0x01010101; };
    // Replays with changed inputs, as frameworks test them; then replays between eager calls.
    for (uint32_t seed = 0; seed < 5; seed++) turn(queue, x, seed, [&] { queue.ext_oneapi_graph(ready); }, expected);
    for (uint32_t seed = 0; seed < 200; seed++) {
        if (seed % 2) turn(queue, x, seed, [&] { chain(queue, kernels, x); }, expected);
        else turn(queue, x, seed, [&] { queue.ext_oneapi_graph(ready); }, expected);
    }
    // Several at once, behind each other: the last input wins.
    turn(queue, x, 7, [&] { for (int i = 0; i < 10; i++) queue.ext_oneapi_graph(ready); }, expected);
}

// The second queue joins the recording through a barrier, and the first one waits for it through another.
void two_queues(sycl::queue &queue, const Kernels &kernels) {
    sycl::queue second{queue.get_context(), queue.get_device(), sycl::property::queue::in_order()};
    Buffers x{queue};
    auto ordered = [&] {
        launch(queue, kernels.affine(), N, {}, x.a, x.in, 3u, 5u);
        auto fork = queue.ext_oneapi_submit_barrier();
        second.ext_oneapi_submit_barrier({fork});
        launch(second, kernels.affine(), N, {}, x.b, x.a, 7u, 1u);
        auto join = second.ext_oneapi_submit_barrier();
        queue.ext_oneapi_submit_barrier({join});
        launch(queue, kernels.add(), N, {}, x.out, x.a, x.b);
    };
    auto graph = new_graph(queue);
    graph.begin_recording(queue);
    ordered();
    if (!native) CHECK(second.ext_oneapi_get_state() == exp::queue_state::recording);
    graph.end_recording();
    auto ready = graph.finalize();
    auto expected = [](uint32_t value) { return (value * 3 + 5) + (value * 3 + 5) * 7 + 1; };
    for (uint32_t seed = 0; seed < 5; seed++) turn(queue, x, seed, [&] { queue.ext_oneapi_graph(ready); }, expected);
    for (uint32_t seed = 0; seed < 200; seed++) {
        if (seed % 2) turn(queue, x, seed, ordered, expected);
        else turn(queue, x, seed, [&] { queue.ext_oneapi_graph(ready); }, expected);
    }
    // Replayed on the other queue as well.
    turn(second, x, 3, [&] { second.ext_oneapi_graph(ready); }, expected);
}

// Work of the host between device work.
void host_task(sycl::queue &queue, const Kernels &kernels) {
    auto *counter = sycl::malloc_shared<uint32_t>(64, queue);
    Buffers x{queue};
    auto graph = new_graph(queue);
    graph.begin_recording(queue);
    launch(queue, kernels.affine(), N, {}, x.out, x.in, 2u, 1u);
    queue.submit([&](sycl::handler &handler) { handler.host_task([=] { counter[0]++; }); });
    launch(queue, kernels.affine(), 64, {}, counter, counter, 1u, 1u);
    graph.end_recording(queue);
    auto ready = graph.finalize();
    counter[0] = 0;
    for (uint32_t seed = 0; seed < 5; seed++)
        turn(queue, x, seed, [&] { queue.ext_oneapi_graph(ready).wait(); }, [](uint32_t value) { return value * 2 + 1; });
    CHECK(counter[0] == 10);
    sycl::free(counter, queue);
}

// A graph within a recording.
void nested(sycl::queue &queue, const Kernels &kernels) {
    Buffers x{queue};
    auto inner = new_graph(queue);
    inner.begin_recording(queue);
    launch(queue, kernels.affine(), N, {}, x.a, x.a, 3u, 5u);
    inner.end_recording(queue);
    auto inner_ready = inner.finalize();
    auto outer = new_graph(queue);
    outer.begin_recording(queue);
    queue.memcpy(x.a, x.in, N * 4);
    queue.ext_oneapi_graph(inner_ready);
    queue.ext_oneapi_graph(inner_ready);
    launch(queue, kernels.affine(), N, {}, x.out, x.a, 1u, 9u);
    outer.end_recording(queue);
    auto ready = outer.finalize();
    auto expected = [](uint32_t value) { return (value * 3 + 5) * 3 + 5 + 9; };
    for (uint32_t seed = 0; seed < 20; seed++) turn(queue, x, seed, [&] { queue.ext_oneapi_graph(ready); }, expected);
}

// A graph of nodes and edges, and one within another.
void explicit_nodes(sycl::queue &queue, const Kernels &kernels) {
    Buffers x{queue};
    auto kernel = [&](const sycl::kernel &code, auto... arguments) {
        return [=](sycl::handler &handler) {
            handler.set_args(arguments...);
            handler.parallel_for(sycl::nd_range<1>{N, 64}, code);
        };
    };
    auto inner = new_graph(queue);
    auto start = inner.add(kernel(kernels.affine(), x.a, x.in, 3u, 5u));
    auto left = inner.add(kernel(kernels.affine(), x.b, x.a, 7u, 1u), {exp::property::node::depends_on(start)});
    auto end = inner.add(kernel(kernels.add(), x.out, x.a, x.b), {exp::property::node::depends_on(left)});
    (void)end;
    auto inner_ready = inner.finalize();
    auto outer = new_graph(queue);
    auto first = outer.add([&](sycl::handler &handler) { handler.ext_oneapi_graph(inner_ready); });
    outer.add(kernel(kernels.affine(), x.out, x.out, 1u, 9u), {exp::property::node::depends_on(first)});
    auto ready = outer.finalize();
    auto expected = [](uint32_t value) { return (value * 3 + 5) + (value * 3 + 5) * 7 + 1 + 9; };
    for (uint32_t seed = 0; seed < 20; seed++) turn(queue, x, seed, [&] { queue.ext_oneapi_graph(ready); }, expected);
}

// Arguments and sizes of a finalized graph's kernels change.
void updated(sycl::queue &queue, const Kernels &kernels) {
    Buffers x{queue};
    auto graph = new_graph(queue);
#if RELEASE >= 9
    exp::dynamic_parameter<uint32_t> factor{3u};
    exp::dynamic_parameter<uint32_t *> source{x.in};
#else
    exp::dynamic_parameter<uint32_t> factor{graph, 3u};
    exp::dynamic_parameter<uint32_t *> source{graph, x.in};
#endif
    auto node = graph.add([&](sycl::handler &handler) {
        handler.set_arg(0, x.out);
        handler.set_arg(1, source);
        handler.set_arg(2, factor);
        handler.set_arg(3, 1u);
        handler.parallel_for(sycl::nd_range<1>{N, 64}, kernels.affine());
    });
    auto ready = graph.finalize({exp::property::graph::updatable{}});
    auto replay = [&] { queue.ext_oneapi_graph(ready); };
    turn(queue, x, 1, replay, [](uint32_t value) { return value * 3 + 1; });
    factor.update(11u);
    ready.update(node);
    turn(queue, x, 2, replay, [](uint32_t value) { return value * 11 + 1; });
    queue.memset(x.a, 2, N * 4).wait();
    source.update(x.a);
    ready.update(node);
    turn(queue, x, 3, replay, [](uint32_t) { return 0x02020202u * 11 + 1; });
    // Half as many work-items: the other half of the output stays.
    node.update_nd_range(sycl::nd_range<1>{N / 2, 32});
    factor.update(1u);
    ready.update(node);
    queue.memset(x.out, 0, N * 4).wait();
    queue.ext_oneapi_graph(ready).wait();
    std::vector<uint32_t> back(N);
    queue.memcpy(back.data(), x.out, N * 4).wait();
    for (size_t i = 0; i < N; i++) CHECK(back[i] == (i < N / 2 ? 0x02020203u : 0));
}
// Another kernel takes a node's place.
void exchanged(sycl::queue &queue, const Kernels &kernels) {
    Buffers x{queue};
    auto graph = new_graph(queue);
    auto affine = [&](sycl::handler &handler) {
        handler.set_args(x.out, x.in, 5u, 2u);
        handler.parallel_for(sycl::nd_range<1>{N, 64}, kernels.affine());
    };
    auto add = [&](sycl::handler &handler) {
        handler.set_args(x.out, x.in, x.in);
        handler.parallel_for(sycl::nd_range<1>{N, 32}, kernels.add());
    };
    exp::dynamic_command_group group{graph, {affine, add}};
    auto node = graph.add(group);
    auto ready = graph.finalize({exp::property::graph::updatable{}});
    for (uint32_t seed = 0; seed < 6; seed++) {
        group.set_active_index(seed % 2);
        ready.update(node);
        auto expected = [=](uint32_t value) { return seed % 2 ? value + value : value * 5 + 2; };
        turn(queue, x, seed, [&] { queue.ext_oneapi_graph(ready); }, expected);
    }
}
} // namespace

int main(int count, char **arguments) {
    std::vector<std::string> words(arguments + 1, arguments + count);
    auto wants = [&](const char *word) {
        bool any = false;
        for (auto &given : words) any |= given != "native" && given != "reordered" && given != "dropped";
        for (auto &given : words) if (given == word) return true;
        return !any && std::string(word) != "native";
    };
    for (auto &word : words) native |= word == "native";
    sycl::device device = sycl::device::get_devices(sycl::info::device_type::gpu)[0];
    sycl::context context = device.get_platform().khr_get_default_context();
    sycl::queue queue{context, device, sycl::property::queue::in_order()};
    Kernels kernels{context, device};
    CHECK(device.has(sycl::aspect::ext_oneapi_limited_graph));
    for (auto &word : words) {
        if (word == "reordered" || word == "dropped") plant(device.get_platform(), REORDER, 0, 4711);
        if (word == "dropped") plant(device.get_platform(), DROP_EDGES, UINT64_MAX, 0);
    }
    if (wants("one")) one_queue(queue, kernels);
    if (wants("two")) two_queues(queue, kernels);
    if (wants("nested")) nested(queue, kernels);
    if (!native && wants("host")) host_task(queue, kernels);
    if (!native && wants("explicit")) explicit_nodes(queue, kernels);
    if (!native && wants("update")) {
        CHECK(device.has(sycl::aspect::ext_oneapi_graph));
        updated(queue, kernels);
        exchanged(queue, kernels);
    }
    std::puts("graphs: ok");
}
