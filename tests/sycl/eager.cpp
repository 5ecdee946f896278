// eager: what SYCL programs do with queues, memory and events, with nothing recorded.
#include "kernels.hpp"

#include <sycl/ext/oneapi/virtual_mem/physical_mem.hpp>
#include <sycl/ext/oneapi/virtual_mem/virtual_mem.hpp>

namespace {
constexpr size_t N = 4096;

uint32_t pattern(size_t i, uint32_t seed) { return uint32_t(i) * 2654435761u + seed * 40503u; }

std::vector<uint32_t> input(uint32_t seed) {
    std::vector<uint32_t> data(N);
    for (size_t i = 0; i < N; i++) data[i] = pattern(i, seed);
    return data;
}

void memory(sycl::queue &queue) {
    auto *device = sycl::malloc_device<uint32_t>(N, queue);
    auto *host = sycl::malloc_host<uint32_t>(N, queue);
    auto *shared = sycl::malloc_shared<uint32_t>(N, queue);
    using sycl::usm::alloc;
    auto context = queue.get_context();
    CHECK(sycl::get_pointer_type(device + 5, context) == alloc::device);
    CHECK(sycl::get_pointer_type(host, context) == alloc::host);
    CHECK(sycl::get_pointer_type(shared, context) == alloc::shared);
    uint32_t local = 0;
    CHECK(sycl::get_pointer_type(&local, context) == alloc::unknown);
    CHECK(sycl::get_pointer_device(device, context) == queue.get_device());

    // Ordinary memory, pinned memory, the device's and shared memory, to and fro.
    auto data = input(1);
    std::vector<uint32_t> back(N);
    queue.memcpy(device, data.data(), N * 4);
    queue.memcpy(host, device, N * 4);
    queue.memcpy(shared, host, N * 4);
    queue.memcpy(back.data(), shared, N * 4).wait();
    CHECK(back == data);
    // Each at its own place.
    queue.memcpy(device + 7, host + 3, 11 * 4);
    queue.memset(device + 100, 0xa5, 7);
    queue.prefetch(shared, N * 4);
    queue.mem_advise(shared, N * 4, 0);
    queue.memcpy(back.data(), device, N * 4).wait();
    for (size_t i = 0; i < N; i++) {
        uint32_t expected = i >= 7 && i < 18 ? pattern(i - 4, 1) : pattern(i, 1);
        if (i == 100) expected = 0xa5a5a5a5;
        if (i == 101) expected = (expected & 0xff000000u) | 0xa5a5a5u;
        CHECK(back[i] == expected);
    }
    // A rectangle: 5 rows of 12 bytes.
    queue.ext_oneapi_memcpy2d(host, 64, device + 2, 128, 12, 5).wait();
    for (size_t row = 0; row < 5; row++)
        for (size_t i = 0; i < 3; i++) CHECK(host[row * 16 + i] == back[2 + row * 32 + i]);
    sycl::free(device, queue);
    sycl::free(host, queue);
    sycl::free(shared, queue);
}

void kernels(sycl::queue &queue, const Kernels &kernels) {
    auto *a = sycl::malloc_device<uint32_t>(N, queue), *b = sycl::malloc_device<uint32_t>(N, queue);
    std::vector<uint32_t> back(N);
    for (uint32_t turn = 0; turn < 50; turn++) {
        auto data = input(turn);
        // Explicit edges: in a queue that isn't in order nothing else orders these.
        auto in = queue.memcpy(a, data.data(), N * 4);
        auto first = launch(queue, kernels.affine(), N, {in}, b, a, 3u + turn, 7u);
        auto second = launch(queue, kernels.add(), N, {first}, a, a, b);
        queue.memcpy(back.data(), a, N * 4, second).wait();
        for (size_t i = 0; i < N; i++) CHECK(back[i] == data[i] * (4 + turn) + 7);
    }
    queue.submit([&](sycl::handler &handler) {
        handler.set_args(a);
        handler.parallel_for(sycl::nd_range<3>{{2, 12, 64}, {1, 4, 16}}, kernels.shape());
    }).wait();
    // A SYCL range's last dimension is Level Zero's x.
    queue.memcpy(back.data(), a, 24).wait();
    const uint32_t expected[] = {4, 3, 2, 16, 4, 1};
    CHECK(std::equal(expected, expected + 6, back.begin()));
    // Without a group size the runtime asks the driver for one.
    queue.submit([&](sycl::handler &handler) {
        handler.set_args(a);
        handler.parallel_for(sycl::range<1>{1024}, kernels.shape());
    }).wait();
    queue.memcpy(back.data(), a, 24).wait();
    CHECK(back[0] * back[3] == 1024);
    sycl::free(a, queue);
    sycl::free(b, queue);
}

// Work of one queue that waits for another's, by barriers, with the wait submitted first.
void joined(sycl::queue &one, const Kernels &kernels) {
    sycl::queue two{one.get_context(), one.get_device(), sycl::property::queue::in_order()};
    auto *a = sycl::malloc_device<uint32_t>(N, one), *b = sycl::malloc_device<uint32_t>(N, one);
    std::vector<uint32_t> back(N);
    for (uint32_t turn = 0; turn < 50; turn++) {
        auto data = input(turn + 100);
        auto in = one.memcpy(a, data.data(), N * 4);
        auto made = one.ext_oneapi_submit_barrier({in});
        two.ext_oneapi_submit_barrier({made});
        launch(two, kernels.affine(), N, {}, b, a, 5u, turn);
        auto done = two.ext_oneapi_submit_barrier();
        auto joined = one.ext_oneapi_submit_barrier({done});
        one.memcpy(back.data(), b, N * 4, joined).wait();
        for (size_t i = 0; i < N; i++) CHECK(back[i] == data[i] * 5 + turn);
    }
    sycl::free(a, one);
    sycl::free(b, one);
}

void host_tasks(sycl::queue &queue) {
    auto *a = sycl::malloc_shared<uint32_t>(N, queue);
    auto set = queue.memset(a, 1, N * 4);
    auto task = queue.submit([&](sycl::handler &handler) {
        handler.depends_on(set);
        handler.host_task([=] {
            for (size_t i = 0; i < N; i++) a[i] += uint32_t(i);
        });
    });
    std::vector<uint32_t> back(N);
    queue.memcpy(back.data(), a, N * 4, task).wait();
    for (size_t i = 0; i < N; i++) CHECK(back[i] == 0x01010101 + i);
    sycl::free(a, queue);
}

void profiled(const sycl::device &device, const sycl::context &context, const Kernels &kernels) {
    using namespace sycl::info;
    sycl::queue queue{context, device, {sycl::property::queue::in_order(), sycl::property::queue::enable_profiling()}};
    auto *a = sycl::malloc_device<uint32_t>(N, queue);
    auto first = queue.memset(a, 1, N * 4);
    auto second = launch(queue, kernels.affine(), N, {}, a, a, 3u, 1u);
    queue.wait();
    CHECK(second.get_info<event::command_execution_status>() == event_command_status::complete);
    auto begin = first.get_profiling_info<event_profiling::command_start>();
    auto middle = first.get_profiling_info<event_profiling::command_end>();
    auto start = second.get_profiling_info<event_profiling::command_start>();
    auto end = second.get_profiling_info<event_profiling::command_end>();
    CHECK(begin <= middle && middle <= start && start <= end && end > 0);
    sycl::free(a, queue);
}

// Addresses and memory apart: two places that are the same memory, and a part of it that can't be written.
void virtual_memory(sycl::queue &queue) {
    namespace exp = sycl::ext::oneapi::experimental;
    const auto context = queue.get_context();
    const auto device = queue.get_device();
    CHECK(device.has(sycl::aspect::ext_oneapi_virtual_mem));
    const size_t page = exp::get_mem_granularity(device, context);
    CHECK(page >= 4096 && page % 4096 == 0);
    const auto place = exp::reserve_virtual_mem(4 * page, context);
    {
        exp::physical_mem memory{device, context, 2 * page};
        auto *low = static_cast<uint32_t *>(memory.map(place, 2 * page, exp::address_access_mode::read_write));
        auto *high = static_cast<uint32_t *>(memory.map(place + 3 * page, page, exp::address_access_mode::read_write, page));
        CHECK(uintptr_t(low) == place && uintptr_t(high) == place + 3 * page);
        CHECK(sycl::get_pointer_type(low, context) == sycl::usm::alloc::device);
        std::vector<uint32_t> values(page / 2), back(page / 4);
        for (size_t i = 0; i < values.size(); i++) values[i] = uint32_t(i * 2654435761u);
        queue.memcpy(low, values.data(), 2 * page).wait();
        queue.memcpy(back.data(), high, page).wait();
        for (size_t i = 0; i < back.size(); i++) CHECK(back[i] == values[page / 4 + i]);
        exp::set_access_mode(high, page, exp::address_access_mode::read, context);
        CHECK(exp::get_access_mode(high, page, context) == exp::address_access_mode::read);
        CHECK(exp::get_access_mode(low, 2 * page, context) == exp::address_access_mode::read_write);
        exp::unmap(low, 2 * page, context);
        exp::unmap(high, page, context);
    }
    exp::free_virtual_mem(place, 4 * page, context);
}

void native_objects(sycl::queue &queue) {
    constexpr auto backend = sycl::backend::ext_oneapi_level_zero;
    // An event of Level Zero stands for the SYCL event.
    auto *a = sycl::malloc_device<uint32_t>(N, queue);
    auto event = queue.memset(a, 3, N * 4);
    auto native = sycl::get_native<backend>(event);
    ze(zeEventHostSynchronize(native, UINT64_MAX), "zeEventHostSynchronize");
    auto object = sycl::get_native<backend>(queue);
    // The older adapter has a queue of Level Zero's where it is told not to use immediate lists.
    const char *lists = std::getenv("UR_L0_USE_IMMEDIATE_COMMANDLISTS");
    const char *second = std::getenv("SYCL_UR_USE_LEVEL_ZERO_V2");
    CHECK(lists && second);
    bool regular = std::string(lists) == "0" && std::string(second) == "0";
    CHECK(std::holds_alternative<ze_command_queue_handle_t>(object) == regular);
    queue.wait();
    if (!regular) {
        auto list = std::get<ze_command_list_handle_t>(object);
        uint32_t fill = 0x01020304, back[2] = {};
        ze(zeCommandListAppendMemoryFill(list, a, &fill, 4, N * 4, nullptr, 0, nullptr), "fill");
        ze(zeCommandListHostSynchronize(list, UINT64_MAX), "zeCommandListHostSynchronize");
        queue.memcpy(back, a + N - 2, 8).wait();
        CHECK(back[0] == fill && back[1] == fill);
    }
    sycl::free(a, queue);
}

void errors(sycl::queue &queue, const Kernels &kernels) {
    bool refused = false;
    try {
        queue.submit([&](sycl::handler &handler) {
            handler.set_arg(9, 1);
            handler.parallel_for(sycl::nd_range<1>{64, 64}, kernels.add());
        }).wait();
    } catch (const sycl::exception &) {
        refused = true;
    }
    CHECK(refused);
    queue.wait();
}
} // namespace

