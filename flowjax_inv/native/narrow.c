/* Eight features fill half a vector of AVX-512, and half of its multiplications are wasted. So two
   pixels are computed in one: of two rows, the upper half of a picture's and the lower's, whose numbers
   are laid side by side before. */

#include <stdint.h>
#include <string.h>

#include "onednn.h"
#include "narrow.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)

#pragma GCC optimize("fp-contract=fast")
#pragma GCC target("avx512f,avx2,fma")

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")

enum { FEATURES = 8, WIDTH = 16, BLOCK = 8 };

typedef float vector __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t mask __attribute__((vector_size(64)));
typedef int64_t pairs __attribute__((vector_size(64)));
typedef int64_t pair __attribute__((aligned(4), may_alias));

/* Pairs of the numbers of two rows. */
INLINE void lay(const float *upper, const float *lower, float *to, int64_t count) {
  int64_t n = 0;
  for (; n + WIDTH <= count; n += WIDTH) {
    const vector a = *(const vector *)(upper + n), b = *(const vector *)(lower + n);
    vector *out = (vector *)(to + 2 * n);
    out[0] = __builtin_shuffle(a, b, (mask){0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23});
    out[1] =
        __builtin_shuffle(a, b, (mask){8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31});
  }
  for (; n < count; n++) to[2 * n] = upper[n], to[2 * n + 1] = lower[n];
}

/* Some pixels of a row of pairs, from `lines` to both halves of the outputs. */
INLINE void compute(const float *lines, int64_t line, const float *weights, vector bias, int relu,
                    float *upper, float *lower, int64_t side, const int channels, const int pixels) {
  vector sums[BLOCK];
  UNROLL for (int x = 0; x < pixels; x++) sums[x] = (vector){0};
  for (int64_t i = 0; i < side; i++, lines += line)
    for (int64_t j = 0; j < side * channels; j++, weights += WIDTH)
      UNROLL for (int x = 0; x < pixels; x++) {
        const pairs both = (pairs){0} + *(const pair *)(lines + 2 * (x * channels + j));
        sums[x] += (vector)both * *(const vector *)weights;
      }
  UNROLL for (int x = 0; x < pixels; x++) {
    vector sum = sums[x] + bias;
    if (relu) sum = (vector)((mask)sum & ~(sum < 0));
    const vector apart =
        __builtin_shuffle(sum, (mask){0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15});
    memcpy(upper + x * FEATURES, &apart, sizeof apart / 2);
    if (lower) memcpy(lower + x * FEATURES, (const float *)&apart + FEATURES, sizeof apart / 2);
  }
}

INLINE void layer(const key *k, float *const *arrays, const float *bias, int relu, float *room,
                  const int channels) {
  const int64_t *sizes = k->sizes[IMAGES], *outputs = k->sizes[OUTPUTS], side = k->sizes[KERNEL][0];
  const int64_t height = sizes[1], size = sizes[2] * channels, padding = k->padding;
  const int64_t rows = (outputs[1] + 1) / 2, columns = outputs[2], count = side * side * channels;
  const int64_t line = 2 * (sizes[2] + 2 * padding) * channels;
  float *weights = room, *zeros = weights + count * WIDTH, *lines = zeros + size;
  vector biases;
  for (int n = 0; n < WIDTH; n++) biases[n] = bias[n / 2];
  for (int64_t n = 0; n < count * WIDTH; n++) weights[n] = arrays[KERNEL][n / 2];
  memset(zeros, 0, (size + (rows + side - 1) * line) * sizeof(float));
  for (int64_t n = 0; n < sizes[0]; n++) {
    const float *image = arrays[IMAGES] + n * height * size;
    for (int64_t y = 0; y < rows + side - 1; y++) {
      const float *both[2];
      for (int64_t i = 0, row = y - padding; i < 2; i++, row += rows)
        both[i] = row < 0 || row >= height ? zeros : image + row * size;
      lay(both[0], both[1], lines + y * line + 2 * padding * channels, size);
    }
    for (int64_t y = 0; y < rows; y++) {
      float *upper = arrays[OUTPUTS] + (n * outputs[1] + y) * columns * FEATURES;
      float *lower = y + rows < outputs[1] ? upper + rows * columns * FEATURES : NULL;
      int64_t x = 0;
#define COMPUTE(pixels)                                                                               \
  compute(lines + y * line + 2 * x * channels, line, weights, biases, relu, upper + x * FEATURES,     \
          lower ? lower + x * FEATURES : NULL, side, channels, pixels)
      for (; x < columns && columns < BLOCK; x++) COMPUTE(1);
      for (; x < columns; x += BLOCK) { /* should the last not fill a block, some before them again */
        if (x > columns - BLOCK) x = columns - BLOCK;
        COMPUTE(BLOCK);
      }
    }
  }
}

int64_t flowjax_inv_narrow_room(const key *k) {
  const int64_t *sizes = k->sizes[IMAGES], *kernel = k->sizes[KERNEL];
  const int grey = kernel[2] == 1, coloured = kernel[2] == 3;
  const int fits = (grey || coloured) && kernel[3] == FEATURES && kernel[0] == kernel[1] && k->stride == 1;
  if (!fits || !__builtin_cpu_supports("avx512f")) return 0;
  const int64_t rows = (k->sizes[OUTPUTS][1] + 1) / 2 + kernel[0] - 1;
  return (kernel[0] * kernel[0] * WIDTH + sizes[2] + rows * 2 * (sizes[2] + 2 * k->padding)) * kernel[2];
}

void flowjax_inv_narrow(const key *k, float *const *arrays, const float *bias, int relu, float *room) {
  if (k->sizes[KERNEL][2] == 1)
    layer(k, arrays, bias, relu, room, 1);
  else
    layer(k, arrays, bias, relu, room, 3);
}

#else

int64_t flowjax_inv_narrow_room(const key *k) { return 0; }

void flowjax_inv_narrow(const key *k, float *const *arrays, const float *bias, int relu, float *room) {}

#endif
