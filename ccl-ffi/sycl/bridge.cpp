// The bridge to one release of the SYCL runtime: facts of queues, and our kernels submitted as SYCL kernels, so that the
// runtime's own order and graphs hold for them.
#include "bridge.h"

#include <sycl/backend.hpp>
#include <sycl/ext/oneapi/backend/level_zero.hpp>
#include <sycl/ext/oneapi/experimental/enqueue_functions.hpp>
#include <sycl/ext/oneapi/experimental/graph.hpp>
#include <sycl/ext/oneapi/experimental/raw_kernel_arg.hpp>
#include <sycl/sycl.hpp>

#include <dlfcn.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace experimental = sycl::ext::oneapi::experimental;
constexpr auto level_zero = sycl::backend::ext_oneapi_level_zero;
constexpr auto kept = sycl::ext::oneapi::level_zero::ownership::keep;
using Graph = experimental::command_graph<experimental::graph_state::modifiable>;

// The caller lays events into memory of its own and moves them by their bytes.
static_assert(sizeof(sycl::event) == sizeof(cclx_sycl_event) && alignof(sycl::event) <= alignof(cclx_sycl_event));

thread_local std::string failure;

// What a submission ends with that was not to be recorded.
struct Records {};

template <typename Body> int contained(Body &&body) noexcept {
    try {
        body();
        return 0;
    } catch (const Records &) {
        return CCLX_SYCL_RECORDS;
    } catch (const std::exception &error) {
        try {
            failure = error.what();
        } catch (...) {
        }
    } catch (...) {
        failure.clear();
    }
    return 1;
}

const char *error() { return failure.c_str(); }

// The graph that a submission is recorded for. The runtime exports this, but its headers hide it.
using GraphOf = std::shared_ptr<void> (*)(const sycl::handler *);
const GraphOf graph_of = reinterpret_cast<GraphOf>(dlsym(RTLD_DEFAULT, "_ZNK4sycl3_V17handler15getCommandGraphEv"));

struct Queue {
    sycl::queue queue;
    bool ask_submit;
    bool drop_events = false;
    // What is filled; its owner sees to it that this is over.
    void *filled = nullptr;
    // What it is recorded for.
    std::unique_ptr<Graph> graph;

    Queue(const sycl::queue &queue, bool ask_submit) : queue(queue), ask_submit(ask_submit) {}
    Queue(const Queue &) = delete;
    ~Queue() {
        try {
            if (filled)
                sycl::free(filled, queue);
        } catch (...) {
        }
        try {
            if (graph)
                graph->end_recording(queue);
        } catch (...) {
        }
    }
};

sycl::queue &queue_of(void *own) { return static_cast<Queue *>(own)->queue; }
const sycl::event &event_of(const cclx_sycl_event *event) { return *reinterpret_cast<const sycl::event *>(event); }

struct Known {
    sycl::device device;
    sycl::context context;
    // The same context as if it were of this device alone, for kernels. To make one allocates and frees memory, for which a
    // driver may wait until all that runs has ended: not while another rank of this process waits in a kernel.
    sycl::context alone;
};

// Never destroyed: what uses the handles has no order with the runtime's end.
const std::vector<Known> &known_devices() {
    static const auto *known = [] {
        auto made = std::make_unique<std::vector<Known>>();
        for (const auto &platform : sycl::platform::get_platforms()) {
            if (platform.get_backend() != level_zero)
                continue;
            const auto context = platform.khr_get_default_context();
            for (const auto &device : platform.get_devices(sycl::info::device_type::gpu))
                made->push_back({device, context, sycl::make_context<level_zero>({sycl::get_native<level_zero>(context), {device}, kept})});
        }
        return made.release();
    }();
    return *known;
}

