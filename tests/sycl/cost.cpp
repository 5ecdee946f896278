// Processor time of the host for a call on a queue, beside that of a bare submission of an empty kernel to the same queue:
// taken in turn, in one process, the median of many. Two ranks, of which the second calls
// along.
//
// cost: prints one line, `call NS, empty kernel NS, ratio R`. With an argument, the call is made so many times instead, for
// tools that look for leaks.
#include <level_zero/ze_api.h>

#include "xccl.hpp"

#include <sycl/ext/oneapi/backend/level_zero.hpp>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <iterator>
#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr auto level_zero = sycl::backend::ext_oneapi_level_zero;

struct Launch;
using Register = ze_result_t (*)(const uint8_t (*)[32], const char *, void (*)(const Launch *), uint32_t, const size_t *);

// printf ZESOFTM1empty | sha256sum
const char image[] = "ZESOFTM1empty";
const uint8_t hash[32] = {0xae, 0x7d, 0x2f, 0x00, 0xff, 0x1b, 0x43, 0x3d, 0x20, 0x8a, 0xf0, 0xda, 0xeb, 0xed, 0xb8, 0x79, 0x1f, 0xa8, 0xe9, 0x5c, 0x1e, 0x58, 0xbb, 0x1c, 0x92, 0x71, 0x98, 0xad, 0x76, 0x15, 0x38, 0x5e};

void ze(ze_result_t code, const char *call) {
    if (code != ZE_RESULT_SUCCESS)
        fail(std::string(call) + " gave " + std::to_string(code));
}

sycl::kernel empty(const sycl::queue &queue) {
    const auto device = queue.get_device();
    const auto context = queue.get_context();
    void *address = nullptr;
    ze(zeDriverGetExtensionFunctionAddress(sycl::get_native<level_zero>(device.get_platform()), "zeSoftRegisterKernel",
                                           &address),
       "zeSoftRegisterKernel");
    ze(reinterpret_cast<Register>(address)(&hash, "empty", [](const Launch *) {}, 0, nullptr), "empty");
    ze_module_desc_t description = {};
    description.stype = ZE_STRUCTURE_TYPE_MODULE_DESC;
    description.format = ZE_MODULE_FORMAT_NATIVE;
    description.inputSize = sizeof image - 1;
    description.pInputModule = reinterpret_cast<const uint8_t *>(image);
    ze_module_handle_t module = nullptr;
    ze(zeModuleCreate(sycl::get_native<level_zero>(context), sycl::get_native<level_zero>(device), &description, &module,
                      nullptr),
       "zeModuleCreate");
    ze_kernel_desc_t kernel = {};
    kernel.stype = ZE_STRUCTURE_TYPE_KERNEL_DESC;
    kernel.pKernelName = "empty";
    ze_kernel_handle_t handle = nullptr;
    ze(zeKernelCreate(module, &kernel, &handle), "zeKernelCreate");
    auto bundle = sycl::make_kernel_bundle<level_zero, sycl::bundle_state::executable>(
        {module, sycl::ext::oneapi::level_zero::ownership::transfer}, context);
    return sycl::make_kernel<level_zero>({bundle, handle, sycl::ext::oneapi::level_zero::ownership::transfer}, context);
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

void of_rank(int rank, const onecclUniqueId &id, int only) {
    constexpr size_t count = 1024;
    constexpr int blocks = 600, block = 4;
    alarm(120);
    const auto devices = sycl::device::get_devices(sycl::info::device_type::gpu);
    sycl::queue queue(devices[size_t(rank)], sycl::property::queue::in_order());
    onecclComm_t comm = nullptr;
    CHECK(onecclSetDevice(uint32_t(rank)));
    CHECK(onecclCommInitRank(&comm, 2, id, rank));
    auto *memory = sycl::malloc_device<float>(count, queue);
    queue.memset(memory, 0, count * sizeof(float)).wait();
    const auto call = [&] { CHECK(onecclAllReduce(memory, memory, count, onecclFloat32, onecclSum, comm, &queue)); };
    for (int i = 0; i < only; ++i) {
        call();
        if (i % 16 == 15)
            queue.wait();
    }
    if (only == 0) {
        const auto kernel = empty(queue);
        const auto bare = [&] {
            queue.submit([&](sycl::handler &handler) { handler.parallel_for(sycl::nd_range<1>{1, 1}, kernel); });
        };
        std::vector<double> calls, bares;
        const auto take = [&](std::vector<double> &times, const auto &what, int round) {
            const double begin = processor_time();
            for (int i = 0; i < block; ++i)
                what();
            if (round >= blocks / 10)
                times.push_back((processor_time() - begin) / block);
            queue.wait();
        };
        for (int round = 0; round < blocks; ++round) {
            take(bares, bare, round);
            take(calls, call, round);
        }
        const double ours = median(calls), theirs = median(bares);
        if (rank == 0)
            std::printf("call %.0f ns, empty kernel %.0f ns, ratio %.2f\n", ours, theirs, ours / theirs);
    }
    queue.wait_and_throw();
    sycl::free(memory, queue);
    // The other rank may have to be told that this one goes.
    CHECK(onecclCommDestroy(comm));
}

} // namespace

// cost [CALLS] (rank 0) starts itself as rank 1: the id travels as a file.
int main(int argc, char **argv) {
    try {
        onecclUniqueId id;
        if (argc == 3) {
            std::ifstream file(argv[2], std::ios::binary);
            file.read(reinterpret_cast<char *>(&id), sizeof id);
            of_rank(1, id, std::atoi(argv[1]));
            return 0;
        }
        const char *only = argc == 2 ? argv[1] : "0";
        CHECK(onecclGetUniqueId(&id));
        char name[] = "/tmp/cost.XXXXXX";
        const int file = mkstemp(name);
        if (file < 0 || write(file, &id, sizeof id) != ssize_t(sizeof id))
            fail("the id's file");
        close(file);
        // Before this process has used the driver or the runtime.
        const pid_t child = fork();
        if (child == 0) {
            execl("/proc/self/exe", "cost", only, name, nullptr);
            _exit(127);
        }
        of_rank(0, id, std::atoi(only));
        int status = 0;
        waitpid(child, &status, 0);
        unlink(name);
        return status != 0;
    } catch (const std::exception &error) {
        fail(error.what());
    }
}
