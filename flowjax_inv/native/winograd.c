/* Winograd's F(2 x 2, 3 x 3): a window that is pooled is one tile, made by 16 products a channel where
   the sums of a convolution take 36.

       Y = A' ((G g G') * (B' d B)) A,    d: 4 x 4 pixels,  g: 3 x 3 weights,  Y: 2 x 2 outputs

       B' = 1  0 -1  0    G = 1    0    0      A' = 1  1  1  0
            0  1  1  0        1/2  1/2  1/2         0  1 -1 -1
            0 -1  1  0        1/2 -1/2  1/2
            0  1  0 -1        0    0    1

   `*` multiplies element by element; its sums over channels are 16 products of matrices, for the tiles
   of some rows at a time, so that all stays in the cache. Rounding differs from that of the plain sums,
   and is about as large. A pixel that is infinite makes NaN.
   Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2016). */

#include <stdint.h>
#include <string.h>

#include "onednn.h"
#include "winograd.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")

enum { POINTS = 16, TILES = 16 };

typedef float eight __attribute__((vector_size(32), aligned(4), may_alias));

typedef struct {
  int64_t rows, columns; /* of tiles, of a picture */
  int64_t at_once;       /* rows of tiles */
  /* Numbers that are taken for the kernel, a line of pixels, and each point's tiles before and after the
     products. Beside each other in memory, 16 points would fall on the same places of the cache. */
  int64_t kernel, line, before, after;
} plan;

static int64_t aligned(int64_t count) { return (count + 15) / 16 * 16; }

static plan planned(const key *k) {
  const int64_t *images = k->sizes[IMAGES], *outputs = k->sizes[OUTPUTS];
  plan p = {.rows = outputs[1] / 2, .columns = outputs[2] / 2};
  p.at_once = p.columns < TILES ? TILES / p.columns : 1;
  p.kernel = POINTS * images[3] * outputs[3];
  p.line = aligned((images[2] + 2 * k->padding) * images[3]);
  p.before = aligned(p.at_once * p.columns * images[3]) + 16;
  p.after = aligned(p.at_once * p.columns * outputs[3]) + 16;
  return p;
}

/* FMA, whose rounding is the same in vectors of any width. */
#pragma GCC optimize("fp-contract=fast")

#pragma GCC push_options
#pragma GCC target("avx512f,avx2,fma")
#define WIDTH 16
#define BLOCK 8
#define NAME(name) name##_of_16
#include "tiles.h"
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define WIDTH 8
#define BLOCK 4
#define NAME(name) name##_of_8
#include "tiles.h"
#pragma GCC pop_options

int64_t flowjax_inv_winograd_room(const key *k) {
  const int64_t *kernel = k->sizes[KERNEL], *outputs = k->sizes[OUTPUTS];
  const int square = kernel[0] == 3 && kernel[1] == 3 && k->stride == 1;
  const int whole = kernel[2] % 8 == 0 && kernel[3] % 16 == 0 && outputs[1] > 1 && outputs[2] > 1;
  if (!square || !whole || !__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
  const plan p = planned(k);
  return p.kernel + 5 * p.line + POINTS * (p.before + p.after);
}

void flowjax_inv_winograd(const key *k, float *const *arrays, const float *bias, int relu, float *room) {
  (__builtin_cpu_supports("avx512f") ? layer_of_16 : layer_of_8)(k, arrays, bias, relu, room);
}

#else

int64_t flowjax_inv_winograd_room(const key *k) { return 0; }

void flowjax_inv_winograd(const key *k, float *const *arrays, const float *bias, int relu, float *room) {}

#endif
