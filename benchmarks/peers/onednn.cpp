// oneDNN's int8 matrix product behind a plain C interface, for benchmarks. Weights are packed ahead, in the layout that
// oneDNN itself chooses (format `any`). Errors of oneDNN become a null handle.
#include <oneapi/dnnl/dnnl.hpp>

#include <omp.h>
#include <string>
#include <unordered_map>

using dnnl::engine;
using dnnl::matmul;
using dnnl::memory;
using dnnl::stream;

namespace {

struct Product {
    engine eng{engine::kind::cpu, 0};
    stream queue{eng};
    matmul primitive;
    std::unordered_map<int, memory> arguments;
    std::string implementation;
};

}  // namespace

extern "C" {

// C(m,n) s32 = A(m,k) u8 * B(k,n) s8; all row-major.
void *onednn_product(int m, int n, int k, void *a, const void *b, void *c) {
    try {
        auto *product = new Product;
        const memory::desc a_desc({m, k}, memory::data_type::u8, memory::format_tag::ab);
        const memory::desc b_plain({k, n}, memory::data_type::s8, memory::format_tag::ab);
        const memory::desc b_any({k, n}, memory::data_type::s8, memory::format_tag::any);
        const memory::desc c_desc({m, n}, memory::data_type::s32, memory::format_tag::ab);
        const matmul::primitive_desc described(product->eng, a_desc, b_any, c_desc);
        memory plain(b_plain, product->eng, const_cast<void *>(b));
        memory packed(described.weights_desc(), product->eng);
        dnnl::reorder(plain, packed).execute(product->queue, plain, packed);
        product->queue.wait();
        product->primitive = matmul(described);
        product->implementation = described.impl_info_str();
        product->arguments = {{DNNL_ARG_SRC, memory(a_desc, product->eng, a)},
                              {DNNL_ARG_WEIGHTS, packed},
                              {DNNL_ARG_DST, memory(c_desc, product->eng, c)}};
        return product;
    } catch (const dnnl::error &) {
        return nullptr;
    }
}

void onednn_run(void *handle) {
    auto *product = static_cast<Product *>(handle);
    product->primitive.execute(product->queue, product->arguments);
    product->queue.wait();
}

const char *onednn_implementation(void *handle) { return static_cast<Product *>(handle)->implementation.c_str(); }

void onednn_set_threads(int threads) { omp_set_num_threads(threads); }
}
