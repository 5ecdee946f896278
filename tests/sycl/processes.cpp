// processes [native]: two processes, each with a device of its own, add up their memory: each maps the other's
// malloc_device memory by Level Zero's IPC calls. Eager and replayed.
#include "kernels.hpp"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace exp = sycl::ext::oneapi::experimental;

namespace {
constexpr size_t N = 4096;
constexpr auto backend = sycl::backend::ext_oneapi_level_zero;

uint32_t pattern(size_t i, uint32_t rank, uint32_t call) { return (uint32_t(i) + call * 977u) * (rank * 31u + 7u); }

// What one process sends the other about its memory; the descriptor goes along.
struct Parcel {
    ze_ipc_mem_handle_t handle;
    size_t offset;
};

void send(int socket, const Parcel &parcel, int descriptor) {
    iovec data{const_cast<Parcel *>(&parcel), sizeof parcel};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &data, message.msg_iovlen = 1;
    message.msg_control = control, message.msg_controllen = sizeof control;
    cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    CHECK(sendmsg(socket, &message, 0) == sizeof parcel);
}

int receive(int socket, Parcel &parcel) {
    iovec data{&parcel, sizeof parcel};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &data, message.msg_iovlen = 1;
    message.msg_control = control, message.msg_controllen = sizeof control;
    CHECK(recvmsg(socket, &message, MSG_WAITALL) == sizeof parcel);
    int descriptor = -1;
    CHECK(CMSG_FIRSTHDR(&message) != nullptr);
    std::memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof descriptor);
    return descriptor;
}

// The peer's memory, as this process sees it. A handle begins with the number of a descriptor, which means another one
// in another process.
char *exchange(int socket, const sycl::context &context, const sycl::device &device, void *memory) {
    auto native = sycl::get_native<backend>(context);
    Parcel ours{}, theirs{};
    void *base = nullptr;
    ze(zeMemGetAddressRange(native, memory, &base, nullptr), "zeMemGetAddressRange");
    ours.offset = size_t(static_cast<char *>(memory) - static_cast<char *>(base));
    ze(zeMemGetIpcHandle(native, base, &ours.handle), "zeMemGetIpcHandle");
    int descriptor;
    std::memcpy(&descriptor, &ours.handle, sizeof descriptor);
    send(socket, ours, descriptor);
    int received = receive(socket, theirs);
    std::memcpy(&theirs.handle, &received, sizeof received);
    void *mapped = nullptr;
    ze(zeMemOpenIpcHandle(native, sycl::get_native<backend>(device), theirs.handle, 0, &mapped), "zeMemOpenIpcHandle");
    close(received);
    return static_cast<char *>(mapped) + theirs.offset;
}

int work(uint32_t rank, int socket, bool native) {
    auto devices = sycl::device::get_devices(sycl::info::device_type::gpu);
    CHECK(devices.size() >= 2);
    sycl::device device = devices[rank];
    sycl::context context = device.get_platform().khr_get_default_context();
    sycl::queue queue{context, device, sycl::property::queue::in_order()};
    Kernels kernels{context, device};

    // Input, and behind it the word to which the peer writes its meetings.
    auto *mine = sycl::malloc_device<uint32_t>(N + 64, queue);
    auto *out = sycl::malloc_device<uint32_t>(N, queue);
    auto *meetings = sycl::malloc_device<uint32_t>(64, queue), *missed = meetings + 1;
    queue.memset(mine, 0, (N + 64) * 4);
    queue.memset(meetings, 0, 64 * 4).wait();
    auto *theirs = reinterpret_cast<uint32_t *>(exchange(socket, context, device, mine));
    auto meet = [&] { launch(queue, kernels.meet(), 64, {}, theirs + N, mine + N, meetings, missed); };
    auto reduce = [&] {
        meet();
        launch(queue, kernels.add(), N, {}, out, mine, theirs);
        meet();
    };

#if RELEASE >= 9
    auto graph = native ? exp::command_graph<exp::graph_state::modifiable>{
                              context, device, {exp::property::graph::enable_native_recording{}}}
                        : exp::command_graph<exp::graph_state::modifiable>{context, device};
#else
    CHECK(!native);
    exp::command_graph<exp::graph_state::modifiable> graph{context, device};
#endif
    graph.begin_recording(queue);
    reduce();
    graph.end_recording(queue);
    auto ready = graph.finalize();

    std::vector<uint32_t> data(N), back(N);
    for (uint32_t call = 0; call < 400; call++) {
        for (size_t i = 0; i < N; i++) data[i] = pattern(i, rank, call);
        queue.memcpy(mine, data.data(), N * 4);
        // Both ranks do the same: the meetings are numbered on through eager calls and replays.
        if (call % 3 == 1) reduce();
        else queue.ext_oneapi_graph(ready);
        queue.memcpy(back.data(), out, N * 4).wait();
        for (size_t i = 0; i < N; i++)
            if (back[i] != pattern(i, 0, call) + pattern(i, 1, call))
                fail(__FILE__, __LINE__, "rank " + std::to_string(rank) + ", call " + std::to_string(call) +
                                             ", element " + std::to_string(i));
    }
    uint32_t counted[2];
    queue.memcpy(counted, meetings, sizeof counted).wait();
    CHECK(counted[0] == 800 && counted[1] == 0);
    // Whoever is done early keeps its memory until the peer is done as well.
    char end = 1;
    CHECK(write(socket, &end, 1) == 1 && read(socket, &end, 1) == 1);
    auto context_handle = sycl::get_native<backend>(context);
    void *base = nullptr;
    ze(zeMemGetAddressRange(context_handle, theirs, &base, nullptr), "zeMemGetAddressRange");
    ze(zeMemCloseIpcHandle(context_handle, base), "zeMemCloseIpcHandle");
    for (auto *memory : {mine, out, meetings}) sycl::free(memory, queue);
    return 0;
}
} // namespace

int main(int count, char **arguments) {
    bool native = count > 1 && std::string(arguments[1]) == "native";
    int sockets[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    // Before anything of SYCL's runs, which doesn't outlive a fork.
    pid_t child = fork();
    CHECK(child >= 0);
    close(sockets[child == 0 ? 0 : 1]);
    int status = work(child == 0 ? 1 : 0, sockets[child == 0 ? 1 : 0], native);
    if (child == 0) std::exit(status);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    std::puts("processes: ok");
}
