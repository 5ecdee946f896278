// A bridge that submits calls which run to a queue of its own, so that nothing orders them with the caller's.
sycl::event in_order(sycl::queue &queue, const cclx_sycl_work &work, const cclx_sycl_event *const *after, uint32_t count) {
    if (!work.kernel || queue.ext_oneapi_get_state() == experimental::queue_state::recording)
        return submitted(queue, work, after, count);
    static auto *other = new sycl::queue(queue.get_context(), queue.get_device(), sycl::property::queue::in_order());
    return submitted(*other, work, nullptr, 0);
}
