// A bridge that records a kernel on a queue of its own that joins the recording with nothing to wait for: a node that no
// edge leads to.
sycl::event in_order(sycl::queue &queue, const cclx_sycl_work &work, const cclx_sycl_event *const *after, uint32_t count) {
    if (!work.kernel || queue.ext_oneapi_get_state() != experimental::queue_state::recording)
        return submitted(queue, work, after, count);
    sycl::queue other(queue.get_context(), queue.get_device(), sycl::property::queue::in_order());
    auto graph = queue.ext_oneapi_get_graph();
    graph.begin_recording(other);
    const auto event = submitted(other, work, nullptr, 0);
    graph.end_recording(other);
    return queue.ext_oneapi_submit_barrier({event});
}
