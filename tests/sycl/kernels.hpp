// Kernels of these programs: native functions that the software driver runs, made into SYCL kernels by interoperation
// with Level Zero, as a library does that isn't built by a SYCL compiler. Also: how a check fails.
#pragma once

#include <level_zero/ze_api.h>

#include <sycl/sycl.hpp>

#include <sycl/ext/oneapi/backend/level_zero.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <sched.h>

#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) fail(__FILE__, __LINE__, #what);                                                                  \
    } while (0)

[[noreturn]] inline void fail(const char *file, int line, const std::string &what) {
    std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
    std::exit(1);
}

// As the driver's extension declares them.
struct launch_t {
    uint32_t size;
    uint32_t cooperative;
    uint32_t group_count[3];
    uint32_t group_size[3];
    uint32_t arg_count;
    const void *const *args;
};
using register_kernel_t = ze_result_t (*)(const uint8_t (*)[32], const char *, void (*)(const launch_t *), uint32_t,
                                          const size_t *);

struct fault_t {
    uint32_t size, kind, device, ordinal;
    uint64_t value, seed;
};
constexpr uint32_t ANY = UINT32_MAX, REORDER = 3, DROP_EDGES = 8;

inline void plant(const sycl::platform &platform, uint32_t kind, uint64_t value, uint64_t seed) {
    void *address = nullptr;
    auto driver = sycl::get_native<sycl::backend::ext_oneapi_level_zero>(platform);
    auto code = zeDriverGetExtensionFunctionAddress(driver, "zeSoftFault", &address);
    if (code != ZE_RESULT_SUCCESS) fail(__FILE__, __LINE__, "no zeSoftFault");
    fault_t fault{sizeof fault, kind, ANY, ANY, value, seed};
    code = reinterpret_cast<ze_result_t (*)(const fault_t *)>(address)(&fault);
    if (code != ZE_RESULT_SUCCESS) fail(__FILE__, __LINE__, "a fault was not planted");
}

template <typename T> T argument(const launch_t *launch, int index) {
    T value;
    std::memcpy(&value, launch->args[index], sizeof value);
    return value;
}

// dst[i] = src[i] * factor + addend, for as many work-items as there are.
inline void affine(const launch_t *launch) {
    auto *dst = argument<uint32_t *>(launch, 0);
    const auto *src = argument<const uint32_t *>(launch, 1);
    auto factor = argument<uint32_t>(launch, 2), addend = argument<uint32_t>(launch, 3);
    size_t items = size_t(launch->group_count[0]) * launch->group_size[0];
    for (size_t i = 0; i < items; i++) dst[i] = src[i] * factor + addend;
}

// dst[i] = a[i] + b[i]
inline void add(const launch_t *launch) {
    auto *dst = argument<uint32_t *>(launch, 0);
    const auto *a = argument<const uint32_t *>(launch, 1), *b = argument<const uint32_t *>(launch, 2);
    size_t items = size_t(launch->group_count[0]) * launch->group_size[0];
    for (size_t i = 0; i < items; i++) dst[i] = a[i] + b[i];
}

// Writes the launch's own dimensions.
inline void shape(const launch_t *launch) {
    auto *dst = argument<uint32_t *>(launch, 0);
    for (int d = 0; d < 3; d++) dst[d] = launch->group_count[d], dst[3 + d] = launch->group_size[d];
}

// Meets the peer: counts one meeting on, tells it the number, and waits (a bounded time) until it tells the same.
inline void meet(const launch_t *launch) {
    auto *theirs = argument<std::atomic<uint32_t> *>(launch, 0), *ours = argument<std::atomic<uint32_t> *>(launch, 1);
    auto *meetings = argument<uint32_t *>(launch, 2), *missed = argument<uint32_t *>(launch, 3);
    uint32_t number = ++*meetings;
    theirs->store(number, std::memory_order_release);
    auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (ours->load(std::memory_order_acquire) < number) {
        if (std::chrono::steady_clock::now() > end) {
            ++*missed;
            break;
        }
        sched_yield();
    }
}

