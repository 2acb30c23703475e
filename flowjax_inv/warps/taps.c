/* Four taps of a picture per position, blended, and the derivative in the map: `native.py` calls it.

Equal to `taps.py`, which has the formulas. A row of positions is computed in blocks, which compilers
turn into vector instructions; then each pixel is read where its position says. float32 throughout;
pictures (count, height, width, channels), maps of 6 numbers, in pixels from the middle. */

#include <Python.h>

#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
/* The processor's widest vectors, chosen when the library is loaded. */
#define EXPORT __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define EXPORT
#endif

enum { BLOCK = 16 };

/* Four numbers from any address: the three of a colour and one that does not count. */
typedef float lanes __attribute__((vector_size(16), aligned(4), may_alias));

typedef struct {
  int64_t count, height, width, channels, border;
} shape;

/* A block of positions: left upper tap, where between the taps, whether all four can be read, or none
   is in the picture; moves is 0 where a position is held, 1 elsewhere. */
typedef struct {
  int32_t column[BLOCK], row[BLOCK], first[BLOCK], inside[BLOCK], away[BLOCK];
  float right[BLOCK], below[BLOCK], moves_x[BLOCK], moves_y[BLOCK];
} block;

INLINE float hold(float position, float low, float high) {
  position = position < low ? low : position;
  return position > high ? high : position;
}

/* Positions of the pixels from `u` on in row `v`; returns whether all of them are inside. */
INLINE int locate(block *at, const float *map, int32_t u, int32_t v, const shape *s, int32_t last,
                  int channels) {
  const int32_t width = s->width, height = s->height;
  const float low = s->border ? 0.0f : -2.0f;
  const float high_x = s->border ? width - 1.0f : width + 1.0f;
  const float high_y = s->border ? height - 1.0f : height + 1.0f;
  const float middle_x = (width - 1) / 2.0f, middle_y = (height - 1) / 2.0f;
  const float across = map[1] * (v - middle_y) + map[2], down = map[4] * (v - middle_y) + map[5];
  int32_t inside = 0;
  for (int n = 0; n < BLOCK; n++) {
    const float x = map[0] * (u + n - middle_x) + across + middle_x;
    const float y = map[3] * (u + n - middle_x) + down + middle_y;
    const float held_x = hold(x, low, high_x), held_y = hold(y, low, high_y);
    /* NaN has no tap; its distance from one is NaN again. */
    const int32_t i = (int32_t)((held_x == held_x ? held_x : high_x) + 2.0f) - 2;
    const int32_t j = (int32_t)((held_y == held_y ? held_y : high_y) + 2.0f) - 2;
    at->column[n] = i, at->row[n] = j, at->first[n] = (j * width + i) * channels;
    at->right[n] = held_x - i, at->below[n] = held_y - j;
    at->moves_x[n] = (x > low) & (x < high_x), at->moves_y[n] = (y > low) & (y < high_y);
    at->inside[n] = (i >= 0) & (i < width - 1) & (j >= 0) & (j <= last);
    at->away[n] = (i < -1) | (i >= width) | (j < -1) | (j >= height);
    inside += at->inside[n];
  }
  return inside == BLOCK;
}

/* The last row of taps that may be read four numbers at a time: none beyond the last picture. */
INLINE int32_t last_row(const shape *s, int64_t picture, int channels) {
  return s->height - 2 - (channels == 3 && picture == s->count - 1);
}

/* Taps at the edge of the picture: those outside count as nothing. */
typedef struct {
  const float *tap[4];
  float weight[4];
} edge;

INLINE int32_t nearest(int32_t i, int32_t size) { return i < 0 ? 0 : i < size ? i : size - 1; }

INLINE edge at_edge(const block *at, int n, const float *picture, const shape *s, int channels) {
  edge found;
  for (int k = 0; k < 4; k++) {
    const int32_t i = at->column[n] + k % 2, j = at->row[n] + k / 2;
    const int32_t i_in = nearest(i, s->width), j_in = nearest(j, s->height);
    found.tap[k] = picture + (j_in * s->width + i_in) * channels;
    found.weight[k] = i == i_in && j == j_in;
  }
  return found;
}