int devices(uint32_t most, void **devices, void **contexts, uint32_t *count) {
    return contained([&] {
        const auto &known = known_devices();
        *count = static_cast<uint32_t>(known.size());
        for (uint32_t i = 0; i < *count && i < most; ++i) {
            devices[i] = sycl::get_native<level_zero>(known[i].device);
            contexts[i] = sycl::get_native<level_zero>(known[i].context);
        }
    });
}

// A queue is a shared pointer to what it is.
uintptr_t queue_key(const void *queue) { return *static_cast<const uintptr_t *>(queue); }

// A graph that the driver records.
std::unique_ptr<Graph> native_graph(const sycl::queue &queue) {
#if __LIBSYCL_MAJOR_VERSION >= 9
    const sycl::property_list native = {experimental::property::graph::enable_native_recording()};
    return std::make_unique<Graph>(queue.get_context(), queue.get_device(), native);
#else
    (void)queue;
    throw std::runtime_error("this release has no native recording");
#endif
}

// Since 2026 a queue's state is also the driver's to tell. An adapter that doesn't have the driver record formats a text
// about that each time that it is asked: several thousand instructions.
bool ask_submit(const sycl::queue &queue) {
#if __LIBSYCL_MAJOR_VERSION >= 9
    if (!graph_of)
        return false;
    try {
        native_graph(queue);
    } catch (const sycl::exception &) {
        return true;
    }
#else
    (void)queue;
#endif
    return false;
}

int queue_open(const void *queue, void **own, cclx_sycl_queue_facts *facts) {
    return contained([&] {
        const auto *copy = static_cast<const sycl::queue *>(queue);
        *facts = {};
        facts->in_order = copy->is_in_order();
        namespace chosen = sycl::ext::intel::property::queue;
        facts->lists = copy->has_property<chosen::no_immediate_command_list>() ? CCLX_SYCL_LISTS_NOT_IMMEDIATE
                       : copy->has_property<chosen::immediate_command_list>()  ? CCLX_SYCL_LISTS_IMMEDIATE
                                                                               : CCLX_SYCL_LISTS_USUAL;
        if (copy->get_backend() == level_zero) {
            facts->level_zero = 1;
            facts->device = sycl::get_native<level_zero>(copy->get_device());
            facts->context = sycl::get_native<level_zero>(copy->get_context());
        }
        *own = new Queue(*copy, facts->level_zero && ask_submit(*copy));
    });
}

void queue_close(void *own) {
    contained([&] { delete static_cast<Queue *>(own); });
}

bool records(const sycl::queue &queue) {
    return queue.ext_oneapi_get_state() == experimental::queue_state::recording;
}

int queue_recording(void *own, uint32_t whatever_it_costs, uint32_t *recording) {
    if (!whatever_it_costs && static_cast<Queue *>(own)->ask_submit) {
        *recording = CCLX_SYCL_ASK_SUBMIT;
        return 0;
    }
    return contained([&] { *recording = records(queue_of(own)); });
}

int queue_list(void *own, void **list) {
    return contained([&] {
        auto native = sycl::get_native<level_zero>(queue_of(own));
        auto *immediate = std::get_if<ze_command_list_handle_t>(&native);
        *list = immediate ? *immediate : nullptr;
    });
}

int graph_open(void *own_queue, void **own) {
    return contained([&] { *own = new Graph(queue_of(own_queue).ext_oneapi_get_graph()); });
}

int graph_is(void *own_graph, void *own_queue, uint32_t *same) {
    return contained([&] { *same = *static_cast<Graph *>(own_graph) == queue_of(own_queue).ext_oneapi_get_graph(); });
}

void graph_close(void *own_graph) {
    contained([&] { delete static_cast<Graph *>(own_graph); });
}

