// Processor time of the host for a call on a queue, beside that of a bare submission of an empty kernel to the same queue,
// without arguments and with as many: taken in turn, in one process, the median of many. Two ranks, of which the second
// calls along.
//
// cost: prints one line, of nanoseconds and ratios. With `count`, few of each are made, each in a function of its own
// (`cost_call`...) for whoever counts their instructions. With a number, the call is made so many times instead, and must
// leave nothing on the heap; with COST_LEAKS set each loses a block.
#include <level_zero/ze_api.h>

#include "pair.hpp"

#include <sycl/ext/oneapi/backend/level_zero.hpp>

#include <algorithm>
#include <ctime>
#include <functional>
#include <malloc.h>
#include <unistd.h>

// Functions that a tool finds by their names.
using Action = std::function<void()>;
extern "C" {
__attribute__((noinline)) void cost_bare(const Action &action) {
    action();
    asm volatile("");
}
__attribute__((noinline)) void cost_many(const Action &action) {
    action();
    asm volatile("");
}
__attribute__((noinline)) void cost_call(const Action &action) {
    action();
    asm volatile("");
}
}

namespace {

constexpr auto level_zero = sycl::backend::ext_oneapi_level_zero;

struct Launch;
using Register = ze_result_t (*)(const uint8_t (*)[32], const char *, void (*)(const Launch *), uint32_t, const size_t *);

// printf 'ZESOFTM1empty\nmany' | sha256sum
const char image[] = "ZESOFTM1empty\nmany";
// As many arguments as the kernel of a short all-reduce.
constexpr int many = 14;
const uint8_t hash[32] = {0x72, 0xb0, 0xc1, 0x10, 0x8c, 0x95, 0x0d, 0x59, 0xe4, 0xf5, 0x89, 0x0d, 0xbd, 0x54, 0xb5, 0x23, 0xc0, 0x62, 0xca, 0x12, 0x27, 0x24, 0xad, 0x01, 0x30, 0xdb, 0x91, 0x98, 0xaa, 0x01, 0x93, 0x98};

void ze(ze_result_t code, const char *call) {
    if (code != ZE_RESULT_SUCCESS)
        fail(std::string(call) + " gave " + std::to_string(code));
}

struct Kernels {
    sycl::kernel empty, many;
};

Kernels kernels(const sycl::queue &queue) {
    const auto device = queue.get_device();
    const auto context = queue.get_context();
    void *address = nullptr;
    ze(zeDriverGetExtensionFunctionAddress(sycl::get_native<level_zero>(device.get_platform()), "zeSoftRegisterKernel",
                                           &address),
       "zeSoftRegisterKernel");
    const auto native = reinterpret_cast<Register>(address);
    const std::vector<size_t> sizes(many, sizeof(uint64_t));
    ze(native(&hash, "empty", [](const Launch *) {}, 0, nullptr), "empty");
    ze(native(&hash, "many", [](const Launch *) {}, many, sizes.data()), "many");
    ze_module_desc_t description = {};
    description.stype = ZE_STRUCTURE_TYPE_MODULE_DESC;
    description.format = ZE_MODULE_FORMAT_NATIVE;
    description.inputSize = sizeof image - 1;
    description.pInputModule = reinterpret_cast<const uint8_t *>(image);
    ze_module_handle_t module = nullptr;
    ze(zeModuleCreate(sycl::get_native<level_zero>(context), sycl::get_native<level_zero>(device), &description, &module,
                      nullptr),
       "zeModuleCreate");
    auto bundle = sycl::make_kernel_bundle<level_zero, sycl::bundle_state::executable>(
        {module, sycl::ext::oneapi::level_zero::ownership::transfer}, context);
    const auto made = [&](const char *name) {
        ze_kernel_desc_t kernel = {};
        kernel.stype = ZE_STRUCTURE_TYPE_KERNEL_DESC;
        kernel.pKernelName = name;
        ze_kernel_handle_t handle = nullptr;
        ze(zeKernelCreate(module, &kernel, &handle), "zeKernelCreate");
        return sycl::make_kernel<level_zero>({bundle, handle, sycl::ext::oneapi::level_zero::ownership::transfer}, context);
    };
    return {made("empty"), made("many")};
}

double processor_time() {
    timespec now = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return double(now.tv_sec) * 1e9 + double(now.tv_nsec);
}

double median(std::vector<double> &times) {
    std::nth_element(times.begin(), times.begin() + long(times.size() / 2), times.end());
    return times[times.size() / 2];
}

void of_rank(int rank, const onecclUniqueId &id, const std::string &what) {
    const int only = std::atoi(what.c_str());
    constexpr size_t count = 1024;
    constexpr int blocks = 600, block = 4;
    alarm(300);
    const auto devices = sycl::device::get_devices(sycl::info::device_type::gpu);
    sycl::queue queue(devices[size_t(rank)], sycl::property::queue::in_order());
    onecclComm_t comm = nullptr;
    CHECK(onecclSetDevice(uint32_t(rank)));
    CHECK(onecclCommInitRank(&comm, 2, id, rank));
    auto *memory = sycl::malloc_device<float>(count, queue);
    queue.memset(memory, 0, count * sizeof(float)).wait();
    const auto call = [&] { CHECK(onecclAllReduce(memory, memory, count, onecclFloat32, onecclSum, comm, &queue)); };
    const auto held = [&] {
        queue.wait();
        return mallinfo2().uordblks;
    };
    size_t before = 0;
    // A leak to be found.
    const bool leaks = std::getenv("COST_LEAKS") != nullptr;
    for (int i = 0; i < only; ++i) {
        call();
        if (leaks) {
            // Volatile, or the compiler would leave it out.
            void *volatile lost = std::malloc(24);
            static_cast<void>(lost);
        }
        if (i % 16 == 15)
            queue.wait();
        if (i == only / 5)
            before = held();
    }
    if (only > 0) {
        const size_t after = held();
        const size_t grown = after > before ? after - before : 0;
        std::printf("rank %d: the heap grew by %zu bytes over the last 4/5 of %d calls\n", rank, grown, only);
        // Two bytes a call.
        if (grown > size_t(only) * 2)
            fail("that is a leak");
    }
    if (only == 0) {
        const auto [empty, loaded] = kernels(queue);
        const auto bare = [&, &kernel = empty] {
            queue.submit([&](sycl::handler &handler) { handler.parallel_for(sycl::nd_range<1>{1, 1}, kernel); });
        };
        const auto full = [&, &kernel = loaded] {
            queue.submit([&](sycl::handler &handler) {
                for (int i = 0; i < many; ++i)
                    handler.set_arg(i, uint64_t(i));
                handler.parallel_for(sycl::nd_range<1>{1, 1}, kernel);
            });
        };
        const std::vector<std::pair<void (*)(const Action &), Action>> windows = {{cost_bare, bare}, {cost_many, full}, {cost_call, call}};
        // The first ones find nothing made yet.
        for (int round = 0; what == "count" && round < 24; ++round) {
            for (const auto &[window, action] : windows) {
                for (int i = 0; i < block; ++i)
                    round < 12 ? action() : window(action);
                queue.wait();
            }
        }
        std::vector<double> calls, bares, fulls;
        const auto take = [&](std::vector<double> &times, const auto &what, int round) {
            const double begin = processor_time();
            for (int i = 0; i < block; ++i)
                what();
            if (round >= blocks / 10)
                times.push_back((processor_time() - begin) / block);
            queue.wait();
        };
        for (int round = 0; what != "count" && round < blocks; ++round) {
            take(bares, bare, round);
            take(fulls, full, round);
            take(calls, call, round);
        }
        if (rank == 0 && what != "count") {
            const double ours = median(calls), theirs = median(bares), like = median(fulls);
            std::printf("call %.0f ns, empty kernel %.0f ns, ratio %.2f; with as many arguments %.0f ns, ratio %.2f\n", ours,
                        theirs, ours / theirs, like, ours / like);
        }
    }
    queue.wait_and_throw();
    sycl::free(memory, queue);
    // The other rank may have to be told that this one goes.
    CHECK(onecclCommDestroy(comm));
}

} // namespace

int main(int argc, char **argv) { return run_pair(argc, argv, "cost [count | CALLS]", "0", of_rank); }