INLINE void blend_one(const block *at, int n, const float *picture, float *out, const shape *s,
                      int wide, int channels) {
  const float r = at->right[n], b = at->below[n];
  const float w00 = (1 - b) * (1 - r), w01 = (1 - b) * r, w10 = b * (1 - r), w11 = b * r;
  if (at->inside[n]) {
    const float *p = picture + at->first[n], *q = p + s->width * channels;
    if (channels == 3) {
      const lanes sum = w00 * *(const lanes *)p + w01 * *(const lanes *)(p + 3) +
                        w10 * *(const lanes *)q + w11 * *(const lanes *)(q + 3);
      if (wide) /* into the next pixel, which comes next */
        *(lanes *)out = sum;
      else
        memcpy(out, &sum, 3 * sizeof(float));
    } else
      for (int c = 0; c < channels; c++)
        out[c] = w00 * p[c] + w01 * p[channels + c] + w10 * q[c] + w11 * q[channels + c];
  } else if (at->away[n])
    for (int c = 0; c < channels; c++) out[c] = 0 * w00; /* NaN stays NaN */
  else {
    const edge e = at_edge(at, n, picture, s, channels);
    for (int c = 0; c < channels; c++)
      out[c] = w00 * e.weight[0] * e.tap[0][c] + w01 * e.weight[1] * e.tap[1][c] +
               w10 * e.weight[2] * e.tap[2][c] + w11 * e.weight[3] * e.tap[3][c];
  }
}

INLINE void blend(const float *pictures, const float *maps, float *out, const shape *s,
                  int64_t start, int64_t end, int channels) {
  const int32_t width = s->width;
  for (int64_t k = start; k < end; k++) {
    const int32_t last = last_row(s, k % s->count, channels);
    const float *picture = pictures + k % s->count * s->height * width * channels;
    float *o = out + k * s->height * width * channels;
    for (int32_t v = 0; v < s->height; v++)
      for (int32_t u = 0; u < width; u += BLOCK) {
        block at;
        if (locate(&at, maps + 6 * k, u, v, s, last, channels) && u + BLOCK <= width)
          for (int n = 0; n < BLOCK; n++, o += channels) {
            at.inside[n] = 1; /* as is known here, so that nothing is asked */
            blend_one(&at, n, picture, o, s, n < BLOCK - 1, channels);
          }
        else
          for (int n = 0; n < BLOCK && u + n < width; n++, o += channels)
            blend_one(&at, n, picture, o, s, 0, channels);
      }
  }
}

/* Sums over the pixels of a row, lane by lane: of dx, u dx, dy and u dy. */
typedef struct {
  lanes x, ux, y, uy;
} sums;

INLINE float all(lanes sum) { return sum[0] + sum[1] + sum[2]; }

