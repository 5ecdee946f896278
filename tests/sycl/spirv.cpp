// spirv FILE: kernels that nobody registered with the driver, as SPIR-V: by Level Zero's module and, where a release has
// it, by the runtime's own compiler extension. Without an engine for SPIR-V the module is refused, with a reason.
#include "kernels.hpp"

#include <fstream>
#include <iterator>

namespace {
constexpr auto backend = sycl::backend::ext_oneapi_level_zero;
constexpr size_t N = 4096;

sycl::kernel by_module(const sycl::context &context, const sycl::device &device, const std::vector<char> &image,
                       const char *name) {
    ze_module_desc_t description{};
    description.stype = ZE_STRUCTURE_TYPE_MODULE_DESC;
    description.format = ZE_MODULE_FORMAT_IL_SPIRV;
    description.inputSize = image.size();
    description.pInputModule = reinterpret_cast<const uint8_t *>(image.data());
    ze_module_handle_t module = nullptr;
    ze_module_build_log_handle_t log = nullptr;
    auto code = zeModuleCreate(sycl::get_native<backend>(context), sycl::get_native<backend>(device), &description,
                               &module, &log);
    if (code != ZE_RESULT_SUCCESS) {
        size_t size = 0;
        ze(zeModuleBuildLogGetString(log, &size, nullptr), "zeModuleBuildLogGetString");
        std::string text(size, '\0');
        ze(zeModuleBuildLogGetString(log, &size, text.data()), "zeModuleBuildLogGetString");
        std::printf("refused: 0x%x %s\n", unsigned(code), text.c_str());
        std::exit(3);
    }
    auto bundle = sycl::make_kernel_bundle<backend, sycl::bundle_state::executable>(
        {module, sycl::ext::oneapi::level_zero::ownership::transfer}, context);
    ze_kernel_desc_t kernel{};
    kernel.stype = ZE_STRUCTURE_TYPE_KERNEL_DESC;
    kernel.pKernelName = name;
    ze_kernel_handle_t handle = nullptr;
    ze(zeKernelCreate(module, &kernel, &handle), "zeKernelCreate");
    return sycl::make_kernel<backend>({bundle, handle, sycl::ext::oneapi::level_zero::ownership::transfer}, context);
}

void sums(sycl::queue &queue, const sycl::kernel &add) {
    auto *a = sycl::malloc_device<float>(N, queue), *b = sycl::malloc_shared<float>(N, queue);
    std::vector<float> data(N), back(N);
    for (size_t i = 0; i < N; i++) data[i] = float(i) * 0.25f, b[i] = float(i * i % 1000);
    queue.memcpy(a, data.data(), N * 4);
    queue.submit([&](sycl::handler &handler) {
        handler.set_args(a, b, a, uint32_t(N - 5));
        handler.parallel_for(sycl::nd_range<1>{N, 64}, add);
    });
    queue.memcpy(back.data(), a, N * 4).wait();
    for (size_t i = 0; i < N; i++) CHECK(back[i] == data[i] + (i < N - 5 ? b[i] : 0));
    sycl::free(a, queue);
    sycl::free(b, queue);
}

// Local memory and a barrier; recorded as well.
void reversals(sycl::queue &queue, const sycl::kernel &reverse) {
    auto *data = sycl::malloc_device<uint32_t>(N, queue), *bias = sycl::malloc_device<uint32_t>(1, queue);
    uint32_t one = 1;
    std::vector<uint32_t> values(N), back(N);
    for (uint32_t i = 0; i < N; i++) values[i] = i * 3;
    queue.memcpy(bias, &one, 4);
    queue.memcpy(data, values.data(), N * 4).wait();
    auto work = [&] {
        queue.submit([&](sycl::handler &handler) {
            sycl::local_accessor<uint32_t, 1> scratch{32, handler};
            handler.set_args(data, scratch, bias);
            handler.parallel_for(sycl::nd_range<1>{N, 32}, reverse);
        });
    };
    work();
    namespace exp = sycl::ext::oneapi::experimental;
    exp::command_graph<exp::graph_state::modifiable> graph{queue.get_context(), queue.get_device()};
    graph.begin_recording(queue);
    work();
    graph.end_recording(queue);
    auto ready = graph.finalize();
    queue.ext_oneapi_graph(ready);
    queue.ext_oneapi_graph(ready);
    queue.memcpy(back.data(), data, N * 4).wait();
    for (size_t i = 0; i < N; i++) CHECK(back[i] == values[i / 32 * 32 + (31 - i % 32)] + 3);
    sycl::free(data, queue);
    sycl::free(bias, queue);
}

// Buffers and accessors, whose order is the runtime's: a reduction in groups by local memory, then its second stage; times
// of the commands.
void totals(const sycl::context &context, const sycl::device &device, const sycl::kernel &total) {
    sycl::queue queue{context, device, sycl::property::queue::enable_profiling()};
    constexpr size_t group = 64, groups = N / group;
    constexpr uint32_t count = N - 77;
    std::vector<uint32_t> values(N);
    for (uint32_t i = 0; i < N; i++) values[i] = i * i % 10007;
    sycl::buffer<uint32_t> data{values.data(), sycl::range<1>{N}};
    sycl::buffer<uint64_t> sums{sycl::range<1>{groups}};
    for (uint32_t round = 0; round < 3; round++) {
        {
            sycl::host_accessor changed{data, sycl::read_write};
            changed[round] += 1000;
        }
        auto event = queue.submit([&](sycl::handler &handler) {
            sycl::accessor in{data, handler, sycl::read_only};
            sycl::accessor out{sums, handler, sycl::write_only, sycl::no_init};
            sycl::local_accessor<uint64_t, 1> scratch{group, handler};
            handler.set_args(in, scratch, out, count);
            handler.parallel_for(sycl::nd_range<1>{N, group}, total);
        });
        uint64_t wanted = 1000 * (round + 1), got = 0;
        for (uint32_t i = 0; i < count; i++) wanted += i * i % 10007;
        sycl::host_accessor back{sums, sycl::read_only};
        for (size_t i = 0; i < groups; i++) got += back[i];
        CHECK(got == wanted);
        using namespace sycl::info::event_profiling;
        const auto submitted = event.get_profiling_info<command_submit>();
        const auto start = event.get_profiling_info<command_start>(), end = event.get_profiling_info<command_end>();
        CHECK(submitted <= start && start <= end && end > 0);
    }
}
} // namespace

int main(int count, char **arguments) {
    CHECK(count == 2);
    std::ifstream file(arguments[1], std::ios::binary);
    std::vector<char> image{std::istreambuf_iterator<char>(file), {}};
    CHECK(!image.empty());
    sycl::device device = sycl::device::get_devices(sycl::info::device_type::gpu)[0];
    sycl::context context = device.get_platform().khr_get_default_context();
    sycl::queue queue{context, device, sycl::property::queue::in_order()};
    sums(queue, by_module(context, device, image, "add"));
    reversals(queue, by_module(context, device, image, "reverse"));
    totals(context, device, by_module(context, device, image, "total"));
    namespace exp = sycl::ext::oneapi::experimental;
    std::vector<std::byte> bytes(image.size());
    std::memcpy(bytes.data(), image.data(), image.size());
    auto source = exp::create_kernel_bundle_from_source(context, exp::source_language::spirv, bytes);
    auto bundle = exp::build(source);
    sums(queue, bundle.ext_oneapi_get_kernel("add"));
    std::puts("spirv: ok");
}
