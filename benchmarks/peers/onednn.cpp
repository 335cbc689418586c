// oneDNN's u8 x s8 -> s32 products and convolutions behind a plain C interface, for benchmarks.
//
// Weights that are known ahead are reordered into the layout that oneDNN itself chooses (format `any`); activations and
// results stay as the user has them: rows packed one after the other, channels last. A call goes through oneDNN's C
// function on arguments that are made ahead, without allocations. Errors become a null handle and `onednn_error`.
#include <oneapi/dnnl/dnnl.hpp>

#include <omp.h>
#include <string>
#include <vector>

using dnnl::memory;
using dims = memory::dims;
using tag = memory::format_tag;
using type = memory::data_type;

namespace {

struct Primitive {
    dnnl::engine engine{dnnl::engine::kind::cpu, 0};
    dnnl::stream queue{engine};
    dnnl::primitive primitive;
    std::vector<memory> memories;
    std::vector<dnnl_exec_arg_t> arguments;
    std::string implementation;

    void bind(int argument, const memory &bound) {
        memories.push_back(bound);
        arguments.push_back({argument, bound.get()});
    }

    // Takes over what was described, and packs the weights if oneDNN wants them otherwise than they are.
    template <typename Description>
    void make(const Description &described, const memory::desc &plain_weights, void *source, const void *weights,
              void *result) {
        memory plain(plain_weights, engine, const_cast<void *>(weights));
        bind(DNNL_ARG_SRC, memory(described.src_desc(), engine, source));
        if (described.weights_desc() == plain_weights) {
            bind(DNNL_ARG_WEIGHTS, plain);
        } else {
            memory packed(described.weights_desc(), engine);
            dnnl::reorder(plain, packed).execute(queue, plain, packed);
            queue.wait();
            bind(DNNL_ARG_WEIGHTS, packed);
        }
        bind(DNNL_ARG_DST, memory(described.dst_desc(), engine, result));
        primitive = dnnl::primitive(described);
        implementation = described.impl_info_str();
    }
};

thread_local std::string last_error;

template <typename Make>
void *guarded(Make make) {
    auto *made = new Primitive;
    try {
        make(*made);
        return made;
    } catch (const dnnl::error &error) {
        last_error = error.what();
    }
    delete made;
    return nullptr;
}

// Tags of channels-last tensors with 1, 2 and 3 spatial dimensions.
const tag activations[] = {tag::nwc, tag::nhwc, tag::ndhwc};
const tag dense_weights[] = {tag::wio, tag::hwio, tag::dhwio};
const tag grouped_weights[] = {tag::wigo, tag::hwigo, tag::dhwigo};

}  // namespace

extern "C" {

// C(m,n) = A(m,k) B(k,n) with B known ahead. `transposed`: B is stored as (n,k).
void *onednn_product(int64_t m, int64_t n, int64_t k, int transposed, void *a, const void *b, void *c) {
    return guarded([=](Primitive &made) {
        const memory::desc source({m, k}, type::u8, tag::ab), result({m, n}, type::s32, tag::ab);
        const memory::desc plain({k, n}, type::s8, transposed ? tag::ba : tag::ab), any({k, n}, type::s8, tag::any);
        made.make(dnnl::matmul::primitive_desc(made.engine, source, any, result), plain, a, b, c);
    });
}

// The same product as a fully connected layer.
void *onednn_inner_product(int64_t m, int64_t n, int64_t k, int transposed, void *a, const void *b, void *c) {
    return guarded([=](Primitive &made) {
        const memory::desc source({m, k}, type::u8, tag::ab), result({m, n}, type::s32, tag::ab);
        const memory::desc plain({n, k}, type::s8, transposed ? tag::ab : tag::ba), any({n, k}, type::s8, tag::any);
        const dnnl::inner_product_forward::primitive_desc described(
            made.engine, dnnl::prop_kind::forward_inference, source, any, result);
        made.make(described, plain, a, b, c);
    });
}

// C(i,m,n) = A(i,m,k) B(i,k,n): both are activations, B is taken as it is.
void *onednn_batch_product(int64_t batch, int64_t m, int64_t n, int64_t k, void *a, const void *b, void *c) {
    return guarded([=](Primitive &made) {
        const memory::desc source({batch, m, k}, type::u8, tag::abc), result({batch, m, n}, type::s32, tag::abc);
        const memory::desc plain({batch, k, n}, type::s8, tag::abc);
        made.make(dnnl::matmul::primitive_desc(made.engine, source, plain, result), plain, a, b, c);
    });
}

// A convolution, or a transposed one, over 1 to 3 spatial dimensions; tensors channels last, weights (spatial, ci / groups, co).
// extents: batch, ci, co, groups, and for each spatial dimension: source, kernel, result, stride, dilation, padding
// before and after.
void *onednn_convolution(int spatial, int transposed, const int64_t *extents, void *a, const void *b, void *c) {
    return guarded([=](Primitive &made) {
        const int64_t batch = extents[0], ci = extents[1], co = extents[2], groups = extents[3];
        dims source{batch, ci}, weights, result{batch, co}, stride, dilation, before, after;
        weights = groups > 1 ? dims{groups, co / groups, ci / groups} : dims{co, ci};
        for (int i = 0; i < spatial; i++) {
            const int64_t *said = extents + 4 + 7 * i;
            source.push_back(said[0]);
            weights.push_back(said[1]);
            result.push_back(said[2]);
            stride.push_back(said[3]);
            dilation.push_back(said[4] - 1);
            before.push_back(said[5]);
            after.push_back(said[6]);
        }
        const tag layout = activations[spatial - 1];
        const memory::desc source_desc(source, type::u8, layout), result_desc(result, type::s32, layout);
        const memory::desc plain(weights, type::s8, (groups > 1 ? grouped_weights : dense_weights)[spatial - 1]);
        const memory::desc any(weights, type::s8, tag::any);
        const auto kind = dnnl::prop_kind::forward_inference;
        if (transposed) {
            const dnnl::deconvolution_forward::primitive_desc described(
                made.engine, kind, dnnl::algorithm::deconvolution_direct, source_desc, any, result_desc, stride, dilation,
                before, after);
            made.make(described, plain, a, b, c);
        } else {
            const dnnl::convolution_forward::primitive_desc described(
                made.engine, kind, dnnl::algorithm::convolution_auto, source_desc, any, result_desc, stride, dilation,
                before, after);
            made.make(described, plain, a, b, c);
        }
    });
}

void onednn_run(void *handle) {
    auto *made = static_cast<Primitive *>(handle);
    dnnl_primitive_execute(made->primitive.get(), made->queue.get(), static_cast<int>(made->arguments.size()),
                           made->arguments.data());
    dnnl_stream_wait(made->queue.get());
}

const char *onednn_implementation(void *handle) { return static_cast<Primitive *>(handle)->implementation.c_str(); }

const char *onednn_error(void) { return last_error.c_str(); }

void onednn_free(void *handle) { delete static_cast<Primitive *>(handle); }

void onednn_set_threads(int threads) { omp_set_num_threads(threads); }
}