int kernel_open(void *own_queue, void *module, void *kernel, void **own) {
    return contained([&] {
        // Of one device: an adapter sets a kernel's arguments once for each device of the context that the kernel was made in
        // (v2 of 2025.3).
        const auto device = queue_of(own_queue).get_device();
        const auto &known = known_devices();
        const auto found = std::find_if(known.begin(), known.end(), [&](const Known &one) { return one.device == device; });
        if (found == known.end())
            throw std::runtime_error("a queue of a device that the runtime doesn't list");
        const auto &context = found->alone;
        auto bundle = sycl::make_kernel_bundle<level_zero, sycl::bundle_state::executable>(
            {static_cast<ze_module_handle_t>(module), kept}, context);
        *own = new sycl::kernel(sycl::make_kernel<level_zero>(
            {std::move(bundle), static_cast<ze_kernel_handle_t>(kernel), kept}, context));
    });
}

void kernel_close(void *own_kernel) {
    contained([&] { delete static_cast<sycl::kernel *>(own_kernel); });
}

int queue_is_idle(void *own, uint32_t *idle) {
    return contained([&] { *idle = queue_of(own).ext_oneapi_empty(); });
}

void queue_drop_events(void *own) { static_cast<Queue *>(own)->drop_events = true; }

// Submits what nobody wants an event of.
template <typename Group> void submit_unheard(const Queue &own, sycl::queue &queue, const Group &group) {
    if (own.drop_events)
        queue.submit(group);
    else
        experimental::submit(queue, group);
}

int queue_to_try(void *own, uint32_t what, void **other) {
    return contained([&] {
        const auto &like = *static_cast<Queue *>(own);
        auto made = std::make_unique<Queue>(
            sycl::queue(like.queue.get_context(), like.queue.get_device(), sycl::property::queue::in_order()), like.ask_submit);
        if (what == CCLX_SYCL_TRY_RECORDED) {
            made->graph = native_graph(made->queue);
            made->graph->begin_recording(made->queue);
        } else {
            made->filled = sycl::malloc_device(1, made->queue);
            if (!made->filled)
                throw std::bad_alloc();
            made->drop_events = what == CCLX_SYCL_TRY_DROPPED_EVENT;
            submit_unheard(*made, made->queue, [&](sycl::handler &handler) { handler.memset(made->filled, 0, 1); });
        }
        *other = made.release();
    });
}

[[gnu::always_inline]] inline void launch_in(sycl::handler &handler, void *kernel, size_t groups, size_t items, const uint64_t *words, size_t word_bytes) {
    handler.set_arg(0, experimental::raw_kernel_arg(words, word_bytes));
    handler.parallel_for(sycl::nd_range<1>{groups * items, items}, *static_cast<sycl::kernel *>(kernel));
}

// The work as a command group.
auto group_of(const cclx_sycl_work &work, const cclx_sycl_event *const *after, uint32_t count) {
    return [&work, after, count](sycl::handler &handler) {
        if (work.unless_recording && graph_of && graph_of(&handler))
            throw Records();
        if (!work.kernel && work.bytes == 0) {
            std::vector<sycl::event> events;
            for (uint32_t i = 0; i < count; ++i)
                events.push_back(event_of(after[i]));
            // With an empty list it would wait for nothing at all.
            events.empty() ? handler.ext_oneapi_barrier() : handler.ext_oneapi_barrier(events);
            return;
        }
        for (uint32_t i = 0; i < count; ++i)
            handler.depends_on(event_of(after[i]));
        if (!work.kernel) {
            handler.memcpy(work.to, work.from, work.bytes);
            return;
        }
        launch_in(handler, work.kernel, work.groups, work.items, work.words, work.word_bytes);
    };
}

sycl::event submitted(sycl::queue &queue, const cclx_sycl_work &work, const cclx_sycl_event *const *after, uint32_t count) {
    return queue.submit(group_of(work, after, count));
}

#ifdef CCLX_TEST_SUBMIT
// Tests break a rule here, to show that they would notice.
#include CCLX_TEST_SUBMIT
constexpr bool tested = true;
#ifdef CCLX_TEST_ASKED_ONCE
constexpr bool asks_again = false;
#else
constexpr bool asks_again = true;
#endif
#else
constexpr bool tested = false, asks_again = true;
sycl::event in_order(sycl::queue &queue, const cclx_sycl_work &work, const cclx_sycl_event *const *after, uint32_t count) {
    return submitted(queue, work, after, count);
}
#endif

