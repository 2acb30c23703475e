/* The parts of winograd.c, for vectors of one size: it defines WIDTH, the numbers in a vector; BLOCK,
   the tiles that are multiplied at once; and NAME, what makes names of this size. */

#include "vectors.h"

/* G g G': points, each (channels, features), which are `pairs` numbers. */
INLINE void NAME(transform_kernel)(const float *g, float *u, int64_t pairs) {
  for (int64_t n = 0; n < pairs; n += WIDTH, g += WIDTH, u += WIDTH) {
    vector rows[4][3];
    UNROLL for (int j = 0; j < 3; j++) {
      const vector a = OF(g + j * pairs), b = OF(g + (3 + j) * pairs), c = OF(g + (6 + j) * pairs);
      rows[0][j] = a, rows[1][j] = 0.5f * (a + b + c), rows[2][j] = 0.5f * (a - b + c);
      rows[3][j] = c;
    }
    UNROLL for (int i = 0; i < 4; i++) {
      const vector a = rows[i][0], b = rows[i][1], c = rows[i][2];
      float *to = u + 4 * i * pairs;
      AT(to) = a, AT(to + pairs) = 0.5f * (a + b + c);
      AT(to + 2 * pairs) = 0.5f * (a - b + c), AT(to + 3 * pairs) = c;
    }
  }
}

/* B' d, or d B, of four numbers; written `step` apart. */
INLINE void NAME(transform)(eight a, eight b, eight c, eight d, float *to, int64_t step) {
  *(eight *)to = a - c, *(eight *)(to + step) = b + c;
  *(eight *)(to + 2 * step) = c - b, *(eight *)(to + 3 * step) = b - d;
}

/* B' d B of a row of tiles. A tile shares its columns with the next: first B' d of them all. */
INLINE void NAME(transform_row)(const float *const *rows, int64_t size, float *lines, float *v,
                                const plan *p, int64_t channels, int64_t padding) {
  for (int64_t n = 0; n < size; n += 8) {
    const eight a = *(const eight *)(rows[0] + n), b = *(const eight *)(rows[1] + n);
    const eight c = *(const eight *)(rows[2] + n), d = *(const eight *)(rows[3] + n);
    NAME(transform)(a, b, c, d, lines + padding * channels + n, p->line);
  }
  for (int i = 0; i < 4; i++)
    for (int64_t n = 0; n < channels; n += 8) {
      const float *from = lines + i * p->line + n;
      float *to = v + 4 * i * p->before + n;
      eight a = *(const eight *)from, b = *(const eight *)(from + channels);
      for (int64_t t = 0; t < p->columns; t++, to += channels) {
        from += 2 * channels;
        const eight c = *(const eight *)from, d = *(const eight *)(from + channels);
        NAME(transform)(a, b, c, d, to, p->before);
        a = c, b = d;
      }
    }
}

/* Tiles (., 8) times a kernel (8, d): its weights stay in the registers. */
INLINE void NAME(multiply_eight)(const float *v, const float *u, float *m, int64_t tiles, int64_t d) {
  for (int64_t n = 0; n < d; n += WIDTH) {
    vector weights[8];
    UNROLL for (int k = 0; k < 8; k++) weights[k] = OF(u + k * d + n);
    for (int64_t t = 0; t < tiles; t++) {
      vector sum = {0};
      UNROLL for (int k = 0; k < 8; k++) sum += ALL(v[8 * t + k]) * weights[k];
      AT(m + t * d + n) = sum;
    }
  }
}

/* Some tiles (., c) times a kernel (c, d), of which WIDTH or twice as many columns. */
INLINE void NAME(block)(const float *v, const float *u, float *m, int64_t c, int64_t d,
                        const int tiles, const int vectors) {
  vector sums[BLOCK][2];
  const float *pairs[BLOCK / 2]; /* pointers to every tile would not find room in the registers */
  UNROLL for (int t = 0; t < tiles; t++) {
    if (t % 2 == 0) pairs[t / 2] = v + t * c;
    UNROLL for (int n = 0; n < vectors; n++) sums[t][n] = (vector){0};
  }
  for (int64_t k = 0; k < c; k++, u += d) {
    vector weights[2];
    UNROLL for (int n = 0; n < vectors; n++) weights[n] = OF(u + n * WIDTH);
    UNROLL for (int t = 0; t < tiles; t++) {
      const vector x = ALL(pairs[t / 2][t % 2 * c]);
      UNROLL for (int n = 0; n < vectors; n++) sums[t][n] += x * weights[n];
    }
    UNROLL for (int t = 0; t < tiles; t += 2) pairs[t / 2]++;
  }
  UNROLL for (int t = 0; t < tiles; t++)
    UNROLL for (int n = 0; n < vectors; n++) AT(m + t * d + n * WIDTH) = sums[t][n];
}

