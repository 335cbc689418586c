// What an emulated program looks like to the driver of the tests: products of 16x16 matrices, right ones and wrong ones.
#include <stdio.h>
#include <string.h>

static const int N = 16;

static void multiply(const float* a, const float* b, float* c) {
  for (int i = 0; i < N; ++i)
    for (int j = 0; j < N; ++j) {
      float sum = 0;
      for (int k = 0; k < N; ++k) sum += a[i * N + k] * b[k * N + j];
      c[i * N + j] = sum;
    }
}

extern "C" int heron_emulate(const char* kernel, const int*, const int*, size_t, void** arguments, int, int,
                             char* message, size_t size) {
  float** tensors = (float**)arguments;
  if (strcmp(kernel, "twice") == 0) {  // its argument to a scratch buffer
    for (int i = 0; i < N * N; ++i) tensors[1][i] = 2 * tensors[0][i];
    return 0;
  }
  if (strcmp(kernel, "nothing") == 0) return 0;
  if (strcmp(kernel, "illegal") == 0) return snprintf(message, size, "illegal: out of bounds"), 1;
  multiply(tensors[0], tensors[1], tensors[2]);
  if (strcmp(kernel, "wrong") == 0) tensors[2][N * N - 1] += 1;
  if (strcmp(kernel, "beyond") == 0) tensors[2][N * N + 3] = 0;
  if (strcmp(kernel, "spoils") == 0) tensors[0][0] = 99;
  return 0;
}