int submit(void *own_queue, const cclx_sycl_work *work, const cclx_sycl_event *const *after, uint32_t count,
           cclx_sycl_event *event) {
    auto &queue = queue_of(own_queue);
    return contained([&] {
        // Of the runtime's own means only the command group tells, as it is made, that it is recorded.
        const bool tells = static_cast<Queue *>(own_queue)->ask_submit || work->unless_recording == CCLX_SYCL_DRIVER_WAS_ASKED;
        const bool asked = work->unless_recording && !(graph_of && tells);
        if (asked && records(queue))
            throw Records();
        if (event) {
            auto made = in_order(queue, *work, after, count);
            // Another thread may have begun to record in between. An event of what the driver records is of no use outside: who
            // waits for it is recorded too. The barrier does the graph no harm.
            if (asked && asks_again && !work->kernel && work->bytes == 0 && records(queue))
                throw Records();
            new (event) sycl::event(std::move(made));
        } else if (tested)
            in_order(queue, *work, after, count);
        else
            submit_unheard(*static_cast<Queue *>(own_queue), queue, group_of(*work, after, count));
    });
}

int launch(void *own_queue, void *kernel, uint64_t groups_items, const uint64_t *words, size_t word_bytes,
           uint32_t unless_recording) {
    auto &own = *static_cast<Queue *>(own_queue);
    if (tested) {
        cclx_sycl_work work = {};
        work.kernel = kernel, work.groups = uint32_t(groups_items >> 32), work.items = uint32_t(groups_items);
        work.words = words, work.word_bytes = word_bytes, work.unless_recording = unless_recording;
        return submit(own_queue, &work, nullptr, 0, nullptr);
    }
    const bool tells = (own.ask_submit || unless_recording == CCLX_SYCL_DRIVER_WAS_ASKED) && graph_of;
    // The runtime copies the command group: a reference to what it takes is shorter.
    const struct {
        void *kernel;
        const uint64_t *words;
        size_t word_bytes, groups, items;
        bool tells;
    } given = {kernel, words, word_bytes, size_t(groups_items >> 32), size_t(uint32_t(groups_items)), tells};
    try {
        if (!tells && records(own.queue))
            return CCLX_SYCL_RECORDS;
        submit_unheard(own, own.queue, [&given](sycl::handler &handler) {
            if (given.tells && graph_of(&handler))
                throw Records();
            launch_in(handler, given.kernel, given.groups, given.items, given.words, given.word_bytes);
        });
        return 0;
    } catch (...) {
        return contained([] { throw; });
    }
}

int event_finished(const cclx_sycl_event *event, uint32_t *finished) {
    return contained([&] {
        const auto status = event_of(event).get_info<sycl::info::event::command_execution_status>();
        *finished = status == sycl::info::event_command_status::complete;
    });
}

void event_close(cclx_sycl_event *event) {
    contained([&] { reinterpret_cast<sycl::event *>(event)->~event(); });
}

constexpr cclx_sycl_bridge bridge = {
    CCLX_SYCL_BRIDGE_VERSION,
    __LIBSYCL_MAJOR_VERSION,
    error,
    devices,
    queue_key,
    queue_open,
    queue_close,
    queue_recording,
    queue_list,
    graph_open,
    graph_is,
    graph_close,
    kernel_open,
    kernel_close,
    queue_is_idle,
    queue_drop_events,
    queue_to_try,
    submit,
    launch,
    event_finished,
    event_close,
};

} // namespace

const cclx_sycl_bridge *cclx_sycl_bridge_open(uint32_t version) {
    return version == CCLX_SYCL_BRIDGE_VERSION ? &bridge : nullptr;
}
