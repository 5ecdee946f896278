// A bridge that appends to the queue's command list while the queue records: such a launch runs at once and is not recorded.
} // namespace
#include <dlfcn.h>
namespace {

struct Count {
    uint32_t x, y, z;
};

template <typename Function> Function *driver(const char *name) {
    static void *loader = dlopen("libze_loader.so.1", RTLD_NOLOAD | RTLD_NOW);
    return reinterpret_cast<Function *>(dlsym(loader, name));
}

sycl::event in_order(sycl::queue &queue, const cclx_sycl_work &work, const cclx_sycl_event *const *after, uint32_t count) {
    if (!work.kernel || queue.ext_oneapi_get_state() != experimental::queue_state::recording)
        return submitted(queue, work, after, count);
    auto native = sycl::get_native<level_zero>(queue);
    auto list = std::get<ze_command_list_handle_t>(native);
    auto kernel = sycl::get_native<level_zero>(*static_cast<sycl::kernel *>(work.kernel));
    auto set = driver<int(ze_kernel_handle_t, uint32_t, size_t, const void *)>("zeKernelSetArgumentValue");
    auto size = driver<int(ze_kernel_handle_t, uint32_t, uint32_t, uint32_t)>("zeKernelSetGroupSize");
    auto launch = driver<int(ze_command_list_handle_t, ze_kernel_handle_t, const Count *, void *, uint32_t, void *)>(
        "zeCommandListAppendLaunchKernel");
    set(kernel, 0, work.word_bytes, work.words);
    size(kernel, work.items, 1, 1);
    const Count groups = {work.groups, 1, 1};
    launch(list, kernel, &groups, nullptr, 0, nullptr);
    // A node all the same, so that the recording goes on.
    return queue.ext_oneapi_submit_barrier();
}