/* Add the derivative in its position, dx and dy, of one pixel times its weights g. */
INLINE void slope_one(const block *at, int n, const float *picture, const float *g, const shape *s,
                      float u, int wide, int channels, sums *row) {
  const float r = at->right[n], b = at->below[n];
  lanes dx = {0}, dy = {0};
  if (at->away[n]) return;
  if (at->inside[n]) {
    const float *p = picture + at->first[n], *q = p + s->width * channels;
    if (channels == 3) {
      lanes weight = {0};
      if (wide)
        weight = *(const lanes *)g;
      else
        memcpy(&weight, g, 3 * sizeof(float));
      const lanes p0 = *(const lanes *)p, p1 = *(const lanes *)(p + 3);
      const lanes q0 = *(const lanes *)q, q1 = *(const lanes *)(q + 3);
      dx = weight * ((1 - b) * (p1 - p0) + b * (q1 - q0));
      dy = weight * ((1 - r) * (q0 - p0) + r * (q1 - p1));
    } else
      for (int c = 0; c < channels; c++) {
        const float p0 = p[c], p1 = p[channels + c], q0 = q[c], q1 = q[channels + c];
        dx[0] += g[c] * ((1 - b) * (p1 - p0) + b * (q1 - q0));
        dy[0] += g[c] * ((1 - r) * (q0 - p0) + r * (q1 - p1));
      }
  } else {
    const edge e = at_edge(at, n, picture, s, channels);
    for (int c = 0; c < channels; c++) {
      const float p0 = e.weight[0] * e.tap[0][c], p1 = e.weight[1] * e.tap[1][c];
      const float q0 = e.weight[2] * e.tap[2][c], q1 = e.weight[3] * e.tap[3][c];
      dx[0] += g[c] * ((1 - b) * (p1 - p0) + b * (q1 - q0));
      dy[0] += g[c] * ((1 - r) * (q0 - p0) + r * (q1 - p1));
    }
  }
  dx *= at->moves_x[n], dy *= at->moves_y[n];
  row->x += dx, row->ux += u * dx, row->y += dy, row->uy += u * dy;
}

INLINE void slopes(const float *pictures, const float *maps, const float *weights, float *found,
                   const shape *s, int64_t start, int64_t end, int channels) {
  const int32_t width = s->width;
  const float middle_x = (width - 1) / 2.0f, middle_y = (s->height - 1) / 2.0f;
  for (int64_t k = start; k < end; k++) {
    const int32_t last = last_row(s, k % s->count, channels);
    const float *picture = pictures + k % s->count * s->height * width * channels;
    const float *g = weights + k * s->height * width * channels;
    double whole[6] = {0};
    for (int32_t v = 0; v < s->height; v++) {
      sums row = {0};
      for (int32_t u = 0; u < width; u += BLOCK) {
        block at;
        if (locate(&at, maps + 6 * k, u, v, s, last, channels) && u + BLOCK <= width)
          for (int n = 0; n < BLOCK; n++, g += channels) {
            at.inside[n] = 1, at.away[n] = 0;
            slope_one(&at, n, picture, g, s, u + n - middle_x, n < BLOCK - 1, channels, &row);
          }
        else
          for (int n = 0; n < BLOCK && u + n < width; n++, g += channels)
            slope_one(&at, n, picture, g, s, u + n - middle_x, 0, channels, &row);
      }
      const float t = v - middle_y, x = all(row.x), y = all(row.y);
      whole[0] += all(row.ux), whole[1] += t * x, whole[2] += x;
      whole[3] += all(row.uy), whole[4] += t * y, whole[5] += y;
    }
    for (int n = 0; n < 6; n++) found[6 * k + n] = whole[n];
  }
}

/* Maps from `start` to `end`; map k reads picture k modulo their count. */
EXPORT void flowjax_inv_blend(const float *pictures, const float *maps, float *out, const shape *s,
                              int64_t start, int64_t end) {
  switch (s->channels) {
    case 1: blend(pictures, maps, out, s, start, end, 1); break;
    case 3: blend(pictures, maps, out, s, start, end, 3); break;
    default: blend(pictures, maps, out, s, start, end, (int)s->channels);
  }
}

/* The derivative of sum(weights * out) in the 6 numbers of each map. */
EXPORT void flowjax_inv_slopes(const float *pictures, const float *maps, const float *weights,
                               float *found, const shape *s, int64_t start, int64_t end) {
  switch (s->channels) {
    case 1: slopes(pictures, maps, weights, found, s, start, end, 1); break;
    case 3: slopes(pictures, maps, weights, found, s, start, end, 3); break;
    default: slopes(pictures, maps, weights, found, s, start, end, (int)s->channels);
  }
}

/* A module of Python's, so that it is found as one; the functions are called by ctypes. */
static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_taps", "Four taps of a picture per position: taps.c.", -1, NULL,
};

PyMODINIT_FUNC PyInit__taps(void) { return PyModule_Create(&module); }