int main() {
    auto devices = sycl::device::get_devices(sycl::info::device_type::gpu);
    CHECK(devices.size() >= 2);
    sycl::device device = devices[0];
    sycl::context context = device.get_platform().khr_get_default_context();
    CHECK(device.has(sycl::aspect::usm_device_allocations) && device.has(sycl::aspect::usm_host_allocations));
    CHECK(device.get_info<sycl::info::device::name>().find("ze-soft 0") == 0);
    Kernels made{context, device};
    sycl::queue in_order{context, device, sycl::property::queue::in_order()};
    sycl::queue out_of_order{context, device};
    for (auto *queue : {&in_order, &out_of_order}) {
        if (queue == &in_order) memory(*queue);
        kernels(*queue, made);
        joined(*queue, made);
        host_tasks(*queue);
        virtual_memory(*queue);
        native_objects(*queue);
    }
    profiled(device, context, made);
    errors(in_order, made);

    // Many queues, as a framework's pool has them; and another device that reads the first one's memory.
    std::vector<sycl::queue> pool;
    for (int i = 0; i < 32; i++) pool.emplace_back(context, device, sycl::property::queue::in_order());
    auto *numbers = sycl::malloc_device<uint32_t>(32 * 64, context.get_devices()[0], context);
    for (uint32_t i = 0; i < 32; i++) {
        pool[i].memset(numbers + i * 64, int(i), 64 * 4);
        launch(pool[i], made.affine(), 64, {}, numbers + i * 64, numbers + i * 64, 2u, i);
    }
    for (auto &queue : pool) queue.wait();
    sycl::queue other{context, devices[1], sycl::property::queue::in_order()};
    std::vector<uint32_t> back(32 * 64);
    other.memcpy(back.data(), numbers, back.size() * 4).wait();
    for (uint32_t i = 0; i < 32 * 64; i++) CHECK(back[i] == (i / 64) * 0x01010101u * 2 + i / 64);
    sycl::free(numbers, context);
    std::puts("eager: ok");
}
