// Matrix instructions: fragments of wmma, whole in one place, and the registers of mma.sync and ldmatrix.
#include <utility>

#include "runtime.h"

namespace heron {

namespace {

bool whole(Element element) { return element >= SIGNED; }

int size_of(Element element) { return element == FLOAT || element == INT ? 4 : element <= BFLOAT ? 2 : 1; }

float load_float(const void* from, Element element) {
  if (element == FLOAT) return cast_bits<float>(*(const uint32_t*)from);
  return element == HALF ? widen(*(const uint16_t*)from) : bfloat_to_float(*(const uint16_t*)from);
}

int load_int(const void* from, Element element) {
  if (element == INT) return *(const int*)from;
  return element == SIGNED ? *(const int8_t*)from : *(const uint8_t*)from;
}

// The rule for pointers is one row of the tile, at most 32 bytes; for the distance of rows, 16 bytes.
void check_place(const char* what, const void* pointer, int row, unsigned stride, Element element, int line) {
  unsigned bytes = (unsigned)(row * size_of(element)), aligned = bytes < 32 ? bytes : 32;
  if ((uintptr_t)pointer % aligned)
    fail("%s in line %d: an address that is a multiple of %u bytes is needed, this one is %u bytes off", what, line,
         aligned, (unsigned)((uintptr_t)pointer % aligned));
  if (stride * (unsigned)size_of(element) % 16)
    fail("%s in line %d: the leading dimension must be a multiple of 16 bytes, and is %u elements of %d", what, line,
         stride, size_of(element));
}

template <class Number>
void multiply(Number* d, const Number* a, const Number* b, const Number* c, int m, int n, int k) {
  for (int i = 0; i < m; ++i) {
    Number row[32];
    for (int j = 0; j < n; ++j) row[j] = c[i * n + j];
    for (int l = 0; l < k; ++l) {
      Number left = a[i * k + l];
      const Number* right = b + l * n;
      for (int j = 0; j < n; ++j) row[j] += left * right[j];
    }
    for (int j = 0; j < n; ++j) d[i * n + j] = row[j];
  }
}

}  // namespace

Tile::Tile(int rows, int columns, Element element)
    : values(open_tile((size_t)(rows * columns) * 4)), rows((short)rows), columns((short)columns), element(element) {
  if (values) memset(values, whole(element) ? 0x5a : 0xff, (size_t)(rows * columns) * 4);
}

Tile::~Tile() { close_tile((size_t)(rows * columns) * 4); }

void tile_fill(Tile& tile, float number, int integer, int line) {
  if (!alike("fill_fragment", nullptr, 0, line)) return;
  for (int i = 0; i < tile.rows * tile.columns; ++i) {
    if (whole(tile.element))
      ((int*)tile.values)[i] = integer;
    else
      ((float*)tile.values)[i] = number;
  }
}

void tile_load(Tile& tile, const void* pointer, unsigned stride, bool columns, int line) {
  if (!alike("load_matrix_sync", pointer, stride, line)) return;
  check_place("load_matrix_sync", pointer, columns ? tile.rows : tile.columns, stride, tile.element, line);
  int size = size_of(tile.element);
  for (int i = 0; i < tile.rows; ++i)
    for (int j = 0; j < tile.columns; ++j) {
      const char* from = (const char*)pointer + ((size_t)(columns ? j : i) * stride + (size_t)(columns ? i : j)) * size;
      if (whole(tile.element))
        ((int*)tile.values)[i * tile.columns + j] = load_int(from, tile.element);
      else
        ((float*)tile.values)[i * tile.columns + j] = load_float(from, tile.element);
    }
}

void tile_store(void* pointer, const Tile& tile, unsigned stride, bool columns, int line) {
  if (!alike("store_matrix_sync", pointer, stride, line)) return;
  check_place("store_matrix_sync", pointer, columns ? tile.rows : tile.columns, stride, tile.element, line);
  int size = size_of(tile.element);
  for (int i = 0; i < tile.rows; ++i)
    for (int j = 0; j < tile.columns; ++j) {
      char* to = (char*)pointer + ((size_t)(columns ? j : i) * stride + (size_t)(columns ? i : j)) * size;
      float number = ((const float*)tile.values)[i * tile.columns + j];
      if (size == 2)
        *(uint16_t*)to = narrow(number);
      else
        memcpy(to, &number, 4);    // a float, or an int's bits
    }
}

void tile_multiply(Tile& d, const Tile& a, const Tile& b, const Tile& c, int line) {
  if (!alike("mma_sync", nullptr, 0, line)) return;
  int m = d.rows, n = d.columns, k = a.columns;
  if (whole(d.element)) {
    multiply((unsigned*)d.values, (const unsigned*)a.values, (const unsigned*)b.values, (const unsigned*)c.values, m, n,
             k);    // wraps as a device does
    return;
  }
  float* sums = (float*)d.values;
  multiply(sums, (const float*)a.values, (const float*)b.values, (const float*)c.values, m, n, k);
  if (d.element == HALF)
    for (int i = 0; i < m * n; ++i) sums[i] = widen(narrow(sums[i]));
}

// ---- ldmatrix ------------------------------------------------------------------------------------------------------

namespace {

struct Load {
  unsigned** words;
  const uint16_t* row;
};

template <int Count, bool Transposed>
void do_load(void** brought, unsigned) {
  for (int matrix = 0; matrix < Count; ++matrix)
    for (int lane = 0; lane < 32; ++lane) {
      uint16_t pair[2];
      for (int i = 0; i < 2; ++i) {
        int row = lane / 4, column = lane % 4 * 2 + i;
        if (Transposed) std::swap(row, column);
        pair[i] = ((Load*)brought[matrix * 8 + row])->row[column];
      }
      *((Load*)brought[lane])->words[matrix] = (unsigned)pair[1] << 16 | pair[0];
    }
}

}  // namespace

void matrix_load(unsigned** words, int count, bool transposed, unsigned address, int line) {
  if (lanes() != 0xffffffffu) fail("ldmatrix in line %d by a warp of fewer than 32 lanes", line);
  Load own{words, nullptr};
  if (current->lane < count * 8) {
    if (address % 16) fail("ldmatrix in line %d: a row at a multiple of %u bytes, not 16", line, address & -address);
    own.row = (const uint16_t*)shared_pointer(address);
    (void)*(const volatile uint16_t*)(own.row + 7);    // out of bounds is found in the lane that gave the address
  }
  static const Work works[2][5] = {{nullptr, do_load<1, false>, do_load<2, false>, nullptr, do_load<4, false>},
                                   {nullptr, do_load<1, true>, do_load<2, true>, nullptr, do_load<4, true>}};
  meet("ldmatrix", 0xffffffffu, &own, works[transposed][count], true, line);
}

// ---- mma.sync ------------------------------------------------------------------------------------------------------

namespace {

struct Multiply {
  Element a, b, sum;
  int depth;
  const unsigned *a_words, *b_words, *c_words;
  void** d_words;
};

template <class Number>
Number part(unsigned word, int i, Element element) {
  if (element == HALF) return (Number)widen((uint16_t)(word >> 16 * i));
  if (element == BFLOAT) return (Number)bfloat_to_float((uint16_t)(word >> 16 * i));
  uint8_t byte = (uint8_t)(word >> 8 * i);
  return element == SIGNED ? (Number)(int8_t)byte : (Number)byte;
}

template <class Number>
Number sum_in(const Multiply& one, int i) {
  if (one.sum != HALF) return cast_bits<Number>(one.c_words[i]);
  return (Number)widen((uint16_t)(one.c_words[i / 2] >> 16 * (i % 2)));
}

template <class Number>
void sum_out(const Multiply& one, int i, Number value) {
  if (one.sum == HALF) {
    uint16_t half = narrow((float)value);
    memcpy((char*)one.d_words[i / 2] + 2 * (i % 2), &half, 2);
  } else {
    memcpy(one.d_words[i], &value, 4);
  }
}

// Lane 4 g + t holds rows g and g + 8 and, of each run of four registers' width, its t-th part.
template <class Number>
void do_multiply(void** brought, unsigned) {
  const Multiply& kind = *(const Multiply*)brought[0];
  int each = kind.a <= BFLOAT ? 2 : 4, depth = kind.depth, runs = depth / (4 * each);
  Number a[16 * 32], b[32 * 8], c[16 * 8], d[16 * 8];
  for (int lane = 0; lane < 32; ++lane) {
    const Multiply& one = *(const Multiply*)brought[lane];
    int g = lane / 4, t = lane % 4;
    for (int run = 0; run < runs; ++run)
      for (int i = 0; i < each; ++i) {
        int at = run * 4 * each + t * each + i;
        a[g * depth + at] = part<Number>(one.a_words[2 * run], i, kind.a);
        a[(g + 8) * depth + at] = part<Number>(one.a_words[2 * run + 1], i, kind.a);
        b[at * 8 + g] = part<Number>(one.b_words[run], i, kind.b);
      }
    for (int i = 0; i < 4; ++i) c[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sum_in<Number>(one, i);
  }
  multiply(d, a, b, c, 16, 8, depth);
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i)
      sum_out(*(const Multiply*)brought[lane], i, d[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2]);
}

}  // namespace

void matrix_multiply(Element a, Element b, Element sum, int depth, const unsigned* a_words, const unsigned* b_words,
                     const unsigned* c_words, void** d_words, int line) {
  if (lanes() != 0xffffffffu) fail("mma.sync in line %d by a warp of fewer than 32 lanes", line);
  Multiply own{a, b, sum, depth, a_words, b_words, c_words, d_words};
  meet("mma.sync", 0xffffffffu, &own, sum == INT ? do_multiply<unsigned> : do_multiply<float>, true, line);
}

// ---- half precision where the compiler has none --------------------------------------------------------------------

float half_to_float(uint16_t bits) {
  uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
  if (exponent == 31) return cast_bits<float>(sign | 0x7f800000u | fraction << 13);
  if (exponent) return cast_bits<float>(sign | (exponent + 112) << 23 | fraction << 13);
  float tiny = (float)fraction * 0x1p-24f;
  return sign ? -tiny : tiny;
}

uint16_t float_to_half(float value) {
  uint32_t word = cast_bits<uint32_t>(value);
  uint16_t sign = (uint16_t)(word >> 16 & 0x8000);
  uint32_t magnitude = word & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x1ff));
  if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00);    // 65520 and more round to infinity
  if (magnitude < 0x38800000u) {                                     // less than 2^-14: the float adder rounds
    float shifted = cast_bits<float>(magnitude) + 0.5f;
    return (uint16_t)(sign | (cast_bits<uint32_t>(shifted) - 0x3f000000u));
  }
  uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
}

}  // namespace heron