// printf 'ZESOFTM1affine\nadd\nshape\nmeet' | sha256sum
inline const char IMAGE[] = "ZESOFTM1affine\nadd\nshape\nmeet";
inline const uint8_t IMAGE_HASH[32] = {0x51, 0xc2, 0x54, 0x2f, 0x31, 0x03, 0xd6, 0x7d, 0x86, 0x2e, 0x4f, 0x84, 0xec, 0x4c, 0x27, 0x79, 0x08, 0x29, 0x45, 0xa5, 0x6d, 0x59, 0x8c, 0xff, 0xfc, 0xa3, 0x35, 0xb5, 0x1e, 0xde, 0x56, 0xa5};

inline void ze(ze_result_t result, const char *call) {
    if (result != ZE_RESULT_SUCCESS) {
        char text[200];
        std::snprintf(text, sizeof text, "%s: 0x%x", call, unsigned(result));
        fail(__FILE__, __LINE__, text);
    }
}

// The kernels on one device.
class Kernels {
  public:
    Kernels(const sycl::context &context, const sycl::device &device) {
        constexpr auto backend = sycl::backend::ext_oneapi_level_zero;
        auto driver = sycl::get_native<backend>(device.get_platform());
        void *address = nullptr;
        ze(zeDriverGetExtensionFunctionAddress(driver, "zeSoftRegisterKernel", &address), "zeSoftRegisterKernel");
        auto native = reinterpret_cast<register_kernel_t>(address);
        const size_t p = sizeof(void *), u = sizeof(uint32_t);
        const size_t sizes[4][4] = {{p, p, u, u}, {p, p, p}, {p}, {p, p, p, p}};
        ze(native(&IMAGE_HASH, "affine", ::affine, 4, sizes[0]), "affine");
        ze(native(&IMAGE_HASH, "add", ::add, 3, sizes[1]), "add");
        ze(native(&IMAGE_HASH, "shape", ::shape, 1, sizes[2]), "shape");
        ze(native(&IMAGE_HASH, "meet", ::meet, 4, sizes[3]), "meet");

        ze_module_desc_t description{};
        description.stype = ZE_STRUCTURE_TYPE_MODULE_DESC;
        description.format = ZE_MODULE_FORMAT_NATIVE;
        description.inputSize = sizeof IMAGE - 1;
        description.pInputModule = reinterpret_cast<const uint8_t *>(IMAGE);
        ze_module_handle_t module = nullptr;
        ze(zeModuleCreate(sycl::get_native<backend>(context), sycl::get_native<backend>(device), &description, &module,
                          nullptr),
           "zeModuleCreate");
        bundle = std::make_unique<bundle_t>(sycl::make_kernel_bundle<backend, sycl::bundle_state::executable>(
            {module, sycl::ext::oneapi::level_zero::ownership::transfer}, context));
        const char *names[] = {"affine", "add", "shape", "meet"};
        for (const char *name : names) {
            ze_kernel_desc_t kernel{};
            kernel.stype = ZE_STRUCTURE_TYPE_KERNEL_DESC;
            kernel.pKernelName = name;
            ze_kernel_handle_t handle = nullptr;
            ze(zeKernelCreate(module, &kernel, &handle), "zeKernelCreate");
            made.push_back(sycl::make_kernel<backend>(
                {*bundle, handle, sycl::ext::oneapi::level_zero::ownership::transfer}, context));
        }
    }

    const sycl::kernel &affine() const { return made[0]; }
    const sycl::kernel &add() const { return made[1]; }
    const sycl::kernel &shape() const { return made[2]; }
    const sycl::kernel &meet() const { return made[3]; }

  private:
    using bundle_t = sycl::kernel_bundle<sycl::bundle_state::executable>;
    std::unique_ptr<bundle_t> bundle;
    std::vector<sycl::kernel> made;
};

// Submits a kernel over so many work-items in groups of 64.
template <typename... Arguments>
sycl::event launch(sycl::queue &queue, const sycl::kernel &kernel, size_t items, const std::vector<sycl::event> &after,
                   Arguments... arguments) {
    return queue.submit([&](sycl::handler &handler) {
        handler.depends_on(after);
        handler.set_args(arguments...);
        handler.parallel_for(sycl::nd_range<1>{items, 64}, kernel);
    });
}
