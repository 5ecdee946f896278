// A bridge that takes its time between asking whether a queue records and the barrier that is to tell of what is on it.
} // namespace
#include <chrono>
#include <thread>
namespace {

sycl::event in_order(sycl::queue &queue, const cclx_sycl_work &work, const cclx_sycl_event *const *after, uint32_t count) {
    if (!work.kernel && work.bytes == 0 && work.unless_recording)
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
    return submitted(queue, work, after, count);
}
