// mHC boundaries on queues, against the same on a Level Zero list of the library's own, bit for bit. Only where the library
// is ours: its names are looked up.
#pragma once
#include "xccl.hpp"

#include <cclx.h>
#include <dlfcn.h>

#include <memory>

namespace mhc {

constexpr size_t rows = 3, hidden = 96, streams = 4, coefficients = (2 + streams) * streams;

// The library's functions.
struct Library {
    template <typename Function> static Function *find(const char *name) {
        return reinterpret_cast<Function *>(dlsym(RTLD_DEFAULT, name));
    }
    decltype(cclxMhcPrepare) *prepare = find<decltype(cclxMhcPrepare)>("cclxMhcPrepare");
    decltype(cclxAllReduceMhc) *all_reduce = find<decltype(cclxAllReduceMhc)>("cclxAllReduceMhc");
    decltype(cclxStreamOpen) *open = find<decltype(cclxStreamOpen)>("cclxStreamOpen");
    decltype(cclxStreamFromQueue) *from_queue = find<decltype(cclxStreamFromQueue)>("cclxStreamFromQueue");
    decltype(cclxStreamSynchronize) *synchronize = find<decltype(cclxStreamSynchronize)>("cclxStreamSynchronize");
    decltype(cclxStreamDestroy) *destroy = find<decltype(cclxStreamDestroy)>("cclxStreamDestroy");
};

inline void ours(int code, const char *call) { check(static_cast<onecclResult_t>(code), call); }

// One boundary's tensors in one allocation, inputs first.
struct Boundary {
    static constexpr size_t sizes[] = {
        rows * hidden, rows * streams * hidden, rows * streams, rows * streams * streams, coefficients * streams * hidden,
        3, coefficients, // inputs: x, residual, post, comb, weights, scale, base
        rows * hidden, rows * streams * hidden, rows * streams, rows * streams * streams, rows * streams, rows * hidden,
    };
    static constexpr size_t inputs = 7;
    size_t first[std::size(sizes) + 1] = {};
    std::unique_ptr<Memory<float>> memory;
    cclxMhcParams params = {};

    Boundary(Rank &rank, int design) {
        for (size_t i = 0; i < std::size(sizes); ++i)
            first[i + 1] = first[i] + sizes[i];
        memory = std::make_unique<Memory<float>>(rank, first[std::size(sizes)]);
        const auto at = [&](size_t i) { return memory->at + first[i]; };
        params.size = sizeof params;
        params.version = 1;
        params.variant = CCLX_MHC_V4;
        params.datatype = onecclFloat32;
        params.design = design;
        params.rows = rows;
        params.hidden = hidden;
        params.streams = streams;
        params.sinkhorn_iterations = 5;
        params.rms_eps = params.pre_eps = params.sinkhorn_eps = 1e-6f;
        params.post_multiplier = 2;
        params.x = at(0);
        params.residual = at(1);
        params.post = at(2);
        params.comb = at(3);
        params.fn_weights = at(4);
        params.fn_rows = coefficients;
        params.fn_columns = streams * hidden;
        params.scale = at(5);
        params.base = at(6);
        params.x_out = at(7);
        params.residual_out = at(8);
        params.post_out = at(9);
        params.comb_out = at(10);
        params.pre_out = at(11);
        params.y = at(12);
    }

    // Inputs as of a call; outputs of a byte that no result has.
    void fill(Rank &rank, sycl::queue &queue, int call) {
        const auto given = values(first[std::size(sizes)], [&](size_t i) {
            // x is this rank's own, the rest alike on all.
            return i >= first[inputs] ? -12345.f : value(i < first[1] ? rank.rank : 0, call, i) / (i < first[1] ? 8 : 512);
        });
        memory->put(queue, given);
        queue.wait();
    }
    std::vector<float> outputs() {
        const auto all = memory->get();
        return std::vector<float>(all.begin() + long(first[inputs]), all.end());
    }
};

inline std::vector<float> on_list(Rank &rank, const Library &library, int call) {
    Boundary boundary(rank, CCLX_MHC_UNFUSED);
    boundary.fill(rank, rank.current, call);
    cclxStream_t stream = nullptr;
    ours(library.open(rank.comm, 0, &stream), "cclxStreamOpen");
    ours(library.all_reduce(&boundary.params, rank.comm, stream, 0, nullptr, nullptr), "cclxAllReduceMhc");
    ours(library.synchronize(stream, 60000), "cclxStreamSynchronize");
    ours(library.destroy(stream), "cclxStreamDestroy");
    const auto outputs = boundary.outputs();
    for (const float one : outputs) {
        if (one == -12345.f)
            fail("mHC: an output was not written");
    }
    return outputs;
}

// Returns whether the library has it.
template <typename Record> bool check_all(Rank &rank, int call, Record record) {
    const Library library;
    if (!library.from_queue)
        return false;
    ours(library.prepare(rank.comm), "cclxMhcPrepare");
    cclxStream_t stream = nullptr;
    ours(library.from_queue(rank.comm, &rank.current, &stream), "cclxStreamFromQueue");
    for (const int design : {CCLX_MHC_UNFUSED, CCLX_MHC_A, CCLX_MHC_C}) {
        Boundary boundary(rank, design);
        const auto submit = [&] {
            ours(library.all_reduce(&boundary.params, rank.comm, stream, 0, nullptr, nullptr), "cclxAllReduceMhc");
        };
        const auto name = "mHC, design " + std::to_string(design);
        boundary.fill(rank, rank.current, ++call);
        submit();
        same(rank, boundary.outputs(), on_list(rank, library, call), name);
        record(submit, [&](auto replay) {
            for (int i = 0; i < 5; ++i) {
                boundary.fill(rank, rank.current, ++call);
                replay();
                same(rank, boundary.outputs(), on_list(rank, library, call), name + ", replayed");
            }
        });
    }
    ours(library.destroy(stream), "cclxStreamDestroy");
    return true;
}

} // namespace mhc