INLINE void NAME(multiply)(const float *v, const float *u, float *m, int64_t tiles, int64_t c,
                           int64_t d, const int vectors) {
  for (int64_t n = 0; n < d; n += vectors * WIDTH) {
    int64_t t = 0;
    for (; t < tiles && tiles < BLOCK; t++)
      NAME(block)(v + t * c, u + n, m + t * d + n, c, d, 1, vectors);
    for (; t < tiles; t += BLOCK) { /* should the last not fill a block, some before them again */
      if (t > tiles - BLOCK) t = tiles - BLOCK;
      NAME(block)(v + t * c, u + n, m + t * d + n, c, d, BLOCK, vectors);
    }
  }
}

/* NaN stays NaN, as in XLA. */
INLINE vector NAME(larger)(vector a, vector b) {
  const mask kept = (a > b) | (a != a);
  return (vector)(((mask)a & kept) | ((mask)b & ~kept));
}

/* The largest of A' m A, bias, ReLU. */
INLINE vector NAME(finished)(const float *m, int64_t step, vector bias, int relu) {
  vector x[4], y[4]; /* the upper outputs' and the lower's */
  UNROLL for (int j = 0; j < 4; j++, m += step) {
    const vector a = OF(m), b = OF(m + 4 * step), c = OF(m + 8 * step), e = OF(m + 12 * step);
    x[j] = a + b + c, y[j] = b - c - e;
  }
  const vector most = NAME(larger)(NAME(larger)(x[0] + x[1] + x[2], x[1] - x[2] - x[3]),
                                   NAME(larger)(y[0] + y[1] + y[2], y[1] - y[2] - y[3]));
  const vector sum = most + bias;
  return relu ? (vector)((mask)sum & ~(sum < 0)) : sum;
}

static void NAME(layer)(const key *k, float *const *arrays, const float *bias, int relu, float *room) {
  const plan p = planned(k);
  const int64_t *sizes = k->sizes[IMAGES], height = sizes[1], c = sizes[3];
  const int64_t d = k->sizes[OUTPUTS][3], size = sizes[2] * c, last = sizes[0] * p.rows;
  float *u = room, *lines = u + p.kernel, *zeros = lines + 4 * p.line, *v = zeros + p.line;
  float *m = v + POINTS * p.before, *out = arrays[OUTPUTS];
  NAME(transform_kernel)(arrays[KERNEL], u, c * d);
  memset(lines, 0, 5 * p.line * sizeof(float));
  for (int64_t start = 0; start < last; start += p.at_once) {
    const int64_t end = start + p.at_once < last ? start + p.at_once : last;
    const int64_t tiles = (end - start) * p.columns;
    for (int64_t row = start; row < end; row++) {
      const float *image = arrays[IMAGES] + row / p.rows * height * size, *rows[4];
      for (int64_t i = 0, y = row % p.rows * 2 - k->padding; i < 4; i++, y++)
        rows[i] = y < 0 || y >= height ? zeros : image + y * size;
      NAME(transform_row)(rows, size, lines, v + (row - start) * p.columns * c, &p, c, k->padding);
    }
    for (int i = 0; i < POINTS; i++) {
      const float *tile = v + i * p.before, *kernel = u + i * c * d;
      if (c == 8)
        NAME(multiply_eight)(tile, kernel, m + i * p.after, tiles, d);
      else if (d % (2 * WIDTH))
        NAME(multiply)(tile, kernel, m + i * p.after, tiles, c, d, 1);
      else
        NAME(multiply)(tile, kernel, m + i * p.after, tiles, c, d, 2);
    }
    for (int64_t t = 0; t < tiles; t++, out += d)
      for (int64_t n = 0; n < d; n += WIDTH)
        AT(out + n) = NAME(finished)(m + t * d + n, p.after, OF(bias + n), relu);
  }
}

#undef WIDTH
#undef BLOCK
#undef NAME
